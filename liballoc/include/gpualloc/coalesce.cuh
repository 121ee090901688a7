/* SPDX-License-Identifier: MIT
 *
 * Coalescing that the program asks for (warp-coalescing-gpumpi-2022, §3.1): calls that all threads
 * of a block, or of a warp, make together and for the same number of bytes, so that one superblock
 * serves them all. The heap is one of `coalesce` (docs/coalesce.md).
 *
 *     __global__ void program(ga_kernel_heap heap)
 *     {
 *         ga_coalesce_init(heap);
 *         int *a = (int *)ga_coalesce_malloc(heap, 64, true);    all threads of the block are here
 *         if (threadIdx.x < 4) {
 *             int *b = (int *)ga_coalesce_malloc(heap, 16);      some are
 *             ga_coalesce_free(heap, b);
 *         }
 *         ga_coalesce_free(heap, a);
 *         ga_coalesce_clean(heap);
 *     }
 *
 * One free serves all, by any thread of this or a later kernel: it finds out what it has got.
 *
 * A superblock goes back once all of its payloads have been freed, so what is allocated together
 * should not live for very different times. What a thread gets is NULL where the heap has no more,
 * for that thread alone.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_COALESCE_CUH
#define GPUALLOC_COALESCE_CUH

#include <gpualloc/device.cuh>

/* Before the first and after the last use of the heap in a program: all threads of the block call.
 * What there is to set up the host has set up; these notice what a program leaves behind: how many
 * payloads were in the map when the last block had cleaned up, for the heap's log. */
static __device__ __forceinline__ void ga_coalesce_init(ga_kernel_heap heap)
{
    ga_coalesce_kernel_enter(heap);
}

static __device__ __forceinline__ void ga_coalesce_clean(ga_kernel_heap heap)
{
    ga_coalesce_kernel_leave(heap);
}

/* `size` bytes for each thread that calls. With `coalesce` all threads of the block call, all with
 * the same heap, size and `coalesce`; the heap's option `static` says how they are served. Else any
 * lanes of a warp call, for what each wants, as ga_kernel_malloc() does. */
static __device__ __forceinline__ void *ga_coalesce_malloc(ga_kernel_heap heap, size_t size,
                                                           bool coalesce = false)
{
    return coalesce ? ga_coalesce_kernel_static_malloc(heap, size)
                    : ga_coalesce_kernel_malloc(heap, size);
}

/* Whatever the call that it came from; NULL is ignored. */
static __device__ __forceinline__ void ga_coalesce_free(ga_kernel_heap heap, void *payload)
{
    ga_coalesce_kernel_free(heap, payload);
}

/* ---- one way or the other -------------------------------------------------------------------- */

/* All threads of the block. A header of 8 bytes before each payload, which is aligned to 16 (HB) */
static __device__ __forceinline__ void *ga_coalesce_block_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_block_malloc(heap, false, size);
}

/* All threads of the block. No headers, as close together as the heap's alignment lets them be,
 * where the heap can find superblocks without (header=none, static=nb, static=nw); else as above
 * (NB). */
static __device__ __forceinline__ void *ga_coalesce_block_malloc_bare(ga_kernel_heap heap,
                                                                      size_t size)
{
    return ga_coalesce_kernel_block_malloc(heap, true, size);
}

/* The same for all threads of a warp, or as many as its block has (NW, and with headers). */
static __device__ __forceinline__ void *ga_coalesce_warp_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_warp_malloc(heap, false, size);
}

static __device__ __forceinline__ void *ga_coalesce_warp_malloc_bare(ga_kernel_heap heap,
                                                                     size_t size)
{
    return ga_coalesce_kernel_warp_malloc(heap, true, size);
}

#endif
