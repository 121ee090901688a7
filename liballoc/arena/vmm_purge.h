/* SPDX-License-Identifier: MIT
 *
 * Giving free memory back. A chunk is unmapped in four cases: a request needs its memory elsewhere
 * (evict), more is held than cache= allows (bound), it has been free for the time of decay= (decay),
 * or the caller asks for it (trim). For the pool (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_PURGE_H
#define GPUALLOC_ARENA_VMM_PURGE_H

#include "vmm_search.h"

/* Unmap free chunks that no stream uses, at least `bytes` of them if there are that many. Large
 * chunks that rest for long go first. Chunks of the window are spared; NULL: none. Memory that
 * fits the hole of so many bytes becomes loose instead of being given back. Answers the bytes. */
uint64_t ga_vmm_evict(ga_vmm_pool *pool, uint64_t bytes, const ga_vmm_window *spared,
                      uint64_t hole);

/* Unmap free chunks that no stream uses, until no more than `keep` bytes are held in vain. */
void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep);

/* Unmap the chunks that have been free for longest, until no more is held than cache= allows.
 * Chunks that streams still use stay; a later call finds that they are done. */
void ga_vmm_pool_bound(ga_vmm_pool *pool);

/* Unmap the chunks that have been free for the time of decay=, and those that are more than cache=
 * allows, wherever they are in the order of age. Those that streams still use stay. */
void ga_vmm_pool_decay(ga_vmm_pool *pool);

/* Unmap a free chunk. `keep`: its memory stays, loose. A driver that refuses leaves it as it is. */
void ga_vmm_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk, bool keep);

/* End a run that is not live. Its chunks are free by themselves then. */
void ga_vmm_break_up(ga_vmm_run *run);

/* Whether no stream uses the free chunk. Asks the driver, once a round for each fence. */
static inline bool ga_vmm_is_idle(ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    return !chunk->fence || ga_vmm_fence_done(&pool->fences, chunk->fence);
}

#endif
