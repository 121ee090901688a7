/* SPDX-License-Identifier: MIT
 *
 * Blocks of any size for the lanes of a tile, for CPU and GPU: SlabAlloc's bitmaps (slab-hash-2018, §V)
 * with many unit sizes over one pool of regions.
 *
 * STRUCTURE  sized_heap.h has it, sized_places.h where units are. Lanes that want the same class are a
 *            group; its units come from one word, by one atomic, where that has room.
 *
 * INVARIANT  A unit is its tile's from the moment it set the bit until it clears it.
 *
 * ORDER      U1 and U2: what the last owner did with a unit happens before what the next one does.
 *            S1 here is the partner of S2 in sized_grow.h, which is how a class gets its words.
 *
 * PROGRESS   A claim makes two attempts at the word of its number and some elsewhere; then it waits for
 *            a region more, for as long as growth.h says; where there is none it shares in a sweep of all
 *            regions (sized_sweep.h), or believes an earlier one, and answers none.
 */
#ifndef GPUALLOC_SLAB_SIZED_TILE_H
#define GPUALLOC_SLAB_SIZED_TILE_H

#include "../simt/simt.h"
#include "sized_sweep.h"

/* The lowest lane that wants a unit gets the first one of that word, which the tile holds. */
GA_SIMT void ga_sized_search_use_held(ga_tile tile, uint32_t word_index, ga_sized_search *search)
{
    GA_EACH_LANE(tile, 1u << ga_bits_lowest(search->requesting), own)
    {
        ga_lane_write(&search->got.word_indices, own, word_index);
        ga_lane_write(&search->got.places, own, 0u);
    }
    search->requesting &= search->requesting - 1u;
}

/* More regions for the class, if there are any: false where it has none new. `*all` is how many words the class
 * had, and has then. */
GA_SIMT bool ga_sized_search_grow(ga_sized_view heap, ga_tile tile, uint32_t number,
                                  uint32_t *total_words, ga_sized_search *search)
{
    ga_sized_class *c = heap.heap->of + search->class_;
    uint32_t held = GA_SIZED_NONE;
    if (ga_sized_class_cannot_grow(heap.heap, tile, search->class_, *total_words) ||
        !ga_sized_grow(heap.heap, tile, search->class_, *total_words, &held)) {
        return false;
    }
    if (held != GA_SIZED_NONE) {
        ga_sized_search_use_held(tile, held, search);
    }
    uint32_t now = ga_sized_load_synced(&c->map.total_words, tile);
    if (now) { /* the new ones */
        ga_sized_set_hint(c, tile, number % now, *total_words < now ? *total_words : now - 1u, now);
    }
    *total_words = now;
    return true;
}

/* Whether there is nothing left for the class: a sweep says so, and then the pool has no region either. A sweep
 * may have served the search. `*last` is as for ga_sized_sweep_join(), and `*begun` whether it has been read. */
GA_SIMT bool ga_sized_search_sweep(ga_sized_view heap, ga_tile tile, uint32_t number,
                                   uint32_t *total_words, uint32_t *last, bool *last_read,
                                   ga_sized_search *search)
{
    if (ga_sized_known_full(heap.heap, tile, search->class_)) {
        return true;
    }
    if (!*last_read) {
        *last = ga_sized_sweep_latest(heap.heap, tile);
        *last_read = true;
    }
    bool none = ga_sized_sweep_join(heap, tile, last, search);
    return none && !ga_sized_search_grow(heap, tile, number, total_words, search);
}

