/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  chunks in the order of addresses (vmm_addresses.h). A run is a row of chunks without
 *            holes; it is live, with whoever took it, or was freed and is still whole. Other chunks
 *            are free by themselves.
 *
 *     live      | run           |               | run   |
 *     whole yet                         | run   |
 *     chunks    | chunk | chunk | chunk | chunk | chunk | chunk | hole
 *
 * INVARIANT  a chunk is never of two live runs, and held = the bytes of all chunks; so whatever no
 *            live run has can be unmapped and be mapped elsewhere, and no memory is lost to the
 *            sizes of runs that were
 * PROGRESS   under the heap's lock, as everything here. A run of the very size that is whole yet is
 *            found at once; else free chunks side by side serve (vmm_search.h) without a call of
 *            the driver, or the holes between them are mapped. Where more would be held than may
 *            be, free chunks are unmapped first: large ones that are not soon wanted again. A
 *            program that repeats itself finds each place as it was (vmm_places.h).
 *
 * Sizes are bytes and multiples of the granule. A call that fails changes nothing but for free
 * memory that went to the driver in vain; should the driver not let what it has just mapped be
 * unmapped, that is free memory, and counted.
 */
#ifndef GPUALLOC_ARENA_VMM_POOL_H
#define GPUALLOC_ARENA_VMM_POOL_H

#include "vmm_addresses.h"
#include "vmm_fences.h"
#include "vmm_past.h"

enum {
    GA_VMM_BUCKETS = 1536 /* of runs that are whole yet: 32 sizes to each doubling of granules */
};

/* A 25th; half, as long as no more than 15/16 of all there is are held. */
#define GA_VMM_CACHE_AUTO UINT64_MAX
#define GA_VMM_CACHE_WIDE (UINT64_MAX - 1)

typedef struct ga_vmm_run {
    uintptr_t base;
    uint64_t size;              /* of its chunks */
    uint64_t wanted;            /* what it was taken for */
    uint64_t room;              /* live: addresses that are its own, from the base on */
    ga_vmm_link link;           /* live: among the live; else among those of its size */
    ga_vmm_chunk *first, *last; /* the same where it has one */
    bool live;                  /* else it was freed, and is whole yet */
    struct ga_vmm_sheet *sheet; /* live: how it is cut in units; NULL: it is one block */
} ga_vmm_run;

typedef struct ga_vmm_items ga_vmm_items; /* vmm_search.c */

typedef struct ga_vmm_pool {
    ga_space space;
    ga_vmm_addresses addresses;
    ga_vmm_fences fences;
    ga_vmm_past past;
    uint64_t limit;   /* bytes that may be held; UINT64_MAX: no limit */
    uint64_t cache;   /* bytes that may be free and held; or one of these: a share of the peak */
    uint64_t total;   /* bytes that there are at all */
    uint64_t chunk;   /* the largest chunk */
    uint64_t ceiling; /* bytes held when the driver last had no more; UINT64_MAX: it has had more */
    uint64_t live, held, growths; /* bytes of live runs, and of all chunks */
    uint64_t waste;               /* bytes that live runs have and were not taken for */
    uint64_t clock;               /* runs given so far */
    uint64_t now;                 /* milliseconds: when the call began that is under way */
    uint64_t decay;               /* free memory goes after so many; UINT64_MAX: never */
    uint64_t peak;                /* the most that live runs were taken for at once, with what
                                     streams still used when more had to be mapped */
    ga_vmm_link loose;            /* chunks without addresses (vmm_chunks.h), and their bytes */
    uint64_t loose_bytes;
    ga_vmm_link lives;
    ga_vmm_link ages;                    /* free chunks, in the order in which they were freed */
    ga_vmm_link buckets[GA_VMM_BUCKETS]; /* by what they were taken for */
    ga_vmm_chunk *tree; /* the root of all chunks (vmm_tree.h), how many are in it, and those whose
                           figures are to be made anew */
    size_t placed;
    ga_vmm_link stale;
    ga_vmm_items *items; /* room for a span; NULL before the first search */
} ga_vmm_pool;

/* With limit, cache, total, chunk and an open space in it already, the rest zeros. */
ga_status ga_vmm_pool_open(ga_vmm_pool *pool, uint64_t reserve);

/* All runs, live ones too, once what streams have left to do with free chunks is done. */
void ga_vmm_pool_close(ga_vmm_pool *pool);

/* A run of `size` bytes at a multiple of `align`, for work on *stream, or for anybody where
 * `stream` is NULL. It may be larger: by 1/32, or by more as long as all live runs together have no
 * more than 1/28 of the peak too much. Waits for nothing: where only what other streams may still
 * be using is left, *stream is made to wait.
 *
 * GA_ERR_MEMORY  above the limit, or the driver has none. Later there may be: see
 *                ga_vmm_fences_oldest() */
ga_status ga_vmm_pool_take(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                           const ga_stream *stream, ga_vmm_run **out);

/* A live run, with a fence for whoever may be using it yet, or NULL. Cannot fail. */
void ga_vmm_pool_give(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence);

/* Make a live run as large as `size` where it stands. GA_ERR_NO_ROOM: other addresses follow. */
ga_status ga_vmm_pool_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Make a live run shorter where it stands, to `size` bytes or a chunk's end above. What is cut off
 * is free, and must not be in use any more. Answers the bytes of it. */
uint64_t ga_vmm_pool_shrink(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Set `now`, by a coarse clock: it costs no system call and is a few milliseconds late. */
void ga_vmm_pool_look_at_clock(ga_vmm_pool *pool);

/* Bytes held beyond what cache= allows. */
uint64_t ga_vmm_pool_excess(const ga_vmm_pool *pool);

/* The live run that the byte lies in, or NULL. */
ga_vmm_run *ga_vmm_pool_find(const ga_vmm_pool *pool, const void *pointer);

/* Whether nobody else may have it. */
static inline bool ga_vmm_is_taken(const ga_vmm_chunk *chunk)
{
    return chunk->wall || (chunk->run && chunk->run->live);
}

/* Bytes held, without those that are on their way to a hole. */
static inline uint64_t ga_vmm_settled(const ga_vmm_pool *pool)
{
    return pool->held - pool->loose_bytes;
}

static inline uint64_t ga_vmm_pool_up(const ga_vmm_pool *pool, uint64_t size)
{
    return (size + pool->space.granule - 1) / pool->space.granule * pool->space.granule;
}

#endif
