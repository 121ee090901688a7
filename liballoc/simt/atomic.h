/* SPDX-License-Identifier: MIT
 *
 * Atomics on words of 32 and (with 64 in the name) 64 bits. The name states the order and the
 * scope: the device, with `_block` a thread block, with `_system` every processor that can access
 * the address, the host included. On the CPU there is one scope. All return the previous value. On
 * the GPU the word is in global memory; for shared memory use CUDA's own atomics.
 *
 * GA_SIMT_PEERS, for kernels on several devices that work on the same words: `device` means the
 * system, too. Rows and tiles follow.
 *
 *     ga_load_relaxed       ga_load_acquire
 *     ga_store_relaxed      ga_store_release
 *     ga_exchange_ORDER  ga_or_ORDER  ga_and_ORDER  ga_add_ORDER  ga_cas_ORDER
 *                        ORDER: relaxed, acquire, release, acq_rel
 *
 *     ga_post_or_ORDER  ga_post_and_ORDER  ga_post_add_ORDER    ORDER: relaxed, release, published
 *
 * A post returns nothing, so the GPU need not wait for it. A `published` post releases the
 * accesses of its tile before the last ga_tile_publish() of that scope, and no later ones: one
 * wait serves many posts.
 *
 * ga_cas_ORDER(word, expected, desired) has succeeded if it returns `expected`. A failed one is
 * relaxed, or acquire if ORDER includes acquire.
 *
 * ga_load_quad_relaxed, ga_store_quad_relaxed, ga_store_quad_published: four words at once.
 *
 * 16 bits: loads, stores and ga_cas16_ORDER, because PTX has no others. 128 bits, aligned to 16
 * bytes: ga_cas128_ORDER if GA_HAS_CAS128 is 1, on GPUs from sm_90 on and on x86-64. It and the
 * read-modify-writes of 64 bits are atomic to each other, too: each completes before the other
 * begins (PTX ISA, "Limitations on Mixed-size Data-races"). Nothing else is guaranteed for
 * accesses of two widths.
 *
 * Order is attached to operations, never to fences, because the thread sanitizer does not see
 * fences.
 */
#ifndef GPUALLOC_SIMT_ATOMIC_H
#define GPUALLOC_SIMT_ATOMIC_H

#include "bits.h"

/* Two words of 64 bits; the lower half is the first in memory. */
__extension__ typedef unsigned __int128 ga_uint128;

#if defined __CUDA_ARCH__ ? __CUDA_ARCH__ >= 900 : defined __CUDACC__ || defined __x86_64__
#define GA_HAS_CAS128 1
#else
#define GA_HAS_CAS128 0
#endif

#ifdef __CUDACC__

/* In PTX, because the builtins (__nv_atomic_*) treat every address as generic, which costs a lookup
 * of its memory space, and make the warp wait for results that are not used. */
#ifdef GA_SIMT_PEERS
#define GA_SIMT_SCOPE_device "sys"
#else
#define GA_SIMT_SCOPE_device "gpu"
#endif
#define GA_SIMT_SCOPE_block   "cta"
#define GA_SIMT_SCOPE_system  "sys"
#define GA_SIMT_LETTER        "r"
#define GA_SIMT_LETTER16      "h"
#define GA_SIMT_LETTER64      "l"
#define GA_SIMT_LETTER128     "q"
#define GA_SIMT_WIDTH         "32"
#define GA_SIMT_WIDTH16       "16"
#define GA_SIMT_WIDTH64       "64"
#define GA_SIMT_WIDTH128      "128"
#define GA_SIMT_PTX_relaxed   "relaxed"
#define GA_SIMT_PTX_acquire   "acquire"
#define GA_SIMT_PTX_release   "release"
#define GA_SIMT_PTX_acq_rel   "acq_rel"
#define GA_SIMT_PTX_published "relaxed" /* ga_tile_publish() has the fence */
#define GA_SIMT_PTX(instruction, order, scope, rest)                                               \
    instruction "." GA_SIMT_PTX_##order "." GA_SIMT_SCOPE_##scope ".global." rest

