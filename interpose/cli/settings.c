/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include "../../liballoc/backends/trace/format.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/registry.h"

#include <gpualloc/backend.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_HOST = 0x100,
    KEY_DEVICE,
    KEY_KERNEL,
    KEY_STATS,
    KEY_STATS_CHILDREN,
    KEY_TRACE,
    KEY_STACKS,
    KEY_LOG,
    KEY_STRICT
};

enum {
    STACKS_DEFAULT = 32 /* functions */
};

#define TUNABLES        "GLIBC_TUNABLES"
#define TUNABLES_BEFORE "GPUALLOC_BEFORE_TUNABLES"

bool ga_settings_refuse(const ga_settings *settings, const char *name)
{
    fprintf(stderr, "gpualloc %s: %s%s%s\n", settings->command, name ? name : "", name ? ": " : "",
            ga_error_text());
    return false;
}

/* ---- the user's own values ----------------------------------------------------------------- */

#define OWN(name) "GPUALLOC_" name, "GPUALLOC_BEFORE_" name

const char *const ga_settings_variables[GA_SETTINGS_VARIABLES] = {
    OWN("HOST"),          OWN("DEVICE"),        OWN("KERNEL"),
    OWN("STATS"),         OWN("TRACE"),         OWN("TRACE_STACKS"),
    OWN("LOG"),           OWN("STRICT"),        TUNABLES,
    TUNABLES_BEFORE,      "LD_PRELOAD",         "LD_LIBRARY_PATH",
    "GPUALLOC_STATS_PID", "GPUALLOC_PRELOADED",
};

enum {
    OWN_VARIABLES = 16 /* the first ones: each in front of what it was before */
};

/* Set the variable as another one is, or not. */
static bool copy(const char *to, const char *from)
{
    const char *value = ga_environment(from);
    return (value ? setenv(to, value, 1) : unsetenv(to)) == 0;
}

/* Within a shell or program that has settings they are not the user's own. */
static bool keep_own(void)
{
    bool done = true;
    for (size_t i = 0; !ga_environment("GPUALLOC_PRELOADED") && done && i < OWN_VARIABLES; i += 2) {
        done = copy(ga_settings_variables[i + 1], ga_settings_variables[i]);
    }
    return done;
}

static bool restore_own(void)
{
    bool done = true;
    for (size_t i = 0; done && i < OWN_VARIABLES; i += 2) {
        done = copy(ga_settings_variables[i], ga_settings_variables[i + 1]) &&
               unsetenv(ga_settings_variables[i + 1]) == 0;
    }
    return done;
}

/* ---- trying the settings ------------------------------------------------------------------- */

/* Space for the thread-local storage of libraries that are loaded late, in bytes. The loader's
 * default is 512; Debian's jemalloc needs more. */
#define MORE_TLS "glibc.rtld.optional_static_tls=16000"

static bool set_more_tls(void)
{
    const char *before = ga_environment(TUNABLES);
    char *both = NULL;
    if (before && strstr(before, "optional_static_tls")) {
        return false; /* that did not help, or the user's choice */
    }
    before = before ? before : "";
    bool done = asprintf(&both, "%s%s" MORE_TLS, before, *before ? ":" : "") > 0 &&
                setenv(TUNABLES_BEFORE, before, 1) == 0 && setenv(TUNABLES, both, 1) == 0;
    free(both);
    return done;
}

void ga_settings_restart_with_tls(const ga_settings *settings)
{
    char name[] = "gpualloc";
    char command[8];
    snprintf(command, sizeof command, "%s", settings->command);
    char **argv = set_more_tls() ? calloc((size_t)settings->argc + 2, sizeof *argv) : NULL;
    /* Within other settings, keep_own() has kept nothing. */
    if (argv && (ga_environment("GPUALLOC_PRELOADED") || restore_own())) {
        argv[0] = name;
        argv[1] = command;
        memcpy(argv + 2, settings->argv + 1, (size_t)(settings->argc - 1) * sizeof *argv);
        execv("/proc/self/exe", argv);
    }
    free(argv);
}

