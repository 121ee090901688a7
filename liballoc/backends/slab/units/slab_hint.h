/* SPDX-License-Identifier: MIT
 *
 * The hint of a slab heap: an offset from a full home word to a region with free blocks.
 *
 * A warp begins its search at its home word, the word of its number. In a heap that has been filled
 * in that order all home words are full. The hint is a shared offset that takes each warp to
 * another word and keeps neighbours beside each other:
 *
 *     words   |##########################################|                    |
 *              ^^^ warps 0, 1, 2 begin                    ^^^ and go, by the hint
 *
 * One tile computes the hint by sampling free counts, and publishes it. Tiles that find nothing
 * before that sleep for at most 8 us and then search for themselves, so no tile depends on another.
 * All tiles read the hint, so it has GA_SLAB_HINT_COPIES copies. The first one decides: a tile that
 * is about to compute the hint must have put GA_SLAB_HINT_PENDING there.
 *
 *   ga_slab_hint_update            entry, from claim_search (slab_tile.h)
 *    |- hint_read                  reads the tile's copy; waits while another tile computes
 *    |- should_update_hint, hint_elect      1 tile in 2048 may; one is elected
 *    `- find_free_blocks           a 128-ary search over counts, for a whole warp
 *        `- find_half_free         one round of samples
 *
 * All accesses are relaxed: a hint is a guess, and a unit is claimed by its bit.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_HINT_H
#define GPUALLOC_SLAB_UNITS_SLAB_HINT_H

#include "../../../simt/clock.h"
#include "../../../simt/simt.h"
#include "slab_heap.h"

/* Values of a copy that are not offsets. */
#define GA_SLAB_HINT_UNSET   0u          /* no tile has computed one yet */
#define GA_SLAB_HINT_PENDING 0xffffffffu /* a tile is computing one */
#define GA_SLAB_HINT_NOWHERE 0xfffffffeu /* there is no region of free blocks */

/* 1 tile in N, among them tile 0, may compute the first hint, and a later one. */
#define GA_SLAB_FIRST_SEEKER_EVERY 131072u
#define GA_SLAB_SEEKER_EVERY       2048u

#define GA_SLAB_LOOKAHEAD_BLOCKS 256u  /* no new hint while the block this far ahead is half free */
#define GA_SLAB_HINT_SLEEP_NS    1000u /* between two reads of a pending hint */
#ifdef __CUDACC__
#define GA_SLAB_HINT_SLEEPS 8u /* at most; computing takes 5 to 10 us */
#else
#define GA_SLAB_HINT_SLEEPS 0u
#endif

/* The word to which `hint` takes a tile with that home word; `home` if the hint is no offset. */
GA_SIMT uint32_t ga_slab_hinted_word(ga_slab_view slab, uint32_t hint, uint32_t home)
{
    uint32_t word = home + hint;
    if (hint >= slab.words) {
        return home;
    }
    return word < slab.words ? word : word - slab.words;
}

/* The copy of the hint for tiles with that home word. */
GA_SIMT uint32_t *ga_slab_hint_copy(ga_slab_heap *heap, uint32_t home)
{
    return heap->hints + home % GA_SLAB_HINT_COPIES;
}

GA_SIMT void ga_slab_hint_publish(ga_slab_heap *heap, ga_tile tile, uint32_t hint)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < GA_SLAB_HINT_COPIES; i += ga_tile_size(tile)) {
            ga_store_relaxed(heap->hints + i, hint); /* relaxed: a guess */
        }
    }
}

/* True if a tile with that home word should wait for the hint. */
GA_SIMT bool ga_slab_hint_is_pending(uint32_t hint, uint32_t home)
{
    return hint == GA_SLAB_HINT_PENDING ||
           (hint == GA_SLAB_HINT_UNSET && home % GA_SLAB_FIRST_SEEKER_EVERY);
}

/* Read the hint. If it is pending, wait until it is there, at most GA_SLAB_HINT_SLEEPS times. */
GA_SIMT uint32_t ga_slab_hint_read(ga_slab_heap *heap, ga_tile tile, uint32_t home)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes hint = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t now = ga_load_relaxed(ga_slab_hint_copy(heap, home)); /* relaxed: a guess */
        for (uint32_t i = GA_SLAB_HINT_SLEEPS; i && ga_slab_hint_is_pending(now, home); i--) {
            ga_clock_sleep(GA_SLAB_HINT_SLEEP_NS);
            now = ga_load_relaxed(ga_slab_hint_copy(heap, home)); /* relaxed: a guess */
        }
        ga_lane_write(&hint, own, now);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, hint, leader);
}

/* True for the one tile that is elected to replace `hint`. */
GA_SIMT bool ga_slab_hint_elect(ga_slab_heap *heap, ga_tile tile, uint32_t hint)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes before = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: a guess. */
        ga_lane_write(&before, own, ga_cas_relaxed(heap->hints, hint, GA_SLAB_HINT_PENDING));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, before, leader) == hint;
}

#define GA_SLAB_SAMPLES_PER_LANE 4u

