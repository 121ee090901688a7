/* SPDX-License-Identifier: MIT
 *
 * The blocks of ncclMemAlloc(): from a second heap of each device, over vmm with register=on, so
 * that to the driver each is an allocation of its own. They are not among the blocks of served.h:
 * queries and handles of their memory are the driver's. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_BUFFERS_H
#define GPUALLOC_INTERPOSE_CUDA_BUFFERS_H

#include "served.h"

/* The live blocks. */
extern ga_cuda_blocks ga_cuda_buffers;

/* Allocate in the current context. False: NCCL is to serve the request. */
bool ga_cuda_buffers_alloc(size_t size, void **out);

/* Free a block. CUDA_ERROR_INVALID_VALUE: no live block starts there, but the memory is a heap's.
 * CUDA_ERROR_NOT_SUPPORTED: it is not; NCCL is to free it. */
CUresult ga_cuda_buffers_free(const void *block);

/* True if a heap of these has reserved the address, whether for a live block or not. */
bool ga_cuda_buffers_reserve(CUdeviceptr address);

/* Close a device's heap with all its blocks. With the device's lock held exclusively. */
void ga_cuda_buffers_close(ga_cuda_device *d, int ordinal);

#endif
