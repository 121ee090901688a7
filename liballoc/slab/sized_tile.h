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
GA_SIMT void ga_sized_search_keep(ga_tile tile, uint32_t key, ga_sized_search *search)
{
    GA_EACH_LANE(tile, 1u << ga_bits_lowest(search->wanting), own)
    {
        ga_lane_write(&search->got.keys, own, key);
        ga_lane_write(&search->got.places, own, 0u);
    }
    search->wanting &= search->wanting - 1u;
}

/* More regions for the class, if there are any: false where it has none new. `*all` is how many words the class
 * had, and has then. */
GA_SIMT bool ga_sized_claim_grow(ga_sized_view heap, ga_tile tile, uint32_t number, uint32_t *all,
                                 ga_sized_search *search)
{
    ga_sized_class *c = heap.heap->of + search->class_;
    uint32_t held = GA_SIZED_NONE;
    if (ga_sized_no_more(heap.heap, tile, search->class_, *all) ||
        !ga_sized_grow(heap.heap, tile, search->class_, *all, &held)) {
        return false;
    }
    if (held != GA_SIZED_NONE) {
        ga_sized_search_keep(tile, held, search);
    }
    uint32_t now = ga_sized_now(&c->way.all, tile);
    if (now) { /* the new ones */
        ga_sized_hint_at(c, tile, number % now, *all < now ? *all : now - 1u, now);
    }
    *all = now;
    return true;
}

/* Whether there is nothing left for the class: a sweep says so, and then the pool has no region either. A sweep
 * may have served the search. `*last` is as for ga_sized_sweep_all(), and `*begun` whether it has been read. */
GA_SIMT bool ga_sized_claim_ends(ga_sized_view heap, ga_tile tile, uint32_t number, uint32_t *all,
                                 uint32_t *last, bool *begun, ga_sized_search *search)
{
    if (ga_sized_is_known_vain(heap.heap, tile, search->class_)) {
        return true;
    }
    if (!*begun) {
        *last = ga_sized_sweep_last(heap.heap, tile);
        *begun = true;
    }
    bool none = ga_sized_sweep_all(heap, tile, last, search);
    return none && !ga_sized_claim_grow(heap, tile, number, all, search);
}

/* Units of one class for the lanes of the mask `wanting`; all lanes of the tile help. */
GA_SIMT_SLOW ga_sized_got ga_sized_claim_rest(ga_sized_heap *heap, uint32_t lanes, uint32_t wanting,
                                              uint32_t class_, uint32_t number)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_class *c = heap->of + class_;
    ga_sized_search search = {class_,
                              wanting,
                              {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)},
                              0,
                              ga_bits_mix(number) & 31u,
                              false};
    uint32_t all = ga_sized_now(&c->way.all, tile);
    uint32_t last = 0;
    bool begun = false;
    for (bool ends = false; search.wanting && !ends;) {
        if (all) {
            ga_sized_search_near(view, tile, number, all, &search);
        }
        if (search.wanting && !ga_sized_claim_grow(view, tile, number, &all, &search)) {
            ends = ga_sized_claim_ends(view, tile, number, &all, &last, &begun, &search);
            all = ga_sized_now(&c->way.all, tile);
        }
    }
    GA_EACH_LANE(tile, search.wanting ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_post_add_relaxed(&c->refused, ga_bits_count(search.wanting)); /* relaxed: a count */
    }
    return search.got;
}

/* ---- claims -------------------------------------------------------------------------------------------- */

/* What the groups of a tile have got so far: for the first lane of each its word's key, and bits of it. */
typedef struct ga_sized_taken {
    ga_lanes equal; /* for each lane the mask of its group */
    ga_lanes keys, bits;
} ga_sized_taken;

/* For the lanes that got nothing so far, a class after the other. */
GA_SIMT void ga_sized_claim_missing(ga_sized_view heap, ga_tile tile, uint32_t missing,
                                    ga_lanes classes, ga_lanes equal, uint32_t number,
                                    ga_sized_got *got)
{
    while (missing) {
        uint32_t first = ga_bits_lowest(missing);
        uint32_t group = ga_lanes_get(tile, equal, first) & missing;
        ga_sized_got more = ga_sized_claim_rest(heap.heap, ga_tile_members(tile), group,
                                                ga_lanes_get(tile, classes, first), number);
        got->keys = ga_lanes_select(tile, group, more.keys, got->keys);
        got->places = ga_lanes_select(tile, group, more.places, got->places);
        missing &= ~group;
    }
}

/* The rest of a claim whose groups have got so much. */
GA_SIMT ga_sized_got ga_sized_claim_more(ga_sized_view heap, ga_tile tile, uint32_t wanting,
                                         ga_lanes classes, uint32_t number, ga_sized_taken taken)
{
    ga_sized_got got = {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)};
    ga_sized_deal(tile, wanting, taken.equal, taken.keys, taken.bits, &got);
    uint32_t served = ga_lanes_nonzero(tile, got.keys ^ ga_lanes_all(GA_SIZED_NONE));
    ga_sized_claim_missing(heap, tile, wanting & ~served, classes, taken.equal, number, &got);
    return got;
}

/* A unit of the class that `classes` has for it, for each lane of `wanting`. `number` is the caller's:
 * tiles that call beside each other bring different ones. */
