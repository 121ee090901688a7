/* SPDX-License-Identifier: MIT
 *
 * Saves a table in device memory to a file, and loads one. A host table of the same kind, filled
 * with the pairs, reads and writes the file. Included by gpualloc/slabhash.cuh;
 * docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_FILE_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_FILE_HOST_CUH

#include "run_host.cuh"

#include <sys/stat.h>

/* Buffers for pairs on both sides of a copy between device and host. Sets have no values. */
typedef struct ga_slabhash_device_pairs {
    uint64_t count;
    size_t width;        /* bytes of a key; a value has the same */
    void *keys, *values; /* device memory */
    uint8_t *there;      /* host memory: the keys, then the values */
    ga_heap *heap;
} ga_slabhash_device_pairs;

static inline void ga_slabhash_device_pairs_free(ga_slabhash_device_pairs *pairs)
{
    ga_free(pairs->heap, pairs->keys);
    ga_free(pairs->heap, pairs->values);
    free(pairs->there);
}

static inline ga_status ga_slabhash_device_pairs_make(ga_slabhash_device_pairs *pairs,
                                                      const ga_slabhash_device *table,
                                                      uint64_t count)
{
    uint32_t mode = GA_SLABHASH_MODE(table->view.kind);
    *pairs = ga_slabhash_device_pairs{};
    pairs->count = count;
    pairs->width = mode == GA_SLABHASH_MAP64 ? 8 : 4;
    pairs->heap = table->buckets;
    size_t bytes = count * pairs->width;
    ga_status status = GA_OK;
    if (count) {
        status = ga_alloc(pairs->heap, bytes, 0, &pairs->keys);
        status = status || mode == GA_SLABHASH_SET32
                     ? status
                     : ga_alloc(pairs->heap, bytes, 0, &pairs->values);
        pairs->there = (uint8_t *)malloc(2 * bytes);
    }
    return status || !count || pairs->there
               ? status
               : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %llu pairs on the host",
                         (unsigned long long)count);
}

static inline void *ga_slabhash_device_pairs_values(const ga_slabhash_device_pairs *pairs)
{
    return pairs->values ? pairs->there + pairs->count * pairs->width : NULL;
}

/* Copies the buffers to the host or to the device, and waits. */
static inline ga_status ga_slabhash_device_pairs_copy(const ga_slabhash_device_pairs *pairs,
                                                      bool to_host, cudaStream_t stream)
{
    size_t bytes = pairs->count * pairs->width;
    void *values = ga_slabhash_device_pairs_values(pairs);
    cudaMemcpyKind kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    cudaError_t error = cudaSuccess;
    if (pairs->count) {
        error = cudaMemcpyAsync(to_host ? pairs->there : pairs->keys,
                                to_host ? pairs->keys : pairs->there, bytes, kind, stream);
    }
    if (error == cudaSuccess && values) {
        error = cudaMemcpyAsync(to_host ? values : pairs->values, to_host ? pairs->values : values,
                                bytes, kind, stream);
    }
    error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
    return ga_slabhash_cuda("copy pairs", error);
}

/* Opens a host table of the same kind for `pairs` pairs. */
static inline ga_status ga_slabhash_device_open_host_table(ga_slabhash **out,
                                                           const ga_slabhash_device *table,
                                                           uint64_t pairs)
{
    ga_slabhash_options options = {};
    uint64_t buckets = pairs / 5 + 1;
    options.options_size = sizeof options;
    options.mode = (ga_slabhash_mode)GA_SLABHASH_MODE(table->view.kind);
    options.flags = GA_SLABHASH_IS_MULTI(table->view.kind) ? GA_SLABHASH_MULTI : 0;
    options.buckets = buckets < UINT32_C(1) << 31 ? (uint32_t)buckets : UINT32_C(1) << 31;
    options.seed = table->seed; /* files of tables with a fixed seed are then the same */
    return ga_slabhash_open(out, &options);
}

