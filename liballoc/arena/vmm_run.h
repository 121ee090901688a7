/* SPDX-License-Identifier: MIT
 *
 * A run by itself: from addresses and chunks to a run, and back. For the pool (vmm_pool.h), under
 * whose lock; its lists of runs are not touched but to remove one that ends.
 */
#ifndef GPUALLOC_ARENA_VMM_RUN_H
#define GPUALLOC_ARENA_VMM_RUN_H

#include "vmm_pool.h"

static inline ga_vmm_run *ga_vmm_run_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_run, link);
}

/* A new one, in no list. Should a part of it be mapped and refuse to be unmapped when the rest is
 * refused, *out is a run of that part, with the status of the failure; else NULL.
 *
 * GA_ERR_MEMORY  above the limit, or none left: of the device's, addresses, or for its record */
ga_status ga_vmm_run_make(ga_vmm_pool *pool, uint64_t size, uint64_t align, ga_vmm_run **out);

/* More memory behind it, up to `size`. GA_ERR_NO_ROOM, GA_ERR_MEMORY. */
ga_status ga_vmm_run_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size);

/* Unmap it and free its record. A driver that refuses leaves it as it is. */
void ga_vmm_run_end(ga_vmm_pool *pool, ga_vmm_run *run);

/* Each of the list; their records go in any case. */
void ga_vmm_run_end_all(ga_vmm_pool *pool, ga_vmm_link *list);

#endif
