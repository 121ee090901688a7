/* SPDX-License-Identifier: MIT
 *
 * Blocks that are larger than any unit. They are allocated from the parent, and their addresses are
 * recorded, because some parents cannot tell them from others' (the C library claims every
 * pointer).
 *
 * Thread safe. Lock-free, if the parent is, but for a thread that frees a block while
 * ga_slab_large_each() asks the parent for the size of that block: it waits for the answer.
 */
#ifndef GPUALLOC_SLAB_HOST_LARGE_H
#define GPUALLOC_SLAB_HOST_LARGE_H

#include "starts.h"

#include <gpualloc/backend.h>

#include <pthread.h>

/* Zero-initialised, but for the parent and the lock. */
typedef struct ga_slab_large {
    ga_heap *parent;
    pthread_mutex_t *lock; /* the heap's, which a fork waits for; held while a block is visited */
    const void *visited;   /* must not be freed before the lock is released; or NULL */
    uint64_t bytes;        /* live bytes as the parent counts them; relaxed: a figure */
    ga_slab_starts starts;
} ga_slab_large;

ga_status ga_slab_large_alloc(ga_slab_large *large, size_t size, size_t align, void **out);
ga_status ga_slab_large_alloc_zeroed(ga_slab_large *large, size_t size, void **out);

/* GA_ERR_POINTER, without a message, if the block is not recorded. */
ga_status ga_slab_large_free(ga_slab_large *large, void *block);

/* Forwarded to the parent, from one large size to another. The block must be recorded. */
ga_status ga_slab_large_realloc(ga_slab_large *large, void *block, size_t size, void **out);
ga_status ga_slab_large_grow(ga_slab_large *large, void *block, size_t size);

/* Call `visit` for each block and its usable size, without the lock. */
void ga_slab_large_each(ga_slab_large *large, ga_visit *visit, void *context);

/* 0 if the block is not recorded. No other thread may be freeing the block. */
size_t ga_slab_large_usable_size(ga_slab_large *large, const void *block);

static inline bool ga_slab_large_owns(const ga_slab_large *large, const void *pointer)
{
    return ga_slab_starts_has(&large->starts, pointer);
}

#endif
