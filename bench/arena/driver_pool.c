/* SPDX-License-Identifier: MIT
 *
 * The backend `cudaMallocAsync`, for comparison: cuMemAllocFromPoolAsync() and cuMemFreeAsync() as
 * a program calls them itself. Our `async` enters the device's context first and checks each
 * pointer; in stream order this backend does neither, because the caller has entered the context. A
 * heap is a pool with the driver's default settings except `release`.
 */
#include "device.h"

#include "platform/cuda_driver.h"

#include <gpualloc/backend.h>

#include <stdlib.h>

typedef struct pool {
    const ga_cuda_driver *driver;
    int device;
    CUmemoryPool pool;
} pool;

static ga_status make_pool(pool *p, uint64_t release)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, p->device}};
    ga_status status = GA_CUDA_CALL(p->driver, cuMemPoolCreate, &p->pool, &props);
    return status == GA_OK ? GA_CUDA_CALL(p->driver, cuMemPoolSetAttribute, p->pool,
                                          CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &release)
                           : status;
}

static ga_status pool_open(const ga_open_args *args, void **state)
{
    ga_cuda_scope scope;
    pool *p = calloc(1, sizeof *p);
    if (!p) {
        return ga_fail(GA_ERR_MEMORY, "cudaMallocAsync: no memory for the heap's record");
    }
    p->device = args->device;
    ga_status status = ga_cuda_enter(&scope, p->device);
    if (status == GA_OK) {
        p->driver = scope.driver;
        status = make_pool(p, args->values[0].size);
        ga_cuda_leave(&scope);
    }
    if (status != GA_OK) {
        free(p);
        return ga_fail(status, "cudaMallocAsync: %s", ga_error_text());
    }
    *state = p;
    return GA_OK;
}

/* The pool is trimmed but not destroyed, because driver 580 may crash when a pool is destroyed
 * (liballoc/backends/native/async_pool.h). */
static void pool_close(void *state)
{
    pool *p = state;
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, p->device) == GA_OK) {
        scope.driver->cuCtxSynchronize();
        scope.driver->cuMemPoolTrimTo(p->pool, 0);
        ga_cuda_leave(&scope);
    }
    free(p);
}

/* ---- in stream order: the driver's calls ------------------------------------------------- */

static ga_status pool_alloc_on(void *state, size_t size, size_t align, ga_stream stream, void **out)
{
    const pool *p = state;
    CUdeviceptr block = 0;
    (void)align; /* the driver's 256 bytes are enough here */
    ga_status status =
        GA_CUDA_CALL(p->driver, cuMemAllocFromPoolAsync, &block, size, p->pool, (CUstream)stream);
    *out = (void *)block;
    return status;
}

static ga_status pool_free_on(void *state, void *block, ga_stream stream)
{
    const pool *p = state;
    return GA_CUDA_CALL(p->driver, cuMemFreeAsync, (CUdeviceptr)block, (CUstream)stream);
}

/* ---- without a stream: enters the device, and waits -------------------------------------- */

static ga_status pool_alloc(void *state, size_t size, void **out)
{
    const pool *p = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, p->device);
    if (status != GA_OK) {
        return status;
    }
    status = pool_alloc_on(state, size, 0, scope.stream, out);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuStreamSynchronize, scope.stream);
    }
    ga_cuda_leave(&scope);
    return status;
}

static ga_status pool_free(void *state, void *block)
{
    const pool *p = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, p->device);
    if (status == GA_OK) {
        status = pool_free_on(state, block, scope.stream);
        ga_cuda_leave(&scope);
    }
    return status;
}

/* ---- questions --------------------------------------------------------------------------- */

static bool pool_owns(void *state, const void *pointer)
{
    (void)state;
    (void)pointer;
    return false;
}

static void pool_stats(void *state, ga_backend_stats *out)
{
    const pool *p = state;
    ga_cuda_scope scope;
    *out = (ga_backend_stats){0};
    if (ga_cuda_enter(&scope, p->device) == GA_OK) {
        scope.driver->cuMemPoolGetAttribute(p->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                            &out->held_bytes);
        ga_cuda_leave(&scope);
    }
}

static const ga_option options[] = {
    {.name = "release",
     .type = GA_OPTION_SIZE,
     .fallback = "0",
     .help = "free memory that the pool keeps when a stream is waited for"},
};

static const ga_backend driver_pool = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "cudaMallocAsync",
    .help = "the driver's calls and nothing around them",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = pool_open,
    .close = pool_close,
    .alloc = pool_alloc,
    .free = pool_free,
    .owns = pool_owns,
    .alloc_on = pool_alloc_on,
    .free_on = pool_free_on,
    .stats = pool_stats,
};

ga_status arena_driver_pool_register(void)
{
    return ga_backend_register(&driver_pool);
}
