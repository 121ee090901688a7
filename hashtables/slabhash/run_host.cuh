/* SPDX-License-Identifier: MIT
 *
 * Batches, FLUSH and clear of a table in device memory. For gpualloc/slabhash.cuh, which includes it;
 * docs/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_RUN_HOST_CUH
#define GPUALLOC_SLABHASH_RUN_HOST_CUH

#include "part_host.cuh"
#include "resize_host.cuh"
#include "search_kernel.cuh"

/* The part of a batch from request `first` on. */
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

/* Whether lanes go through requests of their own. */
static inline bool ga_slabhash_device_goes_alone(const ga_slabhash_device *table,
                                                 const ga_slabhash_batch *batch)
{
    bool searches = !batch->ops && batch->op == GA_SLABHASH_SEARCH;
    return searches ? GA_SLABHASH_IS_UNIQUE(table->view.kind)
                    : table->view.ordered && !GA_SLABHASH_IS_MULTI(table->view.kind);
}

/* Blocks of a batch. Lanes that go through requests of their own are no more than there is room for
 * at once, so that each has as many as the others. */
static inline int ga_slabhash_device_batch_grid(const ga_slabhash_device *table,
                                                const ga_slabhash_batch *batch)
{
    uint64_t tiles = batch->count / GA_SLABHASH_TILE + (batch->count % GA_SLABHASH_TILE ? 1 : 0);
    int grid = ga_slabhash_device_grid(table, tiles < UINT32_MAX ? tiles : UINT32_MAX);
    uint32_t fixed = batch->ops ? (uint32_t)GA_SLABHASH_ANY : (uint32_t)batch->op;
    int resident = table->grid / GA_SLABHASH_BLOCKS * ga_slabhash_resident_for(fixed);
    return ga_slabhash_device_goes_alone(table, batch) && resident < grid ? resident : grid;
}

/* The kernel of searches in tables of the kind. */
template <uint32_t kind>
static inline void ga_slabhash_device_search(ga_slabhash_view table, const ga_slabhash_batch &batch,
                                             uint64_t *counts, ga_slabhash_teller teller, int grid,
                                             cudaStream_t stream)
{
    if constexpr (GA_SLABHASH_IS_UNIQUE(kind)) {
        (void)teller;
        ga_slabhash_search_kernel<kind>
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table, batch, counts);
    } else {
        ga_slabhash_batch_kernel<kind, GA_SLABHASH_SEARCH>
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table, batch, counts, teller);
    }
}

/* The batch's kernel. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch_one(ga_slabhash_device *table,
                                                      const ga_slabhash_batch *batch,
                                                      uint64_t *counts, ga_slabhash_teller teller,
                                                      cudaStream_t stream)
{
    int grid = ga_slabhash_device_batch_grid(table, batch);
#define GA_SLABHASH_SEARCH_CALL(kind)                                                              \
    ga_slabhash_device_search<kind>(table->view, *batch, counts, teller, grid, stream)
#define GA_SLABHASH_INSERT_CALL(kind)                                                              \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>                                             \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller)
#define GA_SLABHASH_ANY_CALL(kind)                                                                 \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_ANY>                                                \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller)
    if (!batch->ops && batch->op == GA_SLABHASH_SEARCH) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_SEARCH_CALL)
    } else if (!batch->ops && batch->op == GA_SLABHASH_INSERT) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_INSERT_CALL)
    } else {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_ANY_CALL)
    }
#undef GA_SLABHASH_SEARCH_CALL
#undef GA_SLABHASH_INSERT_CALL
#undef GA_SLABHASH_ANY_CALL
    return ga_slabhash_cuda("launch a batch", cudaGetLastError());
}

/* The batch's kernels, each of requests that are sorted before it. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status
ga_slabhash_device_launch_sorted(ga_slabhash_device *table, const ga_slabhash_batch *batch,
                                 uint64_t *counts, ga_slabhash_teller teller, cudaStream_t stream)
{
    uint64_t most = ga_slabhash_device_sorts_at_once(table, batch);
    void *room;
    ga_slabhash_sorting sorting = ga_slabhash_device_sort_begin(table, batch, most, &room, stream);
    if (!room) { /* as they are */
        return ga_slabhash_device_launch_one(table, batch, counts, teller, stream);
    }
    ga_status status = GA_OK;
    for (uint64_t done = 0; status == GA_OK && done < batch->count; done += most) {
        ga_slabhash_batch some = ga_slabhash_batch_from(batch, table->view.kind, done);
        some.count = std::min<uint64_t>(some.count, most);
        status = ga_slabhash_device_sort(table, sorting, &some, stream);
        status =
            status ? status : ga_slabhash_device_launch_one(table, &some, counts, teller, stream);
        teller.asked += teller.placed ? (uint32_t)some.count : 0;
    }
    ga_status freed = ga_free_on(table->copies, room, (ga_stream)stream);
    return status ? status : freed;
}

