/* SPDX-License-Identifier: MIT
 *
 * The loop over workloads, numbers of keys and threads, rounds and maps.
 */
#include "suite.h"

#include "../runner/figures.h"
#include "../runner/machine.h"
#include "../runner/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEADLINE = 1200 /* seconds for a child: 2^24 keys by one thread take a minute */
};

static const ga_bench_metric failed_metric = {"failed", "rounds", false, NULL};

typedef struct cell {
    const ga_bench_lfht_plan *plan;
    ga_bench_lfht_load load;
    uint64_t keys;
    unsigned threads;
    ga_bench_report *reports; /* [entry * rounds + round] */
    ga_bench_result *results; /* [entry * metrics + metric] */
} cell;

static ga_bench_report *report_of(const cell *c, size_t entry, unsigned round)
{
    return &c->reports[entry * c->plan->rounds + round];
}

static void announce(const cell *c, ga_bench_progress *progress)
{
    char text[128];
    snprintf(text, sizeof text, "%s, %u thread%s, %s keys", ga_bench_lfht_load_text(c->load),
             c->threads, c->threads == 1 ? "" : "s", ga_bench_size_text_of(c->keys).text);
    ga_bench_progress_step(progress, text);
}

/* Each round starts with another map, so that none always follows the same one. */
static void measure(const cell *c, ga_bench_progress *progress)
{
    size_t entries = c->plan->entry_count;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        for (size_t turn = 0; turn < entries; turn++) {
            size_t i = (round + turn) % entries;
            const ga_bench_lfht_entry *entry = &c->plan->entries[i];
            ga_bench_lfht_case what = {.subject = entry->subject,
                                       .heap = entry->heap,
                                       .shape = entry->shape,
                                       .load = c->load,
                                       .keys = c->keys,
                                       .threads = c->threads};
            ga_bench_child_run(ga_bench_lfht_measure, &what, DEADLINE, report_of(c, i, round));
            announce(c, progress);
        }
    }
}

/* If `base` is set, ratios to its values. */
static ga_bench_figures figures_of(const cell *c, size_t entry, size_t metric, bool base,
                                   double *space)
{
    size_t count = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        const ga_bench_report *report = report_of(c, entry, round);
        const ga_bench_report *first = report_of(c, 0, round);
        double value = report->values[metric];
        double under = base ? first->values[metric] : 1;
        if (report->done && isfinite(value) && (!base || (first->done && under > 0))) {
            space[count++] = value / under;
        }
    }
    return ga_bench_figures_of(space, count);
}

static size_t failures_of(const cell *c, size_t entry)
{
    size_t failed = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        const ga_bench_report *report = report_of(c, entry, round);
        if (!report->done && !failed++) {
            fprintf(stderr, "gpualloc bench: %s, %s: %s\n", ga_bench_lfht_load_text(c->load),
                    c->plan->entries[entry].name, report->failure);
        }
    }
    return failed;
}

static ga_bench_result result_of(const cell *c, size_t entry, size_t failed)
{
    return (ga_bench_result){
        .bench = ga_bench_lfht_load_text(c->load),
        .place = ga_place_text(GA_PLACE_HOST),
        .spec = c->plan->entries[entry].name,
        .device = ga_bench_processor(),
        .threads = c->threads,
        .size = c->keys,
        .metric = &failed_metric,
        .value = (double)failed,
        .baseline = c->plan->entries[0].name,
        .ratio = NAN,
        .failed = failed,
    };
}

static bool record(const cell *c, const ga_bench_result *result)
{
    return !c->plan->json || ga_bench_result_write(c->plan->json, result, ga_bench_today().text);
}

static bool summarize(const cell *c, double *space, size_t *failed)
{
    for (size_t entry = 0; entry < c->plan->entry_count; entry++) {
        size_t failures = failures_of(c, entry);
        ga_bench_result line = result_of(c, entry, failures);
        *failed += failures;
        if (failures && !record(c, &line)) {
            return false;
        }
        for (size_t m = 0; m < ga_bench_lfht_metric_count; m++) {
            ga_bench_figures figures = figures_of(c, entry, m, false, space);
            ga_bench_result *result = &c->results[entry * ga_bench_lfht_metric_count + m];
            *result = line;
            result->metric = &ga_bench_lfht_metrics[m];
            result->value = figures.median;
            result->spread = figures.high - figures.low;
            result->ratio = figures_of(c, entry, m, true, space).median;
            if (isfinite(result->value) && !record(c, result)) {
                return false;
            }
        }
    }
    return true;
}

