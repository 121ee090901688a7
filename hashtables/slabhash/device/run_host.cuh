/* SPDX-License-Identifier: MIT
 *
 * Batches, flush and clear of a table in device memory. Included by gpualloc/slabhash.cuh;
 * docs/internals/slabhash.md.
 *
 *     ga_slabhash_device_run, _run_several
 *       run_growing    tables that grow between calls: part by part, widening the table before each
 *       growth_before_batch, growth_after_batch    tables that grow in kernels: finish migrations
 *       launch         one batch: launch_one, or launch_sorted for large tables (part_host.cuh)
 *         launch_one   search_kernel, or batch_kernel for INSERT, or for any operation
 *     ga_slabhash_device_load    all kernels of these calls
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_RUN_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_RUN_HOST_CUH

#include "part_host.cuh"
#include "resize_host.cuh"
#include "search_kernel.cuh"

/* The rest of a batch, from request `first` on. */
static inline ga_slabhash_batch ga_slabhash_batch_from(const ga_slabhash_batch *batch,
                                                       uint32_t kind, uint64_t first)
{
    size_t width =
        GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? sizeof(uint64_t) : sizeof(uint32_t);
    ga_slabhash_batch part = *batch;
    part.count -= first;
    part.keys = (const char *)batch->keys + first * width;
    part.values = batch->values ? (const char *)batch->values + first * width : NULL;
    part.ops = batch->ops ? batch->ops + first : NULL;
    part.results = batch->results ? batch->results + first : NULL;
    part.found = batch->found ? (char *)batch->found + first * width : NULL;
    return part;
}

/* True if the batch's kernel lets lanes take requests by themselves. */
static inline bool ga_slabhash_device_serves_by_lanes(const ga_slabhash_device *table,
                                                      const ga_slabhash_batch *batch)
{
    bool searches = !batch->ops && batch->op == GA_SLABHASH_SEARCH;
    return searches ? GA_SLABHASH_IS_UNIQUE_FIXED(table->view.kind)
                    : table->view.ordered && !GA_SLABHASH_IS_MULTI(table->view.kind);
}

/* Blocks of a batch's kernel. Where lanes take requests by themselves there are no more blocks
 * than can be resident, so that all lanes have the same number of requests. */
static inline int ga_slabhash_device_batch_grid(const ga_slabhash_device *table,
                                                const ga_slabhash_batch *batch)
{
    uint64_t tiles = batch->count / GA_SLABHASH_TILE + (batch->count % GA_SLABHASH_TILE ? 1 : 0);
    int grid = ga_slabhash_device_grid(table, tiles < UINT32_MAX ? tiles : UINT32_MAX);
    uint32_t fixed = batch->ops ? (uint32_t)GA_SLABHASH_ANY : (uint32_t)batch->op;
    int resident = table->grid / GA_SLABHASH_BLOCKS * ga_slabhash_resident_for(fixed);
    return ga_slabhash_device_serves_by_lanes(table, batch) && resident < grid ? resident : grid;
}

/* Blocks for several batches together, which are all resident. */
static inline dim3 ga_slabhash_device_batches_grid(const ga_slabhash_device *table,
                                                   const ga_slabhash_batch *batches, uint32_t count)
{
    int most = 1;
    for (uint32_t i = 0; i < count; i++) {
        most = std::max(most, ga_slabhash_device_batch_grid(table, batches + i));
    }
    uint32_t fixed = batches->ops ? (uint32_t)GA_SLABHASH_ANY : (uint32_t)batches->op;
    int resident = table->grid / GA_SLABHASH_BLOCKS * ga_slabhash_resident_for(fixed);
    int each = std::max(1, resident / (int)count);
    return dim3((unsigned)(count > 1 && each < most ? each : most), count);
}

/* Launches the kernel of searches for the kind. */
template <uint32_t kind>
static inline void ga_slabhash_device_search(ga_slabhash_view table,
                                             const ga_slabhash_batches &batches, uint64_t *counts,
                                             ga_slabhash_progress_settings settings, dim3 grid,
                                             cudaStream_t stream)
{
    if constexpr (GA_SLABHASH_IS_UNIQUE_FIXED(kind)) {
        (void)settings;
        ga_slabhash_search_kernel<kind>
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table, batches, counts);
    } else {
        ga_slabhash_batch_kernel<kind, GA_SLABHASH_SEARCH>
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table, batches, counts, settings);
    }
}

