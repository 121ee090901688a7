/* SPDX-License-Identifier: MIT
 *
 * malloc and free in kernels by including, for code that is not compiled with -rdc=true or not linked
 * with libgpualloc-kernel.a:
 *
 *     #include <gpualloc/malloc.cuh>
 *
 *     __global__ void build(node **out) { *out = (node *)ga_device_malloc(sizeof **out); }
 *
 *     if (ga_device_malloc_init() != GA_OK) { ... }       once for each device, before the first launch
 *
 * The heap is the one of the device that gpualloc/kernel.h is about, so blocks may go from a file that
 * includes this to a module that was linked, and back; its spec is ga_kernel_use()'s or
 * GPUALLOC_KERNEL's.
 *
 * With GPUALLOC_REPLACE_MALLOC defined before this is included, what follows in the file may go on
 * saying malloc and free: in device code they are these, in host code the C library's. They are macros
 * with an argument then, so `std::malloc(n)` and members of these names do not compile; and new and
 * delete stay CUDA's. Include it last.
 *
 * Each file that includes this has a variable of its own, for ga_device_malloc_init() of that file.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17; link with -lgpualloc.
 */
#ifndef GPUALLOC_MALLOC_CUH
#define GPUALLOC_MALLOC_CUH

#include <gpualloc/device.cuh>
#include <gpualloc/kernel.h>

#include <cuda_runtime.h>
#include <stdlib.h>

/* What this file's kernels read; all zeros, so that every request gets NULL, until it is written. */
static __constant__ ga_kernel_heap ga_device_heap;

/* Open the heap of the current device, where it is not open yet, and let the kernels of this file have
 * it. Again after cudaDeviceReset(), which wants a ga_kernel_close() before it.
 *
 * GA_ERR_DEVICE  the CUDA runtime cannot use the device; else as ga_kernel_publish()
 */
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

/* As ga_kernel_malloc() and ga_kernel_free() in device code, malloc() and free() in host code. */
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
