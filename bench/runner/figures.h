/* SPDX-License-Identifier: MIT
 *
 * Median and spread of a few figures.
 */
#ifndef BENCH_RUNNER_FIGURES_H
#define BENCH_RUNNER_FIGURES_H

#include <stddef.h>

typedef struct ga_bench_figures {
    double median;
    double low, high; /* the quartiles */
} ga_bench_figures;

/* Sorts `values`. All members are NAN if there are no values. */
ga_bench_figures ga_bench_figures_of(double *values, size_t count);

#endif
