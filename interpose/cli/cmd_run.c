/* SPDX-License-Identifier: MIT
 *
 * `gpualloc run`: sets the environment and executes the program. It first checks the specs, the
 * library, the program, and last the files, because that replaces an old trace.
 */
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/registry.h"
#include "cli.h"
#include "paths.h"
#include "trial.h"

#include <gpualloc/backend.h>

#include <argp.h>
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
    KEY_HOST = 0x100,
    KEY_DEVICE,
    KEY_KERNEL,
    KEY_STATS,
    KEY_STATS_CHILDREN,
    KEY_TRACE,
    KEY_LOG,
    KEY_STRICT
};

/* A text is NULL if its option was not given. */
typedef struct run_args {
    const char *host, *device, *kernel, *log;
    const char *stats, *trace; /* absolute; stats: or "1", standard error, or "-", output */
    bool strict, children;     /* children: report their statistics, too */
    char **program;            /* name and arguments */
    ga_path stats_path, trace_path;
    ga_library preloadable; /* the library of --host=dl:, if it can take the place of ours */
} run_args;

/* Report ga_error_text() about an option (NULL: none). Always returns false. */
static bool refuse(const char *option)
{
    fprintf(stderr, "gpualloc run: %s%s%s\n", option ? option : "", option ? ": " : "",
            ga_error_text());
    return false;
}

/* ---- checking the settings ----------------------------------------------------------------- */

static bool try_host(run_args *args)
{
    const char *from_environment = ga_environment("GPUALLOC_HOST");
    const char *source = args->host ? "--host" : "GPUALLOC_HOST";
    if (!args->host && from_environment && *from_environment) {
        args->host = from_environment;
    }
    if (!args->host) {
        args->host = ga_registry_find("jemalloc") ? "jemalloc" : "system";
    }
    return ga_trial_host(args->host, &args->preloadable) == GA_OK || refuse(source);
}

static bool try_specs(run_args *args)
{
    const char *source = args->device ? "--device" : "GPUALLOC_DEVICE";
    const char *from_environment = ga_environment("GPUALLOC_DEVICE");
    if (!args->device && from_environment && *from_environment) {
        args->device = from_environment;
    }
    if (args->device && ga_trial_syntax(args->device) != GA_OK) {
        return refuse(source);
    }
    if (args->kernel && ga_trial_syntax(args->kernel) != GA_OK) {
        return refuse("--kernel");
    }
    return try_host(args);
}

static bool try_files(const run_args *args)
{
    bool to_file = args->stats && strcmp(args->stats, "1") != 0 && strcmp(args->stats, "-") != 0;
    if (to_file && ga_trial_stats_file(args->stats) != GA_OK) {
        return refuse("--stats");
    }
    bool named = args->trace && !strstr(args->trace, "%p");
    return !named || ga_trial_trace_file(args->trace) == GA_OK || refuse("--trace");
}

/* The value of LD_PRELOAD. */
typedef struct preload_list {
    char text[2 * sizeof(ga_path)];
} preload_list;

static bool is_set(const char *option, const char *variable)
{
    const char *value = option ? option : ga_environment(variable);
    return value && *value;
}

/* Whether to preload the library of `dl` instead of ours. Calls that we forward take longer, and
 * only statistics and traces need them. */
static bool preloads_directly(const run_args *args)
{
    return *args->preloadable.path && !is_set(args->stats, "GPUALLOC_STATS") &&
           !is_set(args->trace, "GPUALLOC_TRACE");
}

/* `ours` is our library for malloc. Device memory is served only if a spec for it is set. */
static bool try_preload(const run_args *args, ga_path *ours, preload_list *all)
{
    ga_path device = {""};
    if (ga_preload_find(ours, GA_PRELOAD_MALLOC) != GA_OK ||
        (args->device && ga_preload_find(&device, GA_PRELOAD_CUDA) != GA_OK)) {
        return refuse(NULL);
    }
    snprintf(all->text, sizeof all->text, "%s%s%s",
             preloads_directly(args) ? args->preloadable.path : ours->text, *device.text ? ":" : "",
             device.text);
    return true;
}

