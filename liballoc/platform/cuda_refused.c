/* SPDX-License-Identifier: MIT
 *
 * Resources that the driver refused to release, kept until a later attempt succeeds.
 *
 *   EMPTY --add--> BUSY --> FULL --retry, forget--> BUSY --> FULL or EMPTY
 *
 * STRUCTURE  a fixed table, so that adding cannot fail for lack of memory; a count of the entries
 *            that are not EMPTY, read without order
 * INVARIANT  an entry that is BUSY belongs to one thread
 * ORDER      PR1/PR2 pass an entry from one owner to the next
 * PROGRESS   lock-free: a thread skips an entry that another thread has. A fork leaves such an
 *            entry BUSY in the child, which has no driver
 */
#include "cuda_refused.h"

#include "log.h"
#include "os_memory.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    ENTRIES = 1024,
    REFUSALS = 4 /* calls of the driver that may fail in one retry */
};

typedef enum entry_state {
    EMPTY = 0,
    BUSY,
    FULL
} entry_state;

static struct entry {
    int state; /* an entry_state */
    int device;
    ga_cuda_refused_kind kind;
    uint64_t handle, size;
} entries[ENTRIES];

static unsigned count; /* relaxed: a hint; entries themselves are claimed with order */
/* Relaxed: the entry where the next retry begins, so that refused entries do not starve others. */
static unsigned first;