/* The library of `dl` could not be loaded for lack of static thread-local storage. */
static bool lacks_tls(const ga_settings *settings)
{
    return settings->argc > 0 && strstr(ga_error_text(), "static TLS");
}

/* Whether the variable is as set_more_tls() has set it: the user may have changed it since. */
static bool is_our_tls(const char *before)
{
    const char *now = ga_environment(TUNABLES);
    size_t length = strlen(before);
    return now && strncmp(now, before, length) == 0 &&
           strcmp(now + length, length ? ":" MORE_TLS : MORE_TLS) == 0;
}

bool ga_settings_drop_tls(void)
{
    const char *before = ga_environment(TUNABLES_BEFORE);
    if (!before || !is_our_tls(before)) {
        return unsetenv(TUNABLES_BEFORE) == 0;
    }
    return (*before ? setenv(TUNABLES, before, 1) : unsetenv(TUNABLES)) == 0 &&
           unsetenv(TUNABLES_BEFORE) == 0;
}

/* The variable is for a jemalloc that the program links, which may be there beside ours. */
static void tell_unread(const char *host)
{
    if (strstr(host, "jemalloc") && !strstr(host, "dl:") && ga_environment("MALLOC_CONF") &&
        !ga_environment("GA_JE_MALLOC_CONF")) {
        ga_log(GA_LOG_WARN, "MALLOC_CONF is not read by the backend \"jemalloc\"; "
                            "GA_JE_MALLOC_CONF is, in the same form");
    }
}

static bool try_host(ga_settings *settings)
{
    const char *from_environment = ga_environment("GPUALLOC_HOST");
    const char *source = settings->host ? "--host" : "GPUALLOC_HOST";
    if (!settings->host && from_environment && *from_environment) {
        settings->host = from_environment;
    }
    if (!settings->host) {
        settings->host = ga_registry_find("jemalloc") ? "jemalloc" : "system";
    }
    const char *host = ga_trial_absolute(settings->host);
    if (host && ga_trial_host(host, &settings->preloadable) == GA_OK) {
        settings->host = host;
        tell_unread(settings->host);
        return true;
    }
    if (host != settings->host) {
        free((char *)host);
    }
    if (lacks_tls(settings)) {
        ga_settings_restart_with_tls(settings);
    }
    return ga_settings_refuse(settings, source);
}

/* Check a spec, and make its paths absolute. One in the environment may name a backend of the
 * program's own, which is not known here. */
static bool try_spec(const ga_settings *settings, ga_place place, const char *option,
                     const char **spec, const char *variable)
{
    const char *given = *spec;
    const char *value = given ? given : ga_environment(variable);
    if (!value || (!given && (!*value || ga_trial_is_foreign(value)))) {
        return true;
    }
    bool is_valid = ga_trial_spec(place, value) == GA_OK;
    if (is_valid && given) {
        *spec = ga_trial_absolute(given);
        is_valid = *spec != NULL;
    }
    return is_valid || ga_settings_refuse(settings, given ? option : variable);
}

static bool try_specs(ga_settings *settings)
{
    const char *from_environment = ga_environment("GPUALLOC_DEVICE");
    if (!try_spec(settings, GA_PLACE_DEVICE, "--device", &settings->device, "GPUALLOC_DEVICE") ||
        !try_spec(settings, GA_PLACE_KERNEL, "--kernel", &settings->kernel, "GPUALLOC_KERNEL")) {
        return false;
    }
    if (!settings->device && from_environment && *from_environment) {
        settings->device = from_environment;
    }
    return try_host(settings);
}

bool ga_settings_try_files(const ga_settings *settings)
{
    bool to_file =
        settings->stats && strcmp(settings->stats, "1") != 0 && strcmp(settings->stats, "-") != 0;
    if (to_file && ga_trial_stats_file(settings->stats) != GA_OK) {
        return ga_settings_refuse(settings, "--stats");
    }
    bool named = settings->trace && !strstr(settings->trace, "%p");
    return !named || ga_trial_trace_file(settings->trace) == GA_OK ||
           ga_settings_refuse(settings, "--trace");
}

