/* SPDX-License-Identifier: MIT
 *
 * Coalescing that the program requests (warp-coalescing-gpumpi-2022, §3.1): all threads of a block,
 * or of a warp, call together and for equally many bytes, so that one superblock serves them all.
 * The heap is one of `coalesce` (docs/internals/coalesce.md).
 *
 *     __global__ void program(ga_kernel_heap heap)
 *     {
 *         ga_coalesce_init(heap);
 *         int *a = (int *)ga_coalesce_malloc(heap, 64, true);    all threads of the block call
 *         if (threadIdx.x < 4) {
 *             int *b = (int *)ga_coalesce_malloc(heap, 16);      some threads call
 *             ga_coalesce_free(heap, b);
 *         }
 *         ga_coalesce_free(heap, a);
 *         ga_coalesce_clean(heap);
 *     }
 *
 * One free serves all kinds of blocks, by any thread of this or a later kernel.
 *
 * A superblock is freed once all of its payloads have been freed, so do not allocate together
 * blocks that live for very different times.
 *
 * All threads of a collective call get a block, or all get NULL: those of the block of threads, or
 * of the warp where the kind is one of warps. So a test against NULL is equal in all of them, and
 * they may return together. A thread that calls without `coalesce` gets NULL for itself alone.
 *
 * A program that defines GA_COALESCE_CHECKED as a number of seconds before it includes this header
 * checks its calls of ga_coalesce_malloc() with `true`. If some threads of a block do not call
 * within that time, or for another number of bytes, this is printed with file and line, and the
 * requests of the block are served dynamically from then on, where they would wait for ever or get
 * too little memory. Each thread then gets a block or NULL for itself. The first 4096 blocks of a
 * grid are checked.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_COALESCE_CUH
#define GPUALLOC_COALESCE_CUH

#include <gpualloc/device.cuh>

#ifdef GA_COALESCE_CHECKED
#include "detail/backends/coalesce/coalesce_check.cuh"
#endif

/* Before the first and after the last use of the heap in a program; all threads of the block call.
 * They set up nothing, since the host has done that. They detect leaks: how many payloads were in
 * the map when the last block had cleaned up goes to the heap's log. */
static __device__ __forceinline__ void ga_coalesce_init(ga_kernel_heap heap)
{
#ifdef GA_COALESCE_CHECKED
    ga_coalesce_check_begin();
#endif
    ga_coalesce_kernel_enter(heap);
}

static __device__ __forceinline__ void ga_coalesce_clean(ga_kernel_heap heap)
{
    ga_coalesce_kernel_leave(heap);
}

/* `size` bytes for each calling thread. With `coalesce` all threads of the block call, with equal
 * heap, size and `coalesce`; the heap's option `static` says how they are served, and if some
 * thread cannot be served, all of the block (hb, nb) or of its warp (hw, nw) get NULL. Without it
 * any lanes of a warp call, each with a size of its own, as for ga_kernel_malloc(). */
static __device__ __forceinline__ void *ga_coalesce_malloc(ga_kernel_heap heap, size_t size,
                                                           bool coalesce = false)
{
    return coalesce ? ga_coalesce_kernel_static_malloc(heap, size)
                    : ga_coalesce_kernel_malloc(heap, size);
}

/* Free a payload of any of these calls; NULL is ignored. */
static __device__ __forceinline__ void ga_coalesce_free(ga_kernel_heap heap, void *payload)
{
    ga_coalesce_kernel_free(heap, payload);
}

/* ---- static coalescing of a chosen kind ----------------------------------------------------- */

/* A block for each thread of the team, or NULL for all of them. */

/* All threads of the block call. A header of 8 bytes before each payload, which is aligned to 16
 * (HB). */
static __device__ __forceinline__ void *ga_coalesce_block_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_block_malloc(heap, false, size);
}

/* All threads of the block call. No headers; payloads are packed as closely as the heap's alignment
 * allows. Needs a heap that can find superblocks without headers (header=none, static=nb,
 * static=nw); in other heaps it is ga_coalesce_block_malloc() (NB). */
static __device__ __forceinline__ void *ga_coalesce_block_malloc_bare(ga_kernel_heap heap,
                                                                      size_t size)
{
    return ga_coalesce_kernel_block_malloc(heap, true, size);
}

/* All threads of a warp call, or those of its lanes that its block has. With headers here, and
 * without below (NW). */
static __device__ __forceinline__ void *ga_coalesce_warp_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_warp_malloc(heap, false, size);
}

static __device__ __forceinline__ void *ga_coalesce_warp_malloc_bare(ga_kernel_heap heap,
                                                                     size_t size)
{
    return ga_coalesce_kernel_warp_malloc(heap, true, size);
}

#ifdef GA_COALESCE_CHECKED
static __device__ __forceinline__ void *ga_coalesce_malloc_checked(const char *file, int line,
                                                                   ga_kernel_heap heap, size_t size,
                                                                   bool coalesce = false)
{
    return ga_coalesce_malloc(heap, size, coalesce && ga_coalesce_check({file, line, size}));
}
#define ga_coalesce_malloc(...) ga_coalesce_malloc_checked(__FILE__, __LINE__, __VA_ARGS__)
#endif

#endif
