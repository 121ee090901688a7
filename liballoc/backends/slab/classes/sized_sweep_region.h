/* SPDX-License-Identifier: MIT
 *
 * One region in a sweep (sized_sweep.h has the whole). It comes under watch, and its bitmap is
 * read. Then it settles, serves the tile that reads it, or leaves its class.
 *
 *     sweep_region            (names without ga_sized_)
 *      |- watch               from now on frees in the region notify the sweep
 *      |- region_search       reads the bitmap, and claims the units that the tile needs
 *      |- region_to_pool      the region has no live unit
 *      '- settle, unsettle    later sweeps need not read it, or must
 *
 * INVARIANT, ORDER and PROGRESS  See sized_sweep.h. In one sweep one tile has the region.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_REGION_H
#define GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_REGION_H

#include "../../../simt/clock.h"
#include "sized_search.h"

#ifdef __CUDACC__
#define GA_SIZED_GRACE_NS 500000u /* least age of a watch when a region settles */
#else
#define GA_SIZED_GRACE_NS 0u
#endif

/* Words that a lane loads in one step. The loads are in flight together, because a tile that is
 * alone in a sweep has nothing else to do meanwhile. */
#define GA_SIZED_QUADS_PER_LANE 4u
#define GA_SIZED_WORDS_PER_LANE (4u * GA_SIZED_QUADS_PER_LANE)

/* ---- regions under watch --------------------------------------------------------------- */

/* Microseconds on the clock of watches, which wraps after 35 minutes; bit 0 is
 * GA_SIZED_SETTLED. */
GA_SIMT uint32_t ga_sized_watch_time(uint64_t ns)
{
    return (uint32_t)(ns / 1000u) << 1;
}

/* Put the region under watch by sweep `number`, if a class has it and no watch lasts. Returns its
 * owner. */
GA_SIMT uint32_t ga_sized_watch(ga_sized_heap *heap, ga_tile tile, uint32_t region, uint32_t number)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t *word = heap->owners + region;
    uint32_t mark = (number % (GA_SIZED_WATCH >> GA_SIZED_WATCH_SHIFT) + 1u)
                    << GA_SIZED_WATCH_SHIFT;
#if GA_PLANTED(sized_sweep_not_watching)
    mark = 0; /* frees are not told to notify the sweep */
#endif
    ga_lanes owner = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t seen = ga_load_relaxed(word); /* relaxed: the CAS below decides */
        while (ga_sized_owner_class(seen) != GA_SIZED_NONE && !ga_sized_is_watched(seen)) {
            uint32_t plain = seen & ~(GA_SIZED_WATCH | GA_SIZED_FREED);
            /* KO1: acq_rel. Pairs with KO2, KO3 and KO4. */
            uint32_t now = ga_cas_acq_rel(word, seen, plain | mark);
            if (now == seen) {
                uint64_t time = ga_clock_ns();
                /* relaxed, both: KW3 releases them */
                ga_store_relaxed(heap->watches + region, ga_sized_watch_time(time));
                ga_store64_relaxed(&heap->sweep.watched_at, time);
                break;
            }
            seen = now;
        }
        ga_lane_write(&owner, own, seen);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, owner, leader);
}

/* An age above this is negative: the watch began after the sweep did. */
#define GA_SIZED_AGE_MAX 0xf0000000u

/* The sweep has found a free unit in the region: each sweep reads it until it is full again. */
GA_SIMT void ga_sized_unsettle(ga_sized_heap *heap, ga_tile tile, uint32_t region)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed, both: as in ga_sized_settle() */
        uint32_t since = ga_load_relaxed(heap->watches + region);
        if (since & GA_SIZED_SETTLED) {
            ga_store_relaxed(heap->watches + region, since & ~GA_SIZED_SETTLED);
        }
    }
}

/* The sweep has found no free unit in the region. If the watch is old enough, later sweeps need not
 * read the region again while it lasts. */
GA_SIMT void ga_sized_settle(ga_sized_heap *heap, ga_tile tile, uint32_t region)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed, all: after KW2, and KW3 releases the store */
        uint32_t since = ga_load_relaxed(heap->watches + region);
        uint32_t began = ga_sized_watch_time(ga_load64_relaxed(&heap->sweep.began_at));
        uint32_t age = began - since; /* wraps if this sweep began the watch */
        if (!GA_SIZED_GRACE_NS ||
            (age > ga_sized_watch_time(GA_SIZED_GRACE_NS) && age < GA_SIZED_AGE_MAX)) {
            ga_store_relaxed(heap->watches + region, since | GA_SIZED_SETTLED);
        }
    }
}

