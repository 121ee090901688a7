/* SPDX-License-Identifier: MIT
 *
 * malloc and free in kernels by including a header, for code that is not compiled with -rdc=true or
 * not linked with libgpualloc-kernel.a:
 *
 *     #include <gpualloc/malloc.cuh>
 *
 *     __global__ void build(node **out) { *out = (node *)ga_device_malloc(sizeof **out); }
 *
 *     if (ga_device_malloc_init() != GA_OK) { ... }   once for each device, before the first launch
 *
 * The heap is the device's heap of gpualloc/kernel.h, with the spec of ga_kernel_use() or
 * GPUALLOC_KERNEL. So blocks may be passed between a file that includes this header and a module
 * that was linked with the archive.
 *
 * If GPUALLOC_REPLACE_MALLOC is defined before this header is included, the rest of the file may
 * keep the names malloc and free: in device code they mean the functions below, in host code the C
 * library's. They are macros with an argument then, so `std::malloc(n)` and members with these
 * names do not compile; new and delete stay CUDA's. Include the header last.
 *
 * Each file that includes this header has its own variable, which ga_device_malloc_init() of that
 * file sets.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17; link with -lgpualloc.
 */
#ifndef GPUALLOC_MALLOC_CUH
#define GPUALLOC_MALLOC_CUH

#include <gpualloc/device.cuh>
#include <gpualloc/kernel.h>

#include <cuda_runtime.h>
#include <stdlib.h>

/* The view that this file's kernels read. Until it is written it is zero, and every request returns
 * NULL. */
static __constant__ ga_kernel_heap ga_device_heap;

/* Open the heap of the current device, unless it is open, and make it available to the kernels of
 * this file. Call it again after cudaDeviceReset(), before which ga_kernel_close() must be called.
 *
 * GA_ERR_DEVICE  the CUDA runtime cannot use the device; else as ga_kernel_publish() */
static inline ga_status ga_device_malloc_init(void)
{
    int device;
    void *variable = NULL;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetSymbolAddress(&variable, ga_device_heap) != cudaSuccess) {
        return GA_ERR_DEVICE;
    }
    return ga_kernel_publish(device, variable);
}

/* In device code ga_kernel_malloc() and ga_kernel_free(), in host code malloc() and free(). */
static __host__ __device__ inline void *ga_device_malloc(size_t size)
{
#ifdef __CUDA_ARCH__
    return ga_kernel_malloc(ga_device_heap, size);
#else
    return malloc(size);
#endif
}

static __host__ __device__ inline void ga_device_free(void *block)
{
#ifdef __CUDA_ARCH__
    ga_kernel_free(ga_device_heap, block);
#else
    free(block);
#endif
}

#ifdef GPUALLOC_REPLACE_MALLOC
#define malloc(size) ga_device_malloc(size)
#define free(block)  ga_device_free(block)
#endif

#endif
