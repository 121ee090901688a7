/* SPDX-License-Identifier: MIT
 *
 * Calls on a device's default pool, and which pool is current. The driver's default pool keeps the
 * settings that the program makes. Its statistics include the heap's where the heap serves requests
 * with a stream. Pools that the program makes are served by the driver alone.
 */
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

typedef CUresult of_pool_fn(CUmemoryPool pool);
typedef CUresult trim_fn(CUmemoryPool pool, size_t keep);
typedef CUresult attribute_fn(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
typedef CUresult access_fn(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count);
typedef CUresult set_device_fn(CUdevice device, CUmemoryPool pool);
typedef CUresult set_location_fn(CUmemLocation *location, int type, CUmemoryPool pool);

/* The device whose default pool this is; -1: it is no default pool. */
static int device_of(CUmemoryPool pool)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUmemoryPool default_pool = NULL;
    for (int i = 0; api && i < GA_CUDA_DEVICES; i++) {
        if (api->cuDeviceGetDefaultMemPool(&default_pool, i) != CUDA_SUCCESS) {
            break;
        }
        if (default_pool == pool) {
            return i;
        }
    }
    return -1;
}

/* ---- statistics and trimming ---------------------------------------------------------------- */

GA_CUDA_ENTRY(trim_fn, cuMemPoolTrimTo);
GA_CUDA_ENTRY(attribute_fn, cuMemPoolGetAttribute);
GA_CUDA_ENTRY(attribute_fn, cuMemPoolSetAttribute);

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    trim_fn *next = GA_CUDA_NEXT(trim_fn, cuMemPoolTrimTo);
    ga_cuda_count(GA_HOOK_cuMemPoolTrimTo);
    CUresult result = next ? next(pool, keep) : ga_cuda_next_missing();
    int device = result == CUDA_SUCCESS ? device_of(pool) : -1;
    if (device >= 0) {
        ga_cuda_pool_trim(device, keep);
    }
    return result;
}

static bool is_statistic(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
           attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

static uint64_t statistic_of_heap(const ga_cuda_pool_stats *stats, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return stats->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return stats->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return stats->used;
    default:
        return stats->used_high;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    attribute_fn *next = GA_CUDA_NEXT(attribute_fn, cuMemPoolGetAttribute);
    ga_cuda_pool_stats stats;
    ga_cuda_count(GA_HOOK_cuMemPoolGetAttribute);
    CUresult result = next ? next(pool, attribute, value) : ga_cuda_next_missing();
    int device = result == CUDA_SUCCESS && is_statistic(attribute) ? device_of(pool) : -1;
    if (device >= 0 && ga_cuda_pool_stats_of(device, &stats)) {
        *(uint64_t *)value += statistic_of_heap(&stats, attribute);
    }
    return result;
}

/* A high mark that the program sets to 0 restarts at the current value. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    attribute_fn *next = GA_CUDA_NEXT(attribute_fn, cuMemPoolSetAttribute);
    ga_cuda_count(GA_HOOK_cuMemPoolSetAttribute);
    CUresult result = next ? next(pool, attribute, value) : ga_cuda_next_missing();
    bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    int device = result == CUDA_SUCCESS && high ? device_of(pool) : -1;
    if (device >= 0) {
        ga_cuda_pool_reset_high(device, attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    }
    return result;
}

/* ---- access --------------------------------------------------------------------------------- */

GA_CUDA_ENTRY(access_fn, cuMemPoolSetAccess);

/* Access that the program revokes stays enabled for the heap's blocks. No program can rely on the
 * fault. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    access_fn *next = GA_CUDA_NEXT(access_fn, cuMemPoolSetAccess);
    ga_cuda_count(GA_HOOK_cuMemPoolSetAccess);
    CUresult result = next ? next(pool, desc, count) : ga_cuda_next_missing();
    int device = result == CUDA_SUCCESS ? device_of(pool) : -1;
    for (size_t i = 0; device >= 0 && i < count; i++) {
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc[i].location.id != device &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            ga_cuda_served_enable_peer(device, desc[i].location.id);
        }
    }
    return result;
}

/* ---- which pool is current ------------------------------------------------------------------ */

GA_CUDA_ENTRY(set_device_fn, cuDeviceSetMemPool);
GA_CUDA_ENTRY(set_location_fn, cuMemSetMemPool);
GA_CUDA_ENTRY(of_pool_fn, cuMemPoolDestroy);

static void record_current(int device, CUmemoryPool pool)
{
    ga_cuda_pool_set(device, device_of(pool) == device ? NULL : pool);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    set_device_fn *next = GA_CUDA_NEXT(set_device_fn, cuDeviceSetMemPool);
    ga_cuda_count(GA_HOOK_cuDeviceSetMemPool);
    CUresult result = next ? next(device, pool) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        record_current(device, pool);
    }
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    set_location_fn *next = GA_CUDA_NEXT(set_location_fn, cuMemSetMemPool);
    ga_cuda_count(GA_HOOK_cuMemSetMemPool);
    CUresult result = next ? next(location, type, pool) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        type == CU_MEM_ALLOCATION_TYPE_PINNED) {
        record_current(location->id, pool);
    }
    return result;
}

/* If the destroyed pool was current, the default pool becomes current. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    of_pool_fn *next = GA_CUDA_NEXT(of_pool_fn, cuMemPoolDestroy);
    ga_cuda_count(GA_HOOK_cuMemPoolDestroy);
    CUresult result = next ? next(pool) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        ga_cuda_pool_destroyed(pool);
    }
    return result;
}
