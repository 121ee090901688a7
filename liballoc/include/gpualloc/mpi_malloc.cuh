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
 * backend. In host code the names mean the C library's functions. GA_COALESCE_CHECKED checks the
 * collective requests (gpualloc/coalesce.cuh).
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

/* All threads of the block call together, before their first request. */
static __device__ inline void init_malloc(void)
{
    if (ga_mpi_is_coalescing()) {
        ga_coalesce_init(ga_device_heap);
        __syncthreads(); /* all are counted before one leaves */
    }
}

/* Each thread calls once, after its last request, where it leaves the program. No thread waits,
 * because some leave early. */
static __device__ inline void clean_malloc(void)
{
    if (ga_mpi_is_coalescing()) {
        ga_coalesce_kernel_leave_some(ga_device_heap, 1);
    }
}

/* Out of line, because a program has many calls, and each would have all of this code. */
GA_SIMT_SLOW void *ga_mpi_malloc_alone(size_t size)
{
    return ga_kernel_malloc(ga_device_heap, size);
}

GA_SIMT_SLOW void *ga_mpi_malloc_together(size_t size)
{
    void *block = ga_coalesce_malloc(ga_device_heap, size, true);
#ifdef GA_MPI_END_IF_ABORTED /* of gpu_mpi.cuh: ends the thread if the program has been aborted */
    GA_MPI_END_IF_ABORTED();
#endif
    return block;
}

GA_SIMT_SLOW void ga_mpi_free(void *block)
{
    ga_kernel_free(ga_device_heap, block);
}

/* `size` bytes, or NULL. With `coalesce` all threads of the block call, with equal sizes; over a
 * heap of `coalesce` all of a block or warp get NULL if one does (gpualloc/coalesce.cuh). */
static __host__ __device__ inline void *ga_mpi_malloc(size_t size, bool coalesce = false)
{
#ifdef __CUDA_ARCH__
    return coalesce && ga_mpi_is_coalescing() ? ga_mpi_malloc_together(size)
                                              : ga_mpi_malloc_alone(size);
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
    void *block = __umul64hi(count, size) ? NULL : ga_mpi_malloc_together(count * size);
    if (block) {
        ga_block_fill(block, NULL, count * size);
    }
    return block;
#else
    (void)coalesce;
    return calloc(count, size);
#endif
}

static __host__ __device__ inline void ga_mpi_free_block(void *block)
{
#ifdef __CUDA_ARCH__
    ga_mpi_free(block);
#else
    free(block);
#endif
}

#ifdef GA_COALESCE_CHECKED
/* True if the request is to be collective, and all threads of the block make it. */
static __host__ __device__ inline bool ga_mpi_check(const char *file, int line, size_t size,
                                                    bool coalesce)
{
#ifdef __CUDA_ARCH__
    return coalesce && ga_mpi_is_coalescing() && ga_coalesce_check({file, line, size});
#else
    (void)file, (void)line, (void)size;
    return coalesce;
#endif
}

static __host__ __device__ inline void *ga_mpi_malloc_checked(const char *file, int line,
                                                              size_t size, bool coalesce = false)
{
    return ga_mpi_malloc(size, ga_mpi_check(file, line, size, coalesce));
}

static __host__ __device__ inline void *
ga_mpi_calloc_checked(const char *file, int line, size_t count, size_t size, bool coalesce = false)
{
    return ga_mpi_calloc(count, size, ga_mpi_check(file, line, count * size, coalesce));
}
#endif

#undef malloc
#undef free
#ifdef GA_COALESCE_CHECKED
#define malloc(...) ga_mpi_malloc_checked(__FILE__, __LINE__, __VA_ARGS__)
#define calloc(...) ga_mpi_calloc_checked(__FILE__, __LINE__, __VA_ARGS__)
#else
#define malloc(...) ga_mpi_malloc(__VA_ARGS__)
#define calloc(...) ga_mpi_calloc(__VA_ARGS__)
#endif
#define free(block) ga_mpi_free_block(block)

#endif
