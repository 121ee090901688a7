/* SPDX-License-Identifier: MIT
 *
 * Opens and closes a table in device memory, counts and retrieves its pairs. Included by
 * gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_OPEN_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_OPEN_HOST_CUH

#include "table_host.cuh"

/* Frees all arrays with their slabs, and the record of them. Exclusive. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop_all(ga_slabhash_device *table)
{
    if (GA_SLABHASH_IS_GROWING(table->view.kind)) {
        return ga_slabhash_growth_close(table);
    }
    ga_status status = ga_slabhash_device_drop(table, table->view, false, 0);
    return status ? status : ga_slabhash_cuda("give slabs back", cudaStreamSynchronize(0));
}

template <typename unused>
static inline ga_status ga_slabhash_device_close(ga_slabhash_device *table)
{
    ga_status status = GA_OK;
    if (table && table->buckets) {
        ga_slabhash_device_scope scope(table->device);
        status = scope.status ? scope.status
                              : ga_slabhash_cuda("wait for the device", cudaDeviceSynchronize());
        if (status == GA_OK && table->buckets_valid) {
            status = ga_slabhash_device_drop_all(table);
        }
        status = status ? status : ga_slabhash_device_report_conflicts(table);
#ifdef GA_SLABHASH_CHECKED
        ga_free(table->buckets, table->view.use);
#endif
        ga_free(table->buckets, table->scratch);
        if (table->progress) {
            (void)cudaFreeHost(table->progress);
        }
        if (table->arrays != table->buckets) {
            ga_heap_close(table->arrays);
        }
        if (table->sort_heap) {
            ga_heap_close(table->sort_heap);
        }
        ga_heap_close(table->buckets);
    }
    if (table && table->own_slabs) {
        ga_heap_close(table->slabs);
    }
    if (table) {
        *table = ga_slabhash_device{};
    }
    return status;
}

/* Updates the kernels' view of the slab heap. A heap that cannot grow while kernels run grows
 * here. */
static inline ga_status ga_slabhash_device_update_heap(ga_slabhash_device *table)
{
    ga_kernel_heap heap = {};
    ga_status status = ga_heap_kernel_view(table->slabs, &heap);
    if (status == GA_OK &&
        (heap.kind != GA_KERNEL_KIND_SLAB ||
         GA_SLAB_WORDS_UNIT(heap.words) != sizeof(uint32_t) * GA_SLABHASH_WORDS)) {
        status =
            ga_fail(GA_ERR_ARGUMENT,
                    "slabhash: slabs from \"%s\": expected a slab heap of unit=128 for kernels",
                    ga_heap_spec(table->slabs));
    }
    if (status == GA_OK && GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_CHECK) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: slabs from \"%s\", with check=full: expected a heap without, "
                         "since slabs are freed as they are, not filled as it wants them",
                         ga_heap_spec(table->slabs));
    }
    if (status == GA_OK) {
        table->view.heap = (ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP];
    }
    return status;
}

/* Updates the kernels' view of the slab heap only if a request found no slab, or many requests
 * were made since the last time, because asking the heap takes longer than a small batch. */
static inline ga_status ga_slabhash_device_refresh_heap(ga_slabhash_device *table)
{
    /* relaxed: see ga_slabhash_progress. A caller that has seen FULL has waited for the kernel. */
    bool full = __atomic_load_n(&table->progress->full, __ATOMIC_RELAXED) != 0;
    if (!full && table->since_refresh < GA_SLABHASH_REFRESH_EACH) {
        return GA_OK;
    }
    table->since_refresh = 0;
    table->progress->full = 0;
    return ga_slabhash_device_update_heap(table);
}

/* Says whether the table is ordered (near_tile.h), for kernels after the work on `stream`. */
static inline ga_status ga_slabhash_device_set_ordered(ga_slabhash_device *table, bool ordered,
                                                       cudaStream_t stream)
{
    return ga_slabhash_cuda("say in what order keys stand",
                            cudaMemsetAsync((uint32_t *)table->view.ordered, ordered ? 0xff : 0,
                                            sizeof *table->view.ordered, stream));
}

/* Allocates an array of empty buckets for `view`, ready after the work on `stream`. The table is
 * then ordered, unless it grows in kernels. */
