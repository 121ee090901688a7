/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a treap of all chunks and walls in the order of addresses, made of nodes in the chunks.
 *            Each node has the figures of its subtree: the largest row, span and hole in it.
 *
 *            row   free chunks that touch, without a hole between them
 *            span  all addresses between two chunks that are taken: free chunks and holes
 *
 * INVARIANT  the figures are those of the chunks, but for chunks in the list of stale ones
 * PROGRESS   a search is logarithmic in the number of chunks, and so is an update. A chunk that is
 *            taken or freed is only listed as stale, since it often changes back before the next
 *            search.
 *
 * For the search (vmm_search.h), under the heap's lock. It needs no memory, so that it cannot fail.
 */
#ifndef GPUALLOC_ARENA_VMM_TREE_H
#define GPUALLOC_ARENA_VMM_TREE_H

#include "vmm_pool.h"

typedef enum ga_vmm_kind {
    GA_VMM_MAPPED_EXTENTS,
    GA_VMM_SPANS
} ga_vmm_kind;

/* The end of the addresses that are the chunk's own, or of its run where it is the last one. */
uintptr_t ga_vmm_tree_end(const ga_vmm_chunk *chunk);

void ga_vmm_tree_insert(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Before it leaves the addresses. */
void ga_vmm_tree_remove(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* The chunk was taken or freed, or its end has moved. */
void ga_vmm_tree_mark_stale(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Make all figures right, before any of the calls that follow. */
void ga_vmm_tree_refresh(ga_vmm_pool *pool);

/* The first chunk from `from` on with which a row or span that begins there or later has `size`
 * bytes; for a span it may be the one that ends it. *bytes: what it has up to there. NULL: none. */
ga_vmm_chunk *ga_vmm_tree_find(const ga_vmm_pool *pool, ga_vmm_chunk *from, ga_vmm_kind kind,
                               uint64_t size, uint64_t *bytes);

/* The last chunk before this one that is taken. There is a wall. */
ga_vmm_chunk *ga_vmm_tree_taken_before(ga_vmm_chunk *chunk);

/* The first chunk that has a hole of `size` bytes before it; NULL: none. */
ga_vmm_chunk *ga_vmm_tree_hole(const ga_vmm_pool *pool, uint64_t size);

/* The last chunk or wall that begins below the address, or is a wall that ends there, which may be
 * one of no bytes. There is a wall. */
ga_vmm_chunk *ga_vmm_tree_below(const ga_vmm_pool *pool, uintptr_t address);

#endif
