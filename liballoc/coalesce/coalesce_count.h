/* SPDX-License-Identifier: MIT
 *
 * Superblocks that are counted: a word has the number of their live payloads, and who takes the
 * last one off gives the superblock back (warp-coalescing-gpumpi-2022, §3.1). The word is the
 * first of the parent's note for a superblock that it finds, or else of the superblock.
 *
 * STRUCTURE  The next word tells where payloads end: they are so many times 4 bytes apart; or it is
 *            GA_COUNT_ALONE, and there is one, up to the end of the superblock; or
 *            GA_COUNT_TABLE: then two more words of the note say where behind the payloads a table
 *            begins, and how many ends it has, in bytes from the superblock.
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

#define GA_COUNT_ALONE 0u
#define GA_COUNT_TABLE 0xffffffffu
#define GA_COUNT_APART ((uint64_t)4 * (GA_COUNT_TABLE - 1u)) /* bytes; no further */

/* A new one, by whoever makes it; `apart` is the word that tells where payloads end. Relaxed:
 * nobody else has a payload of it yet. */
GA_SIMT void ga_count_begin(uint32_t *counter, uint32_t n, uint32_t apart)
{
    ga_store_relaxed(counter, n);
    ga_store_relaxed(counter + 1, apart);
}

/* Its payloads end where the table at `table` bytes says, which has `n` ends. Likewise. */
GA_SIMT void ga_count_begin_table(uint32_t *counter, uint32_t n, uint32_t table)
{
    ga_count_begin(counter, n, GA_COUNT_TABLE);
    ga_store_relaxed(counter + 2, table);
    ga_store_relaxed(counter + 3, n);
}

/* The first of `n` ends that is above `offset`; 0 where none is. */
GA_SIMT uint64_t ga_count_end_in(const uint32_t *ends, uint32_t n, uint64_t offset)
{
    uint32_t first = 0;
    uint32_t rest = n;
    while (rest) {
        uint32_t half = rest / 2u;
        bool above = ga_load_relaxed(ends + first + half) > offset; /* relaxed: written once */
        first += above ? 0 : half + 1u;
        rest = above ? half : rest - half - 1u;
    }
    return first < n ? ga_load_relaxed(ends + first) : 0;
}

/* Where the payload ends that has the byte at `offset` of the superblock; the parent's block has
 * `bytes`. 0 where none has. Relaxed: who has a payload got it after these were written, and who
 * has none may be told anything within the block. */
GA_SIMT uint64_t ga_count_end(const uint32_t *counter, const char *block, uint64_t bytes,
                              uint64_t offset)
{
    uint64_t apart = ga_load_relaxed(counter + 1);
    uint64_t end = bytes;
    if (apart == GA_COUNT_TABLE) {
        uint32_t table = ga_load_relaxed(counter + 2);
        uint32_t n = ga_load_relaxed(counter + 3);
        bool whole = n <= 32u && !(table & 3u) && table + (uint64_t)n * 4u <= bytes;
        end = whole ? ga_count_end_in((const uint32_t *)(block + table), n, offset) : 0;
    } else if (apart != GA_COUNT_ALONE) {
        end = (offset / (4u * apart) + 1u) * (4u * apart);
    }
    return end <= bytes ? end : 0;
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
