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
    GA_SLABHASH_TILES = 4
};
#else
enum {
    GA_SLABHASH_TILES = 1
};
#endif

typedef struct ga_slabhash_asked {
    uint32_t row, row_high, key, key_high;
} __attribute__((aligned(16))) ga_slabhash_asked;

/* `found` is the key's place and 1, or 0; of 64 bits there is an upper half of the value elsewhere. */
typedef struct ga_slabhash_told {
    uint32_t value, found, mark, next;
} __attribute__((aligned(16))) ga_slabhash_told;

typedef struct ga_slabhash_desk {
    ga_slabhash_asked asked[8 * GA_SLABHASH_TILES];
    ga_slabhash_told told[8 * GA_SLABHASH_TILES];
    uint32_t value_high[8 * GA_SLABHASH_TILES];
} ga_slabhash_desk;

/* In lanes. */
typedef struct ga_slabhash_searches {
    ga_lanes key, key_high;
    ga_lanes row, row_high;     /* the slab's address */
    ga_lanes other;             /* of the hash: the class, and the step from bucket to bucket */
    ga_lanes left;              /* buckets still to come; GA_SLABHASH_IN_CHAIN behind them */
    ga_lanes result;            /* the answer */
    ga_lanes value, value_high; /* that is there, else 0 */
} ga_slabhash_searches;

/* The seat of lane `lane` of the tile that is number `number` of its warp. */
GA_SIMT uint32_t ga_slabhash_seat(uint32_t number, uint32_t lane)
{
    return lane * GA_SLABHASH_TILES + number;
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

GA_SIMT void ga_slabhash_search_at(ga_slabhash_searches *all, uint32_t own, uint32_t *row)
{
    ga_lane_write(&all->row, own, (uint32_t)(uintptr_t)row);
    ga_lane_write(&all->row_high, own, (uint32_t)((uint64_t)(uintptr_t)row >> 32));
}

/* Lane `own` begins with a key; also one that is not allowed, which is noticed later. */
GA_SIMT void ga_slabhash_search_begin(ga_slabhash_view table, ga_slabhash_searches *all,
                                      uint32_t own, uint64_t key, uint64_t hash)
{
    ga_slabhash_search_at(
        all, own, table.rows + ga_bits_high(hash, table.buckets) * (size_t)GA_SLABHASH_WORDS);
    ga_lane_write(&all->key, own, (uint32_t)key);
    ga_lane_write(&all->key_high, own, (uint32_t)(key >> 32));
    ga_lane_write(&all->left, own, GA_SLABHASH_IN_CHAIN);
    if (table.path > 1u) {
        ga_lane_write(&all->other, own, ga_slabhash_other_of(hash));
        ga_lane_write(&all->left, own, table.path - 1u);
    }
}

/* ---- ask ------------------------------------------------------------------------------------ */

GA_SIMT void ga_slabhash_ask(ga_tile tile, uint32_t number, const ga_slabhash_searches *all,
                             ga_slabhash_desk *desk)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t seat = ga_slabhash_seat(number, own);
        ga_slabhash_asked asked;
        asked.row = ga_lane_read(all->row, own);
        asked.row_high = ga_lane_read(all->row_high, own);
        asked.key = ga_lane_read(all->key, own);
        asked.key_high = ga_lane_read(all->key_high, own);
        desk->asked[seat] = asked;
        desk->told[seat].found = 0;
    }
    ga_tile_sync(tile); /* what a lane has laid down is seen by its tile */
}

/* ---- look ----------------------------------------------------------------------------------- */

/* What lane `own` has loaded of a slab, to the seat. */
GA_SIMT void ga_slabhash_tell(uint32_t kind, ga_quad quad, uint32_t own, uint32_t seat,
                              ga_slabhash_desk *desk)
{
    const bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    const bool set = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32;
    ga_slabhash_told *told = &desk->told[seat];
    uint32_t key = desk->asked[seat].key;
    bool last =
        own == 7u; /* it has the mark and the link, and no place behind its first two words */
    bool first = quad.word[0] == key, second = false, third = false, fourth = false;
    if (wide) {
        first = first && quad.word[1] == desk->asked[seat].key_high && !last;
    } else {
        second = set && quad.word[1] == key;
        third = quad.word[2] == key && !last;
        fourth = set && quad.word[3] == key && !last;
    }
    if (first || second || third || fourth) {
        told->value = set ? 0 : wide ? quad.word[2] : first ? quad.word[1] : quad.word[3];
        told->found = own * 4u + (first ? 1u : second ? 2u : third ? 3u : 4u);
        if (wide) {
            desk->value_high[seat] = quad.word[3];
        }
    }
    if (last) {
        told->mark = quad.word[2];
        told->next = quad.word[3];
    }
}

