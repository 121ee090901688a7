/* SPDX-License-Identifier: MIT
 *
 *   CLOSED --first request--> OPEN or REFUSED --primary context reset--> CLOSED
 *
 * STRUCTURE  a record for each device, with the heap
 * INVARIANT  a block of generation g is the heap's that was opened as the g-th, or of none
 * ORDER      a device's lock: shared by visits, exclusive where its heap comes and goes; S1/S2 for
 *            the settings
 * PROGRESS   a visit waits for a heap that is being opened or closed, or for a capture to begin
 */
#include "served.h"

#include "../../liballoc/device/device.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/heap.h"
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

#include <gpualloc/backend.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXTURE_ALIGN = 512, /* what every block of the driver's is aligned to */
    STREAM_THREAD = 2    /* CU_STREAM_PER_THREAD, as a handle */
};

static ga_cuda_device devices[GA_CUDA_DEVICES];
static unsigned last_generation; /* under the lock of the device that is opened, and open_lock */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the settings -------------------------------------------------------------------------- */

enum {
    UNREAD = 0,
    SERVING,
    PASSING
};

static int mode;

/* A bad setting costs one line, and with GPUALLOC_STRICT=1 the run: exit 2. */
static void refuse(const char *source)
{
    const char *strict = ga_environment("GPUALLOC_STRICT");
    if (strict && strcmp(strict, "1") == 0) {
        ga_log(GA_LOG_ERROR, "%s%s", source, ga_error_text());
        _exit(2);
    }
    ga_log(GA_LOG_ERROR, "%s%s; going on with the driver's own allocator", source, ga_error_text());
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&open_lock);
    ga_cuda_captures_lock();
    ga_cuda_blocks_lock(&ga_cuda_live);
    ga_cuda_ipc_lock();
    ga_cuda_pinned_lock();
}

static void fork_parent(void)
{
    ga_cuda_pinned_unlock();
    ga_cuda_ipc_unlock();
    ga_cuda_blocks_unlock(&ga_cuda_live);
    ga_cuda_captures_unlock();
    pthread_mutex_unlock(&open_lock);
}

/* Who wants it alone does not wait for ever; so no visit begins within another. */
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

/* Who held a device's lock is not here. */
static void fork_child(void)
{
    ga_cuda_pinned_child();
    ga_cuda_ipc_child();
    ga_cuda_blocks_unlock(&ga_cuda_live);
    ga_cuda_captures_child();
    pthread_mutex_unlock(&open_lock);
    ga_cuda_rdma_child();
    init_locks();
}

/* GPUALLOC_DEVICE when the library was loaded: many programs clear or overwrite their environment
 * before their first CUDA call. Others set it there, so the environment is asked first. */
static char *told_at_start;

/* From the start, since a fork that has begun does not run what is registered meanwhile. */
__attribute__((constructor)) static void begin(void)
{
    static bool watched;
    ga_forks_watch(&watched, fork_prepare, fork_parent, fork_child);
    told_at_start = ga_environment_copy("GPUALLOC_DEVICE");
    ga_heap_keep_settings();
}

/* Once, and once more in the child of a fork that came in the middle of it. */
static void read_settings(void)
{
    const char *told = ga_environment("GPUALLOC_DEVICE");
    told = told ? told : told_at_start;
    int read = told && *told ? SERVING : PASSING;
    if (read == SERVING && ga_cuda_settings_read(&ga_cuda_told, told) != GA_OK) {
        refuse("GPUALLOC_DEVICE: ");
        read = PASSING;
    }
    init_locks();
    /* S1: release. Pairs with S2. */
    __atomic_store_n(&mode, read, __ATOMIC_RELEASE);
}

static bool serving(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    /* S2: acquire. Pairs with S1. */
    int now = __atomic_load_n(&mode, __ATOMIC_ACQUIRE);
    if (__builtin_expect(now == UNREAD, 0)) {
        pthread_once(&once, read_settings);
        now = mode;
    }
    return now == SERVING;
}

