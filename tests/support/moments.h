/* SPDX-License-Identifier: MIT
 *
 * Threads whose calls are recorded: the moments of their begin and end, and barriers between
 * histories.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_MOMENTS_H
#define GPUALLOC_TESTS_SUPPORT_MOMENTS_H

#include <sched.h>
#include <stdint.h>

/* The next moment. */
static inline uint64_t history_moment(uint64_t *clock)
{
    return __atomic_add_fetch(clock, 1, __ATOMIC_SEQ_CST); /* Pairs with itself: moments */
}

/* Wait until all `threads` have arrived for the `turn`th time. */
static inline void history_meet(uint32_t *arrivals, uint64_t turn, uint64_t threads)
{
    /* Pairs with itself: writes before the barrier are visible after it. */
    __atomic_add_fetch(arrivals, 1, __ATOMIC_SEQ_CST);
    for (uint32_t tries = 1; __atomic_load_n(arrivals, __ATOMIC_SEQ_CST) < turn * threads;
         tries++) {
        if (tries % 64 == 0) {
            sched_yield();
        }
    }
}

#endif
