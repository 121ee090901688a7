/* SPDX-License-Identifier: MIT
 *
 * Device tables that grow between calls: their pairs move to another array of buckets while nothing
 * else uses the table. Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 *
 * STRUCTURE  The older array stays unchanged until the new one has all of its pairs, so that a
 *            failure leaves the table as it was. A warp's four tiles take a slab each, and each
 *            lane moves the pairs in its 16 bytes of the slab.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_MOVE_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_MOVE_KERNEL_CUH

#include "batch_kernel.cuh"

/* Slots of a slab. */
static inline uint32_t ga_slabhash_slots_per_slab(uint32_t kind)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 30u
           : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 15u
                                                         : 7u;
}

/* Move the pairs in the lane's part of a slab, one after the other. Whole warps call; `live` is 0
 * in tiles that only help. Adds to `left` the number of pairs that found no slab. */
template <uint32_t kind>
static __device__ __forceinline__ void ga_slabhash_move_slab(ga_slabhash_session *session,
                                                             ga_tile warp, const uint32_t *row,
                                                             uint32_t live, uint32_t *left)
{
    const uint32_t width = ga_slabhash_slot_words(kind);
    const uint32_t words = GA_SLABHASH_WORDS / GA_SLABHASH_TILE;
    for (uint32_t i = 0; i < words; i += width) {
        uint32_t slot = session->tile.lane * words + i;
        bool asks = live >> slot & 1u;
        uint64_t key = 0, value = 0;
        if (asks) { /* plain loads: nothing changes what moves */
            key = row[slot];
            value = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? row[slot + 1u] : 0;
            if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
                key |= (uint64_t)row[slot + 1u] << 32;
                value = row[slot + 2u] | (uint64_t)row[slot + 3u] << 32;
            }
        }
        ga_tile_sync(warp); /* the warp's tiles work abreast again */
        /* The target does not grow during the move. */
        ga_slabhash_answer answer =
            ga_slabhash_lanes<(kind & ~GA_SLABHASH_GROWING), GA_SLABHASH_INSERT, true>(
                session, asks, GA_SLABHASH_INSERT, key, value);
        *left += asks && answer.result != GA_SLABHASH_ABSENT ? 1u : 0u;
    }
}

/* Move all pairs of `from`, which nothing else uses, to `to`, which is empty. `left` counts pairs
 * for which there was no slab. */
template <uint32_t kind>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK, 6)
    ga_slabhash_move_kernel(ga_slabhash_view from, ga_slabhash_view to, uint64_t *left)
{
    ga_slabhash_session session = ga_slabhash_session_of<kind>(to);
    ga_tile warp = ga_tile_of(32);
    uint64_t bucket = ga_slabhash_grid_tile();
    bool more = bucket < from.buckets;
    ga_slabhash_walk walk = ga_slabhash_walk_chain(from, more ? (uint32_t)bucket : 0);
    uint32_t mine = 0;
    while (ga_lanes_nonzero(warp, more ? 1u : 0u)) {
        ga_row row = ga_slabhash_load_slab(kind, session.tile, walk.row);
        uint32_t live = ga_slabhash_live_slots(kind, session.tile, row);
        ga_slabhash_move_slab<kind>(&session, warp, walk.row, more ? live : 0, &mine);
        if (more && !ga_slabhash_walk_next(kind, from, session.tile, &walk, row, false)) {
            bucket += ga_slabhash_grid_tiles();
            more = bucket < from.buckets;
            walk = ga_slabhash_walk_chain(from, more ? (uint32_t)bucket : 0);
        }
        ga_tile_sync(warp);
    }
    mine = ga_lanes_sum(warp, mine);
    if (mine && warp.lane == 0) {
        ga_post_add64_relaxed(left, mine); /* relaxed: read after the kernel */
    }
    ga_slabhash_session_end(&session);
}

#endif
