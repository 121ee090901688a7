/* SPDX-License-Identifier: MIT
 *
 * Growth of a class: it gets more regions while other tiles allocate from those it has.
 *
 *     grow                        (names without ga_sized_)
 *      |- grow_try_lock           one tile at a time gets regions for a class
 *      |- class_cannot_grow       the tiles that wait give up if the pool has no region left
 *      '- class_get_regions
 *          |- regions_alloc       sized_pool.h; waits for memory if necessary
 *          '- class_add_regions   clears bitmaps, sets owners, appends to the class's table
 *
 * STRUCTURE  See sized_heap.h. Regions come from the pool (sized_pool.h), as many as the waiting
 *            lanes need, or a 32nd of the class's number. Each waiting tile has a place among
 *            them, and looks for its units there first. A tile clears the bitmaps and sets the
 *            owners of the regions, then publishes them: in the class's table, and then by
 *            `total_words`. A region that leaves the class (sized_sweep.h) leaves the table, and
 *            the last region of the table takes its place.
 *
 * INVARIANT  A region has one class. The table, `total_words` and the contiguous part are changed
 *            only by the tile that holds the class's `table_lock`, and so is an owner that names
 *            the class. The tile that holds the class's `grow_lock` gets regions for it.
 *
 * ORDER      KS1 and KS2: a region's bitmap has been cleared before a class publishes the region;
 *            KS1 is in sized_places.h and sized_search.h as well. KT1 and KT2: the holder of a
 *            class's `grow_lock` sees the changes of the one before. KE1 and KE2: likewise for
 *            `table_lock`. KO1 and KO2: a region's bitmap has been cleared before its owner names
 *            the class. KP, KQ and KH are those of the pool.
 *
 * PROGRESS   A tile that needs more regions waits for the holder of `grow_lock`, and that one for a
 *            region, for as long as growth.h says. The holder of `table_lock` does not wait.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_GROW_H
#define GPUALLOC_SLAB_CLASSES_SIZED_GROW_H

#include "../../../simt/clock.h"
#include "../../../simt/simt.h"
#include "sized_heap.h"
#include "sized_pool.h"

/* Publish a value of the class map or table, by one lane. */
GA_SIMT void ga_sized_publish(uint32_t *word, uint32_t value)
{
#if GA_PLANTED(sized_publish_relaxed)
    ga_store_relaxed(word, value);
#else
    /* KS2: release. Pairs with KS1, here and elsewhere: bitmaps and owners are set. */
    ga_store_release(word, value);
#endif
}

/* A store that readers acquire, by a lane whose tile has called ga_tile_publish() since it wrote
 * the data behind it. KS2 for tables. Pairs with KS1; for owners with KO1, for second bitmaps with
 * KU1. */
GA_SIMT void ga_sized_store_published(uint32_t *word, uint32_t value)
{
#ifdef __CUDACC__
    ga_store_relaxed(word, value); /* after the fence of ga_tile_publish() */
#else
    ga_store_release(word, value); /* KS2. Pairs with KS1, KO1 and KU1. */
#endif
}

/* KS2 by the tile's publish, for an entry of the table: readers with an old class map may read it
 * before `total_words`. */
GA_SIMT void ga_sized_publish_fenced(uint32_t *word, uint32_t value)
{
#if GA_PLANTED(sized_publish_relaxed)
    ga_store_relaxed(word, value);
#else
    ga_sized_store_published(word, value);
#endif
}

/* ---- the table of a class -------------------------------------------------------------- */

/* Only the holder of `table_lock` changes the class map, the table and the owners. It never waits
 * while it holds the lock. */
GA_SIMT void ga_sized_table_lock(ga_sized_class *c, ga_tile tile)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* KE1: acquire. Pairs with KE2: the table and the owners as the last holder left them. */
        while (!GA_PLANTED(sized_table_not_locked) &&
               (ga_load_relaxed(&c->table_lock) || ga_cas_acquire(&c->table_lock, 0, 1u) != 0)) {
            ga_clock_sleep(200);
        }
    }
    ga_tile_sync(tile);
}

