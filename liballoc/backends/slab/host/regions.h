/* SPDX-License-Identifier: MIT
 *
 * The map from addresses to slabs: the superblocks of every slab heap of the process that the host
 * works on, in host memory and device memory alike.
 *
 * Thread safe. A region may be looked up while its heap is being closed: the record stays readable,
 * and names another heap or none.
 */
#ifndef GPUALLOC_SLAB_HOST_REGIONS_H
#define GPUALLOC_SLAB_HOST_REGIONS_H

#include "../units/slab_in_turn.h"

enum {
    GA_SLAB_STEP_BITS = 16, /* regions begin and end on steps of 64 KiB */
    GA_SLAB_LEAF_BITS = 16
};

#define GA_SLAB_STEP ((size_t)1 << GA_SLAB_STEP_BITS)

/* A superblock, or all of a heap with light addressing. Filled in before it is entered in the
 * map. */
typedef struct ga_slab_region {
    uint64_t heap; /* its heap's serial number, 0 once the heap has closed; relaxed */
    char *units;
    uint64_t inverse; /* 2^64 / unit, rounded up */
    uint32_t unit;
    uint32_t first; /* number of the first unit */
    uint32_t count; /* number of units */
    uint32_t class;
    uint32_t *poisoned; /* with the checks: a bit for each unit that holds poison */
    void *block;        /* allocated from the parent, */
    size_t bytes;       /* of this size, */
    void *rows;         /* and bitmap rows from the C library */
    struct ga_slab_region *next;
} __attribute__((aligned(64))) ga_slab_region;

typedef ga_slab_region *ga_slab_region_leaf[1 << GA_SLAB_LEAF_BITS];
extern ga_slab_region_leaf *ga_slab_region_root[1 << GA_SLAB_LEAF_BITS];

/* The region whose steps contain the address, or NULL. It may belong to another heap. */
static inline ga_slab_region *ga_slab_region_at(const void *pointer)
{
    uintptr_t step = (uintptr_t)pointer >> GA_SLAB_STEP_BITS;
    if (__builtin_expect(step >> (2 * GA_SLAB_LEAF_BITS) != 0, 0)) {
        return NULL;
    }
    /* SR2: acquire. Pairs with SR1: the leaf is seen empty. */
    ga_slab_region_leaf *leaf =
        __atomic_load_n(&ga_slab_region_root[step >> GA_SLAB_LEAF_BITS],
                        GA_PLANTED_ORDER(slab_region_leaf_relaxed, __ATOMIC_ACQUIRE));
    if (__builtin_expect(!leaf, 0)) {
        return NULL;
    }
    /* SR4: acquire. Pairs with SR3: the region's fields are seen. */
    return __atomic_load_n(&(*leaf)[step & ((1u << GA_SLAB_LEAF_BITS) - 1u)],
                           GA_PLANTED_ORDER(slab_region_relaxed, __ATOMIC_ACQUIRE));
}

/* True if a unit begins at `pointer`; `*unit` is its number. The product is exactly k at an offset
 * of k units, because unit * inverse exceeds 2^64 by less than 2^16 and k is below 2^32. The
 * multiplication back rejects all other offsets. */
static inline bool ga_slab_region_unit(const ga_slab_region *region, const void *pointer,
                                       uint32_t *unit)
{
    uint64_t offset = (uint64_t)((const char *)pointer - region->units);
    uint64_t index = ga_bits_high(offset, region->inverse);
    *unit = region->first + (uint32_t)index;
    return __builtin_expect(index * region->unit == offset && index < region->count, 1);
}

/* A record to fill in, or NULL if there is no memory. */
ga_slab_region *ga_slab_region_new(void);

/* Enter the region under its addresses. False, with nothing done, if there is no memory for the
 * map. */
bool ga_slab_region_enter(ga_slab_region *region);

/* Remove the region from the map, if it is there; free the record. */
void ga_slab_region_remove(ga_slab_region *region);
void ga_slab_region_delete(ga_slab_region *region);

#endif
