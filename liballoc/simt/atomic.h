/* SPDX-License-Identifier: MIT
 *
 * Atomics on words of 32 and (with 64 in the name) 64 bits. The name states the order; the scope is
 * the device, `_block` a thread block, `_system` everything that shares the address, the host too.
 * On the CPU there is one scope. All answer what stood there before.
 *
 *     ga_load_relaxed       ga_load_acquire
 *     ga_store_relaxed      ga_store_release
 *     ga_exchange_ORDER  ga_or_ORDER  ga_and_ORDER  ga_add_ORDER  ga_cas_ORDER
 *                        ORDER: relaxed, acquire, release, acq_rel
 *
 *     ga_post_or_ORDER  ga_post_and_ORDER  ga_post_add_ORDER    ORDER: relaxed, release
 *
 * A post answers nothing, so that on the GPU nobody waits for it. (nvcc 13.0 lets the warp wait for the
 * builtins also where their answer is not used; hence the assembly.)
 *
 * ga_cas_ORDER(word, expected, desired) has succeeded when it answers `expected`; where it fails it
 * is relaxed, or acquire where ORDER has an acquire in it.
 *
 * Order is on operations and never on fences, since the thread sanitizer sees no fences.
 */
#ifndef GPUALLOC_SIMT_ATOMIC_H
#define GPUALLOC_SIMT_ATOMIC_H

#include "bits.h"

#ifdef __CUDACC__
#define GA_ORDER_relaxed __NV_ATOMIC_RELAXED
#define GA_ORDER_acquire __NV_ATOMIC_ACQUIRE
#define GA_ORDER_release __NV_ATOMIC_RELEASE
#define GA_ORDER_acq_rel __NV_ATOMIC_ACQ_REL
#define GA_SCOPE_device  , __NV_THREAD_SCOPE_DEVICE
#define GA_SCOPE_block   , __NV_THREAD_SCOPE_BLOCK
#define GA_SCOPE_system  , __NV_THREAD_SCOPE_SYSTEM
#define GA_ATOMIC(name)  __nv_atomic_##name
#else
#define GA_ORDER_relaxed __ATOMIC_RELAXED
#define GA_ORDER_acquire __ATOMIC_ACQUIRE
#define GA_ORDER_release __ATOMIC_RELEASE
#define GA_ORDER_acq_rel __ATOMIC_ACQ_REL
#define GA_SCOPE_device
#define GA_SCOPE_block
#define GA_SCOPE_system
#define GA_ATOMIC(name) __atomic_##name
#endif

/* What a failed compare-and-swap may order. */
#define GA_FAILED_relaxed GA_ORDER_relaxed
#define GA_FAILED_acquire GA_ORDER_acquire
#define GA_FAILED_release GA_ORDER_relaxed
#define GA_FAILED_acq_rel GA_ORDER_acquire

/* Where all bits are set it is an exchange, one instruction of x86-64, which for an `or` with an answer
 * needs a loop. Only for constants: nothing is tested at run time. */
#ifdef __CUDACC__
#define GA_IS_ALL_BITS(type, value) false
#else
#define GA_IS_ALL_BITS(type, value) (__builtin_constant_p(value) && (value) == (type) ~(type)0)
#endif