static bool claim(struct entry *entry, int from)
{
    /* PR2: acquire. Pairs with PR1. Relaxed on failure: nothing of the entry is read then. */
    return __atomic_compare_exchange_n(&entry->state, &from, BUSY, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void hand_over(struct entry *entry, entry_state state)
{
    /* PR1: release. Pairs with PR2. */
    __atomic_store_n(&entry->state, state, __ATOMIC_RELEASE);
    if (state == EMPTY) {
        __atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED);
    }
}

void ga_cuda_refused_add(int device, ga_cuda_refused_kind kind, uint64_t handle, uint64_t size)
{
    static const char *const names[] = {"mapped bytes",
                                        "bytes of memory",
                                        "bytes of addresses",
                                        "bytes of a block",
                                        "bytes of a host block",
                                        "pinned bytes",
                                        "events"};
    if (ga_cuda_is_gone() || !ga_cuda_has_context(device)) {
        return;
    }
    for (int i = 0; i < ENTRIES; i++) {
        if (claim(&entries[i], EMPTY)) {
            entries[i].device = device;
            entries[i].kind = kind;
            entries[i].handle = handle;
            entries[i].size = size;
            __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
            hand_over(&entries[i], FULL);
            ga_log(GA_LOG_INFO, "device %d: the driver keeps %llu %s, and is asked again: %s",
                   device, (unsigned long long)size, names[kind], ga_error_text());
            return;
        }
    }
    static bool logged;
    if (!__atomic_exchange_n(&logged, true, __ATOMIC_RELAXED)) { /* relaxed: elects the thread that
                                                                * logs */
        ga_log(GA_LOG_WARN,
               "device %d: %llu %s are lost, and maybe more: the driver keeps them: %s", device,
               (unsigned long long)size, names[kind], ga_error_text());
    }
}

static bool overlaps(const struct entry *entry, uint64_t handle, uint64_t size)
{
    return entry->kind == GA_CUDA_REFUSED_CHUNK
               ? entry->handle == handle
               : entry->handle < handle + size && handle < entry->handle + entry->size;
}

void ga_cuda_refused_forget(int device, ga_cuda_refused_kind kind, uint64_t handle, uint64_t size)
{
    for (int i = 0; i < ENTRIES && __atomic_load_n(&count, __ATOMIC_RELAXED); i++) {
        struct entry *entry = &entries[i];
        if (claim(entry, FULL)) {
            bool stale =
                entry->device == device && entry->kind == kind && overlaps(entry, handle, size);
            hand_over(entry, stale ? EMPTY : FULL);
        }
    }
}

static CUresult release(const ga_cuda_driver *driver, const struct entry *entry)
{
    switch (entry->kind) {
    case GA_CUDA_REFUSED_MAPPING:
        return driver->cuMemUnmap(entry->handle, entry->size);
    case GA_CUDA_REFUSED_CHUNK:
        return driver->cuMemRelease(entry->handle);
    case GA_CUDA_REFUSED_RANGE:
        return driver->cuMemAddressFree(entry->handle, entry->size);
    case GA_CUDA_REFUSED_BLOCK:
        return driver->cuMemFree(entry->handle);
    case GA_CUDA_REFUSED_HOST:
        return driver->cuMemFreeHost((void *)(uintptr_t)entry->handle);
    case GA_CUDA_REFUSED_PINNED:
        return driver->cuMemHostUnregister((void *)(uintptr_t)entry->handle);
    default:
        return driver->cuEventDestroy((CUevent)(uintptr_t)entry->handle);
    }
}

/* For pinned memory, unmap the host's pages as well. */
static bool release_all(const ga_cuda_driver *driver, const struct entry *entry)
{
    bool released = release(driver, entry) == CUDA_SUCCESS;
    if (released && entry->kind == GA_CUDA_REFUSED_PINNED) {
        ga_os_memory_unmap((void *)(uintptr_t)entry->handle, entry->size);
    }
    return released;
}

/* Retry the entries of one kind, beginning with `from`. Returns the remaining number of failures
 * that the caller allows. */
static int retry_kind(const ga_cuda_driver *driver, int device, ga_cuda_refused_kind kind,
                      unsigned from, int refusals)
{
    for (unsigned i = 0; i < ENTRIES && refusals; i++) {
        struct entry *entry = &entries[(from + i) % ENTRIES];
        if (!claim(entry, FULL)) {
            continue;
        }
        bool wanted = entry->device == device && entry->kind == kind;
        bool released = wanted && release_all(driver, entry);
        hand_over(entry, released ? EMPTY : FULL);
        if (wanted && !released) {
            refusals--;
            __atomic_store_n(&first, (from + i + 1) % ENTRIES, __ATOMIC_RELAXED);
        }
    }
    return refusals;
}

void ga_cuda_refused_retry(const ga_cuda_driver *driver, int device)
{
    if (__builtin_expect(!__atomic_load_n(&count, __ATOMIC_RELAXED), 1)) {
        return;
    }
    int refusals = REFUSALS;
    unsigned from = __atomic_load_n(&first, __ATOMIC_RELAXED);
    for (int kind = 0; kind < GA_CUDA_REFUSED_KINDS; kind++) {
        refusals = retry_kind(driver, device, (ga_cuda_refused_kind)kind, from, refusals);
    }
}

static void add_block(const ga_cuda_driver *driver, int device, ga_cuda_refused_kind kind,
                      CUdeviceptr block)
{
    size_t size = 0;
    CUdeviceptr base;
    driver->cuMemGetAddressRange(&base, &size, block);
    ga_cuda_refused_add(device, kind, block, size);
}

void ga_cuda_drop_block(const ga_cuda_driver *driver, int device, CUdeviceptr block)
{
    if (GA_CUDA_CALL(driver, cuMemFree, block) != GA_OK &&
        GA_CUDA_CALL(driver, cuMemFree, block) != GA_OK) {
        add_block(driver, device, GA_CUDA_REFUSED_BLOCK, block);
    }
}

void ga_cuda_drop_host_block(const ga_cuda_driver *driver, int device, CUdeviceptr block)
{
    if (GA_CUDA_CALL(driver, cuMemFreeHost, (void *)block) != GA_OK &&
        GA_CUDA_CALL(driver, cuMemFreeHost, (void *)block) != GA_OK) {
        add_block(driver, device, GA_CUDA_REFUSED_HOST, block);
    }
}

void ga_cuda_free_block(int device, CUdeviceptr block)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, device);
    if (status != GA_OK) {
        status = ga_cuda_enter(&scope, device);
    }
    if (status == GA_OK) {
        ga_cuda_drop_block(scope.driver, device, block);
        ga_cuda_leave(&scope);
    } else {
        ga_cuda_refused_add(device, GA_CUDA_REFUSED_BLOCK, block, 0);
    }
}

void ga_cuda_refused_clear(void)
{
    memset(entries, 0, sizeof entries);
    count = 0;
}
