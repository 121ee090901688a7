/* SPDX-License-Identifier: MIT
 *
 * What an arena is made of. Its chunks follow each other from the base on; ranges too, and each
 * chunk lies in one of them. On the host there is one range and at most one chunk, which changes
 * its size, since the kernel joins and divides what is mapped.
 *
 *     base                                   end                        base + reserved
 *     | chunk | chunk     | chunk            |  nothing                 |
 *     | range                                       | range (extended)  |
 *
 * Functions here and in chunks.c want the arena's lock.
 */
#ifndef GPUALLOC_ARENA_STATE_H
#define GPUALLOC_ARENA_STATE_H

#include "../platform/latency.h"
#include "space.h"

#include <pthread.h>

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_ARENA_MUTANT
#define GA_ARENA_MUTANT 0
#endif
#define GA_ARENA_WEAKEN(mutant, order) (GA_ARENA_MUTANT == (mutant) ? __ATOMIC_RELAXED : (order))

typedef struct ga_arena_chunk {
    uint64_t handle;      /* as ga_space_create() gave it */
    uint64_t start, size; /* bytes, from the base on */
} ga_arena_chunk;

typedef struct ga_arena_range {
    uint64_t start, size; /* as it was reserved; start from the base on */
} ga_arena_range;

struct ga_arena {
    ga_space space;
    uint64_t limit;            /* bytes; UINT64_MAX: none */
    uint64_t least, most;      /* a chunk's bytes, as far as memory and limit allow */
    pthread_mutex_t lock;      /* all below */
    uintptr_t base;            /* changes by ga_arena_move() only */
    uint64_t reserved, backed; /* read without the lock: A1/A2 */
    ga_arena_range *ranges;
    size_t range_count;
    ga_arena_chunk *chunks;
    size_t chunk_count, chunk_room;
    uint64_t peak, growths, shrinks, moves;
    ga_latency growing; /* each growth's time */
};

static inline bool ga_arena_on_host(const ga_arena *arena)
{
    return arena->space.device < 0;
}

/* Where the last chunk ends, bytes from the base on: `backed`, but in the middle of a change. */
static inline uint64_t ga_arena_end(const ga_arena *arena)
{
    if (!arena->chunk_count) {
        return 0;
    }
    const ga_arena_chunk *last = &arena->chunks[arena->chunk_count - 1];
    return last->start + last->size;
}

static inline void ga_arena_set_backed(ga_arena *arena)
{
    uint64_t backed = ga_arena_end(arena);
    arena->peak = backed > arena->peak ? backed : arena->peak;
    /* A1: release. Pairs with A2 (arena.c): memory below what is read there is mapped. */
    __atomic_store_n(&arena->backed, backed, __ATOMIC_RELEASE);
}

/* ---- chunks.c ---------------------------------------------------------------------------- */

/* New chunks up to `end`, all or none. */
ga_status ga_arena_back(ga_arena *arena, uint64_t end);

/* Put a chunk that exists at the end of the others. The arena owns it from then on. */
ga_status ga_arena_attach(ga_arena *arena, uint64_t handle, uint64_t size);

/* Unmap and give back the chunks at and above `end`, where a chunk begins or ends; on the host any
 * page. All or none, as far as the driver lets what it has unmapped be mapped again. */
ga_status ga_arena_cut(ga_arena *arena, uint64_t end);

/* Give up all chunks and all ranges. What the driver refuses is released later. */
void ga_arena_drop(ga_arena *arena);

/* All chunks, with what they hold, from the arena's base to another; all or none in that way. */
ga_status ga_arena_carry(ga_arena *arena, uintptr_t base);

/* ---- arena.c ----------------------------------------------------------------------------- */

/* The most that the arena can ever have, asked for a growth to `size` bytes: all memory of the host
 * (machine.h), or what is backed and all memory of the device. UINT64_MAX for growths by less than
 * 1 GiB, which are not worth the question, and where nothing is known. */
uint64_t ga_arena_most(const ga_arena *arena, uint64_t size);

/* GA_ERR_MEMORY: `size` bytes are above ga_arena_most(). */
ga_status ga_arena_check_most(const ga_arena *arena, uint64_t size);

/* GA_ERR_ARGUMENT: the caller had NULL for it. */
ga_status ga_arena_missing(void);

/* `status`, with "arena: " in front of the thread's sentence. */
ga_status ga_arena_told(ga_status status);

#endif
