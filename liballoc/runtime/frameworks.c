/* SPDX-License-Identifier: MIT
 *
 *   CLOSED --first request--> OPEN or FAILED, for ever
 *
 * STRUCTURE  a slot for each device; a list of blocks that more than one stream uses, and of these
 *            streams. Such a block is freed on a stream apart, which waits for all that use it: no
 *            thread waits then, and no stream of the program's
 * INVARIANT  a heap in a slot is never closed; `used` is what was asked for in live blocks
 * ORDER      F1/F2 publish a heap; the list and the opening are under a lock; the rest are figures
 * PROGRESS   blocks while a heap is being opened
 */
#include <gpualloc/frameworks.h>

#include "../platform/cuda_driver.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "captures.h"
#include "heap.h"
#include "torch_errors.h"

#include <pthread.h>
#include <stdint.h>

enum {
    CLOSED = 0,
    OPEN,
    FAILED
};

enum {
    STREAM_LEGACY = 1, /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, as handles */
    STREAM_THREAD = 2
};

typedef struct slot {
    int state;
    ga_heap *heap;
    bool streams;  /* it has stream order */
    bool limited;  /* `most` holds */
    uint64_t most; /* relaxed, as `used`: figures */
    uint64_t used;
    CUstream apart; /* guarded by `lock`, with `mark`: NULL until a shared block is freed */
    CUevent mark;
} slot;

/* A stream that uses a block beside the block's own. */
typedef struct shared {
    const void *block;
    ga_stream stream;
    struct shared *following;
} shared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static slot slots[GA_CUDA_DEVICES];
static shared *all_shared;  /* guarded by `lock` */
static unsigned any_shared; /* relaxed: a hint; who records a stream does so before the free */
static bool notes_lost;     /* relaxed, likewise: some block is used by a stream not in the list */

/* ---- heaps --------------------------------------------------------------------------------- */

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* who held it is not here */
}

/* From the start, since a fork that has begun does not run what is registered meanwhile. */
__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* The layer that serves: below those that only look on. */
static bool has_streams(const ga_heap *heap)
{
    while (heap->backend->passes_through && heap->parent) {
        heap = heap->parent;
    }
    return heap->backend->alloc_on != NULL;
}

static void open_slot(slot *it, int device)
{
    int state = OPEN;
    if (ga_heap_open(&it->heap, GA_PLACE_DEVICE, device, NULL) == GA_OK) {
        it->streams = has_streams(it->heap);
    } else {
        ga_log(GA_LOG_ERROR, "%s; every request on device %d fails", ga_error_text(), device);
        state = FAILED;
    }
    /* F1: release. Pairs with F2: the heap is seen with the state. */
    __atomic_store_n(&it->state, state, __ATOMIC_RELEASE);
}

/* NULL: there is no heap, and a sentence says why. */
static slot *slot_of(int device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        ga_fail(GA_ERR_DEVICE, "no CUDA device %d: expected one from 0 to %d", device,
                GA_CUDA_DEVICES - 1);
        return NULL;
    }
    slot *it = &slots[device];
    /* F2: acquire. Pairs with F1. */
    if (__atomic_load_n(&it->state, __ATOMIC_ACQUIRE) == CLOSED) {
        pthread_mutex_lock(&lock);
        if (it->state == CLOSED) {
            open_slot(it, device);
        }
        pthread_mutex_unlock(&lock);
    }
    if (it->state == FAILED) {
        ga_fail(GA_ERR_DEVICE, "device %d: its heap could not be opened", device);
        return NULL;
    }
    return it;
}

ga_heap *ga_framework_heap(int device)
{
    slot *it = slot_of(device);
    return it ? it->heap : NULL;
}

/* ---- how much there may be ----------------------------------------------------------------- */

