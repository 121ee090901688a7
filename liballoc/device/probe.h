/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of the probe kernel, compiled for the kernel and for the host that checks it.
 */
#ifndef GPUALLOC_DEVICE_PROBE_H
#define GPUALLOC_DEVICE_PROBE_H

#include <stdint.h>

#ifdef __CUDACC__
#define GA_PROBE_FUNCTION static __device__ __forceinline__
#else
#define GA_PROBE_FUNCTION static inline
#endif

#define GA_PROBE_LANES 32u

/* One lane's part of the result. Equal inputs give different results in different lanes, and
 * different inputs of a lane give different results. */
GA_PROBE_FUNCTION uint32_t ga_probe_mix(uint32_t input, uint32_t lane)
{
    uint32_t mixed = (input ^ (lane << 27)) * 2654435761u;
    return mixed ^ (mixed >> 15);
}

/* A lane's result, from its own part and its neighbour's. */
GA_PROBE_FUNCTION uint32_t ga_probe_join(uint32_t own, uint32_t neighbour)
{
    return own + 3u * neighbour;
}

#endif
