/* SPDX-License-Identifier: MIT
 *
 * A slab whose bitmaps the host works on: units of one size in the parent's memory, host or device.
 * It grows by a super block at a time, or stands there whole with light addressing.
 *
 * Claims are those of slab_tile.h on `heap` and need no lock. Where one answers FULL, grow and try
 * again.
 */
#ifndef GPUALLOC_SLAB_HOST_H
#define GPUALLOC_SLAB_HOST_H

#include "regions.h"
#include "shape.h"

/* Set once, but for what says so. */
typedef struct ga_slab_host {
    ga_slab_heap heap;
    ga_slab_shape shape;
    ga_heap *parent;
    uint64_t serial; /* what its regions say: whose they are, */
    uint32_t class;  /* and which of the slabs */
    bool device;
    bool check;
    uint32_t hint; /* where the last unit was found past the caches; relaxed, a guess */
    /* Changed by the growing thread only; `held` and `growths` are read by others, relaxed. */
    ga_slab_region *regions;
    void *tables;
    uint64_t held; /* bytes taken from the parent */
    uint32_t growths;
} ga_slab_host;

/* Begin without a super block; takes no memory yet. */
void ga_slab_host_begin(ga_slab_host *slab, const ga_slab_shape *shape, ga_heap *parent);

/* Take one more super block from the parent, or with light addressing all of them, unless there are
 * more by now than the `seen` that the caller found full. One thread at a time.
 * GA_ERR_MEMORY: the limit, or the parent's answer. */
ga_status ga_slab_host_grow(ga_slab_host *slab, uint32_t seen);

/* Give everything back to the parent. Nobody works on it any more. */
void ga_slab_host_end(ga_slab_host *slab);

/* How many super blocks can be claimed from. */
static inline uint32_t ga_slab_host_supers(const ga_slab_host *slab)
{
    return ga_slab_words(&slab->heap) / GA_SLAB_ROW_WORDS >> slab->shape.super_bits; /* G3 */
}

/* Bits that are set in all bitmaps: units that somebody has claimed. Exact while nobody claims. */
uint64_t ga_slab_host_taken(const ga_slab_host *slab);

/* Call `visit` for each word of the bitmaps that is not 0, with its number and its bits. */
void ga_slab_host_each_word(ga_slab_host *slab,
                            void (*visit)(void *context, uint32_t word, uint32_t bits),
                            void *context);

#endif
