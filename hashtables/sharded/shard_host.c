/* SPDX-License-Identifier: MIT
 *
 * A table of host threads as a shard.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include <string.h>

/* Requests that were not carried out have a result that says so: the shard has not failed. */
static ga_status run_one(ga_slabhash *table, const ga_slabhash_batch *batch, uint64_t *counts)
{
    if (batch->results) { /* it may not begin */
        memset(batch->results, GA_SLABHASH_FULL, batch->count);
    }
    ga_status status = ga_slabhash_run(table, batch, NULL);
    if (counts && status == GA_ERR_MEMORY) {
        counts[GA_SLABHASH_FULL]++;
    }
    return status == GA_ERR_MEMORY || status == GA_ERR_ARGUMENT ? GA_OK : status;
}

static ga_status run(void *table, const ga_slabhash_batch *batches, uint32_t count,
                     uint64_t *counts, void *stream)
{
    ga_status status = GA_OK;
    (void)stream;
    for (uint32_t i = 0; status == GA_OK && i < count; i++) {
        status = run_one(table, batches + i, counts);
    }
    return status;
}

static ga_status run_all(void *table, const ga_slabhash_all *all, bool removes, uint64_t *totals,
                         void *stream)
{
    uint64_t total = 0;
    (void)stream;
    ga_status status = removes ? ga_slabhash_run_delete_all(table, all, &total)
                               : ga_slabhash_run_search_all(table, all, &total);
    totals[0] += total;
    return status == GA_ERR_ARGUMENT ? GA_OK : status; /* reserved keys */
}

static ga_status retrieve(void *table, void *keys, void *values, uint64_t room, uint64_t *count,
                          void *stream)
{
    (void)stream;
    return ga_slabhash_retrieve(table, keys, values, room, count);
}

static ga_status size(void *table, uint64_t *pairs, void *stream)
{
    (void)stream;
    return ga_slabhash_size(table, pairs);
}

static ga_status clear(void *table, void *stream)
{
    (void)stream;
    return ga_slabhash_clear(table);
}

static ga_status save(void *table, const char *path, void *stream)
{
    (void)stream;
    return ga_slabhash_save(table, path);
}

static ga_status close_table(void *table)
{
    return ga_slabhash_close(table);
}

static ga_status open_shard(ga_shard *shard, ga_slabhash_options *options)
{
    ga_slabhash_plan plan;
    ga_slabhash_options fixed = *options; /* the hash does not depend on growth */
    ga_slabhash *table;
    fixed.flags &= ~(uint32_t)GA_SLABHASH_GROW;
    ga_status status = ga_slabhash_plan_of(&fixed, &plan);
    status = status ? status : ga_slabhash_open(&table, options);
    if (status == GA_OK) {
        shard->table = table;
        shard->a = plan.a;
        shard->b = plan.b;
    }
    return status;
}

ga_status ga_slabhash_sharded_open_host(ga_slabhash_sharded **out, const ga_exchange *exchange,
                                        const ga_slabhash_options *options,
                                        const ga_sharded_options *sharded)
{
    static const ga_slabhash_options defaults = {.options_size = sizeof defaults};
    options = options ? options : &defaults;
    ga_slabhash_options own = *options;
    ga_shard shard = {.shard_size = sizeof shard,
                      .mode = options->mode,
                      .is_multi = options->flags & GA_SLABHASH_MULTI,
                      .run = run,
                      .run_all = run_all,
                      .retrieve = retrieve,
                      .size = size,
                      .clear = clear,
                      .save = save,
                      .close = close_table};
    *out = NULL;
    ga_status status = ga_sharded_seed(exchange, &own.seed);
    if (status != GA_OK) {
        exchange->close(exchange->context);
        return status;
    }
    own.buckets = options->buckets / exchange->ranks + (options->buckets % exchange->ranks != 0);
    shard.failed = open_shard(&shard, &own);
    return ga_slabhash_sharded_open(out, exchange, &shard, sharded);
}
