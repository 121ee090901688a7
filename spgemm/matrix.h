/* SPDX-License-Identifier: MIT
 *
 * Matrices in host memory that own their arrays, and their construction from entries in any order.
 */
#ifndef GPUALLOC_SPGEMM_MATRIX_H
#define GPUALLOC_SPGEMM_MATRIX_H

#include <gpualloc/backend.h>
#include <gpualloc/matrix.h>

struct ga_matrix {
    ga_heap *heap;
    bool own_heap;
    uint64_t rows, columns;
    uint64_t *offsets;
    uint32_t *indices;
    void *values; /* float64 until the matrix is complete, then `type` */
    ga_value_type type;
};

typedef enum ga_symmetry {
    GA_GENERAL = 0,
    GA_SYMMETRIC,
    GA_SKEW_SYMMETRIC
} ga_symmetry;

typedef struct ga_entry {
    uint32_t row, column;
    double value;
} ga_entry;

typedef struct ga_entries {
    ga_entry *at; /* a block of the matrix's heap */
    uint64_t count;
    ga_symmetry symmetry; /* entries below the diagonal stand for two */
} ga_entries;

/* A block of `count` elements of `size` bytes. GA_ERR_MEMORY also if the product overflows. */
ga_status ga_matrix_alloc(ga_heap *heap, uint64_t count, size_t size, void *out);

/* An empty matrix without sizes and arrays, in `heap`, or in a heap of its own if that is NULL. */
ga_status ga_matrix_new(ga_matrix **out, ga_heap *heap);

/* Builds the arrays of a matrix whose `rows`, `columns` and `type` are set. Frees the entries'
 * block, whatever the status. */
ga_status ga_matrix_build(ga_matrix *matrix, ga_entries *entries, uint32_t flags);

/* ---- parts of ga_csr_check() ----------------------------------------------------------------- */

ga_status ga_csr_check_form(const ga_csr *m);                     /* reads no array */
ga_status ga_csr_check_arrays(const ga_csr *m, uint64_t entries); /* are they there? */
ga_status ga_csr_check_offsets(uint64_t row, uint64_t begin, uint64_t end);
ga_status ga_csr_check_row(uint64_t row, const uint32_t *indices, uint64_t count, uint64_t columns);

#endif
