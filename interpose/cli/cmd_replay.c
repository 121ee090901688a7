/* SPDX-License-Identifier: MIT
 *
 * `gpualloc replay`: performs a recorded trace on heaps of several specs, in turns.
 */
#include "cli.h"
#include "performance.h"
#include "script.h"
#include "suggest.h"

#include "runner/figures.h"
#include "runner/lists.h"
#include "runner/machine.h"
#include "runner/progress.h"
#include "runner/result.h"

#include <gpualloc/backend.h>

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPECS_MAX = 32,
    ROUNDS = 5,
    ROUNDS_MAX = 1000,
    NAME_WIDTH = 12
};

enum {
    KEY_SPEC = 0x100,
    KEY_PLACE,
    KEY_THREADS,
    KEY_ROUNDS,
    KEY_JSON
};

typedef struct row {
    const char *spec;
    double times[ROUNDS_MAX];  /* seconds */
    double ratios[ROUNDS_MAX]; /* to the first row's in the same round */
    double peak;               /* bytes */
    char failure[160];         /* "": none */
    ga_bench_figures time, ratio;
} row;

typedef struct replay_args {
    const char *file, *json;
    ga_place place; /* GA_PLACE_COUNT: not said */
    unsigned threads, rounds;
    size_t count;
    row rows[SPECS_MAX];
    ga_script script;
} replay_args;

/* Through ga_error_text(), which replaces control characters in names. */
static int refuse(int status)
{
    fprintf(stderr, "gpualloc replay: %s\n", ga_error_text());
    return status;
}

/* ---- measuring ----------------------------------------------------------------------------- */

static bool note_failure(row *it, const ga_bench_report *report)
{
    if (!report->done) {
        snprintf(it->failure, sizeof it->failure, "%s", report->failure);
    }
    return report->done;
}

static void measure_memory(replay_args *args, ga_bench_progress *progress)
{
    for (size_t i = 0; i < args->count; i++) {
        ga_bench_report report;
        ga_performance_measure(&args->script, args->rows[i].spec, &report);
        if (note_failure(&args->rows[i], &report)) {
            args->rows[i].peak = report.values[GA_PERFORMANCE_PEAK];
        }
        ga_bench_progress_step(progress, args->rows[i].spec);
    }
}

/* Each round begins with another spec. */
static void measure_round(replay_args *args, unsigned round, ga_bench_progress *progress)
{
    for (size_t i = 0; i < args->count; i++) {
        row *it = &args->rows[(round + i) % args->count];
        ga_bench_report report;
        if (!*it->failure) {
            ga_performance_time(&args->script, it->spec, &report);
        }
        if (!*it->failure && note_failure(it, &report)) {
            it->times[round] = report.values[GA_PERFORMANCE_SECONDS];
        }
        ga_bench_progress_step(progress, it->spec);
    }
}

static void sum_up(replay_args *args)
{
    for (unsigned round = 0; round < args->rounds; round++) {
        for (size_t i = args->count; i-- > 0;) {
            args->rows[i].ratios[round] = args->rows[i].times[round] / args->rows[0].times[round];
        }
    }
    for (size_t i = 0; i < args->count; i++) {
        row *it = &args->rows[i];
        it->time = ga_bench_figures_of(it->times, *it->failure ? 0 : args->rounds);
        it->ratio = ga_bench_figures_of(it->ratios,
                                        *it->failure || *args->rows[0].failure ? 0 : args->rounds);
    }
}

static void measure(replay_args *args)
{
    ga_bench_progress progress;
    ga_bench_progress_begin(&progress, (args->rounds + (size_t)1) * args->count);
    measure_memory(args, &progress);
    for (unsigned round = 0; round < args->rounds; round++) {
        measure_round(args, round, &progress);
    }
    ga_bench_progress_clear(&progress);
    sum_up(args);
}

/* ---- printing ------------------------------------------------------------------------------ */

/* NAN where the backend does not know. */
static double peak_of(const row *it)
{
    return *it->failure || it->peak <= 0 ? NAN : it->peak / (1 << 20);
}

static double of_live(const replay_args *args, const row *it)
{
    return args->script.peak_bytes ? peak_of(it) * (1 << 20) / (double)args->script.peak_bytes
                                   : NAN;
}

