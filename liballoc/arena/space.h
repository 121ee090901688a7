/* SPDX-License-Identifier: MIT
 *
 * The five things that memory behind reserved addresses is made of: reserve addresses, make a
 * physical chunk, map it there with access, unmap it, and give both back (vmm-spgemm-2023, §2.2).
 * Arenas, the vmm backend and pagers stand on these.
 *
 * On a device a chunk is the driver's (cuMemCreate), and what is mapped twice is one memory. On the
 * host the kernel hands out pages by itself: a chunk there is nothing but its size, memory is fresh
 * zeros wherever it is mapped, and any piece of a mapping may be unmapped.
 *
 * All sizes and addresses are bytes, and multiples of the granule. Chunks are mapped whole, each
 * within one reservation. A call that fails changes nothing and leaves a sentence, without the name
 * of a room in front. A release that is refused is tried twice.
 *
 * A space never changes once it is open, but for peers that are added, and owns nothing. Thread safe.
 */
#ifndef GPUALLOC_ARENA_SPACE_H
#define GPUALLOC_ARENA_SPACE_H

#include "../platform/cuda_driver.h"

#include <gpualloc/arena.h>

typedef struct ga_space ga_space;

/* One for each place, asked through the functions below. */
typedef struct ga_space_ops {
    ga_status (*memory)(const ga_space *, uint64_t *bytes);
    ga_status (*reserve)(ga_space *, uint64_t size, uintptr_t wanted, uintptr_t *base);
    ga_status (*unreserve)(ga_space *, uintptr_t base, uint64_t size);
    ga_status (*create)(const ga_space *, uint64_t size, uint64_t *chunk);
    ga_status (*destroy)(const ga_space *, uint64_t chunk);
    ga_status (*map)(ga_space *, uintptr_t start, uint64_t size, uint64_t chunk);
    ga_status (*unmap)(const ga_space *, uintptr_t start, uint64_t size);
    ga_status (*move)(ga_space *, uintptr_t from, uintptr_t to, uint64_t size, uint64_t chunk);
} ga_space_ops;

enum {
    GA_SPACE_LEFT = 16
};

struct ga_space {
    const ga_space_ops *ops;
    uint64_t granule;
    uint32_t flags; /* GA_ARENA_* */
    int device;     /* -1: the host */
    bool wants_cards;
    bool many; /* the host: unmap leaves addresses accessible, to save mappings */
    CUmemAllocationProp prop;
    size_t access_count;
    CUmemAccessDesc access[GA_CUDA_DEVICES]; /* who may read and write it, the device first */
    size_t left_count;
    struct {
        uintptr_t start;
        uint64_t size;
    } left[GA_SPACE_LEFT]; /* mapped in vain: the driver would not undo it, and is asked again */
};

/* The place, device, flags and peers of `options`; nothing else in them matters here. Where flags
 * want what drivers refuse only when asked, a chunk is made and given back to see.
 *
 * GA_ERR_ARGUMENT     a place that is neither host nor device, flags that are none, too many peers
 * GA_ERR_UNSUPPORTED  the device cannot do what a flag or a peer wants
 * GA_ERR_DEVICE       no such device or driver */
ga_status ga_space_open(ga_space *space, const ga_arena_options *options);

/* A device's, for memory of other processes alone (GA_ARENA_SHARE_FD): no chunk is made. Errors as
 * above. */
ga_status ga_space_open_guest(ga_space *space, int device);

/* Let network cards at all chunks of a device from now on (GA_ARENA_RDMA), if it can do that. A chunk
 * that the driver refuses so is made without. Before any is made. */
void ga_space_want_cards(ga_space *space);

/* All memory that the place has, free or not: the device's, or the host's as
 * ga_machine_memory_total() says. */
ga_status ga_space_memory(const ga_space *space, uint64_t *bytes);

/* Addresses: at `wanted` or GA_ERR_NO_ROOM; wanted 0: anywhere, at a multiple of 2 MiB if they are
 * that many. GA_ERR_MEMORY where there are none. */
ga_status ga_space_reserve(ga_space *space, uint64_t size, uintptr_t wanted, uintptr_t *base);

/* As it was reserved, with nothing mapped in it; the host drops what is. */
ga_status ga_space_unreserve(ga_space *space, uintptr_t base, uint64_t size);

/* GA_ERR_MEMORY  none left */
ga_status ga_space_create(const ga_space *space, uint64_t size, uint64_t *chunk);

/* Its memory is free once it is mapped nowhere. */
ga_status ga_space_destroy(const ga_space *space, uint64_t chunk);

/* For callers that cannot keep what is refused: the driver is asked again later (cuda_refused.h).
 * The bytes of a chunk are for the log. */
void ga_space_drop_chunk(const ga_space *space, uint64_t chunk, uint64_t size);
void ga_space_drop_mapping(const ga_space *space, uintptr_t start, uint64_t size);
void ga_space_drop_range(ga_space *space, uintptr_t base, uint64_t size);

/* For all that have access. GA_ERR_MEMORY may come from here as well. */
ga_status ga_space_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk);

/* Nobody may be using it. */
ga_status ga_space_unmap(const ga_space *space, uintptr_t start, uint64_t size);

/* A mapped chunk with what it holds, from `from` to `to`, where nothing is mapped. Nobody may be
 * using it. */
ga_status ga_space_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                        uint64_t chunk);

/* Let one more device reach what is mapped from now on, and what is mapped already, piece by piece.
 * Nobody else is in the space meanwhile. GA_ERR_UNSUPPORTED: it cannot reach this device. */
ga_status ga_space_add_peer(ga_space *space, int peer);
ga_status ga_space_renew(const ga_space *space, uintptr_t start, uint64_t size);
void ga_space_drop_peer(ga_space *space); /* the last one that was added */

/* Only where the flags allow it (GA_ARENA_SHARE_*); offset and size are left to the caller. */
ga_status ga_space_export(const ga_space *space, uint64_t chunk, ga_arena_share *out);
ga_status ga_space_import(const ga_space *space, const ga_arena_share *share, uint64_t *chunk);

/* The two, for space.c. */
ga_status ga_space_open_host(ga_space *space, const ga_arena_options *options);
ga_status ga_space_open_device(ga_space *space, const ga_arena_options *options);

#endif