/* Units of one class for the lanes of the mask `wanting`; all lanes of the tile help. */
GA_SIMT_SLOW ga_sized_units ga_sized_claim_search(ga_sized_heap *heap, uint32_t lanes,
                                                  uint32_t requesting, uint32_t class_,
                                                  uint32_t number)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_class *c = heap->of + class_;
    ga_sized_search search = {class_,
                              requesting,
                              {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)},
                              0,
                              ga_bits_mix(number) & 31u,
                              false};
    uint32_t total_words = ga_sized_load_synced(&c->map.total_words, tile);
    uint32_t last = 0;
    bool last_read = false;
    for (bool ends = false; search.requesting && !ends;) {
        if (total_words) {
            ga_sized_search_class(view, tile, number, total_words, &search);
        }
        if (search.requesting && !ga_sized_search_grow(view, tile, number, &total_words, &search)) {
            ends =
                ga_sized_search_sweep(view, tile, number, &total_words, &last, &last_read, &search);
            total_words = ga_sized_load_synced(&c->map.total_words, tile);
        }
    }
    GA_EACH_LANE(tile, search.requesting ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_post_add_relaxed(&c->refused, ga_bits_count(search.requesting)); /* relaxed: a count */
    }
    return search.got;
}

/* ---- claims -------------------------------------------------------------------------------------------- */

/* What the groups of a tile have got so far: for the first lane of each its word's key, and bits of it. */
typedef struct ga_sized_group_claims {
    ga_lanes groups; /* for each lane the mask of its group */
    ga_lanes word_indices, bits;
} ga_sized_group_claims;

/* For the lanes that got nothing so far, a class after the other. */
GA_SIMT void ga_sized_claim_search_groups(ga_sized_view heap, ga_tile tile, uint32_t missing,
                                          ga_lanes classes, ga_lanes equal, uint32_t number,
                                          ga_sized_units *got)
{
    while (missing) {
        uint32_t first = ga_bits_lowest(missing);
        uint32_t group = ga_lanes_get(tile, equal, first) & missing;
        ga_sized_units more = ga_sized_claim_search(heap.heap, ga_tile_members(tile), group,
                                                    ga_lanes_get(tile, classes, first), number);
        got->word_indices = ga_lanes_select(tile, group, more.word_indices, got->word_indices);
        got->places = ga_lanes_select(tile, group, more.places, got->places);
        missing &= ~group;
    }
}

/* The rest of a claim whose groups have got so much. */
GA_SIMT ga_sized_units ga_sized_claim_finish(ga_sized_view heap, ga_tile tile, uint32_t requesting,
                                             ga_lanes classes, uint32_t number,
                                             ga_sized_group_claims taken)
{
    ga_sized_units got = {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)};
    ga_sized_deal(tile, requesting, taken.groups, taken.word_indices, taken.bits, &got);
    uint32_t served = ga_lanes_nonzero(tile, got.word_indices ^ ga_lanes_all(GA_SIZED_NONE));
    ga_sized_claim_search_groups(heap, tile, requesting & ~served, classes, taken.groups, number,
                                 &got);
    return got;
}

/* A unit of the class that `classes` has for it, for each lane of `wanting`. `number` is the caller's:
 * tiles that call beside each other bring different ones. */
GA_SIMT ga_sized_units ga_sized_claim(ga_sized_view heap, ga_tile tile, uint32_t requesting,
                                      ga_lanes classes, uint32_t number)
{
    ga_sized_group_claims taken = {ga_lanes_equal(tile, requesting, classes),
                                   ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)};
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t group = ga_lane_read(taken.groups, own);
        if (ga_bits_lowest(group) == own) {
            uint32_t word_index;
            uint32_t bits = ga_sized_claim_group(heap, ga_lane_read(classes, own),
                                                 ga_bits_count(group), number, own, &word_index);
            ga_lane_write(&taken.bits, own, bits);
            ga_lane_write(&taken.word_indices, own, word_index);
        }
    }
    ga_tile_sync(tile);
    return ga_sized_claim_finish(heap, tile, requesting, classes, number, taken);
}

/* The lanes of a tile ask for the bits of their numbers in the word, by one atomic: which were set before. */
GA_SIMT uint32_t ga_sized_try_set_lanes(ga_sized_view heap, ga_tile tile, uint32_t word_index)
{
    uint32_t lanes = ga_tile_lanes(tile);
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_sized_try_set(heap, word_index, lanes));
    }
    if (!(lanes & (lanes - 1u))) { /* a lone lane has nobody to tell */
        return ga_lane_read(taken, leader);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* Ask for the bits of the tile's lanes in a word off the fast path, which another class may have by now. */
GA_SIMT uint32_t ga_sized_try_set_lanes_verify(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                               uint32_t word_index)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own,
                      ga_sized_try_set_verify(heap, class_, word_index, ga_tile_lanes(tile)));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* All units of the word that are free, for a whole tile of 32 lanes: the bits. */
