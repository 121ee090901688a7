/* SPDX-License-Identifier: MIT
 *
 * Regions for those who want some: classes one or more, runs neighbours (sized_heap.h has the drawing).
 *
 * STRUCTURE  Regions from `next` on have never been handed out. Those below are somebody's, or free,
 *            which a bit in the pool says. Who wants regions looks for neighbours within one word of the
 *            pool, then moves `next`, both without waiting. Where that gives nothing he takes the turn,
 *            puts what is left above `next` into the pool as well, and looks at all of it, over
 *            the words' borders; if that is not enough, he waits for memory.
 *
 * INVARIANT  A region is its taker's from the moment he cleared its bit, or moved `next` past it. Bits of
 *            one word are taken all together or not at all. Only who has the turn takes from several
 *            words, so nobody else ever has to put back what another one might have used.
 *            `pooled` is never less than the bits that are set.
 *
 * ORDER      P1 and P2: what the last owner did with a region happens before what the next one does.
 *            Q1 and Q2: who has the turn finds whole what the one before put back. H1 and H2: a tile that
 *            believes a search to have been in vain sees that nothing was given back since. N1 and N2: a
 *            tile that sees that regions have been taken sees the turn of the class they are for.
 *
 * PROGRESS   Without the turn nobody waits for anybody. Who has it waits for memory at most, as growth.h
 *            says. It answers none where there are no such neighbours, which is exact as long as
 *            nobody frees.
 */
#ifndef GPUALLOC_SLAB_SIZED_POOL_H
#define GPUALLOC_SLAB_SIZED_POOL_H

#include "../arena/growth.h"
#include "../simt/clock.h"
#include "../simt/simt.h"
#include "sized_heap.h"

/* Neighbouring regions that somebody wants: `least` up to `most`. The number of the first, and `phase` added to
 * it, is a multiple of `align`, a power of two. */
typedef struct ga_sized_wish {
    uint32_t least, most;
    uint32_t align, phase;
} ga_sized_wish;

/* Neighbouring regions; none where `n` is 0. */
typedef struct ga_sized_part {
    uint32_t first, n;
} ga_sized_part;

/* growth.h: a region needs nothing before somebody has it. */
GA_SIMT void ga_sized_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    (void)tile;
    (void)context;
    (void)from;
    (void)to;
}

/* How many regions have memory. By one lane. */
GA_SIMT uint32_t ga_sized_ready_alone(const ga_sized_heap *heap)
{
    return heap->growth ? ga_growth_ready(heap->growth) : heap->fixed;
}

/* The same for all lanes. */
GA_SIMT uint32_t ga_sized_ready(const ga_sized_heap *heap, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes ready = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&ready, own, ga_sized_ready_alone(heap));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, ready, leader);
}

/* A word that others change, the same for all lanes. Relaxed: a guess. */
GA_SIMT uint32_t ga_sized_seen(const uint32_t *word, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes now = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&now, own, ga_load_relaxed(word));
    }
    return ga_lanes_get(tile, now, leader);
}

/* The first region from `region` on that stands where the wish wants it. */
GA_SIMT uint32_t ga_sized_aligned(ga_sized_wish wish, uint32_t region)
{
    return region + ((0u - (region + wish.phase)) & (wish.align - 1u));
}

/* ---- one word of the pool: by one lane ------------------------------------------------------------------ */

/* The regions of the part that word number `index` is about. */
GA_SIMT uint32_t ga_sized_pool_bits(ga_sized_part part, uint32_t index)
{
    uint32_t from = part.first > index * 32u ? part.first - index * 32u : 0;
    uint32_t to = part.first + part.n - index * 32u;
    return ga_bits_below(to < 32u ? to : 32u) & ~ga_bits_below(from);
}

/* Take these regions, if all of them are free. */
GA_SIMT bool ga_sized_pool_take_bits(uint32_t *word, uint32_t bits)
{
    uint32_t seen = ga_load_relaxed(word); /* relaxed: a guess */
    while ((seen & bits) == bits) {
#if GA_SIZED_MUTANT == 11
        uint32_t now = ga_cas_relaxed(word, seen, seen & ~bits);
#elif GA_SIZED_MUTANT == 13
        uint32_t now = seen;
        ga_store_relaxed(word, seen & ~bits);
#else
        /* P1: acquire. Pairs with P2: the last owners are done with them. */
        uint32_t now = ga_cas_acquire(word, seen, seen & ~bits);
#endif
        if (now == seen) {
            return true;
        }
        seen = now;
    }
    return false;
}

