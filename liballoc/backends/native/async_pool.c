/* SPDX-License-Identifier: MIT
 *
 * Unused pools, in one list under one lock. It grows to the largest number of heaps that were open
 * at the same time.
 */
#include "async_pool.h"

#include "../../platform/libc.h"

#include <gpualloc/backend.h>

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_async_pool *spares; /* guarded by `lock` */

/* Remove a pool of the device from the list; NULL if there is none. */
static ga_async_pool *remove_spare(int device)
{
    pthread_mutex_lock(&lock);
    ga_async_pool **at = &spares;
    while (*at && (*at)->device != device) {
        at = &(*at)->following;
    }
    ga_async_pool *spare = *at;
    if (spare) {
        *at = spare->following;
    }
    pthread_mutex_unlock(&lock);
    return spare;
}

static void add_spare(ga_async_pool *pool)
{
    pthread_mutex_lock(&lock);
    pool->following = spares;
    spares = pool;
    pthread_mutex_unlock(&lock);
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

static bool is_empty(const ga_cuda_scope *scope, CUmemoryPool pool, bool *known)
{
    uint64_t used = 0;
    *known = scope->driver->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
             CUDA_SUCCESS;
    return *known && !used;
}

static ga_status make(const ga_cuda_scope *scope, int device, ga_async_pool **out)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    ga_async_pool *made = ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a pool");
    }
    made->device = device;
    ga_status status = check_device(scope, device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuMemPoolCreate, &made->pool, &props);
    }
    if (status != GA_OK) {
        ga_libc.free(made);
        return status;
    }
    *out = made;
    return GA_OK;
}

/* A spare pool may have live blocks, if its state could not be queried when it was released. Such a
 * pool is dropped, and a new one made. */
ga_status ga_async_pool_claim(const ga_cuda_scope *scope, int device, ga_async_pool **out)
{
    bool known = true;
    ga_async_pool *spare = remove_spare(device);
    if (spare && is_empty(scope, spare->pool, &known)) {
        *out = spare;
        return GA_OK;
    }
    if (known) {
        ga_libc.free(spare);
    } else {
        add_spare(spare);
    }
    return make(scope, device, out);
}

void ga_async_pool_return(const ga_cuda_scope *scope, ga_async_pool *pool)
{
    bool known = false;
    bool empty = scope && is_empty(scope, pool->pool, &known);
    if (scope && scope->driver->cuMemPoolTrimTo(pool->pool, 0) != CUDA_SUCCESS) {
        scope->driver->cuMemPoolTrimTo(pool->pool, 0);
    }
    if (empty || (!known && ga_cuda_has_context(pool->device))) {
        add_spare(pool);
    } else {
        ga_libc.free(pool);
    }
}
