/* SPDX-License-Identifier: MIT
 *
 * One measurement, and its form as a line of JSON. bench/README.md has the keys.
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
    const char *note; /* if set, the metric describes the measurement itself: printed as one line
                       * under the table */
} ga_bench_metric;

/* The texts are owned by the caller and must outlive the result. */
typedef struct ga_bench_result {
    const char *bench, *place, *spec;
    const char *device; /* full name of the card or processor */
    const char *driver; /* NULL on the host */
    unsigned threads;
    size_t size;
    const ga_bench_metric *metric;
    double value;  /* median over the rounds; NAN if no round succeeded */
    double spread; /* between the quartiles, in the metric's unit */
    const char *baseline;
    double ratio;         /* to the baseline, median over pairs of rounds; NAN if there is none */
    size_t failed;        /* rounds without a value */
    struct json_t *extra; /* an object whose keys are added to the line; NULL: none */
} ga_bench_result;

/* False if the stream cannot be written. */
bool ga_bench_result_write(FILE *stream, const ga_bench_result *result, const char *date);

#endif
