/* SPDX-License-Identifier: MIT
 *
 * Memory other than blocks that counts against limit=: physical memory that the program maps
 * itself, and arrays. Calls that create or release it go through here. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_COUNTED_H
#define GPUALLOC_INTERPOSE_CUDA_COUNTED_H

#include "served.h"

typedef CUresult ga_cuda_map_fn(CUdeviceptr start, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags);
typedef CUresult ga_cuda_unmap_fn(CUdeviceptr start, size_t size);
typedef CUresult ga_cuda_retain_fn(CUmemGenericAllocationHandle *handle, void *pointer);

CUresult ga_cuda_counted_map(ga_cuda_map_fn *next, CUdeviceptr start, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult ga_cuda_counted_unmap(ga_cuda_unmap_fn *next, CUdeviceptr start, size_t size);
CUresult ga_cuda_counted_retain(ga_cuda_retain_fn *next, CUmemGenericAllocationHandle *handle,
                                void *pointer);

/* Before a device's primary context is destroyed. */
void ga_cuda_counted_reset(int device);

#endif
