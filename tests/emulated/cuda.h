/* SPDX-License-Identifier: MIT
 *
 * CUDA on the CPU, for tests of kernels on machines without a GPU: include this, then the kernels.
 * Those with rows define EMULATED_ROWS before.
 *
 * STRUCTURE  A block is a thread of the host, which runs the threads of the block as fibers
 *            (cuda.cc). A fiber gives way where it waits for others: at barriers and at functions
 *            of a warp, and sometimes at atomics. Which one goes on is up to the seed, so that
 *            accesses without a barrier between them come in many orders. Shared memory is
 *            thread-local, and keeps its contents from the block before.
 *
 * ORDER      As of the host, which is stronger than that of a GPU.
 *
 * It ends the program if the threads of a block wait for each other in different places, for one
 * that has ended, or for too long.
 */
#ifndef GPUALLOC_TESTS_EMULATED_CUDA_H
#define GPUALLOC_TESTS_EMULATED_CUDA_H

#include "launch.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- in cuda.cc ------------------------------------------------------------------------------ */

struct emulated_uint3 {
    unsigned x, y, z;
};

struct emulated_thread {
    emulated_uint3 thread, block, block_dim, grid_dim;
};

extern thread_local emulated_thread *emulated_self;

/* Where a thread waits. */
struct emulated_place {
    const char *what, *file;
    int line;
};

/* Waits for all threads of the block. Returns whether any has a `vote`. */
bool emulated_barrier(emulated_place place, bool vote);

/* Waits for the lanes of the mask. Returns their values; the others have 0. They are valid until
 * the lane calls again. */
const uint64_t *emulated_exchange(emulated_place place, uint32_t mask, uint64_t value);

void emulated_sleep(uint32_t ns);

/* True for an address in the stack of the thread, which other threads of a GPU could not use. */
bool emulated_is_local(const void *address);
#define __isLocal(address) emulated_is_local(address)

/* Ends the thread. */
[[noreturn]] void emulated_exit(void);

/* Lets others go on, sometimes. */
void emulated_at_atomic(void);

/* ---- the host's half of simt/ ---------------------------------------------------------------- */

#include "simt/bits.h"

#include "simt/atomic.h"

#define GPUALLOC_SIMT_CLOCK_H /* a sleep lets other fibers go on */
#ifndef EMULATED_ROWS
#define GPUALLOC_SIMT_ROW_H
#define GPUALLOC_SIMT_SHARE_H
#endif

GA_SIMT uint64_t ga_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

GA_SIMT void ga_clock_sleep(uint32_t ns)
{
    emulated_sleep(ns);
}

/* ---- the language ---------------------------------------------------------------------------- */

#define __CUDACC__       1
#define GA_SIMT_EMULATED 1
#define __device__
#define __constant__
#define __global__
#define __host__
#define __grid_constant__
#define __shared__      thread_local
#define __noinline__    __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __launch_bounds__(...)

#define threadIdx (emulated_self->thread)
#define blockIdx  (emulated_self->block)
#define blockDim  (emulated_self->block_dim)
#define gridDim   (emulated_self->grid_dim)

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}

/* ---- barriers and warps ---------------------------------------------------------------------- */

#define EMULATED_PLACE(what) (emulated_place{what, __FILE__, __LINE__})
#define EMULATED_LANE        (emulated_self->thread.x % 32u)

#define __syncthreads() ((void)emulated_barrier(EMULATED_PLACE("__syncthreads"), false))
#define __syncthreads_or(vote)                                                                     \
    ((int)emulated_barrier(EMULATED_PLACE("__syncthreads_or"), (vote) != 0))
#define __syncwarp(mask)     ((void)emulated_exchange(EMULATED_PLACE("__syncwarp"), mask, 0))
#define __shfl_sync(...)     emulated_shuffle(EMULATED_PLACE("__shfl_sync"), __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_shuffle_xor(EMULATED_PLACE("__shfl_xor_sync"), __VA_ARGS__)
#define __ballot_sync(mask, vote)                                                                  \
    emulated_ballot(emulated_exchange(EMULATED_PLACE("__ballot_sync"), mask, (vote) != 0))
#define __any_sync(mask, vote)                                                                     \
    (emulated_ballot(emulated_exchange(EMULATED_PLACE("__any_sync"), mask, (vote) != 0)) != 0)
#define __reduce_add_sync(mask, value)                                                             \
    emulated_sum(emulated_exchange(EMULATED_PLACE("__reduce_add_sync"), mask, value))
