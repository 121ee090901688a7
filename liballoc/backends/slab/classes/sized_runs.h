/* SPDX-License-Identifier: MIT
 *
 * Blocks larger than the largest class, for the lanes of a tile: runs of contiguous whole regions.
 *
 * STRUCTURE  See sized_heap.h. The owner of a run's first region is the number of its regions; the
 *            owners of the others are their distances from it. Lanes that request runs are served
 *            one after the other, each by the whole tile.
 *
 * INVARIANT  A run is live from the time the owner of its first region is set until one lane has
 *            cleared it: if several lanes free it, one succeeds.
 *
 * ORDER      KP1 and KP2 of the pool: the last owners' accesses to the regions happen before those
 *            of the next ones. The owners of regions are relaxed: a thread that has the address of
 *            a run got it from the thread that allocated it.
 *
 * PROGRESS   As in sized_pool.h. A free does not wait.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_RUNS_H
#define GPUALLOC_SLAB_CLASSES_SIZED_RUNS_H

#include "../../../simt/share.h"
#include "sized_tile.h"

#define GA_SIZED_REGIONS_MAX (1u << 24) /* more than any heap has (sized_words.h) */

/* The run that a pointer is in. */
typedef struct ga_sized_run {
    uint32_t first, n; /* regions; none if `n` is 0 */
    uint64_t offset;   /* from the first byte of the run */
} ga_sized_run;

/* The number of regions for `size` bytes. GA_SIZED_REGIONS_MAX, which no heap has, if that is too
 * large. */
GA_SIMT uint32_t ga_sized_run_regions(ga_sized_view heap, uint64_t size)
{
    uint64_t n = (size >> heap.region_bits) + ((size & ga_bits_below(heap.region_bits)) != 0);
    return n < GA_SIZED_REGIONS_MAX ? (uint32_t)n + !n : GA_SIZED_REGIONS_MAX;
}

GA_SIMT char *ga_sized_run_pointer(ga_sized_view heap, uint32_t first)
{
    return heap.units + ((uint64_t)first << heap.region_bits);
}

/* The run that contains `pointer`. */
GA_SIMT ga_sized_run ga_sized_run_find(ga_sized_view heap, const void *pointer)
{
    ga_sized_run run = {0, 0, 0};
    uint64_t offset = (uint64_t)((const char *)pointer - heap.units);
    if (offset >> heap.region_bits >= heap.regions) {
        return run;
    }
    uint32_t region = (uint32_t)(offset >> heap.region_bits);
    uint32_t owner = ga_load_relaxed(heap.owners + region);
    uint32_t before = owner & GA_SIZED_INSIDE ? owner & ~GA_SIZED_INSIDE : 0;
    if (before) {
        owner = ga_load_relaxed(heap.owners + region - before);
    }
    if (owner & GA_SIZED_RUN && (owner & ~GA_SIZED_RUN) > before) {
        run.first = region - before;
        run.n = owner & ~GA_SIZED_RUN;
        run.offset = offset - ((uint64_t)run.first << heap.region_bits);
    }
    return run;
}

/* ---- allocation ------------------------------------------------------------------------ */

/* Set the owners of the regions of a run. */
GA_SIMT void ga_sized_run_mark(ga_sized_heap *heap, ga_tile tile, ga_sized_extent extent)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint32_t i = ga_lane_read(ranks, own); i < extent.n; i += ga_tile_size(tile)) {
            ga_store_relaxed(heap->owners + extent.first + i,
                             i ? GA_SIZED_INSIDE | i : GA_SIZED_RUN | extent.n);
        }
    }
    ga_tile_sync(tile);
}

/* True if a search would find no more contiguous regions than the last one did: nothing was added
 * to the pool since `releases` was read, and a sweep released no region. */
GA_SIMT bool ga_sized_run_sweep_found_none(ga_sized_heap *heap, ga_tile tile, uint32_t releases)
{
    ga_sized_search search = ga_sized_search_of(GA_SIZED_NONE, 0, 0);
    return (ga_sized_known_full(heap, tile, GA_SIZED_NONE) ||
            ga_sized_sweep_join(ga_sized_view_of(heap), tile, &search)) &&
           ga_sized_load_synced(&heap->releases, tile) == releases; /* KH1. Pairs with KH2. */
}

