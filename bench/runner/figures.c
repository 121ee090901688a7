/* SPDX-License-Identifier: MIT
 *
 * Quantiles by linear interpolation between the two nearest ranks.
 */
#include "figures.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(const double *sorted, size_t count, double q)
{
    double rank = q * (double)(count - 1);
    size_t below = (size_t)rank;
    size_t above = below + 1 < count ? below + 1 : below;
    double part = rank - (double)below;
    return sorted[below] + part * (sorted[above] - sorted[below]);
}

ga_bench_figures ga_bench_figures_of(double *values, size_t count)
{
    if (count == 0) {
        return (ga_bench_figures){NAN, NAN, NAN};
    }
    qsort(values, count, sizeof *values, by_value);
    return (ga_bench_figures){
        .median = quantile(values, count, 0.5),
        .low = quantile(values, count, 0.25),
        .high = quantile(values, count, 0.75),
    };
}
