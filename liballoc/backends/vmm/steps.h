/* SPDX-License-Identifier: MIT
 *
 * Geometric size steps: every number up to 2P, then P steps per doubling, where P = 1 << shift.
 * Rounding a size up to a step adds less than 1/P of it.
 */
#ifndef GPUALLOC_VMM_STEPS_H
#define GPUALLOC_VMM_STEPS_H

#include <stdint.h>

/* The first step whose size is at least n; n > 0. */
static inline uint32_t ga_vmm_step(uint64_t n, unsigned shift)
{
    uint64_t last = n - 1;
    if (last >> shift == 0) {
        return (uint32_t)last;
    }
    unsigned doublings = 63 - (unsigned)__builtin_clzll(last) - shift;
    return (uint32_t)((doublings << shift) + (last >> doublings));
}

static inline uint64_t ga_vmm_step_size(uint32_t step, unsigned shift)
{
    uint32_t doublings = step >> shift ? (step >> shift) - 1 : 0;
    return ((uint64_t)(step - (doublings << shift)) + 1) << doublings;
}

#endif
