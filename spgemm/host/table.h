/* SPDX-License-Identifier: MIT
 *
 * The hash table in which a thread adds up a row of C: columns as keys, and their sums.
 *
 * STRUCTURE  A table has a power of two of slots, each with a column, or GA_SPGEMM_EMPTY, and a
 *            sum. The probe sequence is linear. `used` lists the slots that have columns, so that
 *            neither reading the row nor emptying the table goes through all slots.
 *
 * INVARIANT  A slot that has a column keeps it until the table is emptied. A slot without a column
 *            has the sum 0. At most two thirds of the slots and one have columns, so that each
 *            search ends.
 *
 * device/row_tile.cuh is the same for tiles of a GPU. Entry by entry is faster on a CPU than their
 * steps.
 */
#ifndef GPUALLOC_SPGEMM_HOST_TABLE_H
#define GPUALLOC_SPGEMM_HOST_TABLE_H

#include "../csr_tile.h"

#include <stdbool.h>
#include <stdint.h>

#define GA_SPGEMM_SLOTS_MIN 32u

typedef struct ga_spgemm_table {
    uint32_t *keys;  /* of the slots */
    uint32_t *used;  /* as many as slots */
    uint32_t *count; /* of the columns in `used` */
    uint32_t mask;   /* slots - 1 */
    uint32_t shift;  /* 32 less the logarithm of slots */
} ga_spgemm_table;

/* Number of slots of a table for that number of columns, at most two thirds of which are used. */
static inline uint64_t ga_spgemm_slots(uint64_t columns)
{
    uint64_t slots = GA_SPGEMM_SLOTS_MIN;
    while (slots / 3 * 2 < columns) {
        slots *= 2;
    }
    return slots;
}

/* The slot of the column, which is added if it is new. The hash is Knuth's multiplicative one. */
static inline uint32_t ga_spgemm_slot(ga_spgemm_table table, uint32_t column)
{
    uint32_t slot = (column * 0x9e3779b1u) >> table.shift;
    for (;; slot = (slot + 1) & table.mask) {
        uint32_t seen = table.keys[slot];
        if (seen == column) {
            return slot;
        }
        if (seen == GA_SPGEMM_EMPTY) {
            table.keys[slot] = column;
            table.used[(*table.count)++] = slot;
            return slot;
        }
    }
}

/* Copies the columns to `columns`, in the order in which they were added. */
static inline void ga_spgemm_list(ga_spgemm_table table, uint32_t *columns)
{
    for (uint32_t i = 0; i < *table.count; i++) {
        columns[i] = table.keys[table.used[i]];
    }
}

static inline void ga_spgemm_empty(ga_spgemm_table table)
{
    for (uint32_t i = 0; i < *table.count; i++) {
        table.keys[table.used[i]] = GA_SPGEMM_EMPTY;
    }
    *table.count = 0;
}

/* Sorts `n` columns, by a bitonic network, whose inner loop has no branches that are hard to
 * predict: `columns` has room for the next power of two. */
static inline void ga_spgemm_sort(uint32_t *columns, uint32_t n)
{
    uint32_t size = 1;
    while (size < n) {
        size *= 2;
    }
    for (uint32_t at = n; at < size; at++) {
        columns[at] = GA_SPGEMM_EMPTY;
    }
    for (uint32_t run = 2; run && run <= size; run *= 2) {
        for (uint32_t apart = run / 2; apart; apart /= 2) {
            for (uint32_t pair = 0; pair < size / 2; pair++) {
                uint32_t low = pair + (pair & ~(apart - 1)), high = low + apart;
                uint32_t lower = columns[low], upper = columns[high];
                bool swaps = (lower > upper) == !(low & run);
                columns[low] = swaps ? upper : lower;
                columns[high] = swaps ? lower : upper;
            }
        }
    }
}

#endif
