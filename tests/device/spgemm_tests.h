/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of spgemm_tests: matrices, vectors for products on a device, and their
 * comparison with the product that the host computes.
 */
#ifndef TESTS_DEVICE_SPGEMM_TESTS_H
#define TESTS_DEVICE_SPGEMM_TESTS_H

#include "../../liballoc/platform/cuda_driver.h"
#include "../support/random.h"
#include "cases.h"

#include <gpualloc/spgemm.h>

#include <stdint.h>

/* The arguments of main(). */
typedef struct spgemm_suite {
    const char *only; /* --only WORDS: cases whose name contains them; NULL: all */
    bool quick;       /* --quick: less work, and in one process, for a sanitizer */
    bool no_growing;  /* --no-growing: nothing grows during kernels, which a sanitizer cannot
                       * follow */
} spgemm_suite;

extern spgemm_suite suite;

case_list shape_cases(void);
case_list large_cases(void);
case_list limit_cases(void);
case_list dynamic_cases(void);
case_list refusal_cases(void);

/* ---- failures -------------------------------------------------------------------------------- */

/* The product that the thread computes, for messages. */
__attribute__((format(printf, 1, 2))) void describe(const char *format, ...);

/* Fail the case with the description and an expectation. */
__attribute__((format(printf, 3, 4))) void fail_at(const char *file, int line, const char *format,
                                                   ...);
#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

/* ---- matrices on the host -------------------------------------------------------------------- */

/* Built row by row; the values come last. */
typedef struct matrix {
    ga_csr view;
    uint64_t *offsets;
    uint32_t *indices;
    void *values;
    uint64_t row, room; /* rows that have ended; entries for which there is memory */
} matrix;

matrix matrix_begin(uint64_t rows, uint64_t columns);
void matrix_put(matrix *m, uint64_t column); /* columns of a row ascend */
void matrix_end_row(matrix *m);
void matrix_free(matrix *m);

/* Give all entries values of the type. Their products, and sums of up to 4096 of those, are exact;
 * in float64 they need more digits than float32 has. */
void matrix_fill(matrix *m, ga_value_type type, uint64_t seed);

double value_at(const void *values, ga_value_type type, uint64_t at);
void set_value(void *values, ga_value_type type, uint64_t at, double value);

/* A row of `count` different columns from `low` to below `high`, at random. */
void put_random_row(matrix *m, uint64_t low, uint64_t high, uint64_t count, uint64_t *random);

/* Each entry is there with a probability of `share` millionths. */
matrix random_matrix(uint64_t rows, uint64_t columns, uint64_t share, uint64_t seed);

/* `width` diagonals next to the main one, `apart` columns apart. */
matrix band_matrix(uint64_t n, uint64_t width, uint64_t apart);

/* ---- on the device --------------------------------------------------------------------------- */

typedef struct device_matrix {
    ga_csr view;
    ga_vector *offsets, *indices, *values;
} device_matrix;

/* NULL vectors if it fails; then the case has failed. */
device_matrix upload(int device, const ga_csr *m);
void device_matrix_close(device_matrix *m);

ga_arena_options options_for(ga_place place, int device, uint64_t limit);

/* Vectors for a product; `limit` bytes for the indices, and for the values. 0: no limit. */
ga_spgemm_product open_product(ga_place place, int device, ga_stream stream, ga_value_type type);
ga_spgemm_product open_limited(int device, ga_value_type type, uint64_t indices, uint64_t values);
void close_product(ga_spgemm_product *c);

/* Streams that do not wait for the default stream. */
CUstream open_stream(int device);
void close_stream(int device, CUstream stream);

uint64_t free_memory(int device); /* bytes */

/* ---- products -------------------------------------------------------------------------------- */

/* The product in host memory, with sorted rows; closed by close_product(). */
ga_spgemm_product host_product(const ga_csr *a, const ga_csr *b);

ga_spgemm_options options_of(ga_spgemm_method method, bool sorted);

/* Multiply with vectors that have room before, if nothing may grow during kernels. */
ga_status multiply_device(const ga_csr *a, const ga_csr *b, ga_spgemm_method method, bool sorted,
                          ga_spgemm_product *c, const ga_spgemm_product *want,
                          ga_spgemm_report *report);

/* Compare a product on the device with one on the host; returns false if the case has failed. */
bool is_product(const ga_spgemm_product *c, const ga_spgemm_product *want, bool sorted);

/* Multiply by each method, sorted and not, and compare. The values are there. */
void multiply_each(int device, const ga_csr *a, const ga_csr *b);

/* multiply_each() in both types; fills the matrices with values. A may be B. */
void multiply_all(int device, const char *name, matrix *a, matrix *b);

/* multiply_all(), and free the matrices. */
void multiply_pair(int device, const char *name, matrix a, matrix b);
void multiply_square(int device, const char *name, matrix a);

#endif
