/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  the set of live blocks; the heap is in the device's record (device.h)
 * INVARIANT  a block's generation is that of the device's other heap, which opens before and closes
 *            together with this one
 * ORDER      the device's lock: shared to use the heap, exclusive to open it
 */
#include "buffers.h"

#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/heap.h"
#include "captures.h"
#include "device.h"

#include <gpualloc/backend.h>

#include <stdint.h>

ga_cuda_blocks ga_cuda_buffers = GA_CUDA_BLOCKS_INIT;

static bool any_open; /* a heap of these has been opened */

static const char SPEC[] = "vmm:register=on,free=now"; /* the heap never waits, see served.c */

static void open_heap(ga_cuda_device *d, int ordinal)
{
    ga_heap *heap = NULL;
    if (d->heap) { /* its cache may have all memory, and then no peer would get access */
        (void)ga_trim(d->heap, 0);
    }
    ga_status status = ga_heap_open(&heap, GA_PLACE_DEVICE, ordinal, SPEC);
    d->buffers_refused = status != GA_OK && status != GA_ERR_MEMORY;
    d->buffers = heap;
    if (status != GA_OK) {
        ga_log(GA_LOG_INFO, "ncclMemAlloc: NCCL serves device %d: %s", ordinal, ga_error_text());
        return;
    }
    ga_cuda_open_to_peers(d, heap); /* it asks for that only if it has memory for a trial */
    __atomic_store_n(&any_open, true, __ATOMIC_RELAXED); /* relaxed: a block was allocated since */
    ga_log(GA_LOG_INFO, "ncclMemAlloc of device %d is served by %s", ordinal, ga_heap_spec(heap));
}

/* Acquire the current device with its heap of buffers. False: there is none. */
static bool acquire(ga_cuda_device_ref *ref)
{
    if (!ga_cuda_acquire_current(ref)) {
        return false;
    }
    ga_cuda_device *d = ref->device;
    if (d->mapped && !d->buffers && !d->buffers_refused && !ga_cuda_capturing()) {
        ga_cuda_release_current(ref);
        pthread_rwlock_wrlock(&d->lock);
        if (d->state == OPEN && !d->buffers && !d->buffers_refused) {
            open_heap(d, ref->ordinal);
        }
        pthread_rwlock_unlock(&d->lock);
        if (!ga_cuda_acquire_current(ref)) {
            return false;
        }
    }
    if (!d->buffers || d->peers_refused || ga_cuda_capturing()) {
        ga_cuda_release_current(ref);
        return false;
    }
    return true;
}

/* Zeros, as the driver's new memory has them: NCCL allocates flags with ncclMemAlloc(), too, and
 * does not clear them. If memory is short, the caches of both heaps go. */
static bool alloc_recorded(const ga_cuda_device_ref *ref, ga_cuda_block *record)
{
    ga_heap *heap = ref->device->buffers;
    void *block;
    ga_status status = ga_alloc_zeroed(heap, record->size, 0, &block);
    if (status == GA_ERR_MEMORY && ga_cuda_trim(ref)) {
        status = ga_alloc_zeroed(heap, record->size, 0, &block);
    }
    if (status == GA_OK) {
        record->start = (CUdeviceptr)(uintptr_t)block;
        ga_cuda_blocks_insert(&ga_cuda_buffers, record);
    }
    return status == GA_OK;
}

bool ga_cuda_buffers_alloc(size_t size, void **out)
{
    ga_cuda_device_ref ref;
    if (!acquire(&ref)) {
        return false;
    }
    ga_cuda_block record = {.size = size,
                            .device = ref.ordinal,
                            .generation = ref.device->generation,
                            .is_buffer = true};
    bool charged = ga_cuda_charge(&ref, size);
    bool served = charged && ga_cuda_blocks_new_record(&record) && alloc_recorded(&ref, &record);
    if (served) {
        *out = (void *)(uintptr_t)record.start;
    } else {
        ga_cuda_blocks_free_record(&record);
        if (charged) {
            ga_cuda_uncharge(&ref, size);
        }
    }
    ga_cuda_release_current(&ref);
    return served;
}

static bool reserves(ga_cuda_device *d, CUdeviceptr address)
{
    /* relaxed: a hint; a heap of buffers is open only beside an open heap */
    if (__atomic_load_n(&d->state, __ATOMIC_RELAXED) != OPEN) {
        return false;
    }
    pthread_rwlock_rdlock(&d->lock);
    bool reserved = d->buffers && d->buffers->backend->reserves(d->buffers->state,
                                                                (const void *)(uintptr_t)address);
    pthread_rwlock_unlock(&d->lock);
    return reserved;
}

bool ga_cuda_buffers_reserve(CUdeviceptr address)
{
    bool reserved = false;
    /* relaxed: the thread that asks about a block's address was ordered after its allocation */
    bool any = __atomic_load_n(&any_open, __ATOMIC_RELAXED);
    for (int i = 0; any && !reserved && i < GA_CUDA_DEVICES; i++) {
        reserved = reserves(ga_cuda_device_of(i), address);
    }
    return reserved;
}

CUresult ga_cuda_buffers_free(const void *block)
{
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)block;
    ga_cuda_block found;
    if (ga_cuda_blocks_remove(&ga_cuda_buffers, start, &found)) {
        return ga_cuda_heap_free(&found, NULL);
    }
    return ga_cuda_buffers_reserve(start) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

void ga_cuda_buffers_close(ga_cuda_device *d, int ordinal)
{
    ga_cuda_block block;
    while (ga_cuda_blocks_remove_of(&ga_cuda_buffers, ordinal, &block)) {
        ga_free(d->buffers, (void *)(uintptr_t)block.start);
    }
    if (d->buffers) {
        ga_heap_close(d->buffers);
    }
    d->buffers = NULL;
    d->buffers_refused = false;
}
