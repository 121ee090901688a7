/* SPDX-License-Identifier: MIT
 *
 * Fences: how far a stream must come before memory that was freed on it is free for others too. A
 * fence is an event of the driver; events are kept and used again until the heap closes.
 *
 * A fence belongs to the memory that it was put for, which drops it; what is cut in two shares it.
 * Not thread safe: the heap's lock, but for ga_vmm_fences_wait(), which wants it not held.
 *
 * The legacy default stream (NULL) is special, since it goes only with its context: work on it
 * needs no wait for what was freed on it. So its event is recorded later than it could be, for up
 * to GA_VMM_FENCE_BATCH frees together, or when somebody else asks whether it is done; and one
 * fence of its own that is not done says the same of all that were put later.
 *
 * All streams of the context together (GA_EVERY_STREAM) go only with it, too: theirs are late in
 * the same way. Nobody gets without a wait what was freed so. Where the driver has no event for a
 * context, they are the legacy stream's.
 */
#ifndef GPUALLOC_ARENA_VMM_FENCES_H
#define GPUALLOC_ARENA_VMM_FENCES_H

#include "../platform/cuda_driver.h"
#include "vmm_list.h"
#include <gpualloc/backend.h>

enum {
    GA_VMM_FENCE_BATCH = 16 /* late frees behind one event, at the most */
};

static inline bool ga_vmm_is_late(ga_stream stream)
{
    return !stream || stream == GA_EVERY_STREAM;
}

typedef struct ga_vmm_fence {
    ga_vmm_link link; /* among those that are waited for, or the spare ones */
    CUevent event;
    ga_stream stream;
    bool done;
    bool recorded;  /* else it is the open one, and is to be put behind more */
    uint64_t round; /* in which it was found not to be done */
    uint32_t puts;  /* frees that it stands for */
    uint32_t uses;  /* by pieces of memory: it is spare when the last drops it */
    uint64_t bytes; /* of runs that it keeps from others */
} ga_vmm_fence;

typedef struct ga_vmm_fences {
    int device;
    const ga_cuda_driver *driver; /* and the device's context, once a fence was put */
    CUcontext context;
    uint64_t round;
    uint64_t late_round; /* in which the oldest of `late` was found not to be done */
    uint64_t bytes;      /* of runs behind fences that are not known to be done */
    ga_vmm_link waiting; /* in the order they were put; none of them is known to be done */
    ga_vmm_link late;    /* the same, of the legacy stream's and all streams' alone */
    ga_vmm_fence *open;  /* the last of these, not recorded yet; NULL: there is none */
    ga_vmm_link spare;
    bool late_used, every_used;
    bool no_every; /* the driver has no event for a context */
} ga_vmm_fences;

void ga_vmm_fences_open(ga_vmm_fences *fences, int device);

/* Waits for all of them; nobody uses a fence any more. */
void ga_vmm_fences_close(ga_vmm_fences *fences);

/* One behind all that is on `stream` now. The driver's error, or GA_ERR_MEMORY. */
ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out);

/* So many bytes of a run are behind it. NULL: behind nothing. */
static inline void ga_vmm_fence_cover(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes)
{
    if (fence) {
        fence->bytes += bytes;
        fences->bytes += bytes; /* it was put just now */
    }
}

/* From here on the driver is asked again; within a round, once for each fence that is not done. */
static inline void ga_vmm_fences_new_round(ga_vmm_fences *fences)
{
    fences->round++;
}

/* Whether the stream has come that far; ga_vmm_fence_ask() for one that is not known to be done,
 * and was not asked after in this round. */
bool ga_vmm_fence_ask(ga_vmm_fences *fences, ga_vmm_fence *fence);

static inline bool ga_vmm_fence_done(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    uint64_t asked = ga_vmm_is_late(fence->stream) ? fences->late_round : fence->round;
    return fence->done || (asked != fences->round && ga_vmm_fence_ask(fences, fence));
}

/* Let `stream` wait for it; this thread does not. Nothing where both are the legacy stream. */
ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream);

/* For one more piece of memory. NULL stays NULL. */
static inline ga_vmm_fence *ga_vmm_fence_share(ga_vmm_fence *fence)
{
    if (fence) {
        fence->uses++;
    }
    return fence;
}

/* By one piece of memory, with the bytes that it covered. NULL is ignored. */
void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes);

/* How many are waited for. */
size_t ga_vmm_fences_count(const ga_vmm_fences *fences);

/* The event of the oldest that is waited for, of other streams first; NULL: there is none, or the
 * driver would not record it. */
CUevent ga_vmm_fences_oldest(ga_vmm_fences *fences);

/* Wait for an event of theirs, which may be in use again meanwhile: then for longer. */
ga_status ga_vmm_fences_wait(int device, CUevent event);

/* Note which are done, up to the first that is not: of the late ones, and of the others. */
void ga_vmm_fences_look(ga_vmm_fences *fences);

#endif
