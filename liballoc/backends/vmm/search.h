/* SPDX-License-Identifier: MIT
 *
 * Search for the window of addresses where a new run costs least. A window consists of free chunks
 * and holes. Holes have to be mapped. Chunks are used whole, so a window that ends in a chunk may
 * be larger than requested.
 *
 *     wall | live | chunk | chunk  | hole | chunk | live
 *                         |<-- window --->|
 *
 * Used by the pool (pool.h) under the heap's lock.
 */
#ifndef GPUALLOC_VMM_SEARCH_H
#define GPUALLOC_VMM_SEARCH_H

#include "pool.h"

typedef struct ga_vmm_request {
    uint64_t size, align;
    const ga_stream *stream; /* NULL: for any use */
    bool waiting;            /* also accept chunks for which the stream would have to wait */
    uint64_t waste;          /* most bytes by which the run may exceed `size` */
    uint64_t room; /* bytes that may be mapped before free chunks have to be evicted for it */
} ga_vmm_request;

typedef struct ga_vmm_window {
    ga_vmm_chunk *below; /* the chunk or wall before the window; at most a hole is between them */
    uintptr_t base, end;
    uint64_t fill; /* bytes of the window's holes */
} ga_vmm_window;

/* True if memory behind the fence can serve the request now. Memory that the request's own stream
 * freed needs no wait. */
static inline bool ga_vmm_is_ready(ga_vmm_pool *pool, ga_vmm_fence *fence, const ga_vmm_request *w)
{
    return !fence || (w->stream && (w->waiting || fence->stream == *w->stream)) ||
           ga_vmm_fence_done(&pool->fences, fence);
}

/* Find the window with the least cost: driver time, wasted bytes, and fragmentation of the free
 * chunks. Returns false if there is none. */
bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_request *request, ga_vmm_window *out);

#endif
