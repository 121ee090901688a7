/* SPDX-License-Identifier: MIT
 *
 * Time and sleep, for a tile that waits for an event outside it. Not collective, and the time is
 * not uniform: let the leader read the clock, and pass its decision to the tile.
 */
#ifndef GPUALLOC_SIMT_CLOCK_H
#define GPUALLOC_SIMT_CLOCK_H

#include "bits.h"

#ifndef __CUDACC__
#include <time.h>
#endif

/* Nanoseconds since an arbitrary moment. On the GPU the clock advances in steps of up to 1 us. */
GA_SIMT uint64_t ga_clock_ns(void)
{
#ifdef __CUDACC__
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Sleep for about `ns`, less than 1 ms, and leave the multiprocessor or core to others. On the GPU
 * the sleep takes between 0 and 2 * `ns`. */
GA_SIMT void ga_clock_sleep(uint32_t ns)
{
#ifdef __CUDACC__
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
#else
    struct timespec time = {0, (long)ns};
    nanosleep(&time, NULL);
#endif
}

#endif