/* The places in the word number `index` where as many neighbours begin as are wanted; `least` is at most
 * 32. */
GA_SIMT uint32_t ga_sized_pool_fits(uint32_t word, uint32_t index, ga_sized_wish wish)
{
    for (uint32_t have = 1; have < wish.least && word;) {
        uint32_t step = wish.least - have < have ? wish.least - have : have;
        word &= word >> step;
        have += step;
    }
    if (wish.align > 1u && word) {
        uint32_t places = 0;
        uint32_t first = ga_sized_aligned(wish, index * 32u) - index * 32u;
        for (uint32_t place = first; place < 32u; place += wish.align) {
            places |= 1u << place;
        }
        word &= places;
    }
    return word;
}

/* Of the neighbours that are free from `place` on, as many as are wanted at most. */
GA_SIMT uint32_t ga_sized_pool_beside(uint32_t word, uint32_t place, uint32_t most)
{
    uint32_t taken = ~(word >> place);
    uint32_t n = taken ? ga_bits_lowest(taken) : 32u;
    return n < most ? n : most;
}

/* ---- the pool: by all lanes ------------------------------------------------------------------------------ */

/* The regions are anybody's. What all lanes did with them before has been done. */
GA_SIMT void ga_sized_pool_give(ga_sized_heap *heap, ga_tile tile, ga_sized_part part)
{
    uint32_t leader = ga_tile_leader(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        /* relaxed: before the bits, which release it. */
        ga_post_add_relaxed(&heap->pooled, part.n);
    }
    ga_tile_publish(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t index = part.first / 32u + ga_lane_read(ranks, own);
        for (; index * 32u < part.first + part.n; index += ga_tile_size(tile)) {
#if GA_SIZED_MUTANT == 12
            ga_post_or_relaxed(heap->pool + index, ga_sized_pool_bits(part, index));
#else
            /* P2: release, with the tile's publish. Pairs with P1. */
            ga_post_or_published(heap->pool + index, ga_sized_pool_bits(part, index));
#endif
        }
    }
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        ga_store_relaxed(&heap->pool_hint, part.first / 32u); /* relaxed: a guess */
        /* H2: release, after the bits. Pairs with H1: a tile that still sees the old number has not missed
         * these. */
        ga_post_add_release(&heap->given, 1u);
    }
}

/* The words of the pool that can have bits. */
GA_SIMT uint32_t ga_sized_pool_words(const ga_sized_heap *heap, ga_tile tile)
{
    return (ga_sized_seen(&heap->next, tile) + 31u) / 32u;
}

/* One word of the pool for each lane, `from` on and going round, but no more than `n` of them. */
GA_SIMT ga_lanes ga_sized_pool_load(const ga_sized_heap *heap, ga_tile tile, uint32_t words,
                                    uint32_t from, uint32_t n)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes loaded = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_lane_read(ranks, own);
        if (rank < n) {
            /* relaxed: a guess. */
            ga_lane_write(&loaded, own, ga_load_relaxed(heap->pool + (from + rank) % words));
        }
    }
    return loaded;
}

/* The part that the lane can take of the word that it has loaded. */
GA_SIMT ga_sized_part ga_sized_pool_try(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish,
                                        uint32_t giver, uint32_t index, uint32_t word)
{
    ga_lanes first = ga_lanes_all(0);
    ga_lanes n = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << giver, own)
    {
        uint32_t place = ga_bits_lowest(ga_sized_pool_fits(word, index, wish));
        ga_sized_part part = {index * 32u + place, ga_sized_pool_beside(word, place, wish.most)};
        if (ga_sized_pool_take_bits(heap->pool + index, ga_sized_pool_bits(part, index))) {
            /* N1: release. Pairs with N2. After the bits, so that it was never less than these. */
            ga_post_add_release(&heap->pooled, 0u - part.n);
            ga_store_relaxed(&heap->pool_hint, index);
            ga_lane_write(&first, own, part.first);
            ga_lane_write(&n, own, part.n);
        }
    }
    ga_tile_sync(tile);
    ga_sized_part part = {ga_lanes_get(tile, first, giver), ga_lanes_get(tile, n, giver)};
    return part;
}

