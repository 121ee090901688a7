/* SPDX-License-Identifier: MIT
 *
 * Detects calls that overlap an exclusive call, for tables that are opened or compiled with checks.
 * Shared: kernels' sessions and ordinary calls. Exclusive: flush, clear, close, load. A misuse is
 * detected when two such calls do overlap, not when they only might have.
 *
 * STRUCTURE  One word of 64 bits. Lower half: number of shared calls in progress. Upper half:
 *            number of exclusive ones, where each tile of an exclusive kernel counts.
 * ORDER      M1 and M2: what was done before a call ended happens before what a later call does
 *            that did not overlap it. All calls count in one word, so of two that overlap the later
 *            one sees the other.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_USE_TILE_H
#define GPUALLOC_SLABHASH_TABLE_USE_TILE_H

#include <gpualloc/detail/simt/simt.h>

#define GA_SLABHASH_EXCLUSIVE (UINT64_C(1) << 32)

/* The calling lane enters. Returns the word as it was before. */
GA_SIMT uint64_t ga_slabhash_use_begin(uint64_t *use, bool exclusive)
{
    /* M2: acquire. Pairs with M1. */
    return ga_add64_acquire(use, exclusive ? GA_SLABHASH_EXCLUSIVE : 1u);
}

GA_SIMT void ga_slabhash_use_end(uint64_t *use, bool exclusive)
{
    /* M1: release. Pairs with M2. The lower half cannot borrow from the upper: the caller was
     * counted. */
    ga_post_add64_release(use, 0u - (exclusive ? GA_SLABHASH_EXCLUSIVE : UINT64_C(1)));
}

/* True if a call that entered and found the word `before` overlaps a call that it must not
 * overlap. */
GA_SIMT bool ga_slabhash_use_conflicts(uint64_t before, bool exclusive)
{
    return exclusive ? (uint32_t)before != 0 : before >= GA_SLABHASH_EXCLUSIVE;
}

#endif
