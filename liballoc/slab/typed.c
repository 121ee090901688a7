/* SPDX-License-Identifier: MIT
 *
 * The typed calls, compiled for one thread a tile. The order of memory is slab_tile.h's: whatever
 * is taken or given back here goes through ga_slab_take() and ga_slab_give().
 */
#include "typed.h"

enum {
    LANES = 32
};

/* The words of 32 blocks, whose counts fill a row. */
static const uint32_t WORDS_APART = LANES * GA_SLAB_ROW_WORDS;

uint32_t ga_slab_word_apart(const ga_slab_heap *heap, uint32_t number)
{
    uint64_t word = (uint64_t)number * WORDS_APART;
    uint64_t round = word / heap->words; /* the next time round: in other blocks */
    return (uint32_t)((word + round * GA_SLAB_ROW_WORDS) % heap->words);
}

/* ---- batches ------------------------------------------------------------------------------ */

/* Write down all units of a word. */
GA_SIMT void list_all(char *first, size_t unit, void **units)
{
    for (size_t i = 0; i < LANES; i++) {
        units[i] = first + i * unit;
    }
}

/* Write down the units of `mask` of a word. Answers how many. */
static uint32_t list_some(ga_slab_view slab, uint32_t word, uint32_t mask, void **units)
{
    char *first = ga_slab_pointer(slab, word * LANES);
    uint32_t got = 0;
    for (; mask; mask &= mask - 1u) {
        units[got++] = first + (size_t)ga_bits_lowest(mask) * slab.unit;
    }
    return got;
}

/* At most `n` of the word's units. */
static uint32_t claim_of_word(ga_slab_view slab, uint32_t word, uint32_t n, void **units)
{
    /* relaxed: ga_slab_take() asks again. */
    uint32_t mask = ga_bits_take(~ga_load_relaxed(ga_slab_word(slab, word)), n);
    return mask ? list_some(slab, word, mask & ~ga_slab_take(slab, word, mask), units) : 0;
}

/* `n` units: from the row of word `near`, that word first, else from anywhere. */
static uint32_t claim_of_row(ga_slab_heap *heap, uint32_t *near, uint32_t n, void **units)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t first = *near % GA_SLAB_ROW_WORDS;
    uint32_t row = *near - first;
    uint32_t got = 0;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS && got < n; i++) {
        *near = row + (first + i) % GA_SLAB_ROW_WORDS;
        got += claim_of_word(slab, *near, n - got, units + got);
    }
    if (got < n) {
        ga_lanes found = ga_slab_claim_lanes(slab, ga_tile_of(LANES), ga_bits_below(n - got),
                                             (row + GA_SLAB_ROW_WORDS) % slab.words);
        for (uint32_t i = 0, more = n - got; i < more; i++) {
            if (found[i] != GA_SLAB_FULL) {
                *near = found[i] / LANES;
                units[got++] = ga_slab_pointer(slab, found[i]);
            }
        }
    }
    return got;
}

/* Whatever the usual case is not: `got` is the mask of what has been taken of word `near`. */
static __attribute__((noinline)) uint32_t claim_rest(ga_slab_heap *heap, uint32_t *near,
                                                     uint32_t got, uint32_t n, void **units)
{
    uint32_t listed = list_some(ga_slab_view_of(heap), *near, got, units);
    return listed + claim_of_row(heap, near, n - listed, units + listed);
}

uint32_t ga_slab_claim_batch(ga_slab_heap *heap, uint32_t *near, uint32_t n, void **units)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t word = *near;
    uint32_t taken = GA_ALL_BITS;
    if (n == LANES && !(taken = ga_slab_take(slab, word, GA_ALL_BITS))) {
        list_all(ga_slab_pointer(slab, word * LANES), slab.unit, units);
        *near = word + 1u == slab.words ? 0 : word + 1u;
        return LANES;
    }
    return claim_rest(heap, near, ~taken, n, units);
}

/* Whether 32 units stand side by side, as those of a whole word do where ga_slab_claim_batch()
 * listed them. */
GA_SIMT bool are_in_order(void *const *units, size_t unit)
{
    uintptr_t differ = 0;
    for (size_t i = 0; i < LANES; i++) {
        differ |= (uintptr_t)units[i] ^ ((uintptr_t)units[0] + i * unit);
    }
    return !differ;
}

/* Give back those of one word, that of the first of them; write down the others. Answers how
 * many. */
