/* SPDX-License-Identifier: MIT
 *
 * Whether a device can do it: no vendor promises that memory which is mapped while a kernel runs is
 * seen by that kernel, so it is tried, once for each device of a process, before anything relies on
 * it.
 */
#ifndef GPUALLOC_ARENA_GROWTH_PROBE_H
#define GPUALLOC_ARENA_GROWTH_PROBE_H

#include "mailbox.h"

#define GA_GROWTH_PROBE_STEPS 3u
#define GA_GROWTH_PROBE_LANES 32u

/* In device memory; the last two are the kernel's answer. */
typedef struct ga_growth_probe {
    ga_growth growth;
    char *base;
    uint64_t step_bytes;
    uint32_t found; /* GA_GROWTH_GRANTED, or why not */
    uint32_t right; /* words that were as they had been written */
} ga_growth_probe;

/* What a lane writes. */
GA_SIMT uint32_t ga_growth_probe_mark(uint32_t step, uint32_t lane)
{
    return ga_bits_mix(step * GA_GROWTH_PROBE_LANES + lane + 1u);
}

#ifndef __CUDACC__
#include <gpualloc/gpualloc.h>

/* GA_OK where kernels of `device` grow while they run. The first call takes some milliseconds, or
 * two seconds where it does not work; later ones answer the same. Thread safe.
 *
 * GA_ERR_UNSUPPORTED  they do not; the sentence says what happened
 * GA_ERR_MEMORY       too little memory to try it; the next call tries again
 * GA_ERR_DEVICE       no such device, no device code in this build, or a driver that refuses */
ga_status ga_growth_try(int device);

/* Forget what was found out. For tests that put another driver in the real one's place, while no
 * other thread is in here. */
void ga_growth_forget(void);
#endif

#endif