uint64_t ga_cuda_limit(void)
{
    return serving() ? ga_cuda_told.limit : UINT64_MAX;
}

uint64_t ga_cuda_pinned_limit(void)
{
    return serving() ? ga_cuda_told.pinned : 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* The layer that serves: below those that only look on. */
static const ga_heap *working(const ga_heap *heap)
{
    while (heap->backend->passes_through && heap->parent) {
        heap = heap->parent;
    }
    return heap;
}

/* The layer that all memory comes from. */
static const ga_heap *lowest(const ga_heap *heap)
{
    while (heap->parent) {
        heap = heap->parent;
    }
    return heap;
}

static bool admit(const ga_heap *below, int peer)
{
    return below->backend->enable_peer && below->backend->enable_peer(below->state, peer) == GA_OK;
}

/* Whether the heap lets all peers reach its memory. The driver's own they reach as it is. */
static bool admit_peers(const ga_cuda_device *d)
{
    const ga_heap *below = lowest(d->heap);
    bool admitted = true;
    for (int peer = 0; admitted && peer < GA_CUDA_DEVICES; peer++) {
        admitted = !(d->peers >> peer & 1) || admit(below, peer);
    }
    return admitted;
}

static void say_shared(int ordinal)
{
    ga_log(GA_LOG_WARN,
           "device %d is to be reached by another device: the driver serves it from now on, and "
           "blocks of before cannot be reached",
           ordinal);
}

/* Under the lock, alone; ga_cuda_reserves() looks without it. */
static void set_state(ga_cuda_device *d, int state)
{
    __atomic_store_n(&d->state, state, __ATOMIC_RELAXED); /* relaxed: under the lock */
}

static bool exports(const ga_heap *below)
{
    return below->backend->export_memory &&
           below->backend->export_memory(below->state, NULL, 0, NULL, NULL) == GA_OK;
}

static void open_heap(ga_cuda_device *d, int ordinal)
{
    ga_heap *heap;
    if (ga_heap_open(&heap, GA_PLACE_DEVICE, ordinal, ga_cuda_told.spec) != GA_OK) {
        refuse("GPUALLOC_DEVICE: ");
        set_state(d, REFUSED);
        return;
    }
    const ga_heap *works = working(heap);
    d->heap = heap;
    d->align = works->backend->alloc_aligned ? TEXTURE_ALIGN : 0;
    uint32_t capabilities = works->backend->capabilities;
    d->drivers = capabilities & GA_CAP_DRIVER_BLOCKS;
    d->waits = capabilities & GA_CAP_FREE_WAITS;
    d->thread_stream = capabilities & GA_CAP_THREAD_STREAM;
    d->every = capabilities & GA_CAP_EVERY_STREAM;
    d->streams = works->backend->alloc_on != NULL;
    d->mapped = lowest(heap)->backend->reserves != NULL;
    d->shares = d->mapped && ga_cuda_told.ipc != GA_CUDA_IPC_COMPAT &&
                ga_cuda_told.ipc != GA_CUDA_IPC_NONE && exports(lowest(heap));
    pthread_mutex_lock(&open_lock);
    d->generation = ++last_generation;
    pthread_mutex_unlock(&open_lock);
    set_state(d, OPEN);
    d->shared = !admit_peers(d);
    if (d->shared) {
        say_shared(ordinal);
    }
    ga_log(GA_LOG_INFO, "memory of device %d is served by %s", ordinal, ga_heap_spec(heap));
}

/* Let `other` reach what the heap of `device` has, if it has one and they can. */
static bool let_in(int device, int other)
{
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_wrlock(&d->lock);
    bool open = d->state == OPEN;
    if (open && !admit(lowest(d->heap), other)) {
        ga_log(GA_LOG_DEBUG, "device %d does not reach the memory of device %d", other, device);
    }
    pthread_rwlock_unlock(&d->lock);
    return open;
}

/* The driver copies between devices, and from one while another's context is current. It does so with
 * mapped memory and with memory of pools only if the other device has access, so heaps give it unasked.
 * That is not peer access as the program requests it: a free does not wait for the other device. */
static void introduce(int newest)
{
    for (int other = 0; other < GA_CUDA_DEVICES; other++) {
        if (other != newest && let_in(other, newest)) {
            let_in(newest, other);
        }
    }
}

static void open_first(ga_cuda_device *d, int ordinal)
{
    pthread_rwlock_wrlock(&d->lock);
    bool opens = d->state == CLOSED;
    if (opens) {
        open_heap(d, ordinal);
    }
    pthread_rwlock_unlock(&d->lock);
    if (opens) {
        ga_cuda_primary_used(ordinal);
        introduce(ordinal);
    }
}

/* What we ask of the driver, where a spec is named. A driver that lacks some of it serves alone. */
static const ga_cuda_asks *asks_to_serve(void)
{
    static bool said;
    const ga_cuda_asks *asks = serving() ? ga_cuda_next_asks() : NULL;
    /* relaxed: it is said once */
    if (!asks && serving() && ga_cuda_next_start(false) &&
        !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "GPUALLOC_DEVICE: the driver is older than CUDA 11.2; going on with "
                            "its own allocator");
    }
    return asks;
}

