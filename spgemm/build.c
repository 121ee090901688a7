/* SPDX-License-Identifier: MIT
 *
 * Compressed sparse rows from entries in any order.
 *
 *     ga_matrix_build    scatter_entries -> sort_rows -> merge_entries -> round_values
 *
 * A counting sort by row keeps the order of the file. Files that are sorted by column, as most are,
 * then have sorted rows; a stable merge sort serves the other rows. No table is as long as the
 * columns, because a small file may have 2^32 of them.
 */
#include "matrix.h"

#include <string.h>

typedef struct cell {
    uint32_t column;
    double value;
} cell;

/* ---- counting sort by row ------------------------------------------------------------------- */

static bool is_mirrored(const ga_entries *entries, const ga_entry *e)
{
    return entries->symmetry != GA_GENERAL && e->row != e->column;
}

static uint64_t count_rows(ga_matrix *m, const ga_entries *entries)
{
    uint64_t total = entries->count;
    for (uint64_t i = 0; i < entries->count; i++) {
        const ga_entry *e = &entries->at[i];
        m->offsets[e->row + UINT64_C(1)]++;
        if (is_mirrored(entries, e)) {
            m->offsets[e->column + UINT64_C(1)]++;
            total++;
        }
    }
    for (uint64_t row = 0; row < m->rows; row++) {
        m->offsets[row + 1] += m->offsets[row];
    }
    return total;
}

static void put_entry(ga_matrix *m, uint32_t row, uint32_t column, double value)
{
    uint64_t at = m->offsets[row]++;
    m->indices[at] = column;
    ((double *)m->values)[at] = value;
}

/* Leaves each row's offset where the row begins: put_entry() moves it to the end of the row, which
 * is the begin of the next one. */
static void put_entries(ga_matrix *m, const ga_entries *entries)
{
    double sign = entries->symmetry == GA_SKEW_SYMMETRIC ? -1 : 1;
    for (uint64_t i = 0; i < entries->count; i++) {
        const ga_entry *e = &entries->at[i];
        put_entry(m, e->row, e->column, e->value);
        if (is_mirrored(entries, e)) {
            put_entry(m, e->column, e->row, sign * e->value);
        }
    }
    memmove(m->offsets + 1, m->offsets, m->rows * sizeof *m->offsets);
    m->offsets[0] = 0;
}

static ga_status scatter_entries(ga_matrix *m, const ga_entries *entries)
{
    ga_status status = ga_matrix_alloc(m->heap, m->rows + 1, sizeof *m->offsets, &m->offsets);
    if (status != GA_OK) {
        return status;
    }
    memset(m->offsets, 0, (m->rows + 1) * sizeof *m->offsets);
    uint64_t total = count_rows(m, entries);
    status = ga_matrix_alloc(m->heap, total, sizeof *m->indices, &m->indices);
    status = status ? status : ga_matrix_alloc(m->heap, total, sizeof(double), &m->values);
    if (status == GA_OK) {
        put_entries(m, entries);
    }
    return status;
}

/* ---- rows in disorder ----------------------------------------------------------------------- */

static bool is_sorted(const ga_matrix *m, uint64_t row)
{
    for (uint64_t i = m->offsets[row] + 1; i < m->offsets[row + 1]; i++) {
        if (m->indices[i] < m->indices[i - 1]) {
            return false;
        }
    }
    return true;
}

/* The length of the longest row that is not sorted; 0 if all are. */
static uint64_t longest_unsorted(const ga_matrix *m)
{
    uint64_t longest = 0;
    for (uint64_t row = 0; row < m->rows; row++) {
        uint64_t length = m->offsets[row + 1] - m->offsets[row];
        if (length > longest && !is_sorted(m, row)) {
            longest = length;
        }
    }
    return longest;
}

/* Merges two adjacent sorted parts, [0, middle) and [middle, end) of `from`; cells of equal columns
 * keep their order. */
static void merge_parts(const cell *from, cell *to, uint64_t middle, uint64_t end)
{
    uint64_t left = 0;
    uint64_t right = middle;
    for (uint64_t i = 0; i < end; i++) {
        bool from_left = left < middle && (right == end || from[left].column <= from[right].column);
        to[i] = from_left ? from[left++] : from[right++];
    }
}

