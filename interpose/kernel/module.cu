/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc and free as a module of their own, for programs that are not linked with it. The
 * CUDA preload loads this module once in a context, and adds the stubs below to the program's
 * modules, so that their calls come here (interpose/images/cubin.h).
 *
 * Calls come from kernels of other modules, and constant banks are those of the kernel's module. So
 * the view of the heap is written into instructions, the code is linked, so that addresses are in
 * instructions, too, and ptxas is forbidden to keep numbers and jump tables in a bank.
 * tests/unit/images_nvcc.c checks that the module has no constants but the parameters of its
 * kernels.
 */
#define GA_KERNEL_MODULE
#define GA_KERNEL_MALLOC         ga_module_malloc
#define GA_KERNEL_FREE           ga_module_free
#define GA_KERNEL_MALLOC_ALIGNED ga_module_malloc_aligned
#define GA_KERNEL_VIEW           module_view()

#include <cstddef>
#include <gpualloc/gpualloc.h>

/* Not inlined into the kernels below, whose own constants would then hide that a function has
 * some. */
extern "C" __device__ __noinline__ void *ga_module_malloc(size_t size) noexcept;
extern "C" __device__ __noinline__ void ga_module_free(void *block) noexcept;
extern "C" __device__ __noinline__ void *ga_module_malloc_aligned(size_t size,
                                                                  size_t align) noexcept;

/* Variables whose addresses stand for the words of the view. The preload writes the words into the
 * instructions that take these addresses, before it loads the module. */
extern "C" {
__device__ char ga_module_head, ga_module_word_0, ga_module_word_1, ga_module_word_2,
    ga_module_word_3, ga_module_word_4, ga_module_word_5;
}

/* By assembly, because a compiler knows that an address of a variable is not 0. What is volatile
 * stays where it is written. */
#define MODULE_WORD_BY(how, name)                                                                  \
    __extension__({                                                                                \
        unsigned long long word_;                                                                  \
        asm how("mov.u64 %0, " #name ";" : "=l"(word_));                                           \
        word_;                                                                                     \
    })
#define MODULE_WORD(name) MODULE_WORD_BY(, name)

/* An address of global memory. Otherwise the compiler makes generic loads of it. */
#define MODULE_ADDRESS_BY(how, name)                                                               \
    ((unsigned long long)__cvta_global_to_generic(MODULE_WORD_BY(how, name)))
#define MODULE_ADDRESS(name) MODULE_ADDRESS_BY(, name)

static __device__ __forceinline__ ga_kernel_heap module_view()
{
    unsigned long long head = MODULE_WORD(ga_module_head);
    return {(uint32_t)head,
            (uint32_t)(head >> 32),
            {MODULE_ADDRESS(ga_module_word_0), MODULE_ADDRESS(ga_module_word_1),
             MODULE_ADDRESS(ga_module_word_2), MODULE_WORD(ga_module_word_3),
             MODULE_WORD(ga_module_word_4), MODULE_WORD(ga_module_word_5)}};
}

/* Taken where it is used, so that free() saves no register for it: see malloc.cu. All size classes
 * are those of the module's view. */
#define GA_SIZED_RELEASED_BITS(view)                                                               \
    ((void)(view), (uint32_t *)MODULE_ADDRESS_BY(volatile, ga_module_word_2))

#include "malloc.cu"

/* The addresses of the functions, in the order of GA_CALLS_*. The driver writes them when it loads
 * the module. */
extern "C" {
__device__ void *ga_module_functions[] = {(void *)ga_module_malloc, (void *)ga_module_free,
                                          (void *)ga_module_malloc_aligned};
}

#include "stubs.cuh"

/* ---- needs ----------------------------------------------------------------------------------- */

/* These two are never launched: their registers and stacks are those that a kernel needs which
 * calls the functions. */
extern "C" __global__ void ga_module_needs(void **out)
{
    void *block = ga_module_malloc((size_t)out[0]);
    ga_module_free(out[1]);
    out[1] = block;
}

extern "C" __global__ void ga_module_needs_aligned(void **out)
{
    void *block = ga_module_malloc_aligned((size_t)out[0], (size_t)out[1]);
    ga_module_free(out[2]);
    out[2] = block;
}
