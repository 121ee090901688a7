/* SPDX-License-Identifier: MIT
 *
 * The shape of a slab heap: unit size, superblocks, addressing; and the paper's 32-bit addresses.
 *
 * A memory block is 1024 units, a superblock is 2^super_bits memory blocks. Units are numbered:
 * number = (superblock * 2^super_bits + memory block) * 1024 + unit.
 *
 * An address has 10 bits for the unit, `block_bits` for the memory block within its superblock and
 * the rest for the superblock (slab-hash-2018, §V: 10 + 14 + 8 at 128 bytes). block_bits keeps a
 * superblock within 2 GiB, the paper's largest: 14 at 128 bytes, one more for each halving, one
 * less for each doubling of the unit; so 10 + 17 + 5 at 16 bytes and 10 + 5 + 17 at 64 KiB. Any
 * split gives 2^32 - 1024 units: 64 GiB at 16 bytes, 512 GiB at 128, 256 TiB at 64 KiB. The last
 * memory block is not used; with two-level addressing and superblocks of full size, the last
 * superblock is not. With light addressing the address is the number.
 */
#ifndef GPUALLOC_SLAB_UNITS_SHAPE_H
#define GPUALLOC_SLAB_UNITS_SHAPE_H

#include "slab_heap.h"

#include <gpualloc/backend.h>

enum {
    GA_SLAB_UNIT_MIN = 16,
    GA_SLAB_UNIT_MAX = 64 << 10
};

typedef struct ga_slab_shape {
    uint32_t unit;       /* bytes: a multiple of 16, GA_SLAB_UNIT_MIN to GA_SLAB_UNIT_MAX */
    uint32_t super_bits; /* a superblock has 2^super_bits memory blocks */
    uint32_t supers;     /* limit of the number of superblocks */
    uint32_t spread; /* GA_SLAB_SPREAD_HOST or _KERNEL: the side whose atomics change the bitmaps */
    bool light;      /* one array for all superblocks */
} ga_slab_shape;

/* GA_ERR_SPEC, with a message that begins with "slab: ", if the unit size is invalid, or if there
 * are more units or larger superblocks than the addresses can express. */
ga_status ga_slab_shape_check(const ga_slab_shape *shape);

/* Address bits for the memory block at this unit size. */
uint32_t ga_slab_block_bits(uint32_t unit);

/* The most bytes of units that a heap of this unit size can have. */
uint64_t ga_slab_reach(uint32_t unit);

/* In bytes: the units of a superblock; its bitmap rows; the counts of the whole heap, in whole
 * rows. */
uint64_t ga_slab_super_bytes(const ga_slab_shape *shape);
size_t ga_slab_super_rows_bytes(const ga_slab_shape *shape);
size_t ga_slab_counts_bytes(const ga_slab_shape *shape);

/* Set the constant fields of a heap of this shape. Its pointers and its numbers of superblocks and
 * words are not changed. */
void ga_slab_heap_shape(ga_slab_heap *heap, const ga_slab_shape *shape);

#endif
