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
 *            a region more, for as long as growth.h says; where there is none it looks at each word
 *            of the class, and answers none. That is exact as long as nobody frees.
 */
#ifndef GPUALLOC_SLAB_SIZED_TILE_H
#define GPUALLOC_SLAB_SIZED_TILE_H

#include "../simt/simt.h"
#include "sized_grow.h"
#include "sized_heap.h"
#include "sized_places.h"

/* ---- the usual claim: at the word of the caller's number ----------------------------------------- */

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

/* Take those of `bits` that are free. By one lane. */
GA_SIMT uint32_t ga_sized_take(ga_sized_view heap, uint32_t key, uint32_t bits)
{
    return bits & ~ga_sized_ask(heap, key, bits);
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
    for (uint32_t i = 0; i < GA_SIZED_ELSEWHERE && !got; i++) {
        uint32_t random = ga_bits_mix(hash + i);
        *key = ga_sized_key(heap, way, (uint32_t)((uint64_t)random * way.all >> 32));
        /* relaxed: a guess, they are asked for. */
        uint32_t free = *key == GA_SIZED_NONE ? 0 : ~ga_load_relaxed(heap.bits + *key);
        got = free ? ga_sized_take(heap, *key, ga_sized_pick(free, n, random & 31u)) : 0;
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
    uint32_t taken = ga_sized_ask(heap, *key, bits);
    uint32_t got = bits & ~taken;
    if (got != bits) {
        uint32_t more = ga_bits_take(~(taken | bits), n - ga_bits_count(got));
        got |= more ? ga_sized_take(heap, *key, more) : 0;
    }
    return got ? got : ga_sized_take_elsewhere(heap, way, n, number * 32u + lane, key);
}

/* The same for a group that found nothing at the word where it begins: where that was another's as
 * well, since the class has fewer words than there are tiles. Else nothing: in a heap that is filled in
 * order, the hint knows better. */
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

/* Look at one word of the class for each lane, and take as many units as are wanted: all of one word,
 * where one has as many, else what those before a lane leave to be wanted. */
GA_SIMT void ga_sized_look(ga_sized_view heap, ga_tile tile, ga_lanes words,
                           ga_sized_search *search)
{
    ga_sized_way way = ga_sized_way_of(heap.heap->of + search->class_);
    uint32_t wanted = ga_bits_count(search->wanting);
    ga_lanes keys = ga_lanes_all(GA_SIZED_NONE);
    ga_lanes room = ga_lanes_all(0);
    ga_lanes enough = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t key = ga_sized_key(heap, way, ga_lane_read(words, own));
        uint32_t taken = key == GA_SIZED_NONE ? GA_ALL_BITS : ga_load_relaxed(heap.bits + key);
        ga_lane_write(&keys, own, key);
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
        bits = ahead < wanted ? ga_sized_pick(bits, wanted - ahead, search->turn) : 0;
        uint32_t got = bits ? ga_sized_take(heap, ga_lane_read(keys, own), bits) : 0;
        ga_lane_write(&missed, own, bits & ~got);
        ga_lane_write(&enough, own, got);
    }
    ga_tile_sync(tile);
    search->lost = ga_lanes_any(tile, missed);
    ga_sized_search_deal(tile, words, keys, enough, search);
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

/* Look at every word of the class, from where the tile's number points. */
GA_SIMT void ga_sized_sweep(ga_sized_view heap, ga_tile tile, uint32_t number, uint32_t all,
                            ga_sized_search *search)
{
    uint32_t size = ga_tile_size(tile);
    uint32_t begin = number % all / size * size;
    for (uint32_t done = 0; done < all && search->wanting; done += search->lost ? 0 : size) {
        uint32_t word = begin + done < all ? begin + done : begin + done - all;
        ga_sized_look(heap, tile, ga_sized_beside(tile, word, all), search);
    }
}

/* ---- the rest of a claim ------------------------------------------------------------------------------ */

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
    for (;;) {
        if (all) {
            ga_sized_search_near(view, tile, number, all, &search);
        }
        if (!search.wanting || !ga_sized_grow(heap, tile, class_, all)) {
            break;
        }
        uint32_t now = ga_sized_now(&c->way.all, tile);
        ga_sized_hint_at(c, tile, number % now, all, now); /* where the new ones begin */
        all = now;
    }
    if (search.wanting && all) {
        uint32_t missing = search.wanting;
        ga_sized_sweep(view, tile, number, all, &search);
        if (search.wanting != missing) { /* the next one need not come so far */
            ga_sized_hint_at(c, tile, number % all, search.word, all);
        }
    }
    if (search.wanting) {
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_post_add_relaxed(&c->refused, ga_bits_count(search.wanting)); /* relaxed: a count */
        }
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
            bits |= free ? ga_sized_take(heap, key, ga_bits_take(free, more)) : 0;
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

/* Units of one word, by one lane, whose tile has called ga_tile_publish() since it used them. */
GA_SIMT void ga_sized_give(ga_sized_view heap, uint32_t key, uint32_t bits)
{
#if GA_SIZED_MUTANT == 4
    ga_post_and_relaxed(heap.bits + key, ~bits);
#else
    /* U2: release, with the tile's publish. Pairs with U1. Nothing waits for the answer. */
    ga_post_and_published(heap.bits + key, ~bits);
#endif
}

/* The same, all of one word, by all lanes of the tile. */
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
