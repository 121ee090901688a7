/* SPDX-License-Identifier: MIT
 *
 * The slab hash (slab-hash-2018, §III-C) over tiles and rows: the hash that chooses a key's home
 * bucket, the dispatch of one operation (ga_slabhash_do), and the work on whole buckets, one tile a
 * bucket: count, copy, flush, clear.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_HASH_TILE_H
#define GPUALLOC_SLABHASH_TABLE_HASH_TILE_H

#include "hash.h"
#include "list_tile.h"

/* Lanes of a tile in kernels: 8 lanes load 16 bytes each. */
#define GA_SLABHASH_TILE 8u

/* ---- the hash ------------------------------------------------------------------------------- */

/* The hash of a table with a seed of its own. */
GA_SIMT uint64_t ga_slabhash_seeded(ga_slabhash_view table, uint64_t key)
{
    return ga_slabhash_hash_of(table.a, table.b, key);
}

/* ---- one request ---------------------------------------------------------------------------- */

/* True if tables of the kind support the operation. */
GA_SIMT bool ga_slabhash_supports(uint32_t kind, uint32_t op)
{
    return op < GA_SLABHASH_OP_COUNT &&
           !(GA_SLABHASH_IS_MULTI(kind) &&
             (op == GA_SLABHASH_REPLACE || op == GA_SLABHASH_APPLY)) &&
           !(GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32 && op == GA_SLABHASH_APPLY);
}

/* One operation of any kind by the whole tile, fully checked. */
GA_SIMT ga_slabhash_answer ga_slabhash_do(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                          ga_slab_claimed *claimed, uint64_t hash,
                                          ga_slabhash_operation operation)
{
    if (!ga_slabhash_supports(kind, operation.op) ||
        !ga_slabhash_allowed(kind, operation.op, operation.key, operation.value)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    ga_slabhash_walk walk = ga_slabhash_walk_path(table, hash);
    switch (operation.op) {
    case GA_SLABHASH_SEARCH:
        return ga_slabhash_find(kind, table, tile, walk, operation.key);
    case GA_SLABHASH_DELETE:
        return ga_slabhash_remove(kind, table, tile, walk, operation.key);
    default:
        return ga_slabhash_put(kind, table, tile, walk, claimed, operation);
    }
}

/* ---- a bucket ------------------------------------------------------------------------------- */

/* Counts of a bucket's slab and its chain. */
typedef struct ga_slabhash_census {
    uint64_t live, deleted, chained, overflowed;
} ga_slabhash_census;

GA_SIMT void ga_slabhash_count_bucket(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                      uint32_t bucket, ga_slabhash_census *census)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(table, bucket);
    uint32_t slabs = 0;
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t vacant = ga_slabhash_vacant_slots(kind, tile, row);
        uint32_t live = ga_slabhash_live_slots(kind, tile, row);
        census->live += ga_bits_count(live);
        census->deleted += ga_bits_count(ga_slabhash_slot_mask(kind) & ~vacant & ~live);
        if (!slabs++ && !GA_SLABHASH_IS_GROWING(kind)) { /* in tables that grow it says OPEN */
            census->overflowed +=
                ga_row_get(tile, row, GA_SLABHASH_END_BITS) != 0xffffffffu ? 1 : 0;
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    census->chained += slabs - 1u;
}

/* The tile's leader reserves `n` elements of an output array; `cursor` is the number reserved so
 * far. */
GA_SIMT uint64_t ga_slabhash_claim_output(ga_tile tile, uint64_t *cursor, uint32_t n)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes low = ga_lanes_all(0);
    ga_lanes high = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint64_t first = ga_add64_relaxed(cursor, n); /* relaxed: only reserves indices */
        ga_lane_write(&low, own, (uint32_t)first);
        ga_lane_write(&high, own, (uint32_t)(first >> 32));
    }
    return ga_lanes_get(tile, low, leader) | (uint64_t)ga_lanes_get(tile, high, leader) << 32;
}

GA_SIMT void ga_slabhash_store_element(uint32_t kind, void *array, uint64_t index, uint64_t element)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        ((uint64_t *)array)[index] = element;
    } else {
        ((uint32_t *)array)[index] = (uint32_t)element;
    }
}

/* Writes the bucket's pairs to the arrays, each of which may be NULL and has `room` elements;
 * `cursor` counts all pairs. */
GA_SIMT void ga_slabhash_copy_bucket(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                     uint32_t bucket, void *keys, void *values, uint64_t room,
                                     uint64_t *cursor)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(table, bucket);
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t live = ga_slabhash_live_slots(kind, tile, row);
        uint64_t at = live ? ga_slabhash_claim_output(tile, cursor, ga_bits_count(live)) : 0;
        for (; live; live &= live - 1u, at++) {
            uint64_t key = ga_slabhash_key_at(kind, tile, row, ga_bits_lowest(live));
            uint64_t value = ga_slabhash_value_at(kind, tile, row, ga_bits_lowest(live));
            ga_slabhash_acquire_slot(kind, walk.row + ga_bits_lowest(live));
            GA_EACH_LANE(tile, at < room ? 1u << ga_tile_leader(tile) : 0, own)
            {
                (void)own;
                if (keys) {
                    ga_slabhash_store_element(kind, keys, at, key);
                }
                if (values) {
                    ga_slabhash_store_element(kind, values, at, value);
                }
            }
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
}

