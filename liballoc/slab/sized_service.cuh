/* SPDX-License-Identifier: MIT
 *
 * Kernels with which the host looks after heaps of all sizes; part of device_code.cu. No other kernel uses
 * the heap beside all but the first two.
 */
#ifndef GPUALLOC_SLAB_SIZED_SERVICE_CUH
#define GPUALLOC_SLAB_SIZED_SERVICE_CUH

#include "sized_kernel.h"

/* One block for the host, and back. One thread. */
extern "C" __global__ void ga_sized_take_kernel(ga_kernel_heap heap, uint64_t size, void **out)
{
    *out = ga_sized_kernel_malloc(heap, size);
}

extern "C" __global__ void ga_sized_give_kernel(ga_kernel_heap heap, void *block)
{
    ga_sized_kernel_free(heap, block);
}

/* How many units of the region are taken. By all lanes of a warp. */
GA_SIMT uint32_t ga_sized_taken_of(const ga_sized_heap *heap, ga_tile tile, uint32_t region)
{
    const ga_sized_class *c = heap->of + heap->owners[region] - 1u;
    const uint32_t *bits = heap->bits + ((size_t)region << ga_sized_stride_bits(heap->region_bits));
    uint32_t taken = 0;
    for (uint32_t word = tile.lane; word < c->way.words; word += 32u) {
        taken += ga_bits_count(bits[word] & ~(word + 1u == c->way.words ? c->tail : 0u));
    }
    return ga_lanes_sum(tile, taken);
}

/* Add what is live: total[0] blocks, total[1] bytes. A warp for each region, in turn. */
extern "C" __global__ void ga_sized_live_kernel(ga_sized_heap *heap, uint64_t *total)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * blockDim.x / 32u;
    for (uint32_t region = warp; region < heap->next; region += warps) {
        if (heap->owners[region]) {
            uint32_t taken = ga_sized_taken_of(heap, tile, region);
            if (tile.lane == 0 && taken) {
                /* relaxed: read when the kernel has ended. */
                ga_post_add64_relaxed(total, taken);
                ga_post_add64_relaxed(total + 1, (uint64_t)taken *
                                                     heap->of[heap->owners[region] - 1u].way.unit);
            }
        }
    }
}

/* All units are free. */
extern "C" __global__ void ga_sized_reset_kernel(ga_sized_heap *heap)
{
    uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t region = 0; region < heap->next; region++) {
        uint32_t owner = heap->owners[region];
        const ga_sized_class *c = heap->of + owner - 1u;
        uint32_t words = owner ? c->way.words : 0;
        uint32_t *bits = heap->bits + ((size_t)region << ga_sized_stride_bits(heap->region_bits));
        for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
            bits[i] = i + 1u == words ? c->tail : 0;
        }
    }
}

/* A warp for each class: regions in which nothing is taken leave its table and become spares. */
extern "C" __global__ void ga_sized_collect_kernel(ga_sized_heap *heap)
{
    ga_tile tile = ga_tile_of(32);
    ga_sized_class *c = heap->of + (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    if (c >= heap->of + heap->classes || !c->way.all) {
        return;
    }
    uint32_t count = c->way.all / c->way.words;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t region = c->way.table[i] - 1u;
        uint32_t taken = ga_sized_taken_of(heap, tile, region);
        if (tile.lane == 0 && !taken) {
            heap->owners[region] = 0;
            heap->spares[ga_add_relaxed(&heap->spare_count, 1u)] = region; /* places, handed out */
        } else if (tile.lane == 0) {
            c->way.table[kept] = region + 1u;
        }
        kept += taken != 0;
        __syncwarp();
    }
    for (uint32_t i = kept + tile.lane; i < count; i += 32u) {
        c->way.table[i] = 0;
    }
    if (tile.lane == 0) {
        c->way.all = kept * c->way.words;
        c->way.straight = GA_SIZED_SHIFT(c->way); /* of none: the table knows */
        c->hint = 0;
    }
}

/* Before it: spares that have been taken again leave the list. One thread. */
extern "C" __global__ void ga_sized_spares_kernel(ga_sized_heap *heap)
{
    uint32_t left = 0;
    for (uint32_t i = heap->spared; i < heap->spare_count; i++) {
        heap->spares[left++] = heap->spares[i];
    }
    heap->spare_count = left;
    heap->spared = 0;
}

#endif
