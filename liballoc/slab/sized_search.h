/* SPDX-License-Identifier: MIT
 *
 * Units of one class out of its words: the atomics that take them, and searches by a whole tile.
 *
 * STRUCTURE  sized_heap.h has it, sized_places.h where units are.
 *
 * INVARIANT  A unit is its tile's from the moment it set the bit until it clears it. Bits of a second
 *            bitmap count only after a look at the region's owner; else they go back.
 *
 * ORDER      U1 and U2 (sized_tile.h): what the last owner did with a unit happens before what the next one
 *            does.
 *
 * PROGRESS   No search waits. Each looks at a fixed number of words, and again only where another tile took
 *            what it saw.
 */
#ifndef GPUALLOC_SLAB_SIZED_SEARCH_H
#define GPUALLOC_SLAB_SIZED_SEARCH_H

#include "../simt/simt.h"
#include "sized_grow.h"
#include "sized_heap.h"
#include "sized_places.h"

/* ---- taking and giving back units: by one lane ------------------------------------------------------ */

/* Set those bits, by one lane: which were set before. */
GA_SIMT uint32_t ga_sized_ask(ga_sized_view heap, uint32_t key, uint32_t bits)
{
#if GA_SIZED_MUTANT == 2
    return ga_or_relaxed(heap.bits + key, bits);
#elif GA_SIZED_MUTANT == 3
    uint32_t taken = ga_load_acquire(heap.bits + key); /* U1, but not at once. Pairs with U2. */
    ga_store_relaxed(heap.bits + key, taken | bits);
    return taken;
#else
    /* U1: acquire. Pairs with U2: what a unit's last owner did happens before what we do. */
    return ga_or_acquire(heap.bits + key, bits);
#endif
}

/* The region's last free is done. Where a sweep watches the region, its answer and those of all sweeps before
 * do not hold any more, and the region goes back to frees on the fast path, unless another sweep has come
 * to watch it. */
GA_SIMT void ga_sized_announce(ga_sized_heap *heap, uint32_t region)
{
    /* O3: acq_rel, though it changes nothing. Pairs with O1 (sized_sweep.h): a sweep that comes later finds
     * the bit clear, and one that came before is seen here. */
    uint32_t owner = ga_or_acq_rel(heap->owners + region, 0);
    if (ga_sized_owner_class(owner) == GA_SIZED_NONE || !(owner & GA_SIZED_WATCH)) {
        return;
    }
#if GA_SIZED_MUTANT != 24
    ga_post_add_release(&heap->given, 1u); /* H2: release, after the bit. Pairs with H1. */
#endif
    /* O4: release. Pairs with O3 and with the fence of a free on the fast path: a free that is not asked
     * to tell comes after the change of `given`. */
    ga_cas_release(heap->owners + region, owner, owner & ~GA_SIZED_WATCH);
}

/* Units of one word, by one lane, whose tile has called ga_tile_publish() since it used them. On the CPU it
 * looks at the region's owner once more. On the GPU that would keep every free waiting: there the owner that
 * the free read before its fence decides, and sweeps allow for that (sized_sweep.h). */
GA_SIMT void ga_sized_give(ga_sized_view heap, uint32_t key, uint32_t bits)
{
#if GA_SIZED_MUTANT == 21
    /* Too early, and then a sweep has time to pass. */
    ga_sized_announce(heap.heap, key >> ga_sized_stride_bits(heap.region_bits));
    ga_clock_sleep(20000);
#endif
#if GA_SIZED_MUTANT == 4
    ga_post_and_relaxed(heap.bits + key, ~bits);
#else
    /* U2: release, with the tile's publish. Pairs with U1. Nothing waits for the answer. */
    ga_post_and_published(heap.bits + key, ~bits);
#endif
#if !defined __CUDACC__ && GA_SIZED_MUTANT != 21
    ga_sized_announce(heap.heap, key >> ga_sized_stride_bits(heap.region_bits));
#endif
}

/* Set those bits of a word that was the class's: which of them are not the caller's now. The word may be of
 * a region that another class has had meanwhile. Then the bits that it got go back. */
GA_SIMT uint32_t ga_sized_ask_any(ga_sized_view heap, uint32_t class_, uint32_t key, uint32_t bits)
{
    uint32_t taken = ga_sized_ask(heap, key, bits);
    uint32_t got = bits & ~taken;
    if (!got || ga_sized_is_of(heap, class_, key)) {
        return taken;
    }
    ga_sized_give(heap, key, got);
    ga_post_add_release(&heap.heap->given, 1u); /* H2: a sweep may have passed by meanwhile */
    return GA_ALL_BITS;
}

