/* SPDX-License-Identifier: MIT
 *
 * The addresses of a vmm heap, reserved a great many at a time, and the chunks that are mapped in
 * them, in the order of addresses. Nothing is mapped here.
 *
 *     wall | chunk | chunk | hole | chunk | hole ...           | wall
 *
 * Between one chunk and the next there may be a hole: addresses with nothing behind them. Walls
 * stand for the addresses that are not ours, so that what lies between two neighbours always is.
 * Sizes are bytes, multiples of the space's granule. Not thread safe: the heap's lock.
 */
#ifndef GPUALLOC_ARENA_VMM_ADDRESSES_H
#define GPUALLOC_ARENA_VMM_ADDRESSES_H

#include "space.h"
#include "vmm_list.h"

struct ga_vmm_chunk;

/* Adjacent stretches of some kind, as a part of the order of addresses has them. */
typedef struct ga_vmm_summary {
    uint64_t first, last; /* bytes of the one at the part's beginning, and at its end */
    uint64_t most;        /* of the largest, these included */
    bool whole;           /* the part is one stretch: nothing ends in it or begins */
} ga_vmm_summary;

/* A chunk's node of the tree, with the figures of its subtree (vmm_tree.h). */
typedef struct ga_vmm_node {
    struct ga_vmm_chunk *up, *left, *right;
    ga_vmm_link stale;          /* among the chunks whose figures are to be made anew; else alone */
    ga_vmm_summary rows, spans; /* of the subtree */
    uint64_t hole;              /* the largest before any chunk of the subtree */
    uint64_t rank;              /* no lower than those of its children */
    bool placed;                /* it is in the tree */
} ga_vmm_node;

/* One mapping of the driver's, or a wall. */
typedef struct ga_vmm_chunk {
    ga_vmm_link link; /* among all, in the order of addresses */
    ga_vmm_link age;  /* free: among the pool's free chunks; else alone */
    uintptr_t base;
    uint64_t size;
    uint64_t handle;            /* the driver's, of its memory */
    bool wall, fresh;           /* fresh: mapped by the call that is under way */
    uint64_t freed;             /* when that was: the pool's clock */
    uint64_t idle_since;        /* and in milliseconds: the pool's `now` */
    uint64_t position, matched; /* vmm_past.h: its last request, and what that was like */
    ga_vmm_node node;
    struct ga_vmm_run *run;     /* what it is a part of (vmm_pool.h); NULL: of nothing, and free */
    struct ga_vmm_fence *fence; /* free: who may be using it yet; NULL: nobody */
} ga_vmm_chunk;

typedef struct ga_vmm_range ga_vmm_range; /* one reservation */

typedef struct ga_vmm_addresses {
    ga_space *space;
    uint64_t reserve; /* bytes to reserve at a time, */
    bool grows;       /* and twice as many the next time */
    ga_vmm_range *ranges;
    size_t range_count;
    ga_vmm_link chunks; /* and walls: one first, one last, one after each range */
    size_t count;       /* of these */
} ga_vmm_addresses;

static inline ga_vmm_chunk *ga_vmm_chunk_of(const ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_chunk, link);
}

/* The one behind it; not of the last wall. */
static inline ga_vmm_chunk *ga_vmm_chunk_after(const ga_vmm_chunk *chunk)
{
    return ga_vmm_chunk_of(chunk->link.after);
}

static inline uintptr_t ga_vmm_chunk_end(const ga_vmm_chunk *chunk)
{
    return chunk->base + chunk->size;
}

/* The first reservation: of `reserve` bytes or, where the system refuses, half, and so on down to
 * 16 MiB. GA_ERR_MEMORY where there is not even that. 0: 64 MiB at first, and twice as many each
 * time: the process may be limited in its addresses later, and then has the others left. */
ga_status ga_vmm_addresses_open(ga_vmm_addresses *addresses, ga_space *space, uint64_t reserve);

/* Without chunks. */
void ga_vmm_addresses_close(ga_vmm_addresses *addresses);

/* One more reservation, of `least` bytes or more. GA_ERR_MEMORY where that is refused. */
ga_status ga_vmm_addresses_reserve(ga_vmm_addresses *addresses, uint64_t least);

/* Put a chunk that lies in the hole behind `below`. False: no memory to note where it is. */
bool ga_vmm_addresses_insert(ga_vmm_addresses *addresses, ga_vmm_chunk *below, ga_vmm_chunk *chunk);

/* Cut a chunk in two: `rest`, whose record says where it stands, is its end from then on. False: no
 * memory to note that; the chunk is as it was. */
bool ga_vmm_addresses_split(ga_vmm_addresses *addresses, ga_vmm_chunk *chunk, ga_vmm_chunk *rest);

void ga_vmm_addresses_remove(ga_vmm_addresses *addresses, ga_vmm_chunk *chunk);

/* The chunk that the byte lies in, any pointer; NULL: none. */
ga_vmm_chunk *ga_vmm_addresses_find(const ga_vmm_addresses *addresses, const void *pointer);

/* Whether the byte lies in a reservation, in a chunk or in a hole. */
bool ga_vmm_addresses_has(const ga_vmm_addresses *addresses, const void *pointer);

#endif
