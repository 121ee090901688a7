/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc under the preload: our module in each context, and the program's code that calls
 * it. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_CONTEXTS_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_CONTEXTS_H

#include "../../liballoc/platform/cuda_types.h"
#include "../images/image.h"

#include <stdbool.h>

/* Where code is loaded. */
typedef struct ga_cuda_target {
    CUcontext context; /* the current one; NULL: none, which is enough for a library */
    bool is_primary;   /* it is the device's primary context */
    int device;
    unsigned sm; /* 90: compute capability 9.0 */
} ga_cuda_target;

/* A copy of `image`, a cubin that calls the functions of `calls` (GA_CALLS_*), with stubs. `*owned`
 * holds the copy: give it to ga_libc.free(). The first call opens the heap of the device and loads
 * our module in the context. */
ga_status ga_cuda_kernel_serve(ga_image *out, void **owned, const ga_cuda_target *target,
                               ga_image image, unsigned calls);

/* The driver has loaded such a copy: `handle` is a module in the target's context or a library, of
 * which all contexts get an instance. From now on its kernels allocate, in each context there is or
 * will be. `copy` is freed with a library; NULL: there is nothing to free.
 *
 * If the target's context cannot be served, nothing is recorded, and the caller has to unload the
 * code. */
ga_status ga_cuda_kernel_loaded(void *handle, bool is_library, void *copy,
                                const ga_cuda_target *target);

/* Before the code is unloaded. Returns `copy`, to be freed after. */
void *ga_cuda_kernel_unloading(const void *handle);

/* After a context was created, which is current; after the primary context was retained; before a
 * context is destroyed. */
void ga_cuda_kernel_created(CUcontext context);
void ga_cuda_kernel_retained(int device);
void ga_cuda_kernel_destroying(CUcontext context);

/* Before the primary context goes: close the heap with all its blocks. Until the primary context is
 * retained again, malloc gives NULL in other contexts of the device. */
void ga_cuda_kernel_close(int device);

#endif
