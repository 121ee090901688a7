/* SPDX-License-Identifier: MIT
 *
 * Memory that counts against limit= beside blocks: physical memory that the program maps itself, and
 * arrays. The calls that change how long it lives go through here. Thread safe.
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

/* Before the primary context of a device goes. */
void ga_cuda_counted_reset(int device);

#endif
