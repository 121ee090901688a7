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

/* Tell the table that is searched of a chunk that was just put among the addresses. */
void ga_vmm_search_put(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Tell it of one that was just taken out. */
void ga_vmm_search_drop(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Tell it what the chunk is now: taken, or free with its fence; and where the addresses end that
 * nobody else may have. */
void ga_vmm_search_note(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uintptr_t end);

/* The free chunks in the order of addresses: the first for *at = 0, then those that follow, as long
 * as nothing changes. NULL: there are no more, or there is no memory to search. */
ga_vmm_chunk *ga_vmm_search_free(ga_vmm_pool *pool, size_t *at);

/* The cheapest: by the time that the driver would take, by what it would waste, and by how it would
 * break up what is free. False: there is none, or no memory to search. */
bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_want *want, ga_vmm_window *out);

#endif
