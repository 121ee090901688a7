/* SPDX-License-Identifier: MIT
 *
 * Fences: how far a stream must come before memory that was freed on it is free for others too. A
 * fence is an event of the driver; events are kept and used again until the heap closes.
 *
 * A fence belongs to the memory that it was put for, which drops it; what is cut in two shares it.
 * Not thread safe: the heap's lock, but for ga_vmm_fences_wait(), which wants it not held.
 */
#ifndef GPUALLOC_ARENA_VMM_FENCES_H
#define GPUALLOC_ARENA_VMM_FENCES_H

#include "../platform/cuda_driver.h"
#include "vmm_list.h"

typedef struct ga_vmm_fence {
    ga_vmm_link link; /* among those that are waited for, or the spare ones */
    CUevent event;
    ga_stream stream;
    bool done;
    uint64_t round; /* in which it was found not to be */
    uint32_t uses;  /* by pieces of memory: it is spare when the last drops it */
} ga_vmm_fence;

typedef struct ga_vmm_fences {
    int device;
    const ga_cuda_driver *driver; /* and the device's context, once a fence was put */
    CUcontext context;
    uint64_t round;
    ga_vmm_link waiting; /* in the order they were put; none of them is known to be done */
    ga_vmm_link spare;
} ga_vmm_fences;

void ga_vmm_fences_open(ga_vmm_fences *fences, int device);

/* Waits for all of them; nobody uses a fence any more. */
void ga_vmm_fences_close(ga_vmm_fences *fences);

/* One behind all that is on `stream` now. The driver's error, or GA_ERR_MEMORY. */
ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out);

/* From here on the driver is asked again; within a round, once for each fence that is not done. */
static inline void ga_vmm_fences_new_round(ga_vmm_fences *fences)
{
    fences->round++;
}

/* Whether the stream has come that far. */
bool ga_vmm_fence_done(ga_vmm_fences *fences, ga_vmm_fence *fence);

/* Let `stream` wait for it; this thread does not. */
ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream);

/* For one more piece of memory. NULL stays NULL. */
static inline ga_vmm_fence *ga_vmm_fence_share(ga_vmm_fence *fence)
{
    if (fence) {
        fence->uses++;
    }
    return fence;
}

/* NULL is ignored. */
void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence);

/* The event of the oldest that is waited for; NULL: there is none. */
CUevent ga_vmm_fences_oldest(const ga_vmm_fences *fences);

/* Wait for an event of theirs, which may be in use again meanwhile: then for longer. */
ga_status ga_vmm_fences_wait(int device, CUevent event);

/* Note which are done, up to the first that is not. */
void ga_vmm_fences_look(ga_vmm_fences *fences);

#endif