/* Launches the kernel of at most GA_SLABHASH_TOGETHER batches of the same form. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch_one(ga_slabhash_device *table,
                                                      const ga_slabhash_batch *batches,
                                                      uint32_t count, uint64_t *counts,
                                                      ga_slabhash_progress_settings settings,
                                                      cudaStream_t stream)
{
    dim3 grid = ga_slabhash_device_batches_grid(table, batches, count);
    ga_slabhash_batches together = {};
    std::copy(batches, batches + count, together.of);
#define GA_SLABHASH_SEARCH_CALL(kind)                                                              \
    ga_slabhash_device_search<kind>(table->view, together, counts, settings, grid, stream)
#define GA_SLABHASH_INSERT_CALL(kind)                                                              \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>                                             \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, together, counts, settings)
#define GA_SLABHASH_ANY_CALL(kind)                                                                 \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_ANY>                                                \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, together, counts, settings)
    if (!batches->ops && batches->op == GA_SLABHASH_SEARCH) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_SEARCH_CALL)
    } else if (!batches->ops && batches->op == GA_SLABHASH_INSERT) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_INSERT_CALL)
    } else {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_ANY_CALL)
    }
#undef GA_SLABHASH_SEARCH_CALL
#undef GA_SLABHASH_INSERT_CALL
#undef GA_SLABHASH_ANY_CALL
    return ga_slabhash_cuda("launch a batch", cudaGetLastError());
}

/* Sorts the batch, piece by piece, and launches a kernel for each piece. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch_sorted(ga_slabhash_device *table,
                                                         const ga_slabhash_batch *batch,
                                                         uint64_t *counts,
                                                         ga_slabhash_progress_settings settings,
                                                         cudaStream_t stream)
{
    uint64_t chunk = ga_slabhash_device_sort_chunk(table, batch);
    void *room;
    ga_slabhash_sorting sorting = ga_slabhash_device_sort_begin(table, batch, chunk, &room, stream);
    if (!room) { /* no memory: unsorted */
        return ga_slabhash_device_launch_one(table, batch, 1, counts, settings, stream);
    }
    ga_status status = GA_OK;
    for (uint64_t done = 0; status == GA_OK && done < batch->count; done += chunk) {
        ga_slabhash_batch some = ga_slabhash_batch_from(batch, table->view.kind, done);
        some.count = std::min<uint64_t>(some.count, chunk);
        status = ga_slabhash_device_sort(table, sorting, &some, stream);
        status = status ? status
                        : ga_slabhash_device_launch_one(table, &some, 1, counts, settings, stream);
        settings.asked += settings.filled ? (uint32_t)some.count : 0;
    }
    ga_status freed = ga_free_on(table->sort_heap, room, (ga_stream)stream);
    return status ? status : freed;
}

