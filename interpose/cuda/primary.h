/* SPDX-License-Identifier: MIT
 *
 * The program's references to primary contexts. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PRIMARY_H
#define GPUALLOC_INTERPOSE_CUDA_PRIMARY_H

#include "../../liballoc/platform/cuda_types.h"

#include <stdbool.h>

/* Call after a heap was opened on a device. If the program has no known reference to the device's
 * primary context, it has one that bypassed the preload, and the count of its releases means
 * nothing. */
void ga_cuda_primary_used(int device);

/* Close the heap and drop exports, imports and pinned memory of a device whose primary context is
 * about to be destroyed. Until ga_cuda_primary_closed(), which comes after the driver has answered,
 * no thread opens a heap of in-kernel malloc there. */
void ga_cuda_primary_close(CUdevice device);
void ga_cuda_primary_closed(CUdevice device, bool is_gone);

#endif