/* Neighbours within one word. */
GA_SIMT ga_sized_part ga_sized_pool_one(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish)
{
    ga_sized_part none = {0, 0};
    uint32_t words = ga_sized_pool_words(heap, tile);
    if (wish.least > 32u || ga_sized_seen(&heap->pooled, tile) < wish.least || !words) {
        return none;
    }
    uint32_t hint = ga_sized_seen(&heap->pool_hint, tile) % words;
    for (uint32_t done = 0; done < words;) {
        ga_lanes loaded = ga_sized_pool_load(heap, tile, words, hint + done, words - done);
        ga_lanes ranks = ga_tile_ranks(tile);
        ga_lanes fits = ga_lanes_all(0);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t index = (hint + done + ga_lane_read(ranks, own)) % words;
            ga_lane_write(&fits, own, ga_sized_pool_fits(ga_lane_read(loaded, own), index, wish));
        }
        uint32_t givers = ga_lanes_nonzero(tile, fits);
        if (!givers) {
            done += ga_tile_size(tile);
            continue;
        }
        uint32_t giver = ga_bits_lowest(givers);
        uint32_t index = (hint + done + ga_lanes_get(tile, ranks, giver)) % words;
        ga_sized_part part =
            ga_sized_pool_try(heap, tile, wish, giver, index, ga_lanes_get(tile, loaded, giver));
        if (part.n) {
            return part;
        }
    }
    return none;
}

/* ---- by moving `next` -------------------------------------------------------------------------------------- */

/* Regions that nobody has had; those before them that stand wrong go to the pool. */
GA_SIMT ga_sized_part ga_sized_bump(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes first = ga_lanes_all(0);
    ga_lanes n = ga_lanes_all(0);
    ga_lanes left = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t ready = ga_sized_ready_alone(heap);
        uint32_t next = ga_load_relaxed(&heap->next); /* relaxed: the numbers are handed out */
        for (;;) {
            uint32_t at = ga_sized_aligned(wish, next);
            if (at > ready || ready - at < wish.least) {
                break;
            }
            uint32_t most = ready - at < wish.most ? ready - at : wish.most;
            uint32_t seen = ga_cas_release(&heap->next, next, at + most); /* N1. Pairs with N2. */
            if (seen == next) {
                ga_lane_write(&first, own, at);
                ga_lane_write(&n, own, most);
                ga_lane_write(&left, own, at - next);
                break;
            }
            next = seen;
        }
    }
    ga_tile_sync(tile);
    ga_sized_part part = {ga_lanes_get(tile, first, leader), ga_lanes_get(tile, n, leader)};
    uint32_t before = ga_lanes_get(tile, left, leader);
    if (before) {
        ga_sized_part skipped = {part.first - before, before};
        ga_sized_pool_give(heap, tile, skipped);
    }
    return part;
}

/* What can be had without waiting. */
GA_SIMT ga_sized_part ga_sized_regions_take(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish)
{
    ga_sized_part part = ga_sized_pool_one(heap, tile, wish);
    return part.n ? part : ga_sized_bump(heap, tile, wish);
}

/* ---- with the turn: neighbours over several words --------------------------------------------------------- */

/* Take the part, if all of it is free. */
GA_SIMT bool ga_sized_pool_take(ga_sized_heap *heap, ga_tile tile, ga_sized_part part)
{
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes taken = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t index = part.first / 32u + ga_lane_read(ranks, own);
        uint32_t words = 0;
        for (; index * 32u < part.first + part.n; index += size) {
            if (!ga_sized_pool_take_bits(heap->pool + index, ga_sized_pool_bits(part, index))) {
                ga_lane_write(&missed, own, 1u);
                break;
            }
            words++;
        }
        ga_lane_write(&taken, own, words);
    }
    ga_tile_sync(tile);
    bool all = !ga_lanes_any(tile, missed);
    GA_EACH_LANE(tile, all ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_post_add_release(&heap->pooled, 0u - part.n); /* N1, after the bits, as above */
    }
    GA_EACH_LANE(tile, all ? 0 : ga_tile_lanes(tile), own)
    {
        uint32_t index = part.first / 32u + ga_lane_read(ranks, own);
        for (uint32_t i = 0; i < ga_lane_read(taken, own); i++, index += size) {
            /* P2, as above: release. Pairs with P1: nothing was done with them, but before our own
             * P1 something may have been. */
            ga_post_or_release(heap->pool + index, ga_sized_pool_bits(part, index));
        }
    }
    ga_tile_sync(tile);
    return all;
}

