/* SPDX-License-Identifier: MIT
 *
 * Adding histograms up and reading quantiles off them.
 */
#include "histogram.h"

void ga_bench_histogram_merge(ga_bench_histogram *into, const ga_bench_histogram *from)
{
    into->total += from->total;
    for (size_t i = 0; i < GA_BENCH_HISTOGRAM_CELLS; i++) {
        into->cells[i] += from->cells[i];
    }
}

/* The highest time that falls into the cell. */
static double top_of(size_t cell)
{
    if (cell >> (GA_BENCH_HISTOGRAM_BITS + 1) == 0) {
        return (double)cell;
    }
    unsigned shift = (unsigned)(cell >> GA_BENCH_HISTOGRAM_BITS) - 1;
    uint64_t head = cell - ((uint64_t)shift << GA_BENCH_HISTOGRAM_BITS);
    return (double)((head << shift) + ((UINT64_C(1) << shift) - 1));
}

double ga_bench_histogram_quantile(const ga_bench_histogram *histogram, double q, double step)
{
    double wanted = q * (double)histogram->total;
    double before = 0;
    double reached = 0; /* the last time that was counted */
    for (size_t i = 0; i < GA_BENCH_HISTOGRAM_CELLS; i++) {
        double here = (double)histogram->cells[i];
        if (here == 0) {
            continue;
        }
        double top = top_of(i);
        double bottom = top - step > reached ? top - step : reached;
        if (before + here >= wanted) {
            return bottom + (top - bottom) * (wanted - before) / here;
        }
        before += here;
        reached = top;
    }
    return reached;
}
