/* SPDX-License-Identifier: MIT
 *
 * The pool of free regions: it serves classes with one region or more, and runs with contiguous
 * ones. sized_heap.h has the drawing.
 *
 *     regions_alloc               (names without ga_sized_)
 *      |- regions_alloc_fast      pool_alloc_fast: within one word of the pool; else
 *      |                          bump: move `next`
 *      |- pool_try_lock           gives up if the pool is known to be full
 *      '- regions_alloc_locked    pool_search: across words; else waits for memory (growth.h)
 *
 * STRUCTURE  Regions from `next` on have never been in use. A region below `next` is in use, or
 *            free, and then its bit in the pool is set. An allocation looks for enough contiguous
 *            regions within one word of the pool, then moves `next`; neither waits. If both fail,
 *            the tile takes `pool_lock`, puts the regions that are left above `next` into the pool
 *            as well, and searches all of it, across words. If that is not enough, it waits for
 *            memory.
 *
 * INVARIANT  A region belongs to a tile from the time the tile cleared its bit, or moved `next`
 *            past it. Bits of one word are cleared together or not at all. Only the holder of
 *            `pool_lock` clears bits of several words, so no other tile ever has to set bits again
 *            that a third one might have used. `pooled` is never less than the number of bits that
 *            are set.
 *
 * ORDER      KP1 and KP2: the last owner's accesses to a region happen before those of the next
 *            one. KQ1 and KQ2: the holder of `pool_lock` sees all bits that the one before has set
 *            again. KH1 and KH2: a tile that relies on the failure of an earlier search sees that
 *            nothing was freed since. KN1 and KN2: a tile that sees that regions have been taken
 *            sees the `grow_lock` of the class that they are for.
 *
 * PROGRESS   The fast paths do not wait. A tile that needs `pool_lock` waits for its holder, and
 *            the holder waits for memory at most, as growth.h says. An allocation fails only if
 *            there are no such contiguous regions. That is exact as long as no region is freed.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_POOL_H
#define GPUALLOC_SLAB_CLASSES_SIZED_POOL_H

#include "../../../growth/growth.h"
#include "../../../simt/clock.h"
#include "../../../simt/simt.h"
#include "sized_heap.h"

/* A request for `min` to `max` contiguous regions. The number of the first plus `phase` must be
 * a multiple of `align`, a power of two. */
typedef struct ga_sized_request {
    uint32_t min, max;
    uint32_t align, phase;
} ga_sized_request;

/* Contiguous regions; none if `n` is 0. */
typedef struct ga_sized_extent {
    uint32_t first, n;
} ga_sized_extent;

/* For growth.h: a region that has been committed needs no preparation. */
GA_SIMT void ga_sized_prepare_nothing(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    (void)tile;
    (void)context;
    (void)from;
    (void)to;
}

/* The number of regions that have memory. By one lane. */
GA_SIMT uint32_t ga_sized_ready(const ga_sized_heap *heap)
{
    return heap->growth ? ga_growth_ready(heap->growth) : heap->fixed;
}

/* Relaxed load by the leader, for all lanes. The value is a guess: other tiles change the word. */
GA_SIMT uint32_t ga_sized_load_guess(const uint32_t *word, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes now = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&now, own, ga_load_relaxed(word));
    }
    return ga_lanes_get(tile, now, leader);
}

/* The first region from `region` on that satisfies the request's alignment. */
GA_SIMT uint32_t ga_sized_align_up(ga_sized_request request, uint32_t region)
{
    return region + ((0u - (region + request.phase)) & (request.align - 1u));
}

/* ---- one word of the pool: by one lane ------------------------------------------------- */

/* The bits of word `index` for the regions of the extent. */
GA_SIMT uint32_t ga_sized_pool_mask(ga_sized_extent extent, uint32_t index)
{
    uint32_t from = extent.first > index * 32u ? extent.first - index * 32u : 0;
    uint32_t to = extent.first + extent.n - index * 32u;
    return ga_bits_below(to < 32u ? to : 32u) & ~ga_bits_below(from);
}

/* Clear these bits of the word, if all of them are set. */
GA_SIMT bool ga_sized_pool_claim_bits(uint32_t *word, uint32_t bits)
{
    uint32_t seen = ga_load_relaxed(word); /* relaxed: a guess */
    while ((seen & bits) == bits) {
#if GA_PLANTED(sized_regions_claim_relaxed)
        uint32_t now = ga_cas_relaxed(word, seen, seen & ~bits);
#elif GA_PLANTED(sized_regions_claim_not_atomic)
        uint32_t now = seen;
        ga_store_relaxed(word, seen & ~bits);
#else
        /* KP1: acquire. Pairs with KP2: the last owners are done with the regions. */
        uint32_t now = ga_cas_acquire(word, seen, seen & ~bits);
#endif
        if (now == seen) {
            return true;
        }
        seen = now;
    }
    return false;
}

