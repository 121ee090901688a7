/* SPDX-License-Identifier: MIT
 *
 * Percentiles, for benchmarks of one translation unit in C++.
 */
#ifndef GPUALLOC_BENCH_PERCENTILES_CUH
#define GPUALLOC_BENCH_PERCENTILES_CUH

#include <algorithm>
#include <vector>

static inline double at(const std::vector<double> &sorted, double part)
{
    double place = part * (double)(sorted.size() - 1);
    size_t low = (size_t)place;
    size_t high = low + 1 < sorted.size() ? low + 1 : low;
    return sorted[low] + (place - (double)low) * (sorted[high] - sorted[low]);
}

static inline std::vector<double> sorted_of(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values;
}

static inline double median_of(std::vector<double> values)
{
    return at(sorted_of(values), 0.5);
}

#endif