GA_SIMT void ga_sized_table_unlock(ga_sized_class *c, ga_tile tile)
{
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_release(&c->table_lock, 0); /* KE2: release. Pairs with KE1. */
    }
    ga_tile_sync(tile);
}

/* The number of regions at the front of the extent that were never spent. By one lane. */
GA_SIMT uint32_t ga_sized_unspent(const ga_sized_heap *heap, ga_sized_extent extent)
{
    uint32_t n = 0;
    /* relaxed, both: acquired with the regions (KP1) */
    if (!ga_load_relaxed(&heap->sweep.any_spent)) {
        return extent.n;
    }
    while (n < extent.n &&
           !(ga_load_relaxed(heap->table_indices + extent.first + n) & GA_SIZED_SPENT)) {
        n++;
    }
    return n;
}

/* Write the regions behind the end of the table. By the holder of `table_lock`, so relaxed loads
 * are enough. */
GA_SIMT void ga_sized_table_write(ga_sized_heap *heap, ga_tile tile, ga_sized_class *c,
                                  ga_sized_extent extent)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t count = ga_load_relaxed(&c->map.total_words) / c->map.words;
        uint32_t any_spent = ga_load_relaxed(&heap->sweep.any_spent);
        for (uint32_t i = ga_lane_read(ranks, own); i < extent.n; i += ga_tile_size(tile)) {
            uint32_t region = extent.first + i;
            uint32_t spent =
                any_spent ? ga_load_relaxed(heap->table_indices + region) & GA_SIZED_SPENT : 0;
            ga_store_relaxed(heap->table_indices + region, (count + i) | spent);
            ga_sized_publish_fenced(c->map.table + count + i, (region + 1u) | spent);
        }
    }
    ga_tile_publish(tile);
}

/* Publish the regions that ga_sized_table_write() has written. By one lane that holds `table_lock`,
 * so relaxed loads are enough. Once a region has left the contiguous part, a reader with an old
 * class map may compute with more contiguous regions than there are. So that part must not begin
 * elsewhere from then on, and does not grow again. */
GA_SIMT void ga_sized_table_append(ga_sized_heap *heap, ga_sized_class *c, ga_sized_extent extent)
{
    uint32_t words = c->map.words;
    uint32_t count = ga_load_relaxed(&c->map.total_words) / words;
    uint32_t contiguous = ga_load_relaxed(&c->map.contiguous) >> 6;
    uint32_t first = count ? ga_load_relaxed(&c->map.first) : extent.first;
    bool shrunk = ga_load_relaxed(&c->shrunk) != 0;
    if (!count && !shrunk) {
        ga_sized_publish(&c->map.first, first); /* not read before `contiguous` */
    }
    if (words > 1u && !shrunk && contiguous == count && first + contiguous == extent.first) {
        contiguous += ga_sized_unspent(heap, extent);
        ga_sized_publish(&c->map.contiguous, contiguous << 6 | GA_SIZED_SHIFT(c->map));
    }
    ga_sized_publish(&c->map.total_words, (count + extent.n) * words);
}

/* Remove the region from the table; the last region takes its place. By one lane that holds
 * `table_lock`. Readers with an old table find the region's first bitmap full, or check its owner.
 * The region that was moved is still the class's, at either index. */