/* Launches checked batches of the same form together; a single one is sorted if that pays. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch(ga_slabhash_device *table,
                                                  const ga_slabhash_batch *batch, uint32_t count,
                                                  uint64_t *counts, cudaStream_t stream)
{
    bool fills = batch->ops || (batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE);
    uint64_t requests = 0;
    for (uint32_t i = 0; i < count; i++) {
        requests += batch[i].count;
    }
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status;
    if (status == GA_OK && fills) {
        status = ga_slabhash_device_refresh_heap(table);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_progress_settings settings = {};
    settings.progress = table->progress;
    settings.filled = fills ? table->filled : NULL;
    settings.asked = table->requests_total;
    table->requests_total += fills ? (uint32_t)requests : 0;
    table->requests_since_count += fills ? requests : 0;
    table->requests_since_clear += fills ? requests : 0;
    table->since_refresh +=
        fills ? (uint32_t)std::min<uint64_t>(requests, GA_SLABHASH_REFRESH_EACH) : 0;
    return count == 1 && ga_slabhash_device_should_sort(table, batch)
               ? ga_slabhash_device_launch_sorted(table, batch, counts, settings, stream)
               : ga_slabhash_device_launch_one(table, batch, count, counts, settings, stream);
}

template <uint32_t kind> static inline ga_status ga_slabhash_device_load_batches()
{
    ga_status status = GA_OK;
    if constexpr (GA_SLABHASH_IS_UNIQUE_FIXED(kind)) {
        status = ga_slabhash_load_kernels({(const void *)ga_slabhash_search_kernel<kind>});
    } else {
        status = ga_slabhash_load_kernels(
            {(const void *)ga_slabhash_batch_kernel<kind, GA_SLABHASH_SEARCH>});
    }
    return status ? status
                  : ga_slabhash_load_kernels(
                        {(const void *)ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>,
                         (const void *)ga_slabhash_batch_kernel<kind, GA_SLABHASH_ANY>,
                         (const void *)ga_slabhash_all_kernel<kind, false>,
                         (const void *)ga_slabhash_all_kernel<kind, true>,
                         (const void *)ga_slabhash_move_kernel<kind>,
                         (const void *)ga_slabhash_whole_kernel<kind, GA_SLABHASH_COUNT_ALL>,
                         (const void *)ga_slabhash_whole_kernel<kind, GA_SLABHASH_CLEAR_ALL>});
}

template <typename unused>
static inline ga_status ga_slabhash_device_load(const ga_slabhash_device *table)
{
    ga_status status = ga_slabhash_device_check(table);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status ? scope.status : ga_slabhash_growth_load(table);
    if (status != GA_OK) {
        return status;
    }
#define GA_SLABHASH_LOAD_CALL(kind) status = ga_slabhash_device_load_batches<kind>()
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_LOAD_CALL)
#undef GA_SLABHASH_LOAD_CALL
    return status ? status
           : GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64
               ? ga_slabhash_device_load_sort<uint64_t>()
               : ga_slabhash_device_load_sort<uint32_t>();
}

/* Carries out the batch in parts. Before each part the table is widened for the pairs that the
 * part may insert, as far as memory allows. The share of new keys in one part is the estimate
 * for the next. A part has at most 16 times as many requests as went before, so that a batch
 * with few different keys does not make a large table. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_growing(ga_slabhash_device *table,
                                                       const ga_slabhash_batch *batch,
                                                       uint64_t *counts, cudaStream_t stream)
{
    const uint64_t least = UINT64_C(1) << 22, largest = UINT64_C(1) << 31;
    bool puts = batch->ops || (batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE);
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status;
    ga_slabhash_census census = {};
    uint64_t done = 0, last = 0, before = 0;
    while (status == GA_OK && done < batch->count) {
        ga_slabhash_batch part = ga_slabhash_batch_from(batch, table->view.kind, done);
        part.count = std::min<uint64_t>(part.count, largest);
        if (puts && part.count > ga_slabhash_device_spare(table)) {
            uint64_t limit = done > least / 16u ? 16u * done : least;
            part.count = part.count < limit ? part.count : limit;
            status = ga_slabhash_device_recount(table, &census, stream);
            double fresh = last ? (double)(table->slots_taken - before) / (double)last : 1.0;
            uint64_t more = (uint64_t)((double)part.count * (fresh < 1.0 ? fresh : 1.0)) + 1u;
            status = status ? status : ga_slabhash_device_widen(table, &census, more, stream);
            /* Without memory chains get longer; requests that find no slab are FULL. */
            status = status == GA_ERR_MEMORY ? GA_OK : status;
            before = table->slots_taken;
            last = part.count;
        }
        status = status ? status : ga_slabhash_device_launch(table, &part, 1, counts, stream);
        done += part.count;
    }
    return status;
}

/* Of the order, see near_tile.h: a flush moves pairs, a migration or a clear restores it. */
template <typename unused>
static inline ga_status ga_slabhash_device_flush(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_slabhash_census census = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && table->grows) {
        ga_slabhash_device_scope scope(table->device);
        status = scope.status ? scope.status : ga_slabhash_device_recount(table, &census, stream);
        uint32_t buckets = ga_slabhash_device_buckets(table, census.live, GA_SLABHASH_FILL_TO);
        status = status ? status
                        : ga_slabhash_device_resize(table, buckets, census.chained == 0, stream);
        table->slots_taken = census.live;
        if (status != GA_ERR_MEMORY) {
            return status;
        }
        status = GA_OK;
    }
    if (status == GA_OK && table->view.ordered) {
        status = ga_slabhash_device_set_ordered(table, false, stream);
    }
    return status ? status : ga_slabhash_device_whole<GA_SLABHASH_FLUSH_ALL>(table, &whole, stream);
}

template <typename unused>
static inline ga_status ga_slabhash_device_clear(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && GA_SLABHASH_IS_GROWING(table->view.kind)) {
        table->slots_taken = 0;
        return ga_slabhash_growth_clear(table, stream);
    }
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(table, &whole, stream);
    table->slots_taken = status ? table->slots_taken : 0;
    table->requests_since_clear = status ? table->requests_since_clear : 0;
    return status ? status : ga_slabhash_device_set_ordered(table, true, stream);
}

