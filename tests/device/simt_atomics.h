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
    uint64_t before; /* of 32 bits the lower half, as of the others */
    uint64_t operand;
    uint64_t expected; /* by the compare-and-swaps */
} simt_atomic_input;

typedef struct simt_atomic_output {
    uint64_t answer[SIMT_ATOMICS]; /* 0 where there is none */
    uint64_t after[SIMT_ATOMICS];
    uint32_t guard; /* words beside the ones that change; stay 0 */
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

GA_SIMT void simt_atomics(const simt_atomic_input *in, simt_atomic_output *out)
{
    SIMT_EACH_ATOMIC(SIMT_DO)
}

#endif
