/* SPDX-License-Identifier: MIT
 *
 * Matrices that own their arrays: creation, view, free; and the check of a view.
 */
#include "matrix.h"

size_t ga_value_size(ga_value_type type)
{
    return type == GA_FLOAT64 ? sizeof(double) : type == GA_FLOAT32 ? sizeof(float) : 0;
}

const char *ga_value_type_text(ga_value_type type)
{
    return type == GA_FLOAT64 ? "float64" : type == GA_FLOAT32 ? "float32" : "?";
}

/* ---- matrices ------------------------------------------------------------------------------- */

ga_status ga_matrix_alloc(ga_heap *heap, uint64_t count, size_t size, void *out)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        return ga_fail(GA_ERR_MEMORY, "matrix: %llu elements of %zu bytes: more than memory has",
                       (unsigned long long)count, size);
    }
    void *block;
    ga_status status = ga_alloc(heap, bytes, 0, &block);
    *(void **)out = block;
    return status;
}

static ga_status new_in_own_heap(ga_matrix **out)
{
    ga_heap *heap;
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, "system");
    if (status != GA_OK) {
        return status;
    }
    status = ga_matrix_new(out, heap);
    if (status == GA_OK) {
        (*out)->own_heap = true;
    } else {
        ga_heap_close(heap);
    }
    return status;
}

ga_status ga_matrix_new(ga_matrix **out, ga_heap *heap)
{
    if (!heap) {
        return new_in_own_heap(out);
    }
    ga_status status = ga_matrix_alloc(heap, 1, sizeof **out, out);
    if (status == GA_OK) {
        **out = (ga_matrix){.heap = heap};
    }
    return status;
}

ga_csr ga_matrix_view(const ga_matrix *matrix)
{
    return matrix ? (ga_csr){.rows = matrix->rows,
                             .columns = matrix->columns,
                             .offsets = matrix->offsets,
                             .indices = matrix->indices,
                             .values = matrix->values,
                             .type = matrix->type}
                  : (ga_csr){0};
}

void ga_matrix_free(ga_matrix *matrix)
{
    if (!matrix) {
        return;
    }
    ga_heap *own_heap = matrix->own_heap ? matrix->heap : NULL;
    ga_heap *heap = matrix->heap;
    ga_free(heap, matrix->offsets);
    ga_free(heap, matrix->indices);
    ga_free(heap, matrix->values);
    ga_free(heap, matrix);
    if (own_heap) {
        ga_heap_close(own_heap);
    }
}

/* ---- check ---------------------------------------------------------------------------------- */

static ga_status check_form(const ga_csr *m)
{
    if (!m || !m->offsets) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: no %s: expected a pointer",
                       m ? "offsets" : "matrix");
    }
    if (!ga_value_size(m->type)) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: type=%u: expected GA_FLOAT64 or GA_FLOAT32",
                       (unsigned)m->type);
    }
    if (m->columns > UINT32_MAX) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: columns=%llu: expected at most %u",
                       (unsigned long long)m->columns, UINT32_MAX);
    }
    return GA_OK;
}

static ga_status check_offsets(const ga_csr *m)
{
    if (m->offsets[0]) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: row 0: it begins at %llu: expected 0",
                       (unsigned long long)m->offsets[0]);
    }
    for (uint64_t row = 0; row < m->rows; row++) {
        if (m->offsets[row + 1] < m->offsets[row]) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "matrix: row %llu: it ends at %llu: expected at least %llu, its begin",
                           (unsigned long long)row, (unsigned long long)m->offsets[row + 1],
                           (unsigned long long)m->offsets[row]);
        }
    }
    if (m->offsets[m->rows] && (!m->indices || !m->values)) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: no %s of its %llu entries: expected a pointer",
                       m->indices ? "values" : "columns", (unsigned long long)m->offsets[m->rows]);
    }
    return GA_OK;
}

static ga_status check_row(const ga_csr *m, uint64_t row)
{
    uint64_t least = 0; /* the smallest column that may follow */
    for (uint64_t i = m->offsets[row]; i < m->offsets[row + 1]; i++) {
        uint32_t column = m->indices[i];
        if (column >= m->columns) {
            return ga_fail(GA_ERR_ARGUMENT, "matrix: row %llu: column %u: expected less than %llu",
                           (unsigned long long)row, column, (unsigned long long)m->columns);
        }
        if (column < least) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "matrix: row %llu: column %u after column %u: expected ascending "
                           "columns, each once",
                           (unsigned long long)row, column, (unsigned)(least - 1));
        }
        least = (uint64_t)column + 1;
    }
    return GA_OK;
}

ga_status ga_csr_check(const ga_csr *matrix)
{
    ga_status status = check_form(matrix);
    status = status ? status : check_offsets(matrix);
    for (uint64_t row = 0; status == GA_OK && row < matrix->rows; row++) {
        status = check_row(matrix, row);
    }
    return status;
}
