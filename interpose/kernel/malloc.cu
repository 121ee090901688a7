/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc and free, under the names that device code has for them. nvcc turns new and
 * delete, sized and of arrays, into calls of these two as well, and those for over-aligned types and
 * __nv_aligned_device_malloc() into __cuda_syscall_aligned_malloc(); CUDA's device code has no nothrow
 * forms. Device-side cudaMalloc() and cudaFree() of libcudadevrt call malloc and free, too.
 *
 * A translation unit of its own: nvcc makes host functions of these names, too, which end the
 * program. The build makes them local, or the program's malloc would be one of them.
 */
#define GA_KERNEL_LINKED /* nothing in here can reach CUDA's own malloc */
#include <gpualloc/device.cuh>

#include "linked.h"

#include <cuda_runtime.h>

/* Written by the host before the first launch, and all zeros until then: every request gets NULL.
 * Constant memory, since all threads read the same words of it. */
__constant__ ga_kernel_heap ga_kernel_linked;

extern "C" __device__ void *malloc(size_t size) noexcept
{
    return ga_kernel_malloc(ga_kernel_linked, size);
}

extern "C" __device__ void free(void *block) noexcept
{
    ga_kernel_free(ga_kernel_linked, block);
}

/* The least power of two that is at least `size`; 0 where there is none. */
static __device__ size_t round_to_power(size_t size)
{
    return size <= 1 ? 1 : (size_t)1 << (64 - __clzll((long long)(size - 1))) % 64;
}

/* Blocks of a power of two stand at multiples of their size in every heap whose memory begins at one.
 * A block that does not is given back: NULL, never a wrong alignment. */
extern "C" __device__ void *__cuda_syscall_aligned_malloc(size_t size, size_t align) noexcept
{
    if (align <= 16) {
        return malloc(size);
    }
    size_t whole = round_to_power(size > align ? size : align);
    void *block = whole ? malloc(whole) : NULL;
    if (block && (size_t)block % align != 0) {
        free(block);
        block = NULL;
    }
    return block;
}

/* A use by host code, which keeps the variable findable in programs linked with -dlto. */
int ga_kernel_linked_address(void **out)
{
    return cudaGetSymbolAddress(out, ga_kernel_linked);
}
