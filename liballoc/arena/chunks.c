/* SPDX-License-Identifier: MIT
 *
 * The chunks of an arena: adding, removing and moving them, each with its undo.
 *
 * ga_arena_back            for each new chunk of ga_arena_grow():
 *   ga_space_create        cuMemCreate
 *   ga_arena_attach
 *     ga_space_map         cuMemMap, cuMemSetAccess
 *     append_chunk         in the list of chunks; the caller publishes the size (AA1)
 */
#include "state.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

static uintptr_t address_at(const ga_arena *arena, uint64_t offset)
{
    return arena->base + offset;
}

static bool make_room(ga_arena *arena)
{
    if (arena->chunk_count < arena->chunk_room) {
        return true;
    }
    size_t room = arena->chunk_room ? 2 * arena->chunk_room : 16;
    ga_arena_chunk *chunks = ga_libc.realloc(arena->chunks, room * sizeof *chunks);
    if (!chunks) {
        ga_fail(GA_ERR_MEMORY, "no memory to remember %zu chunks", room);
        return false;
    }
    arena->chunks = chunks;
    arena->chunk_room = room;
    return true;
}

/* There is room for one more. */
static void append_chunk(ga_arena *arena, uint64_t handle, uint64_t size)
{
    uint64_t end = ga_arena_end(arena);
    if (ga_arena_joins_chunks(arena) && arena->chunk_count) {
        arena->chunks[0].size += size;
    } else {
        arena->chunks[arena->chunk_count++] = (ga_arena_chunk){handle, end, size};
    }
}

/* ---- adding ------------------------------------------------------------------------------ */

ga_status ga_arena_attach(ga_arena *arena, uint64_t handle, uint64_t size)
{
    ga_status status = make_room(arena) ? GA_OK : GA_ERR_MEMORY;
    if (status == GA_OK) {
        status = ga_space_map(&arena->space, address_at(arena, ga_arena_end(arena)), size, handle);
    }
    if (status == GA_OK) {
        append_chunk(arena, handle, size);
    }
    return status;
}

static ga_status add_chunk(ga_arena *arena, uint64_t size)
{
    uint64_t handle;
    ga_status status = ga_space_create(&arena->space, size, &handle);
    if (status == GA_OK) {
        status = ga_arena_attach(arena, handle, size);
        if (status != GA_OK) {
            ga_space_drop_chunk(&arena->space, handle, size);
        }
    }
    return status;
}

/* The largest chunk at the start of [start, end): within one range and at most chunk_max. */
static uint64_t chunk_size(const ga_arena *arena, uint64_t start, uint64_t end)
{
    uint64_t size = end - start;
    if (ga_arena_joins_chunks(arena)) {
        return size;
    }
    const ga_arena_range *range = arena->ranges;
    while (start >= range->start + range->size) {
        range++;
    }
    uint64_t room = range->start + range->size - start;
    size = size < room ? size : room;
    return size < arena->chunk_max ? size : arena->chunk_max;
}

ga_status ga_arena_back(ga_arena *arena, uint64_t end)
{
    uint64_t before = ga_arena_end(arena);
    ga_status status = GA_OK;
    while (status == GA_OK && ga_arena_end(arena) < end) {
        status = add_chunk(arena, chunk_size(arena, ga_arena_end(arena), end));
    }
    if (status != GA_OK) {
        ga_arena_cut(arena, before);
    }
    return status;
}

/* ---- peers ------------------------------------------------------------------------------- */

static ga_status add_peer(ga_arena *arena, int peer)
{
    size_t before = arena->space.access_count;
    ga_status status = ga_space_add_peer(&arena->space, peer);
    if (status != GA_OK || arena->space.access_count == before) {
        return status;
    }
    for (size_t i = 0; status == GA_OK && i < arena->chunk_count; i++) {
        const ga_arena_chunk *chunk = &arena->chunks[i];
        status = ga_space_renew_access(&arena->space, address_at(arena, chunk->start), chunk->size);
    }
    if (status != GA_OK) {
        ga_space_drop_peer(&arena->space);
    }
    return status;
}

