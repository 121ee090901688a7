/* SPDX-License-Identifier: MIT
 *
 * A set of addresses: the blocks that came from a heap's parent. So that they can be told from
 * others' also where the parent cannot tell, as the C library cannot.
 *
 * Thread safe and lock-free. An address is a multiple of 16 below 2^48.
 */
#ifndef GPUALLOC_SLAB_STARTS_H
#define GPUALLOC_SLAB_STARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_SLAB_STARTS_ROOT_BITS = 12,
    GA_SLAB_STARTS_MIDDLE_BITS = 11,
    GA_SLAB_STARTS_LEAF_BITS = 21 /* of them, one for each 16 bytes */
};

typedef uint64_t ga_slab_starts_leaf[1 << (GA_SLAB_STARTS_LEAF_BITS - 6)];
typedef ga_slab_starts_leaf *ga_slab_starts_middle[1 << GA_SLAB_STARTS_MIDDLE_BITS];

/* One middle and one leaf: the most that adding an address can need. */
typedef struct ga_slab_starts_spare {
    void *middle;
    void *leaf;
} ga_slab_starts_spare;

/* Begins as zeros. */
typedef struct ga_slab_starts {
    ga_slab_starts_middle *root[1 << GA_SLAB_STARTS_ROOT_BITS];
    ga_slab_starts_spare spare; /* left over from the last reservation, or NULLs */
} ga_slab_starts;

/* False where there is no memory for it, or the address is none that can be in the set. */
bool ga_slab_starts_add(ga_slab_starts *starts, const void *block);

/* Reserve the tables for one address that is not known yet, before a block moves to it. False where
 * there is no memory for them. Each reservation ends with one ga_slab_starts_add_reserved(), which
 * cannot fail. */
bool ga_slab_starts_reserve(ga_slab_starts *starts, ga_slab_starts_spare *spare);
void ga_slab_starts_add_reserved(ga_slab_starts *starts, const void *block,
                                 ga_slab_starts_spare *spare);

/* Whether it was in the set. */
bool ga_slab_starts_remove(ga_slab_starts *starts, const void *block);
bool ga_slab_starts_has(const ga_slab_starts *starts, const void *block);

void ga_slab_starts_each(const ga_slab_starts *starts, void (*visit)(void *context, void *block),
                         void *context);

/* Give back what it is made of. */
void ga_slab_starts_end(ga_slab_starts *starts);

#endif