template <typename unused>
static inline ga_status ga_slabhash_device_save(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream)
{
    ga_slabhash_device_pairs pairs = {};
    ga_slabhash *twin = NULL;
    uint64_t count = 0;
    ga_status status = ga_slabhash_device_retrieve(table, NULL, NULL, 0, &count, stream);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = ga_slabhash_device_pairs_make(&pairs, table, count);
    status = status ? status
                    : ga_slabhash_device_retrieve(table, pairs.keys, pairs.values, count, &count,
                                                  stream);
    if (status == GA_OK && count != pairs.count) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: %llu pairs to be saved became %llu meanwhile: expected a table "
                         "that nobody changes",
                         (unsigned long long)pairs.count, (unsigned long long)count);
    }
    status = status ? status : ga_slabhash_device_pairs_copy(&pairs, true, stream);
    status = status ? status : ga_slabhash_device_open_host_table(&twin, table, count);
    if (status == GA_OK && count) {
        ga_slabhash_batch batch = {};
        batch.count = count;
        batch.keys = pairs.there;
        batch.values = ga_slabhash_device_pairs_values(&pairs);
        batch.op = GA_SLABHASH_INSERT;
        status = ga_slabhash_run(twin, &batch, NULL);
    }
    status = status ? status : ga_slabhash_save(twin, path);
    ga_slabhash_close(twin);
    ga_slabhash_device_pairs_free(&pairs);
    return status;
}

/* Size of a regular file; 0 if there is none. A FIFO is not opened, because that would wait. */
static inline uint64_t ga_slabhash_device_file_bytes(const char *path)
{
    struct stat status;
    bool is_file = path && !stat(path, &status) && S_ISREG(status.st_mode);
    return is_file ? (uint64_t)status.st_size : 0;
}

/* Inserts the pairs; in tables of unique keys they replace existing values. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_put_in(ga_slabhash_device *table,
                                                  const ga_slabhash_device_pairs *pairs,
                                                  cudaStream_t stream)
{
    uint64_t counts[GA_SLABHASH_REFUSED + 1] = {};
    ga_slabhash_batch batch = {};
    batch.count = pairs->count;
    batch.keys = pairs->keys;
    batch.values = pairs->values;
    batch.op = GA_SLABHASH_IS_MULTI(table->view.kind) ? GA_SLABHASH_INSERT : GA_SLABHASH_REPLACE;
    ga_status status =
        ga_slabhash_cuda("begin to load", cudaMemsetAsync(table->loaded, 0, sizeof counts, stream));
    status = status ? status : ga_slabhash_device_run(table, &batch, table->loaded, stream);
    status = status ? status
                    : ga_slabhash_cuda("read how many were loaded",
                                       cudaMemcpyAsync(counts, table->loaded, sizeof counts,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status : ga_slabhash_cuda("wait for a load", cudaStreamSynchronize(stream));
    uint64_t went = counts[GA_SLABHASH_ABSENT] + counts[GA_SLABHASH_FOUND];
    return status || went == pairs->count
               ? status
               : ga_fail(GA_ERR_MEMORY,
                         "slabhash: %llu of %llu pairs were loaded: expected slabs for all",
                         (unsigned long long)went, (unsigned long long)pairs->count);
}

template <typename unused>
static inline ga_status ga_slabhash_device_load(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream)
{
    ga_slabhash_device_pairs pairs = {};
    ga_slabhash *twin = NULL;
    uint64_t count = 0;
    ga_status status = ga_slabhash_device_check(table);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status ? scope.status
                          : ga_slabhash_device_open_host_table(
                                &twin, table, ga_slabhash_device_file_bytes(path) / 4);
    status = status ? status : ga_slabhash_load(twin, path);
    status = status ? status : ga_slabhash_size(twin, &count);
    if (status == GA_OK) {
        status = ga_slabhash_device_pairs_make(&pairs, table, count);
        status = status || !count
                     ? status
                     : ga_slabhash_retrieve(twin, pairs.there,
                                            ga_slabhash_device_pairs_values(&pairs), count, &count);
        status = status ? status : ga_slabhash_device_pairs_copy(&pairs, false, stream);
        status = status || !count ? status : ga_slabhash_device_put_in(table, &pairs, stream);
        ga_slabhash_device_pairs_free(&pairs);
    }
    ga_slabhash_close(twin);
    return status;
}

#endif
