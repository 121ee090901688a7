/* SPDX-License-Identifier: MIT
 *
 * A slab hash over the GPUs of an NCCL communicator: gpualloc/slabhash_sharded.h, with a table of
 * gpualloc/slabhash.cuh on each.
 *
 *     ga_slabhash_sharded *table;
 *     ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32,
 *                                    .buckets = 1 << 24, .path = 16};
 *     ga_slabhash_nccl_open(&table, &options, comm, stream);          on each rank
 *     ga_slabhash_sharded_run(table, &batch, counts, stream);
 *     ga_slabhash_sharded_close(table);
 *
 * Header only, compiled with nvcc as C++17, like gpualloc/slabhash.cuh; link with -lgpualloc. It
 * does not include nccl.h.
 */
#ifndef GPUALLOC_SLABHASH_NCCL_CUH
#define GPUALLOC_SLABHASH_NCCL_CUH

#include <gpualloc/slabhash.cuh>
#include <gpualloc/slabhash_nccl.h>

#include <new>

/* ---- the calls of a ga_shard ----------------------------------------------------------------- */

static inline ga_status ga_slabhash_nccl_run(void *shard, const ga_slabhash_batch *batches,
                                             uint32_t count, uint64_t *counts, void *stream)
{
    return ga_slabhash_device_run_several((ga_slabhash_device *)shard, batches, count, counts,
                                          (cudaStream_t)stream);
}

static inline ga_status ga_slabhash_nccl_run_all(void *shard, const ga_slabhash_all *all,
                                                 bool removes, uint64_t *totals, void *stream)
{
    return ga_slabhash_device_run_all((ga_slabhash_device *)shard, all, removes, totals,
                                      (cudaStream_t)stream);
}

static inline ga_status ga_slabhash_nccl_retrieve(void *shard, void *keys, void *values,
                                                  uint64_t room, uint64_t *count, void *stream)
{
    return ga_slabhash_device_retrieve((ga_slabhash_device *)shard, keys, values, room, count,
                                       (cudaStream_t)stream);
}

static inline ga_status ga_slabhash_nccl_size(void *shard, uint64_t *pairs, void *stream)
{
    ga_slabhash_census census = {};
    ga_status status =
        ga_slabhash_device_count((ga_slabhash_device *)shard, &census, (cudaStream_t)stream);
    *pairs = census.live;
    return status;
}

static inline ga_status ga_slabhash_nccl_clear(void *shard, void *stream)
{
    return ga_slabhash_device_clear((ga_slabhash_device *)shard, (cudaStream_t)stream);
}

static inline ga_status ga_slabhash_nccl_save(void *shard, const char *path, void *stream)
{
    return ga_slabhash_device_save((ga_slabhash_device *)shard, path, (cudaStream_t)stream);
}

static inline ga_status ga_slabhash_nccl_close(void *shard)
{
    ga_slabhash_device *own = (ga_slabhash_device *)shard;
    ga_status status = ga_slabhash_device_close(own);
    delete own;
    return status;
}

/* ---- for the program ------------------------------------------------------------------------- */

/* The table of this rank, for kernels of the program's own and for the calls of
 * gpualloc/slabhash.cuh; it has the keys of which this rank is the owner. */
static inline ga_slabhash_device *ga_slabhash_nccl_table(const ga_slabhash_sharded *table)
{
    return (ga_slabhash_device *)ga_slabhash_sharded_table(table);
}

/* Opens a sharded table on the ranks of `comm`. Collective. `options` as for
 * ga_slabhash_device_open(), the same on all ranks; `buckets` is the number of all shards together.
 * The device of `comm` must be the current one. NULL for `exchange` and `sharded` are the defaults.
 *
 * Errors as of ga_slabhash_device_open(), ga_exchange_nccl() and ga_slabhash_sharded_open() */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_nccl_open(ga_slabhash_sharded **out,
                                              const ga_slabhash_options *options, void *comm,
                                              cudaStream_t stream,
                                              const ga_nccl_options *exchange_options = NULL,
                                              const ga_sharded_options *sharded_options = NULL)
{
    ga_exchange exchange = {};
    *out = NULL;
    if (!options) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no options: expected a pointer");
    }
    ga_slabhash_device *shard = new (std::nothrow) ga_slabhash_device();
    if (!shard) {
        return ga_fail(GA_ERR_MEMORY, "slabhash: no memory for a shard");
    }
    ga_status status = ga_exchange_nccl(&exchange, comm, exchange_options);
    if (status != GA_OK) {
        delete shard;
        return status;
    }
    ga_slabhash_options own = *options;
    own.buckets = options->buckets / exchange.ranks + (options->buckets % exchange.ranks ? 1 : 0);
    status = ga_sharded_seed(&exchange, &own.seed);
    if (status != GA_OK) { /* others may be in that call still */
        exchange.close(exchange.context);
        delete shard;
        return status;
    }
    status = ga_slabhash_device_open(shard, &own, exchange.device, stream);
    if (status == GA_OK && (status = ga_slabhash_device_load(shard)) != GA_OK) {
        (void)ga_slabhash_device_close(shard);
    }
    ga_shard of = {};
    of.shard_size = sizeof of;
    of.table = status ? NULL : shard;
    of.failed = status;
    of.mode = own.mode;
    of.is_multi = own.flags & GA_SLABHASH_MULTI;
    of.a = shard->view.a;
    of.b = shard->view.b;
    of.bytes = own.buckets * UINT64_C(128);
    of.run = ga_slabhash_nccl_run;
    of.run_all = ga_slabhash_nccl_run_all;
    of.retrieve = ga_slabhash_nccl_retrieve;
    of.size = ga_slabhash_nccl_size;
    of.clear = ga_slabhash_nccl_clear;
    of.save = ga_slabhash_nccl_save;
    of.close = ga_slabhash_nccl_close;
    if (status != GA_OK) {
        delete shard;
    }
    return ga_slabhash_sharded_open(out, &exchange, &of, sharded_options);
}

#endif
