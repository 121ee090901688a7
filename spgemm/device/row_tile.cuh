/* SPDX-License-Identifier: MIT
 *
 * One row of C = A B by tiles: each entry (i, k) of A's row i, times row k of B, is added to a hash
 * table with the columns of C's row as keys (Gustavson, Two Fast Algorithms for Sparse Matrices,
 * 1978).
 *
 * STRUCTURE  A table has a power of two of slots, each with a column, or GA_SPGEMM_EMPTY, and a
 *            sum. The probe sequence is linear, four slots at a time, because the lane that probes
 *            longest delays its warp, and four keys are one load. The lanes of a tile load entries
 *            of A, one each; then the tile adds one row of B after another.
 *
 * INVARIANT  A slot that has a column keeps it until the table is emptied. A slot without a column
 *            has the sum 0. A row of B has each column once, so that no two lanes of a tile add to
 *            one slot at the same time.
 *
 * ORDER      ga_tile_sync() orders the lanes of a tile between two rows of B. Several tiles may
 *            share a table: then they add by relaxed atomics, and meet before the table is read.
 *
 * PROGRESS   Nothing waits.
 *
 * All tiles of a warp call together (ga_tile_abreast()); a tile without a row has a part without
 * entries. values_tile.cuh includes this for each type of values: GA_SPGEMM_VALUE is the type, and
 * GA_SPGEMM_OF(name) the name with a suffix for it.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_ROW_TILE_CUH
#define GPUALLOC_SPGEMM_DEVICE_ROW_TILE_CUH

#include "../csr_tile.h"

#include "bitmap.cuh"

#define GA_SPGEMM_NO_SLOT 0xffffffffu
#define GA_SPGEMM_LONG    256u /* entries of a row of B, above which it is long */
#define GA_SPGEMM_LONGS   32u

/* The columns of a row of C, with the slots of their sums. */
typedef struct ga_spgemm_table {
    uint32_t *keys;  /* of the slots; aligned to 16 bytes */
    uint32_t mask;   /* slots - 1 */
    uint32_t shift;  /* 32 less the logarithm of slots */
    uint32_t probes; /* of four slots, that an addition makes at most; then the table is full */
    bool is_shared;  /* several tiles add to it */
    ga_spgemm_bitmap *bitmap; /* bitmap.cuh: instead of keys; or NULL */
} ga_spgemm_table;

/* Long rows of B, which all tiles of a block add together once each has added its others: else the
 * block would wait for the tile that has them. In shared memory. */
typedef struct ga_spgemm_longs {
    uint32_t count; /* may exceed GA_SPGEMM_LONGS: those beyond were added as others are */
    struct {
        uint64_t begin, entry; /* in B, in A */
        uint32_t length;
    } rows[GA_SPGEMM_LONGS];
} ga_spgemm_longs;

/* The entries of a row of A that a tile multiplies: each `stride`-th from `first` on. Of B's rows
 * only the columns from `low` to below `high` count. */
typedef struct ga_spgemm_part {
    uint64_t first, end;
    uint32_t stride;
    uint32_t low, high;
    bool is_whole;          /* all columns of B count */
    ga_spgemm_longs *longs; /* where long rows of B are put aside; or NULL */
} ga_spgemm_part;

/* One entry of A in each lane: the beginning and length of its row of B, and the steps that the
 * rows of the lanes before take. A step adds as many entries as the tile has lanes. */
typedef struct ga_spgemm_rows {
    ga_lanes begin_low, begin_high, length, steps_before;
    uint32_t steps; /* of all lanes */
} ga_spgemm_rows;

/* A step: entries of one row of B, in the first lanes. */
typedef struct ga_spgemm_step {
    uint64_t begin; /* of the entries */
    uint32_t left;  /* entries of the row from `begin` on */
    uint32_t entry; /* of A: the lane that has loaded it */
} ga_spgemm_step;

/* A table of a power of two of slots. */
GA_SIMT ga_spgemm_table ga_spgemm_table_of(uint32_t *keys, uint64_t slots)
{
    ga_spgemm_table table = {0};
    table.keys = keys;
    table.mask = (uint32_t)(slots - 1u);
    table.shift = ga_bits_leading(table.mask);
    table.probes = (uint32_t)(slots / 4u);
    return table;
}

/* Four keys, from a slot that is a multiple of 4. By one lane. */
typedef struct ga_spgemm_quad {
    uint32_t keys[4];
} ga_spgemm_quad;

