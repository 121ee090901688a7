/* SPDX-License-Identifier: MIT
 *
 * One measurement of a map: the workloads of lfht-reclamation-2022, §5.1 and §5.4.
 */
#ifndef BENCH_LFHT_MEASURE_H
#define BENCH_LFHT_MEASURE_H

#include "subject.h"

#include "../runner/child.h"
#include "../runner/result.h"

typedef enum ga_bench_lfht_load {
    GA_BENCH_LFHT_INSERT = 0, /* into an empty map */
    GA_BENCH_LFHT_REMOVE,     /* all keys of a filled map */
    GA_BENCH_LFHT_HIT,        /* lookups of keys that are there */
    GA_BENCH_LFHT_MISS,       /* lookups of keys that are not, in a filled map */
    GA_BENCH_LFHT_MIX,        /* 25 % inserts, 25 % removals, 50 % lookups, in a filled map */
    GA_BENCH_LFHT_REINSERT,   /* into a map that was filled and emptied */
    GA_BENCH_LFHT_EMPTIED,    /* lookups in a map that was filled and emptied */
    GA_BENCH_LFHT_LOADS
} ga_bench_lfht_load;

/* Its name in results, "lfht-insert" and so on, and a line about it. */
const char *ga_bench_lfht_load_text(ga_bench_lfht_load load);
const char *ga_bench_lfht_load_help(ga_bench_lfht_load load);

typedef struct ga_bench_lfht_case {
    const ga_bench_subject *subject;
    const char *heap; /* spec; NULL for maps that take none */
    ga_bench_shape shape;
    ga_bench_lfht_load load;
    uint64_t keys; /* number of keys in the filled map, and of calls; shared by the threads */
    unsigned threads;
} ga_bench_lfht_case;

extern const ga_bench_metric ga_bench_lfht_metrics[];
extern const size_t ga_bench_lfht_metric_count;

/* Runs in a child: a ga_bench_body whose `context` is a ga_bench_lfht_case. Every result is
 * checked: GA_ERR_LIBRARY if one was wrong. A metric that is not available is NAN. */
ga_status ga_bench_lfht_measure(void *context, ga_bench_report *report);

#endif
