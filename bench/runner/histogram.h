/* SPDX-License-Identifier: MIT
 *
 * Counts of nanoseconds: exact to 255 ns, within 1/128 above. For one thread at a time; the
 * threads' histograms are added up when they have ended.
 */
#ifndef BENCH_RUNNER_HISTOGRAM_H
#define BENCH_RUNNER_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    GA_BENCH_HISTOGRAM_BITS = 7, /* each power of two is cut into 128 */
    GA_BENCH_HISTOGRAM_CELLS = (64 - GA_BENCH_HISTOGRAM_BITS + 1) << GA_BENCH_HISTOGRAM_BITS
};

typedef struct ga_bench_histogram {
    uint64_t total;
    uint64_t cells[GA_BENCH_HISTOGRAM_CELLS];
} ga_bench_histogram;

static inline size_t ga_bench_histogram_cell(uint64_t ns)
{
    if (ns >> GA_BENCH_HISTOGRAM_BITS == 0) {
        return (size_t)ns;
    }
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - GA_BENCH_HISTOGRAM_BITS;
    return ((size_t)shift << GA_BENCH_HISTOGRAM_BITS) + (size_t)(ns >> shift);
}

static inline void ga_bench_histogram_add(ga_bench_histogram *histogram, uint64_t ns)
{
    histogram->cells[ga_bench_histogram_cell(ns)]++;
    histogram->total++;
}

void ga_bench_histogram_merge(ga_bench_histogram *into, const ga_bench_histogram *from);

/* The time that a fraction `q` of all counts does not exceed. A clock that advances `step`
 * nanoseconds at a time reads 20 for all times from 10 to 20, so a reading counts as spread over
 * the step before it: the median of many readings is finer than the clock. 0 if nothing was
 * counted. */
double ga_bench_histogram_quantile(const ga_bench_histogram *histogram, double q, double step);

#endif
