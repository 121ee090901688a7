/* SPDX-License-Identifier: MIT
 *
 * Units for host programs that want one size: batches, a hand for each thread, and the paper's pure
 * mode. All three work on one heap (slab_heap.h) side by side, and a unit that one of them claimed
 * may go back through another.
 *
 *     batch      up to 32 units at once, one atomic on a bitmap for those of one word. Keeps
 *                nothing
 *     hand       a thread takes a whole word of 32 units and deals them out one at a time. A free
 *                sets a bit in the hand while the unit is of the word that it holds, or of the word
 *                that the last other free was of: an atomic only where a word comes or goes
 *     resident   one unit, one atomic on a bitmap, as the paper's warps do it
 *
 * None of them checks what it is given: a unit that goes back must have been claimed from the heap
 * and not have gone back since. What a thread wrote into a unit before it gave it back happens
 * before the next claim of that unit returns, whichever thread's.
 */
#ifndef GPUALLOC_SLAB_TYPED_H
#define GPUALLOC_SLAB_TYPED_H

#include "slab_tile.h"

/* ---- batches ------------------------------------------------------------------------------ */

/* Claim `n` units, at most 32, into `units`; answers how many there were, fewer only where the heap
 * is full. `near` is the caller's bitmap word, in which the search begins: threads do not meet
 * where theirs are ga_slab_word_apart(). Any thread, with a `near` of its own; never blocks. */
uint32_t ga_slab_claim_batch(ga_slab_heap *heap, uint32_t *near, uint32_t n, void **units);

/* Give back `n` units, at most 32, of any words; one atomic on a bitmap for each of those. `near`
 * becomes one of them, since what was used last is in the cache. */
void ga_slab_release_batch(ga_slab_heap *heap, uint32_t *near, uint32_t n, void *const *units);

/* Where thread number `number` looks first, so that neither bitmaps nor counts of two threads share
 * a cache line as long as the heap has room for that. */
uint32_t ga_slab_word_apart(const ga_slab_heap *heap, uint32_t number);

/* ---- a thread's hand ------------------------------------------------------------------------ */

/* INVARIANT  `units`, `back` and `waiting` are free units whose bits in the heap are set: they
 *            belong to the hand. No unit is in two of them. */
typedef struct ga_slab_hand {
    char *first;      /* unit 0 of the word that is held */
    uint32_t units;   /* mask of its units that can be dealt out */
    uint32_t back;    /* mask of those that came back, dealt out once `units` is empty */
    uint32_t span;    /* bytes of a word's 32 units */
    uint32_t unit;    /* bytes of one */
    uint64_t inverse; /* 2^32 / unit, rounded up: exact for what is below `span` */
    char *other;      /* unit 0 of the other word */
    uint32_t waiting; /* mask of its units that came back and wait for more */
    uint32_t word;    /* the number of the word that is held */
    ga_slab_heap *heap;
    uint32_t other_word;
} __attribute__((aligned(64))) ga_slab_hand;

/* Thread number `number` begins; takes nothing yet. */
void ga_slab_hand_begin(ga_slab_hand *hand, ga_slab_heap *heap, uint32_t number);

/* Give back everything that the hand still has. It may go on being used. */
void ga_slab_hand_end(ga_slab_hand *hand);

/* What the two below leave to others: claim with no unit at hand, and free a unit of a third
 * word. */
void *ga_slab_hand_refill(ga_slab_hand *hand);
bool ga_slab_hand_turn(ga_slab_hand *hand, void *unit);

/* The bit of the unit `offset` bytes behind the first of its word. */
static inline uint32_t ga_slab_hand_bit(const ga_slab_hand *hand, uintptr_t offset)
{
    return 1u << ((uint64_t)(uint32_t)offset * hand->inverse >> 32 & 31u);
}

/* One unit, or NULL where all are taken: up to 63 of those may lie in each of the other hands. By
 * the hand's thread. */
static inline void *ga_slab_hand_claim(ga_slab_hand *hand)
{
    uint32_t units = hand->units;
    if (__builtin_expect(units == 0, 0)) {
        return ga_slab_hand_refill(hand);
    }
    hand->units = units & (units - 1u);
    return hand->first + (size_t)ga_bits_lowest(units) * hand->unit;
}

/* Give back a unit, whoever claimed it. By the hand's thread. False, and nothing done, for an
 * address outside the heap. */
static inline bool ga_slab_hand_release(ga_slab_hand *hand, void *unit)
{
    uintptr_t offset = (uintptr_t)unit - (uintptr_t)hand->first;
    if (__builtin_expect(offset < hand->span, 1)) {
        hand->back |= ga_slab_hand_bit(hand, offset);
        return true;
    }
    offset = (uintptr_t)unit - (uintptr_t)hand->other;
    if (offset < hand->span) {
        hand->waiting |= ga_slab_hand_bit(hand, offset);
        return true;
    }
    return ga_slab_hand_turn(hand, unit);
}

/* ---- the paper's pure mode ----------------------------------------------------------------- */

/* Thread number `number` begins. */
void ga_slab_resident_start(ga_slab_heap *heap, uint32_t number, ga_slab_resident *resident);

/* One unit, or NULL where the heap is full. By the thread whose `resident` it is. */
void *ga_slab_resident_claim(ga_slab_heap *heap, ga_slab_resident *resident);

/* Give back a unit, whoever claimed it. */
void ga_slab_resident_release(ga_slab_heap *heap, void *unit);

#endif