/* relaxed, all: figures. What is too much is never counted: others would see it. */
static bool reserve(slot *it, uint64_t size)
{
    uint64_t before = __atomic_load_n(&it->used, __ATOMIC_RELAXED);
    do {
        uint64_t most = __atomic_load_n(&it->most, __ATOMIC_RELAXED);
        bool limited = __atomic_load_n(&it->limited, __ATOMIC_RELAXED);
        if (limited && (before > most || size > most - before)) {
            ga_fail(GA_ERR_MEMORY,
                    "no block of %llu bytes: expected %llu at most in all, %llu are in use",
                    (unsigned long long)size, (unsigned long long)most, (unsigned long long)before);
            return false;
        }
    } while (!__atomic_compare_exchange_n(&it->used, &before, before + size, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

static void unreserve(slot *it, uint64_t size)
{
    __atomic_fetch_sub(&it->used, size, __ATOMIC_RELAXED); /* relaxed: a figure */
}

static ga_status total_of(int device, size_t *total)
{
    ga_cuda_scope scope;
    CUdevice cuda_device = 0;
    ga_status status = ga_cuda_enter(&scope, device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuDeviceGet, &cuda_device, device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuDeviceTotalMem, total, cuda_device);
    }
    ga_cuda_leave(&scope);
    return status;
}

void ga_torch_memory_fraction(double fraction, int device)
{
    slot *it = slot_of(device);
    size_t total = 0;
    if (!it || !(fraction >= 0 && fraction <= 1) || total_of(device, &total) != GA_OK) {
        ga_log(GA_LOG_WARN,
               "ga_torch_memory_fraction: device %d, %g: expected a device and a part "
               "from 0 to 1; nothing is changed",
               device, fraction);
        return;
    }
    /* relaxed: figures */
    __atomic_store_n(&it->most, (uint64_t)(fraction * (double)total), __ATOMIC_RELAXED);
    __atomic_store_n(&it->limited, true, __ATOMIC_RELAXED);
}

/* ---- blocks that streams share ------------------------------------------------------------- */

/* With the lock held. */
static bool is_noted(const void *block, ga_stream stream)
{
    const shared *s = all_shared;
    while (s && (s->block != block || s->stream != stream)) {
        s = s->following;
    }
    return s != NULL;
}

void ga_torch_record_stream(void *block, ga_stream stream)
{
    shared *made = ga_libc.malloc(sizeof *made);
    if (!made) { /* relaxed: see there */
        if (!__atomic_exchange_n(&notes_lost, true, __ATOMIC_RELAXED)) {
            ga_log(GA_LOG_WARN, "ga_torch_record_stream: no memory for the note of a stream; frees "
                                "wait for the device from now on");
        }
        return;
    }
    pthread_mutex_lock(&lock);
    if (is_noted(block, stream)) {
        ga_libc.free(made);
    } else {
        *made = (shared){block, stream, all_shared};
        all_shared = made;
        __atomic_store_n(&any_shared, 1, __ATOMIC_RELAXED); /* relaxed: see there */
    }
    pthread_mutex_unlock(&lock);
}

/* The notes of a block, which is forgotten. */
static shared *take_notes(const void *block)
{
    shared *found = NULL;
    if (!__atomic_load_n(&any_shared, __ATOMIC_RELAXED)) { /* relaxed: see there */
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (shared **at = &all_shared; *at;) {
        shared *s = *at;
        if (s->block == block) {
            *at = s->following;
            s->following = found;
            found = s;
        } else {
            at = &s->following;
        }
    }
    __atomic_store_n(&any_shared, all_shared != NULL, __ATOMIC_RELAXED); /* relaxed: see there */
    pthread_mutex_unlock(&lock);
    return found;
}

static void drop_notes(shared *notes)
{
    while (notes) {
        shared *s = notes;
        notes = s->following;
        ga_libc.free(s);
    }
}

static ga_status make_apart(slot *it, const ga_cuda_driver *driver)
{
    ga_status status = GA_OK;
    if (!it->apart) {
        status = GA_CUDA_CALL(driver, cuStreamCreate, &it->apart, CU_STREAM_NON_BLOCKING);
    }
    if (status == GA_OK && !it->mark) {
        status = GA_CUDA_CALL(driver, cuEventCreate, &it->mark, CU_EVENT_DISABLE_TIMING);
    }
    return status;
}

/* Let the stream apart wait for the work that is on another now. A stream of another device cannot
 * record our event: the thread waits for it. */
static ga_status join(const slot *it, const ga_cuda_driver *driver, ga_stream stream)
{
    return driver->cuEventRecord(it->mark, stream) == CUDA_SUCCESS
               ? GA_CUDA_CALL(driver, cuStreamWaitEvent, it->apart, it->mark, 0)
               : GA_CUDA_CALL(driver, cuStreamSynchronize, stream);
}

static ga_status join_all(slot *it, const ga_cuda_driver *driver, ga_stream own,
                          const shared *notes)
{
    pthread_mutex_lock(&lock);
    ga_status status = make_apart(it, driver);
    if (status == GA_OK) {
        status = join(it, driver, own);
    }
    for (; notes && status == GA_OK; notes = notes->following) {
        status = join(it, driver, notes->stream);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- PyTorch ------------------------------------------------------------------------------- */

/* All threads' default streams have one handle: for them as if there were no streams. */
static bool is_one_stream(ga_stream stream)
{
    return (uintptr_t)stream != STREAM_THREAD;
}

static bool in_order(const slot *it, ga_stream stream)
{
    return it->streams && is_one_stream(stream);
}

/* Whether the streams that use a block are known and can be waited for by an event. */
static bool are_known(ga_stream own, const shared *notes)
{
    bool all = is_one_stream(own) && !__atomic_load_n(&notes_lost, __ATOMIC_RELAXED);
    for (; notes; notes = notes->following) {
        all = all && is_one_stream(notes->stream);
    }
    return all;
}

/* Free without a stream; where it is to wait, once the device has done all there is. */
static ga_status free_after_all(const slot *it, void *block, bool wait)
{
    ga_cuda_scope scope;
    ga_status status = GA_OK;
    if (wait && ga_captures_free(it->heap, block, NULL, false, &status)) {
        return status;
    }
    status = wait ? ga_cuda_enter(&scope, ga_heap_device(it->heap)) : GA_OK;
    if (status == GA_OK && wait) {
        status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
        ga_cuda_leave(&scope);
    }
    return status == GA_OK ? ga_free(it->heap, block) : status;
}

/* Free it once the work is done that is on these streams now. Other streams are not waited for, since
 * one of them may capture. */
static ga_status free_after(slot *it, void *block, ga_stream own, const shared *notes)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, ga_heap_device(it->heap));
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuStreamSynchronize, own);
    for (; notes && status == GA_OK; notes = notes->following) {
        status = GA_CUDA_CALL(scope.driver, cuStreamSynchronize, notes->stream);
    }
    ga_cuda_leave(&scope);
    return status == GA_OK ? ga_free(it->heap, block) : free_after_all(it, block, true);
}

/* Free it behind the work of its own stream and of those noted; where the driver does not order them,
 * once the device has done all there is. */
static ga_status free_behind(slot *it, void *block, ga_stream own, const shared *notes)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, ga_heap_device(it->heap));
    if (status == GA_OK) {
        status = join_all(it, scope.driver, own, notes);
        ga_cuda_leave(&scope);
    }
    return status == GA_OK ? ga_free_on(it->heap, block, it->apart)
                           : free_after_all(it, block, true);
}

