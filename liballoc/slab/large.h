/* SPDX-License-Identifier: MIT
 *
 * Blocks that are larger than any unit. They are allocated from the parent, and their addresses are
 * recorded, because some parents cannot tell them from others' (the C library claims every
 * pointer).
 *
 * Thread safe and lock-free, if the parent is.
 */
#ifndef GPUALLOC_SLAB_LARGE_H
#define GPUALLOC_SLAB_LARGE_H

#include "starts.h"

#include <gpualloc/backend.h>

/* Zero-initialised, but for the parent. */
typedef struct ga_slab_large {
    ga_heap *parent;
    uint64_t bytes; /* live bytes as the parent counts them; relaxed: a figure */
    ga_slab_starts starts;
} ga_slab_large;

ga_status ga_slab_large_alloc(ga_slab_large *large, size_t size, size_t align, void **out);
ga_status ga_slab_large_alloc_zeroed(ga_slab_large *large, size_t size, void **out);

/* GA_ERR_POINTER, without a message, if the block is not recorded. */
ga_status ga_slab_large_free(ga_slab_large *large, void *block);

/* Forwarded to the parent, from one large size to another. The block must be recorded. */
ga_status ga_slab_large_realloc(ga_slab_large *large, void *block, size_t size, void **out);
ga_status ga_slab_large_grow(ga_slab_large *large, void *block, size_t size);

/* 0 if the block is not recorded. */
size_t ga_slab_large_usable_size(ga_slab_large *large, const void *block);

static inline bool ga_slab_large_owns(const ga_slab_large *large, const void *pointer)
{
    return ga_slab_starts_has(&large->starts, pointer);
}

#endif