bool ga_cuda_enter_current(ga_cuda_visit *visit)
{
    const ga_cuda_asks *asks = asks_to_serve();
    int ordinal = asks ? ga_cuda_context_device(asks, &visit->context) : -1;
    if (ordinal < 0) {
        return false;
    }
    ga_cuda_device *d = &devices[ordinal];
    pthread_rwlock_rdlock(&d->lock);
    if (__builtin_expect(d->state == CLOSED, 0) && !ga_cuda_capturing()) {
        pthread_rwlock_unlock(&d->lock);
        open_first(d, ordinal);
        pthread_rwlock_rdlock(&d->lock);
    }
    visit->device = d;
    visit->ordinal = ordinal;
    bool open = d->state == OPEN;
    if (!open) {
        pthread_rwlock_unlock(&d->lock);
    }
    return open;
}

void ga_cuda_leave_current(const ga_cuda_visit *visit)
{
    pthread_rwlock_unlock(&visit->device->lock);
}

ga_heap *ga_cuda_heap(const ga_cuda_visit *visit)
{
    return visit->device->heap;
}

/* Whether other processes are to map blocks that this heap has no memory for which they could. */
static bool is_for_driver(const ga_cuda_device *d)
{
    return ga_cuda_told.ipc == GA_CUDA_IPC_COMPAT ||
           (ga_cuda_told.ipc == GA_CUDA_IPC_HANDLE && !d->mapped);
}

bool ga_cuda_serves(const ga_cuda_visit *visit)
{
    return !is_for_driver(visit->device) && !visit->device->shared && !ga_cuda_capturing();
}

bool ga_cuda_serves_streams(const ga_cuda_visit *visit)
{
    return visit->device->streams && !visit->device->shared && !ga_cuda_capturing();
}

/* ---- getting blocks ------------------------------------------------------------------------ */

/* To a backend that takes a stream for what its handle says, all threads' default streams are one:
 * there it is asked for a block that nobody uses any more. */
static bool on_stream(const ga_cuda_device *d, const CUstream *stream)
{
    return stream && (d->thread_stream || (uintptr_t)*stream != STREAM_THREAD);
}

/* Whether work on the device goes by its legacy default stream: what other devices do with its
 * memory does not. */
static bool in_order(const ga_cuda_device *d, ga_cuda_free how)
{
    return ga_cuda_told.free == how && d->streams && !d->peers;
}

