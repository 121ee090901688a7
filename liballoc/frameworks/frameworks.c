/* SPDX-License-Identifier: MIT
 *
 * Blocks of the heaps in slots.h, for frameworks with caches of their own.
 *
 * ga_torch_free
 *   free_in_capture          a capture uses the block: captures.c keeps it
 *   ga_free_on               the heap has stream order and one stream used the block
 *   free_in_stream_order     ... several streams used it: free on `free_stream`
 *   free_after_streams       no stream order: wait for the streams that used the block
 *   free_after_device        the streams are unknown: wait for the device
 *
 * STRUCTURE  a list of records, each a block and a stream that uses it beside its own. Such a block
 *            is freed on the slot's `free_stream`, which waits for all streams that use it, so that
 *            neither a thread nor a stream of the program waits
 * ORDER      the lock's
 * PROGRESS   blocks while a heap is being opened
 */
#include <gpualloc/frameworks.h>

#include "../platform/cuda_driver.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "../runtime/captures.h"
#include "../runtime/heap.h"
#include "slots.h"
#include "torch_errors.h"

#include <pthread.h>
#include <stdint.h>

enum {
    STREAM_LEGACY = 1, /* values of the handles CU_STREAM_LEGACY and CU_STREAM_PER_THREAD */
    STREAM_THREAD = 2
};

/* Records that a stream uses a block beside the block's own stream. */
typedef struct stream_use {
    const void *block;
    ga_stream stream;
    struct stream_use *following;
} stream_use;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static stream_use *stream_uses; /* guarded by `lock` */
static unsigned any_stream_use; /* relaxed: a hint; the program records a stream before the free */
static bool records_lost; /* relaxed, likewise: a use could not be recorded for lack of memory */

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
}

/* A constructor, because a fork that has begun does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- blocks that streams share ------------------------------------------------------------- */

/* With the lock held. */
static bool is_recorded(const void *block, ga_stream stream)
{
    const stream_use *s = stream_uses;
    while (s && (s->block != block || s->stream != stream)) {
        s = s->following;
    }
    return s != NULL;
}

void ga_torch_record_stream(void *block, ga_stream stream)
{
    stream_use *made = ga_libc.malloc(sizeof *made);
    if (!made) { /* relaxed: see records_lost */
        if (!__atomic_exchange_n(&records_lost, true, __ATOMIC_RELAXED)) {
            ga_log(GA_LOG_WARN, "ga_torch_record_stream: no memory for the note of a stream; frees "
                                "wait for the device from now on");
        }
        return;
    }
    pthread_mutex_lock(&lock);
    if (is_recorded(block, stream)) {
        ga_libc.free(made);
    } else {
        *made = (stream_use){block, stream, stream_uses};
        stream_uses = made;
        __atomic_store_n(&any_stream_use, 1, __ATOMIC_RELAXED); /* relaxed: see any_stream_use */
    }
    pthread_mutex_unlock(&lock);
}

