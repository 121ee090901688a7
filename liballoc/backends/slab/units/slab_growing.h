/* SPDX-License-Identifier: MIT
 *
 * Slab heaps that grow under running kernels: a superblock is a step of growth.h. Addressing is
 * light: addresses for the largest size are reserved at once, and steps are mapped in order.
 *
 *     units   | super 0 | super 1 | super 2 |   addresses only   |
 *     rows    | row row | row row | row row |   addresses only   |
 *     counts  | n n n n   n n n n   n n n n   0 0 0 0 0 0 0 0 0 0 |   all mapped from the start
 *
 *   ga_slab_claim_growing          like ga_slab_claim_lanes() in the steps that are ready, for
 *    |                             lanes that have no unit yet
 *    |- await_growth               found nothing: waits for one step more, then claims again in it
 *    |   `- ga_slab_prepare        by the tile that holds the growth's lock: clears new rows
 *    `- grow_ahead                 1 call in 64: if 3/4 of the units seem to be taken, requests a
 *                                  step and does not wait
 *   ga_slab_claim_word_growing     like ga_slab_claim_word(); otherwise the same path
 *
 * ORDER      The tile that prepares a superblock releases twice. SG1 and SG2: a tile that sees a
 *            new count sees the cleared row, and its words are counted. SG3 and SG4: a tile that
 *            sees a new number of words sees their cleared rows.
 *
 * PROGRESS   A claim that finds nothing waits as growth.h says and retries with the new memory. It
 *            returns FULL when growth is refused, after it has searched all memory that was there
 *            by then.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_GROWING_H
#define GPUALLOC_SLAB_UNITS_SLAB_GROWING_H

#include "../../../growth/growth.h"
#include "slab_in_turn.h"
#include "slab_words.h"

/* 1 in N slow claims looks at how many units are free. On the CPU, where noise is 0, each does. */
#ifdef __CUDACC__
#define GA_SLAB_CALLS_PER_SAMPLE 64u
#else
#define GA_SLAB_CALLS_PER_SAMPLE 1u
#endif

/* Rows of about this many bitmap words are prepared together. */
#ifndef GA_SLAB_PREPARED_WORDS
#define GA_SLAB_PREPARED_WORDS 16384u
#endif

/* ---- a new superblock --------------------------------------------------------------------- */

GA_SIMT uint32_t ga_slab_step_words(const ga_slab_heap *heap)
{
    return GA_SLAB_ROW_WORDS << heap->super_bits;
}

/* Fill the units of a superblock with poison, as the hardened checks expect of free units. */
GA_SIMT void ga_slab_poison_units(ga_slab_heap *heap, ga_tile tile, uint32_t step)
{
    uint32_t *words = (uint32_t *)(heap->units + heap->super_bytes * step);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint64_t i = rank; i < heap->super_bytes / 4u; i += ga_tile_size(tile)) {
            ga_store_relaxed(words + i, GA_SLAB_POISON); /* relaxed: SG2 and SG4 release it */
        }
    }
}

/* Free all units of superblocks `from` to `to` - 1, which have been mapped. All at once, so that
 * the tile waits for memory once. */
GA_SIMT void ga_slab_prepare_steps(ga_slab_heap *heap, ga_tile tile, uint32_t from, uint32_t to)
{
    uint32_t first = ga_slab_step_words(heap) * from;
    uint32_t words = ga_slab_step_words(heap) * (to - from);
    uint32_t *rows = heap->rows + first;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < words; i += ga_tile_size(tile)) {
            /* relaxed: SG2 and SG4 release it. */
            ga_store_relaxed(rows + i, GA_PLANTED(slab_new_rows_not_cleared) ? GA_ALL_BITS : 0);
        }
    }
    for (uint32_t step = from; heap->check && step < to; step++) {
        ga_slab_poison_units(heap, tile, step);
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* SG4: release. Pairs with SG3 (slab_heap.h): the rows are clear. Before the counts,
         * because these lead other tiles here: a unit that a tile claims it may free at once, and
         * then `words` must cover it. */
        ga_store_release(&heap->words, first + words);
    }
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < GA_SLAB_WORD_COPIES; i += ga_tile_size(tile)) {
            /* relaxed, after the publish, so the rows are clear. Read by ga_slab_words_now(). */
            ga_store_relaxed(heap->word_copies + i * GA_SLAB_WORD_STRIDE, first + words);
        }
        for (uint32_t i = rank; i < words / GA_SLAB_ROW_WORDS; i += ga_tile_size(tile)) {
            uint32_t block = (from << heap->super_bits) + i;
            uint32_t *count = heap->free + ga_slab_count_index(GA_SLAB_SPREAD, block);
            /* SG2: release, with the publish. Pairs with SG1 (slab_tile.h): the row is clear, and
             * its words are counted. */
            ga_post_add_published(count,
                                  GA_PLANTED(slab_new_counts_not_set) ? 0 : GA_SLAB_BLOCK_UNITS);
        }
    }
    ga_tile_sync(tile);
}

/* The callback of growth.h. Works in pieces of a few microseconds, so that other tiles may begin to
 * claim from the first piece. */
GA_SIMT void ga_slab_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    ga_slab_heap *heap = (ga_slab_heap *)context;
    uint32_t words = heap->check ? 0 : GA_SLAB_PREPARED_WORDS; /* poisoning takes long */
    uint32_t each = 1u + words / ga_slab_step_words(heap);
    while (from < to) {
        uint32_t end = to - from < each ? to : from + each;
        ga_slab_prepare_steps(heap, tile, from, end);
        from = end;
    }
}

/* ---- low water ----------------------------------------------------------------------------- */

