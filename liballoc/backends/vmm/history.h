/* SPDX-License-Identifier: MIT
 *
 * Placement history: a ring of the last requests and the addresses that each of them got.
 *
 * A program that repeats itself (a training loop, for example) sends the same requests in the same
 * order. The history recognises such a repetition, so that each request can get the addresses that
 * its counterpart had (replay.h replays them). Sekiyama et al., "Profile-Guided Memory
 * Optimization for Deep Neural Networks", 2018, place blocks by a profile of one iteration; here
 * the profile is the most recent repetition.
 *
 *     history   ... a  b  c  d  e  f ...            a  b  c
 *                            ^ cursor: expected next      ^ newest
 *
 * A position is the number of a request, counted from 1. The history only predicts: the caller
 * checks that the addresses are free. Used by the pool (pool.h) under the heap's lock.
 */
#ifndef GPUALLOC_VMM_HISTORY_H
#define GPUALLOC_VMM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_VMM_HISTORY_LENGTH = 1 << 14 /* requests that are kept */
};

typedef struct ga_vmm_placement {
    uint64_t key;      /* hash of the request's size and stream */
    uint64_t previous; /* position of the previous placement with the same hash; 0: none */
    /* Position of the first later placement that reused any of its memory; 0: none yet. */
    uint64_t successor;
    uintptr_t base;
    uint64_t size;
} ga_vmm_placement;

/* All zeros: an empty history. */
typedef struct ga_vmm_history {
    /* Ring by position modulo the length; NULL before the first append. */
    ga_vmm_placement *placements;
    uint64_t *chains; /* by hash of the key: position of the newest placement */
    uint64_t count;   /* requests so far */
    /* Position of the placement that is expected next; 0: no repetition recognised. */
    uint64_t cursor;
    uint64_t key, recent_keys[2]; /* of the current request, and of the two before it */
} ga_vmm_history;

/* Begin a request. `stream_key` separates requests of equal size on different streams. */
void ga_vmm_history_begin_request(ga_vmm_history *history, uint64_t size, uint64_t stream_key);

/* The newest placement before position `at` with the current request's key; `at` 0: the newest of
 * all. Returns 0 if there is none. */
uint64_t ga_vmm_history_find(const ga_vmm_history *history, uint64_t at);

/* True if the two requests before position `at` had the keys of the two most recent requests. */
bool ga_vmm_history_context_matches(const ga_vmm_history *history, uint64_t at);

/* Append the placement of the current request. `at`: the placement that it repeats, 0: none. The
 * cursor moves behind `at`; without one it advances by one, if it is set. Returns the new position,
 * or 0 if out of memory. */
uint64_t ga_vmm_history_append(ga_vmm_history *history, uint64_t at, uintptr_t base, uint64_t size);

/* The placement at the position; NULL if the ring has overwritten it. */
static inline ga_vmm_placement *ga_vmm_history_at(const ga_vmm_history *history, uint64_t at)
{
    bool known = history->placements && at && at <= history->count &&
                 history->count - at < GA_VMM_HISTORY_LENGTH;
    return known ? &history->placements[at % GA_VMM_HISTORY_LENGTH] : NULL;
}

void ga_vmm_history_clear(ga_vmm_history *history);

#endif
