/* SPDX-License-Identifier: MIT
 *
 * Chunks, mapped in holes and unmapped: all that the driver is asked for memory. For the pool
 * (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_CHUNKS_H
#define GPUALLOC_ARENA_VMM_CHUNKS_H

#include "vmm_pool.h"

/* Map every hole in [base, end), first with what is loose, behind `below` or chunks that follow it;
 * all of them or none, as far as the driver undoes it: what it does not is a free chunk, and
 * counted.
 *
 * GA_ERR_MEMORY  above the limit, or none left: of the device's, or for records */
ga_status ga_vmm_chunks_fill(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end);

/* Unmap it and free its record; it is part of no run. A driver that refuses leaves it as it is. */
void ga_vmm_chunks_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Unmap it as well, but keep its memory for holes that are about to be filled. It is held, and
 * loose. */
void ga_vmm_chunks_detach(ga_vmm_pool *pool, ga_vmm_chunk *chunk);

/* Cut the chunk at the address if it lies within and the place allows that: on the host, where a
 * chunk has no handle. The rest stands behind it and belongs to the same run. */
void ga_vmm_chunks_split(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uintptr_t at);

/* What was loosened and not used goes to the driver, as does what that would not have before. */
void ga_vmm_chunks_release_detached(ga_vmm_pool *pool);

/* Let one more device reach all chunks, and those to come. Where the driver refuses, none to come. */
ga_status ga_vmm_chunks_allow(ga_vmm_pool *pool, int peer);

/* Unmap all; the records go in any case. */
void ga_vmm_chunks_end(ga_vmm_pool *pool);

#endif
