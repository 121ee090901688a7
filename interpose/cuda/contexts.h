/* SPDX-License-Identifier: MIT
 *
 * Which context is current, and whether it is its device's primary context. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H
#define GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H

#include "next.h"

/* The device whose primary context is current; -1: another context is, or none. */
int ga_cuda_context_device(const ga_cuda_api *api, CUcontext *context);

/* A device's primary context, in which its heap is; NULL: the driver reports none. */
CUcontext ga_cuda_primary(int device);

/* Wait for all work: on a device, whose primary context is created if there is none; on a device if
 * its primary context is active; on all devices whose primary context is active. False: the driver
 * reports an error. */
bool ga_cuda_wait_for(int device);
bool ga_cuda_wait_if_active(int device);
bool ga_cuda_wait_for_all(void);

/* Call after a context may have been created or destroyed. */
void ga_cuda_contexts_changed(void);

/* The number of devices, as far as this library serves them; 0: the driver cannot say. */
int ga_cuda_devices(void);

/* Whether the primary context of a device is active. */
bool ga_cuda_is_active(int device);

/* ---- references of cuCtxAttach() ------------------------------------------------------------- */

typedef struct ga_cuda_reference ga_cuda_reference;

/* NULL: no memory. Free it with ga_libc.free(), unless it was added. */
ga_cuda_reference *ga_cuda_reference_create(void);
void ga_cuda_reference_add(ga_cuda_reference *made, CUcontext context);

/* Returns one of the context's references, which the caller may add again or free. NULL: it has
 * none but that of its creation. */
ga_cuda_reference *ga_cuda_reference_remove(CUcontext context);

/* The context was destroyed. */
void ga_cuda_references_end(CUcontext context);

#endif