/* Remove and return the records of a block. The caller frees them. */
static stream_use *remove_records(const void *block)
{
    stream_use *found = NULL;
    if (!__atomic_load_n(&any_stream_use, __ATOMIC_RELAXED)) { /* relaxed: see any_stream_use */
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (stream_use **at = &stream_uses; *at;) {
        stream_use *s = *at;
        if (s->block == block) {
            *at = s->following;
            s->following = found;
            found = s;
        } else {
            at = &s->following;
        }
    }
    __atomic_store_n(&any_stream_use, stream_uses != NULL,
                     __ATOMIC_RELAXED); /* relaxed: see any_stream_use */
    pthread_mutex_unlock(&lock);
    return found;
}

static void free_records(stream_use *records)
{
    while (records) {
        stream_use *s = records;
        records = s->following;
        ga_libc.free(s);
    }
}

static ga_status make_free_stream(ga_slot *it, const ga_cuda_driver *driver)
{
    ga_status status = GA_OK;
    if (!it->free_stream) {
        status = GA_CUDA_CALL(driver, cuStreamCreate, &it->free_stream, CU_STREAM_NON_BLOCKING);
    }
    if (status == GA_OK && !it->event) {
        status = GA_CUDA_CALL(driver, cuEventCreate, &it->event, CU_EVENT_DISABLE_TIMING);
    }
    return status;
}

/* Make `free_stream` wait for the work that is now on `stream`. A stream of another device cannot
 * record our event, so the thread waits for that stream. */
static ga_status order_after(const ga_slot *it, const ga_cuda_driver *driver, ga_stream stream)
{
    return driver->cuEventRecord(it->event, stream) == CUDA_SUCCESS
               ? GA_CUDA_CALL(driver, cuStreamWaitEvent, it->free_stream, it->event, 0)
               : GA_CUDA_CALL(driver, cuStreamSynchronize, stream);
}

static ga_status order_after_all(ga_slot *it, const ga_cuda_driver *driver, ga_stream own,
                                 const stream_use *records)
{
    pthread_mutex_lock(&lock);
    ga_status status = make_free_stream(it, driver);
    if (status == GA_OK) {
        status = order_after(it, driver, own);
    }
    for (; records && status == GA_OK; records = records->following) {
        status = order_after(it, driver, records->stream);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- PyTorch ------------------------------------------------------------------------------- */

/* The per-thread default streams of all threads have one handle, so that it identifies no stream:
 * such blocks are handled without stream order. */
static bool is_one_stream(ga_stream stream)
{
    return (uintptr_t)stream != STREAM_THREAD;
}

static bool has_stream_order(const ga_slot *it, ga_stream stream)
{
    return it->streams && is_one_stream(stream);
}

/* Whether all streams that use a block are known and can be waited for by an event. */
static bool can_order(ga_stream own, const stream_use *records)
{
    bool all = is_one_stream(own) && !__atomic_load_n(&records_lost, __ATOMIC_RELAXED);
    for (; records; records = records->following) {
        all = all && is_one_stream(records->stream);
    }
    return all;
}

/* Free without a stream. `wait`: first wait until the device has finished all its work. */
static ga_status free_after_device(const ga_slot *it, void *block, bool wait)
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

/* Free the block after a wait for the work that is now on these streams. Other streams are not
 * waited for, because one of them may capture. */
static ga_status free_after_streams(ga_slot *it, void *block, ga_stream own,
                                    const stream_use *records)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, ga_heap_device(it->heap));
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuStreamSynchronize, own);
    for (; records && status == GA_OK; records = records->following) {
        status = GA_CUDA_CALL(scope.driver, cuStreamSynchronize, records->stream);
    }
    ga_cuda_leave(&scope);
    return status == GA_OK ? ga_free(it->heap, block) : free_after_device(it, block, true);
}

/* Free the block in stream order after the work of its own stream and of the recorded ones; if the
 * driver cannot order them, after the device has finished all its work. */
static ga_status free_in_stream_order(ga_slot *it, void *block, ga_stream own,
                                      const stream_use *records)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, ga_heap_device(it->heap));
    if (status == GA_OK) {
        status = order_after_all(it, scope.driver, own, records);
        ga_cuda_leave(&scope);
    }
    return status == GA_OK ? ga_free_on(it->heap, block, it->free_stream)
                           : free_after_device(it, block, true);
}

/* Whether a capture keeps the block: one of its own stream, or of a recorded one. On such a stream
 * no event may be recorded and no thread may wait. */
static bool free_in_capture(ga_slot *it, void *block, ga_stream own, const stream_use *records,
                            ga_status *status)
{
    bool kept = ga_captures_free(it->heap, block, &own, !records, status);
    for (; !kept && records; records = records->following) {
        kept = ga_captures_free(it->heap, block, &records->stream, false, status);
    }
    return kept;
}

static ga_stream canonical(ga_stream stream)
{
    return (uintptr_t)stream == STREAM_LEGACY ? NULL : stream;
}

static ga_status alloc(ga_slot *it, size_t size, ga_stream stream, void **out)
{
    ga_status status = GA_OK;
    if (!ga_slot_charge(it, size)) {
        return GA_ERR_MEMORY;
    }
    if (!ga_captures_alloc(it->heap, size, 0, stream, out, &status)) {
        status = has_stream_order(it, stream) ? ga_alloc_on(it->heap, size, 0, stream, out)
                                              : ga_alloc(it->heap, size, 0, out);
    }
    if (status != GA_OK) {
        ga_slot_uncharge(it, size);
    }
    return status;
}

