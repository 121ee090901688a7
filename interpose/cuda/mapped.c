/* SPDX-License-Identifier: MIT
 *
 * The driver's calls on mapped memory, for addresses of a heap. The program got that memory from
 * cuMemAlloc(), so it is answered as for the driver's own block: there is no handle to retain and
 * nothing to map. Libraries take CUDA_ERROR_INVALID_VALUE from cuMemRetainAllocationHandle() as the
 * sign to use legacy IPC.
 */
#include "buffers.h"
#include "counted.h"
#include "entry.h"
#include "ipc.h"
#include "lookup.h"
#include "next.h"

typedef CUresult address_free_fn(CUdeviceptr start, size_t size);
typedef CUresult set_access_fn(CUdeviceptr start, size_t size, const CUmemAccessDesc *desc,
                               size_t count);
typedef CUresult get_access_fn(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr pointer);

/* Testing the start is enough: the driver refuses a range that spans two reservations. */
static bool is_heap_address(CUdeviceptr start)
{
    ga_cuda_block block;
    return ga_cuda_is_reserved(start) || ga_cuda_ipc_find(start, &block);
}

/* The program may ask about memory of ncclMemAlloc() and retain it, but not change it. */
static bool is_kept_address(CUdeviceptr start)
{
    return is_heap_address(start) || ga_cuda_buffers_reserve(start);
}

/* Count the call; refuse it for the addresses that `refuses` is true for, else evaluate `...`. */
#define ANSWER(type, symbol, refuses, start, ...)                                                  \
    type *next = GA_CUDA_NEXT(type, symbol);                                                       \
    ga_cuda_count(GA_HOOK_##symbol);                                                               \
    if (!next) {                                                                                   \
        return ga_cuda_next_missing();                                                             \
    }                                                                                              \
    return refuses(start) ? CUDA_ERROR_INVALID_VALUE : __VA_ARGS__

GA_CUDA_ENTRY(address_free_fn, cuMemAddressFree);
GA_CUDA_ENTRY(ga_cuda_map_fn, cuMemMap);
GA_CUDA_ENTRY(ga_cuda_unmap_fn, cuMemUnmap);
GA_CUDA_ENTRY(set_access_fn, cuMemSetAccess);
GA_CUDA_ENTRY(get_access_fn, cuMemGetAccess);
GA_CUDA_ENTRY(ga_cuda_retain_fn, cuMemRetainAllocationHandle);

CUresult cuMemAddressFree(CUdeviceptr start, size_t size)
{
    ANSWER(address_free_fn, cuMemAddressFree, is_kept_address, start, next(start, size));
}

CUresult cuMemMap(CUdeviceptr start, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ANSWER(ga_cuda_map_fn, cuMemMap, is_kept_address, start,
           ga_cuda_counted_map(next, start, size, offset, handle, flags));
}

CUresult cuMemUnmap(CUdeviceptr start, size_t size)
{
    ANSWER(ga_cuda_unmap_fn, cuMemUnmap, is_kept_address, start,
           ga_cuda_counted_unmap(next, start, size));
}

CUresult cuMemSetAccess(CUdeviceptr start, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    ANSWER(set_access_fn, cuMemSetAccess, is_kept_address, start, next(start, size, desc, count));
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer)
{
    ANSWER(get_access_fn, cuMemGetAccess, is_heap_address, pointer, next(flags, location, pointer));
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *pointer)
{
    ANSWER(ga_cuda_retain_fn, cuMemRetainAllocationHandle, is_heap_address,
           (CUdeviceptr)(uintptr_t)pointer, ga_cuda_counted_retain(next, handle, pointer));
}
