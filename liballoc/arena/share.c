/* SPDX-License-Identifier: MIT
 *
 * Exporting chunks to other processes, and importing chunks from them.
 */
#include "sharing.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* the type of %llu */

static ga_status check_shared(const ga_arena *arena)
{
    return arena->space.flags & (GA_ARENA_SHARE_FD | GA_ARENA_SHARE_FABRIC)
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED, "arena: it was made without GA_ARENA_SHARE_FD and "
                                             "GA_ARENA_SHARE_FABRIC");
}

static ga_status export_chunk(ga_arena *arena, uint64_t index, ga_arena_share *out)
{
    ga_status status = check_shared(arena);
    if (status != GA_OK) {
        return status;
    }
    if (index >= arena->chunk_count) {
        return ga_fail(GA_ERR_ARGUMENT, "arena: no chunk %llu: there are %zu, counted from 0",
                       (ull)index, arena->chunk_count);
    }
    const ga_arena_chunk *chunk = &arena->chunks[index];
    *out = (ga_arena_share){.offset = chunk->start, .size = chunk->size, .fd = -1};
    return ga_arena_prefix_error(ga_space_export(&arena->space, chunk->handle, out));
}

ga_status ga_arena_export(ga_arena *arena, uint64_t index, ga_arena_share *out)
{
    if (!arena || !out) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = export_chunk(arena, index, out);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* The chunk must fit whole into one range. */
static ga_status check_room(const ga_arena *arena, uint64_t size)
{
    uint64_t end = ga_arena_end(arena);
    if (!size || size % arena->space.granule) {
        return ga_fail(GA_ERR_ARGUMENT, "a chunk of %llu bytes: expected a multiple of %llu",
                       (ull)size, (ull)arena->space.granule);
    }
    if (size > arena->limit || end > arena->limit - size) {
        return ga_fail(GA_ERR_MEMORY,
                       "a chunk of %llu bytes behind %llu is above the limit of %llu", (ull)size,
                       (ull)end, (ull)arena->limit);
    }
    for (size_t i = 0; i < arena->range_count; i++) {
        const ga_arena_range *range = &arena->ranges[i];
        uint64_t before = end - range->start; /* wraps around for ranges further up */
        if (before < range->size && size <= range->size - before) {
            return GA_OK;
        }
    }
    return ga_fail(GA_ERR_CANNOT_GROW,
                   "a chunk of %llu bytes does not fit behind %llu in one reservation", (ull)size,
                   (ull)end);
}

ga_status ga_arena_import_chunk(ga_arena *arena, const ga_arena_share *share)
{
    uint64_t handle;
    ga_status status = check_room(arena, share->size);
    if (status == GA_OK) {
        status = ga_space_import(&arena->space, share, &handle);
    }
    if (status != GA_OK) {
        return status;
    }
    status = ga_arena_attach(arena, handle, share->size);
    if (status != GA_OK) {
        ga_space_drop_chunk(&arena->space, handle, share->size);
    }
    ga_arena_set_backed(arena);
    return status;
}

static ga_status import_chunk(ga_arena *arena, const ga_arena_share *share)
{
    ga_status status = check_shared(arena);
    if (status == GA_OK) {
        status = ga_arena_check_own(arena);
    }
    return status == GA_OK ? ga_arena_prefix_error(ga_arena_import_chunk(arena, share)) : status;
}

ga_status ga_arena_import(ga_arena *arena, const ga_arena_share *share)
{
    if (!arena || !share) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = import_chunk(arena, share);
    pthread_mutex_unlock(&arena->lock);
    return status;
}
