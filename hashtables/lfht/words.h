/* SPDX-License-Identifier: MIT
 *
 * The words that lead from node to node: an address, what it is the address of, and a few tags.
 *
 *     63    58 57                               4    3     2  1    0
 *     | level | address, a multiple of 16        | FRESH | kind | GONE |
 *
 * Two sorts of places hold them. A bucket of a hash node may be FRESH, and has no level. The `next`
 * of a leaf has the level of the chain that the leaf is in.
 *
 * The level is what makes the algorithms of the thesis safe from a word that comes back (ABA). A
 * leaf goes down, never up, so a compare-and-swap that was meant for the leaf in a chain above
 * fails, however long its thread was stopped. docs/lfht.md has the whole argument.
 */
#ifndef GPUALLOC_LFHT_WORDS_H
#define GPUALLOC_LFHT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The stress tests weaken one thing at a time, to see that they notice. In their programs threads give
 * way to others between any two steps, or call a function of the test's, and this is a variable
 * (tests/support/mutant.h). */
#ifdef GA_LFHT_MUTANT
#include <sched.h>
#define LFHT_WEAKENED true
#else
#define LFHT_WEAKENED  false
#define GA_LFHT_MUTANT 0
#endif
#ifdef GA_LFHT_ASIDE
void GA_LFHT_ASIDE(void);
#endif

typedef uintptr_t lfht_word;

_Static_assert(sizeof(lfht_word) == 8, "the tags want words of 64 bits");

enum {
    LFHT_LEVEL_SHIFT = 58,
    LFHT_ALIGN = 16
};

#define LFHT_GONE     ((lfht_word)1) /* of a leaf: removed; of a bucket: frozen. Never changes. */
#define LFHT_KIND     ((lfht_word)6)
#define LFHT_LEAF     ((lfht_word)0)
#define LFHT_HASH     ((lfht_word)2) /* a hash node: the chain's own is its end */
#define LFHT_FREEZE   ((lfht_word)4) /* a freeze node, and behind it a hash node */
#define LFHT_UNFREEZE ((lfht_word)6) /* the same node, once its compression is cancelled */
#define LFHT_FRESH    ((lfht_word)8) /* of a bucket: nobody but an expansion has written it */
#define LFHT_LEVEL    (~(lfht_word)0 << LFHT_LEVEL_SHIFT)
#define LFHT_ADDRESS  (~LFHT_LEVEL & ~(lfht_word)(LFHT_ALIGN - 1))

static inline void *lfht_pointer(lfht_word word)
{
    return (void *)(word & LFHT_ADDRESS);
}

static inline lfht_word lfht_kind(lfht_word word)
{
    return word & LFHT_KIND;
}

static inline uint32_t lfht_level(lfht_word word)
{
    return (uint32_t)(word >> LFHT_LEVEL_SHIFT);
}

static inline lfht_word lfht_level_bits(uint32_t level)
{
    return (lfht_word)level << LFHT_LEVEL_SHIFT;
}

static inline lfht_word lfht_word_to(const void *node, lfht_word kind)
{
    return (lfht_word)node | kind;
}

/* Where it leads to, without level and tags. */
static inline lfht_word lfht_target(lfht_word word)
{
    return word & (LFHT_ADDRESS | LFHT_KIND);
}

static inline bool lfht_is_frozen(lfht_word bucket)
{
    return (bucket & (LFHT_GONE | LFHT_KIND)) == (LFHT_GONE | LFHT_FREEZE);
}

static inline void lfht_test_yield(void)
{
#if defined GA_LFHT_ASIDE
    GA_LFHT_ASIDE();
#elif LFHT_WEAKENED
    static _Thread_local uint32_t state;
    state = state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&state;
    if (state >> 28 == 0) {
        sched_yield();
    }
#endif
}

static inline lfht_word lfht_load(const lfht_word *location)
{
    /* W2: acquire. Pairs with W1: the node that the word leads to is seen as it was made, and what
     * was done before the word changed is seen to have been done. */
    return GA_LFHT_MUTANT == 6 ? __atomic_load_n(location, __ATOMIC_RELAXED)
                               : __atomic_load_n(location, __ATOMIC_ACQUIRE);
}

/* Change the word from `seen` to `wanted`; false where it is something else. */
static inline bool lfht_cas(lfht_word *location, lfht_word seen, lfht_word wanted)
{
    lfht_test_yield();
    if (GA_LFHT_MUTANT == 7) {
        return __atomic_compare_exchange_n(location, &seen, wanted, false, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED);
    }
    /* W1: seq_cst. Pairs with W2; among themselves and with E1 (compress.h) in one order: of two
     * threads that empty two buckets, one sees both empty. */
    return __atomic_compare_exchange_n(location, &seen, wanted, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_ACQUIRE);
}

#endif
