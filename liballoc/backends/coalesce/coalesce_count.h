/* SPDX-License-Identifier: MIT
 *
 * Superblocks without headers, whose live payloads are counted: a word has their number, and the
 * lane that takes off the last one frees the superblock (warp-coalescing-gpumpi-2022, §3.1). The
 * word is the first of the note that the parent keeps for the superblock, if the parent finds
 * blocks by their addresses; otherwise it is the first word of the superblock.
 *
 * STRUCTURE  The next word tells where payloads end. It is their stride in units of 4 bytes; or
 *            GA_COUNT_ALONE: there is one payload, up to the end of the superblock; or
 *            GA_COUNT_TABLE: then two more words of the note say at which offset of the superblock
 *            a table begins, behind the payloads, and how many ends it has. Ends are offsets in
 *            bytes.
 *
 * ORDER  CC1 with itself: accesses to each payload happen before the superblock is freed.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_COUNT_H
#define GPUALLOC_COALESCE_COALESCE_COUNT_H

#include "coalesce_map.h"
#include "segment.h"

/* For lanes that free payloads of counted superblocks: each lane's counter, and its superblock. */
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
#define GA_COUNT_STRIDE_MAX                                                                        \
    ((uint64_t)4 * (GA_COUNT_TABLE - 1u)) /* bytes: the largest stride that the word can hold */

/* Initialise a superblock's counter, by the lane that made it; `stride` is the word that tells
 * where payloads end. Relaxed: no other lane has a payload of it yet. */
GA_SIMT void ga_count_init(uint32_t *counter, uint32_t n, uint32_t stride)
{
    ga_store_relaxed(counter, n);
    ga_store_relaxed(counter + 1, stride);
}

/* Initialise the counter of a superblock whose payloads end where a table at offset `table` says,
 * which has `n` ends. Relaxed, as above. */
GA_SIMT void ga_count_init_table(uint32_t *counter, uint32_t n, uint32_t table)
{
    ga_count_init(counter, n, GA_COUNT_TABLE);
    ga_store_relaxed(counter + 2, table);
    ga_store_relaxed(counter + 3, n);
}

/* The first of `n` ends that is above `offset`; 0 if there is none. */
GA_SIMT uint64_t ga_count_end_in(const uint32_t *ends, uint32_t n, uint64_t offset)
{
    uint32_t first = 0;
    uint32_t left = n;
    while (left) {
        uint32_t half = left / 2u;
        bool above = ga_load_relaxed(ends + first + half) > offset; /* relaxed: written once */
        first += above ? 0 : half + 1u;
        left = above ? half : left - half - 1u;
    }
    return first < n ? ga_load_relaxed(ends + first) : 0;
}

/* Where the payload ends that contains the byte at `offset` of the superblock; the parent's block
 * has `bytes`. 0 if no payload does. Relaxed: a lane that has a payload got it after these words
 * were written. For other pointers any answer within the block will do. */
GA_SIMT uint64_t ga_count_end(const uint32_t *counter, const char *block, uint64_t bytes,
                              uint64_t offset)
{
    uint64_t stride = ga_load_relaxed(counter + 1);
    uint64_t end = bytes;
    if (stride == GA_COUNT_TABLE) {
        uint32_t table = ga_load_relaxed(counter + 2);
        uint32_t n = ga_load_relaxed(counter + 3);
        bool whole = n <= 32u && !(table & 3u) && table + (uint64_t)n * 4u <= bytes;
        end = whole ? ga_count_end_in((const uint32_t *)(block + table), n, offset) : 0;
    } else if (stride != GA_COUNT_ALONE) {
        end = (offset / (4u * stride) + 1u) * (4u * stride);
    }
    return end <= bytes ? end : 0;
}

/* Count down by `n`; the caller's tile has synchronised since it used the payloads. True: none is
 * left. */
GA_SIMT bool ga_count_down_by(uint32_t *counter, uint32_t n)
{
#if GA_PLANTED(coalesce_count_relaxed)
    return ga_add_relaxed(counter, 0u - n) == n;
#elif GA_PLANTED(coalesce_count_not_atomic)
    /* CC1 in two steps, acquire and release. Pairs with itself. Counts that other lanes make
     * between the two are lost. */
    uint32_t before = ga_load_acquire(counter);
    ga_clock_sleep(GA_COALESCE_PLANTED_SLEEP);
    ga_store_release(counter, before - n);
    return before == n;
#else
    /* CC1: release and acquire. Pairs with itself, in all lanes that counted this one down
     * before. */
    return ga_add_acq_rel(counter, 0u - n) == n;
#endif
}

/* Count down by one for each lane of `freeing`; lanes of one counter do it by one atomic. Returns
 * the mask of the lanes that have to free their superblock: one for each superblock without live
 * payloads. */
GA_SIMT uint32_t ga_count_down(ga_tile tile, uint32_t freeing, ga_wide counters)
{
    ga_lanes equal = ga_wide_equal(tile, freeing, counters);
    ga_lanes none_left = ga_lanes_all(0);
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, freeing, own)
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
