/* SPDX-License-Identifier: MIT
 *
 *   driver --cuMemHostAlloc--> live <--cuMemHostAlloc, cuMemFreeHost--> cached --> driver
 *
 * STRUCTURE  live blocks by address; cached blocks in a list per size class, under one lock. A
 *            block is as large as its size class, so every request of the class fits every cached
 *            block
 * INVARIANT  nothing uses a cached block: the free waited for all devices
 * ORDER      the lock's
 * PROGRESS   a thread waits for the holder of the lock; driver calls are made without it
 */
#include "pinned.h"

#include "../../liballoc/backends/vmm/steps.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/libc.h"
#include "captures.h"
#include "contexts.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

#include <pthread.h>

enum {
    PAGE = 4096,
    CLASS_SHIFT = 3, /* 2^3 size classes per doubling: up to an eighth of a block is unused */
    SIZE_CLASSES = 320
};

static const size_t MAX_CACHED = (size_t)1 << 40; /* bytes of the largest block that is cached */

typedef struct cached_block {
    CUdeviceptr start;
    unsigned flags; /* of cuMemHostAlloc() */
    int device;     /* in whose primary context it was pinned */
    struct cached_block *next_in_list;
} cached_block;

static ga_cuda_blocks live = GA_CUDA_BLOCKS_INIT; /* a record's `generation` holds the flags */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cached_block *cache_lists[SIZE_CLASSES];
static uint64_t cached_bytes; /* of cached blocks, and of those about to be cached */

void ga_cuda_pinned_lock(void)
{
    pthread_mutex_lock(&lock);
    ga_cuda_blocks_lock(&live);
}

void ga_cuda_pinned_unlock(void)
{
    ga_cuda_blocks_unlock(&live);
    pthread_mutex_unlock(&lock);
}

/* The memory is shared with the parent. In the child it is not pinned, and no driver knows it. */
void ga_cuda_pinned_child(void)
{
    ga_cuda_pinned_unlock();
    ga_cuda_block gone;
    while (ga_cuda_blocks_remove_any(&live, &gone)) {
    }
    for (int i = 0; i < SIZE_CLASSES; i++) {
        while (cache_lists[i]) {
            cached_block *k = cache_lists[i];
            cache_lists[i] = k->next_in_list;
            ga_libc.free(k);
        }
    }
    cached_bytes = 0;
}

bool ga_cuda_pinned_find(CUdeviceptr address, ga_cuda_block *out)
{
    return ga_cuda_blocks_find(&live, address, out);
}

/* ---- sizes ------------------------------------------------------------------------------- */

static uint32_t size_class_of(size_t size)
{
    return ga_vmm_step((size + PAGE - 1) / PAGE, CLASS_SHIFT);
}

static size_t class_bytes(uint32_t size_class)
{
    return (size_t)ga_vmm_step_size(size_class, CLASS_SHIFT) * PAGE;
}

/* ---- the cache --------------------------------------------------------------------------- */