/* Allocate a run of `n` regions. The number of the first plus `phase` is a multiple of `align`.
 * Returns the first, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_run_claim(ga_sized_heap *heap, ga_tile tile, uint32_t n, uint32_t align,
                                    uint32_t phase)
{
    ga_sized_request request = {n, n, align, phase};
    bool over = n > heap->regions;
    for (uint32_t rounds = 0; !over && rounds < GA_SIZED_SWEEPS_MAX; rounds++) {
        uint32_t releases = ga_sized_load_synced(&heap->releases, tile); /* KH1. Pairs with KH2. */
        ga_sized_extent extent = ga_sized_regions_alloc(heap, ga_tile_members(tile), request);
        if (extent.n) {
            ga_sized_run_mark(heap, tile, extent);
            return extent.first;
        }
        over = ga_sized_run_sweep_found_none(heap, tile, releases);
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_post_add_relaxed(&heap->refused, 1u); /* relaxed: a counter */
    }
    return GA_SIZED_NONE;
}

/* Allocate a run for each lane of `requesting`, of the number of regions and the alignment that the
 * lane has. */
GA_SIMT ga_lanes ga_sized_runs_claim(ga_sized_heap *heap, ga_tile tile, uint32_t requesting,
                                     ga_lanes regions, ga_lanes aligns, uint32_t phase)
{
    ga_lanes got = ga_lanes_all(GA_SIZED_NONE);
    GA_SHARE(tile, requesting, lane)
    {
        uint32_t align = ga_lanes_get(tile, aligns, lane);
        uint32_t first = ga_sized_run_claim(heap, tile, ga_lanes_get(tile, regions, lane), align,
                                            phase & (align - 1u));
        ga_share_answer(tile, &got, lane, first);
    }
    return got;
}

/* ---- free ------------------------------------------------------------------------------ */

/* End the run that begins at region `first`. Returns the number of its regions, or 0 if none begins
 * there. By all lanes. */
GA_SIMT uint32_t ga_sized_run_clear(ga_sized_heap *heap, ga_tile tile, uint32_t first)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes n = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed, and the CAS too: it decides which lane frees the regions, and KP2 releases
         * them */
        uint32_t owner = ga_load_relaxed(heap->owners + first);
        if (owner & GA_SIZED_RUN && ga_cas_relaxed(heap->owners + first, owner, 0) == owner) {
            ga_lane_write(&n, own, owner & ~GA_SIZED_RUN);
        }
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, n, leader);
}

/* Free the runs that begin at the regions `firsts` of the lanes of `freeing`. Returns the mask of
 * the lanes at whose region a run began. */
GA_SIMT uint32_t ga_sized_runs_free(ga_sized_heap *heap, ga_tile tile, uint32_t freeing,
                                    ga_lanes firsts)
{
    uint32_t freed = 0;
    ga_tile_sync(tile); /* after all lanes' accesses to the runs */
    GA_SHARE(tile, freeing, lane)
    {
        ga_sized_extent extent = {ga_lanes_get(tile, firsts, lane), 0};
        extent.n = ga_sized_run_clear(heap, tile, extent.first);
        if (extent.n) {
            ga_sized_pool_free(heap, tile, extent);
            freed |= 1u << lane;
        }
    }
    return freed;
}

/* Free all regions of the run but the first `n`; it has more. False if the run is not live any
 * more. */
GA_SIMT bool ga_sized_run_shorten(ga_sized_heap *heap, ga_tile tile, ga_sized_run run, uint32_t n)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes done = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t owner = GA_SIZED_RUN | run.n;
        /* relaxed, as above */
        ga_lane_write(&done, own,
                      ga_cas_relaxed(heap->owners + run.first, owner, GA_SIZED_RUN | n) == owner);
    }
    ga_tile_sync(tile);
    if (!ga_lanes_get(tile, done, leader)) {
        return false;
    }
    ga_sized_extent extent = {run.first + n, run.n - n};
    ga_sized_pool_free(heap, tile, extent);
    return true;
}

#endif