#define __reduce_or_sync(mask, value)                                                              \
    emulated_union(emulated_exchange(EMULATED_PLACE("__reduce_or_sync"), mask, value))
#define __reduce_min_sync(mask, value)                                                             \
    emulated_least(emulated_exchange(EMULATED_PLACE("__reduce_min_sync"), mask, value), mask)

template <typename T> static inline T emulated_from(uint64_t word)
{
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

template <typename T> static inline uint64_t emulated_word(T value)
{
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return word;
}

void emulated_fail(emulated_place place, const char *why);

template <typename T>
static inline T emulated_shuffle(emulated_place place, uint32_t mask, T value, int from,
                                 int width = 32)
{
    uint32_t first = EMULATED_LANE / (uint32_t)width * (uint32_t)width;
    uint32_t lane = first + (uint32_t)from % (uint32_t)width;
    if (!(mask >> lane & 1u)) {
        emulated_fail(place, "a lane that is not in the mask");
    }
    return emulated_from<T>(emulated_exchange(place, mask, emulated_word(value))[lane]);
}

template <typename T>
static inline T emulated_shuffle_xor(emulated_place place, uint32_t mask, T value, int bits)
{
    uint32_t lane = EMULATED_LANE ^ (uint32_t)bits;
    if (lane > 31u || !(mask >> lane & 1u)) {
        emulated_fail(place, "a lane that is not in the mask");
    }
    return emulated_from<T>(emulated_exchange(place, mask, emulated_word(value))[lane]);
}

static inline uint32_t emulated_ballot(const uint64_t *values)
{
    uint32_t votes = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        votes |= (uint32_t)(values[i] != 0) << i;
    }
    return votes;
}

static inline uint32_t emulated_sum(const uint64_t *values)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        sum += (uint32_t)values[i];
    }
    return sum;
}

static inline uint32_t emulated_union(const uint64_t *values)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        all |= (uint32_t)values[i];
    }
    return all;
}

static inline uint32_t emulated_least(const uint64_t *values, uint32_t mask)
{
    uint32_t least = 0xffffffffu;
    for (uint32_t i = 0; i < 32u; i++) {
        least = mask >> i & 1u && values[i] < least ? (uint32_t)values[i] : least;
    }
    return least;
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

template <typename T> static inline void __stcs(T *to, T value)
{
    *to = value;
}

/* Change a word by `change` of its value; returns the value before. */
template <typename T, typename F> static inline T emulated_change(T *word, F change)
{
    T before, after;
    emulated_at_atomic();
    __atomic_load(word, &before, __ATOMIC_RELAXED);
    do {
        after = change(before);
    } while (!__atomic_compare_exchange(word, &before, &after, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return before;
}

template <typename T, typename V> static inline T atomicAdd(T *word, V more)
{
    return emulated_change(word, [more](T value) { return (T)(value + (T)more); });
}

template <typename T, typename V> static inline T atomicOr(T *word, V bits)
{
    return emulated_change(word, [bits](T value) { return (T)(value | (T)bits); });
}

template <typename T, typename V> static inline T atomicMin(T *word, V other)
{
    return emulated_change(word, [other](T value) { return (T)other < value ? (T)other : value; });
}

template <typename T, typename V> static inline T atomicMax(T *word, V other)
{
    return emulated_change(word, [other](T value) { return (T)other > value ? (T)other : value; });
}

template <typename T, typename V> static inline T atomicMax_system(T *word, V other)
{
    return atomicMax(word, other);
}

template <typename T> static inline T atomicCAS(T *word, T expected, T desired)
{
    return emulated_change(word, [=](T value) { return value == expected ? desired : value; });
}

/* ---- the GPU's half of simt/ ----------------------------------------------------------------- */

#define GA_SIMT_SCOPE_device "gpu"
#define GA_SIMT_SCOPE_block  "cta"
#define GA_SIMT_SCOPE_system "sys"

GA_SIMT uint32_t ga_emulated_lane(void)
{
    return EMULATED_LANE;
}

static inline uint32_t __activemask(void)
{
    abort(); /* fibers are not active together */
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline uint32_t __match_any_sync(uint32_t, uint32_t)
{
    abort(); /* no kernel here has it, nor the next */
}

static inline uint32_t __match_all_sync(uint32_t, uint32_t, int *)
{
    abort();
}

static inline void __trap(void)
{
    abort();
}

#include "simt/lanes_gpu.h"

#endif