static bool charge(size_t bytes)
{
    uint64_t limit = ga_cuda_pinned_limit();
    pthread_mutex_lock(&lock);
    bool fits = bytes <= limit && cached_bytes <= limit - bytes;
    cached_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void uncharge(size_t bytes)
{
    pthread_mutex_lock(&lock);
    cached_bytes -= bytes;
    pthread_mutex_unlock(&lock);
}

/* The caller has added its bytes to cached_bytes, and nothing uses the block. */
static void push_cached(cached_block *made, uint32_t size_class)
{
    pthread_mutex_lock(&lock);
    made->next_in_list = cache_lists[size_class];
    cache_lists[size_class] = made;
    pthread_mutex_unlock(&lock);
}

/* Remove a block of that size class, flags and device from the cache; with `any`, of any flags, and
 * of any device if `device` is -1. */
static cached_block *pop_cached(uint32_t size_class, unsigned flags, int device, bool any)
{
    pthread_mutex_lock(&lock);
    cached_block **at = &cache_lists[size_class];
    while (*at &&
           ((!any && (*at)->flags != flags) || ((*at)->device != device && !(any && device < 0)))) {
        at = &(*at)->next_in_list;
    }
    cached_block *found = *at;
    if (found) {
        *at = found->next_in_list;
        cached_bytes -= class_bytes(size_class);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool is_cached(CUdeviceptr start)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SIZE_CLASSES && !found && cached_bytes; i++) {
        for (const cached_block *k = cache_lists[i]; k && !found; k = k->next_in_list) {
            found = k->start == start;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

typedef CUresult free_fn(void *block);

static free_fn *next_free(void)
{
    return (free_fn *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuMemFreeHost);
}

/* Put blocks that the driver refused to free back into the cache, and count them again. */
static void return_refused(cached_block *list, uint32_t size_class)
{
    while (list) {
        cached_block *k = list;
        list = k->next_in_list;
        pthread_mutex_lock(&lock);
        cached_bytes += class_bytes(size_class);
        pthread_mutex_unlock(&lock);
        push_cached(k, size_class);
    }
}

/* device -1: of all devices. False: freed nothing. */
static bool trim(int device)
{
    bool trimmed = false;
    free_fn *next = next_free();
    for (uint32_t size_class = 0; next && size_class < SIZE_CLASSES; size_class++) {
        cached_block *refused = NULL;
        for (cached_block *k; (k = pop_cached(size_class, 0, device, true)) != NULL;) {
            if (next((void *)(uintptr_t)k->start) == CUDA_SUCCESS) {
                ga_libc.free(k);
                trimmed = true;
            } else {
                k->next_in_list = refused;
                refused = k;
            }
        }
        return_refused(refused, size_class);
    }
    return trimmed;
}

bool ga_cuda_pinned_trim(void)
{
    /* relaxed: a hint */
    bool trimmed = __atomic_load_n(&cached_bytes, __ATOMIC_RELAXED) && ga_cuda_captures_hold_off();
    if (trimmed) {
        trimmed = trim(-1);
        ga_cuda_captures_allow();
    }
    return trimmed;
}

/* The driver frees the rest with the context. */
void ga_cuda_pinned_reset(int device)
{
    ga_cuda_block gone;
    if (ga_cuda_pinned_limit()) {
        trim(device);
        for (uint32_t size_class = 0; size_class < SIZE_CLASSES; size_class++) {
            for (cached_block *k; (k = pop_cached(size_class, 0, device, true)) != NULL;) {
                ga_libc.free(k);
            }
        }
        while (ga_cuda_blocks_remove_of(&live, device, &gone)) {
        }
    }
}

/* ---- allocating -------------------------------------------------------------------------- */

/* The arguments of one call. */
typedef struct call {
    ga_cuda_hook_index row;
    void **out;
    unsigned flags;
} call;

static CUresult call_driver(const call *c, size_t size)
{
    ga_cuda_any *next = ga_cuda_next_find(c->row);
    return next ? next((ga_cuda_word)c->out, size, c->flags, 0, 0, 0) : ga_cuda_next_missing();
}

/* If the driver is out of memory, free the cache to it and retry. */
static CUresult call_driver_retry(const call *c, size_t size)
{
    CUresult result = call_driver(c, size);
    return result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_pinned_trim() ? call_driver(c, size)
                                                                       : result;
}

/* If there is no memory for the record, the driver alone knows the block, and cuMemFreeHost()
 * passes it on. */
static void record_block(const call *c, size_t size, int device)
{
    ga_cuda_block block = {.start = (CUdeviceptr)(uintptr_t)*c->out,
                           .size = size,
                           .device = device,
                           .generation = c->flags};
    ga_cuda_blocks_insert(&live, &block);
}

static CUresult alloc_cached(const call *c, size_t size, int device)
{
    cached_block *k = pop_cached(size_class_of(size), c->flags, device, false);
    if (k) {
        *c->out = (void *)(uintptr_t)k->start;
        ga_libc.free(k);
        record_block(c, size, device);
        return CUDA_SUCCESS;
    }
    CUresult result = call_driver_retry(c, class_bytes(size_class_of(size)));
    if (result == CUDA_SUCCESS) {
        record_block(c, size, device);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? call_driver(c, size) : result;
}

static CUresult alloc(const call *c, size_t size)
{
    const ga_cuda_api *api = ga_cuda_pinned_limit() ? ga_cuda_next_api() : NULL;
    CUcontext context;
    int device = -1;
    ga_cuda_count(c->row);
    if (api && c->out && size && size <= MAX_CACHED && !ga_cuda_capturing()) {
        device = ga_cuda_context_device(api, &context);
    }
    return device < 0 ? call_driver(c, size) : alloc_cached(c, size, device);
}

typedef CUresult host_alloc_fn(void **out, size_t size, unsigned flags);
typedef CUresult alloc_host_fn(void **out, size_t size);

GA_CUDA_ENTRY(host_alloc_fn, cuMemHostAlloc);
GA_CUDA_ENTRY(alloc_host_fn, cuMemAllocHost_v2);

CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
    call c = {GA_HOOK_cuMemHostAlloc, out, flags};
    return alloc(&c, size);
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    call c = {GA_HOOK_cuMemAllocHost_v2, out, 0};
    return alloc(&c, size);
}

/* ---- freeing ----------------------------------------------------------------------------- */

/* False: a capture forbids waiting, or the wait failed. */
static bool wait_for_all(void)
{
    bool waited = ga_cuda_captures_hold_off();
    if (waited) {
        waited = ga_cuda_wait_for_all();
        ga_cuda_captures_allow();
    }
    return waited;
}

/* False: the driver is to free it. All devices may use pinned memory, so wait for all of them. */
static bool cache_freed(const ga_cuda_block *block)
{
    size_t bytes = class_bytes(size_class_of(block->size));
    if (!charge(bytes)) {
        return false;
    }
    cached_block *made = ga_libc.malloc(sizeof *made);
    if (!made || !wait_for_all()) {
        ga_libc.free(made);
        uncharge(bytes);
        return false;
    }
    *made = (cached_block){block->start, block->generation, block->device, NULL};
    push_cached(made, size_class_of(block->size));
    return true;
}

GA_CUDA_ENTRY(free_fn, cuMemFreeHost);

CUresult cuMemFreeHost(void *pointer)
{
    free_fn *next = next_free();
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuMemFreeHost);
    bool known = ga_cuda_blocks_remove(&live, (CUdeviceptr)(uintptr_t)pointer, &block);
    if (known && cache_freed(&block)) {
        ga_cuda_blocks_discard(&live, &block);
        return CUDA_SUCCESS;
    }
    if (!known && pointer && is_cached((CUdeviceptr)(uintptr_t)pointer)) {
        return CUDA_ERROR_INVALID_VALUE; /* a second free */
    }
    CUresult result = next ? next(pointer) : ga_cuda_next_missing();
    if (known && result != CUDA_SUCCESS) {
        ga_cuda_blocks_insert(&live, &block);
    } else if (known) {
        ga_cuda_blocks_discard(&live, &block);
    }
    return result;
}