/* The batch's kernel, or those of its parts; everything is checked. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch(ga_slabhash_device *table,
                                                  const ga_slabhash_batch *batch, uint64_t *counts,
                                                  cudaStream_t stream)
{
    bool fills = batch->ops || (batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE);
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status;
    if (status == GA_OK && fills) {
        status = ga_slabhash_device_see(table);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_teller teller = {};
    teller.news = table->news;
    teller.placed = fills ? table->placed : NULL;
    teller.asked = table->asked;
    table->asked += fills ? (uint32_t)batch->count : 0;
    table->since += fills ? batch->count : 0;
    table->fills += fills ? batch->count : 0;
    table->unseen += fills ? (uint32_t)std::min<uint64_t>(batch->count, GA_SLABHASH_SEEN_EACH) : 0;
    return ga_slabhash_device_sorts(table, batch)
               ? ga_slabhash_device_launch_sorted(table, batch, counts, teller, stream)
               : ga_slabhash_device_launch_one(table, batch, counts, teller, stream);
}

/* The batch in parts, each in a table that has room for what the part may put in, as far as memory
 * goes. What a part has put in says how much of the next is new, and a part is at most 16 times
 * what went before: so a batch of few keys, each many times, does not make a large table. */
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
            uint64_t most = done > least / 16u ? 16u * done : least;
            part.count = part.count < most ? part.count : most;
            status = ga_slabhash_device_recount(table, &census, stream);
            double fresh = last ? (double)(table->taken - before) / (double)last : 1.0;
            uint64_t more = (uint64_t)((double)part.count * (fresh < 1.0 ? fresh : 1.0)) + 1u;
            status = status ? status : ga_slabhash_device_widen(table, &census, more, stream);
            /* Without memory chains become longer, and what finds no slab is FULL. */
            status = status == GA_ERR_MEMORY ? GA_OK : status;
            before = table->taken;
            last = part.count;
        }
        status = status ? status : ga_slabhash_device_launch(table, &part, counts, stream);
        done += part.count;
    }
    return status;
}

#ifdef GA_SLABHASH_GROWING_KINDS
/* The batch, in a table that grows by what it puts in; and what is left of a move behind it. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_turns(ga_slabhash_device *table,
                                                     const ga_slabhash_batch *batch,
                                                     uint64_t *counts, cudaStream_t stream)
{
    ga_kernel_heap arrays =
        {}; /* asked for, so that the heap grows where it cannot under kernels */
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status ? scope.status : ga_heap_kernel_view(table->arrays, &arrays);
    bool puts = batch->ops || batch->op != GA_SLABHASH_SEARCH;
    status = status ? status : ga_slabhash_device_launch(table, batch, counts, stream);
    return status || !puts ? status : ga_slabhash_device_settle(table, stream);
}
#endif

/* FLUSH and clear, as ga_slabhash_flush() and ga_slabhash_clear(): alone, after what is on
 * `stream`. After a flush and until a clear, lanes do not look at 32 bytes first (near_tile.h):
 * whatever is asked reads whole slabs. A flush of a table that grows waits, and moves it to as many
 * buckets as its pairs want, where there is memory for them: there lanes look so again. */
GA_SLABHASH_WHERE_CALLED
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
        table->taken = census.live;
        if (status != GA_ERR_MEMORY) {
            return status;
        }
        status = GA_OK;
    }
    if (status == GA_OK && table->view.ordered) {
        status = ga_slabhash_device_order(table, false, stream);
    }
    return status ? status : ga_slabhash_device_whole<GA_SLABHASH_FLUSH_ALL>(table, &whole, stream);
}

GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_clear(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
#ifdef GA_SLABHASH_GROWING_KINDS
    if (status == GA_OK && table->view.growing) {
        table->taken = 0;
        return ga_slabhash_device_clear_versions(table, stream);
    }
#endif
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(table, &whole, stream);
    table->taken = status ? table->taken : 0;
    table->fills = status ? table->fills : 0;
    return status ? status : ga_slabhash_device_order(table, true, stream);
}

/* All operations of the batch, in no order, after the work that is on `stream`. Its arrays, and
 * `counts`, are of the device's memory. `counts`, NULL or four numbers for the results ABSENT,
 * FOUND, FULL and REFUSED, go up: so many went in as the first two say, and those that are FULL
 * may be tried again. Waits for nothing, but where the heap, or the table, has to grow. The host
 * does not look at `ops`: those that put pairs into a map without `values` are REFUSED.
 *
 * GA_ERR_ARGUMENT  no table, batch or keys; no values where `op` puts pairs into a map; `op` or
 *                  `how` is none: GA_SLABHASH_HOW_COUNT is one where there is GA_SLABHASH_FUNCTION
 * GA_ERR_DEVICE    the launch failed */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run(ga_slabhash_device *table,
                                               const ga_slabhash_batch *batch, uint64_t *counts,
                                               cudaStream_t stream)
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
#ifdef GA_SLABHASH_GROWING_KINDS
    if (table->view.growing) {
        return ga_slabhash_device_run_turns(table, batch, counts, stream);
    }
#endif
    return table->grows ? ga_slabhash_device_run_growing(table, batch, counts, stream)
                        : ga_slabhash_device_launch(table, batch, counts, stream);
}

/* ga_slabhash_run_search_all() and ga_slabhash_run_delete_all() over arrays of the device's, after
 * what is on `stream`; waits for nothing. The values of a key stand together, those of different
 * keys in no order; while others change the table fewer may have been written than `counts` says at
 * first, and it says how many. `totals`, two numbers of the device's, which begin as 0: how many
 * pairs there were, and how many keys were refused.
 *
 * GA_ERR_ARGUMENT  no table, batch, keys or totals; room without values
 * GA_ERR_DEVICE    the launch failed */
GA_SLABHASH_WHERE_CALLED
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
