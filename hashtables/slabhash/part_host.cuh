/* SPDX-License-Identifier: MIT
 *
 * Large batches that change far tables are sorted first (part_kernel.cuh). For gpualloc/slabhash.cuh,
 * which includes it; docs/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_PART_HOST_CUH
#define GPUALLOC_SLABHASH_PART_HOST_CUH

#include "part_kernel.cuh"
#include "resize_host.cuh"

/* Of the cache, which requests and answers want some of, too. */
#define GA_SLABHASH_PART_OF_CACHE 4u

/* Whether the batch's kernel is faster behind a sort: it changes a table that is far, has a request for
 * each bucket, and wants no answers, which would have to find their way back. */
static inline bool ga_slabhash_device_sorts(const ga_slabhash_device *table,
                                            const ga_slabhash_batch *batch)
{
    bool changes = batch->ops || batch->op != GA_SLABHASH_SEARCH;
    return changes && table->view.exceeds_l2 && table->view.ordered && !batch->results &&
           !batch->found && !GA_SLABHASH_IS_MULTI(table->view.kind) &&
           batch->count >= table->view.buckets;
}

/* Parts of the table that stay in the cache. */
static inline uint32_t ga_slabhash_device_parts(const ga_slabhash_device *table)
{
    uint64_t bytes = (uint64_t)table->view.buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
    uint64_t most = table->cache / GA_SLABHASH_PART_OF_CACHE;
    uint32_t parts = 2;
    while (parts < GA_SLABHASH_PARTS && bytes / parts > most) {
        parts *= 2u;
    }
    return parts;
}

/* Requests that are sorted at once: the batch in equal pieces, of two for each bucket at most, so
 * that what is copied is small beside the table. */
static inline uint64_t ga_slabhash_device_sorts_at_once(const ga_slabhash_device *table,
                                                        const ga_slabhash_batch *batch)
{
    uint64_t most = std::min<uint64_t>(2u * (uint64_t)table->view.buckets, UINT64_C(1) << 31);
    uint64_t times = (batch->count + most - 1u) / most;
    return (batch->count + times - 1u) / times;
}

/* The heap of what is copied, which has the order of streams. NULL where the device has none, or the
 * stream is being captured, which is no time to open one. */
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

/* Memory for a sort of `most` requests, for what is on `stream` from now on; *room is NULL where there
 * is none, which is no failure. */
static inline ga_slabhash_sorting ga_slabhash_device_sort_begin(ga_slabhash_device *table,
                                                                const ga_slabhash_batch *batch,
                                                                uint64_t most, void **room,
                                                                cudaStream_t stream)
{
    const uint64_t line = 256;
    bool wide = GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64;
    uint64_t width = wide ? sizeof(uint64_t) : sizeof(uint32_t);
    uint64_t keys = (most * width + line - 1u) / line * line;
    uint64_t ops = (most + line - 1u) / line * line;
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
    int most = table->grid / GA_SLABHASH_BLOCKS * 4; /* blocks that a multiprocessor has room for */
    int grid = wanted < (uint64_t)most ? (int)wanted : most;
    ga_slabhash_part_count_kernel<word>
        <<<grid, GA_SLABHASH_PART_BLOCK, 0, stream>>>(table->view, sorting);
    ga_slabhash_part_begin_kernel<<<1, GA_SLABHASH_PARTS, 0, stream>>>(sorting);
    ga_slabhash_part_place_kernel<word>
        <<<grid, GA_SLABHASH_PART_BLOCK, 0, stream>>>(table->view, sorting);
}

/* Copy the batch's requests in the order of parts; `batch` is the copy then. */
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
