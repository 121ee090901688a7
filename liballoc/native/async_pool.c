/* SPDX-License-Identifier: MIT
 *
 * A list of the pools that nobody uses, under one lock; it grows to the most heaps open at once.
 */
#include "async_pool.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

#include <pthread.h>

typedef struct spare {
    struct spare *following;
    int device;
    CUmemoryPool pool;
} spare;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static spare *spares; /* guarded by `lock` */

static CUmemoryPool take_spare(int device)
{
    pthread_mutex_lock(&lock);
    spare **at = &spares;
    while (*at && (*at)->device != device) {
        at = &(*at)->following;
    }
    spare *taken = *at;
    if (taken) {
        *at = taken->following;
    }
    pthread_mutex_unlock(&lock);
    CUmemoryPool pool = taken ? taken->pool : NULL;
    ga_libc.free(taken);
    return pool;
}

static ga_status check_device(const ga_cuda_scope *scope, int ordinal)
{
    CUdevice device = 0;
    int pools = 0;
    ga_status status = GA_CUDA_CALL(scope->driver, cuDeviceGet, &device, ordinal);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuDeviceGetAttribute, &pools,
                              CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
    }
    return status == GA_OK && !pools ? ga_fail(GA_ERR_DEVICE, "it has no memory pools") : status;
}

ga_status ga_async_pool_take(const ga_cuda_scope *scope, int device, CUmemoryPool *out)
{
    *out = take_spare(device);
    if (*out) {
        return GA_OK;
    }
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    ga_status status = check_device(scope, device);
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuMemPoolCreate, out, &props) : status;
}

/* Without memory for the entry the pool is lost, empty: a few hundred bytes of the driver's. */
void ga_async_pool_leave(const ga_cuda_scope *scope, int device, CUmemoryPool pool)
{
    uint64_t used = 0;
    CUresult asked =
        scope->driver->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    spare *left = asked == CUDA_SUCCESS && !used ? ga_libc.malloc(sizeof *left) : NULL;
    scope->driver->cuMemPoolTrimTo(pool, 0);
    if (left) {
        pthread_mutex_lock(&lock);
        *left = (spare){spares, device, pool};
        spares = left;
        pthread_mutex_unlock(&lock);
    }
}
