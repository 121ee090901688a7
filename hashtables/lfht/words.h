/* SPDX-License-Identifier: MIT
 *
 * The tagged words that link nodes: the address of a node, its kind and a few tag bits.
 *
 *     63    58 57                               4    3     2  1    0
 *     | level | address, a multiple of 16        | FRESH | kind | GONE |
 *
 * Buckets of hash nodes and the `next` fields of leaves hold such words. Only a bucket can be
 * FRESH, and its level bits are 0. The level bits of a leaf's `next` give the level of the chain
 * that the leaf is in.
 *
 * The level protects the thesis's algorithms from ABA. A leaf moves to deeper levels only, so a
 * compare-and-swap that expects the leaf at a higher level fails, however long its thread was
 * stopped. expand.h has the full argument.
 */
#ifndef GPUALLOC_LFHT_WORDS_H
#define GPUALLOC_LFHT_WORDS_H

#include <gpualloc/detail/simt/planted.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The stress tests compile this with GA_LFHT_WEAKENED. Then GA_PLANTED() is a variable, threads
 * yield at random between steps, or call a function of the test, and nodes are small. */
#ifdef GA_LFHT_WEAKENED
#include <sched.h>
#define LFHT_WEAKENED true
#else
#define LFHT_WEAKENED false
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

#define LFHT_GONE     ((lfht_word)1) /* a leaf's next: removed, for good; a bucket: frozen */
#define LFHT_KIND     ((lfht_word)6)
#define LFHT_LEAF     ((lfht_word)0)
#define LFHT_HASH     ((lfht_word)2) /* a hash node; a chain ends with its own hash node */
#define LFHT_FREEZE   ((lfht_word)4) /* a freeze node, which leads to a hash node */
#define LFHT_UNFREEZE ((lfht_word)6) /* a freeze node whose compression was cancelled */
#define LFHT_FRESH    ((lfht_word)8) /* a bucket: only its node's expansion has written it */
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

/* The word without level and tags. */
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
    /* LW2: acquire. Pairs with LW1: the reader sees the node fully initialised, and everything that
     * the writer did before it changed the word. */
    return GA_PLANTED(lfht_load_relaxed) ? __atomic_load_n(location, __ATOMIC_RELAXED)
                                         : __atomic_load_n(location, __ATOMIC_ACQUIRE);
}

/* Compare-and-swap from `seen` to `wanted`. False if the word has changed. */
static inline bool lfht_cas(lfht_word *location, lfht_word seen, lfht_word wanted)
{
    lfht_test_yield();
    if (GA_PLANTED(lfht_publish_relaxed)) {
        return __atomic_compare_exchange_n(location, &seen, wanted, false, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED);
    }
    /* LW1: seq_cst. Pairs with LW2, and with LE1 (compress.h, rebuild.h) in one total order: if two
     * threads each empty one of the last two buckets, at least one of them sees both empty. */
    return __atomic_compare_exchange_n(location, &seen, wanted, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_ACQUIRE);
}

#endif