/* The bits of word `index` at which enough contiguous free regions begin; `min` is at most 32. */
GA_SIMT uint32_t ga_sized_pool_starts(uint32_t word, uint32_t index, ga_sized_request request)
{
    for (uint32_t have = 1; have < request.min && word;) {
        uint32_t step = request.min - have < have ? request.min - have : have;
        word &= word >> step;
        have += step;
    }
    if (request.align > 1u && word) {
        uint32_t aligned = 0;
        uint32_t first = ga_sized_align_up(request, index * 32u) - index * 32u;
        for (uint32_t bit_index = first; bit_index < 32u; bit_index += request.align) {
            aligned |= 1u << bit_index;
        }
        word &= aligned;
    }
    return word;
}

/* The number of contiguous free regions from bit `bit_index` on, at most `max`. */
GA_SIMT uint32_t ga_sized_pool_free_from(uint32_t word, uint32_t bit_index, uint32_t max)
{
    uint32_t taken = ~(word >> bit_index);
    uint32_t n = taken ? ga_bits_lowest(taken) : 32u;
    return n < max ? n : max;
}

/* ---- the pool: by all lanes ------------------------------------------------------------ */

/* Free the regions. All lanes have finished their accesses to them. */
GA_SIMT void ga_sized_pool_free(ga_sized_heap *heap, ga_tile tile, ga_sized_extent extent)
{
    uint32_t leader = ga_tile_leader(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        /* relaxed: the bits are set later, and release it */
        ga_post_add_relaxed(&heap->pooled, extent.n);
    }
    ga_tile_publish(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t index = extent.first / 32u + ga_lane_read(ranks, own);
        for (; index * 32u < extent.first + extent.n; index += ga_tile_size(tile)) {
#if GA_PLANTED(sized_regions_release_relaxed)
            ga_post_or_relaxed(heap->pool + index, ga_sized_pool_mask(extent, index));
#else
            /* KP2: release, with the tile's publish. Pairs with KP1. */
            ga_post_or_published(heap->pool + index, ga_sized_pool_mask(extent, index));
#endif
        }
    }
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        ga_store_relaxed(&heap->pool_hint, extent.first / 32u); /* relaxed: a guess */
        /* KH2: release, after the bits. Pairs with KH1: a tile that still reads the old count has
         * not missed these bits. */
        ga_post_add_release(&heap->releases, 1u);
    }
}

/* The number of words of the pool that can have bits. */
GA_SIMT uint32_t ga_sized_pool_words(const ga_sized_heap *heap, ga_tile tile)
{
    return (ga_sized_load_guess(&heap->next, tile) + 31u) / 32u;
}

/* Load one word of the pool for each lane, at most `n`, from word `from` on and wrapping round. */
GA_SIMT ga_lanes ga_sized_pool_load(const ga_sized_heap *heap, ga_tile tile, uint32_t words,
                                    uint32_t from, uint32_t n)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes loaded = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_lane_read(ranks, own);
        if (rank < n) {
            /* relaxed: a guess */
            ga_lane_write(&loaded, own, ga_load_relaxed(heap->pool + (from + rank) % words));
        }
    }
    return loaded;
}

/* Claim an extent from the word that lane `finder` has loaded. */
GA_SIMT ga_sized_extent ga_sized_pool_try_word(ga_sized_heap *heap, ga_tile tile,
                                               ga_sized_request request, uint32_t finder,
                                               uint32_t index, uint32_t word)
{
    ga_lanes first = ga_lanes_all(0);
    ga_lanes n = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << finder, own)
    {
        uint32_t bit_index = ga_bits_lowest(ga_sized_pool_starts(word, index, request));
        ga_sized_extent extent = {index * 32u + bit_index,
                                  ga_sized_pool_free_from(word, bit_index, request.max)};
        if (ga_sized_pool_claim_bits(heap->pool + index, ga_sized_pool_mask(extent, index))) {
            /* KN1: release. Pairs with KN2. After the bits, so that `pooled` was never less than
             * their number. */
            ga_post_add_release(&heap->pooled, 0u - extent.n);
            ga_store_relaxed(&heap->pool_hint, index);
            ga_lane_write(&first, own, extent.first);
            ga_lane_write(&n, own, extent.n);
        }
    }
    ga_tile_sync(tile);
    ga_sized_extent extent = {ga_lanes_get(tile, first, finder), ga_lanes_get(tile, n, finder)};
    return extent;
}