GA_SIMT void ga_sized_table_remove(ga_sized_heap *heap, ga_sized_class *c, uint32_t region)
{
    uint32_t index = ga_load_relaxed(heap->table_indices + region) & ~GA_SIZED_SPENT;
    uint32_t last = ga_load_relaxed(&c->map.total_words) / c->map.words - 1u;
    if (index < ga_load_relaxed(&c->map.contiguous) >> 6) {
        ga_sized_publish(&c->map.contiguous, index << 6 | GA_SIZED_SHIFT(c->map));
        ga_store_relaxed(&c->shrunk, 1u);
    }
    if (index != last) {
        uint32_t entry = ga_load_relaxed(c->map.table + last);
        ga_store_relaxed(heap->table_indices + ((entry & ~GA_SIZED_SPENT) - 1u),
                         index | (entry & GA_SIZED_SPENT));
        ga_sized_publish(c->map.table + index, entry);
    }
    ga_sized_publish(c->map.table + last, 0);
    ga_sized_publish(&c->map.total_words, last * c->map.words);
    ga_store_relaxed(heap->table_indices + region, GA_SIZED_SPENT);
}

/* ---- regions for a class --------------------------------------------------------------- */

/* The owner to store for a region that the class gets. */
GA_SIMT uint32_t ga_sized_owner_for(const ga_sized_heap *heap, uint32_t class_, uint32_t region)
{
    /* relaxed: acquired with the region (KP1) */
    bool spent = ga_load_relaxed(&heap->sweep.any_spent) &&
                 ga_load_relaxed(heap->table_indices + region) & GA_SIZED_SPENT;
    return (class_ + 1u) | (spent ? GA_SIZED_SECOND : 0);
}

/* Store four words of a region's bitmap. By a lane whose tile has called ga_tile_publish(). */
GA_SIMT void ga_sized_store_bits(uint32_t *bits, const uint32_t *quad, bool second)
{
    if (second) {
        ga_store_quad_published(bits, quad); /* KS2. Pairs with KU1. */
    } else {
        ga_store_quad_relaxed(bits, quad); /* relaxed: KS2 and KO2 release it */
    }
}

/* Clear every `step`th word from `from` on, and the three words behind each, in a bitmap of `words`
 * words. Except the `tail` of the last word, and bit 0 with `hold`, which the caller holds. Words
 * behind the last become full, because a tile with an old class map may try them: a bit that it got
 * there would not keep the region in its class, and the next class would clear it. By one lane. */
GA_SIMT void ga_sized_bitmap_clear(uint32_t *bits, uint32_t from, uint32_t step, uint32_t words,
                                   uint32_t tail, bool hold, bool second)
{
    uint32_t quad[4] = {hold && !from, 0, 0, 0};
    uint32_t at = from;
    for (; at + 4u < words; at += step) {
        ga_sized_store_bits(bits + at, quad, second);
        quad[0] = 0;
    }
    if (at < words) {
        for (uint32_t k = 0; k < 4u; k++) {
            uint32_t behind = GA_PLANTED(sized_padding_not_full) ? 0 : GA_ALL_BITS;
            quad[k] |= at + k + 1u == words ? tail : at + k >= words ? behind : 0;
        }
        ga_sized_store_bits(bits + at, quad, second);
    }
}

/* Mark all units of the regions as free, or with `hold` all but the first. No tile holds bits of
 * these bitmaps. A slow one may still set some of a second bitmap: it then reads a value stored
 * here, and so also the new owner (ga_sized_class_owns()). */
GA_SIMT void ga_sized_bitmaps_clear(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                    ga_sized_extent extent, bool hold)
{
    const ga_sized_class *c = heap->of + class_;
    uint32_t words = c->map.words;
    uint32_t tail = GA_PLANTED(sized_tail_not_reserved) ? 0 : c->tail;
    /* so many lanes for each bitmap, which has room for a multiple of four words */
    uint32_t quads = (words + 3u) / 4u;
    uint32_t each = quads < ga_tile_size(tile) ? quads : ga_tile_size(tile);
    uint32_t together = ga_tile_size(tile) / each;
    ga_lanes ranks = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t any_spent = ga_load_relaxed(&heap->sweep.any_spent); /* as ga_sized_owner_for() */
        uint32_t mine = ga_lane_read(ranks, own) / each;
        uint32_t from = ga_lane_read(ranks, own) % each * 4u;
        for (uint32_t i = mine; mine < together && i < extent.n; i += together) {
            uint32_t region = extent.first + i;
            uint32_t owner = any_spent ? ga_sized_owner_for(heap, class_, region) : class_ + 1u;
            ga_sized_bitmap_clear(
                heap->bits + ga_sized_bitmap_index(heap->region_bits, region, owner), from,
                4u * each, words, tail, hold && !i, owner & GA_SIZED_SECOND);
        }
    }
}

