/* SPDX-License-Identifier: MIT
 *
 * Whether memory can grow under kernels of a device. No vendor promises that a running kernel sees
 * memory that is mapped while it runs. So it is tried once per device and process, before anything
 * relies on it.
 */
#ifndef GPUALLOC_GROWTH_GROWTH_PROBE_H
#define GPUALLOC_GROWTH_GROWTH_PROBE_H

#include "mailbox.h"

#define GA_GROWTH_PROBE_STEPS 3u
#define GA_GROWTH_PROBE_LANES 32u

/* In device memory; the kernel writes the last two. */
typedef struct ga_growth_probe {
    ga_growth growth;
    char *base;
    uint64_t step_bytes;
    uint32_t state;         /* GA_GROWTH_GRANTED, or the reason of the refusal */
    uint32_t correct_words; /* words read back as they were written */
} ga_growth_probe;

/* The word that a lane writes in a step. */
GA_SIMT uint32_t ga_growth_probe_mark(uint32_t step, uint32_t lane)
{
    return ga_bits_mix(step * GA_GROWTH_PROBE_LANES + lane + 1u);
}

#ifndef __CUDACC__
#include <gpualloc/gpualloc.h>

/* GA_OK if memory grows under running kernels of `device`. The first call takes some milliseconds,
 * or two seconds if it does not work; later calls return the same result. Thread safe.
 *
 * GA_ERR_UNSUPPORTED  it does not; ga_error_text() has the reason
 * GA_ERR_MEMORY       too little memory for the trial; the next call tries again
 * GA_ERR_DEVICE       no such device, no device code in this build, or the driver refuses */
ga_status ga_growth_try(int device);

/* Forget all results. For tests that replace the driver, while no other thread is in this file. */
void ga_growth_forget(void);
#endif

#endif
