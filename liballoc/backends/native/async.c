/* SPDX-License-Identifier: MIT
 *
 * The `async` backend: the driver's stream-ordered allocator (cudaMallocAsync), with a memory pool
 * for each heap.
 *
 * alloc_on() and free_on() use the stream that the caller passes. alloc() allocates on the device's
 * own stream and waits for it, so that every stream may use the block at once. free() by default
 * first waits for all work on the device, as cudaFree does, because earlier work on any stream may
 * still use the block; with free=now the caller has to wait.
 */
#include "async_pool.h"
#include "native.h"

#include "../../platform/libc.h"

#include <time.h>

enum {
    OPTION_RELEASE = 0,
    OPTION_DECAY,
    OPTION_FREE
};

enum {
    FREE_WAIT = 0,
    FREE_NOW
};

enum {
    ALIGNMENT = 256 /* bytes; the driver guarantees it for every block */
};

static const uint64_t KEEP_ALL = (uint64_t)1 << 40; /* bytes; from here on release= keeps all free
                                                      * memory, as its default of 1T does */

typedef struct async_state {
    int device;
    int free_mode;
    uint64_t release;
    int64_t purge_unused; /* milliseconds; -1: never purge */
    int64_t interval;     /* end of the current interval, in milliseconds; relaxed */
    ga_async_pool *own;
    CUmemoryPool pool; /* of `own` */
} async_state;

/* ---- unused memory goes ------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Whether an interval of decay= has ended. Returns true to one thread for each interval. */
static bool interval_ends(async_state *async)
{
    int64_t time = now_ms();
    /* relaxed, both: nothing else is published with it */
    int64_t end = __atomic_load_n(&async->interval, __ATOMIC_RELAXED);
    return async->purge_unused >= 0 && time >= end &&
           __atomic_compare_exchange_n(&async->interval, &end, time + async->purge_unused, false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Purge the pool down to the most bytes that were in use during the interval, because the rest was
 * free all the time. If the driver refuses, the pool stays as it is. */
static void purge_unused(const ga_cuda_scope *scope, async_state *async)
{
    uint64_t max = 0;
    uint64_t restart = 0;
    if (!interval_ends(async)) {
        return;
    }
    CUresult result =
        scope->driver->cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &max);
    if (result == CUDA_SUCCESS) {
        result = scope->driver->cuMemPoolSetAttribute(async->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                                                      &restart);
    }
    if (result == CUDA_SUCCESS) {
        scope->driver->cuMemPoolTrimTo(async->pool, max);
    }
}

/* ---- the pool ----------------------------------------------------------------------------- */

static ga_status make_pool(const ga_cuda_scope *scope, const ga_open_args *args, async_state *async)
{
    uint64_t release = args->values[OPTION_RELEASE].size;
    ga_status status = ga_async_pool_claim(scope, args->device, &async->own);
    if (status != GA_OK) {
        return status;
    }
    async->pool = async->own->pool;
    status = GA_CUDA_CALL(scope->driver, cuMemPoolSetAttribute, async->pool,
                          CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &release);
    if (status != GA_OK) {
        ga_async_pool_return(scope, async->own);
    }
    return status;
}

static ga_status async_open(const ga_open_args *args, void **state)
{
    ga_cuda_scope scope;
    async_state *async = ga_libc.calloc(1, sizeof *async);
    if (!async) {
        return ga_fail(GA_ERR_MEMORY, "async: no memory for the heap's record");
    }
    async->device = args->device;
    async->free_mode = args->values[OPTION_FREE].choice;
    async->release = args->values[OPTION_RELEASE].size;
    async->purge_unused = args->values[OPTION_DECAY].integer;
    async->interval = now_ms() + async->purge_unused;
    ga_status status = ga_cuda_enter(&scope, args->device);
    if (status == GA_OK) {
        status = make_pool(&scope, args, async);
        ga_cuda_leave(&scope);
    }
    if (status != GA_OK) {
        ga_libc.free(async);
        return ga_fail(status, "async: device %d: %s", args->device, ga_error_text());
    }
    *state = async;
    return GA_OK;
}

/* Frees on the device's own stream are waited for, so that the pool is empty unless blocks are
 * live. */
static void async_close(void *state)
{
    async_state *async = state;
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, async->device) == GA_OK) {
        scope.driver->cuStreamSynchronize(scope.stream);
        ga_async_pool_return(&scope, async->own);
        ga_cuda_leave(&scope);
    } else {
        ga_async_pool_return(NULL, async->own);
    }
    ga_libc.free(async);
}

static ga_status async_enable_peer(void *state, int peer)
{
    const async_state *async = state;
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, peer},
                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemPoolSetAccess, async->pool, &desc, 1);
        ga_cuda_leave(&scope);
    }
    return status;
}

/* ---- getting blocks ----------------------------------------------------------------------- */

static ga_status set_result(const async_state *async, ga_status status, CUdeviceptr block,
                            size_t size, void **out)
{
    *out = status == GA_OK ? (void *)block : NULL;
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "async: no block of %zu bytes on device %d: %s", size,
                                     async->device, ga_error_text());
}