static int cannot_run(const char *name, int error)
{
    ga_fail(GA_ERR_IO, "\"%.300s\": %s", name, strerror(error));
    refuse(NULL);
    return error == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

/* False, with an error, if the program would run on another allocator and the options forbid that.
 * `stops`: it would not start with the preload. */
static bool try_reach(const run_args *args, const char *program, const char *preload, bool *stops)
{
    const char *trouble = ga_program_trouble(program, preload, stops);
    if (trouble && args->strict) {
        ga_fail(GA_ERR_UNSUPPORTED, "\"%s\": LD_PRELOAD does not reach it: %s", program, trouble);
        return refuse(NULL);
    }
    if (trouble) {
        ga_log(GA_LOG_WARN, "\"%s\": LD_PRELOAD does not reach it: %s; its allocator stays",
               program, trouble);
    }
    return true;
}

/* ---- executing the program ----------------------------------------------------------------- */

static bool set(const char *variable, const char *value)
{
    return !value || setenv(variable, value, 1) == 0;
}

static bool set_preload(const char *library)
{
    const char *before = ga_environment("LD_PRELOAD");
    size_t length = strlen(library);
    char *both = NULL;
    if (!before || !*before) {
        return set("LD_PRELOAD", library);
    }
    if (strncmp(before, library, length) == 0 && strchr(": ", before[length])) {
        return true; /* nested in another run; strchr also finds the NUL */
    }
    bool done = asprintf(&both, "%s:%s", library, before) > 0 && set("LD_PRELOAD", both);
    free(both);
    return done;
}

/* Remove the library that an enclosing run has put into LD_PRELOAD. */
static bool drop_preload(const char *library)
{
    const char *before = ga_environment("LD_PRELOAD");
    size_t length = strlen(library);
    if (!before || strncmp(before, library, length) != 0 || !strchr(": ", before[length])) {
        return true;
    }
    return before[length] ? set("LD_PRELOAD", before + length + 1) : unsetenv("LD_PRELOAD") == 0;
}

/* The program runs in this process, so that this process's id tells it from its children. */
static bool set_reporter(const run_args *args)
{
    char id[16];
    snprintf(id, sizeof id, "%d", (int)getpid());
    return args->children ? unsetenv("GPUALLOC_STATS_PID") == 0
                          : set("GPUALLOC_STATS_PID", args->stats ? id : NULL);
}

/* `ours` is our library for malloc, `all` all libraries to preload. `stops`: the program would not
 * start with them. */
static bool set_environment(const run_args *args, const char *ours, const char *all, bool stops)
{
    bool dropped = !preloads_directly(args) || drop_preload(ours);
    bool done = stops ? drop_preload(all) : dropped && set_preload(all);
    return done && set_reporter(args) && set("GPUALLOC_HOST", args->host) &&
           set("GPUALLOC_DEVICE", args->device) && set("GPUALLOC_KERNEL", args->kernel) &&
           set("GPUALLOC_STATS", args->stats) && set("GPUALLOC_TRACE", args->trace) &&
           set("GPUALLOC_STRICT", args->strict ? "1" : NULL);
}

static int run(run_args *args)
{
    ga_path ours, program;
    preload_list libraries;
    set("GPUALLOC_LOG", args->log); /* also for messages of this process */
    if (!try_specs(args) || !try_preload(args, &ours, &libraries)) {
        return GA_CLI_USAGE;
    }
    int error = ga_program_find(&program, args->program[0]);
    if (error) {
        return cannot_run(args->program[0], error);
    }
    bool stops;
    if (!try_reach(args, program.text, ours.text, &stops) || !try_files(args)) {
        return GA_CLI_USAGE;
    }
    if (set_environment(args, ours.text, libraries.text, stops)) {
        execvp(program.text, args->program);
    }
    return cannot_run(args->program[0], errno);
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Allocators:", 1},
    {"host", KEY_HOST, "SPEC", 0,
     "for malloc and its family (default: GPUALLOC_HOST, else jemalloc, else system)", 0},
    {"device", KEY_DEVICE, "SPEC", 0,
     "for device memory, of CUDA programs and in those that link -lgpualloc", 0},
    {"kernel", KEY_KERNEL, "SPEC", 0, "for memory in kernels, in programs that link -lgpualloc", 0},
    {NULL, 0, NULL, 0, "What to write:", 2},
    {"stats", KEY_STATS, "FILE", OPTION_ARG_OPTIONAL,
     "statistics at exit: a table on standard error, or appended to FILE, as JSON where its name "
     "ends in .json; - is standard output",
     0},
    {"stats-children", KEY_STATS_CHILDREN, NULL, 0,
     "statistics of the processes that PROGRAM starts, too; without it, a program that PROGRAM "
     "replaces itself with by exec reports, and no child",
     0},
    {"trace", KEY_TRACE, "FILE", 0,
     "every allocation, to FILE; %p in its name is the process id. What the program forks or execs "
     "writes FILE.PID",
     0},
    {"log", KEY_LOG, "LEVEL", 0, "error, warn (default), info or debug", 0},
    {NULL, 0, NULL, 0, "What to do in trouble:", 3},
    {"strict", KEY_STRICT, NULL, 0,
     "do not run the program where it would not run on the requested allocator", 0},
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

static void take_file(struct argp_state *state, const char *option, const char *file, ga_path *out,
                      const char **path)
{
    if (!*file) {
        argp_error(state, "%s: expected the name of a file", option);
    } else if (ga_path_absolute(out, file) != GA_OK) {
        argp_error(state, "%s: %s", option, ga_error_text());
    }
    *path = out->text;
}

static void take_log(struct argp_state *state, run_args *args, const char *level)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(level, levels[i]) == 0) {
            args->log = level;
            return;
        }
    }
    argp_error(state, "--log: expected error, warn, info or debug, got \"%s\"", level);
}

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

