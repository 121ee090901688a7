/* SPDX-License-Identifier: MIT
 *
 * Products of matrices: each matrix in a child of its own, the methods in turn within a round,
 * medians over the rounds.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_SUITE_H
#define GPUALLOC_BENCH_SPGEMM_SUITE_H

#include "measure.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    BENCH_SPGEMM_MATRICES = 64
};

typedef struct bench_spgemm_source {
    char name[64];    /* of the generated matrix, or of the file without its folder and suffix */
    const char *path; /* of a Matrix Market file; NULL: generated */
} bench_spgemm_source;

typedef struct bench_spgemm_plan {
    bench_spgemm_source matrices[BENCH_SPGEMM_MATRICES];
    size_t matrix_count;
    bench_square_method methods[BENCH_SQUARE_METHODS];
    size_t method_count;
    double scale; /* of generated matrices */
    unsigned rounds;
    uint32_t threads, flags; /* as in ga_spgemm_options */
    ga_place place;
    ga_value_type type;
    bool checks;         /* of the products of the first round */
    const char *library; /* path of cuSPARSE, or NULL */
    const char *device;  /* name of the processor or the card */
    const char *driver;  /* NULL on the host */
    FILE *json;          /* each result as soon as it is known; or NULL */
} bench_spgemm_plan;

/* Measures, and prints a table for each matrix. Returns the number of failed measurements, which
 * are reported on standard error. */
size_t bench_spgemm_run(const bench_spgemm_plan *plan, FILE *out);

#endif
