/* SPDX-License-Identifier: MIT
 *
 * The malloc and free that a benchmark measures: with LINKED defined those of
 * libgpualloc-kernel.a, else ga_kernel_malloc() and ga_kernel_free().
 */
#ifndef GPUALLOC_BENCH_SLAB_CALLS_CUH
#define GPUALLOC_BENCH_SLAB_CALLS_CUH

#include <gpualloc/device.cuh>

static __device__ __forceinline__ void *take(ga_kernel_heap heap, size_t size)
{
#ifdef LINKED
    return malloc(size);
#else
    return ga_kernel_malloc(heap, size);
#endif
}

static __device__ __forceinline__ void give_back(ga_kernel_heap heap, void *block)
{
#ifdef LINKED
    free(block);
#else
    ga_kernel_free(heap, block);
#endif
}

#endif