/* Take those of `bits` that are free. */
GA_SIMT uint32_t ga_sized_take(ga_sized_view heap, uint32_t class_, uint32_t key, uint32_t bits)
{
    return bits & ~ga_sized_ask_any(heap, class_, key, bits);
}

/* Where a group of `n` lanes begins, the first of them `lane`, in tile number `number`: tiles have a word
 * each, as far as there are so many, and groups of a tile, one after the other, different bits of it;
 * then they have other bits of words that are others' too. */
typedef struct ga_sized_start {
    uint32_t word, shift;
} ga_sized_start;

GA_SIMT ga_sized_start ga_sized_start_of(uint32_t all, uint32_t number, uint32_t lane, uint32_t n)
{
    ga_sized_start start = {number, lane};
    uint32_t bits = n > 1u ? 32u - ga_bits_leading(n - 1u) : 0; /* n is at most 2^bits */
    if (number >= all) {
        uint32_t round = number / all;
        start.word = number - round * all;
        start.shift += round << bits;
    }
    start.shift = start.shift >> bits << bits & 31u;
    return start;
}

/* `n` of the bits, from place `turn` on, going round. */
GA_SIMT uint32_t ga_sized_pick(uint32_t bits, uint32_t n, uint32_t turn)
{
    uint32_t back = (32u - turn) & 31u;
    uint32_t picked = ga_bits_take(bits >> turn | bits << back, n);
    return picked << turn | picked >> back;
}

#define GA_SIZED_ELSEWHERE 4u /* words that a lane looks at before its tile searches together */

/* Up to `n` units of one word anywhere, by one lane. */
GA_SIMT uint32_t ga_sized_take_elsewhere(ga_sized_view heap, ga_sized_way way, uint32_t n,
                                         uint32_t hash, uint32_t *key)
{
    uint32_t got = 0;
    uint32_t class_ = ga_sized_class_to(heap, way.unit - 1u);
    for (uint32_t i = 0; i < GA_SIZED_ELSEWHERE && !got; i++) {
        uint32_t random = ga_bits_mix(hash + i);
        *key = ga_sized_key(heap, way, (uint32_t)((uint64_t)random * way.all >> 32));
        /* relaxed: a guess, they are asked for. */
        uint32_t free = *key == GA_SIZED_NONE ? 0 : ~ga_load_relaxed(heap.bits + *key);
        got = free ? ga_sized_take(heap, class_, *key, ga_sized_pick(free, n, random & 31u)) : 0;
    }
    return got;
}

/* Up to `n` units of the word where the group begins, or of another, by one lane; a second attempt takes what
 * the first has shown to be free. Answers the bits, and the key. */
GA_SIMT uint32_t ga_sized_take_some(ga_sized_view heap, uint32_t class_, uint32_t n,
                                    uint32_t number, uint32_t lane, uint32_t *key)
{
    ga_sized_way way = ga_sized_way_of(heap.heap->of + class_);
    *key = GA_SIZED_NONE;
    if (!way.all) {
        return 0;
    }
    ga_sized_start start = ga_sized_start_of(way.all, number, lane, n);
    *key = ga_sized_key(heap, way, start.word);
    if (*key == GA_SIZED_NONE) {
        return 0;
    }
    uint32_t bits = ga_bits_below(n) << start.shift;
    uint32_t taken = ga_sized_ask_any(heap, class_, *key, bits);
    uint32_t got = bits & ~taken;
    if (got != bits) {
        uint32_t more = ga_bits_take(~(taken | bits), n - ga_bits_count(got));
        got |= more ? ga_sized_take(heap, class_, *key, more) : 0;
    }
    return got ? got : ga_sized_take_elsewhere(heap, way, n, number * 32u + lane, key);
}

/* Units of another word, for a group that found nothing at the word where it begins, if several tiles begin
 * there because the class has fewer words than there are tiles. Else none: in a heap that is filled in order
 * the search from the hint is better. */
GA_SIMT uint32_t ga_sized_take_beyond(ga_sized_view heap, uint32_t class_, uint32_t n,
                                      uint32_t number, uint32_t lane, uint32_t *key)
{
    ga_sized_way way = ga_sized_way_of(heap.heap->of + class_);
    return number < way.all ? 0 : ga_sized_take_elsewhere(heap, way, n, number * 32u + lane, key);
}

