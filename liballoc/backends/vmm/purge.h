/* SPDX-License-Identifier: MIT
 *
 * Releasing free memory. A chunk is unmapped in four cases: a request needs its memory elsewhere
 * (evict), more bytes are held than cache= allows (bound), the chunk has been free for the time of
 * decay= (decay), or the caller asks for it (trim). Used by the pool (pool.h) under the heap's
 * lock.
 */
#ifndef GPUALLOC_VMM_PURGE_H
#define GPUALLOC_VMM_PURGE_H

#include "search.h"

/* Unmap free chunks that no stream uses: at least `bytes` bytes, or all that there are. Large
 * chunks that are expected to stay idle go first. Chunks of the window `spared` stay (NULL:
 * none). Memory that fits into a hole of `hole` bytes is detached instead of released. Returns
 * the bytes. */
uint64_t ga_vmm_evict(ga_vmm_pool *pool, uint64_t bytes, const ga_vmm_window *spared,
                      uint64_t hole);

/* Unmap free chunks that no stream uses, until at most `keep` free bytes are held. */
void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep);

/* Unmap the chunks that have been free for longest, until no more is held than cache= allows.
 * Chunks that streams still use stay; a later call unmaps them. */
void ga_vmm_pool_bound(ga_vmm_pool *pool);

/* Unmap the chunks that have been free for the time of decay=, and those beyond the bound of
 * cache=, anywhere in the order of age. Chunks that streams still use stay. */
void ga_vmm_pool_decay(ga_vmm_pool *pool);

/* Unmap a free chunk. `detach`: keep its memory, detached. If the driver refuses, the chunk stays
 * as it is. */
void ga_vmm_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk, bool detach);

/* Dissolve an intact run. Its chunks are free chunks of no run afterwards. */
void ga_vmm_break_up(ga_vmm_run *run);

/* True if no stream uses the free chunk. Queries the driver at most once per round and fence. */
static inline bool ga_vmm_is_idle(ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    return !chunk->fence || ga_vmm_fence_done(&pool->fences, chunk->fence);
}

#endif
