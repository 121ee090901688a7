/* SPDX-License-Identifier: MIT
 *
 * Litmus tests of the vocabulary's memory orders: message passing, ownership of slots, alternation.
 * The bodies are for both compilers, so that a host thread can be one side of them.
 *
 * A message is two words on lines of their own; the reader reads both before the writer may write,
 * so that they are in its cache, then waits for the flag, then reads them again. With a release and
 * an acquire it must find the new values. The first read is no race: the writer waits for `ready`,
 * whose value depends on it. It is an instruction that the compiler cannot move or merge with the
 * second read, which is plain C.
 *
 * All waits are bounded by a patience, in polls; a thread that has timed out LITMUS_GIVE_UP times
 * ends.
 */
#ifndef TESTS_DEVICE_SIMT_LITMUS_H
#define TESTS_DEVICE_SIMT_LITMUS_H

#include "../../liballoc/simt/simt.h"

#ifndef __CUDACC__
#include <sched.h>
#endif

#define LITMUS_LINE    32u /* words */
#define LITMUS_SECOND  39u /* index of a message's second word; 0 is the first */
#define LITMUS_WORDS   64u /* of a message */
#define LITMUS_EMPTY   2u  /* the flag before it is published: bits can be set and cleared */
#define LITMUS_NEVER   0xdeadbeefu /* no word ever has this value */
#define LITMUS_GIVE_UP 3u

typedef enum litmus_publish {
    PUBLISH_STORE,
    PUBLISH_EXCHANGE,
    PUBLISH_OR,
    PUBLISH_AND,
    PUBLISH_ADD,
    PUBLISH_CAS,
    PUBLISH_OR_ACQ_REL,
    PUBLISH_CAS_ACQ_REL,
    PUBLISH_POST_OR,
    PUBLISH_POST_AND,
    PUBLISH_POST_ADD,
    PUBLISH_POST_AND_PUBLISHED, /* by tiles */
    PUBLISH_RELAXED
} litmus_publish_by;

typedef enum litmus_look {
    LOOK_LOAD,
    LOOK_EXCHANGE,
    LOOK_OR,
    LOOK_AND,
    LOOK_ADD,
    LOOK_CAS,
    LOOK_OR_ACQ_REL,
    LOOK_CAS_ACQ_REL,
    LOOK_RELAXED
} litmus_look_by;

typedef enum litmus_data {
    DATA_PLAIN,
    DATA_RELAXED,
    DATA_CACHED /* plain, by an instruction that the compiler keeps: shows the results without an
                 * order */
} litmus_data;

typedef struct litmus_edge {
    uint32_t publish;
    uint32_t look;
    uint32_t data;
} litmus_edge;

/* One message of a pair; never used twice. */
typedef struct litmus_cell {
    uint32_t data[LITMUS_WORDS];
    uint32_t flag;
    uint32_t unused[LITMUS_LINE - 1];
    uint32_t ready;
    uint32_t unused_too[LITMUS_LINE - 1];
} __attribute__((aligned(128))) litmus_cell;

/* As above for a tile: a line for each lane. */
typedef struct litmus_board {
    uint32_t data[32][LITMUS_LINE];
    uint32_t flag;
    uint32_t unused[LITMUS_LINE - 1];
    uint32_t ready;
    uint32_t unused_too[LITMUS_LINE - 1];
} __attribute__((aligned(128))) litmus_board;

typedef enum litmus_outcome {
    LITMUS_MISSED,
    LITMUS_SEEN,
    LITMUS_LATE
} litmus_outcome;

typedef struct litmus_result {
    uint32_t seen;
    uint32_t missed; /* patience ran out */
    uint32_t late;   /* forbidden: published, and an older word read */
    uint32_t noted;  /* the rest is of the first of these */
    uint32_t index;
    uint32_t expected[2];
    uint32_t got[2];
} litmus_result;

/* The data of `litmus_race()`: words of one group of threads. */
typedef struct litmus_race_words {
    uint64_t add64;
    uint64_t exchange64;
    uint32_t add;
    uint32_t exchange;
    uint32_t cas;
    uint32_t post_add;
    uint32_t won_or;  /* by how many threads */
    uint32_t won_and; /* by how many threads */
    uint32_t gave_up; /* a compare-and-swap */
    uint32_t unused;
    uint32_t set[32];     /* all clear at first: a bit for each group of four threads, up to 4096 */
    uint32_t cleared[32]; /* all set at first */
} litmus_race_words;

/* The results of each thread. */
typedef struct litmus_race_answers {
    uint32_t add;
    uint32_t exchange;
    uint64_t add64;
    uint64_t exchange64;
} litmus_race_answers;

/* A read that may come from the cache. */
GA_SIMT uint32_t litmus_cached(const uint32_t *word)
{
#ifdef __CUDACC__
    uint32_t value;
    asm volatile("ld.weak.global.ca.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#else
    return *(const volatile uint32_t *)word;
#endif
}

/* Have the word in the cache. On the CPU, where caches agree, it would be a race for nothing. */
GA_SIMT uint32_t litmus_warm(const uint32_t *word)
{
#ifdef __CUDACC__
    return litmus_cached(word);
#else
    (void)word;
    return 0;
#endif
}

GA_SIMT void litmus_pause(void)
{
#ifndef __CUDACC__
    sched_yield();
#endif
}

GA_SIMT uint32_t litmus_next_lane(uint32_t lanes, uint32_t lane)
{
    return ga_bits_from(lanes, (lane + 1u) & 31u);
}

/* relaxed, here: counts, which are read when all is done. */
GA_SIMT void litmus_count(litmus_result *result, uint32_t outcome, uint32_t index,
                          const uint32_t *expected, const uint32_t *got)
{
    if (outcome == LITMUS_MISSED) {
        ga_post_add_relaxed(&result->missed, 1u);
        return;
    }
    ga_post_add_relaxed(&result->seen, 1u);
    if (outcome == LITMUS_LATE) {
        ga_post_add_relaxed(&result->late, 1u);
        if (!ga_exchange_relaxed(&result->noted, 1u)) {
            result->index = index;
            result->expected[0] = expected[0];
            result->expected[1] = expected[1];
            result->got[0] = got[0];
            result->got[1] = got[1];
        }
    }
}

/* Raise the first of two words by a compare-and-swap of 64 bits, or `both` by one of 128, while
 * other threads do either. False if there is no such instruction, or patience runs out. */
GA_SIMT bool litmus_raise(uint64_t *words, bool both)
{
#if GA_HAS_CAS128
    uint64_t low = ga_load64_relaxed(words);
    uint64_t high = ga_load64_relaxed(words + 1);
    for (uint32_t left = 1u << 20; left; left--) {
        ga_uint128 seen = low | (ga_uint128)high << 64;
        ga_uint128 raised = (low + 1u) | (ga_uint128)(high + 1u) << 64;
        ga_uint128 before = both ? ga_cas128_relaxed((ga_uint128 *)(void *)words, seen, raised)
                                 : ga_cas64_relaxed(words, low, low + 1u) | (ga_uint128)high << 64;
        if (before == seen) {
            return true;
        }
        low = (uint64_t)before;
        high = (uint64_t)(before >> 64);
    }
#else
    (void)words;
    (void)both;
#endif
    return false;
}

#define SCOPED(name) name
#include "simt_litmus_scope.h"
#undef SCOPED
#define SCOPED(name) name##_block
#include "simt_litmus_scope.h"
#undef SCOPED
#define SCOPED(name) name##_system
#include "simt_litmus_scope.h"
#undef SCOPED

#endif
