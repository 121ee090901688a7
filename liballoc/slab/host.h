/* SPDX-License-Identifier: MIT
 *
 * A slab whose bitmaps the host works on: units of one size in the parent's memory, host or device.
 * It grows by a super block at a time, or stands there whole with light addressing.
 *
 * Claims are those of slab_tile.h on `heap` and need no lock. Where one answers FULL, grow and try
 * again. Where nothing is taken the memory can be given back: trim.h.
 */
#ifndef GPUALLOC_SLAB_HOST_H
#define GPUALLOC_SLAB_HOST_H

#include "regions.h"
#include "shape.h"

enum {
    GA_SLAB_HOST_HINTS = 32
};

/* Set once, but for what says so. */
typedef struct ga_slab_host {
    ga_slab_heap heap;
    ga_slab_shape shape;
    ga_heap *parent;
    uint64_t serial; /* what its regions say: whose they are, */
    uint32_t class;  /* and which of the slabs */
    bool device;
    bool check;
    uint64_t keep;                      /* bytes that may be empty unasked; UINT64_MAX: all */
    uint32_t hints[GA_SLAB_HOST_HINTS]; /* words where threads found their last unit past the
                                         * caches, by a hash of the thread; relaxed, guesses */
    /* Changed by the growing thread only; `held`, `growths` and `away` are read by others,
     * relaxed, and `room` by G10. */
    ga_slab_region *regions;
    void *tables;
    uint64_t held; /* bytes taken from the parent, less those that went back to it or the system */
    uint32_t growths;
    uint32_t room;        /* times that there was more to claim from; wraps */
    uint32_t *away;       /* a bit for each memory block that there may ever be: trim.h */
    uint32_t away_blocks; /* bits set there */
    bool pages_stay;      /* the system does not take them back */
} ga_slab_host;

/* Begin without a super block; takes no memory yet. */
void ga_slab_host_begin(ga_slab_host *slab, const ga_slab_shape *shape, ga_heap *parent);

/* Make room: bring back memory blocks that are away, else take one more super block from the
 * parent, or with light addressing all of them. Nothing is done where ga_slab_host_room() is no
 * longer the `seen` from before the caller found nothing. One thread at a time.
 * GA_ERR_MEMORY: the limit, or the parent's answer. */
ga_status ga_slab_host_grow(ga_slab_host *slab, uint32_t seen);

/* Units for a region that has none, from the parent, on a step and in whole steps. The caller enters
 * the region in the map and counts the growth. */
ga_status ga_slab_host_take_units(ga_slab_host *slab, ga_slab_region *region);
void ga_slab_host_count_growth(ga_slab_host *slab, const ga_slab_region *region);

/* Give everything back to the parent. Nobody works on it any more. */
void ga_slab_host_end(ga_slab_host *slab);

/* How many super blocks can be claimed from. */
static inline uint32_t ga_slab_host_supers(const ga_slab_host *slab)
{
    return ga_slab_words(&slab->heap) / GA_SLAB_ROW_WORDS >> slab->shape.super_bits; /* G3 */
}

/* How often room has come: asked before a claim, told to ga_slab_host_grow() after it. */
static inline uint32_t ga_slab_host_room(const ga_slab_host *slab)
{
    /* G10: acquire. Pairs with G9: what had come by then can be claimed. */
    return __atomic_load_n(&slab->room, GA_SLAB_WEAKEN(16, __ATOMIC_ACQUIRE));
}

/* There is something to claim that was not. By the growing thread, once it is there. */
static inline void ga_slab_host_tell_room(ga_slab_host *slab)
{
    /* G9: release. Pairs with G10. */
    __atomic_store_n(&slab->room, slab->room + (GA_SLAB_MUTANT == 13 ? 0u : 1u), __ATOMIC_RELEASE);
}

/* Whether the block's memory went back. Exact for the growing thread. */
static inline bool ga_slab_host_is_away(const ga_slab_host *slab, uint32_t block)
{
    return ga_load_relaxed(&slab->away[block / 32u]) >> block % 32u & 1u; /* relaxed: a figure */
}

/* Where a unit is, which somebody has: by U1 and U2 the caller sees the super block's memory of now. A
 * view does not say it with light addressing on a device, since it may have been made before. */
static inline char *ga_slab_host_pointer(const ga_slab_host *slab, ga_slab_view view, uint32_t unit)
{
    return slab->device && view.light ? slab->regions->units + (uint64_t)unit * view.unit
                                      : ga_slab_pointer(view, unit);
}

/* Bits that are set in all bitmaps: units that somebody has claimed. Exact while nobody claims. */
uint64_t ga_slab_host_taken(const ga_slab_host *slab);

/* Call `visit` for each word of the bitmaps that is not 0, with its number and its bits; not for
 * those of blocks that are away. */
void ga_slab_host_each_word(ga_slab_host *slab,
                            void (*visit)(void *context, uint32_t word, uint32_t bits),
                            void *context);

#endif
