/* SPDX-License-Identifier: MIT
 *
 * Device tables that grow while kernels run: the host's calls between kernels. The functions
 * ga_slabhash_growth_... are the hooks of the host's code for all device tables (hooks.cuh).
 * docs/internals/slabhash-growth.md.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_GROW_HOST_CUH
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_GROW_HOST_CUH

#include "../device/table_host.cuh"
#include "grow_kernel.cuh"

/* Complete the moves that kernels have begun, in stream order. Does not wait. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_settle(ga_slabhash_device *table, cudaStream_t stream)
{
#define GA_SLABHASH_SETTLE_CALL(kind)                                                              \
    ga_slabhash_settle_kernel<kind, false>                                                         \
        <<<table->grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view);                              \
    ga_slabhash_settle_kernel<kind, true>                                                          \
        <<<table->grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view)
    GA_SLABHASH_EACH_GROWING_KIND(table->view.kind, GA_SLABHASH_SETTLE_CALL)
#undef GA_SLABHASH_SETTLE_CALL
    return ga_slabhash_cuda("launch the end of a move", cudaGetLastError());
}

template <uint32_t kind> static inline ga_status ga_slabhash_load_settling()
{
    return ga_slabhash_load_kernels({(const void *)ga_slabhash_settle_kernel<kind, false>,
                                     (const void *)ga_slabhash_settle_kernel<kind, true>});
}

/* ga_slabhash_device_load() of these kernels. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_load(const ga_slabhash_device *table)
{
    ga_status status = GA_OK;
    if (!table->view.growing) {
        return status;
    }
#define GA_SLABHASH_LOAD_CALL(kind) status = ga_slabhash_load_settling<kind>()
    GA_SLABHASH_EACH_GROWING_KIND(table->view.kind, GA_SLABHASH_LOAD_CALL)
#undef GA_SLABHASH_LOAD_CALL
    return status;
}

/* The table's record after that; waits. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_record(ga_slabhash_device *table,
                                                  ga_slabhash_growing *record, cudaStream_t stream)
{
    ga_status status = ga_slabhash_device_settle(table, stream);
    status = status ? status
                    : ga_slabhash_cuda("read how a table has grown",
                                       cudaMemcpyAsync(record, table->view.growing, sizeof *record,
                                                       cudaMemcpyDeviceToHost, stream));
    return status ? status
                  : ga_slabhash_cuda("wait for a table that grows", cudaStreamSynchronize(stream));
}

static inline const ga_slabhash_version *ga_slabhash_host_version(const ga_slabhash_growing *record,
                                                                  uint32_t number)
{
    return record->versions + number % GA_SLABHASH_VERSIONS;
}

static inline void ga_slabhash_device_at(ga_slabhash_view *view, const ga_slabhash_version *version)
{
    view->rows = version->rows;
    view->buckets = version->buckets;
    view->stride_max = version->buckets;
}

/* Point the view at the array that has all pairs, for calls that visit every pair. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_catch_up(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_growing record;
    if (!table->view.growing) {
        return GA_OK;
    }
    ga_slabhash_device_scope scope(table->device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_record(table, &record, stream);
    if (status == GA_OK && record.now + 1u < record.there) {
        const ga_slabhash_version *next = ga_slabhash_host_version(&record, record.now + 1u);
        return ga_fail(GA_ERR_MEMORY,
                       "slabhash: %u of %u buckets that a table moves to found no slabs: expected "
                       "a heap with more, or a table that is cleared",
                       next->buckets - next->opened, next->buckets);
    }
    if (status == GA_OK) {
        ga_slabhash_device_at(&table->view, ga_slabhash_host_version(&record, record.now));
    }
    return status;
}

/* Sets up a table that grows in kernels, without an array. */
static inline ga_status ga_slabhash_growth_open(ga_slabhash_device *table,
                                                const ga_slabhash_plan *plan)
{
    void *record = NULL;
    if (plan->path > 1) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "slabhash: path=%u of a table that grows in kernels: expected 1, or 0",
                       plan->path);
    }
    ga_status status =
        ga_heap_open(&table->arrays, GA_PLACE_KERNEL, table->device, GA_SLABHASH_ARRAYS);
    if (status != GA_OK) {
        table->arrays = table->buckets;
        return status;
    }
    status = ga_alloc(table->buckets, sizeof(ga_slabhash_growing), 0, &record);
    table->view.growing = (ga_slabhash_growing *)record;
    table->view.kind = plan->kind | GA_SLABHASH_GROWING;
    table->view.chained_max = UINT32_MAX; /* limited only by the heap */
    return status;
}

/* Needs exclusive access. The table begins anew with the array of `view`, in stream order. */
static inline ga_status ga_slabhash_growth_set_array(ga_slabhash_device *table,
                                                     ga_slabhash_view view, cudaStream_t stream)
{
    ga_slabhash_growing record = {};
    ga_kernel_heap heap = {};
    ga_status status = ga_heap_kernel_view(table->arrays, &heap);
    if (status == GA_OK && heap.kind != GA_KERNEL_KIND_SIZED) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: arrays from \"%s\": expected a heap of all sizes for kernels",
                         ga_heap_spec(table->arrays));
    }
    record.memory.heap = heap;
    record.there = record.making = 1;
    record.least = view.buckets;
    record.kind = table->view.kind | GA_SLABHASH_GROWING;
    record.slabs = table->view.heap;
    record.versions[0].rows = view.rows;
    record.versions[0].buckets = view.buckets;
    record.versions[0].wanted = view.buckets / GA_SLABHASH_CHAINED_DIV;
    table->view.rows = view.rows;
    table->view.buckets = table->view.stride_max = view.buckets;
    /* Not asynchronous: the record is on this stack. */
    status = status ? status
                    : ga_slabhash_cuda("say where a table begins",
                                       cudaMemcpyAsync(table->view.growing, &record, sizeof record,
                                                       cudaMemcpyHostToDevice, stream));
    return status ? status
                  : ga_slabhash_cuda("wait for a table's record", cudaStreamSynchronize(stream));
}

