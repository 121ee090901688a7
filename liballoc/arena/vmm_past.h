/* SPDX-License-Identifier: MIT
 *
 * What was asked for before, and where it stood. A program that does the same again asks for the
 * same in the same order: so what comes next is looked up where it came last, and gets the place
 * that it had. (Sekiyama et al., "Profile-Guided Memory Optimization for Deep Neural Networks",
 * 2018, place blocks by a profile of one iteration; here the profile is whatever was last.)
 *
 *     past      ... a  b  c  d  e  f ...            a  b  c
 *                            ^ cursor: what comes next   ^ now
 *
 * Positions count requests from 1 on. All of it is a guess: whoever asks looks whether the place is
 * free. For the pool (vmm_pool.h), under whose lock.
 */
#ifndef GPUALLOC_ARENA_VMM_PAST_H
#define GPUALLOC_ARENA_VMM_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_VMM_PAST = 1 << 14 /* requests that are remembered, at the most */
};

typedef struct ga_vmm_event {
    uint64_t key;  /* of the request */
    uint64_t same; /* the position of the one before it in its chain */
    uint64_t next; /* the position of the first that had any of its memory again; 0: none yet */
    uintptr_t base;
    uint64_t size;
} ga_vmm_event;

/* Zeros are one that remembers nothing. */
typedef struct ga_vmm_past {
    ga_vmm_event *events;  /* a ring; NULL: none yet */
    uint64_t *last;        /* by the hash of the key: the position of the last */
    uint64_t count;        /* of requests so far */
    uint64_t cursor;       /* the position that is expected next; 0: lost */
    uint64_t key, keys[2]; /* of what is asked for, and of the two before it */
} ga_vmm_past;

/* For a request: `what` tells those of one size from others (its stream, say). */
void ga_vmm_past_ask(ga_vmm_past *past, uint64_t size, uint64_t what);

/* Where such a request was before position `at`; 0: the last time. Answers 0 where there is
 * none. */
uint64_t ga_vmm_past_look(const ga_vmm_past *past, uint64_t at);

/* Whether the two before it were as they are now. */
bool ga_vmm_past_follows(const ga_vmm_past *past, uint64_t at);

/* It is given this place, as at position `at`; 0: as never before. Answers its own position; 0:
 * there is no memory to remember. */
uint64_t ga_vmm_past_note(ga_vmm_past *past, uint64_t at, uintptr_t base, uint64_t size);

/* What stood at the position; NULL: long forgotten. */
static inline ga_vmm_event *ga_vmm_past_at(const ga_vmm_past *past, uint64_t at)
{
    bool known = past->events && at && at <= past->count && past->count - at < GA_VMM_PAST;
    return known ? &past->events[at % GA_VMM_PAST] : NULL;
}

void ga_vmm_past_clear(ga_vmm_past *past);

#endif