/* Add `n` regions from `first` on to the class, by the holder of its `grow_lock`. With `hold` the
 * tile keeps the first unit, and gets the index of its word. Otherwise a sweep might find the
 * region empty and move it to another class before any lane is served, and that class might lose it
 * in the same way, without end. */
GA_SIMT uint32_t ga_sized_class_add_regions(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                            uint32_t first, uint32_t n, bool hold)
{
    ga_sized_class *c = heap->of + class_;
    ga_sized_extent extent = {first, n};
    /* KU1 (sized_search.h) may read the bitmaps stored next; this fence comes before them and after
     * the last owners' accesses (KP1). */
    ga_tile_publish(tile);
    ga_sized_bitmaps_clear(heap, tile, class_, extent, hold);
    ga_tile_publish(tile);
    ga_sized_table_lock(c, tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < n; i += ga_tile_size(tile)) {
            /* KO2: release, with the tile's publish. Pairs with KO1 (sized_sweep_region.h): a sweep
             * that sees the class here sees the bitmap cleared. */
            uint32_t owner = ga_sized_owner_for(heap, class_, first + i);
            ga_sized_store_published(heap->owners + first + i, owner);
        }
    }
    ga_tile_publish(tile);
    ga_sized_table_write(heap, tile, c, extent);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* KH2: release, after the owners, and before an allocation can find the regions. Pairs with
         * KH1: the result of a sweep that has passed these regions becomes invalid. */
        ga_post_add_release(&heap->releases, 1u);
        ga_sized_table_append(heap, c, extent);
    }
    ga_sized_table_unlock(c, tile);
    uint32_t owner = ga_sized_owner_for(heap, class_, first);
    return hold ? ga_sized_bitmap_index(heap->region_bits, first, owner) : GA_SIZED_NONE;
}

#define GA_SIZED_CLASS_GROW_DIVISOR 32u   /* a class grows by 1/32 of its regions, or by more */
#define GA_SIZED_GATHER_NS          2000u /* before the first growth: other tiles come to wait */
/* What a class gets at most for lanes that will come: units for each lane that waits, regions, and
 * a part of the regions that no class has had. */
#define GA_SIZED_LANES_AHEAD        8u
#define GA_SIZED_REGIONS_AHEAD      16u
#define GA_SIZED_AHEAD_DIVISOR      64u

/* The number of regions to get for the lanes of blocks that have not begun, where `lanes` wait. By
 * one lane. */
GA_SIMT uint32_t ga_sized_regions_ahead(const ga_sized_heap *heap, const ga_sized_class *c,
                                        uint32_t lanes)
{
    uint64_t later = ga_grid_lanes_later(), most = (uint64_t)lanes * GA_SIZED_LANES_AHEAD;
    uint64_t ahead = (later < most ? later : most) / c->units;
    /* relaxed: an estimate */
    uint32_t part = (heap->regions - ga_load_relaxed(&heap->next)) / GA_SIZED_AHEAD_DIVISOR;
    uint32_t limit = part < GA_SIZED_REGIONS_AHEAD ? part : GA_SIZED_REGIONS_AHEAD;
    return ahead < limit ? (uint32_t)ahead : limit;
}

/* The number of regions to get for the class: a 32nd of its regions; or enough for the lanes that
 * came to wait since the last growth, and some ahead. A lane that does not get a unit of them is
 * counted again. By one lane. */
