/* SPDX-License-Identifier: MIT
 *
 * One row of C = A B by a tile: each entry (i, k) of A's row i, times row k of B, is added to a
 * hash table with the columns of C's row as keys (Gustavson, Two Fast Algorithms for Sparse
 * Matrices, 1978).
 *
 * STRUCTURE  A table has a power of two of slots, each with a column, or GA_SPGEMM_EMPTY, and a
 *            sum. The probe sequence is linear. `used` lists the slots that have columns, so that
 *            neither reading the row nor emptying the table goes through all slots.
 *
 * INVARIANT  A slot that has a column keeps it until the table is emptied. A slot without a column
 *            has the sum 0. The tile stops before the table is full: at most one round of its lanes
 *            comes after `most` columns.
 *
 * ORDER      A table belongs to one tile. On the GPU its lanes add to it at the same time, by
 *            relaxed atomics, and ga_tile_sync() orders them before what follows.
 *
 * PROGRESS   Nothing waits.
 *
 * Only host threads use it yet. values_tile.h includes it for each type of values: GA_SPGEMM_VALUE
 * is the type, and GA_SPGEMM_OF(name) the name with a suffix for it.
 */
#ifndef GPUALLOC_SPGEMM_ROW_TILE_H
#define GPUALLOC_SPGEMM_ROW_TILE_H

#include "simt/simt.h"

#include <gpualloc/matrix.h>

#define GA_SPGEMM_EMPTY     0xffffffffu /* no column: matrices have at most 2^32 - 1 */
#define GA_SPGEMM_SLOTS_MIN 128u        /* a third of them is room for a round of lanes */

/* The columns of a row of C. */
typedef struct ga_spgemm_columns {
    uint32_t *keys;  /* of the slots */
    uint32_t *used;  /* as many as slots */
    uint32_t *count; /* of the columns in `used` */
    uint32_t mask;   /* slots - 1 */
    uint32_t most;   /* columns; with more the table counts as full */
} ga_spgemm_columns;

/* Number of slots of a table for that number of columns, at most two thirds of which are used. */
GA_SIMT uint64_t ga_spgemm_slots(uint64_t columns)
{
    uint64_t slots = GA_SPGEMM_SLOTS_MIN;
    while (slots / 3u * 2u < columns) {
        slots *= 2u;
    }
    return slots;
}

/* The slot of the column, which is added if it is new. By one lane. */
GA_SIMT uint32_t ga_spgemm_slot(ga_spgemm_columns table, uint32_t column)
{
    uint32_t slot = column * 0x9e3779b1u;
    slot = (slot ^ slot >> 15) & table.mask;
    for (;; slot = (slot + 1u) & table.mask) {
#ifdef __CUDACC__
        uint32_t seen = atomicCAS(table.keys + slot, GA_SPGEMM_EMPTY, column);
#else
        uint32_t seen = table.keys[slot];
#endif
        if (seen == column) {
            return slot;
        }
        if (seen == GA_SPGEMM_EMPTY) {
#ifdef __CUDACC__
            table.used[atomicAdd(table.count, 1u)] = slot;
#else
            table.keys[slot] = column;
            table.used[(*table.count)++] = slot;
#endif
            return slot;
        }
    }
}

/* The lanes that have an element of the `left` ones. */
GA_SIMT uint32_t ga_spgemm_lanes(ga_tile tile, uint64_t left)
{
    return left < ga_tile_size(tile) ? ga_bits_below((uint32_t)left) : ga_tile_lanes(tile);
}

/* True if the table is full. All lanes get one answer, because none adds a column meanwhile. */
GA_SIMT bool ga_spgemm_is_full(ga_tile tile, ga_spgemm_columns table)
{
    ga_tile_sync(tile);
    uint32_t count = *table.count;
    ga_tile_sync(tile);
    return count > table.most;
}

/* Add the columns of C's row `row`. Returns false if the table is full. */
GA_SIMT bool ga_spgemm_add_columns(ga_tile tile, const ga_csr *a, const ga_csr *b, uint64_t row,
                                   ga_spgemm_columns table)
{
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1u]; entry++) {
        uint32_t k = a->indices[entry];
        uint64_t end = b->offsets[k + 1u];
        for (uint64_t at = b->offsets[k]; at < end; at += ga_tile_size(tile)) {
            GA_EACH_LANE(tile, ga_spgemm_lanes(tile, end - at), own)
            {
                ga_spgemm_slot(table, b->indices[at + own]);
            }
            if (ga_spgemm_is_full(tile, table)) {
                return false;
            }
        }
    }
    return true;
}