/* Which bit of them has that rank. */
GA_SIMT uint32_t ga_sized_nth(uint32_t bits, uint32_t rank)
{
    uint32_t lowest = ga_bits_lowest(bits);
    uint32_t run = bits >> lowest;
    return run & (run + 1u) ? ga_bits_nth(bits, rank)
                            : lowest + rank; /* mostly they are neighbours */
}

/* Each lane's part of what the first of its group has got. */
GA_SIMT void ga_sized_deal(ga_tile tile, uint32_t wanting, ga_lanes equal, ga_lanes keys,
                           ga_lanes bits, ga_sized_got *got)
{
    ga_lanes leaders = equal;
    GA_EACH_LANE(tile, wanting, own)
    {
        ga_lane_write(&leaders, own, ga_bits_lowest(ga_lane_read(equal, own)));
    }
    keys = ga_lanes_from(tile, keys, leaders);
    bits = ga_lanes_from(tile, bits, leaders);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t theirs = ga_lane_read(bits, own);
        uint32_t rank = ga_bits_count(ga_lane_read(equal, own) & ga_bits_below(own));
        if (rank < ga_bits_count(theirs)) {
            ga_lane_write(&got->keys, own, ga_lane_read(keys, own));
            ga_lane_write(&got->places, own, ga_sized_nth(theirs, rank));
        }
    }
}

/* ---- the search ------------------------------------------------------------------------------------- */

/* A search for units of one class, by all lanes of a tile. */
typedef struct ga_sized_search {
    uint32_t class_;
    uint32_t wanting; /* the mask of the lanes that want a unit still */
    ga_sized_got got;
    uint32_t word; /* where the last ones came from */
    uint32_t turn; /* below 32: where in what is free it begins to take, so that tiles part */
    bool lost;     /* where it looked another tile was faster: there may be more than was wanted */
} ga_sized_search;

/* Deal out what the lanes have taken: `bits` of the words `keys`. */
GA_SIMT void ga_sized_search_deal(ga_tile tile, ga_lanes words, ga_lanes keys, ga_lanes bits,
                                  ga_sized_search *search)
{
    uint32_t served = 0;
    for (uint32_t givers = ga_lanes_nonzero(tile, bits); givers; givers &= givers - 1u) {
        uint32_t giver = ga_bits_lowest(givers);
        uint32_t given = ga_lanes_get(tile, bits, giver);
        uint32_t key = ga_lanes_get(tile, keys, giver);
        uint32_t takers = ga_bits_take(search->wanting & ~ga_bits_take(search->wanting, served),
                                       ga_bits_count(given));
        search->word = ga_lanes_get(tile, words, giver);
        ga_lanes_deal(tile, search->wanting, served, given, 0, &search->got.places);
        search->got.keys = ga_lanes_select(tile, takers, ga_lanes_all(key), search->got.keys);
        served += ga_bits_count(given);
    }
    search->wanting &= ~ga_bits_take(search->wanting, served);
}

/* Look at the word of that key for each lane, GA_SIZED_NONE for none, and take as many units as are wanted:
 * all of one word, where one has as many, else what those before a lane leave to be wanted. `words` are what
 * the search is to remember. */
GA_SIMT void ga_sized_look_at(ga_sized_view heap, ga_tile tile, ga_lanes keys, ga_lanes words,
                              ga_sized_search *search)
{
    uint32_t wanted = ga_bits_count(search->wanting);
    ga_lanes room = ga_lanes_all(0);
    ga_lanes enough = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t key = ga_lane_read(keys, own);
        uint32_t taken = key == GA_SIZED_NONE ? GA_ALL_BITS : ga_load_relaxed(heap.bits + key);
        ga_lane_write(&room, own, ~taken); /* relaxed: a guess, they are asked for below */
        ga_lane_write(&enough, own, ga_bits_count(~taken) >= wanted);
    }
    uint32_t one = ga_lanes_nonzero(tile, enough);
    uint32_t chosen = one ? ga_bits_from(one, search->turn) : 0;
    ga_lanes before = ga_lanes_prefix_count(tile, room);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bits = ga_lane_read(room, own);
        uint32_t ahead = one ? (chosen == own ? 0 : wanted) : ga_lane_read(before, own);
        uint32_t key = ga_lane_read(keys, own);
        bits = ahead < wanted ? ga_sized_pick(bits, wanted - ahead, search->turn) : 0;
        uint32_t got = bits ? ga_sized_take(heap, search->class_, key, bits) : 0;
        ga_lane_write(&missed, own, bits & ~got);
        ga_lane_write(&enough, own, got);
    }
    ga_tile_sync(tile);
    search->lost = ga_lanes_any(tile, missed);
    ga_sized_search_deal(tile, words, keys, enough, search);
}

