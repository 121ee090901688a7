/* SPDX-License-Identifier: MIT
 *
 * The functions that the CUDA preload adds to the program's modules as malloc, free and
 * __cuda_syscall_aligned_malloc. They call the functions whose addresses are in constant bank 3 of
 * the kernel's module. Where there are none, these are addresses of gpualloc_call_none()
 * (interpose/images/graft.c).
 *
 * interpose/images/stubs.c rewrites the code, and knows the form that ptxas gives it: linked, and
 * compiled with --disable-optimizer-constants.
 */
#ifndef GPUALLOC_KERNEL_STUBS_CUH
#define GPUALLOC_KERNEL_STUBS_CUH

#include <cstddef>

/* Its address stands for the offset of the addresses in the bank. */
extern "C" {
__device__ char gpualloc_offset;
}

template <int PLACE> static __device__ __forceinline__ unsigned long long stub_address()
{
    unsigned long long address;
    asm volatile("{ .reg .u64 offset; mov.u64 offset, gpualloc_offset;"
                 " ld.const.u64 %0, [offset + %1]; }"
                 : "=l"(address)
                 : "n"(PLACE));
    return address;
}

extern "C" __device__ __noinline__ void *gpualloc_call_malloc(size_t size)
{
    return ((void *(*)(size_t))stub_address<0>())(size);
}

extern "C" __device__ __noinline__ void gpualloc_call_free(void *block)
{
    ((void (*)(void *))stub_address<8>())(block);
}

extern "C" __device__ __noinline__ void *gpualloc_call_malloc_aligned(size_t size, size_t align)
{
    return ((void *(*)(size_t, size_t))stub_address<16>())(size, align);
}

/* Gives NULL, as any of these functions. Assembly, so that callers do not know. */
extern "C" __device__ __noinline__ void *gpualloc_call_none()
{
    void *none;
    asm volatile("mov.u64 %0, 0;" : "=l"(none));
    return none;
}

/* Never launched: its registers and stack are those that a kernel needs which calls the stubs,
 * without those of the functions that they call. */
extern "C" __global__ void ga_module_needs_stubs(void **out)
{
    out[0] = gpualloc_call_malloc((size_t)out[0]);
    gpualloc_call_free(out[1]);
    out[2] = gpualloc_call_malloc_aligned((size_t)out[2], (size_t)out[3]);
    out[3] = gpualloc_call_none();
}

#endif