static ga_status alloc_on_device(size_t size, int device, ga_stream stream, void **out)
{
    if (size > PTRDIFF_MAX) {
        return ga_fail(GA_ERR_SIZE, "expected a size up to %td bytes, got %zu", PTRDIFF_MAX, size);
    }
    ga_slot *it = ga_slot_open(device);
    return it ? alloc(it, size, canonical(stream), out) : ga_error_status();
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

/* For a free, which opens no heap. NULL: there is nothing to free, or no heap that has it. */
static ga_slot *slot_of_block(const char *call, const void *block, int device)
{
    ga_slot *it = NULL;
    if (!block || ga_slot_find(&it, device) != GA_OK || it) {
        return it;
    }
    ga_log(GA_LOG_ERROR, "%s: %p is no block: no heap is open on device %d", call, block, device);
    return NULL;
}

void ga_torch_free(void *block, ssize_t size, int device, ga_stream stream)
{
    ga_slot *it = slot_of_block("ga_torch_free", block, device);
    ga_stream on = canonical(stream);
    if (!it) {
        return;
    }
    stream_use *records = remove_records(block);
    ga_status status = GA_OK;
    if (!free_in_capture(it, block, on, records, &status)) {
        status = !can_order(on, records) ? free_after_device(it, block, true)
                 : !it->streams          ? free_after_streams(it, block, on, records)
                 : records               ? free_in_stream_order(it, block, on, records)
                                         : ga_free_on(it->heap, block, on);
    }
    free_records(records);
    if (status == GA_OK) {
        ga_slot_uncharge(it, size > 0 ? (uint64_t)size : 0);
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
        ga_slot *it;
        ga_slot_find(&it, i);
        if (it && ga_trim(it->heap, 0) != GA_OK) {
            ga_log(GA_LOG_INFO, "ga_torch_reset: device %d: %s", i, ga_error_text());
        }
    }
}

void *ga_torch_base_alloc(void *block, size_t *size)
{
    size_t usable = 0;
    for (int i = 0; i < GA_CUDA_DEVICES && !usable; i++) {
        ga_slot *it;
        ga_slot_find(&it, i);
        usable = it ? ga_usable_size(it->heap, block) : 0;
    }
    if (size) {
        *size = usable;
    }
    return block;
}

/* ---- CuPy ---------------------------------------------------------------------------------- */

/* A free has no size, so the block counts with its usable bytes. */
static ga_status alloc_unordered(ga_slot *it, size_t size, void **out)
{
    if (size > PTRDIFF_MAX || !ga_slot_charge(it, size)) {
        return size > PTRDIFF_MAX ? ga_alloc(it->heap, size, 0, out) : GA_ERR_MEMORY;
    }
    ga_status status = ga_alloc(it->heap, size, 0, out);
    ga_slot_uncharge(it, size);
    if (status == GA_OK) { /* relaxed: a figure */
        __atomic_fetch_add(&it->used, ga_usable_size(it->heap, *out), __ATOMIC_RELAXED);
    }
    return status;
}

static ga_status free_unordered(ga_slot *it, void *block)
{
    size_t size = ga_usable_size(it->heap, block);
    ga_status status = free_after_device(it, block, !it->streams);
    ga_slot_uncharge(it, status == GA_OK ? size : 0);
    return status;
}

void *ga_cupy_malloc(void *heap, size_t size, int device)
{
    void *block = NULL;
    ga_slot *it = heap ? NULL : ga_slot_open(device);
    if (!heap && !it) {
        return NULL;
    }
    ga_status status = heap ? ga_alloc(heap, size, 0, &block) : alloc_unordered(it, size, &block);
    return status == GA_OK ? block : NULL;
}

void ga_cupy_free(void *heap, void *block, int device)
{
    ga_slot *it = heap ? NULL : slot_of_block("ga_cupy_free", block, device);
    if (!block || (!heap && !it)) {
        return;
    }
    ga_status status = heap ? ga_free(heap, block) : free_unordered(it, block);
    if (status != GA_OK) {
        ga_log(GA_LOG_ERROR, "ga_cupy_free: %s", ga_error_text());
    }
}
