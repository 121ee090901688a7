/* SPDX-License-Identifier: MIT
 *
 * A heap of all sizes in host memory, made by hand, so that the algorithm can be tested with no backend
 * around it; and the truth about it, read from the bitmaps. One that grows has a pager beside it, which
 * notes in `backed` what it has backed: a plain write, as what a driver does would be.
 *
 * Units are pages that cost nothing before they are touched. Before a class has it, a region's bitmap
 * says that all is taken. Whatever cannot be made ends the program.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_WORLD_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_WORLD_H

#include "arena/pager.h"
#include "slab/sized_heap.h"

enum {
    SIZED_WORLD_BACKED = 0x5a5a
};

typedef struct sized_world {
    ga_sized_heap *heap;
    uint32_t regions; /* the most */
    /* Of one that grows: */
    ga_growth *growth;
    ga_pager_client *client;
    uint32_t *backed; /* for each region SIZED_WORLD_BACKED once there is memory behind it */
    uint32_t limit;   /* regions */
    uint32_t refuse;  /* the wish of that number is refused for want of memory; 0: none */
    uint32_t wishes;  /* the pager's */
    void *book;
    size_t book_size;
} sized_world;

/* All regions are there from the start. */
sized_world *sized_world_new(uint32_t region_bits, uint32_t regions);

/* One is, and others come as they are wished for. Of those that there are addresses for up to `limit`;
 * `refuse` as above. */
sized_world *sized_world_growing(uint32_t region_bits, uint32_t regions);
sized_world *sized_world_limited(uint32_t region_bits, uint32_t regions, uint32_t limit,
                                 uint32_t refuse);

void sized_world_delete(sized_world *world);

/* The class that has the region, or GA_SIZED_NONE. */
uint32_t sized_world_owner(const sized_world *world, uint32_t region);

/* How many regions the class has, by the owners. */
uint32_t sized_world_regions(const sized_world *world, uint32_t class);

/* How many units are taken, of the class or of all (GA_SIZED_NONE). Where a bit of a tail is clear, or the
 * class's table and `all` do not agree with the owners, the program ends. */
uint64_t sized_world_live(const sized_world *world, uint32_t class);

#endif
