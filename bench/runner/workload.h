/* SPDX-License-Identifier: MIT
 *
 * The interface of workloads for the runner.
 */
#ifndef BENCH_RUNNER_WORKLOAD_H
#define BENCH_RUNNER_WORKLOAD_H

#include "child.h"
#include "result.h"

/* One measurement: a workload on a heap that was opened for it, in a process of its own. */
typedef struct ga_bench_case {
    ga_heap *heap;
    unsigned threads;
    size_t size;
    unsigned milliseconds; /* that timed workloads run, after a warm-up of a quarter of it */
    uint64_t seed;         /* the same for all specs in one round */
    size_t resident;       /* resident bytes of the process before the heap was opened */
} ga_bench_case;

typedef struct ga_bench_workload {
    const char *name;
    const char *help;
    ga_place place;
    bool one_thread;     /* runs on one thread only */
    const size_t *sizes; /* default sizes, 0 at the end; a quick run uses the first */
    size_t metric_count;
    const ga_bench_metric *metrics;
    /* Fills in report->values, one for each metric. */
    ga_status (*run)(const ga_bench_case *run, ga_bench_report *report);
} ga_bench_workload;

/* All workloads in the order in which they run; NULL past the last. */
const ga_bench_workload *ga_bench_workload_at(size_t index);

/* NULL if there is none of that name. */
const ga_bench_workload *ga_bench_workload_find(const char *name);

#endif
