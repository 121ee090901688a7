/* SPDX-License-Identifier: MIT
 *
 * Fences: the point that a stream must reach before memory freed on it may serve other streams. A
 * fence is a driver event. Events are recycled until the heap closes.
 *
 * A fence is referenced by the memory that it was put for, and dropped with it; a chunk that is
 * split shares it. Not thread safe: callers hold the heap's lock, except in ga_vmm_fences_wait(),
 * where they must not hold it.
 *
 * Batched fences. The legacy default stream (NULL) lives as long as its context, so work on it
 * needs no wait for memory that was freed on it. Therefore its events are recorded late: one for up
 * to GA_VMM_FENCE_BATCH frees, or when another stream asks. Its fences complete in order, so that
 * one incomplete fence answers for all later ones. Fences of all streams of the context together
 * (GA_EVERY_STREAM) are batched in the same way, but every request has to wait for them. If the
 * driver has no context events, they are replaced by fences of the legacy stream.
 */
#ifndef GPUALLOC_VMM_FENCES_H
#define GPUALLOC_VMM_FENCES_H

#include "../../platform/cuda_driver.h"
#include "list.h"
#include <gpualloc/backend.h>

enum {
    GA_VMM_FENCE_BATCH = 16 /* most frees behind one batched event */
};

static inline bool ga_vmm_is_batched(ga_stream stream)
{
    return !stream || stream == GA_EVERY_STREAM;
}

typedef struct ga_vmm_fence {
    ga_vmm_link link; /* in the ring of pending, batched or spare fences; else alone */
    CUevent event;
    ga_stream stream;
    bool done;
    bool recorded;  /* false: the open fence, which still accepts frees */
    uint64_t round; /* the last query round in which it was not done */
    uint32_t frees; /* frees behind it */
    /* Chunks and units that refer to it; it becomes spare with the last. */
    uint32_t references;
    uint64_t bytes; /* bytes of runs behind it */
} ga_vmm_fence;

typedef struct ga_vmm_fences {
    int device;
    const ga_cuda_driver *driver; /* driver and context are set with the first fence */
    CUcontext context;
    uint64_t round;
    /* The last query round in which the oldest batched fence was not done. */
    uint64_t batched_round;
    uint64_t bytes; /* bytes of runs behind fences that are not known to be done */
    /* Pending fences in the order they were put; none is known to be done. */
    ga_vmm_link waiting;
    ga_vmm_link batched; /* pending batched fences, in the order they were put */
    ga_vmm_fence *open;  /* the newest batched fence, if it is not recorded yet; else NULL */
    ga_vmm_link spare;
    bool batched_used, every_used;
    bool no_every; /* the driver has no events for a context */
} ga_vmm_fences;

void ga_vmm_fences_open(ga_vmm_fences *fences, int device);

/* Waits for all fences. No memory may refer to one any more. */
void ga_vmm_fences_close(ga_vmm_fences *fences);

/* Put a fence behind all work that is on `stream` now. Fails with the driver's error or
 * GA_ERR_MEMORY. */
ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out);

/* Account `bytes` bytes of a run to the fence. NULL is ignored. */
static inline void ga_vmm_fence_cover(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes)
{
    if (fence) {
        fence->bytes += bytes;
        fences->bytes += bytes; /* a new fence is not done */
    }
}

/* Begin a query round. In each round the driver is queried at most once per fence that is not
 * done. */
static inline void ga_vmm_fences_new_round(ga_vmm_fences *fences)
{
    fences->round++;
}

/* True if the stream has passed the fence. ga_vmm_fence_query() asks the driver, for a fence that
 * is not known to be done and was not queried in this round. */
bool ga_vmm_fence_query(ga_vmm_fences *fences, ga_vmm_fence *fence);

static inline bool ga_vmm_fence_done(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    uint64_t asked = ga_vmm_is_batched(fence->stream) ? fences->batched_round : fence->round;
    return fence->done || (asked != fences->round && ga_vmm_fence_query(fences, fence));
}

/* Make `stream` wait for the fence; the calling thread does not wait. Nothing is needed if both are
 * the legacy stream. */
ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream);

/* One more reference. NULL stays NULL. */
static inline ga_vmm_fence *ga_vmm_fence_share(ga_vmm_fence *fence)
{
    if (fence) {
        fence->references++;
    }
    return fence;
}

/* Drop one reference, and the `bytes` bytes accounted with it. NULL is ignored. */
void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes);

/* Number of pending fences, batched ones included. */
size_t ga_vmm_fences_count(const ga_vmm_fences *fences);

/* The event of the oldest pending fence, other streams before the batched ones. NULL: none, or the
 * driver fails to record it. */
CUevent ga_vmm_fences_oldest(ga_vmm_fences *fences);

/* Wait for the event. If it is recycled and recorded again during the wait, the wait lasts
 * longer. */
ga_status ga_vmm_fences_wait(int device, CUevent event);

/* Query the pending fences in order, and mark those that are done, up to the first that is not:
 * once for the batched ones, once for the others. */
void ga_vmm_fences_poll(ga_vmm_fences *fences);

#endif
