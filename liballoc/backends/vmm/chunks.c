/* SPDX-License-Identifier: MIT
 *
 * Mapping, unmapping and detaching chunks.
 *
 * ga_vmm_chunks_fill
 *   fill -> fill_hole -> fill_with_chunk   for each hole, one to four chunks:
 *     take_detached                        memory of an evicted chunk that fits, or
 *     create_chunk                         cuMemCreate
 *     map_chunk                            cuMemMap, cuMemSetAccess; then in tree and lists
 *   finish_fill                            keep the new chunks, or undo after a failure
 */
#include "chunks.h"

#include "../../platform/libc.h"
#include "search.h"
#include "tree.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* the type of %llu */

enum {
    CHUNKS_PER_HOLE_MAX = 4,
    /* With more chunks than this the host saves kernel mappings: a chunk may take two of them. */
    CHUNKS_MANY = 16384
};

static const uint64_t CHUNK_BYTES_MIN = (uint64_t)64 << 20;

/* ---- one chunk --------------------------------------------------------------------------- */

/* Release the memory of a chunk without addresses and free its record. If the driver refuses, the
 * chunk stays detached. */
static void release_chunk(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    if (ga_space_destroy(&pool->space, chunk->handle) == GA_OK) {
        pool->held -= chunk->size;
        ga_libc.free(chunk);
        return;
    }
    ga_vmm_list_append(&pool->detached, &chunk->link);
    pool->detached_bytes += chunk->size;
}

/* Remove the chunk from all structures. It has no mapping any more, and no stream uses it. */
static void remove_chunk(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_vmm_tree_remove(pool, chunk);
    ga_vmm_addresses_remove(&pool->addresses, chunk);
    ga_vmm_fence_drop(&pool->fences, chunk->fence, chunk->size);
    ga_vmm_list_remove(&chunk->age);
    chunk->fence = NULL;
    chunk->position = chunk->matched = 0;
}

/* A chunk with memory and without addresses. */
static ga_status create_chunk(ga_vmm_pool *pool, uint64_t size, ga_vmm_chunk **out)
{
    ga_vmm_chunk *chunk = ga_libc.calloc(1, sizeof *chunk);
    if (!chunk) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a chunk");
    }
    chunk->size = size;
    ga_vmm_list_init(&chunk->link);
    ga_vmm_list_init(&chunk->age);
    ga_status status = ga_space_create(&pool->space, size, &chunk->handle);
    if (status != GA_OK) {
        ga_libc.free(chunk);
        return status;
    }
    pool->held += size;
    *out = chunk;
    return GA_OK;
}

/* A detached chunk of at most `size_max` bytes, or NULL. */
static ga_vmm_chunk *take_detached(ga_vmm_pool *pool, uint64_t size_max)
{
    for (ga_vmm_link *l = pool->detached.after; l != &pool->detached; l = l->after) {
        ga_vmm_chunk *chunk = ga_vmm_chunk_of(l);
        if (chunk->size <= size_max) {
            ga_vmm_list_remove(l);
            pool->detached_bytes -= chunk->size;
            return chunk;
        }
    }
    return NULL;
}

/* Map the chunk at its base. */
static ga_status map_chunk(ga_vmm_pool *pool, ga_vmm_chunk *below, ga_vmm_chunk *chunk)
{
    if (!ga_vmm_addresses_insert(&pool->addresses, below, chunk)) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a chunk");
    }
    ga_status status = ga_space_map(&pool->space, chunk->base, chunk->size, chunk->handle);
    if (status != GA_OK) {
        remove_chunk(pool, chunk);
        return status;
    }
    chunk->idle_since = pool->now;
    ga_vmm_list_append(&pool->free_by_age, &chunk->age);
    ga_vmm_tree_insert(pool, chunk);
    chunk->fresh = true;
    return GA_OK;
}

/* Map one chunk at the hole's base: a detached one that fits, or a new one of `size` bytes. */
static ga_status fill_with_chunk(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base,
                                 uint64_t hole, uint64_t size)
{
    ga_vmm_chunk *chunk = pool->whole ? NULL : take_detached(pool, hole);
    ga_status status = chunk ? GA_OK : create_chunk(pool, size, &chunk);
    if (status != GA_OK) {
        return status;
    }
    chunk->base = base;
    status = map_chunk(pool, below, chunk);
    if (status != GA_OK) {
        release_chunk(pool, chunk);
    }
    return status;
}

static bool unmap_chunk(ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    pool->space.saves_mappings = pool->addresses.count > CHUNKS_MANY;
    return ga_space_unmap(&pool->space, chunk->base, chunk->size) == GA_OK;
}

void ga_vmm_chunks_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    if (unmap_chunk(pool, chunk)) {
        remove_chunk(pool, chunk);
        release_chunk(pool, chunk);
    }
}

void ga_vmm_chunks_detach(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    if (unmap_chunk(pool, chunk)) {
        remove_chunk(pool, chunk);
        ga_vmm_list_append(&pool->detached, &chunk->link);
        pool->detached_bytes += chunk->size;
    }
}

