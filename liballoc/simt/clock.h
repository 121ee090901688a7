/* SPDX-License-Identifier: MIT
 *
 * Time and sleep, for whoever waits for something outside the tile. Not collective, and what the
 * clock says is not uniform: let the leader read it, and hand on what it decides.
 */
#ifndef GPUALLOC_SIMT_CLOCK_H
#define GPUALLOC_SIMT_CLOCK_H

#include "bits.h"

#ifndef __CUDACC__
#include <time.h>
#endif

/* Nanoseconds since some moment of the past; on the GPU it goes on in steps of up to a
 * microsecond. */
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

/* Sleep for about so long, below a millisecond, and leave the multiprocessor or core to others; on
 * the GPU between no time and twice as long. */
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