static bool is_set(const char *option, const char *variable)
{
    const char *value = option ? option : ga_environment(variable);
    return value && *value;
}

/* Whether to preload the library of `dl` instead of ours. Calls that we forward take longer, and
 * only statistics and traces need them. */
static bool preloads_directly(const ga_settings *settings)
{
    return *settings->preloadable.path && !is_set(settings->stats, "GPUALLOC_STATS") &&
           !is_set(settings->trace, "GPUALLOC_TRACE");
}

static bool wants_kernel(const ga_settings *settings)
{
    const char *spec = settings->kernel ? settings->kernel : ga_environment("GPUALLOC_KERNEL");
    return spec && *spec && strcmp(spec, "cuda") != 0;
}

/* CUDA programs are served only if a spec for device memory or for kernels is set. A spec for
 * kernels in the environment may be for a linked program, which needs no preload. */
static bool find_libraries(ga_settings *settings)
{
    ga_path align, device;
    bool direct = preloads_directly(settings);
    bool aligns = direct && !settings->preloadable.aligns;
    bool must = settings->device || settings->kernel;
    bool cuda = settings->device || wants_kernel(settings);
    if ((aligns && ga_preload_find(&align, GA_PRELOAD_ALIGN) != GA_OK) ||
        ga_preload_find(&settings->malloc, GA_PRELOAD_MALLOC) != GA_OK) {
        return ga_settings_refuse(settings, NULL);
    }
    if (cuda && ga_preload_find(&device, GA_PRELOAD_CUDA) != GA_OK) {
        if (must) {
            return ga_settings_refuse(settings, NULL);
        }
        cuda = false;
    }
    if (direct) {
        snprintf(settings->malloc.text, sizeof settings->malloc.text, "%s",
                 settings->preloadable.path);
    }
    if (aligns) {
        ga_preload_list_add(&settings->libraries, align.text);
    }
    ga_preload_list_add(&settings->libraries, settings->malloc.text);
    if (cuda) {
        ga_preload_list_add(&settings->libraries, device.text);
    }
    return true;
}

static bool set(const char *variable, const char *value)
{
    return !value || setenv(variable, value, 1) == 0;
}

/* Standard output of a shell's programs is often a file or a command substitution, such as that of
 * the next `eval "$(gpualloc env)"`. */
