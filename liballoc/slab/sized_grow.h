/* SPDX-License-Identifier: MIT
 *
 * Regions for a class: its words become more, while others claim from those it has.
 *
 * STRUCTURE  sized_heap.h has it. Regions come from the pool (sized_pool.h), a 32nd of what the class has at
 *            a time. A tile clears their bitmaps, writes down whose they are, then shows them: in the
 *            class's table, and then by `all`, how many words the class has. A region that leaves the class
 *            (sized_sweep.h) leaves the table, and the last one takes its place there.
 *
 * INVARIANT  A region has one class. The table, `all` and the part that follows on each other are changed
 *            by the tile that holds the class's `edit`, and an owner that names the class is set and
 *            replaced under it. The tile that has the class's turn gets regions for it.
 *
 * ORDER      S1 and S2: a region's bitmap has been cleared before a class shows it; S1 is in sized_places.h
 *            and sized_tile.h as well. T1 and T2: a tile that has a class's turn sees what the one before
 *            did. E1 and E2: the same of the table. O1 and O2: a region's bitmap has been cleared before its
 *            owner says whose it is. P, Q and H are the pool's.
 *
 * PROGRESS   A tile that wants more regions waits for the tile that has the turn, and that one for a region,
 *            for as long as growth.h says. A tile that holds `edit` waits for nothing.
 */
#ifndef GPUALLOC_SLAB_SIZED_GROW_H
#define GPUALLOC_SLAB_SIZED_GROW_H

#include "../simt/clock.h"
#include "../simt/simt.h"
#include "sized_heap.h"
#include "sized_pool.h"

/* Show what readers of `word` may use from now on, by one lane. */
GA_SIMT void ga_sized_publish(uint32_t *word, uint32_t value)
{
#if GA_SIZED_MUTANT == 5
    ga_store_relaxed(word, value);
#else
    /* S2: release. Pairs with S1, here and elsewhere: bitmaps and owners are there. */
    ga_store_release(word, value);
#endif
}

/* A store that readers acquire, by a lane whose tile has called ga_tile_publish() since it wrote what they
 * are to see. */
GA_SIMT void ga_sized_store_published(uint32_t *word, uint32_t value)
{
#ifdef __CUDACC__
    ga_store_relaxed(word, value); /* behind the fence of ga_tile_publish() */
#else
    ga_store_release(word, value);
#endif
}

/* S2, with the tile's publish: the same of a table's entry, which old readers may read before `all`. */
GA_SIMT void ga_sized_publish_fenced(uint32_t *word, uint32_t value)
{
#if GA_SIZED_MUTANT == 5
    ga_store_relaxed(word, value);
#else
    ga_sized_store_published(word, value);
#endif
}

/* ---- the table of a class ------------------------------------------------------------------------------- */

/* Only the tile that holds `edit` changes what the class shows and what its regions are. It never waits
 * while it holds that. */
GA_SIMT void ga_sized_table_lock(ga_sized_class *c, ga_tile tile)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* E1: acquire. Pairs with E2: the table and the owners as the last tile left them. */
        while (GA_SIZED_MUTANT != 6 &&
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
        ga_store_release(&c->table_lock, 0); /* E2: release. Pairs with E1. */
    }
    ga_tile_sync(tile);
}

/* The regions become the last ones of the table. By one lane that holds `edit`, so that relaxed loads are
 * enough. Once a region has left the part that follows on each other, old readers may think that part
 * longer than it is: it must not begin elsewhere then, and does not grow again. */
GA_SIMT void ga_sized_table_append(ga_sized_heap *heap, ga_sized_class *c, ga_sized_extent extent)
{
    uint32_t words = c->map.words;
    uint32_t count = ga_load_relaxed(&c->map.total_words) / words;
    uint32_t contiguous = ga_load_relaxed(&c->map.contiguous) >> 6;
    uint32_t first = count ? ga_load_relaxed(&c->map.first) : extent.first;
    uint32_t any_spent = ga_load_relaxed(&heap->sweep.any_spent);
    bool follows = words > 1u && !ga_load_relaxed(&c->shrunk);
    for (uint32_t i = 0; i < extent.n; i++) {
        uint32_t region = extent.first + i;
        uint32_t spent = any_spent ? ga_load_relaxed(heap->places + region) & GA_SIZED_SPENT : 0;
        ga_store_relaxed(heap->places + region, (count + i) | spent);
        ga_sized_publish_fenced(c->map.table + count + i, (region + 1u) | spent);
        follows = follows && !spent && contiguous == count + i && first + contiguous == region;
        contiguous += follows;
    }
    if (!count && !ga_load_relaxed(&c->shrunk)) {
        ga_sized_publish(&c->map.first, first); /* nobody reads it before `straight` */
    }
    if (contiguous != ga_load_relaxed(&c->map.contiguous) >> 6) {
        ga_sized_publish(&c->map.contiguous, contiguous << 6 | GA_SIZED_SHIFT(c->map));
    }
    ga_sized_publish(&c->map.total_words, (count + extent.n) * words);
}

