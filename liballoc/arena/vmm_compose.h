/* SPDX-License-Identifier: MIT
 *
 * Runs made of cached ones without a call of the driver: those that stand one behind the other are
 * joined, and what is too much is cut off where a chunk ends (on the host, anywhere).
 *
 *     cached    | run | run       |    ->    | run        | run |
 *     chunks    |     |      |    |          live          cached
 *
 * For the pool (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_COMPOSE_H
#define GPUALLOC_ARENA_VMM_COMPOSE_H

#include "vmm_pool.h"

/* What is wanted of a cached run. */
typedef struct ga_vmm_want {
    uint64_t size, align;
    const ga_stream *stream; /* NULL: for anybody */
    bool waiting;            /* those too that the stream would have to wait for */
} ga_vmm_want;

/* Whether the run can be handed out so. What the very stream freed needs no waiting. */
static inline bool ga_vmm_is_ready(ga_vmm_pool *pool, const ga_vmm_run *run, const ga_vmm_want *w)
{
    return !run->fence || (w->stream && (w->waiting || run->fence->stream == *w->stream)) ||
           ga_vmm_fence_done(&pool->fences, run->fence);
}

/* A run of that size or up to 1/32 more, or up to 1/8 more as long as live runs have no more than a
 * 48th of the pool's peak that they were not taken for. It is cached, to be handed out at once, to
 * the stream that was wanted: that waits already for what was to be waited for. What was cut off is
 * cached with the fence that it had. NULL: there is none. */
ga_vmm_run *ga_vmm_compose(ga_vmm_pool *pool, const ga_vmm_want *want);

#endif