static ga_status alloc_on_scope(const ga_cuda_scope *scope, const async_state *async, size_t size,
                                CUdeviceptr *block)
{
    return GA_CUDA_CALL(scope->driver, cuMemAllocFromPoolAsync, block, size, async->pool,
                        scope->stream);
}

static ga_status wait_for_scope(const ga_cuda_scope *scope)
{
    return GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream);
}

/* Free a block that no other stream has used, so that no wait is needed. */
static void free_unused(const ga_cuda_scope *scope, CUdeviceptr block)
{
    scope->driver->cuMemFreeAsync(block, scope->stream);
}

static ga_status alloc_and_wait(const ga_cuda_scope *scope, const async_state *async, size_t size,
                                CUdeviceptr *block)
{
    ga_status status = alloc_on_scope(scope, async, size, block);
    if (status != GA_OK) {
        return status;
    }
    status = wait_for_scope(scope);
    if (status != GA_OK) {
        free_unused(scope, *block);
    }
    return status;
}

static ga_status alloc_zeroed(const ga_cuda_scope *scope, const async_state *async, size_t size,
                              CUdeviceptr *block)
{
    ga_status status = alloc_on_scope(scope, async, size, block);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_clear(scope, (void *)*block, size);
    if (status != GA_OK) {
        free_unused(scope, *block);
    }
    return status;
}

static ga_status alloc_with(ga_status (*alloc_one)(const ga_cuda_scope *scope,
                                                   const async_state *async, size_t size,
                                                   CUdeviceptr *block),
                            async_state *async, size_t size, void **out)
{
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        status = alloc_one(&scope, async, size, &block);
        purge_unused(&scope, async);
        ga_cuda_leave(&scope);
    }
    return set_result(async, status, block, size, out);
}

static ga_status async_alloc(void *state, size_t size, void **out)
{
    return alloc_with(alloc_and_wait, state, size, out);
}

static ga_status async_alloc_zeroed(void *state, size_t size, void **out)
{
    return alloc_with(alloc_zeroed, state, size, out);
}

/* Allocate all blocks, then wait once. */
static ga_status alloc_batch_on_scope(const ga_cuda_scope *scope, const async_state *async,
                                      size_t n, const size_t *sizes, void **out)
{
    ga_status status = GA_OK;
    size_t got = 0;
    while (status == GA_OK && got < n) {
        CUdeviceptr block = 0;
        size_t size = sizes[got] + !sizes[got];
        status = alloc_on_scope(scope, async, size, &block);
        status = set_result(async, status, block, size, &out[got]);
        got += status == GA_OK;
    }
    if (status == GA_OK) {
        status = wait_for_scope(scope);
    }
    while (status != GA_OK && got--) {
        free_unused(scope, (CUdeviceptr)out[got]);
    }
    return status;
}

static ga_status async_alloc_batch(void *state, size_t n, const size_t *sizes, void **out)
{
    async_state *async = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        status = alloc_batch_on_scope(&scope, async, n, sizes, out);
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status async_alloc_on(void *state, size_t size, size_t align, ga_stream stream,
                                void **out)
{
    async_state *async = state;
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    if (align > ALIGNMENT) {
        return ga_fail(GA_ERR_ALIGN, "async: expected an alignment up to %d, got %zu", ALIGNMENT,
                       align);
    }
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        scope.stream = stream;
        status = alloc_on_scope(&scope, async, size, &block);
        purge_unused(&scope, async);
        ga_cuda_leave(&scope);
    }
    return set_result(async, status, block, size, out);
}

/* ---- giving blocks back ------------------------------------------------------------------- */

static ga_status check_own(const ga_cuda_scope *scope, const async_state *async, const void *block)
{
    ga_cuda_pointer known;
    ga_status status = ga_cuda_describe(scope, block, &known);
    if (status == GA_OK && known.pool != async->pool) {
        return ga_fail(GA_ERR_POINTER, "async: %p is no block of this heap's pool", block);
    }
    return status;
}

/* Free on the scope's stream. */
static ga_status free_own(const ga_cuda_scope *scope, const async_state *async, void *block)
{
    ga_status status = check_own(scope, async, block);
    if (status != GA_OK) {
        return status;
    }
    CUresult result = scope->driver->cuMemFreeAsync((CUdeviceptr)block, scope->stream);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return ga_fail(GA_ERR_POINTER, "async: %p begins no live block of this heap", block);
    }
    return ga_cuda_check(scope->driver, result, "cuMemFreeAsync");
}

/* The driver applies release= only when the program next waits for a stream, which may be never. So
 * apply it now. Errors are ignored, because the free itself has succeeded. */
static void release_free(const ga_cuda_scope *scope, const async_state *async)
{
    if (async->release < KEEP_ALL && wait_for_scope(scope) == GA_OK) {
        scope->driver->cuMemPoolTrimTo(async->pool, async->release);
    }
}

static ga_status async_free(void *state, void *block)
{
    async_state *async = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        if (async->free_mode == FREE_WAIT) {
            status =
                ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
        }
        if (status == GA_OK) {
            status = free_own(&scope, async, block);
        }
        if (status == GA_OK && async->free_mode == FREE_WAIT) {
            release_free(&scope, async);
        }
        purge_unused(&scope, async);
        ga_cuda_leave(&scope);
    }
    return ga_cuda_is_gone() ? GA_OK : status;
}

