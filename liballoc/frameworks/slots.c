/* SPDX-License-Identifier: MIT
 *
 *   CLOSED --first request--> OPEN or FAILED, until the process ends
 *
 * STRUCTURE  a slot for each device
 * INVARIANT  a heap in a slot is never closed; `used` is the sum of the requested bytes of live
 *            blocks
 * ORDER      FF1/FF2 publish a heap; opening and the choice of a spec are under a lock; the rest
 *            are figures
 * PROGRESS   blocks while a heap is being opened. Only requests open heaps, because that starts
 *            CUDA and takes memory on the device; queries, limits and frees do not
 */
#include "slots.h"

#include "../platform/forks.h"
#include "../platform/log.h"
#include "../runtime/heap.h"
#include "spec_choice.h"

#include <gpualloc/frameworks.h>

#include <pthread.h>
#include <stdio.h>

enum {
    CLOSED = 0,
    OPEN,
    FAILED
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_slot slots[GA_CUDA_DEVICES];

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

/* ---- opening --------------------------------------------------------------------------------- */

/* Query the first layer that serves requests itself; a layer that passes through only observes. */
static bool has_streams(const ga_heap *heap)
{
    while (heap->backend->passes_through && heap->parent) {
        heap = heap->parent;
    }
    return heap->backend->alloc_on != NULL;
}

/* With the lock held. Returns the new state. */
static int open_locked(ga_slot *it, int device)
{
    int state = OPEN;
    it->status = ga_heap_open(&it->heap, GA_PLACE_DEVICE, device, ga_choice_spec());
    if (it->status == GA_OK) {
        ga_choice_opened(device);
        it->streams = has_streams(it->heap);
    } else {
        snprintf(it->reason, sizeof it->reason, "%s", ga_error_text());
        ga_log(GA_LOG_ERROR, "%s; every request on device %d fails", it->reason, device);
        state = FAILED;
    }
    /* FF1: release. Pairs with FF2: the heap, or the reason, is seen with the state. */
    __atomic_store_n(&it->state, state, __ATOMIC_RELEASE);
    return state;
}

/* NULL: there can be no such device. */
static ga_slot *slot_at(int device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        ga_fail(GA_ERR_DEVICE, "no CUDA device %d: expected one from 0 to %d", device,
                GA_CUDA_DEVICES - 1);
        return NULL;
    }
    return &slots[device];
}

static int state_of(const ga_slot *it)
{
    /* FF2: acquire. Pairs with FF1. */
    return __atomic_load_n(&it->state, __ATOMIC_ACQUIRE);
}

static int open_closed(ga_slot *it, int device)
{
    ga_heap_prepare();
    pthread_mutex_lock(&lock);
    int state = it->state; /* stores are made under the lock */
    state = state == CLOSED ? open_locked(it, device) : state;
    pthread_mutex_unlock(&lock);
    return state;
}

ga_slot *ga_slot_open(int device)
{
    ga_slot *it = slot_at(device);
    int state = it ? state_of(it) : FAILED;
    if (state == CLOSED) {
        state = open_closed(it, device);
    }
    if (it && state == FAILED) {
        ga_fail(it->status, "%s", it->reason);
    }
    return state == OPEN ? it : NULL;
}

ga_status ga_slot_find(ga_slot **out, int device)
{
    ga_slot *it = slot_at(device);
    int state = it ? state_of(it) : CLOSED;
    *out = state == OPEN ? it : NULL;
    if (!it) {
        return GA_ERR_DEVICE;
    }
    return state == FAILED ? ga_fail(it->status, "%s", it->reason) : GA_OK;
}

ga_heap *ga_framework_heap(int device)
{
    ga_slot *it = ga_slot_open(device);
    return it ? it->heap : NULL;
}

ga_status ga_framework_choose(const char *spec)
{
    ga_status status = spec ? ga_heap_check(GA_PLACE_DEVICE, spec) : GA_OK;
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&lock);
    status = ga_choice_set(spec);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- figures --------------------------------------------------------------------------------- */

ga_status ga_framework_stats(int device, ga_stats *out)
{
    ga_slot *it;
    *out = (ga_stats){0};
    ga_status status = ga_slot_find(&it, device);
    return it ? ga_heap_stats(it->heap, out) : status;
}

typedef struct block_list {
    ga_framework_block *blocks;
    size_t room, count;
} block_list;

static void list_block(void *context, void *block, size_t size)
{
    block_list *list = context;
    if (list->count < list->room) {
        list->blocks[list->count] = (ga_framework_block){block, size};
    }
    list->count++;
}

ga_status ga_framework_blocks(int device, ga_framework_block *blocks, size_t *count)
{
    ga_slot *it;
    block_list list = {.blocks = blocks, .room = *count};
    ga_status status = ga_slot_find(&it, device);
    status = it ? ga_heap_each_live(it->heap, list_block, &list) : status;
    *count = list.count;
    return status;
}

/* ---- how much there may be ------------------------------------------------------------------- */

/* relaxed, all: figures. A request above the limit is never added, because other threads would see
 * it and fail. */
bool ga_slot_charge(ga_slot *it, uint64_t size)
{
    uint64_t before = __atomic_load_n(&it->used, __ATOMIC_RELAXED);
    do {
        uint64_t limit = __atomic_load_n(&it->limit, __ATOMIC_RELAXED);
        bool limited = __atomic_load_n(&it->limited, __ATOMIC_RELAXED);
        if (limited && (before > limit || size > limit - before)) {
            ga_fail(GA_ERR_MEMORY,
                    "no block of %llu bytes: expected %llu at most in all, %llu are in use",
                    (unsigned long long)size, (unsigned long long)limit,
                    (unsigned long long)before);
            return false;
        }
    } while (!__atomic_compare_exchange_n(&it->used, &before, before + size, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

void ga_slot_uncharge(ga_slot *it, uint64_t size)
{
    __atomic_fetch_sub(&it->used, size, __ATOMIC_RELAXED); /* relaxed: a figure */
}

ga_status ga_framework_limit(int device, uint64_t bytes)
{
    ga_slot *unused;
    ga_status status = ga_slot_find(&unused, device);
    if (status != GA_OK) {
        return status;
    }
    ga_slot *it = &slots[device];
    /* relaxed: figures */
    __atomic_store_n(&it->limit, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&it->limited, bytes != UINT64_MAX, __ATOMIC_RELAXED);
    return GA_OK;
}

/* Without a context on the device. */
static ga_status device_memory(int device, size_t *total)
{
    const ga_cuda_driver *driver;
    CUdevice cuda_device = 0;
    ga_status status = ga_cuda_driver_get(&driver);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuDeviceGet, &cuda_device, device);
    }
    return status == GA_OK ? GA_CUDA_CALL(driver, cuDeviceTotalMem, total, cuda_device) : status;
}

void ga_torch_memory_fraction(double fraction, int device)
{
    size_t total = 0;
    if (!(fraction >= 0 && fraction <= 1) || device_memory(device, &total) != GA_OK ||
        ga_framework_limit(device, (uint64_t)(fraction * (double)total)) != GA_OK) {
        ga_log(GA_LOG_WARN,
               "ga_torch_memory_fraction: device %d, %g: expected a device and a part "
               "from 0 to 1; nothing is changed",
               device, fraction);
    }
}