/* Contiguous regions within one word of the pool. */
GA_SIMT ga_sized_extent ga_sized_pool_alloc_fast(ga_sized_heap *heap, ga_tile tile,
                                                 ga_sized_request request)
{
    ga_sized_extent none = {0, 0};
    uint32_t words = ga_sized_pool_words(heap, tile);
    if (request.min > 32u || ga_sized_load_guess(&heap->pooled, tile) < request.min || !words) {
        return none;
    }
    uint32_t hint = ga_sized_load_guess(&heap->pool_hint, tile) % words;
    for (uint32_t done = 0; done < words;) {
        ga_lanes loaded = ga_sized_pool_load(heap, tile, words, hint + done, words - done);
        ga_lanes ranks = ga_tile_ranks(tile);
        ga_lanes fits = ga_lanes_all(0);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t index = (hint + done + ga_lane_read(ranks, own)) % words;
            ga_lane_write(&fits, own,
                          ga_sized_pool_starts(ga_lane_read(loaded, own), index, request));
        }
        uint32_t finders = ga_lanes_nonzero(tile, fits);
        if (!finders) {
            done += ga_tile_size(tile);
            continue;
        }
        uint32_t finder = ga_bits_lowest(finders);
        uint32_t index = (hint + done + ga_lanes_get(tile, ranks, finder)) % words;
        ga_sized_extent extent = ga_sized_pool_try_word(heap, tile, request, finder, index,
                                                        ga_lanes_get(tile, loaded, finder));
        if (extent.n) {
            return extent;
        }
    }
    return none;
}

/* ---- by moving `next` ------------------------------------------------------------------ */

/* Regions that were never in use. Regions that are skipped for the alignment go to the pool. */
GA_SIMT ga_sized_extent ga_sized_bump(ga_sized_heap *heap, ga_tile tile, ga_sized_request request)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes first = ga_lanes_all(0);
    ga_lanes n = ga_lanes_all(0);
    ga_lanes gaps = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t ready = ga_sized_ready(heap);
        uint32_t next = ga_load_relaxed(&heap->next); /* relaxed: the CAS below decides */
        for (;;) {
            uint32_t at = ga_sized_align_up(request, next);
            if (at > ready || ready - at < request.min) {
                break;
            }
            uint32_t max = ready - at < request.max ? ready - at : request.max;
            uint32_t seen = ga_cas_release(&heap->next, next, at + max); /* KN1. Pairs with KN2. */
            if (seen == next) {
                ga_lane_write(&first, own, at);
                ga_lane_write(&n, own, max);
                ga_lane_write(&gaps, own, at - next);
                break;
            }
            next = seen;
        }
    }
    ga_tile_sync(tile);
    ga_sized_extent extent = {ga_lanes_get(tile, first, leader), ga_lanes_get(tile, n, leader)};
    uint32_t before = ga_lanes_get(tile, gaps, leader);
    if (before) {
        ga_sized_extent skipped = {extent.first - before, before};
        ga_sized_pool_free(heap, tile, skipped);
    }
    return extent;
}

/* The allocation that does not wait. */
GA_SIMT ga_sized_extent ga_sized_regions_alloc_fast(ga_sized_heap *heap, ga_tile tile,
                                                    ga_sized_request request)
{
    ga_sized_extent extent = ga_sized_pool_alloc_fast(heap, tile, request);
    return extent.n ? extent : ga_sized_bump(heap, tile, request);
}

/* ---- with `pool_lock`: extents across words -------------------------------------------- */