/* Merges parts of twice the length each time; returns the array with the result, one of the two. */
static cell *sort_cells(cell *cells, cell *other, uint64_t count)
{
    for (uint64_t length = 1; length < count; length *= 2) {
        for (uint64_t begin = 0; begin < count; begin += 2 * length) {
            uint64_t left = count - begin;
            uint64_t middle = left < length ? left : length;
            merge_parts(cells + begin, other + begin, middle,
                        left < 2 * length ? left : 2 * length);
        }
        cell *swap = cells;
        cells = other;
        other = swap;
    }
    return cells;
}

/* `room` has twice as many cells as the row. */
static void sort_row(ga_matrix *m, uint64_t row, cell *room)
{
    uint64_t begin = m->offsets[row];
    uint64_t count = m->offsets[row + 1] - begin;
    double *values = (double *)m->values + begin;
    for (uint64_t i = 0; i < count; i++) {
        room[i] = (cell){m->indices[begin + i], values[i]};
    }
    const cell *sorted = sort_cells(room, room + count, count);
    for (uint64_t i = 0; i < count; i++) {
        m->indices[begin + i] = sorted[i].column;
        values[i] = sorted[i].value;
    }
}

static ga_status sort_rows(ga_matrix *m)
{
    uint64_t longest = longest_unsorted(m);
    cell *room;
    if (!longest) {
        return GA_OK;
    }
    ga_status status = ga_matrix_alloc(m->heap, 2 * longest, sizeof *room, &room);
    for (uint64_t row = 0; status == GA_OK && row < m->rows; row++) {
        if (!is_sorted(m, row)) {
            sort_row(m, row, room);
        }
    }
    ga_free(m->heap, room);
    return status;
}

/* ---- duplicates, zeros, the type ------------------------------------------------------------ */

/* Moves the entries of a row to `to`, which is not behind them; adds up duplicates, and drops zeros
 * if `drop` is set. Returns the end of the moved row. */
static uint64_t merge_row(ga_matrix *m, uint64_t begin, uint64_t end, uint64_t to, bool drop)
{
    double *values = m->values;
    while (begin < end) {
        uint32_t column = m->indices[begin];
        double sum = values[begin++];
        while (begin < end && m->indices[begin] == column) {
            sum += values[begin++];
        }
        if (!drop || sum != 0) {
            m->indices[to] = column;
            values[to++] = sum;
        }
    }
    return to;
}

static void merge_entries(ga_matrix *m, bool drop)
{
    uint64_t to = 0;
    uint64_t begin = 0;
    for (uint64_t row = 0; row < m->rows; row++) {
        uint64_t end = m->offsets[row + 1];
        to = merge_row(m, begin, end, to, drop);
        m->offsets[row + 1] = to;
        begin = end;
    }
}

/* In place, front to back: a float never overwrites a double that is still to be read. */
static void round_values(ga_matrix *m)
{
    unsigned char *bytes = m->values;
    uint64_t count = m->type == GA_FLOAT32 ? m->offsets[m->rows] : 0;
    for (uint64_t i = 0; i < count; i++) {
        double wide;
        memcpy(&wide, bytes + i * sizeof wide, sizeof wide);
        float narrow = (float)wide;
        memcpy(bytes + i * sizeof narrow, &narrow, sizeof narrow);
    }
}

/* Gives back the ends of the arrays. A heap that cannot shrink a block leaves it as it is. */
static void shrink_arrays(ga_matrix *m)
{
    uint64_t count = m->offsets[m->rows];
    void *indices = m->indices;
    ga_realloc(m->heap, indices, count * sizeof *m->indices, 0, &indices);
    ga_realloc(m->heap, m->values, count * ga_value_size(m->type), 0, &m->values);
    m->indices = indices;
}

ga_status ga_matrix_build(ga_matrix *matrix, ga_entries *entries, uint32_t flags)
{
    ga_status status = scatter_entries(matrix, entries);
    uint64_t scattered = status ? 0 : matrix->offsets[matrix->rows];
    ga_free(matrix->heap, entries->at);
    entries->at = NULL;
    status = status ? status : sort_rows(matrix);
    if (status == GA_OK) {
        merge_entries(matrix, flags & GA_MATRIX_DROP_ZEROS);
        round_values(matrix);
    }
    if (status == GA_OK &&
        (matrix->type == GA_FLOAT32 || matrix->offsets[matrix->rows] < scattered)) {
        shrink_arrays(matrix);
    }
    return status;
}