static inline ga_status ga_slabhash_device_alloc_buckets(ga_slabhash_device *table,
                                                         uint32_t buckets, ga_slabhash_view *view,
                                                         cudaStream_t stream)
{
    uint64_t bytes = (uint64_t)buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
    void *rows = NULL;
    bool ordered = !GA_SLABHASH_IS_GROWING(table->view.kind);
    ga_status status =
        ga_slabhash_device_alloc_array(table, bytes + sizeof *view->ordered, &rows, stream);
    if (status == GA_ERR_SIZE) { /* more than the heap's limit */
        status = ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %u buckets: %s", buckets,
                         ga_error_text());
    }
    if (status != GA_OK) {
        return status;
    }
    view->rows = (uint32_t *)rows;
    view->ordered = ordered ? view->rows + bytes / sizeof *view->rows : NULL;
    view->buckets = buckets;
    view->stride_max = buckets / view->path;
    view->exceeds_l2 = bytes > 4u * table->cache ? 1u : 0u;
    status = ga_slabhash_cuda("empty the buckets",
                              cudaMemsetAsync(rows, 0xff, bytes + sizeof *view->ordered, stream));
    if (status != GA_OK) {
        (void)ga_slabhash_device_free_array(table, rows, stream);
        view->rows = NULL;
    }
    return status;
}

/* Reads the device's properties on which the table's use depends. */
static inline ga_status ga_slabhash_device_measure(ga_slabhash_device *table)
{
    int processors = 0, cache = 0;
    ga_status status = ga_slabhash_cuda(
        "ask for the multiprocessors",
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, table->device));
    table->grid = processors * GA_SLABHASH_BLOCKS;
    status = status ? status
                    : ga_slabhash_cuda(
                          "ask for the size of the L2 cache",
                          cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, table->device));
    table->cache = (uint64_t)cache;
    return status;
}

/* Allocates host memory that kernels write. */
static inline ga_status ga_slabhash_device_alloc_progress(ga_slabhash_device *table)
{
    void *progress = NULL;
    ga_status status = ga_slabhash_cuda("get memory of the host's that kernels can write",
                                        cudaHostAlloc(&progress, sizeof *table->progress,
                                                      cudaHostAllocMapped | cudaHostAllocPortable));
    if (status == GA_OK) {
        table->progress = (ga_slabhash_progress *)progress;
        *table->progress = ga_slabhash_progress{};
    }
    return status;
}

/* Sets up a table that grows between calls: its batches are counted, and arrays are allocated in
 * stream order if the device can. */
static inline ga_status ga_slabhash_device_begin_calls(ga_slabhash_device *table,
                                                       cudaStream_t stream)
{
    ga_heap *arrays = NULL;
    if (ga_heap_open(&arrays, GA_PLACE_DEVICE, table->device, "async:release=64M") == GA_OK) {
        table->arrays = arrays;
        table->streamed = true;
    }
    table->filled = (uint32_t *)(void *)(table->loaded + GA_SLABHASH_REFUSED + 1);
    return ga_slabhash_cuda("begin to count what is put in",
                            cudaMemsetAsync(table->filled, 0, sizeof *table->filled, stream));
}

/* Makes the array of `view` the table's only one, for kernels that start later. Exclusive. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_set_array(ga_slabhash_device *table,
                                                     ga_slabhash_view view, cudaStream_t stream)
{
    if (GA_SLABHASH_IS_GROWING(table->view.kind)) {
        return ga_slabhash_growth_set_array(table, view, stream);
    }
    table->view = view;
    return GA_OK;
}

GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_set_up(ga_slabhash_device *table,
                                                  const ga_slabhash_options *options,
                                                  cudaStream_t stream)
{
    ga_slabhash_options fixed = *options;
    ga_slabhash_plan plan;
    bool in_kernels = false;
    if (options->options_size == sizeof *options) { /* a wrong size is reported by plan_of */
        uint32_t grows = GA_SLABHASH_GROW | GA_SLABHASH_GROW_IN_KERNELS;
        in_kernels = options->flags & GA_SLABHASH_GROW_IN_KERNELS;
        table->grows = options->flags & grows;
        fixed.flags &= ~grows;
        if (table->grows && !options->buckets) {
            fixed.buckets = GA_SLABHASH_DEVICE_BUCKETS;
        }
    }
    ga_status status = ga_slabhash_plan_of(&fixed, &plan);
    void *scratch = NULL;
#ifdef GA_SLABHASH_ONLY_KIND
    if (status == GA_OK && plan.kind != (uint32_t)GA_SLABHASH_ONLY_KIND) {
        status =
            ga_fail(GA_ERR_UNSUPPORTED,
                    "slabhash: a table of kind %u: expected %u, which is GA_SLABHASH_ONLY_KIND",
                    plan.kind, (uint32_t)GA_SLABHASH_ONLY_KIND);
    }
