/* SPDX-License-Identifier: MIT
 *
 * Which context is current, and whether it is its device's primary one. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H
#define GPUALLOC_INTERPOSE_CUDA_CONTEXTS_H

#include "next.h"

/* The device whose primary context is current; -1: none's is. */
int ga_cuda_context_device(const ga_cuda_asks *asks, CUcontext *context);

/* Contexts may have come and gone. */
void ga_cuda_contexts_changed(void);

#endif
