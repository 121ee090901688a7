/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  runs: addresses with memory mapped behind all of them, by one chunk or several, shared
 *            with no other run. One is live, with whoever took it, or cached as it is.
 *
 *     live      | run        |   | run |
 *     cached                 | run |      by size, and in the order they were given
 *
 * INVARIANT  held = the bytes of all runs; a cached run may be given to the driver, so that no
 *            memory is ever lost to the sizes of runs that were
 * PROGRESS   under the heap's lock, as everything here. A cached run of the size needs no call of
 *            the driver; what is missing is taken from it, and cached runs that nobody wanted for
 *            longest go back to it first where more would be held than may be.
 *
 * A chunk's handle is given back as soon as it is mapped: the mapping alone keeps the memory.
 * Sizes are bytes and multiples of the granule. A call that fails changes nothing, as far as the
 * driver lets what it has just mapped be unmapped: otherwise that is cached, and counted.
 */
#ifndef GPUALLOC_ARENA_VMM_POOL_H
#define GPUALLOC_ARENA_VMM_POOL_H

#include "vmm_addresses.h"
#include "vmm_fences.h"

enum {
    GA_VMM_BUCKETS = 1536 /* of cached runs: 32 sizes to each doubling of granules */
};

typedef struct ga_vmm_run {
    uintptr_t base;
    uint64_t size;              /* mapped */
    uint64_t room;              /* addresses, from the base on */
    ga_vmm_link link;           /* among the live or the cached ones */
    ga_vmm_link bucket;         /* cached: among those of its size */
    ga_vmm_fence *fence;        /* cached: who may be using it yet; NULL: nobody */
    uint64_t waste;             /* live: bytes that it was not taken for */
    bool live;                  /* else cached */
    struct ga_vmm_sheet *sheet; /* live: how it is cut in units; NULL: it is one block */
} ga_vmm_run;

typedef struct ga_vmm_pool {
    ga_space space;
    ga_vmm_addresses addresses;
    ga_vmm_fences fences;
    uint64_t limit; /* bytes that may be held; UINT64_MAX: no limit */
    uint64_t cache; /* bytes that may be cached; UINT64_MAX: a share of the highest `live` */
    uint64_t chunk; /* the largest chunk */
    uint64_t live, held, peak, growths; /* bytes of live runs and of all; the highest live */
    uint64_t waste;                     /* bytes that live runs have and were not taken for */
    ga_vmm_link lives, cached;          /* cached: those given first come first */
    ga_vmm_link buckets[GA_VMM_BUCKETS];
} ga_vmm_pool;

/* With limit, cache, chunk and an open space in it already, the rest zeros. */
ga_status ga_vmm_pool_open(ga_vmm_pool *pool, uint64_t reserve);

/* All runs, live ones too, once what streams have left to do with cached ones is done. */
void ga_vmm_pool_close(ga_vmm_pool *pool);

/* A run of `size` bytes or up to 1/32 more (ga_vmm_compose() has up to 1/8), at a multiple of
 * `align`, for work on *stream, or for anybody where `stream` is NULL. Waits for nothing: where
 * only what other streams may still be using is left, *stream is made to wait.
 *
 * GA_ERR_MEMORY  above the limit, or the driver has none. Later there may be: see
 *                ga_vmm_fences_oldest() */
ga_status ga_vmm_pool_take(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                           const ga_stream *stream, ga_vmm_run **out);

/* Put a run that is not live, or has another size now, among the cached ones; for vmm_compose.c. */
void ga_vmm_pool_cache(ga_vmm_pool *pool, ga_vmm_run *run);

/* A live run, with a fence for whoever may be using it yet, or NULL. Cannot fail. */
void ga_vmm_pool_give(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence);

/* Make a live run as large as `size` where it stands. GA_ERR_NO_ROOM: other addresses follow. */
ga_status ga_vmm_pool_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Give cached runs that nobody uses to the driver, until no more than `keep` bytes are cached. */
void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep);

/* The live run that the byte lies in, or NULL. */
ga_vmm_run *ga_vmm_pool_find(const ga_vmm_pool *pool, const void *pointer);

static inline uint64_t ga_vmm_pool_up(const ga_vmm_pool *pool, uint64_t size)
{
    return (size + pool->space.granule - 1) / pool->space.granule * pool->space.granule;
}

#endif