/* ---- a region leaves its class --------------------------------------------------------- */

/* Set the bits of all units of the region whose bitmap begins at `word_index`, if all of them are
 * free. Otherwise undo, and return false. */
GA_SIMT bool ga_sized_region_claim_all(ga_sized_heap *heap, ga_tile tile, uint32_t word_index,
                                       const ga_sized_class *c)
{
    uint32_t words = c->map.words;
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes missed = ga_lanes_all(0);
    ga_lanes before = ga_lanes_all(0);
    ga_lanes tried = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bitmap_word = ga_lane_read(ranks, own);
        uint32_t failed = 0, seen = 0;
        for (; bitmap_word < words && !failed; bitmap_word += size) {
#if GA_PLANTED(sized_leaving_claim_relaxed)
            seen = ga_or_relaxed(heap->bits + word_index + bitmap_word, GA_ALL_BITS);
#else
            /* KU1: acquire. Pairs with KU2: the last owners' accesses to the units. */
            seen = ga_or_acquire(heap->bits + word_index + bitmap_word, GA_ALL_BITS);
#endif
            failed = seen != (bitmap_word + 1u == words ? c->tail : 0) &&
                     !GA_PLANTED(sized_live_region_leaves_class);
        }
        ga_lane_write(&missed, own, failed);
        ga_lane_write(&before, own, seen);
        ga_lane_write(&tried, own, bitmap_word); /* one step after the last word tried */
    }
    ga_tile_sync(tile);
    if (!ga_lanes_any(tile, missed)) {
        return true;
    }
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t end = ga_lane_read(tried, own);
        for (uint32_t bitmap_word = ga_lane_read(ranks, own); bitmap_word < end;
             bitmap_word += size) {
            bool last = bitmap_word + size >= end && ga_lane_read(missed, own);
            uint32_t were = last                        ? ga_lane_read(before, own)
                            : bitmap_word + 1u == words ? c->tail
                                                        : 0;
            /* KU2: release. Pairs with KU1. Bits that were set before belong to other tiles. */
            ga_post_and_release(heap->bits + word_index + bitmap_word, were);
        }
    }
    ga_tile_sync(tile);
    return false;
}

/* Move the region from its class to the pool, if it has no live unit; it seemed to have none.
 * Returns false if it has. */
GA_SIMT bool ga_sized_region_to_pool(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                     uint32_t region)
{
    ga_sized_class *c = heap->of + class_;
    ga_sized_table_lock(c, tile);
    uint32_t owner = ga_sized_load_guess(heap->owners + region, tile);
    bool is_free = ga_sized_owner_class(owner) == class_ &&
                   ga_sized_region_claim_all(
                       heap, tile, ga_sized_bitmap_index(heap->region_bits, region, owner), c);
    GA_EACH_LANE(tile, is_free ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        /* relaxed, and the owner too: KP2 releases both */
        ga_store_relaxed(&heap->sweep.any_spent, 1u);
        ga_store_relaxed(heap->owners + region, 0u); /* before another class can get the region */
        ga_sized_table_remove(heap, c, region);
    }
    ga_sized_table_unlock(c, tile);
    if (is_free) {
        ga_sized_extent extent = {region, 1u};
        ga_sized_pool_free(heap, tile, extent);
    }
    return is_free;
}

/* ---- one region of a sweep ------------------------------------------------------------- */

/* Whether the words of a bitmap that were read have free units, and live ones. */
typedef struct ga_sized_occupancy {
    bool free, taken;
} ga_sized_occupancy;

/* Add the four words from number `at` on, read as `quad`, to what a lane has seen: `all` has a bit
 * for each unit that is live in all words, `any` for each that is live in one. */
GA_SIMT void ga_sized_occupancy_add(const ga_sized_class *c, uint32_t at, const uint32_t *quad,
                                    uint32_t *all, uint32_t *any)
{
    for (uint32_t i = 0; i < 4u; i++) {
        bool last = at + i + 1u == c->map.words;
        bool exists = at + i < c->map.words;
        *all &= exists ? quad[i] : GA_ALL_BITS;
        *any |= exists ? quad[i] & ~(last ? c->tail : 0) : 0;
    }
}