static int width_of(const replay_args *args)
{
    size_t width = NAME_WIDTH;
    for (size_t i = 0; i < args->count; i++) {
        size_t length = strlen(args->rows[i].spec);
        width = length > width ? length : width;
    }
    return (int)width;
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_preface(const replay_args *args)
{
    const ga_script *s = &args->script;
    printf("%" PRIu32 " call%s on %" PRIu32 " block%s of the %s, by %u thread%s; at most %s live\n",
           s->count, plural(s->count), s->blocks, plural(s->blocks), ga_place_text(s->place),
           s->threads, plural(s->threads), ga_bench_size_text_of(s->peak_bytes).text);
    if (s->left_out) {
        printf("Left out: %" PRIu64 " frees and resizes of unknown blocks, and failed requests\n",
               s->left_out);
    }
    if (s->elsewhere) {
        printf("Left out: %" PRIu64 " record%s of other places and devices\n", s->elsewhere,
               plural(s->elsewhere));
    }
    printf("%u round%s, in turns. Medians; ± half the interquartile range; ratios to\n"
           "%s in the same round. Peak: the memory held, and over the live bytes.\n\n",
           args->rounds, plural(args->rounds), args->rows[0].spec);
}

/* A figure, or "-" for NAN. */
static void print_figure(int width, int decimals, double value)
{
    if (isnan(value)) {
        printf(" %*s", width, "-");
    } else {
        printf(" %*.*f", width, decimals, value);
    }
}

static void print_row(const replay_args *args, const row *it, int width)
{
    char spread[16];
    const ga_bench_figures *time = &it->time;
    if (*it->failure) {
        printf("%-*s  failed: %s\n", width, it->spec, it->failure);
        return;
    }
    snprintf(spread, sizeof spread, "±%.1f%%",
             time->median > 0 ? 50 * (time->high - time->low) / time->median : 0);
    printf("%-*s %10.3f %8s", width, it->spec, time->median * 1e3, spread); /* "±": two bytes */
    print_figure(7, 3, it->ratio.median);
    print_figure(10, 3, (double)args->script.count / time->median / 1e6);
    print_figure(10, 2, peak_of(it));
    print_figure(9, 2, of_live(args, it));
    putchar('\n');
}

static bool print(const replay_args *args)
{
    int width = width_of(args);
    bool good = true;
    print_preface(args);
    printf("%-*s %10s %7s %7s %10s %10s %9s\n", width, "", "time ms", "", "ratio", "Mcalls/s",
           "peak MiB", "over live");
    for (size_t i = 0; i < args->count; i++) {
        print_row(args, &args->rows[i], width);
        good = good && !*args->rows[i].failure;
    }
    return good;
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static bool write_row(FILE *stream, const replay_args *args, const row *it, const char *date)
{
    static const ga_bench_metric metrics[] = {{"time", "s", false, NULL},
                                              {"peak", "MiB", false, NULL},
                                              {"held", "byte/byte", false, NULL}};
    const double values[] = {it->time.median, peak_of(it), of_live(args, it)};
    bool written = true;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics && written; i++) {
        ga_bench_result result = {
            .bench = "replay",
            .place = ga_place_text(args->script.place),
            .spec = it->spec,
            .device = ga_bench_processor(),
            .threads = args->script.threads,
            .metric = &metrics[i],
            .value = values[i],
            .spread = i == 0 ? it->time.high - it->time.low : NAN,
            .baseline = args->rows[0].spec,
            .ratio = i == 0 ? it->ratio.median : peak_of(it) / peak_of(&args->rows[0]),
        };
        written = ga_bench_result_write(stream, &result, date);
    }
    return written;
}

static int write_json(const replay_args *args, FILE *stream)
{
    ga_bench_date date = ga_bench_today();
    bool written = true;
    for (size_t i = 0; i < args->count && written; i++) {
        written = write_row(stream, args, &args->rows[i], date.text);
    }
    if (!written) {
        ga_fail(GA_ERR_IO, "--json: \"%.300s\": %s", args->json, strerror(errno));
        return refuse(GA_CLI_FAILED);
    }
    return GA_CLI_OK;
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {"spec", KEY_SPEC, "SPEC", 0,
     "perform the trace on a heap of this spec; repeat for more. The first is the baseline of "
     "ratios (default: system, jemalloc, slab/system; on a device cuda, async, vmm)",
     0},
    {"place", KEY_PLACE, "PLACE", 0,
     "replay the records of the host or of the first device (default: the host's, if any)", 0},
    {"threads", KEY_THREADS, "N", 0,
     "at most N threads, which share the work of the recorded ones; 1: in the order of time", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "perform it N times on each (default: 5)", 0},
    {"json", KEY_JSON, "FILE", 0, "write the figures to FILE as JSON lines, too", 0},
    {0},
};

static const char doc[] =
    "Perform FILE, a trace of \"gpualloc run --trace FILE\", on other allocators, in turns.\v"
    "Each recorded thread is a thread, which makes its calls without the pauses of the program; a "
    "call waits for those on the same block that came before it. Blocks on the host are written "
    "to.\n\n"
    "Examples:\n"
    "  gpualloc run --trace sort.trace -- sort /etc/services\n"
    "  gpualloc replay sort.trace\n"
    "  gpualloc replay sort.trace --spec system --spec slab/vmm --threads 1";

static unsigned parse_number(struct argp_state *state, const char *option, const char *text,
                             size_t most)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, most, &one) || one.count != 1) {
        argp_error(state, "%s: expected a number from 1 to %zu, got \"%s\"", option, most, text);
    }
    return (unsigned)one.values[0];
}

