/* SPDX-License-Identifier: MIT
 *
 * `gpualloc run`: sets the environment and executes the program, or a shell, in this process.
 */
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/log.h"
#include "cli.h"
#include "settings.h"
#include "suggest.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CANNOT_RUN = 126, /* as env(1) */
    NOT_FOUND = 127
};

enum {
    KEY_SHELL = 0x200
};

typedef struct run_args {
    ga_settings settings;
    bool shell;
    char **program; /* name and arguments */
} run_args;

/* ---- the program --------------------------------------------------------------------------- */

static int cannot_run(const run_args *args, int error)
{
    ga_fail(GA_ERR_IO, "\"%.300s\": %s", args->program[0], strerror(error));
    ga_settings_refuse(&args->settings, NULL);
    return error == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

/* False, with an error, if the program would run on another allocator and the options forbid that.
 * Where the preload would harm it, it goes. */
static bool try_reach(const run_args *args, const char *program, const ga_reach *reach)
{
    if (!*reach->trouble) {
        return true;
    }
    if (args->settings.strict) {
        ga_fail(GA_ERR_UNSUPPORTED, "\"%.300s\": LD_PRELOAD does not reach it: %s", program,
                reach->trouble);
        return ga_settings_refuse(&args->settings, NULL);
    }
    ga_log(GA_LOG_WARN, "\"%s\": LD_PRELOAD does not reach it: %s; its allocator stays", program,
           reach->trouble);
    return !reach->harmful || ga_preload_list_unset(&args->settings.libraries);
}

/* The program runs in this process, so that this process's id tells it from its children. */
static bool set_reporter(const ga_settings *settings)
{
    char id[16];
    snprintf(id, sizeof id, "%d", (int)getpid());
    return !settings->stats || settings->children || setenv("GPUALLOC_STATS_PID", id, 1) == 0;
}

static int run(run_args *args)
{
    ga_path program;
    if (!ga_settings_try(&args->settings)) {
        return GA_CLI_USAGE;
    }
    int error = ga_program_find(&program, args->program[0]);
    if (error) {
        return cannot_run(args, error);
    }
    if (!ga_settings_export(&args->settings) || !set_reporter(&args->settings)) {
        return cannot_run(args, ENOMEM);
    }
    ga_reach reach;
    ga_program_reach(&reach, program.text, args->settings.malloc.text);
    if (reach.error) {
        return cannot_run(args, reach.error); /* before an old trace is removed */
    }
    if (!try_reach(args, program.text, &reach) || !ga_settings_try_files(&args->settings)) {
        return GA_CLI_USAGE;
    }
    if (args->shell && isatty(STDIN_FILENO)) {
        fprintf(stderr, "gpualloc run: this shell runs programs on \"%s\" until you leave it\n",
                args->settings.host);
    }
    execvp(program.text, args->program);
    return cannot_run(args, errno);
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "What to run:", 1},
    {"shell", KEY_SHELL, NULL, 0,
     "an interactive shell instead of PROGRAM: SHELL, else /bin/sh. With --stats the programs that "
     "it starts report",
     0},
    {NULL, 0, NULL, 0, "Help:", -1},
    {0},
};

static const char doc[] =
    "Run PROGRAM with its malloc replaced.\v"
    "\"gpualloc list\" has the backends that a SPEC is made of. The exit status is the program's; "
    "2 where gpualloc refuses, 126 where the program cannot be run, 127 where it is not found.\n\n"
    "Examples:\n"
    "  gpualloc run --host=jemalloc -- python3 script.py\n"
    "  gpualloc run --host=dl:libmimalloc.so.2 --stats -- sqlite3 test.db .dump\n"
    "  gpualloc run --trace make.trace -- make && gpualloc trace make.trace";

static void take_program(struct argp_state *state, run_args *args)
{
    char **before = &state->argv[state->next - 2];
    char **after = &state->argv[state->next];
    if (strcmp(*before, "--stats") == 0 && *after && strcmp(*after, "--") == 0) {
        argp_error(state, "--stats takes its file behind a \"=\": --stats=%s", before[1]);
    }
    args->program = before + 1;
    state->next = state->argc;
}

/* A shell starts the programs that are of interest. */
static void take_shell(struct argp_state *state, run_args *args)
{
    static char standard[] = "/bin/sh";
    static char *shell[] = {standard, NULL};
    const char *chosen = ga_environment("SHELL");
    ga_path found;
    if (args->program) {
        argp_error(state, "expected --shell or a PROGRAM, got both: \"%s\"", args->program[0]);
    }
    if (chosen && ga_program_find(&found, chosen) == 0) {
        shell[0] = strdup(chosen);
    }
    args->program = shell;
    args->settings.children = args->settings.stats;
    args->settings.shell = true;
}

static void check_program(struct argp_state *state, run_args *args)
{
    if (args->shell) {
        take_shell(state, args);
    }
    if (!args->program) {
        argp_error(state, "expected a PROGRAM");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    run_args *args = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->settings;
        return 0;
    case KEY_SHELL:
        args->shell = true;
        return 0;
    case ARGP_KEY_ARG:
        take_program(state, args);
        return 0;
    case ARGP_KEY_END:
        check_program(state, args);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {{&ga_settings_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {options, parse, "PROGRAM [ARG...]\n--shell", doc, children,
                                     NULL,    NULL};
    static run_args args;
    args.settings.command = "run";
    args.settings.argc = argc;
    args.settings.argv = argv;
    ga_suggest_parse(&argp, argc, argv, ARGP_IN_ORDER, &args);
    return run(&args);
}
