/* SPDX-License-Identifier: MIT
 *
 * The addresses of a vmm heap, reserved in large ranges, and the chunks mapped in them, in the
 * order of addresses. Nothing is mapped here.
 *
 *     wall | chunk | chunk | hole | chunk | hole ...           | wall
 *
 * A hole is a range of reserved addresses that is not mapped. Walls stand for all addresses outside
 * the reservations, so that the addresses between two neighbours always belong to the heap. Sizes
 * are bytes and multiples of the space's granule. Not thread safe: callers hold the heap's lock.
 */
#ifndef GPUALLOC_VMM_ADDRESSES_H
#define GPUALLOC_VMM_ADDRESSES_H

#include "../../arena/space.h"
#include "list.h"

struct ga_vmm_chunk;

/* Summary of the extents of one kind (tree.h) in a subtree, as in a segment tree. */
typedef struct ga_vmm_summary {
    /* Bytes of the extent at the subtree's beginning, and at its end. */
    uint64_t prefix, suffix;
    uint64_t largest; /* bytes of the largest extent, prefix and suffix included */
    bool whole;       /* the subtree is a single extent */
} ga_vmm_summary;

/* The tree node of a chunk, with the summaries of its subtree (tree.h). */
typedef struct ga_vmm_node {
    struct ga_vmm_chunk *up, *left, *right;
    ga_vmm_link stale;            /* in the pool's list of out-of-date summaries; else alone */
    ga_vmm_summary mapped, spans; /* summaries of the subtree */
    uint64_t hole;                /* bytes of the largest hole before any chunk of the subtree */
    uint64_t rank;                /* at least the ranks of its children */
    bool placed;                  /* the chunk is in the tree */
} ga_vmm_node;

/* One driver mapping, or a wall. */
typedef struct ga_vmm_chunk {
    ga_vmm_link link; /* in the ring of all chunks and walls, in the order of addresses */
    ga_vmm_link age;  /* free: in the pool's list by age; else alone */
    uintptr_t base;
    uint64_t size;
    uint64_t handle;     /* of its memory; the driver's */
    bool wall, fresh;    /* fresh: mapped by the current call */
    uint64_t freed;      /* the pool's clock at the free */
    uint64_t idle_since; /* and the pool's `now`, in milliseconds */
    /* Placements (history.h): its last one, and the one that this repeated. */
    uint64_t position, matched;
    ga_vmm_node node;
    /* The run that contains it (pool.h); NULL: free and in no run. */
    struct ga_vmm_run *run;
    struct ga_vmm_fence *fence; /* free: the work that may still use it; NULL: none */
} ga_vmm_chunk;

typedef struct ga_vmm_range ga_vmm_range; /* one reservation */

typedef struct ga_vmm_addresses {
    ga_space *space;
    uint64_t reserve; /* bytes of the next reservation */
    bool grows;       /* the reservations double in size */
    ga_vmm_range *ranges;
    size_t range_count;
    ga_vmm_link chunks; /* and walls: one before all, one behind all, one after each range */
    size_t count;       /* of chunks and walls */
} ga_vmm_addresses;

static inline ga_vmm_chunk *ga_vmm_chunk_of(const ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_chunk, link);
}

/* The next chunk or wall. Not for the last wall. */
static inline ga_vmm_chunk *ga_vmm_chunk_after(const ga_vmm_chunk *chunk)
{
    return ga_vmm_chunk_of(chunk->link.after);
}

static inline uintptr_t ga_vmm_chunk_end(const ga_vmm_chunk *chunk)
{
    return chunk->base + chunk->size;
}

/* Make the first reservation, of `reserve` bytes. If the system refuses, halve it, down to 16 MiB;
 * GA_ERR_MEMORY below that. With `reserve` 0 the first reservation has 64 MiB and each further one
 * twice as many bytes: the process may set a limit on its addresses later, and keeps the rest for
 * other uses. */
ga_status ga_vmm_addresses_open(ga_vmm_addresses *addresses, ga_space *space, uint64_t reserve);

/* There must be no chunks. */
void ga_vmm_addresses_close(ga_vmm_addresses *addresses);

/* Make one more reservation of at least `least` bytes. GA_ERR_MEMORY if the system refuses. */
ga_status ga_vmm_addresses_reserve(ga_vmm_addresses *addresses, uint64_t least);

/* Insert a chunk that lies in the hole behind `below`. Returns false if there is no memory for its
 * directory entries. */
bool ga_vmm_addresses_insert(ga_vmm_addresses *addresses, ga_vmm_chunk *below, ga_vmm_chunk *chunk);

/* Split a chunk: `rest`, whose base and size the caller has set, becomes its end. Returns false if
 * out of memory; the chunk is unchanged then. */
bool ga_vmm_addresses_split(ga_vmm_addresses *addresses, ga_vmm_chunk *chunk, ga_vmm_chunk *rest);

void ga_vmm_addresses_remove(ga_vmm_addresses *addresses, ga_vmm_chunk *chunk);

/* The chunk that contains the address, or NULL. Any pointer is valid. */
ga_vmm_chunk *ga_vmm_addresses_find(const ga_vmm_addresses *addresses, const void *pointer);

/* True if the address lies in a reservation, mapped or not. */
bool ga_vmm_addresses_has(const ga_vmm_addresses *addresses, const void *pointer);

#endif