GA_SIMT ga_spgemm_quad ga_spgemm_load_quad(const uint32_t *keys)
{
    ga_spgemm_quad quad;
#ifdef GA_SIMT_EMULATED
    for (uint32_t i = 0; i < 4u; i++) {
        quad.keys[i] = ((const volatile uint32_t *)keys)[i];
    }
#else
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quad.keys[0]), "=r"(quad.keys[1]), "=r"(quad.keys[2]), "=r"(quad.keys[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(keys)));
#endif
    return quad;
}

/* The first of the four that is the key, or 4. */
GA_SIMT uint32_t ga_spgemm_find_in(ga_spgemm_quad quad, uint32_t key)
{
    uint32_t found = quad.keys[3] == key ? 3u : 4u;
    found = quad.keys[2] == key ? 2u : found;
    found = quad.keys[1] == key ? 1u : found;
    return quad.keys[0] == key ? 0u : found;
}

/* Claim an empty slot; false if it has another column meanwhile. */
GA_SIMT bool ga_spgemm_claim(uint32_t *slot, uint32_t column)
{
    uint32_t seen = atomicCAS(slot, GA_SPGEMM_EMPTY, column);
    return seen == GA_SPGEMM_EMPTY || seen == column;
}

/* The slot of the column, which is added if it is new; or GA_SPGEMM_NO_SLOT. The hash is Knuth's
 * multiplicative one, which spreads columns that are close together. By one lane. */
GA_SIMT uint32_t ga_spgemm_slot(ga_spgemm_table table, uint32_t column)
{
    if (table.bitmap) {
        return ga_spgemm_mark_or_rank(table.bitmap, column);
    }
    uint32_t slot = (column * 0x9e3779b1u) >> table.shift & ~3u;
    for (uint32_t left = table.probes; left;) {
        ga_spgemm_quad quad = ga_spgemm_load_quad(table.keys + slot);
        uint32_t found = ga_spgemm_find_in(quad, column);
        if (found < 4u) {
            return slot + found;
        }
        found = ga_spgemm_find_in(quad, GA_SPGEMM_EMPTY);
        if (found == 4u) {
            slot = (slot + 4u) & table.mask;
            left--;
        } else if (ga_spgemm_claim(table.keys + slot + found, column)) {
            return slot + found;
        }
    }
    return GA_SPGEMM_NO_SLOT;
}

/* The part of one tile that multiplies the whole row. */
GA_SIMT ga_spgemm_part ga_spgemm_whole_row(const ga_csr *a, uint64_t row)
{
    ga_spgemm_part part = {
        a->offsets[row], a->offsets[row + 1u], 1u, 0u, GA_SPGEMM_EMPTY, true, NULL};
    return part;
}

/* Put a row of B aside if it is long. Returns what remains of its length. By one lane. */
GA_SIMT uint32_t ga_spgemm_put_aside(ga_spgemm_longs *longs, uint64_t begin, uint64_t entry,
                                     uint32_t length)
{
    if (!longs || length <= GA_SPGEMM_LONG) {
        return length;
    }
    uint32_t number = atomicAdd(&longs->count, 1u);
    if (number >= GA_SPGEMM_LONGS) {
        return length;
    }
    longs->rows[number].begin = begin;
    longs->rows[number].entry = entry;
    longs->rows[number].length = length;
    return 0;
}

/* Load the rows of B for the entries of A from `at` on. */
GA_SIMT ga_spgemm_rows ga_spgemm_load(ga_tile tile, const ga_csr *a, const ga_csr *b,
                                      ga_spgemm_part part, uint64_t at)
{
    ga_spgemm_rows rows;
    ga_lanes steps = ga_lanes_all(0);
    rows.begin_low = rows.begin_high = rows.length = steps;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t entry = at + (uint64_t)own * part.stride;
        if (entry < part.end) {
            uint32_t k = a->indices[entry];
            uint64_t begin = b->offsets[k], end = b->offsets[k + 1u];
            if (!part.is_whole) {
                begin = ga_spgemm_find(b, begin, end, part.low);
                end = ga_spgemm_find(b, begin, end, part.high);
            }
            uint32_t size = ga_tile_size(tile);
            uint32_t length =
                ga_spgemm_put_aside(part.longs, begin, entry, (uint32_t)(end - begin));
            ga_lane_write(&rows.begin_low, own, (uint32_t)begin);
            ga_lane_write(&rows.begin_high, own, (uint32_t)(begin >> 32));
            ga_lane_write(&rows.length, own, length);
            ga_lane_write(&steps, own, length / size + (length % size != 0));
        }
    }
    ga_tile_sync(tile);
    uint32_t last = ga_tile_size(tile) - 1u;
    rows.steps_before = ga_lanes_prefix_sum(tile, steps);
    rows.steps = ga_lanes_get(tile, rows.steps_before, last) + ga_lanes_get(tile, steps, last);
    return rows;
}