/* Look at one word of the class for each lane. */
GA_SIMT void ga_sized_look(ga_sized_view heap, ga_tile tile, ga_lanes words,
                           ga_sized_search *search)
{
    ga_sized_way way = ga_sized_way_of(heap.heap->of + search->class_);
    ga_lanes keys = ga_lanes_all(GA_SIZED_NONE);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&keys, own, ga_sized_key(heap, way, ga_lane_read(words, own)));
    }
    ga_sized_look_at(heap, tile, keys, words, search);
}

/* As many neighbouring words as the tile has lanes, from `word` on. */
GA_SIMT ga_lanes ga_sized_beside(ga_tile tile, uint32_t word, uint32_t all)
{
    ga_lanes words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t mine = word + ga_lane_read(words, own);
        ga_lane_write(&words, own, mine < all ? mine : (mine - all) % all);
    }
    return words;
}

/* A random word for each lane, of those from `from` on, `n` of them. */
GA_SIMT ga_lanes ga_sized_anywhere(ga_tile tile, uint32_t hash, uint32_t from, uint32_t n)
{
    ga_lanes words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t random = ga_bits_mix(hash + ga_lane_read(words, own));
        ga_lane_write(&words, own, from + (uint32_t)(random * n >> 32));
    }
    return words;
}

/* ---- where a class may have room ------------------------------------------------------------------------ */

/* Where a search has found room, far from where it began: others may begin there, too. */
GA_SIMT void ga_sized_hint_at(ga_sized_class *c, ga_tile tile, uint32_t start, uint32_t word,
                              uint32_t all)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: a guess. */
        ga_store_relaxed(&c->hint, word >= start ? word - start : word + all - start);
    }
}

/* `all` of the class as it is now, and the hint, the same for all lanes. */
GA_SIMT uint32_t ga_sized_now(const uint32_t *word, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes now = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&now, own, ga_load_acquire(word)); /* S1. Pairs with S2 (sized_grow.h). */
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, now, leader);
}

#define GA_SIZED_LOOKS 3u /* at random words, and at new ones, before a class gets more regions */
#define GA_SIZED_LOST  8u /* so many more, where others were faster */

/* `looks` at random words, of those from `from` on, `n` of them. */
GA_SIMT void ga_sized_search_in(ga_sized_view heap, ga_tile tile, uint32_t hash, uint32_t from,
                                uint32_t n, uint32_t looks, ga_sized_search *search)
{
    for (uint32_t looked = 0, lost = 0; looked < looks && search->wanting;) {
        uint32_t where = hash + (looked + lost) * 0x9e3779b9u;
        ga_sized_look(heap, tile, ga_sized_anywhere(tile, where, from, n), search);
        bool again = search->lost && lost < GA_SIZED_LOST; /* there was room */
        lost += again;
        looked += !again;
    }
}

/* One look where the hint points, some anywhere, some at the words that the class got last: a class
 * grows by a 32nd, which few of those who look anywhere would see, the fewer the smaller their
 * tiles are, and each of them would make it grow again. */
GA_SIMT void ga_sized_search_near(ga_sized_view heap, ga_tile tile, uint32_t number, uint32_t all,
                                  ga_sized_search *search)
{
    ga_sized_class *c = heap.heap->of + search->class_;
    uint32_t start = number % all;
    uint32_t word = (start + ga_sized_now(&c->hint, tile) % all) % all;
    uint32_t hash = ga_bits_mix(number) +
                    ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    uint32_t last = all / GA_SIZED_PART > c->way.words ? all / GA_SIZED_PART : c->way.words;
    ga_sized_look(heap, tile, ga_sized_beside(tile, word, all), search);
    if (!search->wanting) {
        return;
    }
    ga_sized_search_in(heap, tile, hash, 0, all, GA_SIZED_LOOKS, search);
    ga_sized_search_in(heap, tile, ~hash, all - last, last, GA_SIZED_LOOKS, search);
    if (!search->wanting) {
        ga_sized_hint_at(c, tile, start, search->word, all);
    }
}

#endif