/* Sample the counts of the blocks `at` + i * `stride` - 1 for i = 1, 2, ...,
 * GA_SLAB_SAMPLES_PER_LANE for each lane. Returns i - 1 of the first block that is at least half
 * free, or GA_SLAB_FULL. */
GA_SIMT uint32_t ga_slab_find_half_free(ga_slab_view slab, ga_tile tile, uint32_t at,
                                        uint32_t stride)
{
    ga_lanes found = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t first = ga_lane_read(found, own) * GA_SLAB_SAMPLES_PER_LANE;
        uint32_t n[GA_SLAB_SAMPLES_PER_LANE];
        uint32_t half = 0;
        for (uint32_t i = 0; i < GA_SLAB_SAMPLES_PER_LANE; i++) {
            uint32_t block = (at + (first + i + 1u) * stride - 1u) % ga_slab_blocks(slab);
            /* relaxed: a guess. */
            n[i] = ga_load_relaxed(slab.free + ga_slab_count_index(GA_SLAB_SPREAD, block));
        }
        for (uint32_t i = 0; i < GA_SLAB_SAMPLES_PER_LANE; i++) {
            /* Unsigned, so that a count below 0 is not half free. */
            bool room = n[i] - GA_SLAB_BLOCK_UNITS / 2u <= GA_SLAB_BLOCK_UNITS / 2u;
            half |= (uint32_t)room << i;
        }
        ga_lane_write(&found, own, half ? first + ga_bits_lowest(half) + 1u : 0);
    }
    uint32_t lanes = ga_lanes_nonzero(tile, found);
    return lanes ? ga_lanes_get(tile, found, ga_bits_lowest(lanes)) - 1u : GA_SLAB_FULL;
}

/* The first block at or after `from`, once around, that is half free as far as the samples show; or
 * GA_SLAB_FULL. Each round samples the gap before the block that the last round found, until the
 * stride is 1. */
GA_SIMT uint32_t ga_slab_find_free_blocks(ga_slab_view slab, ga_tile tile, uint32_t from)
{
    uint32_t samples = ga_tile_size(tile) * GA_SLAB_SAMPLES_PER_LANE;
    uint32_t stride = ga_slab_blocks(slab) / samples + 1u;
    uint32_t sample;
    while ((sample = ga_slab_find_half_free(slab, tile, from, stride)) != GA_SLAB_FULL) {
        from += sample * stride;
        if (stride == 1u) {
            return from % ga_slab_blocks(slab);
        }
        stride = (stride + samples - 1u) / samples;
    }
    return GA_SLAB_FULL;
}

/* True if a tile with that home word may replace the hint. No hint yet: yes, as the tile has waited
 * long enough. Pending: no. No free region: 1 tile in GA_SLAB_FIRST_SEEKER_EVERY. Otherwise 1
 * tile in GA_SLAB_SEEKER_EVERY, unless the block GA_SLAB_LOOKAHEAD_BLOCKS ahead is half
 * free. */
GA_SIMT bool ga_slab_should_update_hint(ga_slab_view slab, ga_tile tile, uint32_t home,
                                        uint32_t tried, uint32_t hint)
{
    if (hint == GA_SLAB_HINT_UNSET || hint == GA_SLAB_HINT_PENDING) {
        return hint == GA_SLAB_HINT_UNSET;
    }
    if (hint == GA_SLAB_HINT_NOWHERE) {
        return home % GA_SLAB_FIRST_SEEKER_EVERY == 0;
    }
    uint32_t ahead = tried / GA_SLAB_ROW_WORDS + GA_SLAB_LOOKAHEAD_BLOCKS;
    return home % GA_SLAB_SEEKER_EVERY == 0 && ga_slab_find_half_free(slab, tile, ahead, 1) != 0;
}

/* Called when neither the home word nor `tried` had a free unit. Returns the word to try next: the
 * one that the hint names, if that is new, or the beginning of free blocks, which becomes the hint;
 * or `tried`. */
GA_SIMT uint32_t ga_slab_hint_update(ga_slab_view slab, ga_tile tile, uint32_t home, uint32_t tried)
{
    uint32_t hint = ga_slab_hint_read(slab.heap, tile, home);
    uint32_t word = ga_slab_hinted_word(slab, hint, home);
    if (word != home && word != tried) {
        return word;
    }
    if (!ga_slab_should_update_hint(slab, tile, home, tried, hint) ||
        !ga_slab_hint_elect(slab.heap, tile, hint)) {
        return tried;
    }
    if (word != home) { /* otherwise `hint` is no offset: other tiles wait already, or need not */
        ga_slab_hint_publish(slab.heap, tile, GA_SLAB_HINT_PENDING);
    }
    uint32_t block = ga_slab_find_free_blocks(slab, tile, tried / GA_SLAB_ROW_WORDS + 1u);
    word = block * GA_SLAB_ROW_WORDS;
    if (block == GA_SLAB_FULL || word == home) {
        ga_slab_hint_publish(slab.heap, tile, GA_SLAB_HINT_NOWHERE);
        return tried;
    }
    ga_slab_hint_publish(slab.heap, tile, word >= home ? word - home : word + slab.words - home);
    return word;
}

#endif
