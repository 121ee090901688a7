/* SPDX-License-Identifier: MIT
 *
 * A barrier of all blocks of a cooperative launch, or of threads.
 *
 * STRUCTURE  A counter of arrivals, which begins at 0 and only rises. Barrier number n, from 1, is
 *            passed once n times the number of blocks have arrived.
 *
 * INVARIANT  No block arrives at a barrier before it has passed the one before. So the counter
 *            reaches n times the blocks only when all have arrived n times.
 *
 * ORDER      XB (arrived): all that a block did before it arrived happens before all that any block
 *            does behind the barrier. Later arrivals continue the release sequence of earlier ones.
 *
 * PROGRESS   A block waits for all others, which must run at the same time: a cooperative launch
 *            guarantees that.
 */
#ifndef GPUALLOC_SPGEMM_GRID_TILE_H
#define GPUALLOC_SPGEMM_GRID_TILE_H

#include "simt/planted.h"
#include "simt/simt.h"

/* Arrive, and wait until `blocks` have arrived at barrier number `number`. By one lane. */
GA_SIMT void ga_spgemm_meet(uint64_t *arrived, uint64_t blocks, uint64_t number)
{
#if GA_PLANTED(spgemm_arrive_relaxed)
    ga_add64_relaxed(arrived, 1u);
#else
    ga_add64_release(arrived, 1u);                         /* XB1: release. Pairs with XB2. */
#endif
#if GA_PLANTED(spgemm_await_relaxed)
    while (ga_load64_relaxed(arrived) < blocks * number) {
#else
    while (ga_load64_acquire(arrived) < blocks * number) { /* XB2: acquire. Pairs with XB1. */
#endif
        ga_clock_sleep(100);
    }
}

#endif
