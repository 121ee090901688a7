/* SPDX-License-Identifier: MIT
 *
 * Memory and addresses of devices that the driver refused to release, and whose owner is gone. They
 * are kept for the life of the process and released by a later ga_cuda_enter(). Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_CUDA_REFUSED_H
#define GPUALLOC_PLATFORM_CUDA_REFUSED_H

#include "cuda_driver.h"

#include <stdint.h>

/* In the order of their release, because a range can be freed only when nothing is mapped in it. */
typedef enum ga_cuda_refused_kind {
    GA_CUDA_REFUSED_MAPPING, /* cuMemUnmap */
    GA_CUDA_REFUSED_CHUNK,   /* cuMemRelease */
    GA_CUDA_REFUSED_RANGE,   /* cuMemAddressFree */
    GA_CUDA_REFUSED_BLOCK,   /* cuMemFree */
    GA_CUDA_REFUSED_HOST,    /* cuMemFreeHost */
    GA_CUDA_REFUSED_PINNED,  /* cuMemHostUnregister, and munmap() of its pages */
    GA_CUDA_REFUSED_EVENT,   /* cuEventDestroy */
    GA_CUDA_REFUSED_KINDS
} ga_cuda_refused_kind;

/* Add a resource: `handle` is an address or a driver handle, `size` its bytes. Allocates nothing.
 * Does nothing if the device's context is gone. If the table is full, the first loss is logged. */
void ga_cuda_refused_add(int device, ga_cuda_refused_kind kind, uint64_t handle, uint64_t size);

/* Drop entries that overlap [handle, handle + size); for chunks `handle` alone counts. Called when
 * the driver has allocated or freed that range: so it has released the refused resource after all,
 * and a retry would release another owner's. */
void ga_cuda_refused_forget(int device, ga_cuda_refused_kind kind, uint64_t handle, uint64_t size);

/* Try to release the entries of a device, whose context must be current. At most 4 failures are
 * tolerated, so that a call stays short. */
void ga_cuda_refused_retry(const ga_cuda_driver *driver, int device);

/* Free a block that no other code knows: now, or by a later retry. Blocks of cuMemHostAlloc by
 * ga_cuda_drop_host_block(), others by the other two. The first two need the device's context to be
 * current; ga_cuda_free_block() enters the device itself. */
void ga_cuda_drop_block(const ga_cuda_driver *driver, int device, CUdeviceptr block);
void ga_cuda_drop_host_block(const ga_cuda_driver *driver, int device, CUdeviceptr block);
void ga_cuda_free_block(int device, CUdeviceptr block);

/* Empty the table, because tests replace the driver. No other thread may use this file. */
void ga_cuda_refused_clear(void);

#endif
