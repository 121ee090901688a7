/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc under the preload: our module in each context, and the program's code that calls
 * it. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_CONTEXTS_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_CONTEXTS_H

#include "../../liballoc/platform/cuda_types.h"
#include "../images/image.h"
#include "kernel_codes.h"

#include <stdbool.h>

/* Where code is loaded. */
typedef struct ga_cuda_target {
    CUcontext context; /* the current one; NULL: none, which is enough for a library */
    bool is_primary;   /* it is the device's primary context */
    int device;
    unsigned sm; /* 90: compute capability 9.0 */
} ga_cuda_target;

/* A copy of `image`, a cubin that calls the functions of `calls` (GA_CALLS_*), with stubs. `*owned`
 * holds the copy: give it to ga_libc.free(). If there is a context, the first call opens the heap
 * of the device and loads our module in the context. */
ga_status ga_cuda_kernel_serve(ga_image *out, void **owned, const ga_cuda_target *target,
                               ga_image image, unsigned calls);

/* The driver has loaded such a copy: `handle` is a module in the target's context or a library, of
 * which all contexts get an instance. From now on its kernels allocate there; and in other
 * contexts from ga_cuda_kernel_launching() on. `copy` is freed with a library; NULL: there is
 * nothing to free.
 *
 * If the target's context cannot be served, nothing is recorded, and the caller has to unload the
 * code. */
ga_status ga_cuda_kernel_loaded(void *handle, bool is_library, void *copy,
                                const ga_cuda_target *target);

/* Before and after the driver unloads code. The first one's result goes to the second. If the
 * driver has refused, the code is served as before. */
const ga_cuda_code *ga_cuda_kernel_unloading(const void *handle);
void ga_cuda_kernel_unloaded(const ga_cuda_code *code, bool is_gone);

/* Whether code was served, so that contexts may lack it. */
bool ga_cuda_kernel_has_served(void);

/* ---- launches -------------------------------------------------------------------------------- */

/* Before a launch in a context, or in contexts that are not known: the code that may run there gets
 * malloc. If there is no memory for that, a later launch tries again. */
void ga_cuda_kernel_launching(CUcontext context);
void ga_cuda_kernel_launching_any(void);

/* ---- contexts that come and go --------------------------------------------------------------- */

/* After a context was created, which is current; after the primary context was retained. */
void ga_cuda_kernel_created(CUcontext context);
void ga_cuda_kernel_retained(int device);

/* Before and after the driver destroys a context: from the first call to the second, other threads
 * wait that load code on the device. The first one's result goes to the second. */
int ga_cuda_kernel_destroying(CUcontext context);
void ga_cuda_kernel_destroyed(int device, CUcontext context, bool is_gone);

/* Before the primary context goes: close the heap with all its blocks. Other contexts of the device
 * get another heap at their next launch, in a new primary context. After: until then, other threads
 * wait that load code on the device or launch such code. If the driver has refused, the code of the
 * primary context gets another heap, too. */
void ga_cuda_kernel_close(int device);
void ga_cuda_kernel_closed(int device, bool is_gone);

/* Close the heap of a device, and unload our modules there, if no code is served in any of its
 * contexts. */
void ga_cuda_kernel_close_unused(int device);

#endif
