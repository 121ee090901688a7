/* SPDX-License-Identifier: MIT
 *
 * Chunks: mapping memory into holes, and unmapping it. All driver calls for a vmm heap's memory are
 * made here. Used by the pool (pool.h) under the heap's lock.
 */
#ifndef GPUALLOC_VMM_CHUNKS_H
#define GPUALLOC_VMM_CHUNKS_H

#include "pool.h"

/* Map all holes of [base, end); `below` is the chunk or wall before `base`. Detached memory is used
 * first. If a mapping fails, those made by this call are undone. A chunk that the driver refuses to
 * unmap stays as a free chunk and is counted.
 *
 * GA_ERR_MEMORY  above the limit, or out of memory: on the device, or for records */
ga_status ga_vmm_chunks_fill(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end);

/* Unmap the chunk, release its memory and free its record. It must belong to no run. If the driver
 * refuses, the chunk stays as it is. */
void ga_vmm_chunks_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Unmap the chunk, but keep its memory for holes that are about to be filled. The memory still
 * counts as held. */
void ga_vmm_chunks_detach(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Split the chunk at the address, if that lies inside it and the memory can be split: on the host,
 * where a chunk has no handle. The new chunk behind the address belongs to the same run. */
void ga_vmm_chunks_split(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uintptr_t at);

/* Release the detached memory that was not used. Memory that the driver refuses stays detached. */
void ga_vmm_chunks_release_detached(ga_vmm_pool *pool);

/* Let one more device access all chunks, present and future. If the driver refuses, future chunks
 * are not accessible either. */
ga_status ga_vmm_chunks_allow(ga_vmm_pool *pool, int peer);

/* Unmap all chunks. The records are freed in any case. */
void ga_vmm_chunks_end(ga_vmm_pool *pool);

#endif
