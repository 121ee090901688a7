/* SPDX-License-Identifier: MIT
 *
 * Memory behind addresses.
 */
#include "vmm_run.h"

#include "../platform/libc.h"
#include "../platform/log.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* what %llu takes */

static const uint64_t ROOMY = (uint64_t)1 << 30; /* from there on runs have room to grow */
static const uint64_t LEAST_CUT = (uint64_t)32 << 20;

/* ---- memory ------------------------------------------------------------------------------ */

static ga_status say_lost(const ga_vmm_pool *pool, uint64_t size)
{
    ga_log(GA_LOG_WARN, "vmm: device %d: the driver keeps a chunk of %llu bytes: %s",
           pool->space.device, (ull)size, ga_error_text());
    return GA_ERR_DEVICE;
}

/* A handle that cannot be given back would keep the memory for ever. */
static ga_status undo_map(ga_vmm_pool *pool, uintptr_t start, uint64_t size, uint64_t chunk)
{
    ga_status status = ga_space_unmap(&pool->space, start, size);
    if (status != GA_OK || ga_space_destroy(&pool->space, chunk) != GA_OK) {
        return say_lost(pool, size);
    }
    return ga_fail(GA_ERR_DEVICE, "the driver would not take a chunk's handle back");
}

/* One chunk, whose handle goes at once: it lives as long as it is mapped. */
static ga_status map_chunk(ga_vmm_pool *pool, uintptr_t start, uint64_t size)
{
    uint64_t chunk;
    ga_status status = ga_space_create(&pool->space, size, &chunk);
    if (status != GA_OK) {
        return status;
    }
    ga_status mapped = ga_space_map(&pool->space, start, size, chunk);
    status = ga_space_destroy(&pool->space, chunk);
    if (mapped == GA_OK) {
        return status == GA_OK ? GA_OK : undo_map(pool, start, size, chunk);
    }
    if (status != GA_OK) {
        say_lost(pool, size);
    }
    return mapped;
}

/* A run is of up to four chunks, so that parts of it may serve others (vmm_compose.h). Each costs
 * the driver's time, mostly for giving access, whatever its size. */
static uint64_t chunk_for(const ga_vmm_pool *pool, uint64_t size)
{
    uint64_t quarter = ga_vmm_pool_up(pool, size / 4);
    uint64_t chunk = quarter > LEAST_CUT ? quarter : ga_vmm_pool_up(pool, LEAST_CUT);
    return chunk < pool->chunk ? chunk : pool->chunk;
}

/* Memory from the run's end to `size`, all or none, as far as the driver undoes it. */
static ga_status back(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    uint64_t before = run->size;
    uint64_t most = chunk_for(pool, size - before);
    ga_status status = GA_OK;
    while (status == GA_OK && run->size < size) {
        uint64_t left = size - run->size;
        uint64_t chunk = left < most ? left : most;
        status = map_chunk(pool, run->base + run->size, chunk);
        ga_vmm_addresses_mark(&pool->addresses, run->base + run->size, chunk);
        run->size += status == GA_OK ? chunk : 0;
    }
    bool undo = status != GA_OK && run->size > before;
    if (undo && ga_space_unmap(&pool->space, run->base + before, run->size - before) == GA_OK) {
        run->size = before;
    }
    pool->held += run->size - before;
    pool->growths += status == GA_OK;
    return status;
}

/* ---- making ------------------------------------------------------------------------------ */

static ga_status take_addresses(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size, uint64_t align)
{
    run->room = size >= ROOMY ? 2 * size : size;
    ga_status status = ga_vmm_addresses_take(&pool->addresses, run->room, align, &run->base);
    if (status != GA_OK && run->room > size) {
        run->room = size;
        status = ga_vmm_addresses_take(&pool->addresses, size, align, &run->base);
    }
    if (status == GA_OK && !ga_vmm_addresses_note(&pool->addresses, run->base, size, run)) {
        ga_vmm_addresses_give(&pool->addresses, run->base, run->room);
        status = ga_fail(GA_ERR_MEMORY, "no memory to note whose addresses they are");
    }
    return status;
}

static void give_addresses(ga_vmm_pool *pool, const ga_vmm_run *run)
{
    ga_vmm_addresses_note(&pool->addresses, run->base, run->room, NULL);
    ga_vmm_addresses_give(&pool->addresses, run->base, run->room);
}

static ga_status check_limit(const ga_vmm_pool *pool, uint64_t more)
{
    if (more <= pool->limit && pool->held <= pool->limit - more) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes, and %llu are held", (ull)pool->limit,
                   (ull)pool->held);
}

static ga_status make(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size, uint64_t align)
{
    ga_status status = take_addresses(pool, run, size, align);
    if (status != GA_OK) {
        return status;
    }
    status = back(pool, run, size);
    if (status != GA_OK && !run->size) {
        give_addresses(pool, run);
    }
    return status;
}

ga_status ga_vmm_run_make(ga_vmm_pool *pool, uint64_t size, uint64_t align, ga_vmm_run **out)
{
    *out = NULL;
    ga_status status = check_limit(pool, size);
    if (status != GA_OK) {
        return status;
    }
    ga_vmm_run *run = ga_libc.calloc(1, sizeof *run);
    if (!run) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a block");
    }
    ga_vmm_list_begin(&run->link);
    ga_vmm_list_begin(&run->bucket);
    status = make(pool, run, size, align);
    if (status != GA_OK && !run->size) {
        ga_libc.free(run);
        return status;
    }
    *out = run;
    return status;
}

/* ---- growing ----------------------------------------------------------------------------- */

static bool has_addresses(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    if (size <= run->room) {
        return true;
    }
    bool had =
        ga_vmm_addresses_take_behind(&pool->addresses, run->base + run->room, size - run->room);
    run->room = had ? size : run->room;
    return had;
}

ga_status ga_vmm_run_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    uint64_t before = run->size;
    ga_status status = check_limit(pool, size - before);
    if (status != GA_OK) {
        return status;
    }
    if (!has_addresses(pool, run, size)) {
        return ga_fail(GA_ERR_NO_ROOM, "the addresses behind its %llu bytes are not free",
                       (ull)run->room);
    }
    if (!ga_vmm_addresses_note(&pool->addresses, run->base + before, size - before, run)) {
        return ga_fail(GA_ERR_MEMORY, "no memory to note whose addresses they are");
    }
    return back(pool, run, size);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void forget(ga_vmm_pool *pool, ga_vmm_run *run)
{
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_remove(&run->bucket);
    ga_vmm_fence_drop(&pool->fences, run->fence);
    pool->held -= run->size;
    ga_libc.free(run);
}

void ga_vmm_run_end(ga_vmm_pool *pool, ga_vmm_run *run)
{
    if (ga_space_unmap(&pool->space, run->base, run->size) == GA_OK) {
        give_addresses(pool, run);
        forget(pool, run);
    }
}

void ga_vmm_run_end_all(ga_vmm_pool *pool, ga_vmm_link *list)
{
    while (!ga_vmm_list_empty(list)) {
        ga_vmm_run *run = ga_vmm_run_of(list->after);
        ga_space_unmap(&pool->space, run->base, run->size);
        forget(pool, run);
    }
}
