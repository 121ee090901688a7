/* SPDX-License-Identifier: MIT
 *
 * The kernel of work on all buckets, one tile a bucket: count, copy the pairs, flush, clear.
 * Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_WHOLE_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_WHOLE_KERNEL_CUH

#include "batch_kernel.cuh"

/* The work on each bucket. */
enum ga_slabhash_task {
    GA_SLABHASH_COUNT_ALL = 0,
    GA_SLABHASH_COPY_ALL,
    GA_SLABHASH_FLUSH_ALL,
    GA_SLABHASH_CLEAR_ALL
};

typedef struct ga_slabhash_whole {
    ga_slabhash_census *census; /* device memory; COUNT_ALL */
    void *keys, *values;        /* COPY_ALL, like the next two */
    uint64_t room;
    uint64_t *cursor; /* device memory */
} ga_slabhash_whole;

/* Adds the counts of the block's tiles, each of which has the same in all its lanes. One sum a
 * block, because all blocks add to the same four words. */
static __device__ __forceinline__ void ga_slabhash_sum_census(ga_slabhash_census census,
                                                              ga_slabhash_census *all)
{
    __shared__ unsigned long long sums[4];
    const uint64_t counts[4] = {census.live, census.deleted, census.chained, census.overflowed};
    uint64_t *to[4] = {&all->live, &all->deleted, &all->chained, &all->overflowed};
    if (threadIdx.x < 4) {
        sums[threadIdx.x] = 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++) {
        if (threadIdx.x % GA_SLABHASH_TILE == i && counts[i]) {
            atomicAdd(sums + i, (unsigned long long)counts[i]);
        }
    }
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++) {
        if (threadIdx.x == i && sums[i]) {
            ga_post_add64_relaxed(to[i], sums[i]); /* relaxed: read after the kernel */
        }
    }
}

template <uint32_t kind, uint32_t task>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK)
    ga_slabhash_whole_kernel(ga_slabhash_view table, ga_slabhash_whole whole)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_census census = {};
    if (task == GA_SLABHASH_FLUSH_ALL || task == GA_SLABHASH_CLEAR_ALL) {
        ga_slabhash_tile_begins(table, tile, true);
    }
    for (uint64_t bucket = ga_slabhash_grid_tile(); bucket < table.buckets;
         bucket += ga_slabhash_grid_tiles()) {
        if (task == GA_SLABHASH_COUNT_ALL) {
            ga_slabhash_count_bucket(kind, table, tile, (uint32_t)bucket, &census);
        } else if (task == GA_SLABHASH_COPY_ALL) {
            ga_slabhash_copy_bucket(kind, table, tile, (uint32_t)bucket, whole.keys, whole.values,
                                    whole.room, whole.cursor);
        } else if (task == GA_SLABHASH_FLUSH_ALL) {
            ga_slabhash_flush_bucket(kind, table, tile, (uint32_t)bucket);
        } else {
            ga_slabhash_clear_bucket(table, tile, (uint32_t)bucket);
        }
    }
    if (task == GA_SLABHASH_FLUSH_ALL || task == GA_SLABHASH_CLEAR_ALL) {
        ga_slabhash_tile_ends(table, tile, true);
    }
    if (task == GA_SLABHASH_COUNT_ALL) {
        ga_slabhash_sum_census(census, whole.census);
    }
}

#endif