/* Clear the bits of the whole extent, if all of them are set; otherwise undo. */
GA_SIMT bool ga_sized_pool_alloc_extent(ga_sized_heap *heap, ga_tile tile, ga_sized_extent extent)
{
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes taken = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t index = extent.first / 32u + ga_lane_read(ranks, own);
        uint32_t words = 0;
        for (; index * 32u < extent.first + extent.n; index += size) {
            if (!ga_sized_pool_claim_bits(heap->pool + index, ga_sized_pool_mask(extent, index))) {
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
        ga_post_add_release(&heap->pooled, 0u - extent.n); /* KN1: as above. Pairs with KN2. */
    }
    GA_EACH_LANE(tile, all ? 0 : ga_tile_lanes(tile), own)
    {
        uint32_t index = extent.first / 32u + ga_lane_read(ranks, own);
        for (uint32_t i = 0; i < ga_lane_read(taken, own); i++, index += size) {
            /* KP2: release, as above. Pairs with KP1: this tile did not use the regions, but the
             * accesses that its own KP1 acquired come first. */
            ga_post_or_release(heap->pool + index, ga_sized_pool_mask(extent, index));
        }
    }
    ga_tile_sync(tile);
    return all;
}

/* Contiguous free regions found by a search of the pool: from `begin` up to, but without, `end`. */
typedef struct ga_sized_free_run {
    uint32_t begin, end;
} ga_sized_free_run;

/* Extend the free run with the bits of word `index`. True as soon as it satisfies the request. */
GA_SIMT bool ga_sized_free_run_extend(ga_sized_free_run *run, uint32_t word, uint32_t index,
                                      ga_sized_request request)
{
    while (word) {
        uint32_t bit_index = ga_bits_lowest(word);
        uint32_t n = ga_sized_pool_free_from(word, bit_index, 32u);
        if (run->end != index * 32u + bit_index) {
            run->begin = index * 32u + bit_index;
        }
        run->end = index * 32u + bit_index + n;
        uint32_t first = ga_sized_align_up(request, run->begin);
        if (first < run->end && run->end - first >= request.min) {
            return true;
        }
        word &= ~(ga_bits_below(n) << bit_index);
    }
    return false;
}

/* Find the first contiguous regions that satisfy the request. If there are none, `run` is the
 * last free run, which may end at `next`. */
GA_SIMT bool ga_sized_pool_search(const ga_sized_heap *heap, ga_tile tile, uint32_t words,
                                  ga_sized_request request, ga_sized_free_run *run)
{
    uint32_t size = ga_tile_size(tile);
    run->begin = run->end = 0;
    for (uint32_t done = 0; done < words; done += size) {
        ga_lanes loaded = ga_sized_pool_load(heap, tile, words, done, words - done);
        uint32_t some = ga_lanes_nonzero(tile, loaded);
        for (uint32_t rest = some; rest; rest &= rest - 1u) {
            uint32_t lane = ga_bits_lowest(rest);
            uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(lane));
            if (ga_sized_free_run_extend(run, ga_lanes_get(tile, loaded, lane), done + rank,
                                         request)) {
                return true;
            }
        }
    }
    return false;
}

/* Move `next` past all regions that have memory, and put those into the pool. Returns `next`. */
GA_SIMT uint32_t ga_sized_pool_absorb_ready(ga_sized_heap *heap, ga_tile tile)
{
    ga_sized_request all = {1u, GA_SIZED_NONE, 1u, 0};
    ga_sized_extent rest = ga_sized_bump(heap, tile, all);
    if (rest.n) {
        ga_sized_pool_free(heap, tile, rest);
        return rest.first + rest.n;
    }
    return ga_sized_load_guess(&heap->next, tile);
}

/* By the holder of `pool_lock`. Waits for memory if necessary. */
GA_SIMT ga_sized_extent ga_sized_regions_alloc_locked(ga_sized_heap *heap, ga_tile tile,
                                                      ga_sized_request request)
{
    ga_sized_extent none = {0, 0};
    for (;;) {
        ga_sized_extent extent = ga_sized_regions_alloc_fast(heap, tile, request);
        if (extent.n) {
            return extent;
        }
        ga_sized_free_run run;
        uint32_t end = ga_sized_pool_absorb_ready(heap, tile);
        if (ga_sized_pool_search(heap, tile, (end + 31u) / 32u, request, &run)) {
            extent.first = ga_sized_align_up(request, run.begin);
            extent.n = request.min;
            if (ga_sized_pool_alloc_extent(heap, tile, extent)) {
                return extent;
            }
            continue; /* another tile claimed some of them */
        }
        uint32_t begin = ga_sized_align_up(request, run.end == end ? run.begin : end);
        if (!heap->growth || begin > heap->regions || heap->regions - begin < request.min) {
            return none;
        }
        /* first as many as the request can use, so that the pager is asked once */
        uint32_t rest = heap->regions - begin;
        uint32_t most = request.max < rest ? request.max : rest;
        uint32_t needed = most;
        while (ga_growth_await(tile, heap->growth, begin + needed, ga_sized_prepare_nothing,
                               heap) != GA_GROWTH_GRANTED) {
            if (needed == request.min) {
                return none;
            }
            needed = request.min;
        }
    }
}

/* ---- known full ------------------------------------------------------------------------ */

/* Record that a search for `min` contiguous regions failed when `releases` had this value. By one
 * lane. */
GA_SIMT void ga_sized_pool_set_known_full(ga_sized_heap *heap, uint32_t releases, uint32_t min)
{
    /* relaxed: a tile that relies on it checks that `releases` has not changed */
    ga_store64_relaxed(&heap->known_full, (uint64_t)releases << 32 | min);
}

