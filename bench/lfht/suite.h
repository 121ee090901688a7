/* SPDX-License-Identifier: MIT
 *
 * Workloads over maps: as runner/suite.h does it for heaps. Every measurement in a child of its
 * own, the maps in turn within a round, medians over the rounds, ratios to the first map pair by
 * pair within a round.
 */
#ifndef BENCH_LFHT_SUITE_H
#define BENCH_LFHT_SUITE_H

#include "measure.h"

#include "../runner/lists.h"

#include <stdio.h>

enum {
    GA_BENCH_LFHT_ENTRIES = 128,
    GA_BENCH_LFHT_NAME = 160
};

/* A map as it is measured; its name is "VARIANT:chain=4,.../HEAP", or a peer's. */
typedef struct ga_bench_lfht_entry {
    const ga_bench_subject *subject;
    const char *heap;
    ga_bench_shape shape;
    char name[GA_BENCH_LFHT_NAME];
} ga_bench_lfht_entry;

typedef struct ga_bench_lfht_plan {
    bool loads[GA_BENCH_LFHT_LOADS];
    size_t entry_count;
    ga_bench_lfht_entry entries[GA_BENCH_LFHT_ENTRIES]; /* the first is the baseline */
    ga_bench_list threads, keys;
    unsigned rounds;
    FILE *json; /* each result as soon as it is known; or NULL */
} ga_bench_lfht_plan;

/* Measure and print a table for each workload. False, with a message on standard error, if memory
 * ran out or the file cannot be written. `failed` is the number of failed measurements. */
bool ga_bench_lfht_run(const ga_bench_lfht_plan *plan, FILE *out, size_t *failed);

#endif
