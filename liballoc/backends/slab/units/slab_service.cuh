/* SPDX-License-Identifier: MIT
 *
 * Kernels that the host launches for slab heaps in device memory; part of device_code.cu.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_SERVICE_CUH
#define GPUALLOC_SLAB_UNITS_SLAB_SERVICE_CUH

#include "slab_kernel.h"

/* Set the counts of memory blocks `first` to `first + n - 1` from their bitmaps. */
extern "C" __global__ void ga_slab_recount_kernel(ga_slab_heap *heap, uint32_t first, uint32_t n)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const uint32_t *row = ga_slab_row(slab, first + i);
        uint32_t taken = 0;
        for (uint32_t word = 0; word < GA_SLAB_ROW_WORDS; word++) {
            taken += ga_bits_count(row[word]);
        }
        heap->free[ga_slab_count_index(GA_SLAB_SPREAD, first + i)] = GA_SLAB_BLOCK_UNITS - taken;
    }
}

/* Add the number of live units to *total. */
extern "C" __global__ void ga_slab_live_kernel(ga_slab_heap *heap, uint64_t *total)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    ga_tile tile = ga_tile_of(32);
    uint32_t live = 0;
    uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < slab.words; i += step) {
        /* relaxed: no kernel changes it now */
        live += ga_bits_count(ga_load_relaxed(ga_slab_word(slab, i)));
    }
    live = ga_lanes_sum(tile, live);
    if (tile.lane == 0 && live) {
        ga_post_add64_relaxed(total, live); /* relaxed: read when the kernel has ended */
    }
}

/* Claim one unit for the host, and free it. One thread. */
extern "C" __global__ void ga_slab_alloc_kernel(ga_slab_heap *heap, void **out)
{
    *out = ga_slab_claim_general(heap, 1, 0);
}

extern "C" __global__ void ga_slab_free_kernel(ga_slab_heap *heap, void *pointer)
{
    ga_slab_release_general(heap, 1, pointer);
}

#endif
