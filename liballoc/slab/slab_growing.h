/* SPDX-License-Identifier: MIT
 *
 * A slab heap that grows while it is used: its super blocks are the steps of growth.h. Addressing
 * is light, over a reservation that has addresses for all there may ever be.
 *
 *     units   | super 0 | super 1 | super 2 |   addresses only   |
 *     rows    | row row | row row | row row |   addresses only   |
 *     counts  | n n n n   n n n n   n n n n   0 0 0 0 0 0 0 0 0 0 |   all there, from the start
 *
 * ORDER      G1 and G2: where a new count is seen, its row has been cleared, and its words are
 *            counted. G3 and G4: so have the rows of all words that are counted. Both come from the
 *            tile that prepares a super block.
 *
 * PROGRESS   A claim that has found nothing waits as growth.h says; with what has come it tries
 *            again. It answers FULL once growth is refused, after a search of its own in all there
 *            was by then.
 */
#ifndef GPUALLOC_SLAB_SLAB_GROWING_H
#define GPUALLOC_SLAB_SLAB_GROWING_H

#include "../arena/growth.h"
#include "slab_tile.h"
#include "slab_words.h"

/* One claim and one free in so many changes the estimate of what is taken, by so much more. On the
 * CPU, where noise is 0, each does. */
#ifdef __CUDACC__
#define GA_SLAB_SAMPLE 64u
#else
#define GA_SLAB_SAMPLE 1u
#endif

/* About so many words of bitmaps are prepared together. */
#ifndef GA_SLAB_PREPARED_WORDS
#define GA_SLAB_PREPARED_WORDS 16384u
#endif

/* ---- a new super block ---------------------------------------------------------------------- */

GA_SIMT uint32_t ga_slab_step_words(const ga_slab_heap *heap)
{
    return GA_SLAB_ROW_WORDS << heap->super_bits;
}

/* Units that have been free for ever, as the hardened checks want them. */
GA_SIMT void ga_slab_prepare_units(ga_slab_heap *heap, ga_tile tile, uint32_t step)
{
    uint32_t *words = (uint32_t *)(heap->units + heap->super_bytes * step);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint64_t i = rank; i < heap->super_bytes / 4u; i += ga_tile_size(tile)) {
            ga_store_relaxed(words + i, GA_SLAB_POISON); /* relaxed: G2 and G4 release it */
        }
    }
}

/* Super blocks `from` to `to` - 1 have been backed: all their units are free. Together, so that
 * they wait for memory once. */
GA_SIMT void ga_slab_prepare_steps(ga_slab_heap *heap, ga_tile tile, uint32_t from, uint32_t to)
{
    uint32_t first = ga_slab_step_words(heap) * from;
    uint32_t words = ga_slab_step_words(heap) * (to - from);
    uint32_t *rows = heap->rows + first;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < words; i += ga_tile_size(tile)) {
            /* relaxed: G2 and G4 release it. */
            ga_store_relaxed(rows + i, GA_SLAB_MUTANT == 9 ? GA_ALL_BITS : 0);
        }
    }
    for (uint32_t step = from; heap->check && step < to; step++) {
        ga_slab_prepare_units(heap, tile, step);
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* G4: release. Pairs with G3 (slab_heap.h): the rows are clear. Before the counts, which
         * lead others here: what they claim they may free at once, and then it must be known for a
         * unit. */
        ga_store_release(&heap->words, first + words);
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < words / GA_SLAB_ROW_WORDS; i += ga_tile_size(tile)) {
            uint32_t block = (from << heap->super_bits) + i;
            uint32_t *count = heap->free + ga_slab_count_place(GA_SLAB_SPREAD, block);
            /* G2: release, with the publish. Pairs with G1 (slab_tile.h): the row is clear, and
             * counted. */
            ga_post_add_published(count, GA_SLAB_MUTANT == 10 ? 0 : GA_SLAB_BLOCK_UNITS);
        }
    }
    ga_tile_sync(tile);
}

/* By pieces that take some microseconds: others may begin with the first. */
GA_SIMT void ga_slab_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    ga_slab_heap *heap = (ga_slab_heap *)context;
    uint32_t words = heap->check ? 0 : GA_SLAB_PREPARED_WORDS; /* poison takes long */
    uint32_t each = 1u + words / ga_slab_step_words(heap);
    while (from < to) {
        uint32_t end = to - from < each ? to : from + each;
        ga_slab_prepare_steps(heap, tile, from, end);
        from = end;
    }
}

/* ---- low water ----------------------------------------------------------------------------- */

/* About how many units are taken now that `n` more are, or fewer where that is below 0; 0 from most
 * calls, which do not count. */
GA_SIMT uint32_t ga_slab_weigh(ga_slab_heap *heap, ga_tile tile, uint32_t n)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t noise = ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), leader);
    ga_lanes taken = ga_lanes_all(0);
    if (ga_bits_mix(noise) % GA_SLAB_SAMPLE && GA_SLAB_SAMPLE > 1u) {
        return 0;
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        n *= GA_SLAB_SAMPLE;
        /* relaxed: an estimate. */
        ga_lane_write(&taken, own, ga_add_relaxed(&heap->taken, n) + n);
    }
    return ga_lanes_get(tile, taken, leader);
}