static bool try_stats(const ga_settings *settings)
{
    static const char *const outputs[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    const char *stats = settings->stats ? settings->stats : ga_environment("GPUALLOC_STATS");
    for (size_t i = 0; settings->shell && stats && i < sizeof outputs / sizeof *outputs; i++) {
        if (strcmp(stats, outputs[i]) == 0) {
            ga_fail(GA_ERR_ARGUMENT,
                    "expected a file, got \"%s\": the statistics would mix with "
                    "the output of the shell's programs",
                    stats);
            return ga_settings_refuse(settings, settings->stats ? "--stats" : "GPUALLOC_STATS");
        }
    }
    return true;
}

bool ga_settings_try(ga_settings *settings)
{
    if (!keep_own()) {
        ga_fail(GA_ERR_MEMORY, "no memory for the environment");
        return ga_settings_refuse(settings, NULL);
    }
    set("GPUALLOC_LOG", settings->log); /* also for messages of this process */
    return try_stats(settings) && try_specs(settings) && find_libraries(settings);
}

/* ---- the environment ----------------------------------------------------------------------- */

bool ga_settings_export(const ga_settings *settings)
{
    bool all = !settings->children || unsetenv("GPUALLOC_STATS_PID") == 0;
    return all && (!preloads_directly(settings) || ga_settings_drop_tls()) &&
           ga_preload_list_set(&settings->libraries) && set("GPUALLOC_HOST", settings->host) &&
           set("GPUALLOC_DEVICE", settings->device) && set("GPUALLOC_KERNEL", settings->kernel) &&
           set("GPUALLOC_STATS", settings->stats) && set("GPUALLOC_TRACE", settings->trace) &&
           set("GPUALLOC_TRACE_STACKS", settings->stacks) &&
           set("GPUALLOC_STRICT", settings->strict ? "1" : NULL);
}

bool ga_settings_remove(void)
{
    static const ga_preload_list none;
    return !ga_environment("GPUALLOC_PRELOADED") || /* the variables are the user's own */
           (ga_settings_drop_tls() && ga_preload_list_unset(&none) && restore_own() &&
            unsetenv("GPUALLOC_STATS_PID") == 0);
}

/* ---- options ------------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Allocators:", 2},
    {"host", KEY_HOST, "SPEC", 0,
     "for malloc and its family (default: GPUALLOC_HOST, else jemalloc, else system)", 0},
    {"device", KEY_DEVICE, "SPEC", 0,
     "for device memory, of CUDA programs and in those that link -lgpualloc", 0},
    {"kernel", KEY_KERNEL, "SPEC", 0,
     "for malloc in kernels, of CUDA programs and in those that link -lgpualloc", 0},
    {NULL, 0, NULL, 0, "What to write:", 3},
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
    {"stacks", KEY_STACKS, "DEPTH", OPTION_ARG_OPTIONAL,
     "with --trace: the call stack of each allocation, of at most DEPTH functions (default: 32)",
     0},
    {"log", KEY_LOG, "LEVEL", 0, "error, warn (default), info or debug", 0},
    {NULL, 0, NULL, 0, "What to do in trouble:", 4},
    {"strict", KEY_STRICT, NULL, 0,
     "do not run the program where it would not run on the requested allocator", 0},
    {0},
};

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

static void take_log(struct argp_state *state, ga_settings *settings, const char *level)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(level, levels[i]) == 0) {
            settings->log = level;
            return;
        }
    }
    argp_error(state, "--log: expected error, warn, info or debug, got \"%s\"", level);
}

static void take_stacks(struct argp_state *state, ga_settings *settings, const char *depth)
{
    char *end = NULL;
    unsigned long frames = depth ? strtoul(depth, &end, 10) : STACKS_DEFAULT;
    if (depth &&
        (!isdigit((unsigned char)*depth) || *end || !frames || frames > GA_TRACE_DEPTH_MAX)) {
        argp_error(state, "--stacks: expected a number of functions from 1 to %u, got \"%s\"",
                   GA_TRACE_DEPTH_MAX, depth);
    }
    snprintf(settings->stacks_text, sizeof settings->stacks_text, "%lu", frames);
    settings->stacks = settings->stacks_text;
}

static void check_files(struct argp_state *state, const ga_settings *settings)
{
    if (settings->stacks && !is_set(settings->trace, "GPUALLOC_TRACE")) {
        argp_error(state, "--stacks: expected --trace=FILE with it");
    }
    if (settings->stats && settings->trace && strcmp(settings->stats, settings->trace) == 0) {
        argp_error(state, "--stats and --trace: expected two files, got one: \"%s\"",
                   settings->trace);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    ga_settings *settings = state->input;
    switch (key) {
    case KEY_HOST:
        settings->host = arg;
        return 0;
    case KEY_DEVICE:
        settings->device = arg;
        return 0;
    case KEY_KERNEL:
        settings->kernel = arg;
        return 0;
    case KEY_STATS_CHILDREN:
        settings->children = true;
        settings->stats = settings->stats ? settings->stats : "1";
        return 0;
    case KEY_STATS:
        settings->stats = "1";
        if (arg && strcmp(arg, "-") == 0) {
            settings->stats = arg;
        } else if (arg) {
            take_file(state, "--stats", arg, &settings->stats_path, &settings->stats);
        }
        return 0;
    case KEY_TRACE:
        if (strcmp(arg, "-") == 0) {
            argp_error(state, "--trace: expected a file, got \"-\": a trace cannot go to a pipe");
        }
        take_file(state, "--trace", arg, &settings->trace_path, &settings->trace);
        return 0;
    case KEY_STACKS:
        take_stacks(state, settings, arg);
        return 0;
    case KEY_LOG:
        take_log(state, settings, arg);
        return 0;
    case KEY_STRICT:
        settings->strict = true;
        return 0;
    case ARGP_KEY_END:
        check_files(state, settings);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp ga_settings_argp = {.options = options, .parser = parse};
