/* SPDX-License-Identifier: MIT
 *
 * The memory of a shard in another process of this host, by CUDA's IPC. Included by
 * peers_host.cuh.
 *
 * STRUCTURE  A shard is three blocks: the buckets, the record of the slab heap with all bitmaps and
 *            counts, and the slabs. The owner passes a handle of each, and offsets in the second.
 *            The other process maps the blocks, where addresses differ. So in its copy of the
 *            heap's record the addresses are its own; slabs have numbers, which stay.
 *
 * INVARIANT  The blocks are all that there is: neither table nor heap grows.
 */
#ifndef GPUALLOC_SHARDED_PEERS_PROCESS_CUH
#define GPUALLOC_SHARDED_PEERS_PROCESS_CUH

#include "../slabhash/device/open_host.cuh"

#include <stddef.h>

/* The record that the owner passes. */
typedef struct ga_slabhash_exported {
    cudaIpcMemHandle_t buckets, heap, slabs;
    uint64_t rows_at, free_at; /* in the block of the heap's record */
} ga_slabhash_exported;

/* Where another process's shard is in this one. */
typedef struct ga_slabhash_imported {
    void *buckets, *heap, *slabs; /* NULL: not mapped */
} ga_slabhash_imported;

/* ---- the owner ------------------------------------------------------------------------------- */

static inline ga_status ga_slabhash_export_blocks(const ga_slabhash_device *own,
                                                  const ga_slab_heap *record,
                                                  ga_slabhash_exported *out)
{
    const char *heap = (const char *)own->view.heap;
    out->rows_at = (uint64_t)((const char *)record->rows - heap);
    out->free_at = (uint64_t)((const char *)record->free - heap);
    cudaError_t error = cudaIpcGetMemHandle(&out->buckets, own->view.rows);
    error = error ? error : cudaIpcGetMemHandle(&out->heap, own->view.heap);
    error = error ? error : cudaIpcGetMemHandle(&out->slabs, record->units);
    (void)cudaGetLastError(); /* else it is the next launch's */
    return error
               ? ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: %s: expected slabs from a heap over cuda for kernels of other "
                         "processes, got \"%s\"",
                         cudaGetErrorString(error), ga_heap_spec(own->slabs))
               : GA_OK;
}

/* Once no kernel changes the heap's record any more. */
static inline ga_status ga_slabhash_export(const ga_slabhash_device *own, ga_slabhash_exported *out)
{
    ga_slab_heap record;
    ga_status status =
        ga_slabhash_cuda("read the record of a slab heap",
                         cudaMemcpy(&record, own->view.heap, sizeof record, cudaMemcpyDefault));
    if (status == GA_OK && own->grows) {
        status = ga_fail(GA_ERR_UNSUPPORTED, "slabhash: shards that grow: expected none for "
                                             "kernels of other processes");
    }
    if (status == GA_OK && (record.growth || !record.rows)) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: expected slabs from a heap that does not grow for kernels of "
                         "other processes, as slab:unit=128,addressing=light,capacity=1G/cuda, got "
                         "\"%s\"",
                         ga_heap_spec(own->slabs));
    }
    return status ? status : ga_slabhash_export_blocks(own, &record, out);
}

/* ---- the other process ----------------------------------------------------------------------- */

/* Unmaps what is mapped. No kernel may use it any more. */
static inline ga_status ga_slabhash_unimport(ga_slabhash_imported *from)
{
    cudaError_t error = cudaSuccess;
    for (void *block : {from->buckets, from->heap, from->slabs}) {
        cudaError_t closed = block ? cudaIpcCloseMemHandle(block) : cudaSuccess;
        error = error ? error : closed;
    }
    *from = ga_slabhash_imported{};
    return ga_slabhash_cuda("unmap another process's shard", error);
}

/* Maps the blocks for the current device. */
static inline ga_status ga_slabhash_import(ga_slabhash_imported *out,
                                           const ga_slabhash_exported *from)
{
    const unsigned flags = cudaIpcMemLazyEnablePeerAccess;
    cudaError_t error = cudaIpcOpenMemHandle(&out->buckets, from->buckets, flags);
    error = error ? error : cudaIpcOpenMemHandle(&out->heap, from->heap, flags);
    error = error ? error : cudaIpcOpenMemHandle(&out->slabs, from->slabs, flags);
    if (error != cudaSuccess) {
        (void)ga_slabhash_unimport(out);
        (void)cudaGetLastError(); /* else it is the next launch's */
    }
    return ga_slabhash_cuda("map another process's shard", error);
}

/* Writes this process's addresses into the copy of the heap's record. */
static inline ga_status ga_slabhash_relocate(ga_slab_heap *copy, const ga_slabhash_imported *at,
                                             const ga_slabhash_exported *from, cudaStream_t stream)
{
    struct {
        uint32_t *rows;
        char *units;
    } both = {(uint32_t *)(void *)((char *)at->heap + from->rows_at), (char *)at->slabs};
    uint32_t *counts = (uint32_t *)(void *)((char *)at->heap + from->free_at);
    static_assert(offsetof(ga_slab_heap, units) == offsetof(ga_slab_heap, rows) + sizeof both.rows,
                  "one copy for both");
    cudaError_t error =
        cudaMemcpyAsync(&copy->rows, &both, sizeof both, cudaMemcpyHostToDevice, stream);
    error = error ? error
                  : cudaMemcpyAsync(&copy->free, &counts, sizeof counts, cudaMemcpyHostToDevice,
                                    stream);
    return ga_slabhash_cuda("write the record of another process's heap", error);
}

/* The device of this process that another process named; -1: it is not visible. */
static inline int ga_slabhash_device_of(const cudaUUID_t *identity)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, i) == cudaSuccess &&
            memcmp(&properties.uuid, identity, sizeof *identity) == 0) {
            return i;
        }
    }
    return -1;
}

#endif
