/* SPDX-License-Identifier: MIT
 *
 * The kernel of batches of searches, for tables of unique keys that do not grow in kernels.
 * Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 *
 * STRUCTURE  A lane that is done takes the next request of its warp's stream at once, so that each
 *            step loads 32 slabs (search_tile.h). How a search ends: decide_search() there.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_SEARCH_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_SEARCH_KERNEL_CUH

#include "../table/search_tile.h"
#include "batch_kernel.cuh"

/* All searches of the warp. */
template <uint32_t kind>
static __device__ __forceinline__ void
ga_slabhash_search_all(const ga_slabhash_view &table, const ga_slabhash_batch &batch,
                       ga_slabhash_ring<kind, GA_SLABHASH_SEARCH> *ring,
                       ga_slabhash_exchange *exchange, ga_slabhash_result_counts *tally)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE), warp = ga_tile_of(32);
    uint32_t number = warp.lane / GA_SLABHASH_TILE;
    ga_slabhash_searches all = {};
    uint32_t at = 0, end = ga_slabhash_stream_end(batch), stream_index = 0;
    bool asks = false;
    ga_slabhash_stream_begin<kind, GA_SLABHASH_SEARCH>(batch, ring);
    ga_slabhash_search_move_to(&all, tile.lane,
                               table.rows); /* any valid slab: lanes without a request load it,
                                             * too */
    for (;;) {
        ga_slabhash_batch_request<kind> request = {};
        bool begins = ga_slabhash_stream_next<kind, GA_SLABHASH_SEARCH>(
            batch, ring, end, &at, !asks && at < end, &stream_index, &request);
        asks = asks || begins;
        if (!ga_lanes_any(warp, asks ? 1u : 0u)) {
            return;
        }
        if (begins) {
            ga_slabhash_search_begin(table, &all, tile.lane, request.key,
                                     GA_SLABHASH_HASH(table, request.key));
        }
        ga_slabhash_publish_requests(tile, number, &all, exchange);
        ga_slabhash_load_requested_slabs(kind, tile, number, exchange);
        if (asks &&
            ga_slabhash_decide_search(
                kind, table, &all, tile.lane, ga_slabhash_lane_slot(number, tile.lane), exchange,
                GA_SLABHASH_HASH(table, ga_slabhash_search_key(&all, tile.lane)))) {
            ga_slabhash_write_answer<kind>(
                batch, ga_slabhash_stream_number(stream_index), GA_SLABHASH_SEARCH,
                ga_slabhash_answer_of(all.result, all.value | (uint64_t)all.value_high << 32),
                tally);
            asks = false;
        }
        ga_tile_sync(tile); /* results are read before they are overwritten; each lane's acquire
                             * becomes one of all lanes */
    }
}

template <uint32_t kind>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK,
                                         ga_slabhash_resident_for(GA_SLABHASH_SEARCH))
    ga_slabhash_search_kernel(const __grid_constant__ ga_slabhash_view table,
                              const __grid_constant__ ga_slabhash_batches batches, uint64_t *counts)
{
    __shared__ ga_slabhash_ring<kind, GA_SLABHASH_SEARCH> rings[GA_SLABHASH_BLOCK / 32];
    __shared__ ga_slabhash_exchange exchanges[GA_SLABHASH_BLOCK / 32];
    __shared__ ga_slabhash_result_counts tallies;
    ga_slabhash_result_counts *tally = counts ? &tallies : NULL;
    ga_slabhash_begin_counts(tally);
    ga_slabhash_tile_begins(table, ga_tile_of(GA_SLABHASH_TILE), false);
    ga_slabhash_search_all<kind>(table, batches.of[blockIdx.y], rings + threadIdx.x / 32u,
                                 exchanges + threadIdx.x / 32u, tally);
    ga_slabhash_add_counts(tally, counts);
    ga_slabhash_tile_ends(table, ga_tile_of(GA_SLABHASH_TILE), false);
}

#endif
