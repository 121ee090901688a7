/* SPDX-License-Identifier: MIT
 *
 * Sorts large batches that change tables beyond the L2 cache, before they are carried out
 * (part_kernel.cuh). Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_PART_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_PART_HOST_CUH

#include "part_kernel.cuh"
#include "resize_host.cuh"

/* A part takes at most 1/4 of the L2 cache, because requests and results need some of it, too. */
#define GA_SLABHASH_PART_OF_CACHE 4u

/* True if sorting pays: the batch changes a table that exceeds the L2 cache, has a request for
 * each bucket, and needs no results, which would have to be brought back into order. */
static inline bool ga_slabhash_device_should_sort(const ga_slabhash_device *table,
                                                  const ga_slabhash_batch *batch)
{
    bool changes = batch->ops || batch->op != GA_SLABHASH_SEARCH;
    return changes && table->view.exceeds_l2 && table->view.ordered && !batch->results &&
           !batch->found && !GA_SLABHASH_IS_MULTI(table->view.kind) &&
           batch->count >= table->view.buckets;
}

/* Number of parts, so that one fits in its share of the cache. */
static inline uint32_t ga_slabhash_device_parts(const ga_slabhash_device *table)
{
    uint64_t bytes = (uint64_t)table->view.buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
    uint64_t bytes_max = table->cache / GA_SLABHASH_PART_OF_CACHE;
    uint32_t parts = 2;
    while (parts < GA_SLABHASH_PARTS && bytes / parts > bytes_max) {
        parts *= 2u;
    }
    return parts;
}

/* Requests to sort at once: the batch in equal pieces of at most two requests a bucket, so that
 * the copy is small compared with the table. */
static inline uint64_t ga_slabhash_device_sort_chunk(const ga_slabhash_device *table,
                                                     const ga_slabhash_batch *batch)
{
    uint64_t limit = std::min<uint64_t>(2u * (uint64_t)table->view.buckets, UINT64_C(1) << 31);
    uint64_t times = (batch->count + limit - 1u) / limit;
    return (batch->count + times - 1u) / times;
}

/* The stream-ordered heap of the copies. NULL if the device has none, or if the stream is being
 * captured, when none can be opened. */
static inline ga_heap *ga_slabhash_device_sorting_heap(ga_slabhash_device *table,
                                                       cudaStream_t stream)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone) {
        return NULL;
    }
    if (!table->sort_heap && !table->no_sort_heap &&
        ga_heap_open(&table->sort_heap, GA_PLACE_DEVICE, table->device, "async:release=256M") !=
            GA_OK) {
        table->sort_heap = NULL;
        table->no_sort_heap = true;
    }
    return table->sort_heap;
}

/* Allocates memory to sort `count` requests, for work on `stream` from now on. *room is NULL if
 * there is none; that is no error. */
static inline ga_slabhash_sorting ga_slabhash_device_sort_begin(ga_slabhash_device *table,
                                                                const ga_slabhash_batch *batch,
                                                                uint64_t count, void **room,
                                                                cudaStream_t stream)
{
    const uint64_t line = 256;
    bool wide = GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64;
    uint64_t width = wide ? sizeof(uint64_t) : sizeof(uint32_t);
    uint64_t keys = (count * width + line - 1u) / line * line;
    uint64_t ops = (count + line - 1u) / line * line;
    uint64_t cursors = GA_SLABHASH_PARTS * sizeof(uint32_t);
    uint64_t bytes = cursors + keys + (batch->values ? keys : 0) + (batch->ops ? ops : 0);
    ga_slabhash_sorting sorting = {};
    ga_heap *heap = ga_slabhash_device_sorting_heap(table, stream);
    *room = NULL;
    if (!heap || ga_alloc_on(heap, bytes, 0, (ga_stream)stream, room) != GA_OK) {
        *room = NULL;
        return sorting;
    }
    char *at = (char *)*room;
    sorting.cursors = (uint32_t *)(void *)at;
    sorting.keys_to = at + cursors;
    sorting.values_to = batch->values ? at + cursors + keys : NULL;
    sorting.ops_to =
        batch->ops ? (uint8_t *)at + cursors + keys + (batch->values ? keys : 0) : NULL;
    sorting.parts = ga_slabhash_device_parts(table);
    sorting.shift = 64;
    for (uint32_t parts = sorting.parts; parts > 1u; parts /= 2u) {
        sorting.shift--;
    }
    return sorting;
}

template <typename word>
static inline void ga_slabhash_device_sort_launch(ga_slabhash_device *table,
                                                  const ga_slabhash_sorting &sorting,
                                                  cudaStream_t stream)
{
    uint64_t each = ga_slabhash_part_room<word>::count;
    uint64_t wanted = (sorting.count + each - 1u) / each;
    int grid_max = table->grid / GA_SLABHASH_BLOCKS * 4; /* 4 blocks for each multiprocessor */
    int grid = wanted < (uint64_t)grid_max ? (int)wanted : grid_max;
    ga_slabhash_part_count_kernel<word>
        <<<grid, GA_SLABHASH_PART_BLOCK, 0, stream>>>(table->view, sorting);
    ga_slabhash_part_begin_kernel<<<1, GA_SLABHASH_PARTS, 0, stream>>>(sorting);
    ga_slabhash_part_place_kernel<word>
        <<<grid, GA_SLABHASH_PART_BLOCK, 0, stream>>>(table->view, sorting);
}

template <typename word> static inline ga_status ga_slabhash_device_load_sort()
{
    return ga_slabhash_load_kernels({(const void *)ga_slabhash_part_count_kernel<word>,
                                     (const void *)ga_slabhash_part_begin_kernel,
                                     (const void *)ga_slabhash_part_place_kernel<word>});
}

/* Enqueues the sort. `batch` becomes the sorted copy. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_sort(ga_slabhash_device *table,
                                                ga_slabhash_sorting sorting,
                                                ga_slabhash_batch *batch, cudaStream_t stream)
{
    sorting.count = batch->count;
    sorting.keys = batch->keys;
    sorting.values = batch->values;
    sorting.ops = batch->ops;
    ga_status status = ga_slabhash_cuda(
        "begin to sort a batch",
        cudaMemsetAsync(sorting.cursors, 0, sorting.parts * sizeof *sorting.cursors, stream));
    if (status != GA_OK) {
        return status;
    }
    if (GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64) {
        ga_slabhash_device_sort_launch<uint64_t>(table, sorting, stream);
    } else {
        ga_slabhash_device_sort_launch<uint32_t>(table, sorting, stream);
    }
    batch->keys = sorting.keys_to;
    batch->values = sorting.values_to;
    batch->ops = sorting.ops_to;
    return ga_slabhash_cuda("sort a batch", cudaGetLastError());
}

#endif