/* Step number `number`: that of the last row with at most so many steps before it. */
GA_SIMT ga_spgemm_step ga_spgemm_step_at(ga_tile tile, ga_spgemm_rows rows, uint32_t number)
{
    ga_lanes begun = ga_lanes_all(0);
    ga_spgemm_step step;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&begun, own, ga_lane_read(rows.steps_before, own) <= number);
    }
    step.entry = ga_bits_count(ga_lanes_nonzero(tile, begun)) - 1u;
    uint32_t done = number - ga_lanes_get(tile, rows.steps_before, step.entry);
    done *= ga_tile_size(tile);
    step.begin = ((uint64_t)ga_lanes_get(tile, rows.begin_high, step.entry) << 32 |
                  ga_lanes_get(tile, rows.begin_low, step.entry)) +
                 done;
    uint32_t length = ga_lanes_get(tile, rows.length, step.entry); /* in all tiles of the warp */
    step.left = number < rows.steps ? length - done : 0;
    return step;
}

/* Empty the table. */
GA_SIMT void ga_spgemm_empty(ga_tile tile, ga_spgemm_table table)
{
    for (uint32_t at = 0; at <= table.mask; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            table.keys[at + own] = GA_SPGEMM_EMPTY;
        }
    }
    ga_tile_sync(tile);
}

/* Number of columns in the table. */
GA_SIMT uint32_t ga_spgemm_count_columns(ga_tile tile, ga_spgemm_table table)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at <= table.mask; at += ga_tile_size(tile)) {
        ga_lanes taken = ga_lanes_all(0);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            ga_lane_write(&taken, own, table.keys[at + own] != GA_SPGEMM_EMPTY);
        }
        count += ga_bits_count(ga_lanes_nonzero(tile, taken));
    }
    ga_tile_sync(tile);
    return count;
}

#endif

#ifdef GA_SPGEMM_VALUE

/* The entry of a step that each lane has loaded, and the value of the entry of A. */
typedef struct GA_SPGEMM_OF(ga_spgemm_loaded) {
    GA_SPGEMM_VALUE factor;
    uint32_t column;
    GA_SPGEMM_VALUE value;
} GA_SPGEMM_OF(ga_spgemm_loaded);

/* The value of a lane's entry of A, for ga_spgemm_load_step(). */
GA_SIMT GA_SPGEMM_VALUE GA_SPGEMM_OF(ga_spgemm_own_factor)(ga_tile tile, const ga_csr *a,
                                                           ga_spgemm_part part, uint64_t at)
{
    uint64_t entry = at + (uint64_t)tile.lane * part.stride;
    return entry < part.end ? ((const GA_SPGEMM_VALUE *)a->values)[entry] : 0;
}

GA_SIMT GA_SPGEMM_OF(ga_spgemm_loaded)
    GA_SPGEMM_OF(ga_spgemm_load_step)(ga_tile tile, const ga_csr *b, ga_spgemm_step step,
                                      bool with_values, GA_SPGEMM_VALUE factor)
{
    GA_SPGEMM_OF(ga_spgemm_loaded) loaded;
    loaded.factor =
        with_values ? __shfl_sync(tile.mask, factor, (int)step.entry, (int)tile.width) : 0;
    loaded.column = 0;
    loaded.value = 0;
    if (tile.lane < step.left) {
        uint64_t entry = step.begin + tile.lane;
        loaded.column = b->indices[entry];
        loaded.value = with_values ? ((const GA_SPGEMM_VALUE *)b->values)[entry] : 0;
    }
    return loaded;
}

/* Add to the sum of a slot. By one lane. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_add)(ga_spgemm_table table, GA_SPGEMM_VALUE *sum,
                                         GA_SPGEMM_VALUE more)
{
    if (table.is_shared) {
        atomicAdd(sum, more);
        return;
    }
    *sum += more;
}

/* Add the entries of a step. Returns the lanes for which the table is full. */
GA_SIMT ga_lanes GA_SPGEMM_OF(ga_spgemm_add_step)(ga_tile tile, ga_spgemm_step step,
                                                  GA_SPGEMM_OF(ga_spgemm_loaded) loaded,
                                                  ga_spgemm_table table, GA_SPGEMM_VALUE *sums)
{
    ga_lanes full = ga_lanes_all(0);
    if (tile.lane < step.left) {
        uint32_t own = tile.lane, column = loaded.column;
        GA_SPGEMM_VALUE value = loaded.value;
        uint32_t slot = ga_spgemm_slot(table, column);
        if (slot == GA_SPGEMM_NO_SLOT) {
            ga_lane_write(&full, own, 1);
        } else if (sums) {
            GA_SPGEMM_OF(ga_spgemm_add)(table, sums + slot, loaded.factor * value);
        }
    }
    ga_tile_sync(tile);
    return full;
}

