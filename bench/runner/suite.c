/* SPDX-License-Identifier: MIT
 *
 * The loop over workloads, sizes, threads, rounds and specs.
 */
#include "suite.h"

#include "figures.h"
#include "machine.h"
#include "progress.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEADLINE = 120 /* seconds for a child, which usually needs less than one */
};

static const ga_bench_metric failed_metric = {"failed", "rounds", false, NULL};

/* One case for all specs: a report for each spec and round. */
typedef struct cell {
    const ga_bench_plan *plan;
    const ga_bench_workload *workload;
    unsigned threads;
    size_t size;
    ga_bench_report *reports; /* [spec * rounds + round] */
} cell;

typedef struct order {
    const cell *cell;
    const char *spec;
    unsigned round;
} order;

static ga_status measure(void *context, ga_bench_report *report)
{
    const order *what = context;
    const cell *c = what->cell;
    ga_bench_case run = {
        .threads = c->threads,
        .size = c->size,
        .milliseconds = c->plan->milliseconds,
        .seed = what->round + 1,
        .resident = ga_bench_resident(),
    };
    ga_status status = ga_heap_open(&run.heap, c->workload->place, 0, what->spec);
    if (status == GA_OK) {
        status = c->workload->run(&run, report);
    }
    return status == GA_OK ? ga_heap_close(run.heap) : status;
}

static ga_bench_report *report_of(const cell *c, size_t spec, unsigned round)
{
    return &c->reports[spec * c->plan->rounds + round];
}

static void announce(const cell *c, ga_bench_progress *progress)
{
    char text[128];
    snprintf(text, sizeof text, "%s, %u thread%s, size %s", c->workload->name, c->threads,
             c->threads == 1 ? "" : "s", ga_bench_size_text_of(c->size).text);
    ga_bench_progress_step(progress, text);
}

/* Each round starts with another spec, so that none always follows the same one. */
static void measure_cell(const cell *c, ga_bench_progress *progress)
{
    size_t specs = c->plan->spec_count;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        for (size_t turn = 0; turn < specs; turn++) {
            size_t spec = (round + turn) % specs;
            order what = {c, c->plan->specs[spec], round};
            ga_bench_child_run(measure, &what, DEADLINE, report_of(c, spec, round));
            announce(c, progress);
        }
    }
}

static const char *first_failure(const cell *c, size_t spec, size_t *failed)
{
    const char *first = NULL;
    *failed = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        const ga_bench_report *report = report_of(c, spec, round);
        if (!report->done) {
            first = first ? first : report->failure;
            ++*failed;
        }
    }
    return first;
}

static ga_bench_figures values_of(const cell *c, size_t spec, size_t metric, double *space)
{
    size_t count = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        const ga_bench_report *report = report_of(c, spec, round);
        if (report->done) {
            space[count++] = report->values[metric];
        }
    }
    return ga_bench_figures_of(space, count);
}

static double ratio_of(const cell *c, size_t spec, size_t metric, double *space)
{
    size_t count = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        const ga_bench_report *report = report_of(c, spec, round);
        const ga_bench_report *base = report_of(c, c->plan->baseline, round);
        if (report->done && base->done && base->values[metric] > 0) {
            space[count++] = report->values[metric] / base->values[metric];
        }
    }
    return ga_bench_figures_of(space, count).median;
}

/* Add a result with the common values of the cell; NULL without memory. */
static ga_bench_result *new_result(const cell *c, size_t spec, ga_bench_results *results)
{
    if (results->count == results->room) {
        size_t room = results->room ? 2 * results->room : 64;
        ga_bench_result *list = realloc(results->list, room * sizeof *list);
        if (!list) {
            return NULL;
        }
        results->list = list;
        results->room = room;
    }
    ga_bench_result *result = &results->list[results->count++];
    *result = (ga_bench_result){
        .bench = c->workload->name,
        .place = ga_place_text(c->workload->place),
        .spec = c->plan->specs[spec],
        .device = results->device,
        .driver = results->driver[0] ? results->driver : NULL,
        .threads = c->threads,
        .size = c->size,
        .baseline = c->plan->specs[c->plan->baseline],
        .ratio = NAN,
    };
    return result;
}

static bool record(const cell *c, const ga_bench_result *result)
{
    if (c->plan->json && !ga_bench_result_write(c->plan->json, result, ga_bench_today().text)) {
        fputs("gpualloc bench: the JSON file cannot be written\n", stderr);
        return false;
    }
    return true;
}