#endif
    if (status == GA_OK && !table->slabs) {
        table->own_slabs = true;
        status = ga_heap_open(&table->slabs, GA_PLACE_KERNEL, table->device, "slab:unit=128/vmm");
        table->own_slabs = status == GA_OK;
    }
    status = status ? status : ga_slabhash_device_update_heap(table);
    status =
        status ? status : ga_heap_open(&table->buckets, GA_PLACE_DEVICE, table->device, "cuda");
    table->arrays = table->buckets;
    size_t results = (GA_SLABHASH_REFUSED + 1) * sizeof(uint64_t);
    status = status ? status
                    : ga_alloc(table->buckets,
                               sizeof(ga_slabhash_census) + results + sizeof *table->filled, 0,
                               &scratch);
    table->scratch = (uint64_t *)scratch;
    status = status ? status : ga_slabhash_device_alloc_progress(table);
    status = status ? status : ga_slabhash_device_measure(table);
    status = status ? status : ga_slabhash_device_begin_checks(table, stream);
    if (status != GA_OK) {
        return status;
    }
    table->loaded = table->scratch + sizeof(ga_slabhash_census) / sizeof(uint64_t);
    if (table->grows && !in_kernels) {
        status = ga_slabhash_device_begin_calls(table, stream);
    }
    table->least = plan.buckets;
    table->seed = plan.seed;
    table->view.path = plan.path;
    table->view.kind = plan.kind;
    table->view.a = plan.a;
    table->view.b = plan.b;
    status = status || !in_kernels ? status : ga_slabhash_growth_open(table, &plan);
    ga_slabhash_view view = table->view;
    status = status ? status : ga_slabhash_device_alloc_buckets(table, plan.buckets, &view, stream);
    status = status ? status : ga_slabhash_device_set_array(table, view, stream);
    table->buckets_valid = status == GA_OK;
    return status;
}

template <typename unused>
static inline ga_status ga_slabhash_device_open(ga_slabhash_device *table,
                                                const ga_slabhash_options *options, int device,
                                                cudaStream_t stream)
{
    if (!table || !options) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                       table ? "options" : "place for the table");
    }
    *table = ga_slabhash_device{};
    table->device = device;
    if (options->options_size == sizeof *options) {
        if (options->heap && ga_heap_device(options->heap) != device) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "slabhash: slabs from \"%s\" of device %d for a table of device %d: "
                           "expected a heap of the same device",
                           ga_heap_spec(options->heap), ga_heap_device(options->heap), device);
        }
        table->slabs = options->heap;
        if (options->hash) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "slabhash: a hash of the host's for a table of device "
                           "%d: expected NULL, and GA_SLABHASH_HASH",
                           device);
        }
    }
    ga_slabhash_device_scope scope(device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_set_up(table, options, stream);
    if (status != GA_OK) {
        ga_slabhash_device_close(table);
    }
    return status;
}

template <typename unused>
static inline ga_status ga_slabhash_device_count(ga_slabhash_device *table,
                                                 ga_slabhash_census *census, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !census) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for a census: expected a pointer");
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    whole.census = (ga_slabhash_census *)table->scratch;
    status = ga_slabhash_growth_catch_up(table, stream);
    status = status ? status
                    : ga_slabhash_cuda("begin a count",
                                       cudaMemsetAsync(whole.census, 0, sizeof *census, stream));
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_COUNT_ALL>(table, &whole, stream);
    status = status ? status
                    : ga_slabhash_cuda("read a count",
                                       cudaMemcpyAsync(census, whole.census, sizeof *census,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status : ga_slabhash_cuda("wait for a count", cudaStreamSynchronize(stream));
    return status ? status : ga_slabhash_device_report_conflicts(table);
}

template <typename unused>
static inline ga_status ga_slabhash_device_retrieve(ga_slabhash_device *table, void *keys,
                                                    void *values, uint64_t room, uint64_t *count,
                                                    cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !count) {
        status =
            ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for their number: expected a pointer");
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    whole.keys = keys;
    whole.values = values;
    whole.room = room;
    whole.cursor = table->scratch;
    status = ga_slabhash_growth_catch_up(table, stream);
    status = status
                 ? status
                 : ga_slabhash_cuda("begin to retrieve",
                                    cudaMemsetAsync(whole.cursor, 0, sizeof *whole.cursor, stream));
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_COPY_ALL>(table, &whole, stream);
    status = status ? status
                    : ga_slabhash_cuda("read how many were retrieved",
                                       cudaMemcpyAsync(count, whole.cursor, sizeof *count,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status
                    : ga_slabhash_cuda("wait for what is retrieved", cudaStreamSynchronize(stream));
    return status ? status : ga_slabhash_device_report_conflicts(table);
}

#endif
