/* SPDX-License-Identifier: MIT
 *
 * A cache of pinned host memory that the program has freed (pinned=SIZE), because the driver takes
 * long to pin and unpin memory. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PINNED_H
#define GPUALLOC_INTERPOSE_CUDA_PINNED_H

#include "blocks.h"

/* Find the live block that holds the address. The driver's allocation may be larger. */
bool ga_cuda_pinned_find(CUdeviceptr address, ga_cuda_block *out);

/* Free the whole cache to the driver. False: it freed nothing. */
bool ga_cuda_pinned_trim(void);

/* Before a device's primary context is destroyed, with the memory that was pinned in it. */
void ga_cuda_pinned_reset(int device);

/* Around fork(2). */
void ga_cuda_pinned_lock(void);
void ga_cuda_pinned_unlock(void);
void ga_cuda_pinned_child(void);

#endif
