/* SPDX-License-Identifier: MIT
 *
 * Workload `latency`: random-size churn where every single malloc and free is timed. The times
 * have the clock's own cost taken off; with more threads than cores the last of them contain the
 * thread's waiting for a core, for every spec alike.
 */
#include "../runner/clock.h"
#include "../runner/histogram.h"
#include "churn.h"
#include "workloads.h"

enum {
    STEP = 64,
    QUANTILES = 3
};

static const double quantiles[QUANTILES] = {0.5, 0.99, 0.999};

typedef struct times {
    ga_bench_histogram malloc, free;
} times;

static ga_status begin(ga_bench_worker *worker)
{
    return ga_bench_window_begin(worker, true);
}

static void count(ga_bench_worker *worker)
{
    times *all = worker->shared;
    all[worker->index] = (times){0};
}

static ga_status replace_one(ga_bench_worker *worker, times *mine)
{
    void **slot = ga_bench_window_pick(worker);
    size_t size = ga_bench_window_size(worker->own);
    uint64_t start = ga_bench_now();
    ga_status status = ga_free(worker->run->heap, *slot);
    uint64_t middle = ga_bench_now();
    if (status != GA_OK) {
        return status;
    }
    uint64_t again = ga_bench_now();
    status = ga_alloc(worker->run->heap, size, 0, slot);
    uint64_t end = ga_bench_now();
    if (status != GA_OK) {
        return status;
    }
    ga_bench_touch(*slot, 0, size);
    ga_bench_histogram_add(&mine->free, middle - start);
    ga_bench_histogram_add(&mine->malloc, end - again);
    return GA_OK;
}

static ga_status step(ga_bench_worker *worker)
{
    times *all = worker->shared;
    for (int i = 0; i < STEP; i++) {
        ga_status status = replace_one(worker, &all[worker->index]);
        if (status != GA_OK) {
            return status;
        }
    }
    worker->done += STEP;
    return GA_OK;
}

static void read_off(const ga_bench_histogram *histogram, ga_bench_clock clock, double *out)
{
    for (int i = 0; i < QUANTILES; i++) {
        double ns = ga_bench_histogram_quantile(histogram, quantiles[i], clock.step) - clock.cost;
        out[i] = ns > 0 ? ns : 0;
    }
}

static ga_status run(const ga_bench_case *run, ga_bench_report *report)
{
    ga_bench_loop loop = {.begin = begin, .count = count, .step = step, .end = ga_bench_window_end};
    ga_bench_clock clock = ga_bench_clock_calibrate();
    double per_second;
    times *all = ga_bench_space(run->threads * sizeof *all);
    if (!all) {
        return GA_ERR_MEMORY;
    }
    ga_status status = ga_bench_loop_run(&loop, run, all, &per_second);
    for (unsigned i = 1; i < run->threads; i++) {
        ga_bench_histogram_merge(&all[0].malloc, &all[i].malloc);
        ga_bench_histogram_merge(&all[0].free, &all[i].free);
    }
    read_off(&all[0].malloc, clock, report->values);
    read_off(&all[0].free, clock, report->values + QUANTILES);
    report->values[2 * QUANTILES] = clock.cost;
    return status;
}

static const ga_bench_metric metrics[] = {
    {.name = "malloc_p50", .unit = "ns"},
    {.name = "malloc_p99", .unit = "ns"},
    {.name = "malloc_p99.9", .unit = "ns"},
    {.name = "free_p50", .unit = "ns"},
    {.name = "free_p99", .unit = "ns"},
    {.name = "free_p99.9", .unit = "ns"},
    {.name = "clock", .unit = "ns", .note = "the clock's own cost, taken off these times"},
};

const ga_bench_workload ga_bench_latency = {
    .name = "latency",
    .help = "single malloc and free of sizes from 16 bytes up, timed one by one",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){1 << 10, 32 << 10, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run,
};
