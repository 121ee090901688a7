/* SPDX-License-Identifier: MIT
 *
 * Searches of a tile's lanes, one each, by whole slabs: for batches of searches, in tables of
 * unique keys that do not grow in kernels (GA_SLABHASH_IS_UNIQUE_FIXED).
 *
 * STRUCTURE  Each step, of all lanes of a tile (search_kernel.cuh calls them):
 *              publish_requests       each lane writes its key and its slab's address to its lane
 *                                     slot of the exchange, in kernels in shared memory
 *              load_requested_slabs   the tile loads the slabs of all lane slots at once, 16 bytes
 *                                     a lane. The lane that has a key in its 16 bytes writes the
 *                                     value to the key's lane slot; the last lane writes end bits
 *                                     and link
 *              decide_search          each lane alone: it is done, or goes on to another slab
 *
 *            Lanes need no ballot and no shuffle for this: a lane compares its four words with the
 *            key and publishes a hit by one store. Instructions are then not the limit; memory is.
 *
 * HOW A SEARCH ENDS  decide_search(), by the rules of list_tile.h: REFUSED for a key that is not
 *            allowed; FOUND at the key's slot (map64: with a value); ABSENT at the key's slot
 *            without a value, at a bucket's slab whose end bit of the key's class is still set
 *            while buckets of the path remain, and at the end of the home's chain. A lane does not
 *            look for empty slots, so the rules are the same whether or not the table is ordered.
 *
 * The path is that of ga_slabhash_walk_path(): its buckets, then the home's chain. With a path of
 * one bucket it is the chain alone.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_SEARCH_TILE_H
#define GPUALLOC_SLABHASH_TABLE_SEARCH_TILE_H

#include "hash_tile.h"

typedef struct ga_slabhash_load_request {
    uint32_t row, row_high, key, key_high;
} __attribute__((aligned(16))) ga_slabhash_load_request;

/* `found` is the key's slot + 1, or 0. The upper half of a 64-bit value is in value_high. */
typedef struct ga_slabhash_load_result {
    uint32_t value, found, end_bits, next;
} __attribute__((aligned(16))) ga_slabhash_load_result;

typedef struct ga_slabhash_exchange {
    ga_slabhash_load_request requests[8 * GA_SLABHASH_TILES_PER_WARP];
    ga_slabhash_load_result results[8 * GA_SLABHASH_TILES_PER_WARP];
    uint32_t value_high[8 * GA_SLABHASH_TILES_PER_WARP];
} ga_slabhash_exchange;

/* One search a lane. */
typedef struct ga_slabhash_searches {
    ga_lanes key, key_high;
    ga_lanes row, row_high;     /* address of the current slab */
    ga_lanes second_hash;       /* the key's class, and the stride of its path */
    ga_lanes buckets_left;      /* buckets of the path still to come; then GA_SLABHASH_IN_CHAIN */
    ga_lanes result;            /* ga_slabhash_result, once done */
    ga_lanes value, value_high; /* value of the key, else 0 */
} ga_slabhash_searches;

/* Index in the exchange of lane `lane` of the warp's tile number `number`. */
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

/* Lane `own` begins a search. A key that is not allowed is refused later, in decide_search(). */
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

/* ---- publish requests ------------------------------------------------------------------------ */

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
    ga_tile_sync(tile); /* makes each lane's request visible to its tile */
}

/* ---- load slabs, publish results ------------------------------------------------------------- */

/* Compares what lane `own` has loaded of a slab with the key of the lane slot, and publishes a
 * hit. */
GA_SIMT void ga_slabhash_publish_result(uint32_t kind, ga_quad quad, uint32_t own,
                                        uint32_t lane_slot, ga_slabhash_exchange *exchange)
{
    const bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    const bool set = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32;
    ga_slabhash_load_result *loaded = &exchange->results[lane_slot];
    uint32_t key = exchange->requests[lane_slot].key;
    bool last = own == 7u; /* its words 2 and 3 are the end bits and the link */
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
        loaded->end_bits = quad.word[2];
        loaded->next = quad.word[3];
    }
}

/* Loads and compares the slabs of all lane slots of the tile. */
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
    ga_tile_sync(tile); /* makes the results visible to their lanes */
}

/* ---- decide ---------------------------------------------------------------------------------- */

/* Lane `own` is done. Always true. */
GA_SIMT bool ga_slabhash_finish_search(ga_slabhash_searches *all, uint32_t own, uint32_t result,
                                       uint64_t value)
{
    ga_lane_write(&all->result, own, result);
    ga_lane_write(&all->value, own, (uint32_t)value);
    ga_lane_write(&all->value_high, own, (uint32_t)(value >> 32));
    return true;
}

/* Goes to the path's next bucket; behind the last one back to the home, whose chain comes next. */
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

/* Decides on the published result; true if lane `own` is done. `hash` is the hash of its key. */
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
        bool is_set = ga_slabhash_is_set(kind, value); /* false: the key is absent */
        if (is_set) {
            ga_slabhash_acquire_slot(kind, ga_slabhash_search_row(all, own) + loaded.found - 1u);
        }
        return ga_slabhash_finish_search(all, own, is_set ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT,
                                         is_set ? value : 0);
    }
    bool in_chain = left == GA_SLABHASH_IN_CHAIN;
    bool ends_at_bucket =
        left && (loaded.end_bits >> ga_lane_read(all->second_hash, own) % 32u) & 1u;
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
