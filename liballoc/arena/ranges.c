/* SPDX-License-Identifier: MIT
 *
 * Reserving more addresses: directly behind the arena, so that the base stays, or elsewhere
 * (vmm-spgemm-2023, §3.1.1).
 */
#include "state.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* the type of %llu */

static const uint64_t SIZES_END = (uint64_t)1 << 56;

/* `reserve` rounded up to granules; 0 if it is too large. */
static uint64_t round_up(const ga_arena *arena, uint64_t reserve)
{
    uint64_t granule = arena->space.granule;
    return reserve < SIZES_END ? (reserve + granule - 1) / granule * granule : 0;
}

static void set_reserved(ga_arena *arena, uint64_t reserved)
{
    /* AA3: release. Pairs with AA4 (arena.c): the arena may grow up to the size read there. */
    __atomic_store_n(&arena->reserved, reserved, __ATOMIC_RELEASE);
}

/* ---- directly behind --------------------------------------------------------------------- */

static ga_status reserve_behind(ga_arena *arena, uint64_t size)
{
    uintptr_t base;
    ga_arena_range *ranges =
        ga_libc.realloc(arena->ranges, (arena->range_count + 1) * sizeof *ranges);
    if (!ranges) {
        return ga_fail(GA_ERR_MEMORY, "no memory to remember a range");
    }
    arena->ranges = ranges;
    ga_status status = ga_space_reserve(&arena->space, size, arena->base + arena->reserved, &base);
    if (status != GA_OK) {
        return status;
    }
    if (ga_arena_joins_chunks(arena)) {
        ranges[0].size += size;
    } else {
        ranges[arena->range_count++] = (ga_arena_range){arena->reserved, size};
    }
    return GA_OK;
}

ga_status ga_arena_extend_to(ga_arena *arena, uint64_t reserve)
{
    if (reserve <= arena->reserved) {
        return GA_OK;
    }
    ga_status status = reserve_behind(arena, reserve - arena->reserved);
    if (status == GA_OK) {
        set_reserved(arena, reserve);
    }
    return status;
}

static ga_status too_large(uint64_t reserve)
{
    return ga_fail(GA_ERR_SIZE, "arena: expected less than 2^56 bytes of addresses, got %llu",
                   (ull)reserve);
}

/* Runs `change` under the lock, with `reserve` rounded up to granules. */
static ga_status change_reservation(ga_status (*change)(ga_arena *arena, uint64_t reserve),
                                    ga_arena *arena, uint64_t reserve)
{
    if (!arena) {
        return ga_arena_missing();
    }
    uint64_t size = round_up(arena, reserve);
    if (reserve && !size) {
        return too_large(reserve);
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = change(arena, size);
    pthread_mutex_unlock(&arena->lock);
    return ga_arena_prefix_error(status);
}

ga_status ga_arena_extend(ga_arena *arena, uint64_t reserve)
{
    return change_reservation(ga_arena_extend_to, arena, reserve);
}

/* ---- elsewhere --------------------------------------------------------------------------- */

static void release_ranges(ga_arena *arena)
{
    for (size_t i = 0; i < arena->range_count; i++) {
        const ga_arena_range *range = &arena->ranges[i];
        ga_space_drop_range(&arena->space, arena->base + range->start, range->size);
    }
}

static ga_status relocate(ga_arena *arena, uint64_t reserve)
{
    uintptr_t base;
    ga_status status = ga_space_reserve(&arena->space, reserve, 0, &base);
    if (status != GA_OK) {
        return status;
    }
    status = ga_arena_move_chunks(arena, base);
    if (status != GA_OK) {
        ga_space_drop_range(&arena->space, base, reserve);
        ga_arena_set_backed(arena);
        return status;
    }
    release_ranges(arena);
    arena->base = base;
    arena->ranges[0] = (ga_arena_range){0, reserve};
    arena->range_count = 1;
    arena->moves++;
    set_reserved(arena, reserve);
    return GA_OK;
}

static ga_status extend_or_relocate(ga_arena *arena, uint64_t reserve)
{
    return ga_arena_extend_to(arena, reserve) == GA_OK ? GA_OK : relocate(arena, reserve);
}

ga_status ga_arena_move(ga_arena *arena, uint64_t reserve)
{
    return change_reservation(extend_or_relocate, arena, reserve);
}
