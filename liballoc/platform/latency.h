/* SPDX-License-Identifier: MIT
 *
 * How long things took: counted by size, eight sizes to each doubling, so that any quantile is known to
 * within an eighth, in little memory and without a sort. Times are in nanoseconds. All zeros is an empty
 * one. Not thread safe: the caller's lock guards it.
 */
#ifndef GPUALLOC_PLATFORM_LATENCY_H
#define GPUALLOC_PLATFORM_LATENCY_H

#include <stdint.h>

enum {
    GA_LATENCY_SIZES = 328 /* up to 2^43 ns, more than two hours; longer ones count with the last */
};

typedef struct ga_latency {
    uint64_t count;
    uint64_t most;
    uint64_t sum; /* 584 years of it */
    uint32_t counts[GA_LATENCY_SIZES];
} ga_latency;

void ga_latency_add(ga_latency *latency, uint64_t ns);

/* All that `other` counts counts in `latency`, too. */
void ga_latency_join(ga_latency *latency, const ga_latency *other);

/* The time that so many in a thousand did not exceed, rounded up to its size's end, but at most the
 * longest there was; 1000: that. 0 where there were none. */
uint64_t ga_latency_quantile(const ga_latency *latency, unsigned per_mille);

#endif