/* How many buckets of a version still have their slabs. Kernels have freed the others, if it is the
 * version that is being freed. A version whose buckets have all been done is no longer there. */
static inline uint32_t ga_slabhash_host_left(const ga_slabhash_growing *record, uint32_t number)
{
    uint32_t buckets = ga_slabhash_host_version(record, number)->buckets;
    uint64_t left = (record->back & UINT32_MAX) * GA_SLABHASH_BACK;
    bool goes = record->back >> 32 == number + 1u && left < buckets;
    return goes ? (uint32_t)left : buckets;
}

/* Needs exclusive access. Free all arrays and their slabs, except the array `keep` if it is one. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop_versions(ga_slabhash_device *table,
                                                         const ga_slabhash_growing *record,
                                                         const uint32_t *keep, cudaStream_t stream)
{
    ga_status status = GA_OK;
    for (uint32_t i = record->gone; i < record->there && status == GA_OK; i++) {
        ga_slabhash_view view = table->view;
        ga_slabhash_device_at(&view, ga_slabhash_host_version(record, i));
        if (view.rows != keep) {
            view.buckets = ga_slabhash_host_left(record, i);
            status = ga_slabhash_device_drop(table, view, !view.buckets, stream);
        }
    }
    return status;
}

/* Needs exclusive access. From now on the table uses the array of `to`; older ones are freed. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_replace(ga_slabhash_device *table, ga_slabhash_view to,
                                                   cudaStream_t stream)
{
    ga_slabhash_growing record;
    ga_status status = ga_slabhash_device_record(table, &record, stream);
    status = status ? status : ga_slabhash_growth_set_array(table, to, stream);
    return status ? status : ga_slabhash_device_drop_versions(table, &record, NULL, stream);
}

/* Needs exclusive access. Frees all arrays with their slabs, and the record of them. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_close(ga_slabhash_device *table)
{
    ga_slabhash_growing record;
    ga_status status = ga_slabhash_device_record(table, &record, 0);
    status = status ? status : ga_slabhash_device_drop_versions(table, &record, NULL, 0);
    ga_free(table->buckets, table->view.growing);
    return status;
}

/* Needs exclusive access. Remove all pairs; the newest array stays. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_clear(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_growing record;
    ga_slabhash_whole whole = {};
    ga_slabhash_device_scope scope(table->device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_record(table, &record, stream);
    if (status == GA_OK) {
        ga_slabhash_device_at(&table->view, ga_slabhash_host_version(&record, record.there - 1u));
        status = ga_slabhash_device_drop_versions(table, &record, table->view.rows, stream);
    }
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(table, &whole, stream);
    return status ? status : ga_slabhash_growth_set_array(table, table->view, stream);
}

/* Before a batch of any table. Asking for the view lets a heap of arrays grow that cannot grow
 * while kernels run. */
static inline ga_status ga_slabhash_growth_before_batch(ga_slabhash_device *table)
{
    ga_kernel_heap arrays = {};
    if (!table->view.growing) {
        return GA_OK;
    }
    ga_slabhash_device_scope scope(table->device);
    return scope.status ? scope.status : ga_heap_kernel_view(table->arrays, &arrays);
}

/* After the launch: complete the moves that the batch has begun. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_growth_after_batch(ga_slabhash_device *table,
                                                       const ga_slabhash_batch *batch,
                                                       cudaStream_t stream)
{
    if (!table->view.growing || (!batch->ops && batch->op == GA_SLABHASH_SEARCH)) {
        return GA_OK;
    }
    ga_slabhash_device_scope scope(table->device);
    return scope.status ? scope.status : ga_slabhash_device_settle(table, stream);
}

/* The state of a table that grows in kernels, after the work on `stream`, for which the call
 * waits. */
typedef struct ga_slabhash_growth {
    uint32_t buckets;   /* of the array that has all pairs, or from which they move */
    uint32_t arrays;    /* allocated now, older ones that have not been freed yet included */
    uint32_t refused;   /* requests of kernels for an array that found no memory */
    uint32_t gone;      /* older ones that kernels have freed, since a call had exclusive
               * access to the table */
    uint32_t shrunk;    /* arrays of fewer buckets that kernels have made, since then, */
    uint32_t compacted; /* and of equally many, to drop tombstones */
} ga_slabhash_growth;

/* GA_ERR_UNSUPPORTED  a table without GA_SLABHASH_GROW_IN_KERNELS */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_growth(ga_slabhash_device *table,
                                                  ga_slabhash_growth *growth, cudaStream_t stream)
{
    ga_slabhash_growing record;
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !table->view.growing) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: growth of a table that does not grow in kernels: expected one "
                         "with GA_SLABHASH_GROW_IN_KERNELS");
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status ? scope.status : ga_slabhash_device_record(table, &record, stream);
    if (status == GA_OK) {
        growth->buckets = ga_slabhash_host_version(&record, record.now)->buckets;
        growth->arrays = record.there - record.gone;
        growth->refused = record.failed;
        growth->gone = record.gone;
        growth->shrunk = record.shrunk;
        growth->compacted = record.compacted;
    }
    return status;
}

#endif