/* Whether so many taken units leave less than a quarter of what there is. */
GA_SIMT bool ga_slab_is_low(uint32_t taken, uint32_t words)
{
    return (int32_t)taken > 0 && taken / 24u >= words;
}

/* ---- claims -------------------------------------------------------------------------------- */

/* How many super blocks are ready, the same for all lanes. */
GA_SIMT uint32_t ga_slab_steps_ready(ga_slab_heap *heap, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes ready = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&ready, own, ga_growth_ready(heap->growth));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, ready, leader);
}

/* Wait for a super block more than `steps`, or ask for it and wait for nothing. Functions of their
 * own, so that claims keep little over them. */
GA_SIMT_SLOW bool ga_slab_await(ga_slab_heap *heap, uint32_t lanes, uint32_t steps)
{
    return ga_growth_await(ga_tile_among(lanes), heap->growth, steps + 1u, ga_slab_prepare, heap) ==
           GA_GROWTH_GRANTED;
}

GA_SIMT_SLOW void ga_slab_hint_more(ga_slab_heap *heap, uint32_t lanes, uint32_t steps)
{
    ga_growth_hint(ga_tile_among(lanes), heap->growth, steps + 1u, ga_slab_prepare, heap);
}

/* Ask for a super block more, where it is low. */
GA_SIMT void ga_slab_grow_ahead(ga_slab_heap *heap, ga_tile tile, uint32_t claimed, uint32_t steps)
{
    uint32_t taken = ga_slab_weigh(heap, tile, claimed);
    if (ga_slab_is_low(taken, steps * ga_slab_step_words(heap))) {
        ga_slab_hint_more(heap, ga_tile_members(tile), steps);
    }
}

/* Where to begin: as everywhere else, but not among the first words, of which `full` were full. */
GA_SIMT uint32_t ga_slab_start_behind(uint32_t number, uint32_t full, uint32_t words)
{
    uint32_t start = number % words;
    return start < full ? full + number % (words - full) : start;
}

/* A unit for each lane of the mask, like ga_slab_claim_lanes(), but where there is none it waits
 * until the heap has grown, and begins in what has come. `number` is the caller's, by which it
 * chooses where. */
GA_SIMT ga_lanes ga_slab_claim_growing_by(ga_slab_heap *heap, ga_tile tile, uint32_t lanes,
                                          uint32_t number)
{
    uint32_t wanting = ga_tile_lanes(tile) & lanes;
    ga_lanes units = ga_lanes_all(GA_SLAB_FULL);
    uint32_t steps = ga_slab_steps_ready(heap, tile);
    uint32_t full = 0; /* words that were full when it last looked */
    for (;;) {
        uint32_t words = steps * ga_slab_step_words(heap);
        ga_slab_view slab = ga_slab_view_with(heap, words);
        uint32_t start = ga_slab_start_behind(number, full, words);
        ga_lanes got = ga_slab_claim_lanes(slab, tile, wanting, start);
        units = ga_lanes_select(tile, wanting, got, units);
        wanting &= ~ga_lanes_nonzero(tile, units ^ ga_lanes_all(GA_SLAB_FULL));
        if (!wanting || !ga_slab_await(heap, ga_tile_members(tile), steps)) {
            break;
        }
        full = words;
        steps = ga_slab_steps_ready(heap, tile);
    }
    ga_slab_grow_ahead(heap, tile, ga_bits_count(lanes & ~wanting), steps);
    return units;
}

GA_SIMT_SLOW ga_lanes ga_slab_claim_growing(ga_slab_heap *heap, uint32_t lanes, uint32_t number)
{
    return ga_warp_is_whole(lanes)
               ? ga_slab_claim_growing_by(heap, ga_tile_of(32), lanes, number)
               : ga_slab_claim_growing_by(heap, ga_tile_among(lanes), lanes, number);
}

/* A word of units for a tile: like ga_slab_claim_word(). */
GA_SIMT_SLOW ga_slab_claimed ga_slab_claim_word_growing(ga_slab_heap *heap, uint32_t lanes,
                                                        uint32_t word)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_slab_claimed claimed;
    uint32_t steps = ga_slab_steps_ready(heap, tile);
    uint32_t full = 0;
    for (;;) {
        uint32_t words = steps * ga_slab_step_words(heap);
        claimed.word = ga_slab_start_behind(word, full, words);
        claimed.units = 0;
        ga_slab_claim_word(ga_slab_view_with(heap, words), tile, &claimed);
        if (claimed.units || !ga_slab_await(heap, lanes, steps)) {
            break;
        }
        full = words;
        steps = ga_slab_steps_ready(heap, tile);
    }
    ga_slab_grow_ahead(heap, tile, ga_bits_count(claimed.units), steps);
    return claimed;
}

#endif
