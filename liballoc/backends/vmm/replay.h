/* SPDX-License-Identifier: MIT
 *
 * Placement replay: finds the addresses that a repeated request had before (history.h) among the
 * chunks of today, without a search, and estimates how soon a free chunk is needed again, so that
 * eviction spares it. Used by the pool (pool.h) under the heap's lock.
 */
#ifndef GPUALLOC_VMM_REPLAY_H
#define GPUALLOC_VMM_REPLAY_H

#include "search.h"

typedef enum ga_vmm_replay_mode {
    GA_VMM_REPLAY_SEQUENCE, /* the placement at the cursor, or one with the same two predecessors */
    GA_VMM_REPLAY_ANY       /* any placement of the same size and stream */
} ga_vmm_replay_mode;

/* Find a placement that the current request can repeat: all its addresses are mapped and free.
 * Returns false if there is none. *matched: the position of the placement; in sequence mode it is
 * set to the cursor even if the result is false. */
bool ga_vmm_replay_find(ga_vmm_pool *pool, const ga_vmm_request *request, ga_vmm_replay_mode mode,
                        ga_vmm_window *out, uint64_t *matched);

/* Record that the current request got this run. `matched`: the position of the placement that it
 * repeats; 0: none. */
void ga_vmm_replay_record(ga_vmm_pool *pool, uint64_t matched, const ga_vmm_run *run);

/* How long a free chunk has been idle and is expected to stay idle, in requests. Past idle time
 * alone would evict chunks that a phase of the program is about to need again. Expected idle time
 * alone would let two phases evict each other's chunks forever. */
uint64_t ga_vmm_replay_idle_span(const ga_vmm_pool *pool, const ga_vmm_chunk *chunk);

#endif
