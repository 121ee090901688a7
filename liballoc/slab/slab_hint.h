/* SPDX-License-Identifier: MIT
 *
 * The hint of a slab heap: where there is room.
 *
 * Warps begin their search at the word of their number. In a heap that has been filled in that
 * order all of them begin where nothing is free. So there is a hint, an offset that takes each of
 * them to another word, one beside the other as before:
 *
 *     words   |##########################################|                    |
 *              ^^^ warps 0, 1, 2 begin                    ^^^ and go, by the hint
 *
 * One of them looks where free blocks begin, by samples of the counts, and tells all. Who finds
 * nothing meanwhile sleeps a little, and searches for itself if that takes too long: nobody depends
 * on anybody. As all read the hint, it stands in GA_SLAB_HINTS places. The first is the one that
 * counts: who would look has to put GA_SLAB_SEEKING there.
 *
 * All of it is relaxed. A hint is a guess, and a word is asked itself.
 */
#ifndef GPUALLOC_SLAB_SLAB_HINT_H
#define GPUALLOC_SLAB_SLAB_HINT_H

#include "../simt/clock.h"
#include "../simt/simt.h"
#include "slab_heap.h"

/* As hints. */
#define GA_SLAB_UNSOUGHT 0u          /* nobody has looked yet */
#define GA_SLAB_SEEKING  0xffffffffu /* one looks just now */
#define GA_SLAB_NOWHERE  0xfffffffeu /* free blocks lie nowhere together */

#define GA_SLAB_FIRST   131072u /* one tile in so many, above all the first, seeks a first hint */
#define GA_SLAB_SEEKERS 2048u   /* one in so many for the next */
#define GA_SLAB_AHEAD   256u    /* where there is room so many blocks on, the old one will do */
#define GA_SLAB_NAP_NS  1000u   /* between two looks at a hint that is to come */
#ifdef __CUDACC__
#define GA_SLAB_NAPS 8u /* a look takes 5 to 10 us */
#else
#define GA_SLAB_NAPS 0u
#endif

/* The word for who begins at `start`, given the hint; `start` where there is none. */
GA_SIMT uint32_t ga_slab_hinted(ga_slab_view slab, uint32_t hint, uint32_t start)
{
    uint32_t word = start + hint;
    if (hint >= slab.words) {
        return start;
    }
    return word < slab.words ? word : word - slab.words;
}

/* The place of the hint that who begins at `start` reads. */
GA_SIMT uint32_t *ga_slab_hint(ga_slab_heap *heap, uint32_t start)
{
    return heap->hints + start % GA_SLAB_HINTS;
}

GA_SIMT void ga_slab_hint_all(ga_slab_heap *heap, ga_tile tile, uint32_t hint)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t rank = ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(own));
        for (uint32_t i = rank; i < GA_SLAB_HINTS; i += ga_tile_size(tile)) {
            ga_store_relaxed(heap->hints + i, hint); /* relaxed: a guess */
        }
    }
}

/* Whether who begins at `start` should wait for another hint. */
GA_SIMT bool ga_slab_hint_comes(uint32_t hint, uint32_t start)
{
    return hint == GA_SLAB_SEEKING || (hint == GA_SLAB_UNSOUGHT && start % GA_SLAB_FIRST);
}

/* The hint as it is now; where one is to be expected, once it has come, or is long overdue. */
GA_SIMT uint32_t ga_slab_hint_now(ga_slab_heap *heap, ga_tile tile, uint32_t start)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes hint = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t now = ga_load_relaxed(ga_slab_hint(heap, start)); /* relaxed: a guess */
        for (uint32_t i = GA_SLAB_NAPS; i && ga_slab_hint_comes(now, start); i--) {
            ga_clock_sleep(GA_SLAB_NAP_NS);
            now = ga_load_relaxed(ga_slab_hint(heap, start)); /* the same */
        }
        ga_lane_write(&hint, own, now);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, hint, leader);
}

/* Whether the tile may look for the next one; it is told so alone. */
GA_SIMT bool ga_slab_hint_take(ga_slab_heap *heap, ga_tile tile, uint32_t hint)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes before = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: a guess. */
        ga_lane_write(&before, own, ga_cas_relaxed(heap->hints, hint, GA_SLAB_SEEKING));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, before, leader) == hint;
}

#define GA_SLAB_SAMPLES 4u /* blocks that a lane looks at */

