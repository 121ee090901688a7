/* SPDX-License-Identifier: MIT
 *
 * A slab heap in host memory, built directly from its shape, so that the algorithm can be tested
 * without a backend; and its true state, read from the bitmaps.
 *
 * Rows, counts and units are pages that cost nothing before they are touched: the largest heap that
 * addresses permit is possible. With two-level addressing the addresses of superblocks are neither
 * in the order of their numbers nor adjacent. A failed setup ends the program.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLAB_WORLD_H
#define GPUALLOC_TESTS_SUPPORT_SLAB_WORLD_H

#include "backends/slab/units/shape.h"

typedef enum slab_world_kind {
    SLAB_WORLD_FREE,  /* all units are free, and can be written to */
    SLAB_WORLD_BARE,  /* all units are free, and are addresses only */
    SLAB_WORLD_TAKEN, /* all units are taken, and are addresses only */
} slab_world_kind;

enum {
    SLAB_WORLD_GAP = 64 << 10 /* after the units of each superblock with two-level addressing */
};

typedef struct slab_world {
    ga_slab_shape shape;
    slab_world_kind kind;
    ga_slab_heap heap;
    char *units; /* where the lowest superblock begins; they follow in slots, with gaps */
    uint32_t *rows;
} slab_world;

/* A heap of that shape, with `supers` superblocks to begin with. */
slab_world *slab_world_new(ga_slab_shape shape, uint32_t supers, slab_world_kind kind);
void slab_world_delete(slab_world *world);

/* Add a superblock, which the limit must permit; claims may run. */
void slab_world_grow(slab_world *world);

/* Everything is free again; nothing else may run. */
void slab_world_reset(slab_world *world);

/* Units that there are, and those taken: set bits. */
uint64_t slab_world_units(const slab_world *world);
uint64_t slab_world_live(const slab_world *world);

/* Returns true if the bit of the unit is set. */
bool slab_world_taken(const slab_world *world, uint32_t unit);

/* The count of a memory block, and the clear bits of its row. */
uint32_t slab_world_count(const slab_world *world, uint32_t block);
uint32_t slab_world_room(const slab_world *world, uint32_t block);

/* The first memory block where the two differ, or GA_SLAB_FULL: none does while all tiles rest. */
uint32_t slab_world_wrong(const slab_world *world);

#endif
