/* SPDX-License-Identifier: MIT
 *
 * Superblocks that are counted: a word has the number of their live payloads, and who takes the
 * last one off gives the superblock back (warp-coalescing-gpumpi-2022, §3.1). The word is the
 * parent's note for a superblock that it finds, or else its first one.
 *
 * ORDER  C1 with itself: what was done with each payload happens before the superblock goes back.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_COUNT_H
#define GPUALLOC_COALESCE_COALESCE_COUNT_H

#include "coalesce_map.h"

/* For lanes that free payloads of counted superblocks: the word, and the superblock. */
typedef struct ga_counted {
    ga_wide counters;
    ga_wide blocks;
} ga_counted;

GA_SIMT void ga_counted_write(ga_counted *counted, uint32_t own, const void *counter,
                              const void *block)
{
    ga_wide_write(&counted->counters, own, (uint64_t)counter);
    ga_wide_write(&counted->blocks, own, (uint64_t)block);
}

/* A new one, by whoever makes it. Relaxed: nobody else has a payload of it yet. */
GA_SIMT void ga_count_begin(uint32_t *counter, uint32_t n)
{
    ga_store_relaxed(counter, n);
}

/* `n` fewer are live; the caller's tile has synchronised since it used them. True: there are none
 * left. */
GA_SIMT bool ga_count_down_by(uint32_t *counter, uint32_t n)
{
#if GA_COALESCE_MUTANT == 5
    return ga_add_relaxed(counter, 0u - n) == n;
#elif GA_COALESCE_MUTANT == 11
    /* C1 in two steps, acquire and release. Pairs with itself. What others count in between is
     * lost. */
    uint32_t before = ga_load_acquire(counter);
    ga_clock_sleep(GA_COALESCE_MUTANT_NAP);
    ga_store_release(counter, before - n);
    return before == n;
#else
    /* C1: release and acquire. Pairs with itself, in all who count this one down before us. */
    return ga_add_acq_rel(counter, 0u - n) == n;
#endif
}

/* One fewer for each lane of `giving`; lanes of one counter do it by one atomic. Answers the mask
 * of the lanes whose superblock is theirs now: one for each that has no live payloads left. */
GA_SIMT uint32_t ga_count_down(ga_tile tile, uint32_t giving, ga_wide counters)
{
    ga_lanes equal = ga_wide_equal(tile, giving, counters);
    ga_lanes none_left = ga_lanes_all(0);
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, giving, own)
    {
        uint32_t group = ga_lane_read(equal, own);
        if (ga_bits_lowest(group) == own) {
            uint32_t *counter = (uint32_t *)ga_wide_read(counters, own);
            bool last = ga_count_down_by(counter, ga_bits_count(group));
            ga_lane_write(&none_left, own, last ? 1u : 0u);
        }
    }
    ga_tile_sync(tile);
    return ga_lanes_nonzero(tile, none_left);
}

#endif
