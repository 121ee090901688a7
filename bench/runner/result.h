/* SPDX-License-Identifier: MIT
 *
 * One measurement, and its form as a line of JSON. docs/bench.md has the keys.
 */
#ifndef BENCH_RUNNER_RESULT_H
#define BENCH_RUNNER_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct ga_bench_metric {
    const char *name;
    const char *unit;
    bool more_is_better;
    const char *note; /* where set, the metric is about the measuring itself: one line under the
                       * table instead of rows in it */
} ga_bench_metric;

/* The texts belong to whoever measured and outlive the result. */
typedef struct ga_bench_result {
    const char *bench, *place, *spec;
    const char *device; /* full name of the card or processor */
    const char *driver; /* NULL on the host */
    unsigned threads;
    size_t size;
    const ga_bench_metric *metric;
    double value;  /* median over the rounds; NAN where no round ended well */
    double spread; /* between the quartiles, in the metric's unit */
    const char *baseline;
    double ratio;  /* to the baseline, median over pairs of rounds; NAN where there is none */
    size_t failed; /* rounds without a value */
} ga_bench_result;

/* False where the stream refuses it. */
bool ga_bench_result_write(FILE *stream, const ga_bench_result *result, const char *date);

#endif
