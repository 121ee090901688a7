/* SPDX-License-Identifier: MIT
 *
 * Every atomic of the vocabulary once, for both compilers, by one thread on a word of its own.
 */
#ifndef TESTS_DEVICE_SIMT_ATOMICS_H
#define TESTS_DEVICE_SIMT_ATOMICS_H

#include "../../liballoc/simt/atomic.h"

#define SIMT_CHANGES_OF(X, bits, order, suffix)                                                    \
    X(EXCHANGE, exchange, bits, order, suffix)                                                     \
    X(OR, or, bits, order, suffix)                                                                 \
    X(AND, and, bits, order, suffix)                                                               \
    X(ADD, add, bits, order, suffix)                                                               \
    X(CAS, cas, bits, order, suffix)

#define SIMT_POSTS_OF(X, bits, order, suffix)                                                      \
    X(POST_OR, post_or, bits, order, suffix)                                                       \
    X(POST_AND, post_and, bits, order, suffix)                                                     \
    X(POST_ADD, post_add, bits, order, suffix)

#define SIMT_ATOMICS_OF(X, bits, suffix)                                                           \
    X(LOAD, load, bits, relaxed, suffix)                                                           \
    X(LOAD, load, bits, acquire, suffix)                                                           \
    X(STORE, store, bits, relaxed, suffix)                                                         \
    X(STORE, store, bits, release, suffix)                                                         \
    SIMT_CHANGES_OF(X, bits, relaxed, suffix)                                                      \
    SIMT_CHANGES_OF(X, bits, acquire, suffix)                                                      \
    SIMT_CHANGES_OF(X, bits, release, suffix)                                                      \
    SIMT_CHANGES_OF(X, bits, acq_rel, suffix)                                                      \
    SIMT_POSTS_OF(X, bits, relaxed, suffix)                                                        \
    SIMT_POSTS_OF(X, bits, release, suffix)                                                        \
    SIMT_POSTS_OF(X, bits, published, suffix)

#define SIMT_ATOMICS_OF_HALVES(X)                                                                  \
    X(LOAD, load, 16, relaxed, )                                                                   \
    X(LOAD, load, 16, acquire, )                                                                   \
    X(STORE, store, 16, relaxed, )                                                                 \
    X(STORE, store, 16, release, )                                                                 \
    X(CAS, cas, 16, relaxed, )                                                                     \
    X(CAS, cas, 16, acquire, )                                                                     \
    X(CAS, cas, 16, release, )                                                                     \
    X(CAS, cas, 16, acq_rel, )

/* X(KIND, operation, 16, 64 or nothing, order, suffix of the scope) */
#define SIMT_EACH_ATOMIC(X)                                                                        \
    SIMT_ATOMICS_OF(X, , )                                                                         \
    SIMT_ATOMICS_OF(X, , _block)                                                                   \
    SIMT_ATOMICS_OF(X, , _system)                                                                  \
    SIMT_ATOMICS_OF(X, 64, )                                                                       \
    SIMT_ATOMICS_OF(X, 64, _block)                                                                 \
    SIMT_ATOMICS_OF(X, 64, _system)                                                                \
    SIMT_ATOMICS_OF_HALVES(X)

enum {
#define SIMT_ENUMERATE(kind, operation, bits, order, suffix)                                       \
    SIMT_ATOMIC_##operation##bits##_##order##suffix,
    SIMT_EACH_ATOMIC(SIMT_ENUMERATE)
#undef SIMT_ENUMERATE
    SIMT_ATOMICS
};

typedef struct simt_atomic_input {
    uint64_t before; /* of 32 bits, in the lower half, as all others */
    uint64_t operand;
    uint64_t expected; /* of the compare-and-swaps */
} simt_atomic_input;

/* There is one of 128 bits, if any, in these orders. */
#define SIMT_EACH_CAS128(X) X(relaxed) X(acquire) X(release) X(acq_rel)
enum {
    SIMT_CAS128S = 4
};

/* The upper half of a word of 128 bits whose lower half this is. */
#define SIMT_UPPER(low) ((low)*UINT64_C(0x9e3779b97f4a7c15))

typedef struct simt_atomic_output {
    uint64_t answer[SIMT_ATOMICS]; /* 0 where there is none */
    uint64_t after[SIMT_ATOMICS];
    uint32_t has_cas128;
    uint64_t wide[SIMT_CAS128S][4]; /* the halves of the result, and of the new value */
    uint64_t word128[2] __attribute__((aligned(16)));
    uint64_t guards128[2];
    uint32_t guard; /* neighbouring words; they stay 0 */
    uint32_t word;
    uint32_t guards[2];
    uint64_t guard64;
    uint64_t word64;
    uint64_t guards64[2];
    uint16_t guard16;
    uint16_t word16;
    uint16_t guards16[2];
} simt_atomic_output;

typedef uint32_t simt_word;
typedef uint16_t simt_word16;
typedef uint64_t simt_word64;

#define SIMT_DO_LOAD(name, at, operand, expected)     name(at)
#define SIMT_DO_STORE(name, at, operand, expected)    (name(at, operand), 0u)
#define SIMT_DO_EXCHANGE(name, at, operand, expected) name(at, operand)
#define SIMT_DO_OR(name, at, operand, expected)       name(at, operand)
#define SIMT_DO_AND(name, at, operand, expected)      name(at, operand)
#define SIMT_DO_ADD(name, at, operand, expected)      name(at, operand)
#define SIMT_DO_CAS(name, at, operand, expected)      name(at, expected, operand)
#define SIMT_DO_POST_OR(name, at, operand, expected)  (name(at, operand), 0u)
#define SIMT_DO_POST_AND(name, at, operand, expected) (name(at, operand), 0u)
#define SIMT_DO_POST_ADD(name, at, operand, expected) (name(at, operand), 0u)

#define SIMT_DO(kind, operation, bits, order, suffix)                                              \
    out->word##bits = (simt_word##bits)in->before;                                                 \
    out->answer[SIMT_ATOMIC_##operation##bits##_##order##suffix] =                                 \
        SIMT_DO_##kind(ga_##operation##bits##_##order##suffix, &out->word##bits,                   \
                       (simt_word##bits)in->operand, (simt_word##bits)in->expected);               \
    out->after[SIMT_ATOMIC_##operation##bits##_##order##suffix] = out->word##bits;

#if GA_HAS_CAS128
GA_SIMT ga_uint128 simt_wide(uint64_t low)
{
    return low | (ga_uint128)SIMT_UPPER(low) << 64;
}
#endif

#define SIMT_DO_CAS128(order)                                                                      \
    word[0] = in->before;                                                                          \
    word[1] = SIMT_UPPER(in->before);                                                              \
    answer = ga_cas128_##order((ga_uint128 *)(void *)word, simt_wide(in->expected),                \
                               simt_wide(in->operand));                                            \
    wide[0] = (uint64_t)answer;                                                                    \
    wide[1] = (uint64_t)(answer >> 64);                                                            \
    wide[2] = word[0];                                                                             \
    wide[3] = word[1];                                                                             \
    wide += 4;

GA_SIMT void simt_atomics(const simt_atomic_input *in, simt_atomic_output *out)
{
    SIMT_EACH_ATOMIC(SIMT_DO)
    out->has_cas128 = GA_HAS_CAS128;
#if GA_HAS_CAS128
    uint64_t *word = out->word128, *wide = out->wide[0];
    ga_uint128 answer;
    SIMT_EACH_CAS128(SIMT_DO_CAS128)
#endif
}

#endif
