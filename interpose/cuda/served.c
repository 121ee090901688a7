/* SPDX-License-Identifier: MIT
 *
 *   CLOSED --first request--> OPEN or REFUSED --primary context reset--> CLOSED
 *
 *   allocate  ga_cuda_heap_alloc -> alloc_recorded -> alloc_retry -> alloc
 *   free      ga_cuda_heap_free -> free_locked -> free_block -> free_to_heap, or defer_free
 *   deferred  ga_cuda_served_free_deferred -> free_one_deferred -> free_locked
 *
 * STRUCTURE  a record for each device, with its heap
 * INVARIANT  a block of generation g belongs to the g-th heap that was opened, or to the driver (0)
 * ORDER      a device's lock: shared while a thread has the device acquired, exclusive to open or
 *            close its heap; IS1/IS2 for the settings
 * PROGRESS   a thread that acquires a device waits while its heap is opened or closed, or a capture
 *            begins
 */
#include "served.h"

#include "../../liballoc/device/device.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/heap.h"
#include "buffers.h"
#include "captures.h"
#include "contexts.h"
#include "counted.h"
#include "device.h"
#include "ipc.h"
#include "lookup.h"
#include "next.h"
#include "pinned.h"
#include "primary.h"
#include "rdma.h"
#include "registered.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXTURE_ALIGN = 512, /* the alignment of the driver's own blocks */
    STREAM_THREAD = 2    /* the handle CU_STREAM_PER_THREAD */
};

static ga_cuda_device devices[GA_CUDA_DEVICES];

ga_cuda_device *ga_cuda_device_of(int ordinal)
{
    return &devices[ordinal];
}

static unsigned last_generation; /* changed under open_lock and the device's lock */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the settings -------------------------------------------------------------------------- */

enum {
    UNREAD = 0,
    SERVING,
    PASSING
};

static int mode;

/* On a bad setting, log one line; with GPUALLOC_STRICT=1, exit with status 2. */
static void refuse(const char *source)
{
    if (ga_is_strict()) {
        ga_log(GA_LOG_ERROR, "%s%s", source, ga_error_text());
        _exit(2);
    }
    ga_log(GA_LOG_ERROR, "%s%s; going on with the driver's own allocator", source, ga_error_text());
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&open_lock);
    ga_cuda_captures_lock();
    ga_cuda_registered_lock();
    ga_cuda_blocks_lock(&ga_cuda_live);
    ga_cuda_blocks_lock(&ga_cuda_buffers);
    ga_cuda_ipc_lock();
    ga_cuda_pinned_lock();
}

static void fork_parent(void)
{
    ga_cuda_pinned_unlock();
    ga_cuda_ipc_unlock();
    ga_cuda_blocks_unlock(&ga_cuda_buffers);
    ga_cuda_blocks_unlock(&ga_cuda_live);
    ga_cuda_registered_unlock();
    ga_cuda_captures_unlock();
    pthread_mutex_unlock(&open_lock);
}

/* Writers first, so that a thread that opens or closes a heap does not starve. So a thread may not
 * acquire a device twice. */
static void init_locks(void)
{
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        pthread_rwlock_init(&devices[i].lock, &fair);
    }
    pthread_rwlockattr_destroy(&fair);
}

/* The threads that held devices' locks are not in the child. */
static void fork_child(void)
{
    ga_cuda_pinned_child();
    ga_cuda_ipc_child();
    ga_cuda_blocks_unlock(&ga_cuda_buffers);
    ga_cuda_blocks_unlock(&ga_cuda_live);
    ga_cuda_registered_unlock();
    ga_cuda_captures_child();
    pthread_mutex_unlock(&open_lock);
    ga_cuda_rdma_child();
    init_locks();
}

/* GPUALLOC_DEVICE when the library was loaded. Many programs clear or overwrite their environment
 * before their first CUDA call. Others set the variable, so the environment has precedence. */
static char *spec_at_start;

/* In a constructor, because a fork in progress does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void begin(void)
{
    static bool watched;
    ga_forks_watch(&watched, fork_prepare, fork_parent, fork_child);
    spec_at_start = ga_environment_copy("GPUALLOC_DEVICE");
    ga_heap_keep_settings();
}

/* Runs once; again in the child of a fork that interrupted it. */
static void read_settings(void)
{
    const char *spec = ga_environment("GPUALLOC_DEVICE");
    spec = spec ? spec : spec_at_start;
    int read = spec && *spec ? SERVING : PASSING;
    if (read == SERVING && ga_cuda_settings_read(&ga_cuda_active_settings, spec) != GA_OK) {
        refuse("GPUALLOC_DEVICE: ");
        read = PASSING;
    }
    init_locks();
    /* IS1: release. Pairs with IS2. */
    __atomic_store_n(&mode, read, __ATOMIC_RELEASE);
}