static void check_together(struct argp_state *state, const run_args *args)
{
    if (!args->program) {
        argp_error(state, "expected a PROGRAM");
    }
    if (args->stats && args->trace && strcmp(args->stats, args->trace) == 0) {
        argp_error(state, "--stats and --trace: expected two files, got one: \"%s\"", args->trace);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    run_args *args = state->input;
    switch (key) {
    case KEY_HOST:
        args->host = arg;
        return 0;
    case KEY_DEVICE:
        args->device = arg;
        return 0;
    case KEY_KERNEL:
        args->kernel = arg;
        return 0;
    case KEY_STATS_CHILDREN:
        args->children = true;
        args->stats = args->stats ? args->stats : "1";
        return 0;
    case KEY_STATS:
        args->stats = "1";
        if (arg && strcmp(arg, "-") == 0) {
            args->stats = arg;
        } else if (arg) {
            take_file(state, "--stats", arg, &args->stats_path, &args->stats);
        }
        return 0;
    case KEY_TRACE:
        if (strcmp(arg, "-") == 0) {
            argp_error(state, "--trace: expected a file, got \"-\": a trace cannot go to a pipe");
        }
        take_file(state, "--trace", arg, &args->trace_path, &args->trace);
        return 0;
    case KEY_LOG:
        take_log(state, args, arg);
        return 0;
    case KEY_STRICT:
        args->strict = true;
        return 0;
    case ARGP_KEY_ARG:
        take_program(state, args);
        return 0;
    case ARGP_KEY_END:
        check_together(state, args);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_run(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "PROGRAM [ARG...]", doc, NULL, NULL, NULL};
    static run_args args;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
    return run(&args);
}
