/* SPDX-License-Identifier: MIT
 *
 * Memory behind addresses.
 */
#include "vmm_chunks.h"

#include "../platform/libc.h"
#include "../platform/log.h"
#include "vmm_search.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* what %llu takes */

enum {
    PARTS = 4
};

static const uint64_t LEAST_PART = (uint64_t)64 << 20;

/* ---- one chunk --------------------------------------------------------------------------- */

static ga_status say_lost(const ga_vmm_pool *pool, uint64_t size)
{
    ga_log(GA_LOG_WARN, "vmm: device %d: the driver keeps a chunk of %llu bytes: %s",
           pool->space.device, (ull)size, ga_error_text());
    return GA_ERR_DEVICE;
}

/* A handle that cannot be given back would keep the memory for ever. */
static ga_status undo_map(ga_vmm_pool *pool, uintptr_t start, uint64_t size, uint64_t handle)
{
    ga_status status = ga_space_unmap(&pool->space, start, size);
    if (status != GA_OK || ga_space_destroy(&pool->space, handle) != GA_OK) {
        return say_lost(pool, size);
    }
    return ga_fail(GA_ERR_DEVICE, "the driver would not take a chunk's handle back");
}

/* Its handle goes at once: it lives as long as it is mapped. */
static ga_status map(ga_vmm_pool *pool, uintptr_t start, uint64_t size)
{
    uint64_t handle;
    ga_status status = ga_space_create(&pool->space, size, &handle);
    if (status != GA_OK) {
        return status;
    }
    ga_status mapped = ga_space_map(&pool->space, start, size, handle);
    status = ga_space_destroy(&pool->space, handle);
    if (mapped == GA_OK) {
        return status == GA_OK ? GA_OK : undo_map(pool, start, size, handle);
    }
    if (status != GA_OK) {
        say_lost(pool, size);
    }
    return mapped;
}

static void forget(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_vmm_addresses_remove(&pool->addresses, chunk);
    ga_vmm_fence_drop(&pool->fences, chunk->fence);
    ga_libc.free(chunk);
}

static ga_status add(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uint64_t size)
{
    ga_vmm_chunk *chunk = ga_libc.calloc(1, sizeof *chunk);
    if (chunk) {
        *chunk = (ga_vmm_chunk){.base = base, .size = size};
        ga_vmm_list_begin(&chunk->link);
    }
    if (!chunk || !ga_vmm_addresses_put(&pool->addresses, below, chunk)) {
        ga_libc.free(chunk);
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a chunk");
    }
    ga_status status = map(pool, base, size);
    if (status != GA_OK) {
        forget(pool, chunk);
        return status;
    }
    ga_vmm_search_put(pool, chunk);
    chunk->fresh = true;
    pool->held += size;
    return GA_OK;
}

void ga_vmm_chunks_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    if (ga_space_unmap(&pool->space, chunk->base, chunk->size) == GA_OK) {
        pool->held -= chunk->size;
        forget(pool, chunk);
    }
}

/* ---- holes ------------------------------------------------------------------------------- */

/* A large hole gets up to four chunks, so that parts of it may serve others (vmm_search.h). Each
 * costs the driver's time, mostly for giving access, whatever its size. */
static uint64_t part_of(const ga_vmm_pool *pool, uint64_t size)
{
    uint64_t parts = size / LEAST_PART < PARTS ? size / LEAST_PART : PARTS;
    uint64_t part = ga_vmm_pool_up(pool, size / (parts ? parts : 1));
    return part < pool->chunk ? part : pool->chunk;
}

static ga_status fill_hole(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end)
{
    uint64_t most = part_of(pool, end - base);
    ga_status status = GA_OK;
    while (status == GA_OK && base < end) {
        uint64_t size = end - base < most ? end - base : most;
        status = add(pool, below, base, size);
        below = status == GA_OK ? ga_vmm_chunk_after(below) : below;
        base += size;
    }
    return status;
}

static ga_status fill(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end)
{
    ga_status status = GA_OK;
    while (status == GA_OK && base < end) {
        ga_vmm_chunk *next = ga_vmm_chunk_after(below);
        uintptr_t hole_end = next->base < end ? next->base : end;
        if (base < hole_end) {
            status = fill_hole(pool, below, base, hole_end);
        }
        below = next;
        base = ga_vmm_chunk_end(next);
    }
    return status;
}

/* What this call mapped is unmapped, or stays, for others. */
static void settle(ga_vmm_pool *pool, const ga_vmm_chunk *below, uintptr_t end, bool undo)
{
    ga_vmm_chunk *next;
    for (ga_vmm_chunk *c = ga_vmm_chunk_after(below); c->base < end; c = next) {
        next = ga_vmm_chunk_after(c);
        bool fresh = c->fresh;
        c->fresh = false;
        if (fresh && undo) {
            ga_vmm_chunks_unmap(pool, c);
        }
    }
}

static ga_status check_limit(const ga_vmm_pool *pool, uint64_t more)
{
    if (more <= pool->limit && pool->held <= pool->limit - more) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes, and %llu are held", (ull)pool->limit,
                   (ull)pool->held);
}

/* Bytes of [base, end) without memory. */
static uint64_t holes_in(const ga_vmm_chunk *below, uintptr_t base, uintptr_t end)
{
    uint64_t holes = end - base;
    for (const ga_vmm_chunk *c = ga_vmm_chunk_after(below); c->base < end;
         c = ga_vmm_chunk_after(c)) {
        uintptr_t chunk_end = ga_vmm_chunk_end(c) < end ? ga_vmm_chunk_end(c) : end;
        holes -= chunk_end - c->base;
    }
    return holes;
}

ga_status ga_vmm_chunks_fill(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end)
{
    uint64_t more = holes_in(below, base, end);
    if (!more) {
        return GA_OK;
    }
    ga_status status = check_limit(pool, more);
    if (status == GA_OK) {
        status = fill(pool, below, base, end);
        settle(pool, below, end, status != GA_OK);
    }
    pool->growths += status == GA_OK;
    return status;
}

/* ---- the end ----------------------------------------------------------------------------- */

void ga_vmm_chunks_end(ga_vmm_pool *pool)
{
    ga_vmm_link *chunks = &pool->addresses.chunks;
    ga_vmm_link *next;
    for (ga_vmm_link *l = chunks->after; l != chunks; l = next) {
        ga_vmm_chunk *chunk = ga_vmm_chunk_of(l);
        next = l->after;
        if (!chunk->wall) {
            ga_space_unmap(&pool->space, chunk->base, chunk->size);
            pool->held -= chunk->size;
            forget(pool, chunk);
        }
    }
}