static bool is_serving(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    /* IS2: acquire. Pairs with IS1. */
    int now = __atomic_load_n(&mode, __ATOMIC_ACQUIRE);
    if (__builtin_expect(now == UNREAD, 0)) {
        ga_backend_at(0); /* loads plugins, which must not happen under the lock of `once` */
        pthread_once(&once, read_settings);
        now = mode;
    }
    return now == SERVING;
}

uint64_t ga_cuda_limit(void)
{
    return is_serving() ? ga_cuda_active_settings.limit : UINT64_MAX;
}

uint64_t ga_cuda_pinned_limit(void)
{
    return is_serving() ? ga_cuda_active_settings.pinned : 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* The layer that serves requests: the first that does not only observe them. */
static const ga_heap *serving_layer(const ga_heap *heap)
{
    while (heap->backend->passes_through && heap->parent) {
        heap = heap->parent;
    }
    return heap;
}

/* The layer that all memory comes from. */
static const ga_heap *lowest_layer(const ga_heap *heap)
{
    while (heap->parent) {
        heap = heap->parent;
    }
    return heap;
}

/* Tested before taking the lock: a closed heap has no addresses. */
static bool is_open(const ga_cuda_device *d)
{
    /* relaxed: a hint, tested again under the lock */
    return __atomic_load_n(&d->state, __ATOMIC_RELAXED) == OPEN;
}

static bool open_to(const ga_heap *below, int peer)
{
    return below->backend->enable_peer && below->backend->enable_peer(below->state, peer) == GA_OK;
}

/* True if the peer now has access to the memory of the device's heaps. */
static bool enable_peer(const ga_cuda_device *d, int peer)
{
    return open_to(lowest_layer(d->heap), peer) && (!d->buffers || open_to(d->buffers, peer));
}

/* True if all peers of the device now have access. */
static bool enable_peers(const ga_cuda_device *d)
{
    bool enabled = true;
    for (int peer = 0; enabled && peer < GA_CUDA_DEVICES; peer++) {
        enabled = !(d->peers >> peer & 1) || enable_peer(d, peer);
    }
    return enabled;
}

void ga_cuda_open_to_peers(const ga_cuda_device *d, const ga_heap *heap)
{
    for (int peer = 0; peer < GA_CUDA_DEVICES; peer++) {
        const ga_cuda_device *other = &devices[peer];
        if (d->peers >> peer & 1 || (other != d && is_open(other))) {
            (void)open_to(heap, peer);
        }
    }
}

static void warn_peers_refused(int ordinal)
{
    ga_log(GA_LOG_WARN,
           "device %d is to be accessed by another device: the driver serves its memory from now "
           "on, and the other device cannot access blocks that were allocated before",
           ordinal);
}

/* With the lock held exclusively; is_open() reads the state without it. */
static void set_state(ga_cuda_device *d, int state)
{
    __atomic_store_n(&d->state, state, __ATOMIC_RELAXED); /* relaxed: under the lock */
}

static bool can_export_memory(const ga_heap *below)
{
    return below->backend->export_memory &&
           below->backend->export_memory(below->state, NULL, 0, NULL, NULL) == GA_OK;
}

static void open_heap(ga_cuda_device *d, int ordinal)
{
    ga_heap *heap;
    if (ga_heap_open(&heap, GA_PLACE_DEVICE, ordinal, ga_cuda_active_settings.spec) != GA_OK) {
        refuse("GPUALLOC_DEVICE: ");
        set_state(d, REFUSED);
        return;
    }
    const ga_heap *layer = serving_layer(heap);
    d->heap = heap;
    d->align = layer->backend->alloc_aligned ? TEXTURE_ALIGN : 0;
    uint32_t capabilities = layer->backend->capabilities;
    d->driver_owned = capabilities & GA_CAP_DRIVER_BLOCKS;
    d->free_waits = capabilities & GA_CAP_FREE_WAITS;
    d->thread_stream = capabilities & GA_CAP_THREAD_STREAM;
    d->every_stream = capabilities & GA_CAP_EVERY_STREAM;
    d->stream_ordered = layer->backend->alloc_on != NULL;
    d->mapped = lowest_layer(heap)->backend->reserves != NULL;
    d->can_export = d->mapped && ga_cuda_active_settings.ipc != GA_CUDA_IPC_COMPAT &&
                    ga_cuda_active_settings.ipc != GA_CUDA_IPC_NONE &&
                    can_export_memory(lowest_layer(heap));
    pthread_mutex_lock(&open_lock);
    d->generation = ++last_generation;
    pthread_mutex_unlock(&open_lock);
    set_state(d, OPEN);
    d->peers_refused = !enable_peers(d);
    if (d->peers_refused) {
        warn_peers_refused(ordinal);
    }
    ga_log(GA_LOG_INFO, "memory of device %d is served by %s", ordinal, ga_heap_spec(heap));
}

/* Give `other` access to the memory of the heaps of `device`, if they are open and can. */
static bool enable_access(int device, int other)
{
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_wrlock(&d->lock);
    bool open = d->state == OPEN;
    if (open && !enable_peer(d, other)) {
        ga_log(GA_LOG_DEBUG, "device %d does not reach the memory of device %d", other, device);
    }
    pthread_rwlock_unlock(&d->lock);
    return open;
}

/* The driver copies between devices, also while another device's context is current. With mapped
 * memory and memory of pools it does so only if the other device has access, so each pair of heaps
 * gives it without a request. This is not peer access as the program requests it: a free does not
 * wait for the other device. */
static void enable_mutual_access(int newest)
{
    for (int other = 0; other < GA_CUDA_DEVICES; other++) {
        if (other != newest && enable_access(other, newest)) {
            enable_access(newest, other);
        }
    }
}

static void open_once(ga_cuda_device *d, int ordinal)
{
    ga_heap_prepare();
    pthread_rwlock_wrlock(&d->lock);
    bool opens = d->state == CLOSED;
    if (opens) {
        open_heap(d, ordinal);
    }
    pthread_rwlock_unlock(&d->lock);
    if (opens) {
        ga_cuda_primary_used(ordinal);
        enable_mutual_access(ordinal);
    }
}

/* NULL if no spec is named, or the driver does not have all functions; then it serves alone. */
static const ga_cuda_api *api_if_serving(void)
{
    static bool warned;
    const ga_cuda_api *api = is_serving() ? ga_cuda_next_api() : NULL;
    /* relaxed: only limits the warning to once */
    if (!api && is_serving() && ga_cuda_next_start(false) &&
        !__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "GPUALLOC_DEVICE: the driver is older than CUDA 11.2; going on with "
                            "its own allocator");
    }
    return api;
}