GA_SIMT uint32_t ga_sized_class_regions_wanted_lone(const ga_sized_heap *heap, ga_sized_class *c)
{
    /* relaxed, both: estimates; a sweep may take regions at the same time */
    uint32_t regions = ga_load_relaxed(&c->map.total_words) / c->map.words;
    uint32_t lanes = ga_exchange_relaxed(&c->waiting, 0);
    uint32_t wanted = lanes ? (lanes - 1u) / c->units + 1u : 1u;
    uint32_t part = regions / GA_SIZED_CLASS_GROW_DIVISOR;
    wanted += ga_sized_regions_ahead(heap, c, lanes);
    return part > wanted ? part : wanted;
}

/* As above, for all lanes of the holder of `grow_lock`. If the class has no region and the grid has
 * more blocks to come, the kernel has begun a moment ago, and other tiles come to wait at the same
 * time: wait for them. */
GA_SIMT uint32_t ga_sized_class_regions_wanted(const ga_sized_heap *heap, ga_sized_class *c,
                                               ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes wanted = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (!ga_load_relaxed(&c->map.total_words) && ga_grid_lanes_later()) { /* relaxed: a guess */
            ga_clock_sleep(GA_SIZED_GATHER_NS);
        }
        ga_lane_write(&wanted, own, ga_sized_class_regions_wanted_lone(heap, c));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, wanted, leader);
}

/* Get as many more regions for the class as ga_sized_class_regions_wanted() says, by the holder of
 * its `grow_lock`. Waits for memory if necessary. Returns the number that it got. `*held` is set to
 * the word of the unit that the tile keeps. */
GA_SIMT uint32_t ga_sized_class_get_regions(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                            uint32_t *held)
{
    ga_sized_request request = {1u, ga_sized_class_regions_wanted(heap, heap->of + class_, tile),
                                1u, 0};
    uint32_t got = 0;
    ga_sized_extent extent = ga_sized_regions_alloc(heap, ga_tile_members(tile), request);
    while (extent.n) {
        uint32_t word_index =
            ga_sized_class_add_regions(heap, tile, class_, extent.first, extent.n, got == 0);
        *held = got ? *held : word_index;
        got += extent.n;
        request.max -= extent.n;
        if (!request.max) {
            break;
        }
        extent = ga_sized_regions_alloc_fast(heap, tile, request); /* without waiting */
    }
    return got;
}

/* The next step of a tile that needs more regions. */
typedef enum ga_sized_grow_step {
    GA_SIZED_GROW_DONE = 0, /* the class's words have changed since the tile read them */
    GA_SIZED_GROW_LOCKED,   /* the tile holds `grow_lock` now */
    GA_SIZED_GROW_WAIT
} ga_sized_grow_step;

/* Try to take the class's `grow_lock`. By one lane. The value is odd while a tile holds it, so that
 * a tile that waits for one holder does not wait for the next holder too. */
GA_SIMT bool ga_sized_grow_try_lock_lone(ga_sized_class *c)
{
    uint32_t ticket = ga_load_relaxed(&c->grow_lock);
    /* KT1: acquire. Pairs with KT2: `total_words` and the table as the last holder left them. */
    return !(ticket & 1u) && ga_cas_acquire(&c->grow_lock, ticket, ticket + 1u) == ticket;
}

/* By the lane that took it. */
GA_SIMT void ga_sized_grow_unlock(ga_sized_class *c)
{
    /* KT2: release. Pairs with KT1. The load is relaxed because no other tile changes the word
     * now. */
    ga_store_release(&c->grow_lock, ga_load_relaxed(&c->grow_lock) + 1u);
}

