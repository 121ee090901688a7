/* SPDX-License-Identifier: MIT
 *
 * Kernels by which the host maintains heaps with size classes; part of device_code.cu. No other
 * kernel may use the heap at the same time, except beside the first two.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_SERVICE_CUH
#define GPUALLOC_SLAB_CLASSES_SIZED_SERVICE_CUH

#include "sized_kernel.h"

/* Allocate and free one block for the host. One thread. */
extern "C" __global__ void ga_sized_take_kernel(ga_kernel_heap heap, uint64_t size, uint64_t align,
                                                void **out)
{
    void *block = ga_sized_kernel_aligned_alloc(heap, align, size);
    if ((uint64_t)block & (align - 1u)) { /* the heap's memory is aligned to less */
        ga_sized_kernel_free(heap, block);
        block = NULL;
    }
    *out = block;
}

extern "C" __global__ void ga_sized_give_kernel(ga_kernel_heap heap, void *block)
{
    ga_sized_kernel_free(heap, block);
}

/* The class of the region, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_class_at(const ga_sized_heap *heap, uint32_t region)
{
    return ga_sized_owner_class(heap->owners[region]);
}

/* The bitmap of a region that belongs to a class. */
GA_SIMT uint32_t *ga_sized_bits_at(const ga_sized_heap *heap, uint32_t region)
{
    return heap->bits + ga_sized_bitmap_index(heap->region_bits, region, heap->owners[region]);
}

/* The number of live units of the region. By all lanes of a warp. */
GA_SIMT uint32_t ga_sized_count_taken(const ga_sized_heap *heap, ga_tile tile, uint32_t region)
{
    const ga_sized_class *c = heap->of + ga_sized_class_at(heap, region);
    const uint32_t *bits = ga_sized_bits_at(heap, region);
    uint32_t taken = 0;
    for (uint32_t bitmap_word = tile.lane; bitmap_word < c->map.words; bitmap_word += 32u) {
        taken +=
            ga_bits_count(bits[bitmap_word] & ~(bitmap_word + 1u == c->map.words ? c->tail : 0u));
    }
    return ga_lanes_sum(tile, taken);
}

/* relaxed: read after the kernel has ended */
GA_SIMT void ga_sized_add_live(uint64_t *total, uint32_t blocks, uint64_t bytes)
{
    ga_post_add64_relaxed(total, blocks);
    ga_post_add64_relaxed(total + 1, bytes);
}

/* Add the live blocks: total[0] counts them, total[1] their bytes. Each warp does one region after
 * the other. */
extern "C" __global__ void ga_sized_live_kernel(ga_sized_heap *heap, uint64_t *total)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * blockDim.x / 32u;
    for (uint32_t region = warp; region < heap->next; region += warps) {
        uint32_t class_ = ga_sized_class_at(heap, region);
        uint32_t owner = heap->owners[region];
        uint32_t taken = class_ == GA_SIZED_NONE ? 0 : ga_sized_count_taken(heap, tile, region);
        if (tile.lane == 0 && taken) {
            ga_sized_add_live(total, taken, (uint64_t)taken * heap->of[class_].map.unit);
        } else if (tile.lane == 0 && owner & GA_SIZED_RUN) {
            ga_sized_add_live(total, 1, (uint64_t)(owner & ~GA_SIZED_RUN) << heap->region_bits);
        }
    }
}

/* Free all units and runs of one region. By all lanes of a warp. */
GA_SIMT void ga_sized_reset_region(ga_sized_heap *heap, ga_tile tile, uint32_t region)
{
    uint32_t class_ = ga_sized_class_at(heap, region);
    uint32_t *bits = ga_sized_bits_at(heap, region);
    const ga_sized_class *c = heap->of + class_;
    uint32_t words = class_ == GA_SIZED_NONE ? 0 : c->map.words;
    heap->watches[region] = 0; /* not settled any more */
    for (uint32_t i = tile.lane; i < words; i += 32u) {
        bits[i] = i + 1u == words ? c->tail : 0;
    }
    uint32_t n = ga_sized_run_clear(heap, tile, region);
    if (n) {
        ga_sized_extent extent = {region, n};
        ga_sized_pool_free(heap, tile, extent);
    }
}

extern "C" __global__ void ga_sized_reset_kernel(ga_sized_heap *heap)
{
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    uint32_t warps = gridDim.x * blockDim.x / 32u;
    for (uint32_t region = warp; region < heap->next; region += warps) {
        ga_sized_reset_region(heap, ga_tile_of(32), region);
    }
    if (warp == 0 && threadIdx.x == 0) {
        ga_post_add_relaxed(&heap->releases, 1u); /* the results of sweeps become invalid */
    }
}

/* Make the first bitmaps of free regions usable again: no kernel has a stale class map now. By all
 * threads. */
GA_SIMT void ga_sized_reset_spent(ga_sized_heap *heap)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t region = thread; region < heap->next; region += gridDim.x * blockDim.x) {
        if (ga_load_relaxed(heap->pool + region / 32u) >> region % 32u & 1u) {
            heap->table_indices[region] = 0;
        }
    }
}

/* Forget all recent words, because their regions may get other classes. By all threads. */
GA_SIMT void ga_sized_clear_recent(ga_sized_heap *heap)
{
    uint64_t *records = (uint64_t *)((char *)heap + GA_SIZED_RECENT_AT);
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t i = thread; i < GA_SIZED_RECENT; i += gridDim.x * blockDim.x) {
        records[i] = 0;
    }
}

/* A warp for each class: regions without live units leave its table for the pool. */
extern "C" __global__ void ga_sized_collect_kernel(ga_sized_heap *heap)
{
    ga_tile tile = ga_tile_of(32);
    ga_sized_class *c = heap->of + (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    ga_sized_reset_spent(heap);
    ga_sized_clear_recent(heap);
    if (c >= heap->of + heap->classes || !c->map.total_words) {
        return;
    }
    uint32_t count = c->map.total_words / c->map.words;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t region = (c->map.table[i] & ~GA_SIZED_SPENT) - 1u;
        uint32_t taken = ga_sized_count_taken(heap, tile, region);
        if (tile.lane == 0) {
            if (taken) {
                uint32_t spent = heap->table_indices[region] & GA_SIZED_SPENT;
                c->map.table[kept] = (region + 1u) | spent;
                heap->table_indices[region] = kept | spent;
            } else {
                heap->owners[region] = 0;
                heap->table_indices[region] = 0;
            }
        }
        __syncwarp();
        if (!taken) {
            ga_sized_extent extent = {region, 1};
            ga_sized_pool_free(heap, tile, extent);
        }
        kept += taken != 0;
    }
    for (uint32_t i = kept + tile.lane; i < count; i += 32u) {
        c->map.table[i] = 0;
    }
    if (tile.lane == 0) {
        c->map.total_words = kept * c->map.words;
        c->map.contiguous = GA_SIZED_SHIFT(c->map); /* no contiguous regions: use the table */
        c->shrunk = 0;
        c->hint = 0;
    }
}

#endif
