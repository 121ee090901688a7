/* SPDX-License-Identifier: MIT
 *
 * Atomics on words of 32 and (with 64 in the name) 64 bits. The name states the order; the scope is
 * the device, `_block` a thread block, `_system` everything that shares the address, the host too.
 * On the CPU there is one scope. All answer what stood there before. On the GPU a word is in global
 * memory: not in shared memory, whose atomics are CUDA's affair.
 *
 *     ga_load_relaxed       ga_load_acquire
 *     ga_store_relaxed      ga_store_release
 *     ga_exchange_ORDER  ga_or_ORDER  ga_and_ORDER  ga_add_ORDER  ga_cas_ORDER
 *                        ORDER: relaxed, acquire, release, acq_rel
 *
 *     ga_post_or_ORDER  ga_post_and_ORDER  ga_post_add_ORDER    ORDER: relaxed, release, published
 *
 * A post answers nothing, so that on the GPU nobody waits for it. A `published` one releases what
 * its tile did before its last ga_tile_publish() of that scope, and no more: one wait serves many
 * posts.
 *
 * ga_cas_ORDER(word, expected, desired) has succeeded when it answers `expected`; where it fails it
 * is relaxed, or acquire where ORDER has an acquire in it.
 *
 * Of 16 bits there are loads, stores and ga_cas16_ORDER: what PTX has as well.
 *
 * Order is on operations and never on fences, since the thread sanitizer sees no fences.
 */
#ifndef GPUALLOC_SIMT_ATOMIC_H
#define GPUALLOC_SIMT_ATOMIC_H

#include "bits.h"

#ifdef __CUDACC__

/* In PTX, since the builtins (__nv_atomic_*) take every address for a generic one, which costs a
 * lookup of whose it is, and let the warp wait for answers that nobody uses. */
#define GA_SCOPE_device  "gpu"
#define GA_SCOPE_block   "cta"
#define GA_SCOPE_system  "sys"
#define GA_LETTER        "r"
#define GA_LETTER16      "h"
#define GA_LETTER64      "l"
#define GA_WIDTH         "32"
#define GA_WIDTH16       "16"
#define GA_WIDTH64       "64"
#define GA_PTX_relaxed   "relaxed"
#define GA_PTX_acquire   "acquire"
#define GA_PTX_release   "release"
#define GA_PTX_acq_rel   "acq_rel"
#define GA_PTX_published "relaxed" /* ga_tile_publish() has the fence */
#define GA_PTX(what, order, scope, rest)                                                           \
    what "." GA_PTX_##order "." GA_SCOPE_##scope ".global." rest

