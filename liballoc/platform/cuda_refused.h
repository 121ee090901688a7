/* SPDX-License-Identifier: MIT
 *
 * Memory and addresses of devices that the driver refused to take back from an owner that is gone.
 * They are remembered for the process and released by a later ga_cuda_enter(). Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_CUDA_REFUSED_H
#define GPUALLOC_PLATFORM_CUDA_REFUSED_H

#include "cuda_driver.h"

#include <stdint.h>

/* The order in which they are released: a range can be freed when nothing is mapped in it. */
typedef enum ga_cuda_refused_kind {
    GA_CUDA_REFUSED_MAPPING, /* cuMemUnmap */
    GA_CUDA_REFUSED_CHUNK,   /* cuMemRelease */
    GA_CUDA_REFUSED_RANGE,   /* cuMemAddressFree */
    GA_CUDA_REFUSED_BLOCK,   /* cuMemFree */
    GA_CUDA_REFUSED_PINNED,  /* cuMemHostUnregister, and munmap() of its pages */
    GA_CUDA_REFUSED_EVENT,   /* cuEventDestroy */
    GA_CUDA_REFUSED_KINDS
} ga_cuda_refused_kind;

/* `what` is an address or a handle, `size` bytes. Nothing is allocated. A device whose context is
 * gone has nothing to be released. Where the table is full, the first loss is logged. */
void ga_cuda_refused_add(int device, ga_cuda_refused_kind kind, uint64_t what, uint64_t size);

/* The driver has handed out [what, what + size), or freed it; of chunks, `what` alone counts. So it
 * had released what it refused before, and the next release would be another owner's. */
void ga_cuda_refused_forget(int device, ga_cuda_refused_kind kind, uint64_t what, uint64_t size);

/* Try to release what is remembered of a device whose context is current. */
void ga_cuda_refused_retry(const ga_cuda_driver *driver, int device);

/* Free a block of cuMemAlloc's that only the caller knows of, now or later. For the first, the
 * device's context is current. */
void ga_cuda_drop_block(const ga_cuda_driver *driver, int device, CUdeviceptr block);
void ga_cuda_free_block(int device, CUdeviceptr block);

/* Another driver has none of it. While no other thread is in here. */
void ga_cuda_refused_clear(void);

#endif