static ga_status ask(const ga_cuda_device *d, size_t size, const CUstream *stream, void **out)
{
    CUstream legacy = NULL;
    stream = !stream && in_order(d, GA_CUDA_FREE_ORDER) ? &legacy : stream;
    return on_stream(d, stream) ? ga_alloc_on(d->heap, size, d->align, *stream, out)
                                : ga_alloc(d->heap, size, d->align, out);
}

static ga_status ask_twice(const ga_cuda_device *d, size_t size, const CUstream *stream, void **out)
{
    ga_status status = ask(d, size, stream, out);
    if (status == GA_ERR_MEMORY && ga_trim(d->heap, 0) == GA_OK) {
        status = ask(d, size, stream, out);
    }
    return status;
}

/* The most that a layer of the heap holds: each takes its memory from the one below. */
static uint64_t held_by(const ga_heap *heap)
{
    uint64_t most = 0;
    for (; heap; heap = heap->parent) {
        ga_stats stats = {0};
        ga_heap_stats(heap, &stats);
        most = stats.held_bytes > most ? stats.held_bytes : most;
    }
    return most;
}

static uint64_t cached_by(const ga_heap *heap)
{
    ga_stats stats = {0};
    ga_heap_stats(heap, &stats);
    uint64_t held = held_by(heap);
    return held > stats.live_bytes ? held - stats.live_bytes : 0;
}

/* A heap that is closed is not locked for: it has nothing at any address that a program knows. */
static bool is_open(const ga_cuda_device *d)
{
    return __atomic_load_n(&d->state, __ATOMIC_RELAXED) == OPEN; /* relaxed: looked at again */
}

/* Statistics may call the driver, which would end a capture. The heap does not change while one runs, so
 * the figure from before it holds. */
static uint64_t cached_now(const ga_cuda_device *d)
{
    return ga_cuda_capturing()
               ? __atomic_load_n(&d->cached_before, __ATOMIC_RELAXED) /* relaxed: a figure */
               : cached_by(d->heap);
}

uint64_t ga_cuda_cached(const ga_cuda_visit *visit)
{
    return cached_now(visit->device);
}

void ga_cuda_served_before_capture(void)
{
    for (int i = 0; serving() && i < GA_CUDA_DEVICES; i++) {
        ga_cuda_device *d = &devices[i];
        if (!is_open(d)) {
            continue;
        }
        pthread_rwlock_rdlock(&d->lock);
        if (d->state == OPEN && !ga_cuda_capturing()) {
            __atomic_store_n(&d->cached_before, cached_by(d->heap),
                             __ATOMIC_RELAXED); /* relaxed: a figure */
        }
        pthread_rwlock_unlock(&d->lock);
    }
}

/* Caches of the heap count against the limit, too: what it may not keep beside what the program has
 * goes. The bytes that are asked for count already. */
static void make_room(const ga_cuda_device *d)
{
    if (ga_cuda_told.limit == UINT64_MAX) {
        return;
    }
    uint64_t cached = cached_by(d->heap);
    uint64_t used = __atomic_load_n(&d->used, __ATOMIC_RELAXED); /* relaxed: a figure */
    if (used > ga_cuda_told.limit || cached > ga_cuda_told.limit - used) {
        ga_trim(d->heap, 0);
    }
}

bool ga_cuda_is_device(int device)
{
    return device >= 0 && device < GA_CUDA_DEVICES;
}

static bool reserve_beside(ga_cuda_device *d, uint64_t size)
{
    bool fits = ga_cuda_reserve_for(d, size);
    pthread_rwlock_rdlock(&d->lock);
    if (fits && d->state == OPEN && !ga_cuda_capturing()) {
        make_room(d);
    }
    pthread_rwlock_unlock(&d->lock);
    return fits;
}

bool ga_cuda_reserve_on(int device, uint64_t size)
{
    return reserve_beside(&devices[device], size);
}

void ga_cuda_release_on(int device, uint64_t size)
{
    ga_cuda_unuse(&devices[device], size);
}