GA_SIMT ga_sized_got ga_sized_claim(ga_sized_view heap, ga_tile tile, uint32_t wanting,
                                    ga_lanes classes, uint32_t number)
{
    ga_sized_taken taken = {ga_lanes_equal(tile, wanting, classes), ga_lanes_all(GA_SIZED_NONE),
                            ga_lanes_all(0)};
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t group = ga_lane_read(taken.equal, own);
        if (ga_bits_lowest(group) == own) {
            uint32_t key;
            uint32_t bits = ga_sized_take_some(heap, ga_lane_read(classes, own),
                                               ga_bits_count(group), number, own, &key);
            ga_lane_write(&taken.bits, own, bits);
            ga_lane_write(&taken.keys, own, key);
        }
    }
    ga_tile_sync(tile);
    return ga_sized_claim_more(heap, tile, wanting, classes, number, taken);
}

/* The lanes of a tile ask for the bits of their numbers in the word, by one atomic: which were set before. */
GA_SIMT uint32_t ga_sized_ask_own(ga_sized_view heap, ga_tile tile, uint32_t key)
{
    uint32_t lanes = ga_tile_lanes(tile);
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_sized_ask(heap, key, lanes));
    }
    if (!(lanes & (lanes - 1u))) { /* a lone lane has nobody to tell */
        return ga_lane_read(taken, leader);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* Ask for the bits of the tile's lanes in a word off the fast path, which another class may have by now. */
GA_SIMT uint32_t ga_sized_ask_own_any(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                      uint32_t key)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_sized_ask_any(heap, class_, key, ga_tile_lanes(tile)));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* All units of the word that are free, for a whole tile of 32 lanes: the bits. */
GA_SIMT uint32_t ga_sized_take_word(ga_sized_view heap, uint32_t key)
{
    return ~ga_sized_ask_own(heap, ga_tile_of(32), key);
}

/* Units of one class for all lanes of the tile, which have got `bits` of the word `key` of their number:
 * too little, or where `key` is GA_SIZED_NONE there is no such word yet. */
GA_SIMT ga_sized_got ga_sized_claim_second(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                           uint32_t number, uint32_t key, uint32_t bits)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t wanting = ga_tile_lanes(tile);
    uint32_t more = ga_tile_size(tile) - ga_bits_count(bits);
    ga_sized_taken taken = {ga_lanes_all(wanting), ga_lanes_all(key), ga_lanes_all(bits)};
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (key == GA_SIZED_NONE) {
            bits = ga_sized_take_some(heap, class_, more, number, own, &key);
        } else if (bits) {
            /* relaxed: a guess, they are asked for. */
            uint32_t free = ~ga_load_relaxed(heap.bits + key);
            bits |= free ? ga_sized_take(heap, class_, key, ga_bits_take(free, more)) : 0;
        } else {
            bits = ga_sized_take_beyond(heap, class_, more, number, own, &key);
        }
        ga_lane_write(&taken.bits, own, bits);
        ga_lane_write(&taken.keys, own, key);
    }
    ga_tile_sync(tile);
    return ga_sized_claim_more(heap, tile, wanting, ga_lanes_all(class_), number, taken);
}

/* ---- giving back ------------------------------------------------------------------------------------------ */

/* Units of all lanes of the tile, which are of one word. */
GA_SIMT void ga_sized_release_word(ga_sized_view heap, ga_tile tile, ga_sized_got got)
{
    uint32_t bits = ga_lanes_union(tile, ga_lanes_all(1u) << got.places);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        ga_sized_give(heap, ga_lane_read(got.keys, own), bits);
    }
}

/* One unit for each lane of the tile, all of one word, or no two of one: false where it is neither, and nothing is
 * done. The tile has called ga_tile_publish() since its lanes used them. */
GA_SIMT bool ga_sized_release_usual(ga_sized_view heap, ga_tile tile, ga_sized_got got)
{
    if (ga_lanes_same(tile, got.keys)) { /* what a warp claimed */
        ga_sized_release_word(heap, tile, got);
        return true;
    }
    ga_lanes equal = ga_lanes_equal(tile, ga_tile_lanes(tile), got.keys);
    if (ga_lanes_any(tile, equal & (equal - ga_lanes_all(1u)))) {
        return false;
    }
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_sized_give(heap, ga_lane_read(got.keys, own), 1u << ga_lane_read(got.places, own));
    }
    return true;
}

/* One unit for each lane of `giving`. The tile has called ga_tile_publish() since its lanes used them. */
GA_SIMT void ga_sized_release(ga_sized_view heap, ga_tile tile, uint32_t giving, ga_sized_got got)
{
    if (giving == ga_tile_lanes(tile) && ga_sized_release_usual(heap, tile, got)) {
        return;
    }
    ga_lanes bits = ga_lanes_all(1u) << got.places;
    ga_lanes equal = ga_lanes_equal(tile, giving, got.keys);
    bits = ga_lanes_merge_or(tile, equal, bits);
    GA_EACH_LANE(tile, giving, own)
    {
        if (ga_bits_lowest(ga_lane_read(equal, own)) == own) {
            ga_sized_give(heap, ga_lane_read(got.keys, own), ga_lane_read(bits, own));
        }
    }
}

#endif
