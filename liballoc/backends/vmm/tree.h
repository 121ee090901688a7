/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a treap of all chunks and walls in the order of addresses; the nodes are in the
 *            chunks. Each node has a summary of its subtree: the largest mapped extent, span and
 *            hole.
 *
 *              mapped extent   adjacent free chunks without a hole between them
 *              span            all addresses between two occupied chunks: free chunks and holes
 *
 * INVARIANT  summaries are exact, except for the chunks in the list of stale ones
 * PROGRESS   search and update are logarithmic in the number of chunks. Allocating or freeing a
 *            chunk only lists it as stale, because it often changes back before the next search.
 *
 * Used by the search (search.h) under the heap's lock. No call allocates memory, so none can
 * fail.
 */
#ifndef GPUALLOC_VMM_TREE_H
#define GPUALLOC_VMM_TREE_H

#include "pool.h"

typedef enum ga_vmm_extent_kind {
    GA_VMM_MAPPED_EXTENTS,
    GA_VMM_SPANS
} ga_vmm_extent_kind;

/* The end of the chunk's addresses; for the last chunk of a live run, the end of the run's room. */
uintptr_t ga_vmm_tree_end(const ga_vmm_chunk *chunk);

void ga_vmm_tree_insert(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Call before the chunk is removed from the addresses. */
void ga_vmm_tree_remove(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* The chunk was allocated or freed, or its end has moved. */
void ga_vmm_tree_mark_stale(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Update all stale summaries. Required before the queries below. */
void ga_vmm_tree_refresh(ga_vmm_pool *pool);

/* The first chunk, from `from` on, at which an extent of the kind that begins there or later
 * reaches `size` bytes. For a span it may be the occupied chunk behind it. *bytes: size of the
 * extent up to there. NULL: none. */
ga_vmm_chunk *ga_vmm_tree_find(const ga_vmm_pool *pool, ga_vmm_chunk *from, ga_vmm_extent_kind kind,
                               uint64_t size, uint64_t *bytes);

/* The last occupied chunk before this one; there is always a wall. */
ga_vmm_chunk *ga_vmm_tree_occupied_before(ga_vmm_chunk *chunk);

/* The first chunk with a hole of `size` bytes before it, or NULL. */
ga_vmm_chunk *ga_vmm_tree_hole(const ga_vmm_pool *pool, uint64_t size);

/* The last chunk or wall that begins below the address, or a wall that ends at it (such a wall may
 * be empty). There is always one. */
ga_vmm_chunk *ga_vmm_tree_below(const ga_vmm_pool *pool, uintptr_t address);

#endif
