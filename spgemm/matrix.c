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

ga_status ga_csr_check_form(const ga_csr *m)
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

ga_status ga_csr_check_offsets(uint64_t row, uint64_t begin, uint64_t end)
{
    if (row == 0 && begin) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: row 0: it begins at %llu: expected 0",
                       (unsigned long long)begin);
    }
    return begin <= end
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "matrix: row %llu: it ends at %llu: expected at least %llu, its begin",
                         (unsigned long long)row, (unsigned long long)end,
                         (unsigned long long)begin);
}

ga_status ga_csr_check_arrays(const ga_csr *m, uint64_t entries)
{
    return entries && (!m->indices || !m->values)
               ? ga_fail(GA_ERR_ARGUMENT, "matrix: no %s of its %llu entries: expected a pointer",
                         m->indices ? "values" : "columns", (unsigned long long)entries)
               : GA_OK;
}

static ga_status check_offsets(const ga_csr *m)
{
    ga_status status = m->rows ? GA_OK : ga_csr_check_offsets(0, m->offsets[0], m->offsets[0]);
    for (uint64_t row = 0; status == GA_OK && row < m->rows; row++) {
        status = ga_csr_check_offsets(row, m->offsets[row], m->offsets[row + 1]);
    }
    return status ? status : ga_csr_check_arrays(m, m->offsets[m->rows]);
}

ga_status ga_csr_check_row(uint64_t row, const uint32_t *indices, uint64_t count, uint64_t columns)
{
    uint64_t least = 0; /* the smallest column that may follow */
    for (uint64_t i = 0; i < count; i++) {
        if (indices[i] >= columns) {
            return ga_fail(GA_ERR_ARGUMENT, "matrix: row %llu: column %u: expected less than %llu",
                           (unsigned long long)row, indices[i], (unsigned long long)columns);
        }
        if (indices[i] < least) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "matrix: row %llu: column %u after column %u: expected ascending "
                           "columns, each once",
                           (unsigned long long)row, indices[i], (unsigned)(least - 1));
        }
        least = (uint64_t)indices[i] + 1;
    }
    return GA_OK;
}

ga_status ga_csr_check(const ga_csr *matrix)
{
    ga_status status = ga_csr_check_form(matrix);
    status = status ? status : check_offsets(matrix);
    for (uint64_t row = 0; status == GA_OK && row < matrix->rows; row++) {
        uint64_t begin = matrix->offsets[row];
        status = ga_csr_check_row(row, matrix->indices + begin, matrix->offsets[row + 1] - begin,
                                  matrix->columns);
    }
    return status;
}