void ga_vmm_chunks_release_detached(ga_vmm_pool *pool)
{
    const ga_vmm_link *last = pool->detached.before;
    while (!ga_vmm_list_empty(&pool->detached)) {
        ga_vmm_chunk *chunk = take_detached(pool, UINT64_MAX);
        bool is_last = &chunk->link == last;
        release_chunk(pool, chunk);
        if (is_last) {
            break;
        }
    }
}

void ga_vmm_chunks_split(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uintptr_t at)
{
    if (pool->space.device >= 0 || at <= chunk->base || at >= ga_vmm_chunk_end(chunk)) {
        return;
    }
    ga_vmm_chunk *rest = ga_libc.calloc(1, sizeof *rest);
    if (!rest) {
        return;
    }
    *rest = *chunk;
    rest->base = at;
    rest->size = ga_vmm_chunk_end(chunk) - at;
    rest->position = rest->matched = 0;
    rest->node = (ga_vmm_node){0};
    ga_vmm_list_init(&rest->link);
    ga_vmm_list_init(&rest->age);
    if (!ga_vmm_addresses_split(&pool->addresses, chunk, rest)) {
        ga_libc.free(rest);
        return;
    }
    ga_vmm_tree_insert(pool, rest);
    ga_vmm_tree_mark_stale(pool, chunk);
}

/* ---- holes ------------------------------------------------------------------------------- */

/* A large hole gets up to four chunks, so that parts of it can serve other requests later
 * (search.h). Driver time per chunk hardly depends on its size: it goes mostly into
 * cuMemSetAccess. */
static uint64_t chunk_size_for(const ga_vmm_pool *pool, uint64_t hole)
{
    uint64_t count =
        hole / CHUNK_BYTES_MIN < CHUNKS_PER_HOLE_MAX ? hole / CHUNK_BYTES_MIN : CHUNKS_PER_HOLE_MAX;
    uint64_t size = ga_vmm_pool_round_up(pool, hole / (count ? count : 1));
    if (pool->whole) {
        return hole;
    }
    return size < pool->chunk ? size : pool->chunk;
}

static ga_status fill_hole(ga_vmm_pool *pool, ga_vmm_chunk *below, uintptr_t base, uintptr_t end)
{
    uint64_t size_max = chunk_size_for(pool, end - base);
    ga_status status = GA_OK;
    while (status == GA_OK && base < end) {
        uint64_t size = end - base < size_max ? end - base : size_max;
        status = fill_with_chunk(pool, below, base, end - base, size);
        below = status == GA_OK ? ga_vmm_chunk_after(below) : below;
        base = status == GA_OK ? ga_vmm_chunk_end(below) : base;
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

/* The chunks that this call mapped become ordinary free chunks, or with `undo` are unmapped. */
static void finish_fill(ga_vmm_pool *pool, const ga_vmm_chunk *below, uintptr_t end, bool undo)
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
    if (more <= pool->limit && pool->held - pool->detached_bytes <= pool->limit - more) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes, and %llu are held", (ull)pool->limit,
                   (ull)pool->held);
}

/* Bytes of [base, end) that are not mapped. */
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
        finish_fill(pool, below, end, status != GA_OK);
    }
    pool->growths += status == GA_OK;
    return status;
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Closing: leave to the driver a chunk that it refuses to release. */
static void abandon_detached(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_space_drop_chunk(&pool->space, chunk->handle, chunk->size);
    pool->held -= chunk->size;
    ga_libc.free(chunk);
}

ga_status ga_vmm_chunks_allow(ga_vmm_pool *pool, int peer)
{
    const ga_vmm_link *chunks = &pool->addresses.chunks;
    size_t before = pool->space.access_count;
    ga_status status = ga_space_add_peer(&pool->space, peer);
    if (status != GA_OK || pool->space.access_count == before) {
        return status;
    }
    for (const ga_vmm_link *l = chunks->after; status == GA_OK && l != chunks; l = l->after) {
        const ga_vmm_chunk *chunk = ga_vmm_chunk_of(l);
        status =
            chunk->wall ? GA_OK : ga_space_renew_access(&pool->space, chunk->base, chunk->size);
    }
    if (status != GA_OK) {
        ga_space_drop_peer(&pool->space);
    }
    return status;
}

void ga_vmm_chunks_end(ga_vmm_pool *pool)
{
    ga_vmm_link *chunks = &pool->addresses.chunks;
    ga_vmm_link *next;
    for (ga_vmm_link *l = chunks->after; l != chunks; l = next) {
        ga_vmm_chunk *chunk = ga_vmm_chunk_of(l);
        next = l->after;
        if (!chunk->wall) {
            ga_space_drop_mapping(&pool->space, chunk->base, chunk->size);
            remove_chunk(pool, chunk);
            release_chunk(pool, chunk);
        }
    }
    for (ga_vmm_chunk *c; (c = take_detached(pool, UINT64_MAX)) != NULL;) {
        abandon_detached(pool, c);
    }
}