/* True if a search for `min` contiguous regions cannot succeed: fewer are free, or the last
 * search failed, nothing has been freed since, and no more memory can be committed. By one lane. */
GA_SIMT bool ga_sized_pool_known_full(const ga_sized_heap *heap, uint32_t min)
{
    /* KN2: acquire. Pairs with KN1: a tile that has taken the last region for a class holds the
     * class's `grow_lock`. */
    uint32_t next = ga_load_acquire(&heap->next);
    if (heap->regions - next + ga_load_acquire(&heap->pooled) < min) {
        return true;
    }
    uint64_t since = ga_load64_relaxed(&heap->known_full);
    /* KH1: acquire. Pairs with KH2. */
    if (!(uint32_t)since || (uint32_t)since > min ||
        (uint32_t)(since >> 32) != ga_load_acquire(&heap->releases) ||
        ga_sized_ready(heap) != next) {
        return false;
    }
    uint32_t growth_state = heap->growth && next < heap->regions
                                ? ga_growth_load_state(heap->growth, next + 1u, ga_clock_ns())
                                : GA_GROWTH_LIMIT;
    return growth_state != GA_GROWTH_GRANTED && growth_state != GA_GROWTH_UNDECIDED;
}

typedef enum ga_sized_pool_lock_state {
    GA_SIZED_POOL_WAIT = 0,
    GA_SIZED_POOL_LOCKED,
    GA_SIZED_POOL_FULL
} ga_sized_pool_lock_state;

/* Try to take `pool_lock`, unless the pool is known to be full. `*releases` is the count at that
 * time. */
GA_SIMT uint32_t ga_sized_pool_try_lock(ga_sized_heap *heap, ga_tile tile, uint32_t min,
                                        uint32_t *releases)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes states = ga_lanes_all(0);
    ga_lanes seen = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (ga_sized_pool_known_full(heap, min)) {
            ga_lane_write(&states, own, GA_SIZED_POOL_FULL);
            /* KQ1: acquire. Pairs with KQ2: the last holder has set again all bits that it did not
             * keep. */
        } else if (!ga_load_relaxed(&heap->pool_lock) &&
                   ga_cas_acquire(&heap->pool_lock, 0, 1u) == 0) {
            ga_lane_write(&states, own, GA_SIZED_POOL_LOCKED);
        }
        ga_lane_write(&seen, own, ga_load_acquire(&heap->releases)); /* KH1. Pairs with KH2. */
    }
    ga_tile_sync(tile);
    *releases = ga_lanes_get(tile, seen, leader);
    return ga_lanes_get(tile, states, leader);
}

GA_SIMT void ga_sized_pool_unlock(ga_sized_heap *heap, ga_tile tile, ga_sized_request request,
                                  uint32_t releases, bool found)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        if (!found && request.align == 1u) {
            ga_sized_pool_set_known_full(heap, releases, request.min);
        }
        ga_store_release(&heap->pool_lock, 0); /* KQ2: release. Pairs with KQ1. */
    }
    ga_tile_sync(tile);
}

/* A tile that waits for `pool_lock` sleeps, each time twice as long as before. */
#define GA_SIZED_POOL_SLEEP_NS        500u /* the first time */
#define GA_SIZED_POOL_SLEEP_DOUBLINGS 4u

/* Allocate regions for the tile of these lanes; `n` is 0 if there are none. Waits for memory if
 * necessary. Inlined into functions that are slow anyway: not inlined, it would cost kernels 20
 * registers more. */
GA_SIMT ga_sized_extent ga_sized_regions_alloc(ga_sized_heap *heap, uint32_t lanes,
                                               ga_sized_request request)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_extent extent = {0, 0};
    uint32_t releases;
    for (uint32_t rounds = 0; request.min <= heap->regions; rounds++) {
        extent = ga_sized_regions_alloc_fast(heap, tile, request);
        if (extent.n) {
            return extent;
        }
        uint32_t state = ga_sized_pool_try_lock(heap, tile, request.min, &releases);
        if (state == GA_SIZED_POOL_LOCKED) {
            extent = ga_sized_regions_alloc_locked(heap, tile, request);
            ga_sized_pool_unlock(heap, tile, request, releases, extent.n != 0);
        }
        if (state != GA_SIZED_POOL_WAIT) {
            return extent;
        }
        ga_clock_sleep(
            GA_SIZED_POOL_SLEEP_NS
            << (rounds < GA_SIZED_POOL_SLEEP_DOUBLINGS ? rounds : GA_SIZED_POOL_SLEEP_DOUBLINGS));
    }
    return extent;
}

#endif