/* Add the part of a row. `sums` has one element for each slot; without it only columns are added.
 * Returns false if the table is full; then it has some of the columns. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_part)(ga_tile tile, const ga_csr *a, const ga_csr *b,
                                              ga_spgemm_part part, ga_spgemm_table table,
                                              GA_SPGEMM_VALUE *sums)
{
    uint64_t all = (uint64_t)ga_tile_size(tile) * part.stride;
    uint32_t is_full = 0;
    for (uint64_t at = part.first; ga_tiles_any(tile, at < part.end); at += all) {
        ga_spgemm_rows rows = ga_spgemm_load(tile, a, b, part, at);
        GA_SPGEMM_VALUE own = sums ? GA_SPGEMM_OF(ga_spgemm_own_factor)(tile, a, part, at) : 0;
        for (uint32_t i = 0; ga_tiles_any(tile, i < rows.steps); i += GA_SPGEMM_AHEAD) {
            ga_spgemm_step steps[GA_SPGEMM_AHEAD];
            GA_SPGEMM_OF(ga_spgemm_loaded) loaded[GA_SPGEMM_AHEAD];
#pragma unroll
            for (uint32_t j = 0; j < GA_SPGEMM_AHEAD; j++) {
                steps[j] = ga_spgemm_step_at(tile, rows, i + j);
                loaded[j] = GA_SPGEMM_OF(ga_spgemm_load_step)(tile, b, steps[j], sums, own);
            }
            ga_lanes full = ga_lanes_all(0);
#pragma unroll
            for (uint32_t j = 0; j < GA_SPGEMM_AHEAD; j++) {
                full |= GA_SPGEMM_OF(ga_spgemm_add_step)(tile, steps[j], loaded[j], table, sums);
            }
            is_full |= ga_lanes_nonzero(tile, full);
        }
        if (is_full) {
            part.end = at; /* other tiles of the warp go on */
        }
    }
    return !is_full;
}

/* Add the rows of B that were put aside: tile number `number` of `tiles`. False if the table is
 * full. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_longs)(ga_tile tile, uint32_t number, uint32_t tiles,
                                               const ga_csr *a, const ga_csr *b,
                                               const ga_spgemm_longs *longs, ga_spgemm_table table,
                                               GA_SPGEMM_VALUE *sums)
{
    uint32_t count = longs->count < GA_SPGEMM_LONGS ? longs->count : GA_SPGEMM_LONGS;
    uint32_t each = GA_SPGEMM_AHEAD * ga_tile_size(tile);
    ga_lanes full = ga_lanes_all(0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = longs->rows[i].begin;
        uint32_t length = longs->rows[i].length;
        GA_SPGEMM_VALUE factor =
            sums ? ((const GA_SPGEMM_VALUE *)a->values)[longs->rows[i].entry] : 0;
        for (uint32_t at = number * each; ga_tiles_any(tile, at < length); at += tiles * each) {
            ga_spgemm_step steps[GA_SPGEMM_AHEAD];
            GA_SPGEMM_OF(ga_spgemm_loaded) loaded[GA_SPGEMM_AHEAD];
#pragma unroll
            for (uint32_t j = 0; j < GA_SPGEMM_AHEAD; j++) {
                uint32_t from = at + j * ga_tile_size(tile);
                steps[j] = ga_spgemm_step{begin + from, from < length ? length - from : 0, 0};
                loaded[j] = GA_SPGEMM_OF(ga_spgemm_load_step)(tile, b, steps[j], sums, factor);
            }
#pragma unroll
            for (uint32_t j = 0; j < GA_SPGEMM_AHEAD; j++) {
                full |= GA_SPGEMM_OF(ga_spgemm_add_step)(tile, steps[j], loaded[j], table, sums);
            }
        }
    }
    return !ga_lanes_nonzero(tile, full);
}

/* Set the sums of all slots to 0. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_clear_sums)(ga_tile tile, ga_spgemm_table table,
                                                GA_SPGEMM_VALUE *sums)
{
    for (uint32_t at = 0; at <= table.mask; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            sums[at + own] = 0;
        }
    }
    ga_tile_sync(tile);
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
#endif