/* ---- FLUSH, clear: exclusive ----------------------------------------------------------------- */

/* Resets the slab's words from `slot` on to those of an empty slab; the end bits only with
 * `reset_end_bits`. Relaxed stores: the tile has exclusive access. */
GA_SIMT void ga_slabhash_empty_words(ga_tile tile, uint32_t *row, uint32_t slot,
                                     bool reset_end_bits)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint32_t i = own; i < GA_SLABHASH_WORDS; i += ga_tile_size(tile)) {
            if (i >= slot && (i != GA_SLABHASH_END_BITS || reset_end_bits)) {
                ga_store_relaxed(row + i, 0xffffffffu);
            }
        }
    }
    ga_tile_sync(tile);
}

/* Frees the slab `unit` and all slabs behind it. */
GA_SIMT void ga_slabhash_free_chain(ga_slabhash_view table, ga_tile tile, uint32_t unit)
{
    bool grows = GA_SLABHASH_IS_GROWING(table.kind);
    while (unit != GA_SLABHASH_NO_SLAB && !(grows && unit == GA_SLABHASH_SEALED)) {
        uint32_t next = ga_load_relaxed(ga_slabhash_row(table, unit) + GA_SLABHASH_NEXT);
        ga_slab_release_one(ga_slab_view_of(table.heap), tile, unit);
        unit = next;
    }
}

/* Empties the bucket, resets its end bits and frees its chain. */
GA_SIMT void ga_slabhash_clear_bucket(ga_slabhash_view table, ga_tile tile, uint32_t bucket)
{
    uint32_t *row = table.rows + (size_t)bucket * GA_SLABHASH_WORDS;
    uint32_t chain = ga_load_relaxed(row + GA_SLABHASH_NEXT);
    ga_tile_sync(tile); /* all lanes have loaded it */
    ga_slabhash_empty_words(tile, row, 0, true);
    ga_slabhash_free_chain(table, tile, chain);
}

/* Where a flush writes the next pair. */
typedef struct ga_slabhash_target {
    uint32_t *row;
    uint32_t slot; /* GA_SLABHASH_END_BITS or more: the slab is full */
} ga_slabhash_target;

/* Words of a slot. */
GA_SIMT uint32_t ga_slabhash_slot_words(uint32_t kind)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 1u
           : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 2u
                                                         : 4u;
}

/* The first word behind the slots. */
GA_SIMT uint32_t ga_slabhash_slots_end(uint32_t kind)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? 28u : GA_SLABHASH_END_BITS;
}

/* Moves the pairs of one loaded slab to the target, which is never behind that slab. */
GA_SIMT void ga_slabhash_compact_slab(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                      ga_row row, ga_slabhash_target *to)
{
    uint32_t width = ga_slabhash_slot_words(kind);
    for (uint32_t live = ga_slabhash_live_slots(kind, tile, row); live; live &= live - 1u) {
        if (to->slot >= ga_slabhash_slots_end(kind)) {
            uint32_t next = ga_load_relaxed(to->row + GA_SLABHASH_NEXT);
            to->row = ga_slabhash_row(table, next); /* exists: the pairs come from a later slab */
            to->slot = 0;
        }
        for (uint32_t i = 0; i < width; i++) {
            uint32_t word = ga_row_get(tile, row, ga_bits_lowest(live) + i);
            GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
            {
                (void)own;
                ga_store_relaxed(to->row + to->slot + i, word); /* relaxed: exclusive */
            }
        }
        to->slot += width;
    }
}

/* FLUSH of a bucket: its pairs and those of its chain move, in their order, to as few slabs as
 * possible, and the other slabs are freed. End bits stay, because the bucket's slab may
 * have sent on keys of other homes. A chain holds only keys of its own home, so its keys may
 * move back to it. */
GA_SIMT void ga_slabhash_flush_bucket(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                      uint32_t bucket)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(table, bucket);
    ga_slabhash_target to;
    ga_row row;
    to.row = walk.row;
    to.slot = 0;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        ga_tile_sync(tile); /* all lanes have loaded it */
        ga_slabhash_compact_slab(kind, table, tile, row, &to);
        ga_tile_sync(tile);
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    uint32_t rest = ga_load_relaxed(to.row + GA_SLABHASH_NEXT);
    ga_tile_sync(tile); /* all lanes have loaded it */
    ga_slabhash_empty_words(tile, to.row, to.slot, false);
    ga_slabhash_free_chain(table, tile, rest);
}

#endif