#define GA_DEFINE_LOAD(type, bits, order, suffix, scope)                                           \
    GA_SIMT type ga_load##bits##_##order##suffix(const type *word)                                 \
    {                                                                                              \
        type value;                                                                                \
        asm volatile(GA_PTX("ld", order, scope, "u" GA_WIDTH##bits " %0, [%1];")                   \
                     : "=" GA_LETTER##bits(value)                                                  \
                     : "l"(word)                                                                   \
                     : "memory");                                                                  \
        return value;                                                                              \
    }

#define GA_DEFINE_STORE(type, bits, order, suffix, scope)                                          \
    GA_SIMT void ga_store##bits##_##order##suffix(type *word, type value)                          \
    {                                                                                              \
        asm volatile(GA_PTX("st", order, scope, "u" GA_WIDTH##bits " [%0], %1;")::"l"(word),       \
                     GA_LETTER##bits(value)                                                        \
                     : "memory");                                                                  \
    }

#define GA_DEFINE_CHANGE(type, bits, name, operation, order, suffix, scope)                        \
    GA_SIMT type ga_##name##bits##_##order##suffix(type *word, type value)                         \
    {                                                                                              \
        type before;                                                                               \
        asm volatile(GA_PTX("atom", order, scope, operation GA_WIDTH##bits " %0, [%1], %2;")       \
                     : "=" GA_LETTER##bits(before)                                                 \
                     : "l"(word), GA_LETTER##bits(value)                                           \
                     : "memory");                                                                  \
        return before;                                                                             \
    }

#define GA_DEFINE_CAS(type, bits, order, suffix, scope)                                            \
    GA_SIMT type ga_cas##bits##_##order##suffix(type *word, type expected, type desired)           \
    {                                                                                              \
        type before;                                                                               \
        asm volatile(GA_PTX("atom", order, scope, "cas.b" GA_WIDTH##bits " %0, [%1], %2, %3;")     \
                     : "=" GA_LETTER##bits(before)                                                 \
                     : "l"(word), GA_LETTER##bits(expected), GA_LETTER##bits(desired)              \
                     : "memory");                                                                  \
        return before;                                                                             \
    }

#define GA_DEFINE_CHANGES(type, bits, order, suffix, scope)                                        \
    GA_DEFINE_CHANGE(type, bits, exchange, "exch.b", order, suffix, scope)                         \
    GA_DEFINE_CHANGE(type, bits, or, "or.b", order, suffix, scope)                                 \
    GA_DEFINE_CHANGE(type, bits, and, "and.b", order, suffix, scope)                               \
    GA_DEFINE_CHANGE(type, bits, add, "add.u", order, suffix, scope)                               \
    GA_DEFINE_CAS(type, bits, order, suffix, scope)

#define GA_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                          \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        asm volatile(                                                                              \
            GA_PTX("red", order, scope, operation GA_WIDTH##bits " [%0], %1;")::"l"(word),         \
            GA_LETTER##bits(value)                                                                 \
            : "memory");                                                                           \
    }

#else

#define GA_ORDER_relaxed            __ATOMIC_RELAXED
#define GA_ORDER_acquire            __ATOMIC_ACQUIRE
#define GA_ORDER_release            __ATOMIC_RELEASE
#define GA_ORDER_acq_rel            __ATOMIC_ACQ_REL
#define GA_ORDER_published          __ATOMIC_RELEASE /* more than need be, without a fence */

/* What a failed compare-and-swap may order. */
#define GA_FAILED_relaxed           GA_ORDER_relaxed
#define GA_FAILED_acquire           GA_ORDER_acquire
#define GA_FAILED_release           GA_ORDER_relaxed
#define GA_FAILED_acq_rel           GA_ORDER_acquire

/* Where all bits are set it is an exchange, one instruction of x86-64, which for an `or` with an
 * answer needs a loop. Only for constants: nothing is tested at run time. */
#define GA_IS_ALL_BITS(type, value) (__builtin_constant_p(value) && (value) == (type) ~(type)0)

#define GA_DEFINE_LOAD(type, bits, order, suffix, scope)                                           \
    GA_SIMT type ga_load##bits##_##order##suffix(const type *word)                                 \
    {                                                                                              \
        return __atomic_load_n((type *)word, GA_ORDER_##order);                                    \
    }

#define GA_DEFINE_STORE(type, bits, order, suffix, scope)                                          \
    GA_SIMT void ga_store##bits##_##order##suffix(type *word, type value)                          \
    {                                                                                              \
        __atomic_store_n(word, value, GA_ORDER_##order);                                           \
    }

#define GA_DEFINE_CAS(type, bits, order, suffix, scope)                                            \
    GA_SIMT type ga_cas##bits##_##order##suffix(type *word, type expected, type desired)           \
    {                                                                                              \
        __atomic_compare_exchange_n(word, &expected, desired, false, GA_ORDER_##order,             \
                                    GA_FAILED_##order);                                            \
        return expected;                                                                           \
    }

#define GA_DEFINE_CHANGES(type, bits, order, suffix, scope)                                        \
    GA_SIMT type ga_exchange##bits##_##order##suffix(type *word, type value)                       \
    {                                                                                              \
        return __atomic_exchange_n(word, value, GA_ORDER_##order);                                 \
    }                                                                                              \
    GA_SIMT type ga_or##bits##_##order##suffix(type *word, type value)                             \
    {                                                                                              \
        if (GA_IS_ALL_BITS(type, value)) {                                                         \
            return __atomic_exchange_n(word, value, GA_ORDER_##order);                             \
        }                                                                                          \
        return __atomic_fetch_or(word, value, GA_ORDER_##order);                                   \
    }                                                                                              \
    GA_SIMT type ga_and##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return __atomic_fetch_and(word, value, GA_ORDER_##order);                                  \
    }                                                                                              \
    GA_SIMT type ga_add##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return __atomic_fetch_add(word, value, GA_ORDER_##order);                                  \
    }                                                                                              \
    GA_DEFINE_CAS(type, bits, order, suffix, scope)

#define GA_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                          \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        (void)__atomic_fetch_##name(word, value, GA_ORDER_##order);                                \
    }

#endif

#define GA_DEFINE_POSTS(type, bits, order, suffix, scope)                                          \
    GA_DEFINE_POST(type, bits, or, "or.b", order, suffix, scope)                                   \
    GA_DEFINE_POST(type, bits, and, "and.b", order, suffix, scope)                                 \
    GA_DEFINE_POST(type, bits, add, "add.u", order, suffix, scope)

#define GA_DEFINE_ATOMICS(type, bits, suffix, scope)                                               \
    GA_DEFINE_LOAD(type, bits, relaxed, suffix, scope)                                             \
    GA_DEFINE_LOAD(type, bits, acquire, suffix, scope)                                             \
    GA_DEFINE_STORE(type, bits, relaxed, suffix, scope)                                            \
    GA_DEFINE_STORE(type, bits, release, suffix, scope)                                            \
    GA_DEFINE_CHANGES(type, bits, relaxed, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, acquire, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, release, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, acq_rel, suffix, scope)                                          \
    GA_DEFINE_POSTS(type, bits, relaxed, suffix, scope)                                            \
    GA_DEFINE_POSTS(type, bits, release, suffix, scope)                                            \
    GA_DEFINE_POSTS(type, bits, published, suffix, scope)

GA_DEFINE_ATOMICS(uint32_t, , , device)
GA_DEFINE_ATOMICS(uint32_t, , _block, block)
GA_DEFINE_ATOMICS(uint32_t, , _system, system)
GA_DEFINE_ATOMICS(uint64_t, 64, , device)
GA_DEFINE_ATOMICS(uint64_t, 64, _block, block)
GA_DEFINE_ATOMICS(uint64_t, 64, _system, system)

GA_DEFINE_LOAD(uint16_t, 16, relaxed, , device)
GA_DEFINE_LOAD(uint16_t, 16, acquire, , device)
GA_DEFINE_STORE(uint16_t, 16, relaxed, , device)
GA_DEFINE_STORE(uint16_t, 16, release, , device)
GA_DEFINE_CAS(uint16_t, 16, relaxed, , device)
GA_DEFINE_CAS(uint16_t, 16, acquire, , device)
GA_DEFINE_CAS(uint16_t, 16, release, , device)
GA_DEFINE_CAS(uint16_t, 16, acq_rel, , device)

#endif
