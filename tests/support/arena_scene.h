/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of arenas.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_ARENA_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_ARENA_SCENE_H

#include "expect.h"
#include "vmm_driver.h"

#include <gpualloc/arena.h>

#include <inttypes.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const ga_arena_options on_device = {.options_size = sizeof(ga_arena_options),
                                           .place = GA_PLACE_DEVICE};
static const ga_arena_options on_host = {.options_size = sizeof(ga_arena_options),
                                         .place = GA_PLACE_HOST};

/* The options of this place, with more options. */
#define WITH(options, ...)                                                                         \
    ((ga_arena_options){                                                                           \
        .options_size = sizeof(ga_arena_options), .place = (options).place, __VA_ARGS__})

static inline ga_arena *open_with(ga_arena_options options)
{
    ga_arena *arena;
    assert_ok(ga_arena_open(&arena, &options));
    return arena;
}

static inline void assert_refused(ga_arena_options options, ga_status wanted, const char *sentence)
{
    ga_arena *arena = (ga_arena *)&options;
    assert_fails(ga_arena_open(&arena, &options), wanted, sentence);
    cr_assert_null(arena);
}

static inline char *base_of(const ga_arena *arena)
{
    return ga_arena_base(arena);
}

static inline ga_arena_stats stats_of(ga_arena *arena)
{
    ga_arena_stats stats;
    ga_arena_get_stats(arena, &stats);
    return stats;
}

/* A word in each 64 KiB, which says where it is. */
static inline void write_marks(ga_arena *arena, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += 64 << 10) {
        memcpy(base_of(arena) + at, &at, sizeof at);
    }
}

static inline void check_marks(ga_arena *arena, uint64_t to)
{
    for (uint64_t at = 0; at < to; at += 64 << 10) {
        cr_assert_eq(memcmp(base_of(arena) + at, &at, sizeof at), 0, "at %" PRIu64, at);
    }
}

/* And stop the driver. */
static inline void assert_nothing_left(void)
{
    vmm_driver_counts left = vmm_driver_count();
    cr_assert_eq(left.ranges, 0, "%" PRIu64 " ranges", left.ranges);
    cr_assert_eq(left.mappings, 0, "%" PRIu64 " mappings", left.mappings);
    cr_assert_eq(left.handles, 0, "%" PRIu64 " handles", left.handles);
    cr_assert_eq(left.chunks, 0, "%" PRIu64 " chunks", left.chunks);
    vmm_driver_stop();
}

#endif
