/* SPDX-License-Identifier: MIT
 *
 * Device code on its way to the driver. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_MODULES_H
#define GPUALLOC_INTERPOSE_CUDA_MODULES_H

#include <stdint.h>

/* Figures of GPUALLOC_STATS. */
typedef struct ga_cuda_module_counts {
    uint64_t served;  /* call our functions */
    uint64_t passed;  /* do not allocate */
    uint64_t refused; /* allocate, and keep CUDA's malloc */
    uint64_t unread;  /* may allocate, and keep it, because they cannot be read */
} ga_cuda_module_counts;

ga_cuda_module_counts ga_cuda_modules_counted(void);

/* In the child of a fork: the parent reports its own. */
void ga_cuda_modules_child(void);

#endif