ga_status ga_arena_add_peer(ga_arena *arena, int peer)
{
    pthread_mutex_lock(&arena->lock);
    ga_status status = add_peer(arena, peer);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* ---- removing ---------------------------------------------------------------------------- */

/* Remove the chunks from `first` on from the list. They are not mapped any more. */
static void destroy_from(ga_arena *arena, size_t first)
{
    ga_arena_drop_exports(arena, first);
    while (arena->chunk_count > first) {
        const ga_arena_chunk *chunk = &arena->chunks[--arena->chunk_count];
        ga_space_drop_chunk(&arena->space, chunk->handle, chunk->size);
    }
}

void ga_arena_discard(ga_arena *arena)
{
    for (size_t i = 0; i < arena->chunk_count && !ga_arena_joins_chunks(arena); i++) {
        const ga_arena_chunk *chunk = &arena->chunks[i];
        ga_space_drop_mapping(&arena->space, address_at(arena, chunk->start), chunk->size);
    }
    destroy_from(arena, 0);
    for (size_t i = 0; i < arena->range_count; i++) {
        const ga_arena_range *range = &arena->ranges[i];
        ga_space_drop_range(&arena->space, address_at(arena, range->start), range->size);
    }
    arena->range_count = 0;
}

/* Undo: map the chunks from `first` on again. If the driver refuses, they are lost. */
static void map_again(ga_arena *arena, size_t first)
{
    for (size_t i = first; i < arena->chunk_count; i++) {
        const ga_arena_chunk *chunk = &arena->chunks[i];
        if (ga_space_map(&arena->space, address_at(arena, chunk->start), chunk->size,
                         chunk->handle) != GA_OK) {
            destroy_from(arena, i);
        }
    }
}

/* From the top, so that the remaining chunks follow the base without gaps at any time. */
ga_status ga_arena_cut(ga_arena *arena, uint64_t end)
{
    size_t first = arena->chunk_count;
    while (first && arena->chunks[first - 1].start + arena->chunks[first - 1].size > end) {
        const ga_arena_chunk *chunk = &arena->chunks[first - 1];
        uint64_t start = chunk->start > end ? chunk->start : end;
        ga_status status = ga_space_unmap(&arena->space, address_at(arena, start),
                                          chunk->start + chunk->size - start);
        if (status != GA_OK) {
            map_again(arena, first);
            return status;
        }
        if (start > chunk->start) { /* part of the host's chunk */
            arena->chunks[first - 1].size = start - chunk->start;
            break;
        }
        first--;
    }
    destroy_from(arena, first);
    return GA_OK;
}

/* ---- moving ------------------------------------------------------------------------------ */

/* Undo: move the chunks from `first` on back from `base`. If the driver refuses, they are lost. */
static void move_back(ga_arena *arena, uintptr_t base, size_t first)
{
    for (size_t i = first; i < arena->chunk_count; i++) {
        const ga_arena_chunk *chunk = &arena->chunks[i];
        if (ga_space_move(&arena->space, base + chunk->start, address_at(arena, chunk->start),
                          chunk->size, chunk->handle) == GA_OK) {
            continue;
        }
        for (size_t lost = i; lost < arena->chunk_count; lost++) {
            chunk = &arena->chunks[lost];
            ga_space_drop_mapping(&arena->space, base + chunk->start, chunk->size);
        }
        destroy_from(arena, i);
    }
}

ga_status ga_arena_move_chunks(ga_arena *arena, uintptr_t base)
{
    for (size_t i = arena->chunk_count; i--;) {
        const ga_arena_chunk *chunk = &arena->chunks[i];
        ga_status status = ga_space_move(&arena->space, address_at(arena, chunk->start),
                                         base + chunk->start, chunk->size, chunk->handle);
        if (status != GA_OK) {
            move_back(arena, base, i + 1);
            return status;
        }
    }
    return GA_OK;
}
