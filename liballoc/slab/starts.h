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

/* Begins as zeros. */
typedef struct ga_slab_starts {
    ga_slab_starts_middle *root[1 << GA_SLAB_STARTS_ROOT_BITS];
} ga_slab_starts;

/* False where there is no memory for it, or the address is none that can be in the set. */
bool ga_slab_starts_add(ga_slab_starts *starts, const void *block);

/* Whether it was in the set. */
bool ga_slab_starts_remove(ga_slab_starts *starts, const void *block);
bool ga_slab_starts_has(const ga_slab_starts *starts, const void *block);

void ga_slab_starts_each(const ga_slab_starts *starts, void (*visit)(void *context, void *block),
                         void *context);

/* Give back what it is made of. */
void ga_slab_starts_end(ga_slab_starts *starts);

#endif