static ga_status async_free_on(void *state, void *block, ga_stream stream)
{
    async_state *async = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        scope.stream = stream;
        status = free_own(&scope, async, block);
        purge_unused(&scope, async);
        ga_cuda_leave(&scope);
    }
    return ga_cuda_is_gone() ? GA_OK : status;
}

/* Allocate `size` bytes, copy the contents of `block` and free it. */
static ga_status move(const ga_cuda_scope *scope, const async_state *async, void *block,
                      size_t size, CUdeviceptr *moved)
{
    ga_status status = check_own(scope, async, block);
    if (status == GA_OK) {
        status = alloc_on_scope(scope, async, size, moved);
    }
    if (status != GA_OK) {
        return status;
    }
    size_t before = ga_cuda_block_size(scope, block);
    status = ga_cuda_copy(scope, (void *)*moved, block, before < size ? before : size);
    if (status == GA_OK) { /* ga_cuda_copy() has waited for all work on the device */
        status = free_own(scope, async, block);
    }
    if (status != GA_OK) {
        free_unused(scope, *moved);
    }
    return status;
}

static ga_status async_realloc(void *state, void *block, size_t size, void **out)
{
    async_state *async = state;
    ga_cuda_scope scope;
    CUdeviceptr moved = 0;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        status = move(&scope, async, block, size, &moved);
        ga_cuda_leave(&scope);
    }
    return set_result(async, status, moved, size, out);
}

/* Wait first, because the pool releases memory only after the device has reached the free. The
 * driver counts blocks in use as kept, so add them. */
static ga_status async_trim(void *state, size_t keep)
{
    async_state *async = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, async->device);
    if (status == GA_OK) {
        status = wait_for_scope(&scope);
        if (status == GA_OK) {
            uint64_t used = 0;
            scope.driver->cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                                &used);
            size_t kept = keep > SIZE_MAX - used ? SIZE_MAX : keep + used;
            status = GA_CUDA_CALL(scope.driver, cuMemPoolTrimTo, async->pool, kept);
        }
        ga_cuda_leave(&scope);
    }
    return status == GA_OK ? GA_OK : ga_fail(status, "async: cannot trim: %s", ga_error_text());
}

/* ---- questions ---------------------------------------------------------------------------- */

static bool async_owns(void *state, const void *pointer)
{
    async_state *async = state;
    ga_cuda_scope scope;
    ga_cuda_pointer known;
    if (ga_cuda_enter(&scope, async->device) != GA_OK) {
        return false;
    }
    bool own = ga_cuda_describe(&scope, pointer, &known) == GA_OK && known.pool == async->pool;
    ga_cuda_leave(&scope);
    return own;
}

static size_t async_usable_size(void *state, const void *block)
{
    async_state *async = state;
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, async->device) != GA_OK) {
        return 0;
    }
    size_t size = ga_cuda_block_size(&scope, block);
    ga_cuda_leave(&scope);
    return size;
}

static void async_stats(void *state, ga_backend_stats *out)
{
    async_state *async = state;
    ga_cuda_scope scope;
    *out = (ga_backend_stats){0};
    if (ga_cuda_enter(&scope, async->device) != GA_OK) {
        return;
    }
    purge_unused(&scope, async);
    scope.driver->cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                        &out->live_bytes);
    scope.driver->cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                        &out->held_bytes);
    ga_cuda_leave(&scope);
}

static const char *const free_choices[] = {[FREE_WAIT] = "wait", [FREE_NOW] = "now", NULL};

static const ga_option options[] = {
    [OPTION_RELEASE] =
        {.name = "release",
         .type = GA_OPTION_SIZE,
         .fallback = "1T",
         .help = "bytes of free memory that the pool keeps when a stream is synchronised"},
    [OPTION_DECAY] = {.name = "decay",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "10000",
                      .help = "milliseconds until unused memory is returned; 0: at the next call, "
                              "-1: never",
                      .min = -1,
                      .max = (int64_t)1 << 40},
    [OPTION_FREE] = {.name = "free",
                     .type = GA_OPTION_ENUM,
                     .fallback = "wait",
                     .help = "free without a stream: wait for the device, or free now",
                     .choices = free_choices},
};

const ga_backend ga_async_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "async",
    .help = "the CUDA driver's stream-ordered allocator, in its own pool",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .capabilities = GA_CAP_DRIVER_BLOCKS | GA_CAP_FREE_WAITS | GA_CAP_THREAD_STREAM,
    .open = async_open,
    .close = async_close,
    .alloc = async_alloc,
    .free = async_free,
    .owns = async_owns,
    .usable_size = async_usable_size,
    .realloc = async_realloc,
    .alloc_zeroed = async_alloc_zeroed,
    .alloc_batch = async_alloc_batch,
    .trim = async_trim,
    .alloc_on = async_alloc_on,
    .free_on = async_free_on,
    .stats = async_stats,
    .enable_peer = async_enable_peer,
};
