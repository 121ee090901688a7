/* SPDX-License-Identifier: MIT
 *
 * Who uses a table, over tiles, for tables that check it: calls and turns of kernels work beside
 * each other; flushing, clearing and closing want the table alone. A caller's mistake is noticed
 * where the two meet, not where they only might have met.
 *
 * STRUCTURE  a word of 64 bits: how many are at work, in its lower half; how many are alone, all
 *            tiles of one call, in its upper half
 * ORDER      M1 and M2: what was done before one ended happens before what one does who began
 *            later and has not met him. All count in one word, so that of two who meet the later
 *            one sees it.
 */
#ifndef GPUALLOC_SLABHASH_USE_TILE_H
#define GPUALLOC_SLABHASH_USE_TILE_H

#include <gpualloc/simt/simt.h>

#define GA_SLABHASH_ALONE (UINT64_C(1) << 32)

/* The calling lane begins: what the word said before. */
GA_SIMT uint64_t ga_slabhash_use_begin(uint64_t *use, bool alone)
{
    return ga_add64_acquire(use, alone ? GA_SLABHASH_ALONE : 1u); /* M2: acquire. Pairs with M1 */
}

GA_SIMT void ga_slabhash_use_end(uint64_t *use, bool alone)
{
    /* M1: release. Pairs with M2. The count was ours: nothing is borrowed from the other half. */
    ga_post_add64_release(use, 0u - (alone ? GA_SLABHASH_ALONE : UINT64_C(1)));
}

/* Whether one who began does so beside what he must not meet. */
GA_SIMT bool ga_slabhash_use_conflicts(uint64_t before, bool alone)
{
    return alone ? (uint32_t)before != 0 : before >= GA_SLABHASH_ALONE;
}

#endif
