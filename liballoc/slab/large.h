/* SPDX-License-Identifier: MIT
 *
 * Blocks that are too large for a unit: the parent's, and known to be ours by their addresses,
 * since some parents cannot tell (the C library says that every pointer is its own).
 *
 * Thread safe and lock-free, as far as the parent is.
 */
#ifndef GPUALLOC_SLAB_LARGE_H
#define GPUALLOC_SLAB_LARGE_H

#include "starts.h"

#include <gpualloc/backend.h>

/* Begins as zeros and the parent. */
typedef struct ga_slab_large {
    ga_heap *parent;
    uint64_t bytes; /* live, as the parent says; relaxed: a figure */
    ga_slab_starts starts;
} ga_slab_large;

ga_status ga_slab_large_alloc(ga_slab_large *large, size_t size, size_t align, void **out);
ga_status ga_slab_large_alloc_zeroed(ga_slab_large *large, size_t size, void **out);

/* GA_ERR_POINTER, without a sentence, where the block is none of them. */
ga_status ga_slab_large_free(ga_slab_large *large, void *block);

/* As the parent does it, from one large size to another. The block must be one of them. */
ga_status ga_slab_large_realloc(ga_slab_large *large, void *block, size_t size, void **out);
ga_status ga_slab_large_grow(ga_slab_large *large, void *block, size_t size);

/* 0 where it is none of them. */
size_t ga_slab_large_usable_size(ga_slab_large *large, const void *block);

static inline bool ga_slab_large_owns(const ga_slab_large *large, const void *pointer)
{
    return ga_slab_starts_has(&large->starts, pointer);
}

#endif