bool ga_cuda_acquire_current(ga_cuda_device_ref *ref)
{
    const ga_cuda_api *api = api_if_serving();
    int ordinal = api ? ga_cuda_context_device(api, &ref->context) : -1;
    if (ordinal < 0) {
        return false;
    }
    ga_cuda_device *d = &devices[ordinal];
    pthread_rwlock_rdlock(&d->lock);
    if (__builtin_expect(d->state == CLOSED, 0) && !ga_cuda_capturing()) {
        pthread_rwlock_unlock(&d->lock);
        open_once(d, ordinal);
        pthread_rwlock_rdlock(&d->lock);
    }
    ref->device = d;
    ref->ordinal = ordinal;
    bool open = d->state == OPEN;
    if (!open) {
        pthread_rwlock_unlock(&d->lock);
    }
    return open;
}

void ga_cuda_release_current(const ga_cuda_device_ref *ref)
{
    pthread_rwlock_unlock(&ref->device->lock);
}

ga_heap *ga_cuda_heap(const ga_cuda_device_ref *ref)
{
    return ref->device->heap;
}

/* True if ipc= requires blocks that other processes can map, and the heap cannot provide them. */
static bool is_left_to_driver(const ga_cuda_device *d)
{
    return ga_cuda_active_settings.ipc == GA_CUDA_IPC_COMPAT ||
           (ga_cuda_active_settings.ipc == GA_CUDA_IPC_HANDLE && !d->mapped);
}

bool ga_cuda_serves(const ga_cuda_device_ref *ref)
{
    return !is_left_to_driver(ref->device) && !ref->device->peers_refused && !ga_cuda_capturing();
}

bool ga_cuda_serves_streams(const ga_cuda_device_ref *ref)
{
    return ref->device->stream_ordered && !ref->device->peers_refused && !ga_cuda_capturing();
}

/* ---- allocating ---------------------------------------------------------------------------- */

/* A backend without GA_CAP_THREAD_STREAM compares handles, so that CU_STREAM_PER_THREAD would be
 * one stream for all threads. Such a request goes to it without a stream. */
static bool passes_stream(const ga_cuda_device *d, const CUstream *stream)
{
    return stream && (d->thread_stream || (uintptr_t)*stream != STREAM_THREAD);
}

/* True if free= is `how` and frees without a stream may go by stream order. The order of a device's
 * streams does not cover work of its peers, so it must have none. */
