/* SPDX-License-Identifier: MIT
 *
 * Tables in device memory that grow while kernels run, between kernels: for gpualloc/slabhash.cuh,
 * which includes it where GA_SLABHASH_GROWING_KINDS is defined; docs/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_GROW_HOST_CUH
#define GPUALLOC_SLABHASH_GROW_HOST_CUH

#include "table_host.cuh"

/* End what kernels have begun, after what is on `stream`; waits for nothing. */
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

/* The record as it is once that has been done; waits. */
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

static inline const ga_slabhash_stage *ga_slabhash_host_stage(const ga_slabhash_growing *record,
                                                              uint32_t number)
{
    return record->stages + number % GA_SLABHASH_STAGES;
}

static inline void ga_slabhash_device_at(ga_slabhash_view *view, const ga_slabhash_stage *stage)
{
    view->rows = stage->rows;
    view->buckets = stage->buckets;
    view->stride_most = stage->buckets;
}

/* The array in which all pairs are: for calls that go through them all. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_catch_up(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_growing record;
    if (!table->view.growing) {
        return GA_OK;
    }
    ga_slabhash_device_scope scope(table->device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_record(table, &record, stream);
    if (status == GA_OK && record.now + 1u < record.there) {
        const ga_slabhash_stage *next = ga_slabhash_host_stage(&record, record.now + 1u);
        return ga_fail(GA_ERR_MEMORY,
                       "slabhash: %u of %u buckets that a table moves to found no slabs: expected "
                       "a heap with more, or a table that is cleared",
                       next->buckets - next->opened, next->buckets);
    }
    if (status == GA_OK) {
        ga_slabhash_device_at(&table->view, ga_slabhash_host_stage(&record, record.now));
    }
    return status;
}

/* Alone: the table begins anew with the array that `view` has, after what is on `stream`. */
static inline ga_status ga_slabhash_device_begin_at(ga_slabhash_device *table,
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
    record.arrays = heap;
    record.there = record.making = 1;
    record.least = view.buckets;
    record.kind = table->view.kind | GA_SLABHASH_GROWING;
    record.slabs = table->view.heap;
    record.stages[0].rows = view.rows;
    record.stages[0].buckets = view.buckets;
    record.stages[0].wanted = view.buckets / GA_SLABHASH_WANTS;
    table->view.rows = view.rows;
    table->view.buckets = table->view.stride_most = view.buckets;
    /* Not asynchronous: the record is on this stack. */
    status = status ? status
                    : ga_slabhash_cuda("say where a table begins",
                                       cudaMemcpyAsync(table->view.growing, &record, sizeof record,
                                                       cudaMemcpyHostToDevice, stream));
    return status ? status
                  : ga_slabhash_cuda("wait for a table's record", cudaStreamSynchronize(stream));
}

/* Buckets of a stage that have their slabs: kernels have given back the others, if it is the one that
 * goes back. Where they all have it is gone. */
static inline uint32_t ga_slabhash_host_left(const ga_slabhash_growing *record, uint32_t number)
{
    uint32_t buckets = ga_slabhash_host_stage(record, number)->buckets;
    uint64_t left = (record->back & UINT32_MAX) * GA_SLABHASH_BACK;
    bool goes = record->back >> 32 == number + 1u && left < buckets;
    return goes ? (uint32_t)left : buckets;
}

/* Alone: give back all arrays and their slabs, but that of `keep` where it is one. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop_stages(ga_slabhash_device *table,
                                                       const ga_slabhash_growing *record,
                                                       const uint32_t *keep, cudaStream_t stream)
{
    ga_status status = GA_OK;
    for (uint32_t i = record->gone; i < record->there && status == GA_OK; i++) {
        ga_slabhash_view view = table->view;
        ga_slabhash_device_at(&view, ga_slabhash_host_stage(record, i));
        if (view.rows != keep) {
            view.buckets = ga_slabhash_host_left(record, i);
            status = ga_slabhash_device_drop(table, view, !view.buckets, stream);
        }
    }
    return status;
}

/* Alone: everything out, and the newest array stays. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_clear_stages(ga_slabhash_device *table,
                                                        cudaStream_t stream)
{
    ga_slabhash_growing record;
    ga_slabhash_whole whole = {};
    ga_slabhash_device_scope scope(table->device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_record(table, &record, stream);
    if (status == GA_OK) {
        ga_slabhash_device_at(&table->view, ga_slabhash_host_stage(&record, record.there - 1u));
        status = ga_slabhash_device_drop_stages(table, &record, table->view.rows, stream);
    }
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(table, &whole, stream);
    return status ? status : ga_slabhash_device_begin_at(table, table->view, stream);
}

/* What a table that grows in kernels has become, as of the end of what is on `stream`, for which it
 * waits. */
typedef struct ga_slabhash_growth {
    uint32_t buckets; /* of the array that all pairs are in, or move from */
    uint32_t arrays;  /* that there are, older ones included that have not gone back yet */
    uint32_t refused; /* times that kernels asked for an array and there was no memory */
    uint32_t
        gone; /* older ones that kernels have given back, since a call was alone with the table */
    uint32_t shrunk;    /* arrays of fewer buckets that kernels have made, since then, */
    uint32_t compacted; /* and of as many, without what was deleted */
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
        growth->buckets = ga_slabhash_host_stage(&record, record.now)->buckets;
        growth->arrays = record.there - record.gone;
        growth->refused = record.failed;
        growth->gone = record.gone;
        growth->shrunk = record.shrunk;
        growth->compacted = record.compacted;
    }
    return status;
}

#endif
