/* SPDX-License-Identifier: MIT
 *
 * A device's record, between served.c and limits.c.
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
    unsigned generation;
    size_t align;       /* of blocks without a stream; 0: what the heap gives */
    bool drivers;       /* its blocks are the driver's allocations: GA_CAP_DRIVER_BLOCKS */
    bool mapped;        /* the lowest layer maps all its memory itself */
    bool shares;        /* and other processes may map it */
    bool streams;       /* it has stream order */
    bool waits;         /* a free without a stream waits for the device: GA_CAP_FREE_WAITS */
    bool thread_stream; /* GA_CAP_THREAD_STREAM */
    bool every;         /* GA_CAP_EVERY_STREAM */
    bool shared;        /* peers need access to its memory, and the heap cannot give it */
    uint64_t peers;     /* a bit for each of these devices */
    uint64_t used;      /* relaxed: a figure, within which a limit is kept */
    uint64_t
        cached_before; /* free bytes that the heap held when the first capture began; relaxed */
    CUmemoryPool pool; /* the program's, which is current; NULL: the default one. Relaxed */
    uint64_t streamed,
        streamed_high;      /* bytes of blocks that were asked for with a stream. Relaxed */
    uint64_t reserved_high; /* the most of these and of caches, when asked */
    uint64_t outside;       /* of these, what stays when the context goes */
};

/* What GPUALLOC_DEVICE says; written before the first visit. */
extern ga_cuda_settings ga_cuda_told;

/* Bytes of a block that goes. */
void ga_cuda_unuse(ga_cuda_device *d, uint64_t size);

/* Bytes that are to come. False: the limit forbids it. */
bool ga_cuda_reserve_for(ga_cuda_device *d, uint64_t size);

#endif
