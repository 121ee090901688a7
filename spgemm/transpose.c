/* SPDX-License-Identifier: MIT
 *
 * Transposing a matrix: a count for each column, and then its entries in the order of the rows.
 */
#include "transpose.h"

#include "platform/libc.h"

#include <string.h>

/* The offsets come first, then the values, then the indices. */
ga_csr ga_spgemm_transpose_at(const ga_spgemm_transpose *t, void *block)
{
    ga_csr view = t->view;
    uint64_t entries = t->view.offsets[view.rows];
    uint64_t *offsets = block;
    char *values = (char *)(offsets + view.rows + 1);
    view.offsets = offsets;
    view.values = values;
    view.indices = (uint32_t *)(void *)(values + entries * ga_value_size(view.type));
    return view;
}

static void count(const ga_csr *m, uint64_t *offsets)
{
    for (uint64_t i = 0; i < m->offsets[m->rows]; i++) {
        offsets[m->indices[i] + 1ull]++;
    }
    for (uint64_t column = 0; column < m->columns; column++) {
        offsets[column + 1] += offsets[column];
    }
}

/* Moves the offset of a column on by each entry, and at last all of them back. */
static void fill(const ga_csr *m, uint64_t *offsets, uint32_t *indices, char *values)
{
    size_t size = ga_value_size(m->type);
    for (uint64_t row = 0; row < m->rows; row++) {
        for (uint64_t i = m->offsets[row]; i < m->offsets[row + 1]; i++) {
            uint64_t to = offsets[m->indices[i]]++;
            indices[to] = (uint32_t)row;
            memcpy(values + to * size, (const char *)m->values + i * size, size);
        }
    }
    memmove(offsets + 1, offsets, m->columns * sizeof *offsets);
    offsets[0] = 0;
}

ga_status ga_spgemm_transpose_make(const ga_csr *m, ga_spgemm_transpose *out)
{
    uint64_t entries = m->offsets[m->rows];
    size_t value = ga_value_size(m->type);
    uint64_t bytes = (m->columns + 1) * sizeof(uint64_t) + entries * (value + sizeof(uint32_t));
    uint64_t *offsets = ga_libc.calloc(bytes, 1);
    if (!offsets) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory of %llu bytes for the columns of B",
                       (unsigned long long)bytes);
    }
    char *values = (char *)(offsets + m->columns + 1);
    uint32_t *indices = (uint32_t *)(void *)(values + entries * value);
    count(m, offsets);
    fill(m, offsets, indices, values);
    *out = (ga_spgemm_transpose){.view = {m->columns, m->rows, offsets, indices, values, m->type},
                                 .block = offsets,
                                 .bytes = bytes};
    return GA_OK;
}

void ga_spgemm_transpose_free(ga_spgemm_transpose *transpose)
{
    ga_libc.free(transpose->block);
    *transpose = (ga_spgemm_transpose){0};
}
