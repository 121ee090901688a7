/* SPDX-License-Identifier: MIT
 *
 * The requests of a batch in the order in which a warp serves them. For batch_kernel.cuh and
 * search_kernel.cuh.
 *
 * STRUCTURE  Of W warps each has every Wth block of 32 requests: its stream. Free lanes take
 *            requests in stream order, whichever lane is free next. So neighbouring requests begin
 *            and end at about the same time, and their keys, values and results are in the same
 *            sectors.
 *
 *              stream   [ block ][ block ][ block ][ block ]     of 32, in shared memory: a ring
 *                            | at: the next request              filled by asynchronous copies,
 *                            which
 *                                                                do not stall the warp
 *
 *            Four blocks are loaded or in flight: that of the next request, and three more.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_STREAM_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_STREAM_KERNEL_CUH

#include "session_kernel.cuh"

enum {
    GA_SLABHASH_BLOCK = 128,                /* threads */
    GA_SLABHASH_AHEAD = 128,                /* requests of a warp's ring: four blocks */
    GA_SLABHASH_TOGETHER = 8,               /* batches of a launch, at most */
    GA_SLABHASH_ANY = GA_SLABHASH_OP_COUNT, /* `fixed` of a kernel whose batch says the operation
                                             * of each request */
};

/* Batches of one launch, of the same form. The blocks whose index in dimension y is i serve batch
 * i, so that all batches progress alike. */
typedef struct ga_slabhash_batches {
    ga_slabhash_batch of[GA_SLABHASH_TOGETHER];
} ga_slabhash_batches;

/* The type of keys and values in arrays. */
template <uint32_t kind, uint32_t mode = GA_SLABHASH_MODE(kind)> struct ga_slabhash_word {
    typedef uint32_t type;
};
template <uint32_t kind> struct ga_slabhash_word<kind, GA_SLABHASH_MAP64> {
    typedef uint64_t type;
};

/* A request as its arrays hold it; fields without an array are not set. */
template <uint32_t kind> struct ga_slabhash_batch_request {
    typename ga_slabhash_word<kind>::type key, value;
    uint32_t op;
};

/* True if the kernel for operation `fixed` reads values, or operations. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_needs {
    static constexpr bool values =
        GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32 && fixed != GA_SLABHASH_SEARCH;
    static constexpr bool ops = fixed == GA_SLABHASH_ANY;
};

/* In shared memory: request n of the warp's stream is at index n mod GA_SLABHASH_AHEAD. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_ring {
    typedef typename ga_slabhash_word<kind>::type word;
    word keys[GA_SLABHASH_AHEAD];
    word values[ga_slabhash_needs<kind, fixed>::values ? GA_SLABHASH_AHEAD : 1];
    __align__(4) uint8_t ops[ga_slabhash_needs<kind, fixed>::ops ? GA_SLABHASH_AHEAD : 1];
};

/* ---- asynchronous copies to shared memory; synchronous before sm_80 -------------------------- */

/* Begins to copy 4 or 8 bytes that are read only once. The L2 cache evicts them before the
 * table. */
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

/* Makes the lane's copies since the last commit one group. */
static __device__ __forceinline__ void ga_slabhash_copy_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until all of the lane's groups but the last two have arrived. */
static __device__ __forceinline__ void ga_slabhash_copy_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#endif
}

/* ---- a warp's stream ------------------------------------------------------------------------- */

/* Index in the batch of request `at` of the warp's stream. */
static __device__ __forceinline__ uint64_t ga_slabhash_stream_number(uint32_t at)
{
    uint32_t warp = (blockIdx.x * GA_SLABHASH_BLOCK + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * (GA_SLABHASH_BLOCK / 32u);
    return ((uint64_t)(at / 32u) * warps + warp) * 32u + at % 32u;
}

/* Number of requests in the warp's stream. */
static __device__ __forceinline__ uint32_t ga_slabhash_stream_end(const ga_slabhash_batch &batch)
{
    uint32_t warp = (blockIdx.x * GA_SLABHASH_BLOCK + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * (GA_SLABHASH_BLOCK / 32u);
    uint64_t whole = batch.count / 32u; /* whole blocks; one partial block may follow */
    uint32_t mine = (uint32_t)(whole / warps) + (warp < whole % warps ? 1u : 0u);
    return mine * 32u + (warp == whole % warps ? (uint32_t)(batch.count % 32u) : 0);
}

/* Operations are single bytes; four are copied at once if the array is aligned and the block
 * whole. */
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

/* Begins to copy the block that starts with request `at` of the stream. All lanes of the warp
 * call. */
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

/* Waits for the first two of the four blocks in flight. */
static __device__ __forceinline__ void ga_slabhash_stream_wait(void)
{
    ga_slabhash_copy_wait();
    ga_tile_sync(ga_tile_of(32)); /* makes each lane's copies visible to all */
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

/* Gives each lane that `needs` one the next request, if there is one. Returns true if the lane
 * got one, with its number in the stream and its fields. All lanes of the warp call; `at`, the
 * next request of the stream, and its `end` are the same in all lanes. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ bool
ga_slabhash_stream_next(const ga_slabhash_batch &batch, ga_slabhash_ring<kind, fixed> *ring,
                        uint32_t end, uint32_t *at, bool needs, uint32_t *stream_index,
                        ga_slabhash_batch_request<kind> *request)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t needing = ga_lanes_nonzero(warp, needs ? 1u : 0u);
    uint32_t mine = *at + ga_bits_count(needing & ((1u << warp.lane) - 1u));
    uint32_t ring_slot = mine % GA_SLABHASH_AHEAD;
    uint32_t next = *at + ga_bits_count(needing);
    bool gets = needs && mine < end;
    if (gets) {
        *stream_index = mine;
        request->key = ring->keys[ring_slot];
        request->value = ga_slabhash_needs<kind, fixed>::values ? ring->values[ring_slot] : 0;
        request->op = ga_slabhash_needs<kind, fixed>::ops ? ring->ops[ring_slot] : 0;
    }
    if (next / 32u != *at / 32u) {
        ga_tile_sync(warp); /* all lanes have read the block before it is overwritten */
        ga_slabhash_stream_prefetch<kind, fixed>(batch, ring, *at / 32u * 32u + GA_SLABHASH_AHEAD);
        ga_slabhash_stream_wait();
    }
    *at = next;
    return gets;
}

#endif