GA_SIMT uint32_t ga_sized_grow_try_lock(ga_sized_class *c, ga_tile tile, uint32_t seen)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes steps = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t step = GA_SIZED_GROW_WAIT;
        if (ga_load_acquire(&c->map.total_words) != seen) { /* KS1. Pairs with KS2. */
            step = GA_SIZED_GROW_DONE;
        } else if (ga_sized_grow_try_lock_lone(c)) {
            step = ga_load_relaxed(&c->map.total_words) == seen ? GA_SIZED_GROW_LOCKED
                                                                : GA_SIZED_GROW_DONE;
            if (step == GA_SIZED_GROW_DONE) {
                ga_sized_grow_unlock(c);
            }
        }
        ga_lane_write(&steps, own, step);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, steps, leader);
}

/* True if the class, seen with `seen` words, cannot get a region: the pool has none, and a tile
 * that took the last one for this class has published it. The caller waits for that tile, but not
 * for later holders of `grow_lock`: if tiles waited for each other in turn, none would ever be
 * refused. */
GA_SIMT bool ga_sized_class_cannot_grow(const ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                        uint32_t seen)
{
    const ga_sized_class *c = heap->of + class_;
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes none = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (ga_sized_pool_known_full(heap, 1u)) {             /* KN2, before KT1 */
            uint32_t ticket = ga_load_acquire(&c->grow_lock); /* KT1: acquire. Pairs with KT2. */
            while (ticket & 1u && ga_load_acquire(&c->grow_lock) == ticket) { /* KT1 */
                ga_clock_sleep(500);
            }
            ga_lane_write(&none, own,
                          ga_load_acquire(&c->map.total_words) == seen); /* KS1. Pairs with KS2. */
        }
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, none, leader) != 0;
}

/* A tile that waits for the holder of `grow_lock` sleeps, each time twice as long as before. Ten
 * thousand of them may poll one word, and the holder needs the same cache line. */
#define GA_SIZED_GROW_SLEEP_NS        500u /* the first time */
#define GA_SIZED_GROW_SLEEP_DOUBLINGS 5u

/* Wait until the tile that holds `grow_lock` has released it. */
GA_SIMT void ga_sized_grow_wait(const ga_sized_class *c, ga_tile tile)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint32_t doublings = 0;
        uint32_t ticket = ga_load_relaxed(&c->grow_lock); /* relaxed: the caller looks again */
        while (ticket & 1u && ga_load_relaxed(&c->grow_lock) == ticket) {
            ga_clock_sleep(GA_SIZED_GROW_SLEEP_NS << doublings);
            doublings += doublings < GA_SIZED_GROW_SLEEP_DOUBLINGS;
        }
    }
    ga_tile_sync(tile);
}

/* Count `n` lanes of the tile as waiting for the class. Returns the number that waited before. */
GA_SIMT uint32_t ga_sized_class_count_waiting(ga_sized_class *c, ga_tile tile, uint32_t n)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes before = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&before, own, ga_add_relaxed(&c->waiting, n)); /* relaxed: an estimate */
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, before, leader);
}

/* Get more regions for the class, seen with `seen` words. True if it has changed since, by this
 * tile or another. If this tile got regions, it holds the first unit of the word `*held`. The tile
 * was counted as waiting. */
GA_SIMT bool ga_sized_grow(ga_sized_heap *heap, ga_tile tile, uint32_t class_, uint32_t seen,
                           uint32_t *held)
{
    ga_sized_class *c = heap->of + class_;
    uint32_t step;
    *held = GA_SIZED_NONE;
    while ((step = ga_sized_grow_try_lock(c, tile, seen)) == GA_SIZED_GROW_WAIT) {
        if (ga_sized_class_cannot_grow(heap, tile, class_, seen)) {
            return false;
        }
        ga_sized_grow_wait(c, tile);
    }
    if (step == GA_SIZED_GROW_DONE) {
        return true;
    }
    uint32_t got = ga_sized_class_get_regions(heap, tile, class_, held);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_sized_grow_unlock(c);
    }
    ga_tile_sync(tile);
    return got != 0;
}

#endif
