/* SPDX-License-Identifier: MIT
 *
 * `gpualloc bench`: workloads over specs, as tables, JSON lines and a picture.
 */
#include "cli.h"
#include "suggest.h"

#include "lfht/command.h"
#include "runner/machine.h"
#include "runner/plot.h"
#include "runner/suite.h"
#include "spgemm/command.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 4096,
    ROUNDS_MAX = 1000,
    MILLISECONDS_MAX = 10000,
    ROUNDS = 7,
    ROUNDS_QUICK = 5,
    MILLISECONDS = 100,
    MILLISECONDS_QUICK = 40
};

static const size_t BLOCK_BYTES_MAX = (size_t)1 << 46; /* more than any machine has */

enum {
    KEY_PLACE = 256,
    KEY_SPEC,
    KEY_BASELINE,
    KEY_THREADS,
    KEY_SIZE,
    KEY_ROUNDS,
    KEY_MILLISECONDS,
    KEY_QUICK,
    KEY_JSON,
    KEY_PLOT,
    KEY_LIST
};

static const struct argp_option options[] = {
    {"place", KEY_PLACE, "PLACE", 0, "host (the default) or device", 0},
    {"spec", KEY_SPEC, "SPEC", 0,
     "measure this heap; repeat for more (default: every backend that can run here)", 0},
    {"baseline", KEY_BASELINE, "SPEC", 0,
     "the baseline of ratios (default: system on the host, cuda on the device)", 0},
    {"threads", KEY_THREADS, "N,N", 0,
     "numbers of threads (default: 1, 2, and one more than twice the cores)", 0},
    {"size", KEY_SIZE, "N,N", 0,
     "block sizes, or the largest where sizes vary, with K, M or G (default: see --list)", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "measure all N times (default: 7; 5 with --quick)", 0},
    {"milliseconds", KEY_MILLISECONDS, "N", 0, "length of a round (default: 100; 40 with --quick)",
     0},
    {"quick", KEY_QUICK, NULL, 0, "shorter rounds, one size for each workload", 0},
    {"json", KEY_JSON, "FILE", 0, "write the results to FILE as JSON lines", 0},
    {"plot", KEY_PLOT, "FILE", 0, "draw them to FILE.svg or FILE.png by gnuplot", 0},
    {"list", KEY_LIST, NULL, 0, "list the workloads and exit", 0},
    {0},
};

static const char doc[] =
    "Measure allocators side by side: each WORKLOAD (all of the place, where none is named) on a "
    "heap of each SPEC, in a process of its own.\v"
    "  gpualloc bench --quick\n"
    "  gpualloc bench same-size latency --spec jemalloc --threads 1,8 --size 64,4K\n"
    "  gpualloc bench --spec dl:libmimalloc.so.2 --json new.json --plot new.svg\n"
    "  gpualloc bench lfht --help     the lock-free hash trie map over node heaps\n"
    "  gpualloc bench coalesce --help     malloc in kernels, as in the paper\n"
    "  gpualloc bench spgemm --help     products of sparse matrices, which grow\n"
    "\n"
    "bench/README.md describes the workloads, the figures and the keys of the JSON lines.";

typedef struct request {
    ga_bench_plan plan;
    const char *baseline;
    const char *json, *plot;
    bool list;
} request;

static int complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int complain(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpualloc bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

static void parse_place(const char *text, request *r, struct argp_state *state)
{
    for (int place = 0; place < GA_PLACE_COUNT; place++) {
        if (strcmp(text, ga_place_text((ga_place)place)) == 0) {
            r->plan.place = (ga_place)place;
            return;
        }
    }
    argp_error(state, "--place: unknown place \"%s\"; expected host or device", text);
}

static unsigned parse_number(const char *option, const char *text, int max,
                             struct argp_state *state)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, (size_t)max, &one) || one.count != 1) {
        argp_error(state, "--%s: bad number \"%s\"; expected 1 to %d", option, text, max);
    }
    return (unsigned)one.values[0];
}

static void add_spec(const char *spec, request *r, struct argp_state *state)
{
    if (r->plan.spec_count == GA_BENCH_SPECS_MAX - 1) { /* the last place is for the baseline */
        argp_error(state, "--spec: at most %d of them", GA_BENCH_SPECS_MAX - 1);
    }
    r->plan.specs[r->plan.spec_count++] = spec;
}

static void add_workload(const char *name, request *r, struct argp_state *state)
{
    const ga_bench_workload *workload = ga_bench_workload_find(name);
    if (!workload) {
        argp_error(state, "unknown workload \"%s\"; --list shows those there are", name);
    }
    if (r->plan.workload_count == GA_BENCH_WORKLOADS_MAX) {
        argp_error(state, "at most %d workloads", GA_BENCH_WORKLOADS_MAX);
    }
    r->plan.workloads[r->plan.workload_count++] = workload;
}