/* The slabs of all seats of the tile. */
GA_SIMT void ga_slabhash_look_for_all(uint32_t kind, ga_tile tile, uint32_t number,
                                      ga_slabhash_desk *desk)
{
    ga_row rows[8];
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        const ga_slabhash_asked *asked = &desk->asked[ga_slabhash_seat(number, i)];
        uint64_t row = asked->row | (uint64_t)asked->row_high << 32;
        rows[i] = ga_slabhash_look(kind, tile, (const uint32_t *)(uintptr_t)row);
    }
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            ga_slabhash_tell(kind, ga_row_quad(tile, rows[i], own), own,
                             ga_slabhash_seat(number, i), desk);
        }
    }
    ga_tile_sync(tile); /* what was told is seen by whom it is for */
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* Lane `own` has its answer. */
GA_SIMT bool ga_slabhash_search_ends(ga_slabhash_searches *all, uint32_t own, uint32_t result,
                                     uint64_t value)
{
    ga_lane_write(&all->result, own, result);
    ga_lane_write(&all->value, own, (uint32_t)value);
    ga_lane_write(&all->value_high, own, (uint32_t)(value >> 32));
    return true;
}

/* On to the path's next bucket; behind the last, to the home again, for its chain. */
GA_SIMT void ga_slabhash_search_hop(ga_slabhash_view table, ga_slabhash_searches *all, uint32_t own,
                                    uint32_t home)
{
    uint32_t left = ga_lane_read(all->left, own);
    uint32_t *row = left ? ga_slabhash_hop(table, ga_slabhash_search_row(all, own),
                                           ga_lane_read(all->other, own))
                         : table.rows + (size_t)home * GA_SLABHASH_WORDS;
    ga_lane_write(&all->left, own, left ? left - 1u : GA_SLABHASH_IN_CHAIN);
    ga_slabhash_search_at(all, own, row);
}

/* What lane `own` makes of what it was told; whether it has its answer. `hash` is its key's. */
GA_SIMT bool ga_slabhash_search_judge(uint32_t kind, ga_slabhash_view table,
                                      ga_slabhash_searches *all, uint32_t own, uint32_t seat,
                                      const ga_slabhash_desk *desk, uint64_t hash)
{
    ga_slabhash_told told = desk->told[seat];
    uint32_t left = ga_lane_read(all->left, own);
    uint64_t key = ga_slabhash_search_key(all, own);
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return ga_slabhash_search_ends(all, own, GA_SLABHASH_REFUSED, 0);
    }
    if (told.found) {
        bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
        uint64_t value = told.value | (wide ? (uint64_t)desk->value_high[seat] << 32 : 0);
        bool is_set = ga_slabhash_is_set(kind, value); /* else it is nowhere: this is its place */
        if (is_set) {
            ga_slabhash_seen(kind, ga_slabhash_search_row(all, own) + told.found - 1u);
        }
        return ga_slabhash_search_ends(all, own, is_set ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT,
                                       is_set ? value : 0);
    }
    bool in_chain = left == GA_SLABHASH_IN_CHAIN;
    bool unmarked = left && (told.mark >> ga_lane_read(all->other, own) % 32u) & 1u;
    if (in_chain ? told.next == GA_SLABHASH_NO_SLAB : unmarked) {
        return ga_slabhash_search_ends(all, own, GA_SLABHASH_ABSENT, 0);
    }
    if (in_chain) {
        (void)ga_slabhash_own_link_of(kind, ga_slabhash_search_row(all, own));
        ga_slabhash_search_at(all, own, ga_slabhash_row(table, told.next)); /* down the chain */
    } else {
        ga_slabhash_search_hop(table, all, own, (uint32_t)ga_bits_high(hash, table.buckets));
    }
    return false;
}

#endif
