/* SPDX-License-Identifier: MIT
 *
 * The functions that the CUDA preload adds to the program's modules as malloc, free and
 * __cuda_syscall_aligned_malloc. They call the functions whose addresses are in constant bank 3 of
 * the kernel's module; 0: there are none (interpose/images/graft.c).
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
    auto *call = (void *(*)(size_t))stub_address<0>();
    return call ? call(size) : nullptr;
}

extern "C" __device__ __noinline__ void gpualloc_call_free(void *block)
{
    auto *call = (void (*)(void *))stub_address<8>();
    if (call) {
        call(block);
    }
}

extern "C" __device__ __noinline__ void *gpualloc_call_malloc_aligned(size_t size, size_t align)
{
    auto *call = (void *(*)(size_t, size_t))stub_address<16>();
    return call ? call(size, align) : nullptr;
}

/* Never launched: its registers and stack are those that a kernel needs which calls the stubs,
 * without those of the functions that they call. */
extern "C" __global__ void ga_module_needs_stubs(void **out)
{
    out[0] = gpualloc_call_malloc((size_t)out[0]);
    gpualloc_call_free(out[1]);
    out[2] = gpualloc_call_malloc_aligned((size_t)out[2], (size_t)out[3]);
}

#endif
