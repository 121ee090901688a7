/* SPDX-License-Identifier: MIT
 *
 * `gpualloc compare`: runs a program in turns, as it is and on other allocators, and prints the
 * times and the memory side by side.
 */
#include "../../liballoc/runtime/registry.h"
#include "cli.h"
#include "comparison.h"
#include "runner/lists.h"
#include "runner/progress.h"
#include "suggest.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    CANNOT_RUN = 126, /* as env(1) */
    NOT_FOUND = 127,
    SIGNALLED = 128, /* plus the signal */
    ROUNDS = 11,
    ROUNDS_MAX = 10000
};

enum {
    KEY_HOST = 0x100,
    KEY_DEVICE,
    KEY_KERNEL,
    KEY_ROUNDS,
    KEY_ANY_OUTPUT,
    KEY_JSON
};

typedef struct compare_args {
    ga_settings settings[GA_COMPARISON_ROWS_MAX]; /* of each row */
    ga_comparison comparison;
    ga_measured_program program;
    size_t rounds;
    const char *json;
    FILE *lines; /* to `json` */
} compare_args;

/* Print the error of the last call. Returns the status. */
static int refuse(const compare_args *args, int status)
{
    ga_settings_refuse(&args->settings[GA_COMPARISON_BASE], NULL);
    return status;
}

/* ---- preparing ----------------------------------------------------------------------------- */

static bool needs_tls(const compare_args *args)
{
    for (size_t i = 0; i < args->comparison.row_count; i++) {
        if (args->settings[i].host && strstr(args->settings[i].host, "dl:")) {
            return true;
        }
    }
    return false;
}

