/* SPDX-License-Identifier: MIT
 *
 * Searches of a tile's lanes, one each, by whole slabs: for batches, in tables of unique keys that do not
 * grow in kernels (GA_SLABHASH_IS_UNIQUE).
 *
 * STRUCTURE  desk    where lanes and their tile hand each other what they have, a seat for each lane; in
 *                    kernels in shared memory
 *            ask     each lane lays down its key, and the slab at which it is
 *            look    the tile loads the slabs of all seats, 16 bytes a lane, all at once. The lane that
 *                    sees the seat's key tells its value, the last one the mark and the link
 *            judge   each lane by itself: it has its answer, or goes on to another slab
 *
 * No vote and no shuffle asks the lanes what they hold: of a slab the four words of a lane are compared
 * where they are, and told by one store. So a kernel has instructions enough for all that memory gives it.
 *
 * A seat's path is that of ga_slabhash_walk_path(): its buckets, then the chain of the home. A path of
 * one is that chain alone.
 */
#ifndef GPUALLOC_SLABHASH_SEARCH_TILE_H
#define GPUALLOC_SLABHASH_SEARCH_TILE_H

#include "hash_tile.h"

/* Seats of a desk: those of the four tiles of a warp, in turn, so that what they hand over at once is in
 * other banks. On the CPU there is one tile. */
#ifdef __CUDACC__
enum {
    GA_SLABHASH_TILES_PER_WARP = 4
};
#else
enum {
    GA_SLABHASH_TILES_PER_WARP = 1
};
#endif

typedef struct ga_slabhash_load_request {
    uint32_t row, row_high, key, key_high;
} __attribute__((aligned(16))) ga_slabhash_load_request;

/* `found` is the key's place and 1, or 0; of 64 bits there is an upper half of the value elsewhere. */
typedef struct ga_slabhash_load_result {
    uint32_t value, found, overflow_bits, next;
} __attribute__((aligned(16))) ga_slabhash_load_result;

typedef struct ga_slabhash_exchange {
    ga_slabhash_load_request requests[8 * GA_SLABHASH_TILES_PER_WARP];
    ga_slabhash_load_result results[8 * GA_SLABHASH_TILES_PER_WARP];
    uint32_t value_high[8 * GA_SLABHASH_TILES_PER_WARP];
} ga_slabhash_exchange;

/* In lanes. */
typedef struct ga_slabhash_searches {
    ga_lanes key, key_high;
    ga_lanes row, row_high;     /* the slab's address */
    ga_lanes second_hash;       /* of the hash: the class, and the step from bucket to bucket */
    ga_lanes buckets_left;      /* buckets still to come; GA_SLABHASH_IN_CHAIN behind them */
    ga_lanes result;            /* the answer */
    ga_lanes value, value_high; /* that is there, else 0 */
} ga_slabhash_searches;

/* The seat of lane `lane` of the tile that is number `number` of its warp. */
GA_SIMT uint32_t ga_slabhash_lane_slot(uint32_t number, uint32_t lane)
{
    return lane * GA_SLABHASH_TILES_PER_WARP + number;
}

GA_SIMT uint64_t ga_slabhash_search_key(const ga_slabhash_searches *all, uint32_t own)
{
    return ga_lane_read(all->key, own) | (uint64_t)ga_lane_read(all->key_high, own) << 32;
}

GA_SIMT uint32_t *ga_slabhash_search_row(const ga_slabhash_searches *all, uint32_t own)
{
    return (uint32_t *)(uintptr_t)(ga_lane_read(all->row, own) |
                                   (uint64_t)ga_lane_read(all->row_high, own) << 32);
}

GA_SIMT void ga_slabhash_search_move_to(ga_slabhash_searches *all, uint32_t own, uint32_t *row)
{
    ga_lane_write(&all->row, own, (uint32_t)(uintptr_t)row);
    ga_lane_write(&all->row_high, own, (uint32_t)((uint64_t)(uintptr_t)row >> 32));
}

/* Lane `own` begins with a key; also one that is not allowed, which is noticed later. */
GA_SIMT void ga_slabhash_search_begin(ga_slabhash_view table, ga_slabhash_searches *all,
                                      uint32_t own, uint64_t key, uint64_t hash)
{
    ga_slabhash_search_move_to(
        all, own, table.rows + ga_bits_high(hash, table.buckets) * (size_t)GA_SLABHASH_WORDS);
    ga_lane_write(&all->key, own, (uint32_t)key);
    ga_lane_write(&all->key_high, own, (uint32_t)(key >> 32));
    ga_lane_write(&all->buckets_left, own, GA_SLABHASH_IN_CHAIN);
    if (table.path > 1u) {
        ga_lane_write(&all->second_hash, own, ga_slabhash_second_hash(hash));
        ga_lane_write(&all->buckets_left, own, table.path - 1u);
    }
}

/* ---- ask ------------------------------------------------------------------------------------ */

GA_SIMT void ga_slabhash_publish_requests(ga_tile tile, uint32_t number,
                                          const ga_slabhash_searches *all,
                                          ga_slabhash_exchange *exchange)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t lane_slot = ga_slabhash_lane_slot(number, own);
        ga_slabhash_load_request request;
        request.row = ga_lane_read(all->row, own);
        request.row_high = ga_lane_read(all->row_high, own);
        request.key = ga_lane_read(all->key, own);
        request.key_high = ga_lane_read(all->key_high, own);
        exchange->requests[lane_slot] = request;
        exchange->results[lane_slot].found = 0;
    }
    ga_tile_sync(tile); /* what a lane has laid down is seen by its tile */
}