/* Whether a capture keeps the block: one of its own stream, or of one that was recorded. Nothing may
 * be recorded or waited for on such a stream. */
static bool free_in_capture(slot *it, void *block, ga_stream own, const shared *notes,
                            ga_status *status)
{
    bool kept = ga_captures_free(it->heap, block, &own, !notes, status);
    for (; !kept && notes; notes = notes->following) {
        kept = ga_captures_free(it->heap, block, &notes->stream, false, status);
    }
    return kept;
}

static ga_stream named(ga_stream stream)
{
    return (uintptr_t)stream == STREAM_LEGACY ? NULL : stream;
}

static ga_status alloc(slot *it, size_t size, ga_stream stream, void **out)
{
    ga_status status = GA_OK;
    if (!reserve(it, size)) {
        return GA_ERR_MEMORY;
    }
    if (!ga_captures_alloc(it->heap, size, 0, stream, out, &status)) {
        status = in_order(it, stream) ? ga_alloc_on(it->heap, size, 0, stream, out)
                                      : ga_alloc(it->heap, size, 0, out);
    }
    if (status != GA_OK) {
        unreserve(it, size);
    }
    return status;
}

static ga_status alloc_on_device(size_t size, int device, ga_stream stream, void **out)
{
    slot *it = slot_of(device);
    if (size > PTRDIFF_MAX) {
        return ga_fail(GA_ERR_SIZE, "expected a size up to %td bytes, got %zu", PTRDIFF_MAX, size);
    }
    return it ? alloc(it, size, named(stream), out) : GA_ERR_DEVICE;
}