static uint32_t release_of_word(ga_slab_view slab, uint32_t *near, uint32_t n, void *const *units,
                                void **others)
{
    uint32_t span = LANES * slab.unit;
    uint32_t left = 0;
    uint32_t mask = 0;
    *near = ga_slab_unit(slab, units[0]) / LANES;
    char *first = ga_slab_pointer(slab, *near * LANES);
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t offset = (uintptr_t)units[i] - (uintptr_t)first;
        if (offset < span) {
            mask |= 1u << ga_slab_divide(slab, offset);
        } else {
            others[left++] = units[i];
        }
    }
    ga_slab_give(slab, *near, mask);
    return left;
}

static __attribute__((noinline)) void release_rest(ga_slab_heap *heap, uint32_t *near, uint32_t n,
                                                   void *const *units)
{
    void *others[LANES];
    n = release_of_word(ga_slab_view_of(heap), near, n, units, others);
    while (n) {
        n = release_of_word(ga_slab_view_of(heap), near, n, others, others);
    }
}

void ga_slab_release_batch(ga_slab_heap *heap, uint32_t *near, uint32_t n, void *const *units)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t first = n ? ga_slab_unit(slab, units[0]) : 0;
    if (n == LANES && first % LANES == 0 && are_in_order(units, slab.unit)) {
        *near = first / LANES;
        ga_slab_give(slab, *near, GA_ALL_BITS);
    } else if (n) {
        release_rest(heap, near, n, units);
    }
}

/* ---- a thread's hand ------------------------------------------------------------------------ */

void ga_slab_hand_begin(ga_slab_hand *hand, ga_slab_heap *heap, uint32_t number)
{
    *hand = (ga_slab_hand){
        .heap = heap,
        .unit = heap->unit,
        .span = LANES * heap->unit,
        .inverse = ((1ull << 32) + heap->unit - 1u) / heap->unit,
        .word = ga_slab_word_apart(heap, number),
    };
    /* Nothing lies within `span` of the end of the address space. */
    hand->first = hand->other = (char *)(UINTPTR_MAX - hand->span);
}

/* Deal out of `word`, whose units of the mask belong to the hand. */
static void hold(ga_slab_hand *hand, uint32_t word, uint32_t units)
{
    hand->word = word;
    hand->units = units;
    hand->first = ga_slab_pointer(ga_slab_view_of(hand->heap), word * LANES);
}

/* Deal the next unit once `units` is empty: from what came back, else from the other word, else
 * from the heap. */
void *ga_slab_hand_refill(ga_slab_hand *hand)
{
    if (hand->back) {
        hand->units = hand->back;
        hand->back = 0;
    } else if (hand->waiting) {
        hold(hand, hand->other_word, hand->waiting);
        hand->waiting = 0;
        hand->other = (char *)(UINTPTR_MAX - hand->span);
    } else {
        ga_slab_view slab = ga_slab_view_of(hand->heap);
        ga_slab_claimed claimed = {(hand->word + 1u) % slab.words, 0}; /* this one is used up */
        ga_slab_claim_word(slab, ga_tile_of(LANES), &claimed);
        if (!claimed.units) {
            return NULL;
        }
        hold(hand, claimed.word, claimed.units);
    }
    return ga_slab_hand_claim(hand);
}

static void give_waiting(ga_slab_hand *hand)
{
    if (hand->waiting) {
        ga_slab_give(ga_slab_view_of(hand->heap), hand->other_word, hand->waiting);
        hand->waiting = 0;
    }
}

/* The unit is of a third word: it becomes the other word. */
bool ga_slab_hand_turn(ga_slab_hand *hand, void *unit)
{
    ga_slab_view slab = ga_slab_view_of(hand->heap);
    uint32_t number = ga_slab_unit(slab, unit);
    if (number == GA_SLAB_FULL) {
        return false;
    }
    give_waiting(hand);
    hand->other_word = number / LANES;
    hand->other = ga_slab_pointer(slab, hand->other_word * LANES);
    hand->waiting = 1u << number % LANES;
    return true;
}

void ga_slab_hand_end(ga_slab_hand *hand)
{
    uint32_t held = hand->units | hand->back;
    give_waiting(hand);
    if (held) {
        ga_slab_give(ga_slab_view_of(hand->heap), hand->word, held);
    }
    hand->units = 0;
    hand->back = 0;
}

/* ---- the paper's pure mode ----------------------------------------------------------------- */

void ga_slab_resident_start(ga_slab_heap *heap, uint32_t number, ga_slab_resident *resident)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    ga_slab_resident_begin(slab, ga_tile_of(LANES), ga_slab_word_apart(heap, number), resident);
}

void *ga_slab_resident_claim(ga_slab_heap *heap, ga_slab_resident *resident)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_claim_one(slab, ga_tile_of(LANES), resident);
    return unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(slab, unit);
}

void ga_slab_resident_release(ga_slab_heap *heap, void *unit)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    ga_slab_release_one(slab, ga_tile_of(LANES), ga_slab_unit(slab, unit));
}
