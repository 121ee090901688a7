/* SPDX-License-Identifier: MIT
 *
 * CUDA's own malloc in the place of gpualloc/mpi_malloc.cuh, for comparisons.
 */
#ifndef GPUALLOC_GPU_MPI_CUDA_MALLOC_CUH
#define GPUALLOC_GPU_MPI_CUDA_MALLOC_CUH

#include <gpualloc/coalesce.cuh>
#include <gpualloc/kernel.h>

#include <cuda_runtime.h>

/* Bytes of CUDA's heap. The default of 8 MiB is too small for some hundred ranks. */
#ifndef GA_MPI_CUDA_HEAP
#define GA_MPI_CUDA_HEAP ((size_t)4 << 30)
#endif

static inline ga_status ga_device_malloc_init(void)
{
    return cudaDeviceSetLimit(cudaLimitMallocHeapSize, GA_MPI_CUDA_HEAP) == cudaSuccess
               ? GA_OK
               : GA_ERR_DEVICE;
}

/* Why that has failed. */
#define GA_MPI_HEAP_ERROR cudaGetErrorString(cudaGetLastError())

static __device__ inline void init_malloc(void)
{
}

static __device__ inline void clean_malloc(void)
{
}

static __device__ inline void *ga_mpi_malloc(size_t size, bool coalesce = false)
{
    (void)coalesce;
    return malloc(size);
}

static __device__ inline void *ga_mpi_calloc(size_t count, size_t size, bool coalesce = false)
{
    void *block = __umul64hi(count, size) ? NULL : malloc(count * size);
    (void)coalesce;
    return block ? memset(block, 0, count * size) : NULL;
}

#define malloc(...) ga_mpi_malloc(__VA_ARGS__)
#define calloc(...) ga_mpi_calloc(__VA_ARGS__)

#endif
