/* SPDX-License-Identifier: MIT
 *
 * The requests of a batch, as warps come to them. For batch_kernel.cuh and search_kernel.cuh.
 *
 * STRUCTURE  A warp has every so many-th block of 32 requests. Its lanes begin with these in the order in
 *            which they stand, whichever is free next: so neighbours are begun with, and answered, at
 *            about one time, and their keys, values and answers are in the same sectors. Keys of the
 *            block and of the one after wait in registers.
 */
#ifndef GPUALLOC_SLABHASH_STREAM_KERNEL_CUH
#define GPUALLOC_SLABHASH_STREAM_KERNEL_CUH

#include "turn_kernel.cuh"

/* A key or a value as it stands in an array. */
template <uint32_t kind, uint32_t mode = GA_SLABHASH_MODE(kind)> struct ga_slabhash_word {
    typedef uint32_t type;
};
template <uint32_t kind> struct ga_slabhash_word<kind, GA_SLABHASH_MAP64> {
    typedef uint64_t type;
};

/* A warp's requests that none of its lanes has begun with. */
template <uint32_t kind> struct ga_slabhash_stream {
    typedef typename ga_slabhash_word<kind>::type word;
    uint64_t block;  /* of 32 requests; the same in all lanes, as is: */
    uint32_t at;     /* its first that is left */
    uint32_t warps;  /* from a block of the warp's to the next */
    word now, after; /* the lane's key of the block, and of the next */
};

/* Lane's key of a block; behind the last request that one's. */
template <uint32_t kind>
static __device__ __forceinline__ typename ga_slabhash_word<kind>::type
ga_slabhash_stream_key(const ga_slabhash_batch &batch, uint64_t block, uint32_t lane)
{
    typedef typename ga_slabhash_word<kind>::type word;
    uint64_t i = block * 32u + lane;
    return ((const word *)batch.keys)[i < batch.count ? i : batch.count - 1u];
}

template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_stream<kind>
ga_slabhash_stream_begin(const ga_slabhash_batch &batch)
{
    ga_slabhash_stream<kind> stream;
    ga_tile warp = ga_tile_of(32);
    stream.block = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    stream.at = 0;
    stream.warps = gridDim.x * blockDim.x / 32u;
    stream.now = ga_slabhash_stream_key<kind>(batch, stream.block, warp.lane);
    stream.after = ga_slabhash_stream_key<kind>(batch, stream.block + stream.warps, warp.lane);
    return stream;
}

/* Each lane that `wants` one gets the next request, `i` with its key. All lanes of the warp call. */
template <uint32_t kind>
static __device__ __forceinline__ void
ga_slabhash_stream_next(const ga_slabhash_batch &batch, ga_slabhash_stream<kind> *stream,
                        bool wants, uint64_t *i, uint64_t *key)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t wanting = ga_lanes_nonzero(warp, wants ? 1u : 0u);
    uint32_t mine = stream->at + ga_bits_count(wanting & ((1u << warp.lane) - 1u));
    typename ga_slabhash_word<kind>::type now = __shfl_sync(~0u, stream->now, mine % 32u);
    typename ga_slabhash_word<kind>::type after = __shfl_sync(~0u, stream->after, mine % 32u);
    if (wants) {
        *i = (stream->block + (mine < 32u ? 0 : stream->warps)) * 32u + mine % 32u;
        *key = mine < 32u ? now : after;
    }
    stream->at += ga_bits_count(wanting);
    if (stream->at >= 32u) {
        stream->at -= 32u;
        stream->block += stream->warps;
        stream->now = stream->after;
        stream->after =
            ga_slabhash_stream_key<kind>(batch, stream->block + stream->warps, warp.lane);
    }
}

/* Whether there are requests left. */
template <uint32_t kind>
static __device__ __forceinline__ bool
ga_slabhash_stream_goes_on(const ga_slabhash_batch &batch, const ga_slabhash_stream<kind> &stream)
{
    return stream.block * 32u + stream.at < batch.count;
}

#endif
