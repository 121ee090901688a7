/* SPDX-License-Identifier: MIT
 *
 * Where a run could stand: a window of addresses that nobody uses, over free chunks and over holes.
 * The holes would have to be mapped; chunks are whole, so that only its end may be too far.
 *
 *     wall | live | chunk | chunk  | hole | chunk | live
 *                         |<-- window --->|
 *
 * For the pool (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_SEARCH_H
#define GPUALLOC_ARENA_VMM_SEARCH_H

#include "vmm_pool.h"

/* What is wanted. */
typedef struct ga_vmm_want {
    uint64_t size, align;
    const ga_stream *stream; /* NULL: for anybody */
    bool waiting;            /* chunks too that the stream would have to wait for */
    uint64_t waste;          /* the most bytes too many */
    uint64_t room;           /* bytes that may be mapped before others must be unmapped for it */
} ga_vmm_want;

typedef struct ga_vmm_window {
    ga_vmm_chunk *below; /* the chunk or wall before it, with nothing but a hole between */
    uintptr_t base, end;
    uint64_t fill; /* bytes of it that have no memory yet */
} ga_vmm_window;

/* Whether what the fence is for can be handed out so. What the very stream freed needs no wait. */
static inline bool ga_vmm_is_ready(ga_vmm_pool *pool, ga_vmm_fence *fence, const ga_vmm_want *w)
{
    return !fence || (w->stream && (w->waiting || fence->stream == *w->stream)) ||
           ga_vmm_fence_done(&pool->fences, fence);
}

/* The cheapest: by the time that the driver would take, by what it would waste, and by how it would
 * break up what is free. False: there is none. */
bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_want *want, ga_vmm_window *out);

#endif