/* Blocks `at` + `stride` - 1, `at` + 2 * `stride` - 1 and so on, a few for each lane: the number of
 * the first that is half free, or GA_SLAB_FULL. */
GA_SIMT uint32_t ga_slab_half_free(ga_slab_view slab, ga_tile tile, uint32_t at, uint32_t stride)
{
    ga_lanes found = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t first = ga_lane_read(found, own) * GA_SLAB_SAMPLES;
        uint32_t n[GA_SLAB_SAMPLES];
        uint32_t half = 0;
        for (uint32_t i = 0; i < GA_SLAB_SAMPLES; i++) {
            uint32_t block = (at + (first + i + 1u) * stride - 1u) % ga_slab_blocks(slab);
            /* relaxed: a guess. */
            n[i] = ga_load_relaxed(slab.free + ga_slab_count_place(GA_SLAB_SPREAD, block));
        }
        for (uint32_t i = 0; i < GA_SLAB_SAMPLES; i++) { /* counts may be below 0 */
            bool room = n[i] - GA_SLAB_BLOCK_UNITS / 2u <= GA_SLAB_BLOCK_UNITS / 2u;
            half |= (uint32_t)room << i;
        }
        ga_lane_write(&found, own, half ? first + ga_bits_lowest(half) + 1u : 0);
    }
    uint32_t lanes = ga_lanes_nonzero(tile, found);
    return lanes ? ga_lanes_get(tile, found, ga_bits_lowest(lanes)) - 1u : GA_SLAB_FULL;
}

/* Where free blocks begin: the first block from `from` on, once round, that is half free, as far as
 * samples tell; or GA_SLAB_FULL. */
GA_SIMT uint32_t ga_slab_seek(ga_slab_view slab, ga_tile tile, uint32_t from)
{
    uint32_t samples = ga_tile_size(tile) * GA_SLAB_SAMPLES;
    uint32_t stride = ga_slab_blocks(slab) / samples + 1u;
    uint32_t sample;
    while ((sample = ga_slab_half_free(slab, tile, from, stride)) != GA_SLAB_FULL) {
        from += sample * stride;
        if (stride == 1u) {
            return from % ga_slab_blocks(slab);
        }
        stride = (stride + samples - 1u) / samples;
    }
    return GA_SLAB_FULL;
}

/* Whether who began at `start` should look for another hint: a few should, where the last one has
 * led into what is taken; fewer where there was none to be found; all who waited for the first in
 * vain. */
GA_SIMT bool ga_slab_should_seek(ga_slab_view slab, ga_tile tile, uint32_t start, uint32_t tried,
                                 uint32_t hint)
{
    if (hint == GA_SLAB_UNSOUGHT || hint == GA_SLAB_SEEKING) {
        return hint == GA_SLAB_UNSOUGHT;
    }
    if (hint == GA_SLAB_NOWHERE) {
        return start % GA_SLAB_FIRST == 0;
    }
    uint32_t ahead = tried / GA_SLAB_ROW_WORDS + GA_SLAB_AHEAD;
    return start % GA_SLAB_SEEKERS == 0 && ga_slab_half_free(slab, tile, ahead, 1) != 0;
}

/* Who began at `start` found nothing there, nor at `tried`. The word to try next: where the hint
 * points, if that is new, or where free blocks begin, which is the hint from then on; or
 * `tried`. */
GA_SIMT uint32_t ga_slab_hint_anew(ga_slab_view slab, ga_tile tile, uint32_t start, uint32_t tried)
{
    uint32_t hint = ga_slab_hint_now(slab.heap, tile, start);
    uint32_t word = ga_slab_hinted(slab, hint, start);
    if (word != start && word != tried) {
        return word;
    }
    if (!ga_slab_should_seek(slab, tile, start, tried, hint) ||
        !ga_slab_hint_take(slab.heap, tile, hint)) {
        return tried;
    }
    if (word != start) { /* else they wait, or need not */
        ga_slab_hint_all(slab.heap, tile, GA_SLAB_SEEKING);
    }
    uint32_t block = ga_slab_seek(slab, tile, tried / GA_SLAB_ROW_WORDS + 1u);
    word = block * GA_SLAB_ROW_WORDS;
    if (block == GA_SLAB_FULL || word == start) {
        ga_slab_hint_all(slab.heap, tile, GA_SLAB_NOWHERE);
        return tried;
    }
    ga_slab_hint_all(slab.heap, tile, word >= start ? word - start : word + slab.words - start);
    return word;
}

#endif