/* Neighbours that a look at the pool has found: they begin at `begin`, and end before `end`. */
typedef struct ga_sized_stretch {
    uint32_t begin, end;
} ga_sized_stretch;

/* The stretch goes on with what is free in word number `index`: up to where it is enough, or to the end. */
GA_SIMT bool ga_sized_stretch_on(ga_sized_stretch *stretch, uint32_t word, uint32_t index,
                                 ga_sized_wish wish)
{
    while (word) {
        uint32_t place = ga_bits_lowest(word);
        uint32_t n = ga_sized_pool_beside(word, place, 32u);
        if (stretch->end != index * 32u + place) {
            stretch->begin = index * 32u + place;
        }
        stretch->end = index * 32u + place + n;
        uint32_t first = ga_sized_aligned(wish, stretch->begin);
        if (first < stretch->end && stretch->end - first >= wish.least) {
            return true;
        }
        word &= ~(ga_bits_below(n) << place);
    }
    return false;
}

/* The first neighbours that are enough; where there are none the last ones, which may end at `next`. */
GA_SIMT bool ga_sized_pool_search(const ga_sized_heap *heap, ga_tile tile, uint32_t words,
                                  ga_sized_wish wish, ga_sized_stretch *stretch)
{
    uint32_t size = ga_tile_size(tile);
    stretch->begin = stretch->end = 0;
    for (uint32_t done = 0; done < words; done += size) {
        ga_lanes loaded = ga_sized_pool_load(heap, tile, words, done, words - done);
        uint32_t some = ga_lanes_nonzero(tile, loaded);
        for (uint32_t rest = some; rest; rest &= rest - 1u) {
            uint32_t lane = ga_bits_lowest(rest);
            uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(lane));
            if (ga_sized_stretch_on(stretch, ga_lanes_get(tile, loaded, lane), done + rank, wish)) {
                return true;
            }
        }
    }
    return false;
}

/* All regions that have memory are below `next`: answers that. */
GA_SIMT uint32_t ga_sized_pool_rest(ga_sized_heap *heap, ga_tile tile)
{
    ga_sized_wish all = {1u, GA_SIZED_NONE, 1u, 0};
    ga_sized_part rest = ga_sized_bump(heap, tile, all);
    if (rest.n) {
        ga_sized_pool_give(heap, tile, rest);
        return rest.first + rest.n;
    }
    return ga_sized_seen(&heap->next, tile);
}

/* By the tile that has the turn. It waits for memory where it must. */
GA_SIMT ga_sized_part ga_sized_regions_search(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish)
{
    ga_sized_part none = {0, 0};
    for (;;) {
        ga_sized_part part = ga_sized_regions_take(heap, tile, wish);
        if (part.n) {
            return part;
        }
        ga_sized_stretch stretch;
        uint32_t end = ga_sized_pool_rest(heap, tile);
        if (ga_sized_pool_search(heap, tile, (end + 31u) / 32u, wish, &stretch)) {
            part.first = ga_sized_aligned(wish, stretch.begin);
            part.n = wish.least;
            if (ga_sized_pool_take(heap, tile, part)) {
                return part;
            }
            continue; /* another one was faster with some of them */
        }
        uint32_t begin = ga_sized_aligned(wish, stretch.end == end ? stretch.begin : end);
        if (!heap->growth || begin > heap->regions || heap->regions - begin < wish.least ||
            ga_growth_await(tile, heap->growth, begin + wish.least, ga_sized_prepare, heap) !=
                GA_GROWTH_GRANTED) {
            return none;
        }
    }
}

/* ---- whether it is worth it ---------------------------------------------------------------------------------- */

/* A search for `least` neighbours was in vain, when so much had been given back. By one lane. */
GA_SIMT void ga_sized_hopeless_since(ga_sized_heap *heap, uint32_t given, uint32_t least)
{
    /* relaxed: who believes it asks whether `given` is the same. */
    ga_store64_relaxed(&heap->hopeless, (uint64_t)given << 32 | least);
}