GA_SIMT uint32_t ga_sized_claim_word(ga_sized_view heap, uint32_t word_index)
{
    return ~ga_sized_try_set_lanes(heap, ga_tile_of(32), word_index);
}

/* Units of one class for all lanes of the tile, which have got `bits` of the word `key` of their number:
 * too little, or where `key` is GA_SIZED_NONE there is no such word yet. */
GA_SIMT ga_sized_units ga_sized_claim_retry(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                            uint32_t number, uint32_t word_index, uint32_t bits)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t requesting = ga_tile_lanes(tile);
    uint32_t more = ga_tile_size(tile) - ga_bits_count(bits);
    ga_sized_group_claims taken = {ga_lanes_all(requesting), ga_lanes_all(word_index),
                                   ga_lanes_all(bits)};
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (word_index == GA_SIZED_NONE) {
            bits = ga_sized_claim_group(heap, class_, more, number, own, &word_index);
        } else if (bits) {
            /* relaxed: a guess, they are asked for. */
            uint32_t free = ~ga_load_relaxed(heap.bits + word_index);
            bits |=
                free ? ga_sized_claim_bits(heap, class_, word_index, ga_bits_take(free, more)) : 0;
        } else {
            bits = ga_sized_claim_random_if_shared(heap, class_, more, number, own, &word_index);
        }
        ga_lane_write(&taken.bits, own, bits);
        ga_lane_write(&taken.word_indices, own, word_index);
    }
    ga_tile_sync(tile);
    return ga_sized_claim_finish(heap, tile, requesting, ga_lanes_all(class_), number, taken);
}

/* ---- giving back ------------------------------------------------------------------------------------------ */

/* Units of all lanes of the tile, which are of one word. */
GA_SIMT void ga_sized_free_units_of_word(ga_sized_view heap, ga_tile tile, ga_sized_units got)
{
    uint32_t bits = ga_lanes_union(tile, ga_lanes_all(1u) << got.places);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        ga_sized_release_bits(heap, ga_lane_read(got.word_indices, own), bits);
    }
}

/* One unit for each lane of the tile, all of one word, or no two of one: false where it is neither, and nothing is
 * done. The tile has called ga_tile_publish() since its lanes used them. */
GA_SIMT bool ga_sized_free_units_fast(ga_sized_view heap, ga_tile tile, ga_sized_units got)
{
    if (ga_lanes_same(tile, got.word_indices)) { /* what a warp claimed */
        ga_sized_free_units_of_word(heap, tile, got);
        return true;
    }
    ga_lanes equal = ga_lanes_equal(tile, ga_tile_lanes(tile), got.word_indices);
    if (ga_lanes_any(tile, equal & (equal - ga_lanes_all(1u)))) {
        return false;
    }
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_sized_release_bits(heap, ga_lane_read(got.word_indices, own),
                              1u << ga_lane_read(got.places, own));
    }
    return true;
}

/* One unit for each lane of `giving`. The tile has called ga_tile_publish() since its lanes used them. */
GA_SIMT void ga_sized_free_units(ga_sized_view heap, ga_tile tile, uint32_t freeing,
                                 ga_sized_units got)
{
    if (freeing == ga_tile_lanes(tile) && ga_sized_free_units_fast(heap, tile, got)) {
        return;
    }
    ga_lanes bits = ga_lanes_all(1u) << got.places;
    ga_lanes equal = ga_lanes_equal(tile, freeing, got.word_indices);
    bits = ga_lanes_merge_or(tile, equal, bits);
    GA_EACH_LANE(tile, freeing, own)
    {
        if (ga_bits_lowest(ga_lane_read(equal, own)) == own) {
            ga_sized_release_bits(heap, ga_lane_read(got.word_indices, own),
                                  ga_lane_read(bits, own));
        }
    }
}

#endif