static void add_spec(struct argp_state *state, replay_args *args, const char *spec)
{
    if (args->count == SPECS_MAX) {
        argp_error(state, "--spec: expected at most %d", SPECS_MAX);
    }
    args->rows[args->count++].spec = spec;
}

static void parse_place(struct argp_state *state, replay_args *args, const char *text)
{
    args->place = strcmp(text, "host") == 0     ? GA_PLACE_HOST
                  : strcmp(text, "device") == 0 ? GA_PLACE_DEVICE
                                                : GA_PLACE_COUNT;
    if (args->place == GA_PLACE_COUNT) {
        argp_error(state, "--place: expected host or device, got \"%s\"", text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    replay_args *args = state->input;
    switch (key) {
    case KEY_SPEC:
        add_spec(state, args, arg);
        return 0;
    case KEY_PLACE:
        parse_place(state, args, arg);
        return 0;
    case KEY_THREADS:
        args->threads = parse_number(state, "--threads", arg, GA_SCRIPT_THREADS_MAX);
        return 0;
    case KEY_ROUNDS:
        args->rounds = parse_number(state, "--rounds", arg, ROUNDS_MAX);
        return 0;
    case KEY_JSON:
        args->json = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (args->file) {
            argp_error(state, "expected one FILE, got \"%s\" and \"%s\"", args->file, arg);
        }
        args->file = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "expected a FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void choose_specs(replay_args *args)
{
    static const char *const specs[][3] = {
        [GA_PLACE_HOST] = {"system", "jemalloc", "slab/system"},
        [GA_PLACE_DEVICE] = {"cuda", "async", "vmm"},
    };
    for (size_t i = 0; i < 3; i++) {
        const char *spec = specs[args->script.place][i];
        if (ga_heap_check(args->script.place, spec) == GA_OK) { /* jemalloc may not be built */
            args->rows[args->count++].spec = spec;
        }
    }
}

static int check_specs(const replay_args *args)
{
    for (size_t i = 0; i < args->count; i++) {
        if (ga_heap_check(args->script.place, args->rows[i].spec) != GA_OK) {
            return refuse(GA_CLI_USAGE);
        }
    }
    return GA_CLI_OK;
}

static int replay(replay_args *args, FILE *lines)
{
    if (!args->count) {
        choose_specs(args);
    }
    int status = check_specs(args);
    if (status != GA_CLI_OK) {
        return status;
    }
    measure(args);
    status = print(args) ? GA_CLI_OK : GA_CLI_FAILED;
    int written = lines ? write_json(args, lines) : GA_CLI_OK;
    return status == GA_CLI_OK ? written : status;
}

int ga_cmd_replay(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "FILE", doc, NULL, NULL, NULL};
    static replay_args args = {.place = GA_PLACE_COUNT, .rounds = ROUNDS};
    ga_suggest_parse(&argp, argc, argv, 0, &args);
    FILE *lines = args.json ? fopen(args.json, "we") : NULL;
    if (args.json && !lines) {
        ga_fail(GA_ERR_IO, "--json: \"%.300s\": %s", args.json, strerror(errno));
        return refuse(GA_CLI_FAILED);
    }
    ga_status read = ga_script_read(&args.script, args.file, args.place, args.threads);
    int status = read == GA_OK ? replay(&args, lines) : refuse(GA_CLI_FAILED);
    ga_script_clear(&args.script);
    if (lines) {
        fclose(lines);
    }
    return status;
}