/* ---- look ----------------------------------------------------------------------------------- */

/* What lane `own` has loaded of a slab, to the seat. */
GA_SIMT void ga_slabhash_publish_result(uint32_t kind, ga_quad quad, uint32_t own,
                                        uint32_t lane_slot, ga_slabhash_exchange *exchange)
{
    const bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    const bool set = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32;
    ga_slabhash_load_result *loaded = &exchange->results[lane_slot];
    uint32_t key = exchange->requests[lane_slot].key;
    bool last =
        own == 7u; /* it has the mark and the link, and no place behind its first two words */
    bool first = quad.word[0] == key, second = false, third = false, fourth = false;
    if (wide) {
        first = first && quad.word[1] == exchange->requests[lane_slot].key_high && !last;
    } else {
        second = set && quad.word[1] == key;
        third = quad.word[2] == key && !last;
        fourth = set && quad.word[3] == key && !last;
    }
    if (first || second || third || fourth) {
        loaded->value = set ? 0 : wide ? quad.word[2] : first ? quad.word[1] : quad.word[3];
        loaded->found = own * 4u + (first ? 1u : second ? 2u : third ? 3u : 4u);
        if (wide) {
            exchange->value_high[lane_slot] = quad.word[3];
        }
    }
    if (last) {
        loaded->overflow_bits = quad.word[2];
        loaded->next = quad.word[3];
    }
}

/* The slabs of all seats of the tile. */
GA_SIMT void ga_slabhash_load_requested_slabs(uint32_t kind, ga_tile tile, uint32_t number,
                                              ga_slabhash_exchange *exchange)
{
    ga_row rows[8];
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        const ga_slabhash_load_request *request =
            &exchange->requests[ga_slabhash_lane_slot(number, i)];
        uint64_t row = request->row | (uint64_t)request->row_high << 32;
        rows[i] = ga_slabhash_load_slab(kind, tile, (const uint32_t *)(uintptr_t)row);
    }
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            ga_slabhash_publish_result(kind, ga_row_quad(tile, rows[i], own), own,
                                       ga_slabhash_lane_slot(number, i), exchange);
        }
    }
    ga_tile_sync(tile); /* what was told is seen by whom it is for */
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Lane `own` has its answer. */
GA_SIMT bool ga_slabhash_finish_search(ga_slabhash_searches *all, uint32_t own, uint32_t result,
                                       uint64_t value)
{
    ga_lane_write(&all->result, own, result);
    ga_lane_write(&all->value, own, (uint32_t)value);
    ga_lane_write(&all->value_high, own, (uint32_t)(value >> 32));
    return true;
}

/* On to the path's next bucket; behind the last, to the home again, for its chain. */
GA_SIMT void ga_slabhash_search_next_bucket(ga_slabhash_view table, ga_slabhash_searches *all,
                                            uint32_t own, uint32_t home)
{
    uint32_t left = ga_lane_read(all->buckets_left, own);
    uint32_t *row = left ? ga_slabhash_next_bucket(table, ga_slabhash_search_row(all, own),
                                                   ga_lane_read(all->second_hash, own))
                         : table.rows + (size_t)home * GA_SLABHASH_WORDS;
    ga_lane_write(&all->buckets_left, own, left ? left - 1u : GA_SLABHASH_IN_CHAIN);
    ga_slabhash_search_move_to(all, own, row);
}

/* What lane `own` makes of what it was told; whether it has its answer. `hash` is its key's. */
GA_SIMT bool ga_slabhash_decide_search(uint32_t kind, ga_slabhash_view table,
                                       ga_slabhash_searches *all, uint32_t own, uint32_t lane_slot,
                                       const ga_slabhash_exchange *exchange, uint64_t hash)
{
    ga_slabhash_load_result loaded = exchange->results[lane_slot];
    uint32_t left = ga_lane_read(all->buckets_left, own);
    uint64_t key = ga_slabhash_search_key(all, own);
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return ga_slabhash_finish_search(all, own, GA_SLABHASH_REFUSED, 0);
    }
    if (loaded.found) {
        bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
        uint64_t value =
            loaded.value | (wide ? (uint64_t)exchange->value_high[lane_slot] << 32 : 0);
        bool is_set = ga_slabhash_is_set(kind, value); /* else it is nowhere: this is its place */
        if (is_set) {
            ga_slabhash_acquire_slot(kind, ga_slabhash_search_row(all, own) + loaded.found - 1u);
        }
        return ga_slabhash_finish_search(all, own, is_set ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT,
                                         is_set ? value : 0);
    }
    bool in_chain = left == GA_SLABHASH_IN_CHAIN;
    bool ends_at_bucket =
        left && (loaded.overflow_bits >> ga_lane_read(all->second_hash, own) % 32u) & 1u;
    if (in_chain ? loaded.next == GA_SLABHASH_NO_SLAB : ends_at_bucket) {
        return ga_slabhash_finish_search(all, own, GA_SLABHASH_ABSENT, 0);
    }
    if (in_chain) {
        (void)ga_slabhash_lane_load_link(kind, ga_slabhash_search_row(all, own));
        ga_slabhash_search_move_to(all, own,
                                   ga_slabhash_row(table, loaded.next)); /* down the chain */
    } else {
        ga_slabhash_search_next_bucket(table, all, own,
                                       (uint32_t)ga_bits_high(hash, table.buckets));
    }
    return false;
}

#endif
