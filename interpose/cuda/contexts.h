/* SPDX-License-Identifier: MIT
 *
 * Which context is current, and whether it is its device's primary one. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H
#define GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H

#include "next.h"

/* The device whose primary context is current; -1: none's is. */
int ga_cuda_context_device(const ga_cuda_asks *asks, CUcontext *context);

/* The primary context of a device, which its heap is in; NULL: the driver names none. */
CUcontext ga_cuda_primary(int device);

/* Wait for all work on a device, in its primary context; the same, if that is in use; on every
 * device where it is. False: the driver says that something failed. */
bool ga_cuda_wait_for(int device);
bool ga_cuda_wait_if_active(int device);
bool ga_cuda_wait_for_all(void);

/* Contexts may have come and gone. */
void ga_cuda_contexts_changed(void);

#endif
