/* SPDX-License-Identifier: MIT
 *
 * SEARCHALL and DELETEALL of an array of keys, one tile a key. Included by gpualloc/slabhash.cuh;
 * docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_ALL_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_ALL_KERNEL_CUH

#include "batch_kernel.cuh"

/* A key of which all pairs are requested, and its path in a table that does not grow. */
typedef struct ga_slabhash_all_request {
    uint64_t key, hash;
    ga_slabhash_walk walk;
} ga_slabhash_all_request;

/* DELETEALL of one key by the whole tile. Returns the number of deleted pairs. If a table that
 * grows has no slab for the pairs that migrate with them, some pairs may remain. */
template <uint32_t kind>
static __device__ __forceinline__ uint64_t
ga_slabhash_tile_remove_all(ga_slabhash_session *session, ga_slabhash_all_request sought)
{
    if (GA_SLABHASH_IS_GROWING(kind)) {
        return ga_slabhash_growth_remove_all(kind, session->table, session->tile, &session->claimed,
                                             session, sought.hash, sought.key);
    }
    return ga_slabhash_remove_all(kind, session->table, session->tile, sought.walk, sought.key);
}

/* SEARCHALL of one key by the whole tile, as ga_slabhash_find_all(). */
template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_tile_find_all(ga_slabhash_session *session,
                                                                     ga_slabhash_all_request sought,
                                                                     uint64_t *values,
                                                                     uint64_t room)
{
    if (GA_SLABHASH_IS_GROWING(kind)) {
        return ga_slabhash_growth_find_all(kind, session->table, session->tile, session,
                                           sought.hash, sought.key, values, room);
    }
    return ga_slabhash_find_all(kind, session->table, session->tile, sought.walk, sought.key,
                                values, room);
}

/* A search counts first, reserves as much room in the output, and then writes as many values as
 * fit. */
template <uint32_t kind, bool removes>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK)
    ga_slabhash_all_kernel(ga_slabhash_view table, ga_slabhash_all all, uint64_t *totals)
{
    ga_slabhash_session session = ga_slabhash_session_of<kind>(table);
    ga_tile tile = session.tile;
    uint64_t refused = 0;
    for (uint64_t i = ga_slabhash_grid_tile(); i < all.count; i += ga_slabhash_grid_tiles()) {
        uint64_t key = ga_slabhash_load_element<kind>(all.keys, i), first = 0;
        ga_slabhash_all_request sought;
        sought.key = key;
        sought.hash = GA_SLABHASH_HASH(table, key);
        sought.walk = ga_slabhash_walk_path(table, sought.hash);
        uint64_t count = removes ? ga_slabhash_tile_remove_all<kind>(&session, sought)
                                 : ga_slabhash_tile_find_all<kind>(&session, sought, NULL, 0);
        refused += ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0) ? 0 : 1;
        if (count) {
            first = ga_slabhash_claim_output(tile, totals, (uint32_t)count);
        }
        if (!removes && count && first < all.room) {
            uint64_t room = all.room - first < count ? all.room - first : count;
            uint64_t wrote =
                ga_slabhash_tile_find_all<kind>(&session, sought, all.values + first, room);
            count = wrote < count ? wrote : count;
        }
        if (tile.lane == 0 && all.counts) {
            all.counts[i] = count;
        }
        if (tile.lane == 0 && all.firsts && !removes) {
            all.firsts[i] = first;
        }
    }
    if (tile.lane == 0 && refused) {
        ga_post_add64_relaxed(totals + 1, refused); /* relaxed: read after the kernel */
    }
    ga_slabhash_session_end(&session);
}

#endif
