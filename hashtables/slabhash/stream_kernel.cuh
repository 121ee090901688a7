/* SPDX-License-Identifier: MIT
 *
 * The requests of a batch, as warps come to them. For batch_kernel.cuh and search_kernel.cuh.
 *
 * STRUCTURE  A warp has every so many-th block of 32 requests: these are its stream. Its lanes begin
 *            with them in the order in which they stand, whichever lane is free next: so neighbours
 *            are begun with, and answered, at about one time, and their keys, values and answers are
 *            in the same sectors.
 *
 *              stream   [ block ][ block ][ block ][ block ]     of 32, in shared memory: a ring
 *                            | at: the next request              brought there by asynchronous copies,
 *                                                                which nobody waits for when they begin
 *
 *            Four blocks are there or on their way: that in which the next request is, and three more.
 */
#ifndef GPUALLOC_SLABHASH_STREAM_KERNEL_CUH
#define GPUALLOC_SLABHASH_STREAM_KERNEL_CUH

#include "turn_kernel.cuh"

enum {
    GA_SLABHASH_BLOCK = 128,                /* threads */
    GA_SLABHASH_AHEAD = 128,                /* requests of a warp's ring, four blocks */
    GA_SLABHASH_ANY = GA_SLABHASH_OP_COUNT, /* operation of a kernel: what the batch says */
};

/* A key or a value as it stands in an array. */
template <uint32_t kind, uint32_t mode = GA_SLABHASH_MODE(kind)> struct ga_slabhash_word {
    typedef uint32_t type;
};
template <uint32_t kind> struct ga_slabhash_word<kind, GA_SLABHASH_MAP64> {
    typedef uint64_t type;
};

/* What the arrays of a batch have for a request: `op` as it stands there. */
template <uint32_t kind> struct ga_slabhash_request {
    typename ga_slabhash_word<kind>::type key, value;
    uint32_t op;
};

/* Whether the kernel of the operation needs values at all, or operations. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_needs {
    static constexpr bool values =
        GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32 && fixed != GA_SLABHASH_SEARCH;
    static constexpr bool ops = fixed == GA_SLABHASH_ANY;
};

/* In shared memory: a warp's requests, request n of its stream at place n mod GA_SLABHASH_AHEAD. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_ring {
    typedef typename ga_slabhash_word<kind>::type word;
    word keys[GA_SLABHASH_AHEAD];
    word values[ga_slabhash_needs<kind, fixed>::values ? GA_SLABHASH_AHEAD : 1];
    __align__(4) uint8_t ops[ga_slabhash_needs<kind, fixed>::ops ? GA_SLABHASH_AHEAD : 1];
};

/* ---- copies that nobody waits for when they begin; before sm_80 there are none --------------- */

/* 4 or 8 bytes that are read but once: in the L2 cache they make way for the table. */
template <uint32_t size>
static __device__ __forceinline__ void ga_slabhash_copy_async(void *to, const void *from)
{
    static_assert(size == 4 || size == 8, "a word of a batch");
#if __CUDA_ARCH__ >= 800
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "n"(size), "l"(policy)
                 : "memory");
#else
    memcpy(to, from, size);
#endif
}

/* The lane's copies since the last call are a set. */
static __device__ __forceinline__ void ga_slabhash_copy_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* All of the lane's sets but the last two are there. */
static __device__ __forceinline__ void ga_slabhash_copy_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#endif
}

/* ---- a warp's stream ------------------------------------------------------------------------- */