static bool follows_stream_order(const ga_cuda_device *d, ga_cuda_free_mode how)
{
    return ga_cuda_active_settings.free == how && d->stream_ordered && !d->peers;
}

static ga_status alloc(const ga_cuda_device *d, size_t size, const CUstream *stream, void **out)
{
    CUstream legacy = NULL;
    stream = !stream && follows_stream_order(d, GA_CUDA_FREE_ORDER) ? &legacy : stream;
    return passes_stream(d, stream) ? ga_alloc_on(d->heap, size, d->align, *stream, out)
                                    : ga_alloc(d->heap, size, d->align, out);
}

/* Give back the caches of the device's heaps, until the first one has `keep` bytes. */
static ga_status trim(const ga_cuda_device *d, size_t keep)
{
    ga_status status = d->buffers ? ga_trim(d->buffers, 0) : GA_OK;
    ga_status own = ga_trim(d->heap, keep);
    return own == GA_OK ? status : own;
}

static ga_status alloc_retry(const ga_cuda_device *d, size_t size, const CUstream *stream,
                             void **out)
{
    ga_status status = alloc(d, size, stream, out);
    if (status == GA_ERR_MEMORY && trim(d, 0) == GA_OK) {
        status = alloc(d, size, stream, out);
    }
    return status;
}

/* The most that one layer of the heap holds; each layer takes its memory from the one below. */
static uint64_t held_bytes(const ga_heap *heap)
{
    uint64_t max = 0;
    for (; heap; heap = heap->parent) {
        ga_stats stats = {0};
        ga_heap_stats(heap, &stats);
        max = stats.held_bytes > max ? stats.held_bytes : max;
    }
    return max;
}

static uint64_t cached_by(const ga_heap *heap)
{
    ga_stats stats = {0};
    ga_heap_stats(heap, &stats);
    uint64_t held = held_bytes(heap);
    return held > stats.live_bytes ? held - stats.live_bytes : 0;
}

static uint64_t cached_bytes(const ga_cuda_device *d)
{
    return cached_by(d->heap) + (d->buffers ? cached_by(d->buffers) : 0);
}

/* Statistics may call the driver, which would end a capture. The heap does not change during a
 * capture, so the value from before it is still right. */
static uint64_t cached_now(const ga_cuda_device *d)
{
    return ga_cuda_capturing()
               ? __atomic_load_n(&d->cached_before, __ATOMIC_RELAXED) /* relaxed: a figure */
               : cached_bytes(d);
}

uint64_t ga_cuda_cached(const ga_cuda_device_ref *ref)
{
    return cached_now(ref->device);
}

void ga_cuda_served_before_capture(void)
{
    for (int i = 0; is_serving() && i < GA_CUDA_DEVICES; i++) {
        ga_cuda_device *d = &devices[i];
        if (!is_open(d)) {
            continue;
        }
        pthread_rwlock_rdlock(&d->lock);
        if (d->state == OPEN && !ga_cuda_capturing()) {
            __atomic_store_n(&d->cached_before, cached_bytes(d),
                             __ATOMIC_RELAXED); /* relaxed: a figure */
        }
        pthread_rwlock_unlock(&d->lock);
    }
}

/* The heap's caches count against the limit, too: trim them if they and the program's bytes, which
 * include the pending request, exceed it. */
static void trim_to_limit(const ga_cuda_device *d)
{
    if (ga_cuda_active_settings.limit == UINT64_MAX) {
        return;
    }
    uint64_t cached = cached_bytes(d);
    uint64_t used = __atomic_load_n(&d->used, __ATOMIC_RELAXED); /* relaxed: a figure */
    if (used > ga_cuda_active_settings.limit || cached > ga_cuda_active_settings.limit - used) {
        trim(d, 0);
    }
}

bool ga_cuda_is_device(int device)
{
    return device >= 0 && device < GA_CUDA_DEVICES;
}

static bool charge_and_trim(ga_cuda_device *d, uint64_t size)
{
    bool fits = ga_cuda_charge_device(d, size);
    pthread_rwlock_rdlock(&d->lock);
    if (fits && d->state == OPEN && !ga_cuda_capturing()) {
        trim_to_limit(d);
    }
    pthread_rwlock_unlock(&d->lock);
    return fits;
}

bool ga_cuda_charge_on(int device, uint64_t size)
{
    return charge_and_trim(&devices[device], size);
}

void ga_cuda_uncharge_on(int device, uint64_t size)
{
    ga_cuda_uncharge_device(&devices[device], size);
}

