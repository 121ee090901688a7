/* SPDX-License-Identifier: MIT
 *
 * A set of addresses: the blocks that a heap has allocated from its parent. The heap asks the set
 * whether a block is its own, because some parents cannot tell, such as the C library.
 *
 * Thread safe and lock-free. An address is a multiple of 16 below 2^48.
 */
#ifndef GPUALLOC_SLAB_HOST_STARTS_H
#define GPUALLOC_SLAB_HOST_STARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_SLAB_STARTS_ROOT_BITS = 12,
    GA_SLAB_STARTS_MIDDLE_BITS = 11,
    GA_SLAB_STARTS_LEAF_BITS = 21 /* of bits in a leaf, one for each 16 bytes */
};

typedef uint64_t ga_slab_starts_leaf[1 << (GA_SLAB_STARTS_LEAF_BITS - 6)];
typedef ga_slab_starts_leaf *ga_slab_starts_middle[1 << GA_SLAB_STARTS_MIDDLE_BITS];

/* One middle and one leaf: the most that adding an address can need. */
typedef struct ga_slab_starts_spare {
    void *middle;
    void *leaf;
} ga_slab_starts_spare;

/* Zero-initialised. */
typedef struct ga_slab_starts {
    ga_slab_starts_middle *root[1 << GA_SLAB_STARTS_ROOT_BITS];
    ga_slab_starts_spare spare; /* left over from the last reservation, or NULLs */
} ga_slab_starts;

/* False if there is no memory for the entry, or the address cannot be in the set. */
bool ga_slab_starts_add(ga_slab_starts *starts, const void *block);

/* Reserve the tables for one address before it is known, because a block is about to move. False if
 * there is no memory for them. After each reservation call ga_slab_starts_add_reserved() once; that
 * cannot fail. */
bool ga_slab_starts_reserve(ga_slab_starts *starts, ga_slab_starts_spare *spare);
void ga_slab_starts_add_reserved(ga_slab_starts *starts, const void *block,
                                 ga_slab_starts_spare *spare);

/* True if the address was in the set. */
bool ga_slab_starts_remove(ga_slab_starts *starts, const void *block);
bool ga_slab_starts_has(const ga_slab_starts *starts, const void *block);

void ga_slab_starts_each(const ga_slab_starts *starts, void (*visit)(void *context, void *block),
                         void *context);

/* Free the tables. */
void ga_slab_starts_end(ga_slab_starts *starts);

#endif
