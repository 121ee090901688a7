/* SPDX-License-Identifier: MIT
 *
 * Memory for the arrays of tables that grow in kernels: on the GPU from a kernel heap of all sizes,
 * on the CPU, where only tests run this code, from functions.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_ARRAY_MEMORY_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_ARRAY_MEMORY_H

#include "../table/grow_tile.h"

#ifdef __CUDACC__

#include <gpualloc/detail/backends/slab/classes/sized_kernel.h>

typedef struct ga_slabhash_array_memory {
    ga_kernel_heap heap;
} ga_slabhash_array_memory;

/* Memory for an array, by the whole tile; NULL if there is none. */
GA_SIMT void *ga_slabhash_array_alloc(const ga_slabhash_array_memory *memory, ga_tile tile,
                                      size_t bytes)
{
    ga_sized_heap *arrays = (ga_sized_heap *)memory->heap.words[GA_SIZED_WORD_HEAP];
    ga_sized_view heap = ga_sized_view_of(arrays);
    uint32_t regions = ga_sized_run_regions(heap, bytes);
    uint32_t first = ga_sized_run_claim(arrays, tile, regions, 1u, 0);
    return first == GA_SIZED_NONE ? NULL : ga_sized_run_pointer(heap, first);
}

/* By one lane. */
GA_SIMT void ga_slabhash_array_free(const ga_slabhash_array_memory *memory, void *rows,
                                    size_t bytes)
{
    (void)bytes;
    ga_sized_kernel_free(memory->heap, rows);
}

GA_SIMT void ga_slabhash_array_hash(const ga_slabhash_array_memory *memory,
                                    ga_slabhash_shift *shift)
{
    (void)memory;
    (void)shift;
}

#else

typedef struct ga_slabhash_array_memory {
    void *(*alloc)(void *context, size_t bytes);
    void (*free)(void *context, void *rows, size_t bytes);
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;          /* for all three */
} ga_slabhash_array_memory;

GA_SIMT void *ga_slabhash_array_alloc(const ga_slabhash_array_memory *memory, ga_tile tile,
                                      size_t bytes)
{
    (void)tile;
    return memory->alloc(memory->context, bytes);
}

GA_SIMT void ga_slabhash_array_free(const ga_slabhash_array_memory *memory, void *rows,
                                    size_t bytes)
{
    memory->free(memory->context, rows, bytes);
}

/* The table's own hash, if it has one. */
GA_SIMT void ga_slabhash_array_hash(const ga_slabhash_array_memory *memory,
                                    ga_slabhash_shift *shift)
{
    shift->hash = memory->hash;
    shift->context = memory->context;
}

#endif

#endif
