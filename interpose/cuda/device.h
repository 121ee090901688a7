/* SPDX-License-Identifier: MIT
 *
 * A device's record, shared by served.c and limits.c.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_DEVICE_H
#define GPUALLOC_INTERPOSE_CUDA_DEVICE_H

#include "served.h"
#include "settings.h"

#include <pthread.h>

enum {
    CLOSED = 0,
    OPEN,
    REFUSED
};

struct ga_cuda_device {
    pthread_rwlock_t lock;
    int state;
    ga_heap *heap;
    ga_heap *buffers; /* of ncclMemAlloc() (buffers.h); NULL: not open */
    bool buffers_refused;
    unsigned generation;
    size_t align;           /* of blocks without a stream; 0: the heap's own */
    bool driver_owned;      /* GA_CAP_DRIVER_BLOCKS: the driver frees blocks under their address */
    bool mapped;            /* the lowest layer maps all its memory itself */
    bool can_export;        /* and can export it to other processes */
    bool stream_ordered;    /* the heap frees and allocates in stream order */
    bool free_waits;        /* GA_CAP_FREE_WAITS: a free without a stream waits for the device */
    bool thread_stream;     /* GA_CAP_THREAD_STREAM */
    bool every_stream;      /* GA_CAP_EVERY_STREAM */
    bool peers_refused;     /* peers need access to the heap's memory, and it cannot give it */
    uint64_t peers;         /* bit i: device i has access to this one's memory */
    uint64_t used;          /* bytes counted against the limit; relaxed: a figure */
    uint64_t cached_before; /* bytes cached when the first capture began. Relaxed */
    CUmemoryPool pool;      /* the program's current pool; NULL: the default pool. Relaxed */
    uint64_t stream_bytes, stream_bytes_high; /* bytes of blocks requested with a stream. Relaxed */
    uint64_t reserved_high;  /* the highest sum of these and of caches at a query */
    uint64_t beyond_context; /* part of `used` that stays when the context is destroyed */
};

/* The settings in GPUALLOC_DEVICE; written before a device is first acquired. */
extern ga_cuda_settings ga_cuda_active_settings;

ga_cuda_device *ga_cuda_device_of(int ordinal);

/* Let the device's peers, and all devices that have a heap, access the memory of a new heap of the
 * device, as far as that is possible. With the device's lock held exclusively. */
void ga_cuda_open_to_peers(const ga_cuda_device *d, const ga_heap *heap);

/* Take back bytes of a block that was freed, or not allocated. */
void ga_cuda_uncharge_device(ga_cuda_device *d, uint64_t size);

/* Count bytes to be allocated against the limit. False: the limit forbids it. */
bool ga_cuda_charge_device(ga_cuda_device *d, uint64_t size);

#endif
