/* SPDX-License-Identifier: MIT
 *
 * Matrices, and a plain product to compare with, for the tests of sparse products on the host.
 */
#ifndef TESTS_UNIT_SPGEMM_PRODUCTS_H
#define TESTS_UNIT_SPGEMM_PRODUCTS_H

#include "support/expect.h"
#include "support/random.h"

#include <gpualloc/spgemm.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct matrix {
    ga_csr view;
    uint64_t *offsets;
    uint32_t *indices;
    void *values;
} matrix;

static inline void put_value(const matrix *m, uint64_t at, double value)
{
    if (m->view.type == GA_FLOAT64) {
        ((double *)m->values)[at] = value;
    } else {
        ((float *)m->values)[at] = (float)value;
    }
}

static inline double value_of(const ga_csr *m, uint64_t at)
{
    return m->type == GA_FLOAT64 ? ((const double *)m->values)[at]
                                 : (double)((const float *)m->values)[at];
}

/* A matrix in which row i has entries with probability `share`, and all of them in row `full`. */
static inline matrix make(uint64_t rows, uint32_t columns, double share, uint64_t full,
                          ga_value_type type, uint64_t *random)
{
    uint64_t most = rows * columns;
    matrix m = {.view = {.rows = rows, .columns = columns, .type = type}};
    m.offsets = calloc(rows + 1, sizeof *m.offsets);
    m.indices = calloc(most + 1, sizeof *m.indices);
    m.values = calloc(most + 1, ga_value_size(type));
    uint64_t count = 0;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint32_t column = 0; column < columns; column++) {
            if (row == full || (double)random_below(random, 1000000) < share * 1e6) {
                m.indices[count] = column;
                put_value(&m, count++, (double)random_below(random, 2001) / 1000 - 1);
            }
        }
        m.offsets[row + 1] = count;
    }
    m.view.offsets = m.offsets;
    m.view.indices = m.indices;
    m.view.values = m.values;
    return m;
}

static inline void matrix_end(matrix *m)
{
    free(m->offsets);
    free(m->indices);
    free(m->values);
}

/* `width` entries in each row, next to the diagonal. */
static inline matrix band(uint64_t n, uint32_t width)
{
    uint64_t random = 5, count = 0;
    matrix m = {.view = {.rows = n, .columns = n, .type = GA_FLOAT64}};
    m.offsets = calloc(n + 1, sizeof *m.offsets);
    m.indices = calloc(n * width, sizeof *m.indices);
    m.values = calloc(n * width, sizeof(double));
    for (uint64_t row = 0; row < n; row++) {
        uint64_t first = row < width / 2 ? 0 : row - width / 2;
        for (uint64_t column = first; column < first + width && column < n; column++) {
            m.indices[count] = (uint32_t)column;
            put_value(&m, count++, (double)random_below(&random, 1000));
        }
        m.offsets[row + 1] = count;
    }
    m.view.offsets = m.offsets;
    m.view.indices = m.indices;
    m.view.values = m.values;
    return m;
}

/* ---- results --------------------------------------------------------------------------------- */

static inline ga_spgemm_product vectors(ga_value_type type, uint64_t limit)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_HOST,
                                .flags = GA_ARENA_EXACT,
                                .limit = limit};
    ga_arena_options free_options = {.options_size = sizeof options, .place = GA_PLACE_HOST};
    ga_spgemm_product c = {0};
    cr_assert_eq(ga_vector_open(&c.offsets, sizeof(uint64_t), &free_options, NULL), GA_OK);
    cr_assert_eq(ga_vector_open(&c.indices, sizeof(uint32_t), &options, NULL), GA_OK);
    cr_assert_eq(ga_vector_open(&c.values, ga_value_size(type), &options, NULL), GA_OK);
    return c;
}

static inline void vectors_end(ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

/* Row `row` of the product, dense; `met` says where entries met. */
static inline void plain_row(const ga_csr *a, const ga_csr *b, uint64_t row, double *sums,
                             bool *met)
{
    memset(sums, 0, b->columns * sizeof *sums);
    memset(met, 0, b->columns * sizeof *met);
    for (uint64_t e = a->offsets[row]; e < a->offsets[row + 1]; e++) {
        uint32_t k = a->indices[e];
        for (uint64_t f = b->offsets[k]; f < b->offsets[k + 1]; f++) {
            sums[b->indices[f]] += value_of(a, e) * value_of(b, f);
            met[b->indices[f]] = true;
        }
    }
}

static inline void expect_row(const ga_csr *c, uint64_t row, const double *sums, bool *met,
                              bool sorted)
{
    double tolerance = c->type == GA_FLOAT64 ? 1e-9 : 1e-3;
    for (uint64_t e = c->offsets[row]; e < c->offsets[row + 1]; e++) {
        uint32_t column = c->indices[e];
        cr_assert(column < c->columns && met[column], "row %llu: column %u is not in the product",
                  (unsigned long long)row, column);
        cr_assert(!sorted || e == c->offsets[row] || c->indices[e - 1] < column);
        cr_assert(fabs(value_of(c, e) - sums[column]) <= tolerance, "row %llu, column %u: %g, %g",
                  (unsigned long long)row, column, value_of(c, e), sums[column]);
        met[column] = false; /* each column once */
    }
    for (uint32_t column = 0; column < c->columns; column++) {
        cr_assert(!met[column], "row %llu: column %u is missing", (unsigned long long)row, column);
    }
}

static inline void expect_product(const ga_csr *a, const ga_csr *b,
                                  const ga_spgemm_product *product, bool sorted)
{
    ga_csr c = ga_spgemm_view(product);
    double *sums = calloc(b->columns + 1, sizeof *sums);
    bool *met = calloc(b->columns + 1, sizeof *met);
    cr_assert_eq(c.rows, a->rows);
    cr_assert_eq(c.columns, b->columns);
    cr_assert_eq(c.offsets[0], 0);
    for (uint64_t row = 0; row < c.rows; row++) {
        plain_row(a, b, row, sums, met);
        expect_row(&c, row, sums, met, sorted);
    }
    cr_assert_eq(ga_vector_size(product->indices), c.offsets[c.rows]);
    cr_assert_eq(ga_vector_size(product->values), c.offsets[c.rows]);
    free(sums);
    free(met);
}

/* Call `each` with random matrices, n by k and k by m, of both types; `share` and `full` are as
 * for make(). */
static inline void multiply_random(void (*each)(const ga_csr *a, const ga_csr *b), uint64_t n,
                                   uint64_t k, uint64_t m, double share, uint64_t full,
                                   uint64_t seed)
{
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        uint64_t random = seed;
        matrix a = make(n, (uint32_t)k, share, full, type, &random);
        matrix b = make(k, (uint32_t)m, share, full, type, &random);
        each(&a.view, &b.view);
        matrix_end(&a);
        matrix_end(&b);
    }
}

#endif
