/* SPDX-License-Identifier: MIT
 *
 * The module of module.cu, embedded as a fat binary of linked cubins.
 */
#ifndef GPUALLOC_KERNEL_MODULE_H
#define GPUALLOC_KERNEL_MODULE_H

#include <stdint.h>

/* A build without nvcc has size 0. */
extern const unsigned char ga_kernel_module[] __attribute__((visibility("hidden")));
extern const uint64_t ga_kernel_module_size __attribute__((visibility("hidden")));

/* Its PTX, in a fat binary, for architectures that the build does not know. */
extern const unsigned char ga_kernel_module_ptx[] __attribute__((visibility("hidden")));
extern const uint64_t ga_kernel_module_ptx_size __attribute__((visibility("hidden")));

/* Its variables for the words of a ga_kernel_heap, the variable with the addresses of its
 * functions, and its kernels. */
#define GA_KERNEL_MODULE_WORDS                                                                     \
    {                                                                                              \
        "ga_module_head", "ga_module_word_0", "ga_module_word_1", "ga_module_word_2",              \
            "ga_module_word_3", "ga_module_word_4", "ga_module_word_5"                             \
    }
#define GA_KERNEL_MODULE_FUNCTIONS "ga_module_functions"
#define GA_KERNEL_MODULE_NEEDS     "ga_module_needs" /* of malloc and free */
#define GA_KERNEL_MODULE_ALIGNED   "ga_module_needs_aligned"
#define GA_KERNEL_MODULE_STUBS     "ga_module_needs_stubs"

#endif