/* Where in the batch request `at` of the warp's stream stands. */
static __device__ __forceinline__ uint64_t ga_slabhash_stream_number(uint32_t at)
{
    uint32_t warp = (blockIdx.x * GA_SLABHASH_BLOCK + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * (GA_SLABHASH_BLOCK / 32u);
    return ((uint64_t)(at / 32u) * warps + warp) * 32u + at % 32u;
}

/* How many requests the warp's stream has. */
static __device__ __forceinline__ uint32_t ga_slabhash_stream_end(const ga_slabhash_batch &batch)
{
    uint32_t warp = (blockIdx.x * GA_SLABHASH_BLOCK + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * (GA_SLABHASH_BLOCK / 32u);
    uint64_t whole = batch.count / 32u; /* blocks; behind them there may be one that is not whole */
    uint32_t mine = (uint32_t)(whole / warps) + (warp < whole % warps ? 1u : 0u);
    return mine * 32u + (warp == whole % warps ? (uint32_t)(batch.count % 32u) : 0);
}

/* Operations of a block are single bytes, of which four are copied at once where that can be. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_stream_prefetch_ops(const ga_slabhash_batch &batch, ga_slabhash_ring<kind, fixed> *ring,
                                uint32_t at, uint64_t i, uint32_t lane)
{
    bool four = (uintptr_t)batch.ops % 4u == 0 && i - lane + 32u <= batch.count;
    if (four && lane < 8u) {
        ga_slabhash_copy_async<4>(ring->ops + (at + 4u * lane) % GA_SLABHASH_AHEAD,
                                  batch.ops + i + 3u * lane);
    } else if (!four && i < batch.count) {
        ring->ops[(at + lane) % GA_SLABHASH_AHEAD] = batch.ops[i];
    }
}

/* The block that begins with request `at` of the stream is on its way. All lanes of the warp call. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_stream_prefetch(const ga_slabhash_batch &batch, ga_slabhash_ring<kind, fixed> *ring,
                            uint32_t at)
{
    typedef typename ga_slabhash_word<kind>::type word;
    uint32_t lane = ga_tile_of(32).lane;
    uint32_t ring_slot = (at + lane) % GA_SLABHASH_AHEAD;
    uint64_t i = ga_slabhash_stream_number(at + lane);
    if (i < batch.count) {
        ga_slabhash_copy_async<sizeof(word)>(&ring->keys[ring_slot], (const word *)batch.keys + i);
    }
    if (ga_slabhash_needs<kind, fixed>::values && batch.values && i < batch.count) {
        ga_slabhash_copy_async<sizeof(word)>(&ring->values[ring_slot],
                                             (const word *)batch.values + i);
    }
    if (ga_slabhash_needs<kind, fixed>::ops && batch.ops) {
        ga_slabhash_stream_prefetch_ops<kind, fixed>(batch, ring, at, i, lane);
    }
    ga_slabhash_copy_commit();
}

/* The first two blocks of the four that are on their way are there. */
static __device__ __forceinline__ void ga_slabhash_stream_wait(void)
{
    ga_slabhash_copy_wait();
    ga_tile_sync(ga_tile_of(32)); /* what any lane has copied is there for all */
}

template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_stream_begin(const ga_slabhash_batch &batch,
                                                                ga_slabhash_ring<kind, fixed> *ring)
{
    for (uint32_t at = 0; at < GA_SLABHASH_AHEAD; at += 32u) {
        ga_slabhash_stream_prefetch<kind, fixed>(batch, ring, at);
    }
    ga_slabhash_stream_wait();
}

/* Each lane that `wants` one gets the next request, if there is one: whether it has, which of the stream,
 * and what stands there, but for what the batch has no array of. All lanes of the warp call; `at`, the
 * next of the stream, and its `end` are the same in all. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ bool
ga_slabhash_stream_next(const ga_slabhash_batch &batch, ga_slabhash_ring<kind, fixed> *ring,
                        uint32_t end, uint32_t *at, bool needs, uint32_t *which,
                        ga_slabhash_request<kind> *request)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t needing = ga_lanes_nonzero(warp, needs ? 1u : 0u);
    uint32_t mine = *at + ga_bits_count(needing & ((1u << warp.lane) - 1u));
    uint32_t ring_slot = mine % GA_SLABHASH_AHEAD;
    uint32_t next = *at + ga_bits_count(needing);
    bool gets = needs && mine < end;
    if (gets) {
        *which = mine;
        request->key = ring->keys[ring_slot];
        request->value = ga_slabhash_needs<kind, fixed>::values ? ring->values[ring_slot] : 0;
        request->op = ga_slabhash_needs<kind, fixed>::ops ? ring->ops[ring_slot] : 0;
    }
    if (next / 32u != *at / 32u) {
        ga_tile_sync(warp); /* the block that ends was read before another takes its place */
        ga_slabhash_stream_prefetch<kind, fixed>(batch, ring, *at / 32u * 32u + GA_SLABHASH_AHEAD);
        ga_slabhash_stream_wait();
    }
    *at = next;
    return gets;
}

#endif