static ga_status torch_alloc(ssize_t size, int device, ga_stream stream, void **out)
{
    return size < 0 ? ga_fail(GA_ERR_SIZE, "expected a size from 0 on, got %zd", size)
                    : alloc_on_device((size_t)size, device, stream, out);
}

void *ga_torch_alloc(ssize_t size, int device, ga_stream stream)
{
    void *block = NULL;
    ga_status status = torch_alloc(size, device, stream, &block);
    if (status != GA_OK) {
        ga_torch_throw(status, size < 0 ? 0 : (size_t)size, device);
    }
    return block;
}

void ga_torch_free(void *block, ssize_t size, int device, ga_stream stream)
{
    slot *it = slot_of(device);
    ga_stream on = named(stream);
    if (!it || !block) {
        return;
    }
    shared *notes = take_notes(block);
    ga_status status = GA_OK;
    if (!free_in_capture(it, block, on, notes, &status)) {
        status = !are_known(on, notes) ? free_after_all(it, block, true)
                 : !it->streams        ? free_after(it, block, on, notes)
                 : notes               ? free_behind(it, block, on, notes)
                                       : ga_free_on(it->heap, block, on);
    }
    drop_notes(notes);
    if (status == GA_OK) {
        unreserve(it, size > 0 ? (uint64_t)size : 0);
    } else {
        ga_log(GA_LOG_ERROR, "ga_torch_free: %s", ga_error_text());
    }
}

void *ga_framework_alloc(size_t size, int device, ga_stream stream)
{
    void *block = NULL;
    return alloc_on_device(size, device, stream, &block) == GA_OK ? block : NULL;
}

void ga_framework_free(void *block, size_t size, int device, ga_stream stream)
{
    ga_torch_free(block, size > PTRDIFF_MAX ? 0 : (ssize_t)size, device, stream);
}

void ga_torch_init(int device_count)
{
    (void)device_count;
}

void ga_torch_reset(void)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        /* F2: acquire. Pairs with F1. */
        bool open = __atomic_load_n(&slots[i].state, __ATOMIC_ACQUIRE) == OPEN;
        if (open && ga_trim(slots[i].heap, 0) != GA_OK) {
            ga_log(GA_LOG_INFO, "ga_torch_reset: device %d: %s", i, ga_error_text());
        }
    }
}

void *ga_torch_base_alloc(void *block, size_t *size)
{
    size_t usable = 0;
    for (int i = 0; i < GA_CUDA_DEVICES && !usable; i++) {
        /* F2: acquire. Pairs with F1. */
        bool open = __atomic_load_n(&slots[i].state, __ATOMIC_ACQUIRE) == OPEN;
        usable = open ? ga_usable_size(slots[i].heap, block) : 0;
    }
    if (size) {
        *size = usable;
    }
    return block;
}

/* ---- CuPy ---------------------------------------------------------------------------------- */

void *ga_cupy_malloc(void *heap, size_t size, int device)
{
    void *block = NULL;
    ga_heap *from = heap ? heap : ga_framework_heap(device);
    return from && ga_alloc(from, size, 0, &block) == GA_OK ? block : NULL;
}

void ga_cupy_free(void *heap, void *block, int device)
{
    slot *it = heap ? NULL : slot_of(device);
    if (!block || (!heap && !it)) {
        return;
    }
    ga_status status = heap ? ga_free(heap, block) : free_after_all(it, block, !it->streams);
    if (status != GA_OK) {
        ga_log(GA_LOG_ERROR, "ga_cupy_free: %s", ga_error_text());
    }
}