/* Empty the table. */
GA_SIMT void ga_spgemm_empty(ga_tile tile, ga_spgemm_columns table)
{
    uint32_t count = *table.count;
    for (uint32_t at = 0; at < count; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_spgemm_lanes(tile, count - at), own)
        {
            table.keys[table.used[at + own]] = GA_SPGEMM_EMPTY;
        }
    }
    ga_tile_sync(tile);
    *table.count = 0; /* all lanes store one value */
    ga_tile_sync(tile);
}

/* Copy the columns to `columns`, in the order in which they were added. */
GA_SIMT void ga_spgemm_list(ga_tile tile, ga_spgemm_columns table, uint32_t *columns)
{
    uint32_t count = *table.count;
    for (uint32_t at = 0; at < count; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_spgemm_lanes(tile, count - at), own)
        {
            columns[at + own] = table.keys[table.used[at + own]];
        }
    }
    ga_tile_sync(tile);
}

/* Sort `n` columns, by a bitonic network: `columns` has room for the next power of two. */
GA_SIMT void ga_spgemm_sort(ga_tile tile, uint32_t *columns, uint32_t n)
{
    uint32_t size = 1;
    while (size < n) {
        size *= 2u;
    }
    for (uint32_t at = n; at < size; at++) { /* all lanes store one value */
        columns[at] = GA_SPGEMM_EMPTY;
    }
    ga_tile_sync(tile);
    for (uint32_t run = 2; run && run <= size; run *= 2u) {
        for (uint32_t apart = run / 2u; apart; apart /= 2u) {
            for (uint32_t at = 0; at < size; at += ga_tile_size(tile)) {
                GA_EACH_LANE(tile, ga_spgemm_lanes(tile, size - at), own)
                {
                    uint32_t low = at + own, high = low ^ apart;
                    if (high > low && (columns[low] > columns[high]) == !(low & run)) {
                        uint32_t column = columns[low];
                        columns[low] = columns[high];
                        columns[high] = column;
                    }
                }
            }
            ga_tile_sync(tile);
        }
    }
}

#endif

#ifdef GA_SPGEMM_VALUE

/* Add C's row `row`. Returns false if the table is full; then it has a part of the row. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_row)(ga_tile tile, const ga_csr *a, const ga_csr *b,
                                             uint64_t row, ga_spgemm_columns table,
                                             GA_SPGEMM_VALUE *sums)
{
    const GA_SPGEMM_VALUE *a_values = (const GA_SPGEMM_VALUE *)a->values;
    const GA_SPGEMM_VALUE *b_values = (const GA_SPGEMM_VALUE *)b->values;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1u]; entry++) {
        uint32_t k = a->indices[entry];
        GA_SPGEMM_VALUE factor = a_values[entry];
        uint64_t end = b->offsets[k + 1u];
        for (uint64_t at = b->offsets[k]; at < end; at += ga_tile_size(tile)) {
            GA_EACH_LANE(tile, ga_spgemm_lanes(tile, end - at), own)
            {
                uint32_t slot = ga_spgemm_slot(table, b->indices[at + own]);
#ifdef __CUDACC__
                atomicAdd(sums + slot, factor * b_values[at + own]);
#else
                sums[slot] += factor * b_values[at + own];
#endif
            }
            if (ga_spgemm_is_full(tile, table)) {
                return false;
            }
        }
    }
    return true;
}

/* Copy the sums of `n` columns that are in the table. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_copy_sums)(ga_tile tile, ga_spgemm_columns table,
                                               const GA_SPGEMM_VALUE *sums, const uint32_t *columns,
                                               uint32_t n, GA_SPGEMM_VALUE *values)
{
    for (uint32_t at = 0; at < n; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_spgemm_lanes(tile, n - at), own)
        {
            values[at + own] = sums[ga_spgemm_slot(table, columns[at + own])];
        }
    }
    ga_tile_sync(tile);
}

/* Set the sums of all columns to 0; then the table may be emptied. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_clear_sums)(ga_tile tile, ga_spgemm_columns table,
                                                GA_SPGEMM_VALUE *sums)
{
    uint32_t count = *table.count;
    for (uint32_t at = 0; at < count; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_spgemm_lanes(tile, count - at), own)
        {
            sums[table.used[at + own]] = 0;
        }
    }
    ga_tile_sync(tile);
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
#endif