/* The region leaves the table, and the last one takes its place. By one lane, as above. Readers with an old
 * table find the region's first bitmap full, or look at its owner; the one that has moved is still the
 * class's, wherever they find it. */
GA_SIMT void ga_sized_table_remove(ga_sized_heap *heap, ga_sized_class *c, uint32_t region)
{
    uint32_t place = ga_load_relaxed(heap->places + region) & ~GA_SIZED_SPENT;
    uint32_t last = ga_load_relaxed(&c->map.total_words) / c->map.words - 1u;
    if (place < ga_load_relaxed(&c->map.contiguous) >> 6) {
        ga_sized_publish(&c->map.contiguous, place << 6 | GA_SIZED_SHIFT(c->map));
        ga_store_relaxed(&c->shrunk, 1u);
    }
    if (place != last) {
        uint32_t entry = ga_load_relaxed(c->map.table + last);
        ga_store_relaxed(heap->places + ((entry & ~GA_SIZED_SPENT) - 1u),
                         place | (entry & GA_SIZED_SPENT));
        ga_sized_publish(c->map.table + place, entry);
    }
    ga_sized_publish(c->map.table + last, 0);
    ga_sized_publish(&c->map.total_words, last * c->map.words);
    ga_store_relaxed(heap->places + region, GA_SIZED_SPENT);
}

/* ---- regions for a class ---------------------------------------------------------------------------------- */

/* The word of `owners` for a region that the class takes. */
GA_SIMT uint32_t ga_sized_owner_for(const ga_sized_heap *heap, uint32_t class_, uint32_t region)
{
    /* relaxed: the tile that took the region has acquired it (P1). */
    bool spent = ga_load_relaxed(&heap->sweep.any_spent) &&
                 ga_load_relaxed(heap->places + region) & GA_SIZED_SPENT;
    return (class_ + 1u) | (spent ? GA_SIZED_SECOND : 0);
}

/* All units of the regions are free. No claim has bits of these bitmaps, but one that is late may ask for
 * some of a second one: it reads what is stored here, and so who owns the region (ga_sized_class_owns()). */
GA_SIMT void ga_sized_bitmaps_clear(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                    ga_sized_extent extent, bool hold)
{
    const ga_sized_class *c = heap->of + class_;
    uint32_t words = c->map.words;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        uint32_t spent = ga_load_relaxed(&heap->sweep.any_spent); /* relaxed: P1, as above */
        for (uint32_t i = rank; i < words * extent.n; i += ga_tile_size(tile)) {
            uint32_t region = extent.first + i / words;
            uint32_t word = i % words;
            uint32_t owner = spent ? ga_sized_owner_for(heap, class_, region) : 0;
            uint32_t word_index = ga_sized_bitmap_index(heap->region_bits, region, owner) + word;
            uint32_t bits = word + 1u == words && GA_SIZED_MUTANT != 7 ? c->tail : 0;
            bits |= hold && i == 0; /* the caller's */
            if (owner & GA_SIZED_SECOND) {
                ga_sized_store_published(heap->bits + word_index, bits);
            } else {
                ga_store_relaxed(heap->bits + word_index, bits); /* relaxed: S2 and O2 release it */
            }
        }
    }
}

/* The regions from `first` on, `n` of them, become the class's, by the tile that has its turn. With `hold` the
 * tile has their first unit: the key of its word. Else a sweep might find the first region empty and take it
 * for another class before anybody is served, and that class might lose it in the same way, for ever. */
GA_SIMT uint32_t ga_sized_class_add_regions(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                            uint32_t first, uint32_t n, bool hold)
{
    ga_sized_class *c = heap->of + class_;
    ga_sized_extent extent = {first, n};
    /* U1 (sized_search.h) reads what is stored next: behind this fence is what the last owners did (P1). */
    ga_tile_publish(tile);
    ga_sized_bitmaps_clear(heap, tile, class_, extent, hold);
    ga_tile_publish(tile);
    ga_sized_table_lock(c, tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < n; i += ga_tile_size(tile)) {
            /* O2: release, with the tile's publish. Pairs with O1 (sized_sweep.h): a sweep that finds the
             * class here finds the bitmap cleared. */
            uint32_t owner = ga_sized_owner_for(heap, class_, first + i);
            ga_sized_store_published(heap->owners + first + i, owner);
        }
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* H2: release, after the owners and before a claim can find the regions. Pairs with H1: a sweep
         * that has passed by them has a result that does not hold any more. */
        ga_post_add_release(&heap->releases, 1u);
        ga_sized_table_append(heap, c, extent);
    }
    ga_sized_table_unlock(c, tile);
    uint32_t owner = ga_sized_owner_for(heap, class_, first);
    return hold ? ga_sized_bitmap_index(heap->region_bits, first, owner) : GA_SIZED_NONE;
}

