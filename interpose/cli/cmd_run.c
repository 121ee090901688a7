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
    int argc; /* this command's own arguments */
    char **argv;
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

/* Space for the thread-local storage of libraries that are loaded late, in bytes. The loader's
 * default is 512; Debian's jemalloc needs more. */
#define MORE_TLS "glibc.rtld.optional_static_tls=16000"

static bool set_more_tls(void)
{
    const char *before = ga_environment("GLIBC_TUNABLES");
    char *both = NULL;
    if (before && strstr(before, "optional_static_tls")) {
        return false; /* that did not help, or the user's choice */
    }
    bool done = asprintf(&both, "%s%s" MORE_TLS, before ? before : "", before ? ":" : "") > 0 &&
                setenv("GLIBC_TUNABLES", both, 1) == 0;
    free(both);
    return done;
}

/* If the library of `dl` could not be loaded for lack of static thread-local storage, start this
 * command again with more of it. Returns if that cannot help. */
static void restart_with_tls(const run_args *args)
{
    char name[] = "gpualloc";
    char command[] = "run";
    char **argv = strstr(ga_error_text(), "static TLS") && set_more_tls()
                      ? calloc((size_t)args->argc + 2, sizeof *argv)
                      : NULL;
    if (argv) {
        argv[0] = name;
        argv[1] = command;
        memcpy(argv + 2, args->argv + 1, (size_t)(args->argc - 1) * sizeof *argv);
        execv("/proc/self/exe", argv);
        free(argv);
    }
}

/* The program needs the space only where our library loads that of `dl`. */
static bool drop_tls(void)
{
    const char *tunables = ga_environment("GLIBC_TUNABLES");
    const char *more = tunables ? strstr(tunables, MORE_TLS) : NULL;
    if (!more || more[sizeof MORE_TLS - 1]) {
        return true;
    }
    if (more == tunables) {
        return unsetenv("GLIBC_TUNABLES") == 0;
    }
    char *before = strndup(tunables, (size_t)(more - tunables) - 1);
    bool done = before && setenv("GLIBC_TUNABLES", before, 1) == 0;
    free(before);
    return done;
}

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
    if (ga_trial_host(args->host, &args->preloadable) == GA_OK) {
        return true;
    }
    restart_with_tls(args);
    return refuse(source);
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
    char text[3 * sizeof(ga_path)];
} preload_list;

/* Our libraries for malloc, and for aligned blocks of another malloc. */
typedef struct our_libraries {
    ga_path malloc, align;
} our_libraries;

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

static bool wants_kernel(const run_args *args)
{
    const char *spec = args->kernel ? args->kernel : ga_environment("GPUALLOC_KERNEL");
    return spec && *spec && strcmp(spec, "cuda") != 0;
}

/* CUDA programs are served only if a spec for device memory or for kernels is set. A spec for
 * kernels in the environment may be for a linked program, which needs no preload. */
static bool try_preload(const run_args *args, our_libraries *ours, preload_list *all)
{
    ga_path device = {""};
    bool direct = preloads_directly(args);
    bool align = direct && !args->preloadable.aligns;
    bool must = args->device || args->kernel;
    bool cuda = args->device || wants_kernel(args);
    bool found = cuda && ga_preload_find(&device, GA_PRELOAD_CUDA) == GA_OK;
    if (ga_preload_find(&ours->align, GA_PRELOAD_ALIGN) != GA_OK) {
        *ours->align.text = '\0';
    }
    if ((align && !*ours->align.text) ||
        ga_preload_find(&ours->malloc, GA_PRELOAD_MALLOC) != GA_OK ||
        (cuda && must && ga_preload_find(&device, GA_PRELOAD_CUDA) != GA_OK)) {
        return refuse(NULL);
    }
    if (!found) {
        *device.text = '\0';
    }
    snprintf(all->text, sizeof all->text, "%s%s%s%s%s", align ? ours->align.text : "",
             align ? ":" : "", direct ? args->preloadable.path : ours->malloc.text,
             *device.text ? ":" : "", device.text);
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

/* Whether LD_PRELOAD begins with this library, or list of libraries: the enclosing run's. */
static bool is_preloaded(const char *library)
{
    const char *before = ga_environment("LD_PRELOAD");
    size_t length = strlen(library);
    /* strchr also finds the NUL */
    return before && length && strncmp(before, library, length) == 0 &&
           strchr(": ", before[length]);
}

static bool set_preload(const char *library)
{
    const char *before = ga_environment("LD_PRELOAD");
    char *both = NULL;
    if (!before || !*before) {
        return set("LD_PRELOAD", library);
    }
    if (is_preloaded(library)) {
        return true;
    }
    bool done = asprintf(&both, "%s:%s", library, before) > 0 && set("LD_PRELOAD", both);
    free(both);
    return done;
}

/* Remove the library that an enclosing run has put into LD_PRELOAD. */
static bool drop_preload(const char *library)
{
    if (!is_preloaded(library)) {
        return true;
    }
    const char *behind = ga_environment("LD_PRELOAD") + strlen(library);
    return *behind ? set("LD_PRELOAD", behind + 1) : unsetenv("LD_PRELOAD") == 0;
}

/* Remove our library for aligned blocks ("": none) and, behind it, the library that an enclosing
 * run has put there. Its operators would serve C++ otherwise. */
static bool drop_aligned(const char *align)
{
    if (!is_preloaded(align)) {
        return true;
    }
    const char *behind = ga_environment("LD_PRELOAD") + strlen(align);
    behind += *behind ? 1 + strcspn(behind + 1, ": ") : 0;
    return *behind ? set("LD_PRELOAD", behind + 1) : unsetenv("LD_PRELOAD") == 0;
}

/* The program runs in this process, so that this process's id tells it from its children. */
static bool set_reporter(const run_args *args)
{
    char id[16];
    snprintf(id, sizeof id, "%d", (int)getpid());
    return args->children ? unsetenv("GPUALLOC_STATS_PID") == 0
                          : set("GPUALLOC_STATS_PID", args->stats ? id : NULL);
}

/* `all`: the libraries to preload. `stops`: the program would not start with them. */
static bool set_environment(const run_args *args, const our_libraries *ours, const char *all,
                            bool stops)
{
    bool direct = preloads_directly(args);
    bool done = !direct || drop_tls();
    if (stops) {
        done = done && drop_preload(all) && drop_aligned(ours->align.text);
    } else if (!is_preloaded(all)) {
        done = done && drop_aligned(ours->align.text) &&
               (!direct || drop_preload(ours->malloc.text)) && set_preload(all);
    }
    return done && set_reporter(args) && set("GPUALLOC_HOST", args->host) &&
           set("GPUALLOC_DEVICE", args->device) && set("GPUALLOC_KERNEL", args->kernel) &&
           set("GPUALLOC_STATS", args->stats) && set("GPUALLOC_TRACE", args->trace) &&
           set("GPUALLOC_STRICT", args->strict ? "1" : NULL);
}

static int run(run_args *args)
{
    our_libraries ours;
    ga_path program;
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
    if (!try_reach(args, program.text, ours.malloc.text, &stops) || !try_files(args)) {
        return GA_CLI_USAGE;
    }
    if (set_environment(args, &ours, libraries.text, stops)) {
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
    {"kernel", KEY_KERNEL, "SPEC", 0,
     "for malloc in kernels, of CUDA programs and in those that link -lgpualloc", 0},
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
    args.argc = argc;
    args.argv = argv;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
    return run(&args);
}
