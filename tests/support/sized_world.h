/* SPDX-License-Identifier: MIT
 *
 * A size-class heap in host memory, built directly, so that the algorithm can be tested without a
 * backend; and its true state, read from the bitmaps. A growing one has a pager, which records
 * committed regions in `backed` by a plain write, as a driver would write.
 *
 * Units are pages that cost nothing before they are touched. Before a class takes it, a region's
 * bitmap shows all units as taken. A failed setup ends the program.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_WORLD_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_WORLD_H

#include "backends/slab/classes/sized_heap.h"
#include "growth/pager.h"

enum {
    SIZED_WORLD_BACKED = 0x5a5a
};

typedef struct sized_world {
    ga_sized_heap *heap;
    uint32_t regions; /* the most */
    /* Of a growing one: */
    ga_growth *growth;
    ga_pager_client *client;
    uint32_t *backed;  /* for each region SIZED_WORLD_BACKED once there is memory behind it */
    uint32_t limit;    /* regions */
    uint32_t refuse;   /* the request of that number is refused for lack of memory; 0: none */
    uint32_t requests; /* the pager's */
    void *book;
    size_t book_size;
} sized_world;

/* All regions are there from the start. */
sized_world *sized_world_new(uint32_t region_bits, uint32_t regions);

/* One region is there, and others are committed on request. There are addresses for up to `limit`;
 * `refuse` as above. */
sized_world *sized_world_growing(uint32_t region_bits, uint32_t regions);
sized_world *sized_world_limited(uint32_t region_bits, uint32_t regions, uint32_t limit,
                                 uint32_t refuse);

void sized_world_delete(sized_world *world);

/* The class that has the region, or GA_SIZED_NONE. */
uint32_t sized_world_owner(const sized_world *world, uint32_t region);

/* The number of the class's regions, by the owners. */
uint32_t sized_world_regions(const sized_world *world, uint32_t class);

/* The number of live units, of the class or of all (GA_SIZED_NONE). If a bit of a tail is clear, or
 * the class's table and `total_words` do not match the owners, the program ends. */
uint64_t sized_world_live(const sized_world *world, uint32_t class);

#endif
