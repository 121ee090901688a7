/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc of a device under the preload: the module with our functions in the primary
 * context, and the heap that serves them. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H

#include "../images/cubin.h"

#include <stdbool.h>

/* Whether GPUALLOC_KERNEL names a heap. It does not if it is empty, or is `cuda`: CUDA's own
 * malloc. */
bool ga_cuda_kernel_wanted(void);

/* The functions to call in the primary context of `device`, of compute capability `sm`, for code
 * that calls those of `calls` (GA_CALLS_*). The first call loads the module and opens the heap; a
 * failure is remembered until the context is reset. */
ga_status ga_cuda_kernel_open(ga_cubin_callee *out, int device, unsigned sm, unsigned calls);

/* A library was patched for `device`. The driver keeps its code when the primary context is reset,
 * and loads it again in the next one. */
void ga_cuda_kernel_library(int device);

/* After the primary context is retained: if such libraries exist and the context is new, load our
 * module first of all. If it is not where it was, which the driver need not see to, an error is
 * logged: the libraries call functions that are gone. */
void ga_cuda_kernel_reopen(int device);

/* Before the primary context goes: close the heap with all its blocks. The driver unloads the
 * module with the context. */
void ga_cuda_kernel_close(int device);

#endif
