/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory that the program has freed, kept for its next requests (pinned=SIZE): to pin
 * memory and to unpin it takes the driver long. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PINNED_H
#define GPUALLOC_INTERPOSE_CUDA_PINNED_H

#include "blocks.h"

/* The block that holds the address, and may be smaller than the driver's. */
bool ga_cuda_pinned_find(CUdeviceptr address, ga_cuda_block *out);

/* Give all that is kept to the driver. False: there was nothing. */
bool ga_cuda_pinned_trim(void);

/* The primary context of the device goes, and with it what was pinned there. */
void ga_cuda_pinned_reset(int device);

/* Around fork(2). */
void ga_cuda_pinned_lock(void);
void ga_cuda_pinned_unlock(void);
void ga_cuda_pinned_child(void);

#endif
