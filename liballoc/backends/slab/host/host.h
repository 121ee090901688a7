/* SPDX-License-Identifier: MIT
 *
 * A slab whose bitmaps are in host memory: units of one size in the parent's memory, host or
 * device. It grows by one superblock at a time; with light addressing it is allocated whole.
 *
 * Threads claim as in slab_tile.h, on `heap`, without a lock. If a claim returns FULL, grow and
 * claim again. Empty memory can be returned: trim.h.
 */
#ifndef GPUALLOC_SLAB_HOST_HOST_H
#define GPUALLOC_SLAB_HOST_HOST_H

#include "../units/shape.h"
#include "regions.h"

enum {
    GA_SLAB_HOST_HINTS = 32
};

/* Constant, but for the fields below that say otherwise. */
typedef struct ga_slab_host {
    ga_slab_heap heap;
    ga_slab_shape shape;
    ga_heap *parent;
    uint64_t serial; /* the heap's serial number, */
    uint32_t class;  /* and the class, copied to the regions */
    bool device;
    bool check;
    uint64_t keep;                      /* empty bytes that stay without a trim; UINT64_MAX: all */
    uint32_t hints[GA_SLAB_HOST_HINTS]; /* words where threads found their last unit without a
                                         * cache, by a hash of the thread; relaxed, guesses */
    /* Changed under the lock for growth. Other threads read `held`, `growths` and `purged` relaxed,
     * and `room` by SG10. */
    ga_slab_region *regions;
    void *tables;
    uint64_t held; /* bytes allocated from the parent, less those returned to it or to the system */
    uint32_t growths;
    uint32_t room;          /* how often there was more to claim; wraps */
    uint32_t *purged;       /* bitmap of the memory blocks whose memory has been returned: trim.h */
    uint32_t purged_blocks; /* number of bits set in `purged` */
    bool pages_stay;        /* the system refuses to take pages back */
} ga_slab_host;

/* Begin without a superblock and without memory. */
void ga_slab_host_begin(ga_slab_host *slab, const ga_slab_shape *shape, ga_heap *parent);

/* Make room: restore purged memory blocks, or else allocate a superblock from the parent, with
 * light addressing all of them. Nothing is done if ga_slab_host_room() is no longer `seen`, its
 * value before the caller's search. One thread at a time. GA_ERR_MEMORY: the limit is reached, or
 * the parent refuses. */
ga_status ga_slab_host_grow(ga_slab_host *slab, uint32_t seen);

/* alloc_units: allocate the units of a region that has none from the parent, aligned to a step and
 * in whole steps. The caller enters the region in the map and calls count_growth. */
ga_status ga_slab_host_alloc_units(ga_slab_host *slab, ga_slab_region *region);
void ga_slab_host_count_growth(ga_slab_host *slab, const ga_slab_region *region);

/* Free all memory to the parent. No thread may use the slab any more. */
void ga_slab_host_end(ga_slab_host *slab);

/* The number of superblocks that can be claimed from. */
static inline uint32_t ga_slab_host_supers(const ga_slab_host *slab)
{
    /* SG3. Pairs with SG4 (host.c). */
    return ga_slab_words(&slab->heap) / GA_SLAB_ROW_WORDS >> slab->shape.super_bits;
}

/* A number that changes when there is more to claim. Read it before a claim and pass it to
 * ga_slab_host_grow() after one that found nothing. */
static inline uint32_t ga_slab_host_room(const ga_slab_host *slab)
{
    /* SG10: acquire. Pairs with SG9: all room that was published can be claimed. */
    return __atomic_load_n(&slab->room, GA_PLANTED_ORDER(slab_room_relaxed, __ATOMIC_ACQUIRE));
}

/* Publish that there is more to claim, once there is. Under the lock. */
static inline void ga_slab_host_publish_room(ga_slab_host *slab)
{
    /* SG9: release. Pairs with SG10. */
    __atomic_store_n(&slab->room, slab->room + (GA_PLANTED(slab_room_not_published) ? 0u : 1u),
                     __ATOMIC_RELEASE);
}

/* True if the block's memory has been returned. Exact under the lock. */
static inline bool ga_slab_host_is_purged(const ga_slab_host *slab, uint32_t block)
{
    return ga_load_relaxed(&slab->purged[block / 32u]) >> block % 32u & 1u; /* relaxed: a figure */
}

/* The address of a unit that is taken: by SU1 and SU2 the caller sees the present memory of its
 * superblock. With light addressing on a device a view does not have it, because the view may be
 * older. */
static inline char *ga_slab_host_pointer(const ga_slab_host *slab, ga_slab_view view, uint32_t unit)
{
    return slab->device && view.light ? slab->regions->units + (uint64_t)unit * view.unit
                                      : ga_slab_pointer(view, unit);
}

/* The number of set bits in all bitmaps: units that are claimed. Exact while no thread claims or
 * frees. */
uint64_t ga_slab_host_taken(const ga_slab_host *slab);

/* Call `visit` for each nonzero word of the bitmaps, with its number and bits, but not for blocks
 * that are purged. */
void ga_slab_host_each_word(ga_slab_host *slab,
                            void (*visit)(void *context, uint32_t word, uint32_t bits),
                            void *context);

#endif
