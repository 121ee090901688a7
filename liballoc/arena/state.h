/* SPDX-License-Identifier: MIT
 *
 * The state of an arena. Chunks follow each other from the base on, and so do ranges; each chunk
 * lies in one range. On the host there is one range and at most one chunk, whose size changes,
 * because the kernel joins and splits mappings; but shared memory of the host is as on a device.
 *
 *     base                                   end                        base + reserved
 *     | chunk | chunk     | chunk            |  not backed              |
 *     | range                                       | range (extended)  |
 *
 * Callers of the functions here and in chunks.c hold the arena's lock.
 */
#ifndef GPUALLOC_ARENA_STATE_H
#define GPUALLOC_ARENA_STATE_H

#include "../platform/latency.h"
#include "../simt/planted.h"
#include "space.h"

#include <pthread.h>

typedef struct ga_arena_sharing ga_arena_sharing; /* sharing.h */

typedef struct ga_arena_chunk {
    uint64_t handle;      /* from ga_space_create() */
    uint64_t start, size; /* bytes; start from the base on */
} ga_arena_chunk;

typedef struct ga_arena_range {
    uint64_t start, size; /* bytes, as reserved; start from the base on */
} ga_arena_range;

struct ga_arena {
    ga_space space;
    uint64_t limit;                /* bytes; UINT64_MAX: none */
    uint64_t chunk_min, chunk_max; /* bytes of a chunk, as far as memory and limit allow */
    pthread_mutex_t lock;          /* guards everything below */
    uintptr_t base;                /* changed by ga_arena_move() only */
    uint64_t reserved, backed;     /* bytes, read without the lock: AA1/AA2, AA3/AA4 */
    ga_arena_range *ranges;
    size_t range_count;
    ga_arena_chunk *chunks;
    size_t chunk_count, chunk_room;
    uint64_t peak, growths, shrinks, moves;
    ga_latency growing;        /* times of the growths */
    ga_arena_sharing *sharing; /* NULL: never published, nor opened by ga_arena_join() */
};

static inline bool ga_arena_on_host(const ga_arena *arena)
{
    return arena->space.device < 0;
}

/* The host's only chunk, whose size changes. */
static inline bool ga_arena_joins_chunks(const ga_arena *arena)
{
    return ga_arena_on_host(arena) && !(arena->space.flags & GA_ARENA_SHARE_FD);
}

/* End of the last chunk, in bytes from the base on. Equal to `backed`, except during a change. */
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
    /* AA1: release. Pairs with AA2 (arena.c): memory below the size read there is mapped. */
    __atomic_store_n(&arena->backed, backed, __ATOMIC_RELEASE);
}

/* ---- chunks.c ---------------------------------------------------------------------------- */

/* Add chunks up to `end`, all or none. */
ga_status ga_arena_back(ga_arena *arena, uint64_t end);

/* Map an existing chunk behind the others. The arena owns it from then on. */
ga_status ga_arena_attach(ga_arena *arena, uint64_t handle, uint64_t size);

/* Unmap and release the chunks at and above `end`, which is a chunk's boundary, or on the host any
 * page's. All or none, unless the driver refuses to map again the chunks that it has unmapped. */
ga_status ga_arena_cut(ga_arena *arena, uint64_t end);

/* Give the device `peer` access to all chunks, present and future. Takes the lock itself. If it
 * fails, some chunks may have the access.
 *
 * GA_ERR_UNSUPPORTED  the peer cannot access this device */
ga_status ga_arena_add_peer(ga_arena *arena, int peer);

/* publish.c: close the descriptors that are kept of the chunks from `first` on. */
void ga_arena_drop_exports(ga_arena *arena, size_t first);

/* Release all chunks and ranges. Memory that the driver refuses is released later. */
void ga_arena_discard(ga_arena *arena);

/* Move all chunks and their contents to another base. All or none, with the exception above. */
ga_status ga_arena_move_chunks(ga_arena *arena, uintptr_t base);

/* ---- share.c, ranges.c -------------------------------------------------------------------- */

/* ga_arena_import() and ga_arena_extend() for callers that hold the lock; `reserve` is a multiple
 * of the granule. */
ga_status ga_arena_import_chunk(ga_arena *arena, const ga_arena_share *share);
ga_status ga_arena_extend_to(ga_arena *arena, uint64_t reserve);

/* ---- arena.c ----------------------------------------------------------------------------- */

/* Open an arena for the chunks of another process. Errors as ga_arena_open(). */
ga_status ga_arena_open_guest(ga_arena **out, const ga_arena_options *options, bool read_only);

/* The most bytes that the arena can ever have, for a growth to `size` bytes: all memory of the host
 * (machine.h), or the backed bytes and all memory of the device. UINT64_MAX if that is unknown, and
 * for growths by less than 1 GiB, for which the query is not worth its time. */
uint64_t ga_arena_max(const ga_arena *arena, uint64_t size);

/* GA_ERR_MEMORY: `size` bytes are above ga_arena_max(). */
ga_status ga_arena_check_max(const ga_arena *arena, uint64_t size);

/* GA_ERR_ARGUMENT: the caller passed NULL. */
ga_status ga_arena_missing(void);

/* Returns `status`, and puts "arena: " in front of the thread's error text. */
ga_status ga_arena_prefix_error(ga_status status);

#endif
