/* SPDX-License-Identifier: MIT
 *
 * Workloads over specs: every measurement in a child of its own, the specs taking turns within a
 * round so that drift of the machine meets them all, medians over the rounds, ratios to the
 * baseline pair by pair within a round.
 */
#ifndef BENCH_RUNNER_SUITE_H
#define BENCH_RUNNER_SUITE_H

#include "lists.h"
#include "workload.h"

enum {
    GA_BENCH_SPECS_MAX = 16,
    GA_BENCH_WORKLOADS_MAX = 32
};

typedef struct ga_bench_plan {
    ga_place place;
    size_t workload_count;
    const ga_bench_workload *workloads[GA_BENCH_WORKLOADS_MAX];
    size_t spec_count;
    const char *specs[GA_BENCH_SPECS_MAX];
    size_t baseline; /* index of its spec */
    ga_bench_list threads;
    ga_bench_list sizes; /* empty: the workload's own */
    unsigned rounds;
    unsigned milliseconds;
    bool quick;
    FILE *json; /* each result as soon as it is known; or NULL */
} ga_bench_plan;

/* Owned by the caller; freed by ga_bench_results_free(). */
typedef struct ga_bench_results {
    size_t count, room;
    ga_bench_result *list;
    size_t failed; /* measurements that failed */
    char device[160];
    char driver[64];
} ga_bench_results;

/* Measure the plan and print each workload's tables to `out`. False, with a message on standard
 * error, if memory ran out or the JSON file cannot be written. Failed measurements are part of the
 * results. */
bool ga_bench_suite_run(const ga_bench_plan *plan, FILE *out, ga_bench_results *results);

void ga_bench_results_free(ga_bench_results *results);

/* Open `spec` in a child, allocate a block and free it. On failure `report` has the reason; a child
 * that crashed is GA_ERR_LIBRARY. */
ga_status ga_bench_spec_try(ga_place place, const char *spec, ga_bench_report *report);

/* Add to the plan every backend that serves its place without options. Omits test doubles and
 * backends with a required option; adds well-known malloc libraries of the machine. Prints omitted
 * ones with the reason to standard error. */
void ga_bench_specs_default(ga_bench_plan *plan);

#endif