static int find_program(compare_args *args, ga_path *path)
{
    int error = ga_program_find(path, args->program.arguments[0]);
    const char *slash = strrchr(args->program.arguments[0], '/');
    args->comparison.program = slash ? slash + 1 : args->program.arguments[0];
    args->program.path = path->text;
    if (!error) {
        return GA_CLI_OK;
    }
    ga_fail(GA_ERR_IO, "\"%.300s\": %s", args->program.arguments[0], strerror(error));
    return refuse(args, error == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

static int prepare_rows(compare_args *args)
{
    for (size_t i = 0; i < args->comparison.row_count; i++) {
        ga_comparison_row *row = &args->comparison.rows[i];
        ga_settings *settings = i < GA_COMPARISON_SPECS ? NULL : &args->settings[i];
        if (!ga_prepared_make(&row->environment, settings, args->program.path)) {
            return GA_CLI_USAGE;
        }
        row->runs = calloc(args->rounds, sizeof *row->runs);
        if (!row->runs) {
            ga_fail(GA_ERR_MEMORY, "no memory for %zu rounds", args->rounds);
            return refuse(args, GA_CLI_FAILED);
        }
    }
    return GA_CLI_OK;
}

static int open_files(compare_args *args)
{
    args->lines = args->json ? fopen(args->json, "we") : NULL;
    if (args->json && !args->lines) {
        ga_fail(GA_ERR_IO, "--json: \"%.300s\": %s", args->json, strerror(errno));
        return refuse(args, GA_CLI_FAILED);
    }
    if (!ga_measured_open(&args->program)) {
        ga_fail(GA_ERR_IO, "no temporary file for the program's output: %s", strerror(errno));
        return refuse(args, GA_CLI_FAILED);
    }
    return GA_CLI_OK;
}

static int prepare(compare_args *args, ga_path *path)
{
    int status = find_program(args, path);
    status = status == GA_CLI_OK ? prepare_rows(args) : status;
    return status == GA_CLI_OK ? open_files(args) : status;
}

/* ---- measuring ----------------------------------------------------------------------------- */

static int failed(const compare_args *args, const char *name, int status)
{
    bool killed = WIFSIGNALED(status);
    ga_measured_show_errors(&args->program);
    ga_fail(GA_ERR_IO, "\"%.300s\" failed under \"%.100s\": %s %d", args->comparison.program, name,
            killed ? "signal" : "exit status", killed ? WTERMSIG(status) : WEXITSTATUS(status));
    return refuse(args, GA_CLI_FAILED);
}

static int printed_otherwise(const compare_args *args, size_t row)
{
    ga_fail(GA_ERR_IO,
            row < GA_COMPARISON_SPECS
                ? "\"%.300s\" does not print the same each time; --any-output accepts that%.0s"
                : "\"%.300s\" printed something else under \"%.100s\" than in its first run; "
                  "--any-output accepts that",
            args->comparison.program, args->comparison.rows[row].name);
    return refuse(args, GA_CLI_FAILED);
}

static int run_once(compare_args *args, size_t row, ga_measured_run *out)
{
    ga_comparison_row *it = &args->comparison.rows[row];
    if (!ga_measured_run_once(&args->program, it->environment.variables, out)) {
        ga_fail(GA_ERR_IO, "\"%.300s\": %s", args->program.path, strerror(errno));
        return refuse(args, CANNOT_RUN);
    }
    if (ga_measured_interrupted()) {
        return SIGNALLED + ga_measured_interrupted();
    }
    if (out->status != 0) {
        return failed(args, it->name, out->status);
    }
    return out->differs ? printed_otherwise(args, row) : GA_CLI_OK;
}

/* Each round begins with another row. */
static int run_round(compare_args *args, size_t round, ga_bench_progress *progress)
{
    ga_comparison *all = &args->comparison;
    int status = GA_CLI_OK;
    for (size_t i = 0; i < all->row_count && status == GA_CLI_OK; i++) {
        size_t row = (round + i) % all->row_count;
        ga_bench_progress_step(progress, all->rows[row].name);
        status = run_once(args, row, &all->rows[row].runs[round]);
    }
    return status;
}

/* The first run has the expected output, and fills the caches. */
static int measure(compare_args *args)
{
    ga_comparison *all = &args->comparison;
    ga_bench_progress progress;
    ga_measured_run first;
    ga_measured_catch_signals();
    ga_bench_progress_begin(&progress, args->rounds * all->row_count + 1);
    int status = run_once(args, GA_COMPARISON_BASE, &first);
    while (status == GA_CLI_OK && all->rounds < args->rounds) {
        status = run_round(args, all->rounds, &progress);
        all->rounds += status == GA_CLI_OK;
    }
    ga_bench_progress_clear(&progress);
    return status;
}

static int show(compare_args *args, int status)
{
    ga_comparison *all = &args->comparison;
    if (status > SIGNALLED) {
        ga_fail(GA_ERR_IO, "interrupted after %zu of %zu rounds", all->rounds, args->rounds);
        refuse(args, status);
    }
    if (all->rounds == 0 || (status != GA_CLI_OK && status < SIGNALLED)) {
        return status;
    }
    ga_comparison_print(stdout, all);
    if (args->lines && (!ga_comparison_write(args->lines, all) || fflush(args->lines) != 0)) {
        ga_fail(GA_ERR_IO, "--json: \"%.300s\": %s", args->json, strerror(errno));
        return refuse(args, GA_CLI_FAILED);
    }
    return status;
}

static int compare(compare_args *args)
{
    ga_path path;
    int status = prepare(args, &path);
    if (status == GA_CLI_OK) {
        status = show(args, measure(args));
        ga_measured_close(&args->program);
    }
    if (args->lines) {
        fclose(args->lines);
    }
    for (size_t i = 0; i < args->comparison.row_count; i++) {
        ga_prepared_clear(&args->comparison.rows[i].environment);
        free(args->comparison.rows[i].runs);
    }
    return status;
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "What to compare with the program as it is; repeat for more:", 1},
    {"host", KEY_HOST, "SPEC", 0,
     "another allocator for malloc and its family (default: system, jemalloc, slab/system)", 0},
    {"device", KEY_DEVICE, "SPEC", 0, "another allocator for device memory of CUDA programs", 0},
    {"kernel", KEY_KERNEL, "SPEC", 0, "another allocator for malloc in kernels", 0},
    {NULL, 0, NULL, 0, "How to measure:", 2},
    {"rounds", KEY_ROUNDS, "N", 0, "run each N times (default: 11)", 0},
    {"any-output", KEY_ANY_OUTPUT, NULL, 0,
     "the program may print something else each time; without it, that is an error", 0},
    {"json", KEY_JSON, "FILE", 0, "write the figures to FILE as JSON lines, too", 0},
    {NULL, 0, NULL, 0, "Help:", -1},
    {0},
};

static const char doc[] =
    "Run PROGRAM in turns, as it is and on other allocators; print time and memory side by side.\v"
    "A row is what \"gpualloc run\" with this option gives. The program also runs twice a round "
    "without a preload, which shows the noise; ratios that are no larger are marked. It gets no "
    "input, and its output is not shown, but for the errors of a run that fails.\n\n"
    "Examples:\n"
    "  gpualloc compare -- sort /usr/share/common-licenses/GPL-3\n"
    "  gpualloc compare --host=jemalloc --host=dl:libmimalloc.so.2 -- ./program\n"
    "  gpualloc compare --device=vmm --device=async --rounds=5 -- python3 train.py";

static void add_row(compare_args *args, const char *name, const char *place, const char *spec)
{
    ga_comparison *all = &args->comparison;
    args->settings[all->row_count].command = "compare";
    all->rows[all->row_count++] = (ga_comparison_row){.name = name, .place = place, .spec = spec};
}

static void begin(compare_args *args)
{
    args->rounds = ROUNDS;
    add_row(args, "no preload", "host", "no preload");
    add_row(args, "no preload, again", "host", "no preload, again");
}

static void add_spec(struct argp_state *state, compare_args *args, int key, const char *spec)
{
    ga_settings *settings = &args->settings[args->comparison.row_count];
    char *name = NULL;
    if (args->comparison.row_count == GA_COMPARISON_ROWS_MAX) {
        argp_error(state, "expected at most %d specs",
                   GA_COMPARISON_ROWS_MAX - GA_COMPARISON_SPECS);
    }
    if (key == KEY_HOST) {
        settings->host = spec;
        add_row(args, spec, "host", spec);
    } else {
        const char *place = key == KEY_DEVICE ? "device" : "kernel";
        *(key == KEY_DEVICE ? &settings->device : &settings->kernel) = spec;
        if (asprintf(&name, "%s %s", place, spec) < 0) {
            argp_failure(state, GA_CLI_FAILED, ENOMEM, "%s", spec);
        }
        add_row(args, name, place, spec);
    }
    settings->strict = true;
}

static void check_arguments(struct argp_state *state, compare_args *args)
{
    if (!args->program.arguments) {
        argp_error(state, "expected a PROGRAM");
    }
    if (args->comparison.row_count > GA_COMPARISON_SPECS) {
        return;
    }
    add_spec(state, args, KEY_HOST, "system");
    if (ga_registry_find("jemalloc")) {
        add_spec(state, args, KEY_HOST, "jemalloc");
    }
    add_spec(state, args, KEY_HOST, "slab/system");
}

static size_t parse_rounds(struct argp_state *state, const char *text)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, ROUNDS_MAX, &one) || one.count != 1) {
        argp_error(state, "--rounds: expected a number from 1 to %d, got \"%s\"", ROUNDS_MAX, text);
    }
    return one.values[0];
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    compare_args *args = state->input;
    switch (key) {
    case KEY_HOST:
    case KEY_DEVICE:
    case KEY_KERNEL:
        add_spec(state, args, key, arg);
        return 0;
    case KEY_ROUNDS:
        args->rounds = parse_rounds(state, arg);
        return 0;
    case KEY_ANY_OUTPUT:
        args->program.any_output = true;
        return 0;
    case KEY_JSON:
        args->json = arg;
        return 0;
    case ARGP_KEY_ARG:
        args->program.arguments = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        check_arguments(state, args);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_compare(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "PROGRAM [ARG...]", doc, NULL, NULL, NULL};
    static compare_args args;
    begin(&args);
    ga_suggest_parse(&argp, argc, argv, ARGP_IN_ORDER, &args);
    if (needs_tls(&args)) {
        ga_settings whole = {.command = "compare", .argc = argc, .argv = argv};
        ga_settings_restart_with_tls(&whole);
    }
    return compare(&args);
}