bool ga_cuda_charge_outside(int device, uint64_t size)
{
    bool fits = charge_and_trim(&devices[device], size);
    if (fits) {
        __atomic_fetch_add(&devices[device].beyond_context, size,
                           __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    return fits;
}

void ga_cuda_uncharge_outside(int device, uint64_t size)
{
    __atomic_fetch_sub(&devices[device].beyond_context, size,
                       __ATOMIC_RELAXED); /* relaxed: a figure */
    ga_cuda_uncharge_device(&devices[device], size);
}

/* relaxed, all: figures */
static void raise_high_mark(uint64_t *high, uint64_t now)
{
    uint64_t before = __atomic_load_n(high, __ATOMIC_RELAXED);
    while (before < now && !__atomic_compare_exchange_n(high, &before, now, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

static void add_stream_bytes(ga_cuda_device *d, uint64_t size)
{
    raise_high_mark(
        &d->stream_bytes_high,
        __atomic_add_fetch(&d->stream_bytes, size, __ATOMIC_RELAXED)); /* relaxed: a figure */
}

static void uncharge_block(ga_cuda_device *d, const ga_cuda_block *block)
{
    if (block->streamed) {
        __atomic_fetch_sub(&d->stream_bytes, block->size, __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    ga_cuda_uncharge_device(d, block->size);
}

static CUresult alloc_recorded(const ga_cuda_device_ref *ref, const CUstream *stream,
                               ga_cuda_block *record)
{
    ga_cuda_device *d = ref->device;
    void *block;
    trim_to_limit(d);
    ga_status status = alloc_retry(d, record->size, stream, &block);
    if (status != GA_OK) {
        return status == GA_ERR_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    }
    record->start = (CUdeviceptr)(uintptr_t)block;
    record->number = record->driver_owned ? 0 : ga_cuda_rdma_number();
    ga_cuda_blocks_insert(&ga_cuda_live, record);
    if (record->streamed) {
        add_stream_bytes(d, record->size);
    }
    return CUDA_SUCCESS;
}

CUresult ga_cuda_heap_alloc(const ga_cuda_device_ref *ref, size_t size, const CUstream *stream,
                            CUdeviceptr *out)
{
    ga_cuda_device *d = ref->device;
    ga_cuda_block record = {.size = size,
                            .device = ref->ordinal,
                            .generation = d->generation,
                            .streamed = stream != NULL,
                            .driver_owned = d->driver_owned};
    if (!ga_cuda_charge(ref, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ga_cuda_blocks_new_record(&record) ? alloc_recorded(ref, stream, &record)
                                                         : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *out = record.start;
    } else {
        ga_cuda_blocks_free_record(&record);
        ga_cuda_uncharge_device(d, size);
    }
    return result;
}

ga_cuda_block ga_cuda_driver_record(const ga_cuda_device_ref *ref, size_t size)
{
    return (ga_cuda_block){.size = size, .device = ref->ordinal, .driver_owned = true};
}

/* ---- freeing ------------------------------------------------------------------------------- */

/* Wait for work of the peers, which may use the device's memory. */
static bool wait_for_peers(const ga_cuda_device *d)
{
    bool waited = true;
    for (int peer = 0; d->peers && waited && peer < GA_CUDA_DEVICES; peer++) {
        waited = !(d->peers >> peer & 1) || ga_cuda_wait_if_active(peer);
    }
    return waited;
}

/* Free in the order of `stream`, or as free= says; otherwise wait for the device and its peers
 * first. If `was_deferred`, the streams that used the block are unknown, so always wait. Memory of
 * ncclMemAlloc() is freed behind all streams, without a wait: NCCL's own function does not wait
 * either, and NCCL may call it while kernels wait for the host. */
static ga_status free_to_heap(const ga_cuda_device *d, const ga_cuda_block *block,
                              const CUstream *stream, bool was_deferred)
{
    void *start = (void *)(uintptr_t)block->start;
    CUstream legacy = NULL;
    CUstream every_stream = d->every_stream ? GA_EVERY_STREAM : NULL;
    const CUstream *behind = stream                                        ? stream
                             : follows_stream_order(d, GA_CUDA_FREE_EVENT) ? &every_stream
                             : follows_stream_order(d, GA_CUDA_FREE_ORDER) ? &legacy
                                                                           : NULL;
    if (block->is_buffer) {
        return ga_free_on(d->buffers, start, GA_EVERY_STREAM);
    }
    if (behind && d->stream_ordered && !was_deferred) {
        return ga_free_on(d->heap, start, *behind);
    }
    bool waited = (d->free_waits && !was_deferred) || ga_cuda_wait_for(block->device);
    waited = waited && wait_for_peers(d);
    return waited ? ga_free(d->heap, start) : GA_ERR_DEVICE;
}

/* True if `stream` is a default stream of another context than the heap's. */
static bool is_of_other_context(const ga_cuda_block *block, const CUstream *stream)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext current = NULL;
    return stream && (uintptr_t)*stream <= STREAM_THREAD && api &&
           ga_cuda_context_device(api, &current) != block->device;
}

/* The set that a block is in while it lives. */
static ga_cuda_blocks *set_of(const ga_cuda_block *block)
{
    return block->is_buffer ? &ga_cuda_buffers : &ga_cuda_live;
}

/* Defer a free until no stream captures. Allocates nothing. */
static void defer_free(ga_cuda_block *block)
{
    ga_cuda_blocks_detach(&ga_cuda_live, block);
    ga_cuda_defer_free(block);
}

/* `was_deferred`: the streams that used the block are no longer known. */
static CUresult free_block(ga_cuda_device *d, ga_cuda_block *block, const CUstream *stream,
                           bool was_deferred)
{
    if (!block->generation || block->generation != d->generation || d->state != OPEN) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (ga_cuda_capturing()) {
        defer_free(block);
        return CUDA_SUCCESS;
    }
    bool elsewhere = is_of_other_context(block, stream);
    CUresult waited = elsewhere ? ga_cuda_next_api()->cuCtxSynchronize() : CUDA_SUCCESS;
    if (waited != CUDA_SUCCESS) {
        ga_cuda_blocks_insert(set_of(block), block);
        return waited;
    }
    if (free_to_heap(d, block, elsewhere ? NULL : stream, was_deferred) != GA_OK) {
        ga_cuda_blocks_insert(set_of(block), block);
        return ga_cuda_next_error();
    }
    ga_cuda_blocks_discard(set_of(block), block);
    uncharge_block(d, block);
    return CUDA_SUCCESS;
}

static CUresult free_locked(ga_cuda_block *block, const CUstream *stream, bool was_deferred)
{
    ga_cuda_device *d = &devices[block->device];
    pthread_rwlock_rdlock(&d->lock);
    CUresult result = free_block(d, block, stream, was_deferred);
    pthread_rwlock_unlock(&d->lock);
    return result;
}

CUresult ga_cuda_heap_free(ga_cuda_block *block, const CUstream *stream)
{
    bool capturing = ga_cuda_capturing();
    ga_cuda_ipc_freed(block->start); /* even if the free fails, with an error of the driver */
    if (ga_cuda_registered_hold(block)) {
        bool waits = !stream && !capturing && !block->is_buffer;
        return !waits || ga_cuda_wait_for(block->device) ? CUDA_SUCCESS : ga_cuda_next_error();
    }
    CUresult result = free_locked(block, stream, false);
    if (capturing && !ga_cuda_capturing()) {
        ga_cuda_served_free_deferred(); /* the capture may have ended before this one was listed */
    }
    return result;
}

/* A block that the driver refused to free may be freed again. */
void ga_cuda_finish_driver_free(ga_cuda_block *block, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        ga_cuda_blocks_discard(&ga_cuda_live, block);
        uncharge_block(&devices[block->device], block);
    } else {
        ga_cuda_blocks_insert(&ga_cuda_live, block);
    }
}

CUresult ga_cuda_share(const ga_cuda_block *block, ga_vmm_pieces *out)
{
    ga_cuda_device *d = &devices[block->device];
    ga_status status = GA_ERR_UNSUPPORTED;
    pthread_rwlock_rdlock(&d->lock);
    if (d->can_export && d->state == OPEN && block->generation == d->generation) {
        const ga_heap *below = lowest_layer(d->heap);
        status = ga_vmm_pieces_collect(below->backend, below->state,
                                       (const void *)(uintptr_t)block->start, block->size, out);
    }
    pthread_rwlock_unlock(&d->lock);
    return status == GA_OK                ? CUDA_SUCCESS
           : status == GA_ERR_UNSUPPORTED ? CUDA_ERROR_NOT_SUPPORTED
                                          : CUDA_ERROR_OUT_OF_MEMORY;
}

bool ga_cuda_can_share(const ga_cuda_block *block)
{
    ga_cuda_device *d = &devices[block->device];
    pthread_rwlock_rdlock(&d->lock);
    bool can =
        d->state == OPEN && d->can_export && !block->imported && block->generation == d->generation;
    pthread_rwlock_unlock(&d->lock);
    return can;
}

static bool reserves(ga_cuda_device *d, CUdeviceptr address)
{
    if (!is_open(d)) {
        return false;
    }
    pthread_rwlock_rdlock(&d->lock);
    bool reserved = d->state == OPEN && d->mapped &&
                    lowest_layer(d->heap)->backend->reserves(lowest_layer(d->heap)->state,
                                                             (const void *)(uintptr_t)address);
    pthread_rwlock_unlock(&d->lock);
    return reserved;
}

bool ga_cuda_is_reserved(CUdeviceptr address)
{
    bool reserved = false;
    for (int i = 0; is_serving() && !reserved && i < GA_CUDA_DEVICES; i++) {
        reserved = reserves(&devices[i], address);
    }
    return reserved;
}

static bool holds(ga_cuda_device *d, CUdeviceptr address)
{
    pthread_rwlock_rdlock(&d->lock);
    bool own =
        d->state == OPEN && !d->driver_owned && ga_owns(d->heap, (const void *)(uintptr_t)address);
    pthread_rwlock_unlock(&d->lock);
    return own;
}

bool ga_cuda_is_heap_memory(CUdeviceptr address)
{
    bool held = false;
    for (int i = 0; is_serving() && !held && i < GA_CUDA_DEVICES; i++) {
        held = holds(&devices[i], address);
    }
    return held;
}

/* Run one deferred free. False: the driver refuses, and the free is deferred again, because to the
 * program the block is free. A block whose heap was closed needs no free. */
static bool free_one_deferred(ga_cuda_block *block)
{
    CUresult result = free_locked(block, NULL, true);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        ga_cuda_blocks_discard(set_of(block), block);
    } else if (result != CUDA_SUCCESS &&
               ga_cuda_blocks_remove(set_of(block), block->start, block)) {
        defer_free(block);
    }
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED;
}

void ga_cuda_served_free_deferred(void)
{
    ga_cuda_block block;
    bool freed = true;
    while (freed && !ga_cuda_capturing() && ga_cuda_pop_deferred(&block)) {
        freed = free_one_deferred(&block);
    }
}

void ga_cuda_served_barrier(void)
{
    for (int i = 0; is_serving() && i < GA_CUDA_DEVICES; i++) {
        pthread_rwlock_wrlock(&devices[i].lock);
        pthread_rwlock_unlock(&devices[i].lock);
    }
}

bool ga_cuda_trim(const ga_cuda_device_ref *ref)
{
    return !ga_cuda_capturing() && trim(ref->device, 0) == GA_OK;
}

bool ga_cuda_served_trim(void)
{
    ga_cuda_device_ref ref;
    bool trimmed = false;
    ga_cuda_served_free_deferred(); /* retries those that the driver refused */
    if (ga_cuda_acquire_current(&ref)) {
        trimmed = ga_cuda_trim(&ref);
        ga_cuda_release_current(&ref);
    }
    return ga_cuda_pinned_trim() || trimmed;
}

/* ---- the default pool ---------------------------------------------------------------------- */

/* With the device's lock held. */
static bool serves_pool(const ga_cuda_device *d)
{
    return d->state == OPEN && d->stream_ordered;
}

static uint64_t stream_bytes_now(const ga_cuda_device *d)
{
    return __atomic_load_n(&d->stream_bytes, __ATOMIC_RELAXED); /* relaxed: a figure */
}

bool ga_cuda_pool_stats_of(int device, ga_cuda_pool_stats *out)
{
    ga_cuda_device *d = &devices[device];
    if (!is_serving()) {
        return false;
    }
    pthread_rwlock_rdlock(&d->lock);
    bool serves = serves_pool(d);
    if (serves) {
        out->used = stream_bytes_now(d);
        out->used_high =
            __atomic_load_n(&d->stream_bytes_high, __ATOMIC_RELAXED); /* relaxed: a figure */
        out->reserved = out->used + cached_now(d);
        raise_high_mark(&d->reserved_high,
                        out->reserved > out->used_high ? out->reserved : out->used_high);
        out->reserved_high =
            __atomic_load_n(&d->reserved_high, __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    pthread_rwlock_unlock(&d->lock);
    return serves;
}

void ga_cuda_pool_reset_high(int device, bool used)
{
    ga_cuda_device *d = &devices[device];
    ga_cuda_pool_stats now;
    if (ga_cuda_pool_stats_of(device, &now)) {
        /* relaxed: a figure */
        __atomic_store_n(used ? &d->stream_bytes_high : &d->reserved_high,
                         used ? now.used : now.reserved, __ATOMIC_RELAXED);
    }
}

/* The program's `keep` includes blocks in use, ga_trim()'s does not. A heap that does not serve
 * streams is not in the program's pool, but is trimmed, too, because a program has no other call
 * for it. */
void ga_cuda_pool_trim(int device, size_t keep)
{
    ga_cuda_device *d = &devices[device];
    if (!is_serving()) {
        return;
    }
    ga_cuda_served_free_deferred();
    pthread_rwlock_rdlock(&d->lock);
    if (d->state == OPEN && !ga_cuda_capturing()) {
        uint64_t used = stream_bytes_now(d);
        trim(d, keep > used ? keep - used : 0);
    }
    pthread_rwlock_unlock(&d->lock);
}

/* relaxed, all: a request at the same time as the change may come from either pool */
void ga_cuda_pool_set(int device, CUmemoryPool pool)
{
    if (ga_cuda_is_device(device)) {
        __atomic_store_n(&devices[device].pool, pool, __ATOMIC_RELAXED);
    }
}

void ga_cuda_pool_destroyed(CUmemoryPool pool)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        CUmemoryPool gone = pool;
        __atomic_compare_exchange_n(&devices[i].pool, &gone, NULL, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
}

bool ga_cuda_uses_other_pool(const ga_cuda_device_ref *ref)
{
    return __atomic_load_n(&ref->device->pool, __ATOMIC_RELAXED) != NULL;
}

/* ---- destroyed contexts, and peer access --------------------------------------------------- */

/* Blocks that were freed while they were registered. */
static void free_registered(const ga_cuda_device *d, int ordinal)
{
    ga_cuda_blocks_list freed = ga_cuda_registered_reset(ordinal);
    ga_cuda_block block;
    while (ga_cuda_blocks_pop(&freed, &block)) {
        if (d->state == OPEN && block.generation == d->generation) {
            ga_free(block.is_buffer ? d->buffers : d->heap, (void *)(uintptr_t)block.start);
        }
        ga_cuda_blocks_free_record(&block);
    }
}

/* Free each block, so that the heap closes empty; its memory goes with the context. */
static void close_heap(ga_cuda_device *d, int ordinal)
{
    ga_cuda_block block;
    while (ga_cuda_blocks_remove_of(&ga_cuda_live, ordinal, &block)) {
        if (block.generation == d->generation) {
            ga_free(d->heap, (void *)(uintptr_t)block.start);
        }
    }
    ga_cuda_buffers_close(d, ordinal);
    ga_heap_close(d->heap);
    d->heap = NULL;
    set_state(d, CLOSED);
    d->peers_refused = false;
    d->peers = 0;
    ga_cuda_counted_reset(ordinal);
    __atomic_store_n(&d->stream_bytes, 0, __ATOMIC_RELAXED); /* relaxed: a figure */
    /* relaxed, both: a figure */
    __atomic_store_n(&d->used, __atomic_load_n(&d->beyond_context, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
}

/* The primary context is also referenced without a heap, by waits and by imports;
 * ga_device_forget() drops that reference. */
void ga_cuda_served_reset(CUdevice device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        return;
    }
    is_serving(); /* initialises the locks */
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_rdlock(&d->lock);
    bool open = d->state == OPEN;
    pthread_rwlock_unlock(&d->lock);
    if (open) { /* without a heap there may be no context, and asking would create it */
        ga_cuda_captures_end(ga_cuda_primary(device));
    }
    pthread_rwlock_wrlock(&d->lock);
    free_registered(d, device);
    if (d->state == OPEN) {
        close_heap(d, device);
    }
    ga_device_forget(device);
    pthread_rwlock_unlock(&d->lock);
}

static int device_of(const ga_cuda_api *api, CUcontext context)
{
    CUdevice device = -1;
    if (api->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        CUresult result = api->cuCtxGetDevice(&device);
        api->cuCtxPopCurrent_v2(&context);
        device = result == CUDA_SUCCESS ? device : -1;
    }
    return device < GA_CUDA_DEVICES ? device : -1;
}

void ga_cuda_served_enable_peer(int device, int peer)
{
    if (!is_serving() || !ga_cuda_is_device(device) || !ga_cuda_is_device(peer)) {
        return;
    }
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_wrlock(&d->lock);
    d->peers |= UINT64_C(1) << peer;
    bool changes = d->state == OPEN && !d->peers_refused && !enable_peers(d);
    d->peers_refused = d->peers_refused || changes;
    pthread_rwlock_unlock(&d->lock);
    if (changes) {
        warn_peers_refused(device);
    }
}

void ga_cuda_served_enable_peer_of(CUcontext owner)
{
    const ga_cuda_api *api = is_serving() ? ga_cuda_next_api() : NULL;
    CUdevice peer = -1;
    if (api && api->cuCtxGetDevice(&peer) == CUDA_SUCCESS) {
        ga_cuda_served_enable_peer(device_of(api, owner), peer);
    }
}