#define GA_DEFINE_LOAD(type, bits, order, suffix, scope)                                           \
    GA_SIMT type ga_load##bits##_##order##suffix(const type *word)                                 \
    {                                                                                              \
        return GA_ATOMIC(load_n)((type *)word, GA_ORDER_##order GA_SCOPE_##scope);                 \
    }

#define GA_DEFINE_STORE(type, bits, order, suffix, scope)                                          \
    GA_SIMT void ga_store##bits##_##order##suffix(type *word, type value)                          \
    {                                                                                              \
        GA_ATOMIC(store_n)(word, value, GA_ORDER_##order GA_SCOPE_##scope);                        \
    }

#define GA_DEFINE_CHANGES(type, bits, order, suffix, scope)                                        \
    GA_SIMT type ga_exchange##bits##_##order##suffix(type *word, type value)                       \
    {                                                                                              \
        return GA_ATOMIC(exchange_n)(word, value, GA_ORDER_##order GA_SCOPE_##scope);              \
    }                                                                                              \
    GA_SIMT type ga_or##bits##_##order##suffix(type *word, type value)                             \
    {                                                                                              \
        if (GA_IS_ALL_BITS(type, value)) {                                                         \
            return GA_ATOMIC(exchange_n)(word, value, GA_ORDER_##order GA_SCOPE_##scope);          \
        }                                                                                          \
        return GA_ATOMIC(fetch_or)(word, value, GA_ORDER_##order GA_SCOPE_##scope);                \
    }                                                                                              \
    GA_SIMT type ga_and##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return GA_ATOMIC(fetch_and)(word, value, GA_ORDER_##order GA_SCOPE_##scope);               \
    }                                                                                              \
    GA_SIMT type ga_add##bits##_##order##suffix(type *word, type value)                            \
    {                                                                                              \
        return GA_ATOMIC(fetch_add)(word, value, GA_ORDER_##order GA_SCOPE_##scope);               \
    }                                                                                              \
    GA_SIMT type ga_cas##bits##_##order##suffix(type *word, type expected, type desired)           \
    {                                                                                              \
        GA_ATOMIC(compare_exchange_n)                                                              \
        (word, &expected, desired, false, GA_ORDER_##order, GA_FAILED_##order GA_SCOPE_##scope);   \
        return expected;                                                                           \
    }

#define GA_DEFINE_ATOMICS(type, bits, suffix, scope)                                               \
    GA_DEFINE_LOAD(type, bits, relaxed, suffix, scope)                                             \
    GA_DEFINE_LOAD(type, bits, acquire, suffix, scope)                                             \
    GA_DEFINE_STORE(type, bits, relaxed, suffix, scope)                                            \
    GA_DEFINE_STORE(type, bits, release, suffix, scope)                                            \
    GA_DEFINE_CHANGES(type, bits, relaxed, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, acquire, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, release, suffix, scope)                                          \
    GA_DEFINE_CHANGES(type, bits, acq_rel, suffix, scope)

#ifdef __CUDACC__
#define GA_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                          \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        asm volatile("red." #order "." scope "." operation " [%0], %1;" ::"l"(word),               \
                     GA_POST_OPERAND##bits(value)                                                  \
                     : "memory");                                                                  \
    }
#define GA_POST_OPERAND(value)   "r"(value)
#define GA_POST_OPERAND64(value) "l"(value)
#else
#define GA_DEFINE_POST(type, bits, name, operation, order, suffix, scope)                          \
    GA_SIMT void ga_post_##name##bits##_##order##suffix(type *word, type value)                    \
    {                                                                                              \
        (void)GA_ATOMIC(fetch_##name)(word, value, GA_ORDER_##order);                              \
    }
#endif

#define GA_DEFINE_POSTS(type, bits, width, order, suffix, scope)                                   \
    GA_DEFINE_POST(type, bits, or, "or.b" width, order, suffix, scope)                             \
    GA_DEFINE_POST(type, bits, and, "and.b" width, order, suffix, scope)                           \
    GA_DEFINE_POST(type, bits, add, "add.u" width, order, suffix, scope)

GA_DEFINE_POSTS(uint32_t, , "32", relaxed, , "gpu")
GA_DEFINE_POSTS(uint32_t, , "32", release, , "gpu")
GA_DEFINE_POSTS(uint32_t, , "32", relaxed, _block, "cta")
GA_DEFINE_POSTS(uint32_t, , "32", release, _block, "cta")
GA_DEFINE_POSTS(uint32_t, , "32", relaxed, _system, "sys")
GA_DEFINE_POSTS(uint32_t, , "32", release, _system, "sys")
GA_DEFINE_POSTS(uint64_t, 64, "64", relaxed, , "gpu")
GA_DEFINE_POSTS(uint64_t, 64, "64", release, , "gpu")
GA_DEFINE_POSTS(uint64_t, 64, "64", relaxed, _block, "cta")
GA_DEFINE_POSTS(uint64_t, 64, "64", release, _block, "cta")
GA_DEFINE_POSTS(uint64_t, 64, "64", relaxed, _system, "sys")
GA_DEFINE_POSTS(uint64_t, 64, "64", release, _system, "sys")

GA_DEFINE_ATOMICS(uint32_t, , , device)
GA_DEFINE_ATOMICS(uint32_t, , _block, block)
GA_DEFINE_ATOMICS(uint32_t, , _system, system)
GA_DEFINE_ATOMICS(uint64_t, 64, , device)
GA_DEFINE_ATOMICS(uint64_t, 64, _block, block)
GA_DEFINE_ATOMICS(uint64_t, 64, _system, system)

#endif