/* Load GA_SIZED_WORDS_PER_LANE words for each lane, from word `from` of the bitmap on. */
GA_SIMT ga_sized_occupancy ga_sized_scan_words(const ga_sized_heap *heap, ga_tile tile,
                                               uint32_t word_index, const ga_sized_class *c,
                                               uint32_t from)
{
    uint32_t words = c->map.words;
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes free = ga_lanes_all(0);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t first = from + 4u * ga_lane_read(ranks, own);
        uint32_t all = GA_ALL_BITS, any = 0;
        uint32_t quads[GA_SIZED_QUADS_PER_LANE][4];
        for (uint32_t i = 0; i < GA_SIZED_QUADS_PER_LANE; i++) {
            uint32_t at = first + i * 4u * size;
            /* relaxed: after KO1. Past the last word any other serves, so that no load waits for a
             * branch. A bitmap has room for a multiple of four words. */
            ga_load_quad_relaxed(heap->bits + word_index + (at < words ? at : 0), quads[i]);
        }
        for (uint32_t i = 0; i < GA_SIZED_QUADS_PER_LANE; i++) {
            ga_sized_occupancy_add(c, first + i * 4u * size, quads[i], &all, &any);
        }
        ga_lane_write(&free, own, ~all);
        ga_lane_write(&taken, own, any);
    }
    ga_sized_occupancy read = {ga_lanes_any(tile, free), ga_lanes_any(tile, taken)};
    return read;
}

/* Claim the units that the search needs from these words. */
GA_SIMT void ga_sized_scan_claim(ga_sized_view heap, ga_tile tile, uint32_t word_index,
                                 uint32_t words, uint32_t from, ga_sized_search *search)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    for (uint32_t i = 0; i < GA_SIZED_WORDS_PER_LANE && search->requesting; i++) {
        ga_lanes word_indices = ga_lanes_all(GA_SIZED_NONE);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t at = from + i * ga_tile_size(tile) + ga_lane_read(ranks, own);
            ga_lane_write(&word_indices, own, at < words ? word_index + at : GA_SIZED_NONE);
        }
        ga_sized_search_at(heap, tile, word_indices, word_indices, search);
    }
}

/* Read the bitmap that begins at `word_index`, until it is known to have both free and live units
 * and the search needs no more of them. */
GA_SIMT ga_sized_occupancy ga_sized_region_search(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                                  uint32_t word_index, ga_sized_search *search)
{
    const ga_sized_class *c = heap.heap->of + class_;
    ga_sized_occupancy found = {false, false};
    uint32_t step = ga_tile_size(tile) * GA_SIZED_WORDS_PER_LANE;
    uint32_t from = 0;
    bool needs_units = class_ == search->class_ && search->requesting;
    for (; from < c->map.words && !(found.free && found.taken && !needs_units); from += step) {
        ga_sized_occupancy read = ga_sized_scan_words(heap.heap, tile, word_index, c, from);
        found.free |= read.free;
        found.taken |= read.taken;
        if (read.free && needs_units) {
            ga_sized_scan_claim(heap, tile, word_index, c->map.words, from, search);
            needs_units = search->requesting != 0;
        }
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint32_t read = from < c->map.words ? from : c->map.words;
        ga_post_add64_relaxed(&heap.heap->sweep.words_read, read); /* relaxed: a statistic */
    }
    return found;
}

/* Read one region in sweep `number`. */
GA_SIMT void ga_sized_sweep_region(ga_sized_view heap, ga_tile tile, uint32_t number,
                                   uint32_t region, ga_sized_search *search)
{
    uint32_t owner = ga_sized_watch(heap.heap, tile, region, number);
    uint32_t class_ = ga_sized_owner_class(owner);
    if (class_ == GA_SIZED_NONE) {
        return;
    }
    uint32_t word_index = ga_sized_bitmap_index(heap.region_bits, region, owner);
    uint32_t requesting = search->requesting;
    ga_sized_occupancy found = ga_sized_region_search(heap, tile, class_, word_index, search);
    bool served = search->requesting != requesting;
    bool released = found.free && !found.taken && !served &&
                    ga_sized_region_to_pool(heap.heap, tile, class_, region);
    GA_EACH_LANE(tile, found.free ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (released) { /* relaxed, both: KW3 releases them */
            ga_post_add_relaxed(&heap.heap->sweep.regions_released, 1u);
        } else {
            ga_post_or64_relaxed(&heap.heap->sweep.found_classes, (uint64_t)1 << class_);
        }
    }
    if (found.free) {
        ga_sized_unsettle(heap.heap, tile, region);
    } else {
        ga_sized_settle(heap.heap, tile, region);
    }
}

#endif