/* True in one of GA_SLAB_CALLS_PER_SAMPLE calls. */
GA_SIMT bool ga_slab_is_sampled(ga_tile tile)
{
    uint32_t noise = ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    return GA_SLAB_CALLS_PER_SAMPLE == 1u || ga_bits_mix(noise) % GA_SLAB_CALLS_PER_SAMPLE == 0;
}

/* True if less than a quarter of the units seems to be free: each lane reads the count of a memory
 * block. The blocks are spread evenly. */
GA_SIMT bool ga_slab_is_low(ga_slab_view slab, ga_tile tile)
{
    uint32_t size = ga_tile_size(tile);
    ga_lanes room = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t rank = ga_lane_read(room, own);
        uint32_t block = (uint32_t)(rank * ga_slab_blocks(slab) / size);
        /* relaxed: a guess. */
        uint32_t n = ga_load_relaxed(slab.free + ga_slab_count_index(GA_SLAB_SPREAD, block));
        ga_lane_write(&room, own, n <= GA_SLAB_BLOCK_UNITS ? n : 0); /* below 0 for a moment */
    }
    return ga_lanes_sum(tile, room) < size * (GA_SLAB_BLOCK_UNITS / 4u);
}

/* ---- claims -------------------------------------------------------------------------------- */

/* The number of superblocks that are ready, read by the leader for all lanes. */
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

/* Wait for one superblock more than `steps`, or request it without waiting. Functions of their
 * own, so that a claim keeps few registers over the call. */
GA_SIMT_SLOW bool ga_slab_await_growth(ga_slab_heap *heap, uint32_t lanes, uint32_t steps)
{
    return ga_growth_await(ga_tile_among(lanes), heap->growth, steps + 1u, ga_slab_prepare, heap) ==
           GA_GROWTH_GRANTED;
}

GA_SIMT_SLOW void ga_slab_request_growth(ga_slab_heap *heap, uint32_t lanes, uint32_t steps)
{
    ga_growth_hint(ga_tile_among(lanes), heap->growth, steps + 1u, ga_slab_prepare, heap);
}

/* Now and then: request one superblock more if free units are low. */
GA_SIMT void ga_slab_grow_ahead(ga_slab_heap *heap, ga_tile tile, uint32_t steps)
{
    if (ga_slab_is_sampled(tile) &&
        ga_slab_is_low(ga_slab_view_with(heap, steps * ga_slab_step_words(heap)), tile)) {
        ga_slab_request_growth(heap, ga_tile_members(tile), steps);
    }
}

/* The home word of warp `number`; if it is one of the first `full_words`, which were full, then
 * another one behind those. */
GA_SIMT uint32_t ga_slab_home_word_behind(uint32_t number, uint32_t full_words, uint32_t words)
{
    uint32_t home = number % words;
    return home < full_words ? full_words + number % (words - full_words) : home;
}

/* Claim a unit for each lane of the mask that has none in `units`, like ga_slab_claim_lanes(). If
 * there is none, wait until the heap has grown, and begin in the new words. `number`, the number of
 * the caller's warp, sets the home word. Returns all units. */
GA_SIMT ga_lanes ga_slab_claim_growing_by(ga_slab_heap *heap, ga_tile tile, uint32_t lanes,
                                          uint32_t number, ga_lanes units)
{
    uint32_t steps = ga_slab_steps_ready(heap, tile);
    uint32_t full_words = 0; /* words that the last search has found full */
    uint32_t requesting;
    while ((requesting = lanes & ~ga_lanes_nonzero(tile, units ^ ga_lanes_all(GA_SLAB_FULL)))) {
        uint32_t words = steps * ga_slab_step_words(heap);
        uint32_t home = ga_slab_home_word_behind(number, full_words, words);
        ga_lanes got = ga_slab_claim_lanes(ga_slab_view_with(heap, words), tile, requesting, home);
        units = ga_lanes_select(tile, requesting, got, units);
        if (ga_lanes_nonzero(tile, got ^ ga_lanes_all(GA_SLAB_FULL)) == requesting ||
            !ga_slab_await_growth(heap, ga_tile_members(tile), steps)) {
            break;
        }
        full_words = steps * ga_slab_step_words(heap);
        steps = ga_slab_steps_ready(heap, tile);
    }
    ga_slab_grow_ahead(heap, tile, steps);
    return units;
}

GA_SIMT_SLOW ga_lanes ga_slab_claim_growing(ga_slab_heap *heap, uint32_t lanes, uint32_t number,
                                            ga_lanes units)
{
    return ga_warp_is_whole(lanes)
               ? ga_slab_claim_growing_by(heap, ga_tile_of(32), lanes, number, units)
               : ga_slab_claim_growing_by(heap, ga_tile_among(lanes), lanes, number, units);
}

/* Claim a word of units for a tile, like ga_slab_claim_word(). */
GA_SIMT_SLOW ga_slab_claimed ga_slab_claim_word_growing(ga_slab_heap *heap, uint32_t lanes,
                                                        uint32_t word)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_slab_claimed claimed;
    uint32_t steps = ga_slab_steps_ready(heap, tile);
    uint32_t full_words = 0;
    for (;;) {
        uint32_t words = steps * ga_slab_step_words(heap);
        claimed.word = ga_slab_home_word_behind(word, full_words, words);
        claimed.units = 0;
        ga_slab_claim_word(ga_slab_view_with(heap, words), tile, &claimed);
        if (claimed.units || !ga_slab_await_growth(heap, lanes, steps)) {
            break;
        }
        full_words = words;
        steps = ga_slab_steps_ready(heap, tile);
    }
    ga_slab_grow_ahead(heap, tile, steps);
    return claimed;
}

#endif