#define GA_SIZED_GROW_DIVISOR 32u /* of what a class has, so much more at a time */

/* A 32nd more regions for the class than it has, at least one, by the tile that has its turn: how
 * many. It waits for memory where it must. */
GA_SIMT uint32_t ga_sized_class_get_regions(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                            uint32_t *held)
{
    ga_sized_class *c = heap->of + class_;
    /* relaxed: a measure, from which a sweep may take regions meanwhile */
    uint32_t more = ga_load_relaxed(&c->map.total_words) / c->map.words / GA_SIZED_GROW_DIVISOR;
    ga_sized_request request = {1u, more ? more : 1u, 1u, 0};
    uint32_t got = 0;
    ga_sized_extent extent = ga_sized_regions_alloc(heap, ga_tile_members(tile), request);
    while (extent.n) {
        uint32_t word_index =
            ga_sized_class_add_regions(heap, tile, class_, extent.first, extent.n, got == 0);
        *held = got ? *held : word_index;
        got += extent.n;
        request.most -= extent.n;
        if (!request.most) {
            break;
        }
        extent = ga_sized_regions_alloc_fast(heap, tile, request); /* what is there at once */
    }
    return got;
}

/* The next step of a tile that wants more regions. */
typedef enum ga_sized_grow_step {
    GA_SIZED_GROW_DONE = 0, /* the class has other words than the tile has seen */
    GA_SIZED_GROW_LOCKED,   /* the tile has the class's turn now */
    GA_SIZED_GROW_WAIT
} ga_sized_grow_step;

/* Take the class's turn if it is free. By one lane. `turn` is odd while a tile has it, so that a tile which
 * waits for the end of one turn does not wait for the next tile's, too. */
GA_SIMT bool ga_sized_grow_try_lock_alone(ga_sized_class *c)
{
    uint32_t ticket = ga_load_relaxed(&c->grow_lock);
    /* T1: acquire. Pairs with T2: `all` and the table as the last tile left them. */
    return !(ticket & 1u) && ga_cas_acquire(&c->grow_lock, ticket, ticket + 1u) == ticket;
}

/* By the lane that took it. */
GA_SIMT void ga_sized_grow_unlock(ga_sized_class *c)
{
    /* T2: release. Pairs with T1. The load is relaxed because no other tile changes it now. */
    ga_store_release(&c->grow_lock, ga_load_relaxed(&c->grow_lock) + 1u);
}

GA_SIMT uint32_t ga_sized_grow_try_lock(ga_sized_class *c, ga_tile tile, uint32_t seen)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes steps = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t step = GA_SIZED_GROW_WAIT;
        if (ga_load_acquire(&c->map.total_words) != seen) { /* S1. Pairs with S2. */
            step = GA_SIZED_GROW_DONE;
        } else if (ga_sized_grow_try_lock_alone(c)) {
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

/* Whether there is no region to be had for the class, which had `seen` words: the pool has none, and a tile that
 * took the last one for the class has shown it. The caller waits for that tile, but not for tiles that take the
 * turn later: while tiles wait for each other's turns, none of them would ever be refused. */
GA_SIMT bool ga_sized_class_cannot_grow(const ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                        uint32_t seen)
{
    const ga_sized_class *c = heap->of + class_;
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes none = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (ga_sized_pool_known_full(heap, 1u)) {             /* N2, before T1 */
            uint32_t ticket = ga_load_acquire(&c->grow_lock); /* T1: acquire. Pairs with T2. */
            while (ticket & 1u && ga_load_acquire(&c->grow_lock) == ticket) { /* T1 */
                ga_clock_sleep(500);
            }
            ga_lane_write(&none, own,
                          ga_load_acquire(&c->map.total_words) == seen); /* S1. Pairs with S2. */
        }
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, none, leader) != 0;
}

/* More regions for the class, which had `seen` words: true where it has more now, by whomever. Where this
 * tile got them, the first unit of the word `*held` is its own. */
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
        ga_clock_sleep(500);
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
