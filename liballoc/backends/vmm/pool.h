/* SPDX-License-Identifier: MIT
 *
 * The pool of a vmm heap: runs of chunks, allocated, freed, extended and shrunk.
 *
 * STRUCTURE  chunks in the order of addresses (addresses.h). A run is a sequence of adjacent
 *            chunks without holes. It is live (allocated), or intact: freed, and not yet broken up.
 *            Other free chunks belong to no run.
 *
 *     live      | run           |               | run   |
 *     intact                            | run   |
 *     chunks    | chunk | chunk | chunk | chunk | chunk | chunk | chunk | hole
 *
 * INVARIANT  a chunk belongs to at most one live run, and held = the bytes of all chunks. So every
 *            chunk outside live runs can be unmapped and its memory mapped elsewhere: the sizes of
 *            earlier runs fragment addresses, but lose no memory.
 * PROGRESS   under the heap's lock, as everything here. An allocation tries, in this order:
 *
 *              1. replay: the addresses that the repeated request had (replay.h)
 *              2. an intact run of the requested size
 *              3. any earlier placement of this size and stream (replay.h)
 *              4. search (search.h): adjacent free chunks, without a driver call,
 *              5. or free chunks and holes, whose holes are then mapped (chunks.h)
 *
 *            If step 5 would hold more bytes than the bound, free chunks are evicted first: large
 *            ones that are not needed soon (purge.h).
 *
 * Sizes are bytes and multiples of the granule. A call that fails changes nothing, except that free
 * memory may have been released to the driver. If the driver refuses to unmap new memory, that
 * memory stays as a free chunk and is counted.
 */
#ifndef GPUALLOC_VMM_POOL_H
#define GPUALLOC_VMM_POOL_H

#include "addresses.h"
#include "fences.h"
#include "history.h"

enum {
    GA_VMM_SIZE_BUCKETS = 1536 /* of intact runs: 32 sizes per doubling of granules */
};

/* Values of `cache`. AUTO: at most peak + peak/25 bytes are held. WIDE: at most peak + peak/2, but
 * no more than 15/16 of the total unless AUTO allows it. */
#define GA_VMM_CACHE_AUTO UINT64_MAX
#define GA_VMM_CACHE_WIDE (UINT64_MAX - 1)

typedef struct ga_vmm_run {
    uintptr_t base;
    uint64_t size;      /* bytes of its chunks */
    uint64_t requested; /* bytes that the caller asked for */
    uint64_t room;      /* live: bytes of addresses reserved for it, from the base on */
    ga_vmm_link link;   /* live: in live_runs; intact: in the bucket of its requested size */
    ga_vmm_chunk *first, *last; /* equal if it has one chunk */
    bool live;                  /* false: freed and intact */
    struct ga_vmm_sheet *sheet; /* live: its units; NULL: one block */
} ga_vmm_run;

typedef struct ga_vmm_search_items ga_vmm_search_items; /* search.c */

typedef struct ga_vmm_pool {
    ga_space space;
    ga_vmm_addresses addresses;
    ga_vmm_fences fences;
    ga_vmm_history history;
    uint64_t limit; /* most bytes that may be held; UINT64_MAX: no limit */
    /* Most bytes that may be held and free; or GA_VMM_CACHE_AUTO, GA_VMM_CACHE_WIDE. */
    uint64_t cache;
    uint64_t total; /* bytes of memory that the device or host has */
    uint64_t chunk; /* bytes of the largest chunk */
    /* register=on: each run is one chunk of exactly its size. So a library that asks the driver for
     * the allocation behind a block gets the block, whatever the heap did before. */
    bool whole;
    /* Bytes held when the driver last ran out of memory; UINT64_MAX: it has had more since. */
    uint64_t ceiling;
    uint64_t live, held, growths; /* bytes of live runs; bytes of all chunks; number of growths */
    uint64_t waste;               /* bytes of live runs beyond the requested bytes */
    uint64_t clock;               /* runs freed so far */
    uint64_t now;                 /* milliseconds: start of the current call, by the coarse clock */
    uint64_t decay; /* milliseconds after which free memory is released; UINT64_MAX: never */
    /* Most bytes requested by live runs at once, plus the bytes that streams still used when more
     * had to be mapped. */
    uint64_t peak;
    ga_vmm_link detached; /* chunks that have memory but no addresses (chunks.h) */
    uint64_t detached_bytes;
    ga_vmm_link live_runs;
    ga_vmm_link free_by_age;                  /* free chunks, longest free first */
    ga_vmm_link buckets[GA_VMM_SIZE_BUCKETS]; /* intact runs, by requested size */
    ga_vmm_chunk *tree;                       /* root of all chunks (tree.h) */
    size_t placed;                            /* chunks and walls in the tree */
    ga_vmm_link stale;                        /* chunks whose summaries are out of date */
    ga_vmm_search_items *items; /* buffer for one span; NULL before the first search */
} ga_vmm_pool;

/* Expects limit, cache, total, chunk and an open space to be set, and zeros elsewhere. */
ga_status ga_vmm_pool_open(ga_vmm_pool *pool, uint64_t reserve);

/* Release all runs, live ones included. Waits for the streams that still use free chunks. */
void ga_vmm_pool_close(ga_vmm_pool *pool);

/* Allocate a run of `size` bytes at a multiple of `align`, for work on *stream, or for any use if
 * `stream` is NULL. The run may be larger than requested: by 1/32, or by more while the waste of
 * all live runs is at most 1/28 of the peak. Never blocks. If only memory that other streams still
 * use is left, *stream is made to wait for them.
 *
 * GA_ERR_MEMORY  above the limit, or the driver is out of memory. A retry may succeed after waiting
 *                for ga_vmm_fences_oldest(). */
ga_status ga_vmm_pool_allocate(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                               const ga_stream *stream, ga_vmm_run **out);

/* Free a live run. `fence`: the work that may still use it, or NULL. Cannot fail. */
void ga_vmm_pool_free(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence);

/* Extend a live run in place to `size` bytes. GA_ERR_CANNOT_GROW: the addresses behind it are in
 * use. */
ga_status ga_vmm_pool_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Shrink a live run in place, to `size` bytes rounded up to a chunk's end. The rest becomes free
 * and must not be in use any more. Returns the bytes that became free. */
uint64_t ga_vmm_pool_shrink(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Set `now` from the coarse clock, which needs no system call and is a few milliseconds late. */
void ga_vmm_pool_read_clock(ga_vmm_pool *pool);

/* Bytes held beyond the bound that cache= sets. */
uint64_t ga_vmm_pool_excess(const ga_vmm_pool *pool);

/* The live run that contains the byte, or NULL. */
ga_vmm_run *ga_vmm_pool_find(const ga_vmm_pool *pool, const void *pointer);

/* True for walls and for chunks of live runs. */
static inline bool ga_vmm_is_occupied(const ga_vmm_chunk *chunk)
{
    return chunk->wall || (chunk->run && chunk->run->live);
}

/* Bytes held, without detached chunks. */
static inline uint64_t ga_vmm_attached_bytes(const ga_vmm_pool *pool)
{
    return pool->held - pool->detached_bytes;
}

static inline uint64_t ga_vmm_pool_round_up(const ga_vmm_pool *pool, uint64_t size)
{
    return (size + pool->space.granule - 1) / pool->space.granule * pool->space.granule;
}

#endif