/* Whether there is no use in a search for so many: there are not as many in all, or the last one was in vain,
 * nothing was given back since, and there is no more memory. By one lane. */
GA_SIMT bool ga_sized_hopeless(const ga_sized_heap *heap, uint32_t least)
{
    /* N2: acquire. Pairs with N1: a tile that has taken the last region for a class has that class's turn. */
    uint32_t next = ga_load_acquire(&heap->next);
    if (heap->regions - next + ga_load_acquire(&heap->pooled) < least) {
        return true;
    }
    uint64_t since = ga_load64_relaxed(&heap->hopeless);
    /* H1: acquire. Pairs with H2. */
    if (!(uint32_t)since || (uint32_t)since > least ||
        (uint32_t)(since >> 32) != ga_load_acquire(&heap->given) ||
        ga_sized_ready_alone(heap) != next) {
        return false;
    }
    uint32_t standing = heap->growth && next < heap->regions
                            ? ga_growth_load_state(heap->growth, next + 1u, ga_clock_ns())
                            : GA_GROWTH_LIMIT;
    return standing != GA_GROWTH_GRANTED && standing != GA_GROWTH_UNDECIDED;
}

typedef enum ga_sized_run_turn {
    GA_SIZED_RUN_WAIT = 0,
    GA_SIZED_RUN_TURN,
    GA_SIZED_RUN_NONE
} ga_sized_run_turn;

/* The turn, or that there is no hope; and how much had been given back then. */
GA_SIMT uint32_t ga_sized_run_turn_try(ga_sized_heap *heap, ga_tile tile, uint32_t least,
                                       uint32_t *given)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes turn = ga_lanes_all(0);
    ga_lanes seen = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (ga_sized_hopeless(heap, least)) {
            ga_lane_write(&turn, own, GA_SIZED_RUN_NONE);
            /* Q1: acquire. Pairs with Q2: nothing of the last one's is between taken and put back. */
        } else if (!ga_load_relaxed(&heap->run_turn) &&
                   ga_cas_acquire(&heap->run_turn, 0, 1u) == 0) {
            ga_lane_write(&turn, own, GA_SIZED_RUN_TURN);
        }
        ga_lane_write(&seen, own, ga_load_acquire(&heap->given)); /* H1 */
    }
    ga_tile_sync(tile);
    *given = ga_lanes_get(tile, seen, leader);
    return ga_lanes_get(tile, turn, leader);
}

GA_SIMT void ga_sized_run_turn_end(ga_sized_heap *heap, ga_tile tile, ga_sized_wish wish,
                                   uint32_t given, bool found)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        if (!found && wish.align == 1u) {
            ga_sized_hopeless_since(heap, given, wish.least);
        }
        ga_store_release(&heap->run_turn, 0); /* Q2: release. Pairs with Q1. */
    }
    ga_tile_sync(tile);
}

#define GA_SIZED_NAP  500u /* ns, and so many times for twice as long as before */
#define GA_SIZED_NAPS 4u

/* Regions for the tile of these lanes; n is 0 where there are none. It waits for memory where it must. Part of
 * functions that are slow anyway: one of its own would cost kernels twenty registers more. */
GA_SIMT ga_sized_part ga_sized_regions_find(ga_sized_heap *heap, uint32_t lanes, ga_sized_wish wish)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_part part = {0, 0};
    uint32_t given;
    for (uint32_t rounds = 0; wish.least <= heap->regions; rounds++) {
        part = ga_sized_regions_take(heap, tile, wish);
        if (part.n) {
            return part;
        }
        uint32_t turn = ga_sized_run_turn_try(heap, tile, wish.least, &given);
        if (turn == GA_SIZED_RUN_TURN) {
            part = ga_sized_regions_search(heap, tile, wish);
            ga_sized_run_turn_end(heap, tile, wish, given, part.n != 0);
        }
        if (turn != GA_SIZED_RUN_WAIT) {
            return part;
        }
        ga_clock_sleep(GA_SIZED_NAP << (rounds < GA_SIZED_NAPS ? rounds : GA_SIZED_NAPS));
    }
    return part;
}

#endif
