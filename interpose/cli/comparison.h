/* SPDX-License-Identifier: MIT
 *
 * The figures of `gpualloc compare`: medians, ratios, and which ratios are noise.
 */
#ifndef INTERPOSE_CLI_COMPARISON_H
#define INTERPOSE_CLI_COMPARISON_H

#include "measured_run.h"
#include "prepared.h"

#include <stdio.h>

enum {
    GA_COMPARISON_ROWS_MAX = 34,
    GA_COMPARISON_BASE = 0,  /* the row of the program without a preload */
    GA_COMPARISON_AGAIN = 1, /* the same once more: its ratios to the base are noise */
    GA_COMPARISON_SPECS = 2, /* the first row of a spec */
    GA_COMPARISON_SURE = 3   /* rounds; with fewer, every ratio counts as noise */
};

/* One environment of the program. */
typedef struct ga_comparison_row {
    const char *name;  /* "no preload", "jemalloc", "device vmm" */
    const char *place; /* of the spec */
    const char *spec;
    ga_prepared environment;
    ga_measured_run *runs; /* by round */
} ga_comparison_row;

typedef struct ga_comparison {
    const char *program; /* its name, without a folder */
    ga_comparison_row rows[GA_COMPARISON_ROWS_MAX];
    size_t row_count, rounds; /* rounds that are complete */
} ga_comparison;

/* Print a table, how large noise is, and the best rows. */
void ga_comparison_print(FILE *stream, const ga_comparison *comparison);

/* Write the figures as lines of JSON (bench/README.md). False: the stream cannot be written. */
bool ga_comparison_write(FILE *stream, const ga_comparison *comparison);

#endif