bool ga_cuda_reserve_outside(int device, uint64_t size)
{
    bool fits = reserve_beside(&devices[device], size);
    if (fits) {
        __atomic_fetch_add(&devices[device].outside, size,
                           __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    return fits;
}

void ga_cuda_release_outside(int device, uint64_t size)
{
    __atomic_fetch_sub(&devices[device].outside, size, __ATOMIC_RELAXED); /* relaxed: a figure */
    ga_cuda_unuse(&devices[device], size);
}

/* relaxed, all: figures */
static void raise_to(uint64_t *high, uint64_t now)
{
    uint64_t before = __atomic_load_n(high, __ATOMIC_RELAXED);
    while (before < now && !__atomic_compare_exchange_n(high, &before, now, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}

static void count_streamed(ga_cuda_device *d, uint64_t size)
{
    raise_to(&d->streamed_high,
             __atomic_add_fetch(&d->streamed, size, __ATOMIC_RELAXED)); /* relaxed: a figure */
}

static void uncount(ga_cuda_device *d, const ga_cuda_block *block)
{
    if (block->streamed) {
        __atomic_fetch_sub(&d->streamed, block->size, __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    ga_cuda_unuse(d, block->size);
}

static CUresult take_noted(const ga_cuda_visit *visit, const CUstream *stream, ga_cuda_block *note)
{
    ga_cuda_device *d = visit->device;
    void *block;
    make_room(d);
    ga_status status = ask_twice(d, note->size, stream, &block);
    if (status != GA_OK) {
        return status == GA_ERR_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    }
    note->start = (CUdeviceptr)(uintptr_t)block;
    note->number = note->drivers ? 0 : ga_cuda_rdma_number();
    ga_cuda_blocks_put(&ga_cuda_live, note);
    if (note->streamed) {
        count_streamed(d, note->size);
    }
    return CUDA_SUCCESS;
}

CUresult ga_cuda_take(const ga_cuda_visit *visit, size_t size, const CUstream *stream,
                      CUdeviceptr *out)
{
    ga_cuda_device *d = visit->device;
    ga_cuda_block note = {.size = size,
                          .device = visit->ordinal,
                          .generation = d->generation,
                          .streamed = stream != NULL,
                          .drivers = d->drivers};
    if (!ga_cuda_reserve(visit, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        ga_cuda_blocks_reserve(&note) ? take_noted(visit, stream, &note) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *out = note.start;
    } else {
        ga_cuda_blocks_unreserve(&note);
        ga_cuda_unuse(d, size);
    }
    return result;
}

ga_cuda_block ga_cuda_driver_block(const ga_cuda_visit *visit, size_t size)
{
    return (ga_cuda_block){.size = size, .device = visit->ordinal, .drivers = true};
}

/* ---- giving them back ---------------------------------------------------------------------- */

/* What other devices do with it, too, where they may. */
static bool wait_for_peers(const ga_cuda_device *d)
{
    bool waited = true;
    for (int peer = 0; d->peers && waited && peer < GA_CUDA_DEVICES; peer++) {
        waited = !(d->peers >> peer & 1) || ga_cuda_wait_if_active(peer);
    }
    return waited;
}

/* After all that the device does, where no stream says after what. */
static ga_status hand_back(const ga_cuda_device *d, const ga_cuda_block *block,
                           const CUstream *stream, bool anywhere)
{
    void *start = (void *)(uintptr_t)block->start;
    CUstream legacy = NULL;
    CUstream every = d->every ? GA_EVERY_STREAM : NULL;
    const CUstream *behind = stream                            ? stream
                             : in_order(d, GA_CUDA_FREE_EVENT) ? &every
                             : in_order(d, GA_CUDA_FREE_ORDER) ? &legacy
                                                               : NULL;
    if (behind && d->streams && !anywhere) {
        return ga_free_on(d->heap, start, *behind);
    }
    bool waited = (d->waits && !anywhere) || ga_cuda_wait_for(block->device);
    waited = waited && wait_for_peers(d);
    return waited ? ga_free(d->heap, start) : GA_ERR_DEVICE;
}

/* Whether a default stream is meant that is not one of the context that the heap is in. */
static bool is_elsewhere(const ga_cuda_block *block, const CUstream *stream)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUcontext current = NULL;
    return stream && (uintptr_t)*stream <= STREAM_THREAD && asks &&
           ga_cuda_context_device(asks, &current) != block->device;
}

/* Until no stream captures. Nothing is allocated for it. */
static void put_off(ga_cuda_block *block)
{
    ga_cuda_blocks_withdraw(&ga_cuda_live, block);
    ga_cuda_put_off(block);
}

/* `late`: it was put off, and which streams used the block is no longer known. */
static CUresult give(ga_cuda_device *d, ga_cuda_block *block, const CUstream *stream, bool late)
{
    if (!block->generation || block->generation != d->generation || d->state != OPEN) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (ga_cuda_capturing()) {
        put_off(block);
        return CUDA_SUCCESS;
    }
    bool elsewhere = is_elsewhere(block, stream);
    CUresult waited = elsewhere ? ga_cuda_next_asks()->cuCtxSynchronize() : CUDA_SUCCESS;
    if (waited != CUDA_SUCCESS) {
        ga_cuda_blocks_put(&ga_cuda_live, block);
        return waited;
    }
    if (hand_back(d, block, elsewhere ? NULL : stream, late) != GA_OK) {
        ga_cuda_blocks_put(&ga_cuda_live, block);
        return ga_cuda_next_trouble();
    }
    ga_cuda_blocks_gone(&ga_cuda_live, block);
    uncount(d, block);
    return CUDA_SUCCESS;
}

static CUresult give_locked(ga_cuda_block *block, const CUstream *stream, bool late)
{
    ga_cuda_device *d = &devices[block->device];
    pthread_rwlock_rdlock(&d->lock);
    CUresult result = give(d, block, stream, late);
    pthread_rwlock_unlock(&d->lock);
    return result;
}

CUresult ga_cuda_give(ga_cuda_block *block, const CUstream *stream)
{
    bool capturing = ga_cuda_capturing();
    ga_cuda_ipc_freed(block->start); /* also if it fails then, where the driver is in trouble */
    CUresult result = give_locked(block, stream, false);
    if (capturing && !ga_cuda_capturing()) {
        ga_cuda_served_put_off(); /* the capture's end may have looked before it was put off */
    }
    return result;
}

/* What it did not free, it may yet. */
void ga_cuda_driver_freed(ga_cuda_block *block, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        ga_cuda_blocks_gone(&ga_cuda_live, block);
        uncount(&devices[block->device], block);
    } else {
        ga_cuda_blocks_put(&ga_cuda_live, block);
    }
}

CUresult ga_cuda_share(const ga_cuda_block *block, ga_vmm_pieces *out)
{
    ga_cuda_device *d = &devices[block->device];
    ga_status status = GA_ERR_UNSUPPORTED;
    pthread_rwlock_rdlock(&d->lock);
    if (d->shares && d->state == OPEN && block->generation == d->generation) {
        const ga_heap *below = lowest(d->heap);
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
    bool can = d->state == OPEN && d->shares && !block->guest && block->generation == d->generation;
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
                    lowest(d->heap)->backend->reserves(lowest(d->heap)->state,
                                                       (const void *)(uintptr_t)address);
    pthread_rwlock_unlock(&d->lock);
    return reserved;
}

bool ga_cuda_reserves(CUdeviceptr address)
{
    bool reserved = false;
    for (int i = 0; serving() && !reserved && i < GA_CUDA_DEVICES; i++) {
        reserved = reserves(&devices[i], address);
    }
    return reserved;
}

static bool holds(ga_cuda_device *d, CUdeviceptr address)
{
    pthread_rwlock_rdlock(&d->lock);
    bool own =
        d->state == OPEN && !d->drivers && ga_owns(d->heap, (const void *)(uintptr_t)address);
    pthread_rwlock_unlock(&d->lock);
    return own;
}

bool ga_cuda_holds(CUdeviceptr address)
{
    bool held = false;
    for (int i = 0; serving() && !held && i < GA_CUDA_DEVICES; i++) {
        held = holds(&devices[i], address);
    }
    return held;
}

/* Free one that was put off. False: the driver refuses it, and it is put off again: the program
 * knows it as freed. A block whose heap is gone is gone with it. */
static bool free_put_off(ga_cuda_block *block)
{
    CUresult result = give_locked(block, NULL, true);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        ga_cuda_blocks_gone(&ga_cuda_live, block);
    } else if (result != CUDA_SUCCESS && ga_cuda_blocks_take(&ga_cuda_live, block->start, block)) {
        put_off(block);
    }
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED;
}

void ga_cuda_served_put_off(void)
{
    ga_cuda_block block;
    bool freed = true;
    while (freed && !ga_cuda_capturing() && ga_cuda_put_off_next(&block)) {
        freed = free_put_off(&block);
    }
}

void ga_cuda_served_barrier(void)
{
    for (int i = 0; serving() && i < GA_CUDA_DEVICES; i++) {
        pthread_rwlock_wrlock(&devices[i].lock);
        pthread_rwlock_unlock(&devices[i].lock);
    }
}

bool ga_cuda_trim(const ga_cuda_visit *visit)
{
    return !ga_cuda_capturing() && ga_trim(visit->device->heap, 0) == GA_OK;
}

bool ga_cuda_served_trim(void)
{
    ga_cuda_visit visit;
    bool trimmed = false;
    ga_cuda_served_put_off(); /* where the driver refused it before */
    if (ga_cuda_enter_current(&visit)) {
        trimmed = ga_cuda_trim(&visit);
        ga_cuda_leave_current(&visit);
    }
    return ga_cuda_pinned_trim() || trimmed;
}

/* ---- the default pool ---------------------------------------------------------------------- */

/* Under its lock. */
static bool stands_for_pool(const ga_cuda_device *d)
{
    return d->state == OPEN && d->streams;
}

static uint64_t streamed_now(const ga_cuda_device *d)
{
    return __atomic_load_n(&d->streamed, __ATOMIC_RELAXED); /* relaxed: a figure */
}

bool ga_cuda_pool_stats_of(int device, ga_cuda_pool_stats *out)
{
    ga_cuda_device *d = &devices[device];
    if (!serving()) {
        return false;
    }
    pthread_rwlock_rdlock(&d->lock);
    bool stands = stands_for_pool(d);
    if (stands) {
        out->used = streamed_now(d);
        out->used_high =
            __atomic_load_n(&d->streamed_high, __ATOMIC_RELAXED); /* relaxed: a figure */
        out->reserved = out->used + cached_now(d);
        raise_to(&d->reserved_high,
                 out->reserved > out->used_high ? out->reserved : out->used_high);
        out->reserved_high =
            __atomic_load_n(&d->reserved_high, __ATOMIC_RELAXED); /* relaxed: a figure */
    }
    pthread_rwlock_unlock(&d->lock);
    return stands;
}

void ga_cuda_pool_reset_high(int device, bool used)
{
    ga_cuda_device *d = &devices[device];
    ga_cuda_pool_stats now;
    if (ga_cuda_pool_stats_of(device, &now)) {
        /* relaxed: a figure */
        __atomic_store_n(used ? &d->streamed_high : &d->reserved_high,
                         used ? now.used : now.reserved, __ATOMIC_RELAXED);
    }
}

/* The program's `keep` includes blocks in use, ga_trim()'s does not. A heap that does not serve streams is
 * not in the program's pool; it is trimmed all the same, since a program has no other call for it. */
void ga_cuda_pool_trim(int device, size_t keep)
{
    ga_cuda_device *d = &devices[device];
    if (!serving()) {
        return;
    }
    ga_cuda_served_put_off();
    pthread_rwlock_rdlock(&d->lock);
    if (d->state == OPEN && !ga_cuda_capturing()) {
        uint64_t used = streamed_now(d);
        ga_trim(d->heap, keep > used ? keep - used : 0);
    }
    pthread_rwlock_unlock(&d->lock);
}

/* relaxed, all: which pool a request that is made at once with the change comes from is open */
void ga_cuda_pool_set(int device, CUmemoryPool pool)
{
    if (ga_cuda_is_device(device)) {
        __atomic_store_n(&devices[device].pool, pool, __ATOMIC_RELAXED);
    }
}

void ga_cuda_pool_gone(CUmemoryPool pool)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        CUmemoryPool gone = pool;
        __atomic_compare_exchange_n(&devices[i].pool, &gone, NULL, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
}

bool ga_cuda_pool_is_other(const ga_cuda_visit *visit)
{
    return __atomic_load_n(&visit->device->pool, __ATOMIC_RELAXED) != NULL;
}

/* ---- contexts that go, and devices that reach each other ----------------------------------- */

/* The heap is told of every block, so that it closes empty: the context's memory goes with it. */
static void close_heap(ga_cuda_device *d, int ordinal)
{
    ga_cuda_block block;
    while (ga_cuda_blocks_take_any(&ga_cuda_live, ordinal, &block)) {
        if (block.generation == d->generation) {
            ga_free(d->heap, (void *)(uintptr_t)block.start);
        }
    }
    ga_heap_close(d->heap);
    d->heap = NULL;
    set_state(d, CLOSED);
    d->shared = false;
    d->peers = 0;
    ga_cuda_counted_reset(ordinal);
    __atomic_store_n(&d->streamed, 0, __ATOMIC_RELAXED); /* relaxed: a figure */
    /* relaxed, both: a figure */
    __atomic_store_n(&d->used, __atomic_load_n(&d->outside, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* The context is held without a heap as well: by who waited for the device, or has mapped another
 * process's blocks there. */
void ga_cuda_served_reset(CUdevice device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        return;
    }
    serving(); /* its locks are there then */
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_rdlock(&d->lock);
    bool open = d->state == OPEN;
    pthread_rwlock_unlock(&d->lock);
    if (open) { /* else the context may not even be there, and asking would make it */
        ga_cuda_captures_end(ga_cuda_primary(device));
    }
    pthread_rwlock_wrlock(&d->lock);
    if (d->state == OPEN) {
        close_heap(d, device);
    }
    ga_device_forget(device);
    pthread_rwlock_unlock(&d->lock);
}

static int device_of(const ga_cuda_asks *asks, CUcontext context)
{
    CUdevice device = -1;
    if (asks->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        CUresult result = asks->cuCtxGetDevice(&device);
        asks->cuCtxPopCurrent_v2(&context);
        device = result == CUDA_SUCCESS ? device : -1;
    }
    return device < GA_CUDA_DEVICES ? device : -1;
}

void ga_cuda_served_admit(int device, int peer)
{
    if (!serving() || !ga_cuda_is_device(device) || !ga_cuda_is_device(peer)) {
        return;
    }
    ga_cuda_device *d = &devices[device];
    pthread_rwlock_wrlock(&d->lock);
    d->peers |= UINT64_C(1) << peer;
    bool changes = d->state == OPEN && !d->shared && !admit_peers(d);
    d->shared = d->shared || changes;
    pthread_rwlock_unlock(&d->lock);
    if (changes) {
        say_shared(device);
    }
}

void ga_cuda_served_peer(CUcontext owner)
{
    const ga_cuda_asks *asks = serving() ? ga_cuda_next_asks() : NULL;
    CUdevice peer = -1;
    if (asks && asks->cuCtxGetDevice(&peer) == CUDA_SUCCESS) {
        ga_cuda_served_admit(device_of(asks, owner), peer);
    }
}
