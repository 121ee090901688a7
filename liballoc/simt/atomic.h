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
 * Of 16 bits there are loads, stores and ga_cas16_ORDER: what PTX has as well. Of 128 bits, on a
 * boundary of 16 bytes, there is ga_cas128_ORDER where GA_HAS_CAS128 is 1: on GPUs from sm_90 on and
 * on x86-64. It and the changes of 64 bits are atomic for each other, too: each is done before the
 * other begins (PTX ISA, "Limitations on Mixed-size Data-races"). That is all that is promised
 * of words of two widths.
 *
 * Order is on operations and never on fences, since the thread sanitizer sees no fences.
 */
#ifndef GPUALLOC_SIMT_ATOMIC_H
#define GPUALLOC_SIMT_ATOMIC_H

#include "bits.h"

/* Two words of 64 bits: the lower half is the one that stands first. */
__extension__ typedef unsigned __int128 ga_uint128;

#if defined __CUDA_ARCH__ ? __CUDA_ARCH__ >= 900 : defined __CUDACC__ || defined __x86_64__
#define GA_HAS_CAS128 1
#else
#define GA_HAS_CAS128 0
#endif

#ifdef __CUDACC__

/* In PTX, since the builtins (__nv_atomic_*) take every address for a generic one, which costs a
 * lookup of whose it is, and let the warp wait for answers that nobody uses. */
#define GA_SCOPE_device  "gpu"
#define GA_SCOPE_block   "cta"
#define GA_SCOPE_system  "sys"
#define GA_LETTER        "r"
#define GA_LETTER16      "h"
#define GA_LETTER64      "l"
#define GA_LETTER128     "q"
#define GA_WIDTH         "32"
#define GA_WIDTH16       "16"
#define GA_WIDTH64       "64"
#define GA_WIDTH128      "128"
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

#if GA_HAS_CAS128 && !defined __CUDACC__
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GA_TELL_RELEASE(word) __tsan_release(word)
#define GA_TELL_ACQUIRE(word) __tsan_acquire(word)
#else
#define GA_TELL_RELEASE(word) (void)(word)
#define GA_TELL_ACQUIRE(word) (void)(word)
#endif

/* In assembly: gcc's own takes a lock unless the program is for processors that all have the
 * instruction, and so does the thread sanitizer's, which changes of 64 bits do not. The sanitizer is
 * told what each half orders. */
#define GA_DEFINE_CAS128(order, releases, acquires)                                                \
    GA_SIMT ga_uint128 ga_cas128_##order(ga_uint128 *word, ga_uint128 expected,                    \
                                         ga_uint128 desired)                                       \
    {                                                                                              \
        uint64_t *halves = (uint64_t *)(void *)word;                                               \
        uint64_t low = (uint64_t)expected, high = (uint64_t)(expected >> 64);                      \
        if (releases) {                                                                            \
            GA_TELL_RELEASE(halves);                                                               \
            GA_TELL_RELEASE(halves + 1);                                                           \
        }                                                                                          \
        __asm__ volatile("lock cmpxchg16b %0"                                                      \
                         : "+m"(*word), "+a"(low), "+d"(high)                                      \
                         : "b"((uint64_t)desired), "c"((uint64_t)(desired >> 64))                  \
                         : "memory", "cc");                                                        \
        if (acquires) {                                                                            \
            GA_TELL_ACQUIRE(halves);                                                               \
            GA_TELL_ACQUIRE(halves + 1);                                                           \
        }                                                                                          \
        return low | (ga_uint128)high << 64;                                                       \
    }
GA_DEFINE_CAS128(relaxed, 0, 0)
GA_DEFINE_CAS128(acquire, 0, 1)
GA_DEFINE_CAS128(release, 1, 0)
GA_DEFINE_CAS128(acq_rel, 1, 1)
#elif GA_HAS_CAS128
GA_DEFINE_CAS(ga_uint128, 128, relaxed, , device)
GA_DEFINE_CAS(ga_uint128, 128, acquire, , device)
GA_DEFINE_CAS(ga_uint128, 128, release, , device)
GA_DEFINE_CAS(ga_uint128, 128, acq_rel, , device)
#endif

#endif
