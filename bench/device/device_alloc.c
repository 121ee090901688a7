/* SPDX-License-Identifier: MIT
 *
 * Workload `device-alloc`: the host allocates and frees device memory, one block at a time, on one
 * thread, with no kernel running. The first blocks are not counted: they create the context and
 * fill the backend's caches.
 */
#include "name.h"
#include "workloads.h"

#include "../runner/clock.h"
#include "../runner/figures.h"

enum {
    PAIRS_MAX = 512,
    PAIRS_LEAST = 5,
    WARM_UP = 3
};

typedef struct times {
    size_t count;
    double alloc[PAIRS_MAX], free[PAIRS_MAX]; /* us */
} times;

static ga_status pair(const ga_bench_case *run, double *alloc, double *release)
{
    void *block;
    uint64_t start = ga_bench_now();
    ga_status status = ga_alloc(run->heap, run->size, 0, &block);
    uint64_t middle = ga_bench_now();
    if (status != GA_OK) {
        return status;
    }
    uint64_t again = ga_bench_now();
    status = ga_free(run->heap, block);
    uint64_t end = ga_bench_now();
    *alloc = (double)(middle - start) / 1e3;
    *release = (double)(end - again) / 1e3;
    return status;
}

static ga_status measure(const ga_bench_case *run, times *t)
{
    ga_status status = GA_OK;
    for (int i = 0; i < WARM_UP && status == GA_OK; i++) {
        status = pair(run, &t->alloc[0], &t->free[0]);
    }
    uint64_t stop = ga_bench_now() + (uint64_t)run->milliseconds * 1000000;
    while (status == GA_OK && t->count < PAIRS_MAX &&
           (t->count < PAIRS_LEAST || ga_bench_now() < stop)) {
        status = pair(run, &t->alloc[t->count], &t->free[t->count]);
        t->count++;
    }
    return status;
}

static ga_status run(const ga_bench_case *run, ga_bench_report *report)
{
    static times t;
    ga_status status = measure(run, &t);
    ga_bench_name_device(ga_heap_device(run->heap), report);
    report->values[0] = ga_bench_figures_of(t.alloc, t.count).median;
    report->values[1] = ga_bench_figures_of(t.free, t.count).median;
    return status;
}

static const ga_bench_metric metrics[] = {
    {.name = "alloc", .unit = "us"},
    {.name = "free", .unit = "us"},
};

const ga_bench_workload ga_bench_device_alloc = {
    .name = "device-alloc",
    .help = "device memory allocated and freed by the host, no kernel running",
    .place = GA_PLACE_DEVICE,
    .one_thread = true,
    .sizes = (const size_t[]){2 << 20, 32 << 20, 1 << 30, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run,
};