/* As wide as the longest name. */
static int name_width(const ga_bench_lfht_plan *plan)
{
    size_t width = 0;
    for (size_t i = 0; i < plan->entry_count; i++) {
        size_t length = strlen(plan->entries[i].name);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_value(FILE *out, double value)
{
    if (isfinite(value)) {
        fprintf(out, " %9.*f", fabs(value) >= 1000 ? 0 : 2, value);
    } else {
        fprintf(out, " %9s", "-");
    }
}

/* A row for each map: throughput with half of its spread and its ratio, then the other metrics. */
static void print(const cell *c, FILE *out)
{
    int width = name_width(c->plan);
    fprintf(out, "\n%s: %s; %s keys, %u threads\n%*s %9s %5s %6s", ga_bench_lfht_load_text(c->load),
            ga_bench_lfht_load_help(c->load), ga_bench_size_text_of(c->keys).text, c->threads,
            width, "", "M/s", "+-", "times");
    for (size_t m = 1; m < ga_bench_lfht_metric_count; m++) {
        fprintf(out, " %9.9s", ga_bench_lfht_metrics[m].name);
    }
    fputc('\n', out);
    for (size_t entry = 0; entry < c->plan->entry_count; entry++) {
        const ga_bench_result *row = &c->results[entry * ga_bench_lfht_metric_count];
        fprintf(out, "%-*s", width, row->spec);
        if (row->failed == c->plan->rounds) {
            fputs(" failed\n", out);
            continue;
        }
        print_value(out, row->value);
        fprintf(out, " %4.0f%% %6.2f", 50 * row->spread / row->value, row->ratio);
        for (size_t m = 1; m < ga_bench_lfht_metric_count; m++) {
            print_value(out, row[m].value);
        }
        fputs(row->failed ? " !\n" : "\n", out);
    }
    fflush(out);
}

static bool run_cell(cell c, FILE *out, ga_bench_progress *progress, size_t *failed)
{
    double *space = calloc(c.plan->rounds, sizeof *space);
    c.reports = calloc(c.plan->entry_count * c.plan->rounds, sizeof *c.reports);
    c.results = calloc(c.plan->entry_count * ga_bench_lfht_metric_count, sizeof *c.results);
    bool good = space && c.reports && c.results;
    if (good) {
        measure(&c, progress);
        ga_bench_progress_clear(progress);
        good = summarize(&c, space, failed);
        print(&c, out);
    }
    if (good && c.plan->json) {
        fflush(c.plan->json); /* so that an abort later loses no result */
    }
    if (!good) {
        fputs("gpualloc bench: out of memory, or the JSON file cannot be written\n", stderr);
    }
    free(c.results);
    free(c.reports);
    free(space);
    return good;
}

bool ga_bench_lfht_run(const ga_bench_lfht_plan *plan, FILE *out, size_t *failed)
{
    ga_bench_progress progress;
    size_t loads = 0;
    for (int load = 0; load < GA_BENCH_LFHT_LOADS; load++) {
        loads += plan->loads[load];
    }
    *failed = 0;
    ga_bench_progress_begin(&progress, loads * plan->keys.count * plan->threads.count *
                                           plan->entry_count * plan->rounds);
    for (int load = 0; load < GA_BENCH_LFHT_LOADS; load++) {
        for (size_t k = 0; plan->loads[load] && k < plan->keys.count; k++) {
            for (size_t t = 0; t < plan->threads.count; t++) {
                cell c = {plan,
                          (ga_bench_lfht_load)load,
                          plan->keys.values[k],
                          (unsigned)plan->threads.values[t],
                          NULL,
                          NULL};
                if (!run_cell(c, out, &progress, failed)) {
                    return false;
                }
            }
        }
    }
    return true;
}