#define GA_SIMT_DEFINE_LOAD(type, bits, order, suffix, scope)                                      \
    GA_SIMT type ga_load##bits##_##order##suffix(const type *word)                                 \
    {                                                                                              \
        type value;                                                                                \
        asm volatile(GA_SIMT_PTX("ld", order, scope, "u" GA_SIMT_WIDTH##bits " %0, [%1];")         \
                     : "=" GA_SIMT_LETTER##bits(value)                                             \
                     : "l"(word)                                                                   \
                     : "memory");                                                                  \
        return value;                                                                              \
    }

#define GA_SIMT_DEFINE_STORE(type, bits, order, suffix, scope)                                     \
    GA_SIMT void ga_store##bits##_##order##suffix(type *word, type value)                          \
    {                                                                                              \
        asm volatile(                                                                              \
            GA_SIMT_PTX("st", order, scope, "u" GA_SIMT_WIDTH##bits " [%0], %1;")::"l"(word),      \
            GA_SIMT_LETTER##bits(value)                                                            \
            : "memory");                                                                           \
    }

#define GA_SIMT_DEFINE_CHANGE(type, bits, name, operation, order, suffix, scope)                   \
    GA_SIMT type ga_##name##bits##_##order##suffix(type *word, type value)                         \
    {                                                                                              \
        type before;                                                                               \
        asm volatile(                                                                              \
            GA_SIMT_PTX("atom", order, scope, operation GA_SIMT_WIDTH##bits " %0, [%1], %2;")      \
            : "=" GA_SIMT_LETTER##bits(before)                                                     \
            : "l"(word), GA_SIMT_LETTER##bits(value)                                               \
            : "memory");                                                                           \
        return before;                                                                             \
    }

#define GA_SIMT_DEFINE_CAS(type, bits, order, suffix, scope)                                       \
    GA_SIMT type ga_cas##bits##_##order##suffix(type *word, type expected, type desired)           \
    {                                                                                              \
        type before;                                                                               \
        asm volatile(                                                                              \
            GA_SIMT_PTX("atom", order, scope, "cas.b" GA_SIMT_WIDTH##bits " %0, [%1], %2, %3;")    \
            : "=" GA_SIMT_LETTER##bits(before)                                                     \
            : "l"(word), GA_SIMT_LETTER##bits(expected), GA_SIMT_LETTER##bits(desired)             \
            : "memory");                                                                           \
        return before;                                                                             \
    }

#define GA_SIMT_DEFINE_CHANGES(type, bits, order, suffix, scope)                                   \
    GA_SIMT_DEFINE_CHANGE(type, bits, exchange, "exch.b", order, suffix, scope)                    \
    GA_SIMT_DEFINE_CHANGE(type, bits, or, "or.b", order, suffix, scope)                            \
    GA_SIMT_DEFINE_CHANGE(type, bits, and, "and.b", order, suffix, scope)                          \
    GA_SIMT_DEFINE_CHANGE(type, bits, add, "add.u", order, suffix, scope)                          \
    GA_SIMT_DEFINE_CAS(type, bits, order, suffix, scope)

#define GA_SIMT_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                     \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        asm volatile(GA_SIMT_PTX("red", order, scope,                                              \
                                 operation GA_SIMT_WIDTH##bits " [%0], %1;")::"l"(word),           \
                     GA_SIMT_LETTER##bits(value)                                                   \
                     : "memory");                                                                  \
    }

#else

#define GA_SIMT_ORDER_relaxed            __ATOMIC_RELAXED
#define GA_SIMT_ORDER_acquire            __ATOMIC_ACQUIRE
#define GA_SIMT_ORDER_release            __ATOMIC_RELEASE
#define GA_SIMT_ORDER_acq_rel            __ATOMIC_ACQ_REL
#define GA_SIMT_ORDER_published          __ATOMIC_RELEASE /* stronger than needed, but no fence */

/* The order of a failed compare-and-swap. */
#define GA_SIMT_FAILED_relaxed           GA_SIMT_ORDER_relaxed
#define GA_SIMT_FAILED_acquire           GA_SIMT_ORDER_acquire
#define GA_SIMT_FAILED_release           GA_SIMT_ORDER_relaxed
#define GA_SIMT_FAILED_acq_rel           GA_SIMT_ORDER_acquire

/* An `or` of all bits is an exchange, which is one instruction on x86-64, where an `or` with a
 * result needs a loop. Constants only: nothing is tested at run time. */
#define GA_SIMT_IS_ALL_BITS(type, value) (__builtin_constant_p(value) && (value) == (type) ~(type)0)

#define GA_SIMT_DEFINE_LOAD(type, bits, order, suffix, scope)                                      \
    GA_SIMT type ga_load##bits##_##order##suffix(const type *word)                                 \
    {                                                                                              \
        return __atomic_load_n((type *)word, GA_SIMT_ORDER_##order);                               \
    }

#define GA_SIMT_DEFINE_STORE(type, bits, order, suffix, scope)                                     \
    GA_SIMT void ga_store##bits##_##order##suffix(type *word, type value)                          \
    {                                                                                              \
        __atomic_store_n(word, value, GA_SIMT_ORDER_##order);                                      \
    }

#define GA_SIMT_DEFINE_CAS(type, bits, order, suffix, scope)                                       \
    GA_SIMT type ga_cas##bits##_##order##suffix(type *word, type expected, type desired)           \
    {                                                                                              \
        __atomic_compare_exchange_n(word, &expected, desired, false, GA_SIMT_ORDER_##order,        \
                                    GA_SIMT_FAILED_##order);                                       \
        return expected;                                                                           \
    }

#define GA_SIMT_DEFINE_CHANGES(type, bits, order, suffix, scope)                                   \
    GA_SIMT type ga_exchange##bits##_##order##suffix(type *word, type value)                       \
    {                                                                                              \
        return __atomic_exchange_n(word, value, GA_SIMT_ORDER_##order);                            \
    }                                                                                              \
    GA_SIMT type ga_or##bits##_##order##suffix(type *word, type value)                             \
    {                                                                                              \
        if (GA_SIMT_IS_ALL_BITS(type, value)) {                                                    \
            return __atomic_exchange_n(word, value, GA_SIMT_ORDER_##order);                        \
        }                                                                                          \
        return __atomic_fetch_or(word, value, GA_SIMT_ORDER_##order);                              \
    }                                                                                              \
    GA_SIMT type ga_and##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return __atomic_fetch_and(word, value, GA_SIMT_ORDER_##order);                             \
    }                                                                                              \
    GA_SIMT type ga_add##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return __atomic_fetch_add(word, value, GA_SIMT_ORDER_##order);                             \
    }                                                                                              \
    GA_SIMT_DEFINE_CAS(type, bits, order, suffix, scope)

#define GA_SIMT_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                     \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        (void)__atomic_fetch_##name(word, value, GA_SIMT_ORDER_##order);                           \
    }

#endif

#define GA_SIMT_DEFINE_POSTS(type, bits, order, suffix, scope)                                     \
    GA_SIMT_DEFINE_POST(type, bits, or, "or.b", order, suffix, scope)                              \
    GA_SIMT_DEFINE_POST(type, bits, and, "and.b", order, suffix, scope)                            \
    GA_SIMT_DEFINE_POST(type, bits, add, "add.u", order, suffix, scope)

#define GA_SIMT_DEFINE_ATOMICS(type, bits, suffix, scope)                                          \
    GA_SIMT_DEFINE_LOAD(type, bits, relaxed, suffix, scope)                                        \
    GA_SIMT_DEFINE_LOAD(type, bits, acquire, suffix, scope)                                        \
    GA_SIMT_DEFINE_STORE(type, bits, relaxed, suffix, scope)                                       \
    GA_SIMT_DEFINE_STORE(type, bits, release, suffix, scope)                                       \
    GA_SIMT_DEFINE_CHANGES(type, bits, relaxed, suffix, scope)                                     \
    GA_SIMT_DEFINE_CHANGES(type, bits, acquire, suffix, scope)                                     \
    GA_SIMT_DEFINE_CHANGES(type, bits, release, suffix, scope)                                     \
    GA_SIMT_DEFINE_CHANGES(type, bits, acq_rel, suffix, scope)                                     \
    GA_SIMT_DEFINE_POSTS(type, bits, relaxed, suffix, scope)                                       \
    GA_SIMT_DEFINE_POSTS(type, bits, release, suffix, scope)                                       \
    GA_SIMT_DEFINE_POSTS(type, bits, published, suffix, scope)

GA_SIMT_DEFINE_ATOMICS(uint32_t, , , device)
GA_SIMT_DEFINE_ATOMICS(uint32_t, , _block, block)
GA_SIMT_DEFINE_ATOMICS(uint32_t, , _system, system)
GA_SIMT_DEFINE_ATOMICS(uint64_t, 64, , device)
GA_SIMT_DEFINE_ATOMICS(uint64_t, 64, _block, block)
GA_SIMT_DEFINE_ATOMICS(uint64_t, 64, _system, system)

/* Four consecutive words, aligned to 16 bytes, by one load on the GPU. Each is loaded as by
 * ga_load_relaxed(). */
GA_SIMT void ga_load_quad_relaxed(const uint32_t *words, uint32_t *quad)
{
#ifdef __CUDACC__
    asm volatile("ld.relaxed." GA_SIMT_SCOPE_device ".global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quad[0]), "=r"(quad[1]), "=r"(quad[2]), "=r"(quad[3])
                 : "l"(words)
                 : "memory");
#else
    for (uint32_t i = 0; i < 4u; i++) {
        quad[i] = ga_load_relaxed(words + i);
    }
#endif
}

/* Store four consecutive words, aligned to 16 bytes, by one store on the GPU. */
GA_SIMT void ga_store_quad_relaxed(uint32_t *words, const uint32_t *quad)
{
#ifdef __CUDACC__
    asm volatile("st.relaxed." GA_SIMT_SCOPE_device
                 ".global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(words),
                 "r"(quad[0]), "r"(quad[1]), "r"(quad[2]), "r"(quad[3])
                 : "memory");
#else
    for (uint32_t i = 0; i < 4u; i++) {
        ga_store_relaxed(words + i, quad[i]);
    }
#endif
}

/* As above, each published as by ga_post_or_published(). */
GA_SIMT void ga_store_quad_published(uint32_t *words, const uint32_t *quad)
{
#ifdef __CUDACC__
    ga_store_quad_relaxed(words, quad);
#else
    for (uint32_t i = 0; i < 4u; i++) {
        ga_store_release(words + i, quad[i]);
    }
#endif
}

GA_SIMT_DEFINE_LOAD(uint16_t, 16, relaxed, , device)
GA_SIMT_DEFINE_LOAD(uint16_t, 16, acquire, , device)
GA_SIMT_DEFINE_STORE(uint16_t, 16, relaxed, , device)
GA_SIMT_DEFINE_STORE(uint16_t, 16, release, , device)
GA_SIMT_DEFINE_CAS(uint16_t, 16, relaxed, , device)
GA_SIMT_DEFINE_CAS(uint16_t, 16, acquire, , device)
GA_SIMT_DEFINE_CAS(uint16_t, 16, release, , device)
GA_SIMT_DEFINE_CAS(uint16_t, 16, acq_rel, , device)

#if GA_HAS_CAS128 && !defined __CUDACC__
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GA_SIMT_TSAN_RELEASE(word) __tsan_release(word)
#define GA_SIMT_TSAN_ACQUIRE(word) __tsan_acquire(word)
#else
#define GA_SIMT_TSAN_RELEASE(word) (void)(word)
#define GA_SIMT_TSAN_ACQUIRE(word) (void)(word)
#endif

/* In assembly, because gcc's builtin takes a lock unless the program is compiled for processors
 * that all have the instruction, and the thread sanitizer's takes one too; read-modify-writes of 64
 * bits do not take that lock. The sanitizer is told the order of each half. */
#define GA_SIMT_DEFINE_CAS128(order, releases, acquires)                                           \
    GA_SIMT ga_uint128 ga_cas128_##order(ga_uint128 *word, ga_uint128 expected,                    \
                                         ga_uint128 desired)                                       \
    {                                                                                              \
        uint64_t *halves = (uint64_t *)(void *)word;                                               \
        uint64_t low = (uint64_t)expected, high = (uint64_t)(expected >> 64);                      \
        if (releases) {                                                                            \
            GA_SIMT_TSAN_RELEASE(halves);                                                          \
            GA_SIMT_TSAN_RELEASE(halves + 1);                                                      \
        }                                                                                          \
        __asm__ volatile("lock cmpxchg16b %0"                                                      \
                         : "+m"(*word), "+a"(low), "+d"(high)                                      \
                         : "b"((uint64_t)desired), "c"((uint64_t)(desired >> 64))                  \
                         : "memory", "cc");                                                        \
        if (acquires) {                                                                            \
            GA_SIMT_TSAN_ACQUIRE(halves);                                                          \
            GA_SIMT_TSAN_ACQUIRE(halves + 1);                                                      \
        }                                                                                          \
        return low | (ga_uint128)high << 64;                                                       \
    }
GA_SIMT_DEFINE_CAS128(relaxed, 0, 0)
GA_SIMT_DEFINE_CAS128(acquire, 0, 1)
GA_SIMT_DEFINE_CAS128(release, 1, 0)
GA_SIMT_DEFINE_CAS128(acq_rel, 1, 1)
#elif GA_HAS_CAS128
GA_SIMT_DEFINE_CAS(ga_uint128, 128, relaxed, , device)
GA_SIMT_DEFINE_CAS(ga_uint128, 128, acquire, , device)
GA_SIMT_DEFINE_CAS(ga_uint128, 128, release, , device)
GA_SIMT_DEFINE_CAS(ga_uint128, 128, acq_rel, , device)
#endif

#endif
