/* SPDX-License-Identifier: MIT
 *
 * The places that requests had before (vmm_past.h), among the chunks that there are now: found
 * again without a search, and left alone where they are soon to be wanted. For the pool
 * (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_PLACES_H
#define GPUALLOC_ARENA_VMM_PLACES_H

#include "vmm_search.h"

typedef enum ga_vmm_likeness {
    GA_VMM_LIKE_NEXT, /* what stood there came where this one comes */
    GA_VMM_LIKE_ANY   /* a request like it, whenever that was */
} ga_vmm_likeness;

/* Free chunks that stand where a request like that stood, as many as that had; false: they are not
 * all there. *like: the position of that request. */
bool ga_vmm_places_find(ga_vmm_pool *pool, const ga_vmm_want *want, ga_vmm_likeness likeness,
                        ga_vmm_window *out, uint64_t *like);

/* The request that was asked for last got this run, as the one at position `like` had one; 0: as
 * none. */
void ga_vmm_places_note(ga_vmm_pool *pool, uint64_t like, const ga_vmm_run *run);

/* For how many requests a free chunk has been unused and, as it was before, is going to be. The
 * former alone would make programs whose phases take turns map what they are about to want; the
 * latter alone lets two phases take a chunk from one another for ever. */
uint64_t ga_vmm_places_rest(const ga_vmm_pool *pool, const ga_vmm_chunk *chunk);

#endif
