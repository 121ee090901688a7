/* SPDX-License-Identifier: MIT
 *
 * The workloads of the host; each is described where it is defined.
 */
#ifndef BENCH_HOST_WORKLOADS_H
#define BENCH_HOST_WORKLOADS_H

#include "../runner/workload.h"

extern const ga_bench_workload ga_bench_same_size;
extern const ga_bench_workload ga_bench_random_size_workload;
extern const ga_bench_workload ga_bench_producer_consumer;
extern const ga_bench_workload ga_bench_realloc_growth;
extern const ga_bench_workload ga_bench_long_lived;
extern const ga_bench_workload ga_bench_latency;

/* The first metric of all timed workloads: operations of all threads together. */
#define GA_BENCH_THROUGHPUT                                                                        \
    {                                                                                              \
        .name = "throughput", .unit = "Mop/s", .more_is_better = true                              \
    }

#endif
