/* SPDX-License-Identifier: MIT
 *
 * The variants in C. The loop that appends is the same for all: compare, make room, store.
 */
#include "ways.h"

#include <gpualloc/arena.h>

#include <stdio.h>
#include <stdlib.h>

static bool fill_arena(ga_arena *arena, uint64_t n, growth_cost *cost)
{
    uint64_t *data = ga_arena_base(arena);
    uint64_t room = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (i == room) {
            double start = growth_now();
            room = room ? 2 * room : GROWTH_FIRST;
            if (ga_arena_grow(arena, room * sizeof *data) != GA_OK) {
                return false;
            }
            growth_note(cost, growth_now() - start);
        }
        data[i] = i;
    }
    return growth_holds(data, n);
}

static bool fill_with(uint32_t flags, uint64_t n, growth_cost *cost)
{
    ga_arena *arena;
    ga_arena_options options = {
        .options_size = sizeof options, .flags = flags | GA_ARENA_EXACT, .place = GA_PLACE_HOST};
    double start = growth_now();
    bool good = ga_arena_open(&arena, &options) == GA_OK && fill_arena(arena, n, cost);
    cost->all = growth_now() - start;
    if (!good) {
        fprintf(stderr, "bench-arena-host: %s\n", ga_error_text());
    }
    ga_arena_close(arena);
    return good;
}

static bool fill_plain(uint64_t n, growth_cost *cost)
{
    return fill_with(0, n, cost);
}

static bool fill_huge(uint64_t n, growth_cost *cost)
{
    return fill_with(GA_ARENA_HUGE_PAGES, n, cost);
}

static bool fill_realloc(uint64_t n, growth_cost *cost)
{
    uint64_t *data = NULL;
    uint64_t room = 0;
    double begin = growth_now();
    for (uint64_t i = 0; i < n; i++) {
        if (i == room) {
            double start = growth_now();
            room = room ? 2 * room : GROWTH_FIRST;
            uint64_t *more = realloc(data, room * sizeof *data);
            if (!more) {
                free(data);
                return false;
            }
            data = more;
            growth_note(cost, growth_now() - start);
        }
        data[i] = i;
    }
    cost->all = growth_now() - begin;
    bool good = growth_holds(data, n);
    free(data);
    return good;
}

const growth_way growth_ways[GROWTH_WAYS] = {
    {"arena", fill_plain},
    {"arena, huge pages", fill_huge},
    {"realloc", fill_realloc},
    {"std::vector", growth_fill_std_vector},
};
