/* SPDX-License-Identifier: MIT
 *
 * Device tables that grow between calls: how many buckets they need, and the move to another array.
 * Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_RESIZE_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_RESIZE_HOST_CUH

#include "open_host.cuh"

/* Launch the move to another array, and wait for it. `left`: pairs for which there was no slab. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_move(ga_slabhash_device *table, ga_slabhash_view to,
                                                uint64_t *left, cudaStream_t stream)
{
    int grid = ga_slabhash_device_grid(table, table->view.buckets);
    ga_status status = ga_slabhash_cuda(
        "begin to move", cudaMemsetAsync(table->scratch, 0, sizeof *table->scratch, stream));
    if (status != GA_OK) {
        return status;
    }
#define GA_SLABHASH_MOVE_CALL(kind)                                                                \
    ga_slabhash_move_kernel<kind>                                                                  \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, to, table->scratch)
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_MOVE_CALL)
#undef GA_SLABHASH_MOVE_CALL
    status = ga_slabhash_cuda("launch a move", cudaGetLastError());
    status = status ? status
                    : ga_slabhash_cuda("read what a move left",
                                       cudaMemcpyAsync(left, table->scratch, sizeof *left,
                                                       cudaMemcpyDeviceToHost, stream));
    return status ? status : ga_slabhash_cuda("wait for a move", cudaStreamSynchronize(stream));
}

/* Needs exclusive access. From now on the table uses the array of `to`; older arrays, `from` the
 * last of them, are freed. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_replace(ga_slabhash_device *table, ga_slabhash_view from,
                                                   ga_slabhash_view to, bool bare,
                                                   cudaStream_t stream)
{
    if (GA_SLABHASH_IS_GROWING(table->view.kind)) {
        return ga_slabhash_growth_replace(table, to, stream);
    }
    ga_status status = ga_slabhash_device_set_array(table, to, stream);
    return status ? status : ga_slabhash_device_drop(table, from, bare, stream);
}

/* Move to `buckets` buckets, and drop tombstones. `bare`: no slabs are chained. On failure the
 * table is as it was. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_resize(ga_slabhash_device *table, uint32_t buckets,
                                                  bool bare, cudaStream_t stream)
{
    uint64_t left = 0;
    ga_status status = ga_slabhash_device_refresh_heap(table);
    ga_slabhash_view from = table->view, to = table->view;
    status = status ? status : ga_slabhash_device_alloc_buckets(table, buckets, &to, stream);
    if (status != GA_OK) {
        return status;
    }
    to.kind &= ~GA_SLABHASH_GROWING; /* the target does not grow during the move */
    status = ga_slabhash_device_move(table, to, &left, stream);
    if (status == GA_OK && left) {
        status = ga_fail(GA_ERR_MEMORY,
                         "slabhash: no slabs for %llu pairs that move to %u buckets: expected a "
                         "heap with more",
                         (unsigned long long)left, buckets);
    }
    if (status != GA_OK) {
        (void)ga_slabhash_device_drop(table, to, false, stream);
        return status;
    }
    to.kind = from.kind;
    return ga_slabhash_device_replace(table, from, to, bare, stream);
}

/* How many buckets the pairs need, so that `fill` percent of the slots are in use. */
static inline uint32_t ga_slabhash_device_buckets(const ga_slabhash_device *table, uint64_t pairs,
                                                  uint32_t fill)
{
    uint64_t slots = ga_slabhash_slots_per_slab(table->view.kind);
    uint64_t buckets = pairs / slots * 100u / fill + 1u;
    buckets = buckets > table->least ? buckets : table->least;
    return buckets < (UINT64_C(1) << 31) ? (uint32_t)buckets : UINT32_C(1) << 31;
}

/* An upper bound of the slots in use, besides those that kernels have filled by themselves: the
 * last count, plus the pairs that batches have reported since, plus the requests that came after
 * that. */
static inline uint64_t ga_slabhash_device_taken_max(const ga_slabhash_device *table)
{
    if (!table->filled) {
        return table->slots_taken;
    }
    uint64_t progress =
        __atomic_load_n(&table->progress->filled, __ATOMIC_RELAXED); /* relaxed: see there */
    uint32_t asked = table->requests_total - (uint32_t)(progress >> 32);
    return table->slots_taken + ((uint32_t)progress - table->filled_at_count) + asked;
}

/* How many more pairs fit before the buckets are too full. */
static inline uint64_t ga_slabhash_device_spare(const ga_slabhash_device *table)
{
    uint64_t slots = ga_slabhash_slots_per_slab(table->view.kind);
    uint64_t capacity = (uint64_t)table->view.buckets * slots * GA_SLABHASH_FULL_AT / 100u;
    uint64_t taken = ga_slabhash_device_taken_max(table);
    /* the counters have 32 bits */
    return capacity > taken && table->requests_since_count < UINT64_C(1) << 31 ? capacity - taken
                                                                               : 0;
}

/* Count the slots in use again; waits. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_recount(ga_slabhash_device *table,
                                                   ga_slabhash_census *census, cudaStream_t stream)
{
    ga_status status = GA_OK;
    if (table->filled) {
        status = ga_slabhash_cuda("read how many were put in",
                                  cudaMemcpyAsync(&table->progress->read, table->filled,
                                                  sizeof *table->filled, cudaMemcpyDeviceToHost,
                                                  stream));
    }
    status = status ? status : ga_slabhash_device_count(table, census, stream);
    if (status == GA_OK) {
        table->slots_taken = census->live + census->deleted;
        table->filled_at_count = table->progress->read;
        table->requests_since_count = 0;
        table->progress->filled = (uint64_t)table->requests_total << 32 | table->progress->read;
    }
    return status;
}

/* Make room for `more` pairs besides the live ones of a count. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_widen(ga_slabhash_device *table,
                                                 const ga_slabhash_census *census, uint64_t more,
                                                 cudaStream_t stream)
{
    if (more <= ga_slabhash_device_spare(table)) {
        return GA_OK;
    }
    bool small = more < census->live; /* expect more batches like this one */
    uint32_t buckets = ga_slabhash_device_buckets(
        table, census->live + more, small ? GA_SLABHASH_FILL_LESS : GA_SLABHASH_FILL_TO);
    ga_status status = ga_slabhash_device_resize(table, buckets, census->chained == 0, stream);
    table->slots_taken = status ? table->slots_taken : census->live;
    return status;
}

template <typename unused>
static inline ga_status ga_slabhash_device_reserve(ga_slabhash_device *table, uint64_t pairs,
                                                   cudaStream_t stream)
{
    ga_slabhash_census census = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !table->grows) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: room for %llu pairs in a table of %u buckets for good: "
                         "expected one with GA_SLABHASH_GROW",
                         (unsigned long long)pairs, table->view.buckets);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status ? scope.status : ga_slabhash_device_recount(table, &census, stream);
    uint64_t more = pairs > census.live ? pairs - census.live : 0;
    return status ? status : ga_slabhash_device_widen(table, &census, more, stream);
}

#endif
