/* SPDX-License-Identifier: MIT
 *
 * A tile that works on a slab heap by every method: shared by the tests of the algorithm. A header,
 * so that each program compiles the algorithm for itself, with or without planted bugs.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLAB_ACTOR_H
#define GPUALLOC_TESTS_SUPPORT_SLAB_ACTOR_H

#include "backends/slab/units/slab_in_turn.h"

#include "random.h"
#include "slab_next.h"

typedef enum slab_claim_kind {
    SLAB_LANES, /* a unit for each lane of a mask */
    SLAB_ONE,   /* one by one, from the resident block */
    SLAB_WORD,  /* one by one, from a claimed word */
    SLAB_CLAIM_KINDS
} slab_claim_kind;

typedef struct slab_actor {
    ga_slab_heap *heap;
    uint64_t random;
    ga_slab_resident resident;
    ga_slab_claimed claimed;
} slab_actor;

static inline ga_tile slab_tile(void)
{
    return ga_tile_of(32);
}

/* The actor begins as tile number `number`. */
static inline void slab_actor_begin(slab_actor *actor, ga_slab_heap *heap, uint32_t number)
{
    ga_slab_view view = ga_slab_view_of(heap);
    actor->heap = heap;
    actor->random = number;
    actor->claimed = (ga_slab_claimed){number % view.words, 0};
    ga_slab_resident_begin(view, slab_tile(), number, &actor->resident);
}

/* A mask of `n` lanes. */
static inline uint32_t slab_actor_mask(slab_actor *actor, uint32_t n)
{
    uint32_t mask = 0;
    while (ga_bits_count(mask) < n) {
        mask |= 1u << random_below(&actor->random, 32);
    }
    return mask;
}

/* Up to `n` units (at most 32) for any lanes, from any word on. Returns the number of units. */
static inline uint32_t slab_actor_claim_lanes(slab_actor *actor, uint32_t n, uint32_t *units)
{
    ga_slab_view view = ga_slab_view_of(actor->heap);
    uint32_t start = (uint32_t)random_below(&actor->random, view.words);
    uint32_t mask = slab_actor_mask(actor, n);
    ga_lanes got = ga_slab_claim_lanes(view, slab_tile(), mask, start);
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (got[lane] != GA_SLAB_FULL) {
            units[count++] = got[lane];
        }
    }
    return count;
}

/* Up to `n` units (at most 32) by this method. Fewer: the heap returned FULL. */
static inline uint32_t slab_actor_claim(slab_actor *actor, slab_claim_kind kind, uint32_t n,
                                        uint32_t *units)
{
    ga_slab_view view = ga_slab_view_of(actor->heap);
    if (kind == SLAB_LANES) {
        return slab_actor_claim_lanes(actor, n, units);
    }
    for (uint32_t i = 0; i < n; i++) {
        units[i] = kind == SLAB_ONE ? ga_slab_claim_one(view, slab_tile(), &actor->resident)
                                    : slab_claim_next(view, slab_tile(), &actor->claimed);
        if (units[i] == GA_SLAB_FULL) {
            return i;
        }
    }
    return n;
}

/* Free `n` units (at most 32): as lanes, in random order, or one by one. */
static inline void slab_actor_release(slab_actor *actor, const uint32_t *units, uint32_t n)
{
    ga_slab_view view = ga_slab_view_of(actor->heap);
    if (n && random_below(&actor->random, 4)) {
        uint32_t mask = slab_actor_mask(actor, n);
        ga_lanes giving = ga_lanes_all(GA_SLAB_FULL);
        for (uint32_t rest = mask, i = 0; rest; rest &= rest - 1u, i++) {
            giving[ga_bits_lowest(rest)] = units[i];
        }
        ga_slab_release_lanes(view, slab_tile(), mask, giving);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        ga_slab_release_one(view, slab_tile(), units[i]);
    }
}

/* Free the rest of the claimed word. */
static inline void slab_actor_rest(slab_actor *actor)
{
    ga_slab_release_word(ga_slab_view_of(actor->heap), slab_tile(), &actor->claimed);
}

#endif
