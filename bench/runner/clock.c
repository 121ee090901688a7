/* SPDX-License-Identifier: MIT
 *
 * The clock read many times in a row.
 */
#include "clock.h"

#include "histogram.h"

static size_t commonest_but(const ga_bench_histogram *histogram, size_t but)
{
    size_t best = but == 0 ? 1 : 0;
    for (size_t i = 0; i < GA_BENCH_HISTOGRAM_CELLS; i++) {
        if (i != but && histogram->cells[i] > histogram->cells[best]) {
            best = i;
        }
    }
    return best;
}

/* A clock that counts every nanosecond gives neighbouring times, one that counts in tens times
 * ten apart: the two commonest show the step. */
static double step_of(const ga_bench_histogram *histogram)
{
    size_t first = commonest_but(histogram, SIZE_MAX);
    size_t second = commonest_but(histogram, first);
    if (histogram->cells[second] < histogram->total / 100) {
        return 1;
    }
    return first > second ? (double)(first - second) : (double)(second - first);
}

ga_bench_clock ga_bench_clock_calibrate(void)
{
    static ga_bench_histogram histogram;
    histogram = (ga_bench_histogram){0};
    for (int i = 0; i < 100000; i++) {
        uint64_t start = ga_bench_now();
        ga_bench_histogram_add(&histogram, ga_bench_now() - start);
    }
    double step = step_of(&histogram);
    return (ga_bench_clock){
        .cost = ga_bench_histogram_quantile(&histogram, 0.5, step),
        .step = step,
    };
}