/* The number of failed rounds goes to the file only; the table has a mark in its cell. */
static bool record_failures(const cell *c, size_t spec, size_t failed, const char *failure,
                            ga_bench_results *results)
{
    const ga_bench_result *last = &results->list[results->count - 1];
    ga_bench_result line = *last;
    line.metric = &failed_metric;
    line.value = (double)failed;
    line.spread = 0;
    line.ratio = NAN;
    results->failed += failed;
    fprintf(stderr, "gpualloc bench: %s, %s, threads %u, size %s: %zu of %u rounds failed: %s\n",
            c->workload->name, c->plan->specs[spec], c->threads,
            ga_bench_size_text_of(c->size).text, failed, c->plan->rounds, failure);
    return record(c, &line);
}

static bool summarize_spec(const cell *c, size_t spec, double *space, ga_bench_results *results)
{
    size_t failed;
    const char *failure = first_failure(c, spec, &failed);
    for (size_t metric = 0; metric < c->workload->metric_count; metric++) {
        ga_bench_result *result = new_result(c, spec, results);
        if (!result) {
            fputs("gpualloc bench: out of memory for the results\n", stderr);
            return false;
        }
        ga_bench_figures figures = values_of(c, spec, metric, space);
        result->metric = &c->workload->metrics[metric];
        result->value = figures.median;
        result->spread = figures.high - figures.low;
        result->ratio = ratio_of(c, spec, metric, space);
        result->failed = failed;
        if (!record(c, result)) {
            return false;
        }
    }
    return failed == 0 || record_failures(c, spec, failed, failure, results);
}

/* Only children know a device's name; the host's name is set from the start. */
static void learn_device(const cell *c, ga_bench_results *results)
{
    size_t reports = c->plan->spec_count * c->plan->rounds;
    for (size_t i = 0; i < reports && !results->device[0]; i++) {
        memcpy(results->device, c->reports[i].device, sizeof results->device);
        memcpy(results->driver, c->reports[i].driver, sizeof results->driver);
    }
}

static bool run_cell(const ga_bench_plan *plan, const ga_bench_workload *workload, unsigned threads,
                     size_t size, ga_bench_progress *progress, ga_bench_results *results)
{
    cell c = {plan, workload, threads, size, NULL};
    double *space = calloc(plan->rounds, sizeof *space);
    bool good = false;
    c.reports = calloc(plan->spec_count * plan->rounds, sizeof *c.reports);
    if (!space || !c.reports) {
        fputs("gpualloc bench: out of memory for the measurements\n", stderr);
        goto done;
    }
    measure_cell(&c, progress);
    learn_device(&c, results);
    ga_bench_progress_clear(progress);
    good = true;
    for (size_t spec = 0; spec < plan->spec_count && good; spec++) {
        good = summarize_spec(&c, spec, space, results);
    }
done:
    free(c.reports);
    free(space);
    return good;
}

static size_t size_count(const ga_bench_plan *plan, const ga_bench_workload *workload)
{
    size_t count = 0;
    while (workload->sizes[count] && (count == 0 || !plan->quick)) {
        count++;
    }
    return plan->sizes.count ? plan->sizes.count : count;
}

static size_t thread_count(const ga_bench_plan *plan, const ga_bench_workload *workload)
{
    return workload->one_thread ? 1 : plan->threads.count;
}

static bool run_workload(const ga_bench_plan *plan, const ga_bench_workload *workload,
                         ga_bench_progress *progress, ga_bench_results *results)
{
    for (size_t s = 0; s < size_count(plan, workload); s++) {
        size_t size = plan->sizes.count ? plan->sizes.values[s] : workload->sizes[s];
        for (size_t t = 0; t < thread_count(plan, workload); t++) {
            unsigned threads = workload->one_thread ? 1 : (unsigned)plan->threads.values[t];
            if (!run_cell(plan, workload, threads, size, progress, results)) {
                return false;
            }
        }
    }
    return true;
}

static size_t measurements(const ga_bench_plan *plan)
{
    size_t cells = 0;
    for (size_t i = 0; i < plan->workload_count; i++) {
        cells += size_count(plan, plan->workloads[i]) * thread_count(plan, plan->workloads[i]);
    }
    return cells * plan->spec_count * plan->rounds;
}

bool ga_bench_suite_run(const ga_bench_plan *plan, FILE *out, ga_bench_results *results)
{
    ga_bench_progress progress;
    *results = (ga_bench_results){0};
    if (plan->place == GA_PLACE_HOST) {
        snprintf(results->device, sizeof results->device, "%s", ga_bench_processor());
    }
    ga_bench_progress_begin(&progress, measurements(plan));
    for (size_t i = 0; i < plan->workload_count; i++) {
        size_t first = results->count;
        if (!run_workload(plan, plan->workloads[i], &progress, results)) {
            return false;
        }
        ga_bench_table_print(out, plan->workloads[i]->help, results->list + first,
                             results->count - first);
        fflush(out);
    }
    return true;
}

void ga_bench_results_free(ga_bench_results *results)
{
    free(results->list);
    *results = (ga_bench_results){0};
}
