/* SPDX-License-Identifier: MIT
 *
 * The functions that a program calls after `gpualloc rewrite` (gpualloc-rewrite(1)), as in
 * warp-coalescing-gpumpi-2022, Listing 1:
 *
 *     #include <gpualloc/mpi_malloc.cuh>      last, because it replaces malloc, calloc and free
 *
 *     __global__ void program(void)
 *     {
 *         init_malloc();
 *         void *p = malloc(64, true);         all threads of the block call, with equal sizes
 *         if (threadIdx.x < 4) {
 *             void *q = malloc(16);           some threads call
 *             free(q);
 *         }
 *         free(p);
 *         clean_malloc();
 *     }
 *
 *     if (ga_device_malloc_init() != GA_OK) { ... }    on the host, before the first launch
 *
 * The heap is the device's (gpualloc/malloc.cuh). In one of `coalesce` a call with `true` is
 * collective. In all others it is an ordinary request, so that GPUALLOC_KERNEL can name any
 * backend. In host code the names mean the C library's functions.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17; link with -lgpualloc.
 */
#ifndef GPUALLOC_MPI_MALLOC_CUH
#define GPUALLOC_MPI_MALLOC_CUH

#include <gpualloc/coalesce.cuh>
#include <gpualloc/malloc.cuh>

#include <stdlib.h>

/* True if a call may be collective. It is equal in all threads, because the heap is. */
static __device__ inline bool ga_mpi_is_coalescing(void)
{
    return ga_kernel_is(ga_device_heap, GA_KERNEL_KIND_COALESCE);
}

/* The number of threads of the block that have cleaned up. */
static __device__ inline uint32_t *ga_mpi_cleaned(void)
{
    static __shared__ uint32_t count;
    return &count;
}

/* All threads of the block call together, before their first request. */
static __device__ inline void init_malloc(void)
{
    if (ga_mpi_is_coalescing()) {
        if (ga_coalesce_rank() == 0) {
            *ga_mpi_cleaned() = 0;
        }
        ga_coalesce_init(ga_device_heap);
        __syncthreads(); /* the count is 0 before a thread adds to it */
    }
}

/* Each thread calls once, after its last request, where it leaves the program. No thread waits:
 * some leave early. The last one of the block reports for all. */
static __device__ inline void clean_malloc(void)
{
    /* CM1: release and acquire. Pairs with itself: the other threads have made their frees. */
    if (ga_mpi_is_coalescing() &&
        ga_add_acq_rel(ga_mpi_cleaned(), 1) + 1 == blockDim.x * blockDim.y * blockDim.z) {
        ga_coalesce_kernel_leave_last(ga_device_heap);
    }
}

/* `size` bytes, or NULL. With `coalesce` all threads of the block call, with equal sizes. */
static __host__ __device__ inline void *ga_mpi_malloc(size_t size, bool coalesce = false)
{
#ifdef __CUDA_ARCH__
    return coalesce && ga_mpi_is_coalescing() ? ga_coalesce_malloc(ga_device_heap, size, true)
                                              : ga_kernel_malloc(ga_device_heap, size);
#else
    (void)coalesce;
    return malloc(size);
#endif
}

/* `count` elements of `size` bytes, all 0, or NULL, also if the product overflows a size_t. */
static __host__ __device__ inline void *ga_mpi_calloc(size_t count, size_t size,
                                                      bool coalesce = false)
{
#ifdef __CUDA_ARCH__
    if (!coalesce || !ga_mpi_is_coalescing()) {
        return ga_kernel_calloc(ga_device_heap, count, size);
    }
    /* An overflow is one in all threads, because the sizes are equal. */
    void *block =
        __umul64hi(count, size) ? NULL : ga_coalesce_malloc(ga_device_heap, count * size, true);
    if (block) {
        ga_block_fill(block, NULL, count * size);
    }
    return block;
#else
    (void)coalesce;
    return calloc(count, size);
#endif
}

#undef malloc
#undef free
#define malloc(...) ga_mpi_malloc(__VA_ARGS__)
#define calloc(...) ga_mpi_calloc(__VA_ARGS__)
#define free(block) ga_device_free(block)

#endif