/* Checks what ga_slabhash_device_run() is passed. */
static inline ga_status ga_slabhash_device_check_batch(const ga_slabhash_device *table,
                                                       const ga_slabhash_batch *batch)
{
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && (!batch || (unsigned)batch->op >= GA_SLABHASH_OP_COUNT)) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: expected a batch of operation 0 to %d",
                         batch ? "no such operation" : "no batch", GA_SLABHASH_OP_COUNT - 1);
    }
    if (status == GA_OK && (unsigned)batch->how >= GA_SLABHASH_HOWS) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: how=%d: expected 0 to %d", (int)batch->how,
                         GA_SLABHASH_HOWS - 1);
    }
    if (status != GA_OK || !batch->count) {
        return status;
    }
    bool puts = !batch->ops && batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE;
    if (!batch->keys ||
        (!batch->values && puts && GA_SLABHASH_MODE(table->view.kind) != GA_SLABHASH_SET32)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without %s: expected an array",
                       (unsigned long long)batch->count, batch->keys ? "values" : "keys");
    }
    return GA_OK;
}

template <typename unused>
static inline ga_status ga_slabhash_device_run(ga_slabhash_device *table,
                                               const ga_slabhash_batch *batch, uint64_t *counts,
                                               cudaStream_t stream)
{
    ga_status status = ga_slabhash_device_check_batch(table, batch);
    if (status != GA_OK || !batch->count) {
        return status;
    }
    if (table->grows && !GA_SLABHASH_IS_GROWING(table->view.kind)) {
        return ga_slabhash_device_run_growing(table, batch, counts, stream);
    }
    status = ga_slabhash_growth_before_batch(table);
    status = status ? status : ga_slabhash_device_launch(table, batch, 1, counts, stream);
    return status ? status : ga_slabhash_growth_after_batch(table, batch, stream);
}

/* Whether batches can be served by one launch: of the same form, and no array is missing in one
 * only. */
static inline bool ga_slabhash_device_are_alike(const ga_slabhash_batch *a,
                                                const ga_slabhash_batch *b)
{
    return a->op == b->op && a->how == b->how && !a->ops == !b->ops && !a->values == !b->values;
}

/* Like ga_slabhash_device_run() for each of the batches, in no order. Batches of one form whose
 * keys are in the same order of buckets are faster so than one after the other, because all of them
 * progress alike, and find in the L2 cache the slabs that one of them has loaded. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_several(ga_slabhash_device *table,
                                                       const ga_slabhash_batch *batches,
                                                       uint32_t count, uint64_t *counts,
                                                       cudaStream_t stream)
{
    uint32_t together = table->grows ? 1 : GA_SLABHASH_TOGETHER;
    uint64_t largest = 0, sum = 0;
    ga_status status = GA_OK;
    for (uint32_t i = 0; status == GA_OK && i < count; i++) {
        status = ga_slabhash_device_check_batch(table, batches + i);
        together = ga_slabhash_device_are_alike(batches, batches + i) ? together : 1;
        largest = std::max(largest, batches[i].count);
        sum += batches[i].count;
    }
    together = largest * count > 2 * sum ? 1 : together; /* each has as many blocks */
    for (uint32_t done = 0; status == GA_OK && done < count; done += together) {
        uint32_t some = std::min(together, count - done);
        status = some == 1 ? ga_slabhash_device_run(table, batches + done, counts, stream)
                           : ga_slabhash_device_launch(table, batches + done, some, counts, stream);
    }
    return status;
}

template <typename unused>
static inline ga_status ga_slabhash_device_run_all(ga_slabhash_device *table,
                                                   const ga_slabhash_all *all, bool removes,
                                                   uint64_t *totals, cudaStream_t stream)
{
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && (!all || !totals)) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                         all ? "place for totals" : "batch");
    }
    if (status != GA_OK || !all->count) {
        return status;
    }
    if (!all->keys || (all->room && !all->values)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without %s: expected an array",
                       (unsigned long long)all->count, all->keys ? "values" : "keys");
    }
    ga_slabhash_device_scope scope(table->device);
    if (scope.status != GA_OK) {
        return scope.status;
    }
    int grid = ga_slabhash_device_grid(table, all->count < UINT32_MAX ? all->count : UINT32_MAX);
#define GA_SLABHASH_ALL_CALL(kind)                                                                 \
    if (removes) {                                                                                 \
        ga_slabhash_all_kernel<kind, true>                                                         \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *all, totals);                   \
    } else {                                                                                       \
        ga_slabhash_all_kernel<kind, false>                                                        \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *all, totals);                   \
    }
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_ALL_CALL)
#undef GA_SLABHASH_ALL_CALL
    return ga_slabhash_cuda("launch a batch for all pairs of keys", cudaGetLastError());
}

#endif