static void parse_threads(const char *text, request *r, struct argp_state *state)
{
    if (!ga_bench_list_parse(text, false, THREADS_MAX, &r->plan.threads)) {
        argp_error(state, "--threads: bad list \"%s\"; expected numbers from 1 to %d such as 1,8",
                   text, THREADS_MAX);
    }
}

static void parse_size(const char *text, request *r, struct argp_state *state)
{
    if (!ga_bench_list_parse(text, true, BLOCK_BYTES_MAX, &r->plan.sizes)) {
        argp_error(state, "--size: bad list \"%s\"; expected sizes up to 64T, such as 64,4K,1M",
                   text);
    }
}

static void parse_plot(const char *file, request *r, struct argp_state *state)
{
    if (!ga_bench_plot_name_good(file)) {
        argp_error(state,
                   "--plot: bad name \"%s\"; expected one that ends in .svg or .png, without "
                   "control characters",
                   file);
    }
    r->plot = file;
}

/* argp_error() does not return. */
static error_t parse(int key, char *value, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_PLACE:
        parse_place(value, r, state);
        return 0;
    case KEY_SPEC:
        add_spec(value, r, state);
        return 0;
    case KEY_BASELINE:
        r->baseline = value;
        return 0;
    case KEY_THREADS:
        parse_threads(value, r, state);
        return 0;
    case KEY_SIZE:
        parse_size(value, r, state);
        return 0;
    case KEY_ROUNDS:
        r->plan.rounds = parse_number("rounds", value, ROUNDS_MAX, state);
        return 0;
    case KEY_MILLISECONDS:
        r->plan.milliseconds = parse_number("milliseconds", value, MILLISECONDS_MAX, state);
        return 0;
    case KEY_QUICK:
        r->plan.quick = true;
        return 0;
    case KEY_JSON:
        r->json = value;
        return 0;
    case KEY_PLOT:
        parse_plot(value, r, state);
        return 0;
    case KEY_LIST:
        r->list = true;
        return 0;
    case ARGP_KEY_ARG:
        add_workload(value, r, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int list_workloads(void)
{
    const ga_bench_workload *workload;
    for (size_t i = 0; (workload = ga_bench_workload_at(i)) != NULL; i++) {
        printf("%s (%s): %s\n    sizes", workload->name, ga_place_text(workload->place),
               workload->help);
        for (size_t s = 0; workload->sizes[s]; s++) {
            printf("%s %s", s ? "," : "", ga_bench_size_text_of(workload->sizes[s]).text);
        }
        for (size_t m = 0; m < workload->metric_count; m++) {
            const ga_bench_metric *metric = &workload->metrics[m];
            printf("%s %s (%s)", m ? "," : "; metrics", metric->name, metric->unit);
        }
        putchar('\n');
    }
    return GA_CLI_OK;
}

static bool many_threads(const ga_bench_plan *plan)
{
    return plan->threads.count > 1 || (plan->threads.count == 1 && plan->threads.values[0] != 1);
}

static int settle_workloads(ga_bench_plan *plan)
{
    const ga_bench_workload *workload;
    for (size_t i = 0; i < plan->workload_count; i++) {
        workload = plan->workloads[i];
        if (workload->place != plan->place) {
            return complain(GA_CLI_USAGE, "workload %s is for --place %s, not %s", workload->name,
                            ga_place_text(workload->place), ga_place_text(plan->place));
        }
    }
    bool all = plan->workload_count == 0;
    for (size_t i = 0; all && (workload = ga_bench_workload_at(i)) != NULL; i++) {
        if (workload->place == plan->place) {
            plan->workloads[plan->workload_count++] = workload;
        }
    }
    for (size_t i = 0; i < plan->workload_count; i++) {
        if (plan->workloads[i]->one_thread && many_threads(plan)) {
            return complain(GA_CLI_USAGE, "--threads: workload %s runs on one thread only",
                            plan->workloads[i]->name);
        }
    }
    return plan->workload_count
               ? GA_CLI_OK
               : complain(GA_CLI_USAGE,
                          "--place: no workload for the place \"%s\"; expected host or device",
                          ga_place_text(plan->place));
}

static int try_spec(const ga_bench_plan *plan, const char *spec)
{
    ga_bench_report report;
    ga_status status = ga_bench_spec_try(plan->place, spec, &report);
    if (status == GA_OK) {
        return GA_CLI_OK;
    }
    return complain(status == GA_ERR_SPEC || status == GA_ERR_PLACE ? GA_CLI_USAGE : GA_CLI_FAILED,
                    "\"%s\" cannot be measured: %s", spec, report.failure);
}

static void find_baseline(ga_bench_plan *plan, const char *spec)
{
    for (size_t i = 0; i < plan->spec_count; i++) {
        if (strcmp(plan->specs[i], spec) == 0) {
            plan->baseline = i;
            return;
        }
    }
    memmove(plan->specs + 1, plan->specs, plan->spec_count * sizeof *plan->specs);
    plan->specs[0] = spec;
    plan->spec_count++;
    plan->baseline = 0;
}

/* Try the baseline first: if even that cannot run (`cuda` without a GPU, say), one message is
 * enough. */
static int settle_specs(ga_bench_plan *plan, const char *baseline)
{
    if (!baseline) {
        baseline = plan->place == GA_PLACE_HOST ? "system" : "cuda";
    }
    int status = try_spec(plan, baseline);
    for (size_t i = 0; i < plan->spec_count && status == GA_CLI_OK; i++) {
        status = try_spec(plan, plan->specs[i]);
    }
    if (status == GA_CLI_OK) {
        if (plan->spec_count == 0) {
            ga_bench_specs_default(plan);
        }
        find_baseline(plan, baseline);
    }
    return status;
}

static void settle_numbers(ga_bench_plan *plan)
{
    if (plan->threads.count == 0) {
        size_t crowd = 2 * (size_t)ga_bench_cores() + 1;
        plan->threads = (ga_bench_list){3, {1, 2, crowd}};
    }
    if (plan->rounds == 0) {
        plan->rounds = plan->quick ? ROUNDS_QUICK : ROUNDS;
    }
    if (plan->milliseconds == 0) {
        plan->milliseconds = plan->quick ? MILLISECONDS_QUICK : MILLISECONDS;
    }
}

/* Open the output files before measuring, because a run takes minutes. */
static int open_files(request *r)
{
    const char *obstacle = r->plot ? ga_bench_plot_obstacle(r->plot) : NULL;
    if (obstacle) {
        return complain(GA_CLI_FAILED, "--plot: %s", obstacle);
    }
    r->plan.json = r->json ? fopen(r->json, "we") : NULL;
    if (r->json && !r->plan.json) {
        return complain(GA_CLI_FAILED, "--json: \"%s\": %s", r->json, strerror(errno));
    }
    return GA_CLI_OK;
}

static void print_preface(const ga_bench_plan *plan)
{
    printf("gpualloc %s, commit %s, on %u cores of %s\n", ga_version_text(), ga_bench_commit(),
           ga_bench_cores(), ga_bench_processor());
    printf("%u rounds of %u ms, specs alternating; a cell is the median ± half the interquartile "
           "range,\nand the ratio to %s, pair by pair\n",
           plan->rounds, plan->milliseconds, plan->specs[plan->baseline]);
}

static int measure(const request *r)
{
    ga_bench_results results;
    print_preface(&r->plan);
    int status = ga_bench_suite_run(&r->plan, stdout, &results) ? GA_CLI_OK : GA_CLI_FAILED;
    if (status == GA_CLI_OK && results.failed) {
        status = complain(GA_CLI_FAILED, "%zu measurements failed, see above", results.failed);
    }
    if (r->plot && !ga_bench_plot(r->plot, results.list, results.count)) {
        status = complain(GA_CLI_FAILED, "--plot: gnuplot failed to draw \"%s\"", r->plot);
    }
    ga_bench_results_free(&results);
    return status;
}

int ga_cmd_bench(int argc, char **argv)
{
    static const struct argp parser = {options, parse, "[WORKLOAD...]", doc, NULL, NULL, NULL};
    static request r;
    if (argc > 1 && strcmp(argv[1], "lfht") == 0) {
        argv[1] = (char[]){"gpualloc bench lfht"};
        return ga_bench_lfht_command(argc - 1, argv + 1, "bench lfht", NULL);
    }
    if (argc > 1 && strcmp(argv[1], "coalesce") == 0) {
        argv[1] = (char[]){"gpualloc bench coalesce"};
        return ga_cmd_bench_coalesce(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "spgemm") == 0) {
        argv[1] = (char[]){"gpualloc bench spgemm"};
        return ga_bench_spgemm_command(argc - 1, argv + 1);
    }
    argp_err_exit_status = GA_CLI_USAGE;
    ga_suggest_parse(&parser, argc, argv, 0, &r);
    if (r.list) {
        return list_workloads();
    }
    int status = settle_workloads(&r.plan);
    status = status == GA_CLI_OK ? settle_specs(&r.plan, r.baseline) : status;
    status = status == GA_CLI_OK ? open_files(&r) : status;
    if (status == GA_CLI_OK) {
        settle_numbers(&r.plan);
        status = measure(&r);
    }
    if (r.plan.json && fclose(r.plan.json) != 0 && status == GA_CLI_OK) {
        status = complain(GA_CLI_FAILED, "--json: \"%s\": %s", r.json, strerror(errno));
    }
    return status;
}
