/* SPDX-License-Identifier: MIT
 *
 * Primary contexts by the program's references. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PRIMARY_H
#define GPUALLOC_INTERPOSE_CUDA_PRIMARY_H

#include "../../liballoc/platform/cuda_types.h"

/* A heap is opened on a device. Where the program has no reference to the device's primary context
 * by then, it has one that it did not get through us, and its releases say nothing. */
void ga_cuda_primary_used(int device);

/* Close all of ours on a device, whose primary context is about to go. */
void ga_cuda_primary_close(CUdevice device);

#endif
