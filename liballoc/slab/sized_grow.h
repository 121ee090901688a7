/* SPDX-License-Identifier: MIT
 *
 * Regions for a class: its words become more, while others claim from those it has.
 *
 * STRUCTURE  sized_heap.h has it. Regions come from the pool (sized_pool.h), a 32nd of what the class has at
 *            a time. A tile clears their bitmaps, writes down whose they are, then shows them: in the
 *            class's table, and then by `all`, how many words the class has.
 *
 * INVARIANT  A region is one class's alone. Only who has the class's turn changes what the class shows.
 *
 * ORDER      S1 and S2: a region's bitmap has been cleared before a class shows it; S1 is in sized_places.h
 *            and sized_tile.h as well. T1 and T2: who has a class's turn sees what the one before did.
 *            P, Q and H are the pool's.
 *
 * PROGRESS   Who wants more waits for who has the turn, and he for a region, for as long as growth.h says.
 */
#ifndef GPUALLOC_SLAB_SIZED_GROW_H
#define GPUALLOC_SLAB_SIZED_GROW_H

#include "../simt/clock.h"
#include "../simt/simt.h"
#include "sized_heap.h"
#include "sized_pool.h"

/* Show what readers of `word` may use from now on, by one lane. */
GA_SIMT void ga_sized_show(uint32_t *word, uint32_t value)
{
#if GA_SIZED_MUTANT == 5
    ga_store_relaxed(word, value);
#else
    /* S2: release. Pairs with S1, here and elsewhere: bitmaps and owners are there. */
    ga_store_release(word, value);
#endif
}

/* The regions from `first` on, `n` of them, become the class's, by the tile that has its turn. */
GA_SIMT void ga_sized_regions_give(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                   uint32_t first, uint32_t n)
{
    ga_sized_class *c = heap->of + class_;
    uint32_t words = c->way.words;
    uint32_t count = c->way.all / words; /* plain: only who has the turn changes it */
    /* U1 (sized_tile.h) reads what is stored next: behind this fence is what the last owners did (P1). */
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < words * n; i += ga_tile_size(tile)) {
            uint32_t region = first + i / words;
            uint32_t word = i % words;
            uint32_t key = (region << ga_sized_stride_bits(heap->region_bits)) + word;
            /* relaxed, as what follows: S2 releases it. */
            ga_store_relaxed(heap->bits + key,
                             word + 1u == words && GA_SIZED_MUTANT != 7 ? c->tail : 0);
        }
        for (uint32_t i = rank; i < n; i += ga_tile_size(tile)) {
            ga_store_relaxed(heap->owners + first + i, class_ + 1u);
        }
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint32_t straight = GA_SIZED_STRAIGHT(c->way);
        for (uint32_t i = 0; i < n; i++) {
            ga_sized_show(c->way.table + count + i, first + i + 1u);
        }
        if (!count) {
            ga_sized_show(&c->way.first, first); /* nobody reads it before `straight` */
        }
        if (words > 1u && straight == count && (!count || c->way.first + count == first)) {
            ga_sized_show(&c->way.straight, (count + n) << 6 | GA_SIZED_SHIFT(c->way));
        }
        ga_sized_show(&c->way.all, c->way.all + words * n);
    }
    ga_tile_sync(tile);
}

#define GA_SIZED_PART 32u /* of what a class has, so much more at a time */

/* A 32nd more regions for the class than it has, at least one, by the tile that has its turn: how
 * many. It waits for memory where it must. */
GA_SIMT uint32_t ga_sized_regions_get(ga_sized_heap *heap, ga_tile tile, uint32_t class_)
{
    uint32_t more = heap->of[class_].way.all / heap->of[class_].way.words / GA_SIZED_PART;
    ga_sized_wish wish = {1u, more ? more : 1u, 1u, 0};
    uint32_t got = 0;
    ga_sized_part part = ga_sized_regions_find(heap, ga_tile_members(tile), wish);
    while (part.n) {
        ga_sized_regions_give(heap, tile, class_, part.first, part.n);
        got += part.n;
        wish.most -= part.n;
        if (!wish.most) {
            break;
        }
        part = ga_sized_regions_take(heap, tile, wish); /* what is there at once */
    }
    return got;
}

/* Whether the class has more words than `seen`, or the tile has its turn now; by the leader, the same for
 * all. */
typedef enum ga_sized_turn {
    GA_SIZED_GROWN = 0,
    GA_SIZED_TURN,
    GA_SIZED_WAIT
} ga_sized_turn;

GA_SIMT uint32_t ga_sized_turn_try(ga_sized_class *c, ga_tile tile, uint32_t seen)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes turn = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t standing = GA_SIZED_WAIT;
        if (ga_load_acquire(&c->way.all) != seen) { /* S1. Pairs with S2. */
            standing = GA_SIZED_GROWN;
            /* T1: acquire. Pairs with T2: `all` and the table as the last one left them. */
        } else if (GA_SIZED_MUTANT == 6 ||
                   (!ga_load_relaxed(&c->turn) && ga_cas_acquire(&c->turn, 0, 1u) == 0)) {
            standing = ga_load_relaxed(&c->way.all) == seen ? GA_SIZED_TURN : GA_SIZED_GROWN;
            if (standing == GA_SIZED_GROWN) {
                ga_store_release(&c->turn, 0); /* T2 */
            }
        }
        ga_lane_write(&turn, own, standing);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, turn, leader);
}

/* More regions for the class, which had `seen` words: true where it has more now, by whomever. */
GA_SIMT bool ga_sized_grow(ga_sized_heap *heap, ga_tile tile, uint32_t class_, uint32_t seen)
{
    ga_sized_class *c = heap->of + class_;
    uint32_t turn;
    while ((turn = ga_sized_turn_try(c, tile, seen)) == GA_SIZED_WAIT) {
        ga_clock_sleep(500);
    }
    if (turn == GA_SIZED_GROWN) {
        return true;
    }
    uint32_t got = ga_sized_regions_get(heap, tile, class_);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_release(&c->turn, 0); /* T2: release. Pairs with T1. */
    }
    ga_tile_sync(tile);
    return got != 0;
}

#endif
