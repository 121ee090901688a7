/* SPDX-License-Identifier: MIT
 *
 * The sizes of the benchmarks that mix them: 16 to 2048 bytes, all alike.
 */
#ifndef GPUALLOC_BENCH_SLAB_MIXED_CUH
#define GPUALLOC_BENCH_SLAB_MIXED_CUH

#include <cstdint>

static __host__ __device__ inline uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* The size of request number `i`, in bytes. */
static __host__ __device__ inline uint32_t mixed_size(uint32_t i)
{
    return 16u + (uint32_t)((uint64_t)mix(i) * 2033u >> 32);
}

#endif
