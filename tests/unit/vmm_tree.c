/* SPDX-License-Identifier: MIT
 *
 * The tree of chunks, compared with a walk along all of them: after any changes, both find the same
 * rows, spans and holes.
 */
#include "backends/vmm/tree.h"
#include "support/random.h"

#include <criterion/criterion.h>

#include <stdlib.h>

enum {
    GRANULES = 400, /* of the range */
    STEPS = 4000,
    SIZES = 24
};

static const uintptr_t BASE = 1 << 20;
static const uint64_t GRANULE = 4096;

typedef struct world {
    ga_vmm_pool pool;
    ga_vmm_chunk walls[2];
    uintptr_t end;
} world;

static void append(world *w, ga_vmm_link *before, ga_vmm_chunk *chunk)
{
    ga_vmm_list_append(before->after, &chunk->link);
    w->pool.addresses.count++;
}

static world *make_world(uint64_t granules)
{
    world *w = calloc(1, sizeof *w);
    w->end = BASE + granules * GRANULE;
    ga_vmm_list_init(&w->pool.addresses.chunks);
    ga_vmm_list_init(&w->pool.stale);
    w->walls[0] = (ga_vmm_chunk){.size = BASE, .wall = true};
    w->walls[1] = (ga_vmm_chunk){.base = w->end, .size = GRANULE, .wall = true};
    append(w, &w->pool.addresses.chunks, &w->walls[0]);
    append(w, &w->walls[0].link, &w->walls[1]);
    ga_vmm_tree_refresh(&w->pool);
    return w;
}

static ga_vmm_chunk *add(world *w, ga_vmm_chunk *below, uintptr_t base, uint64_t size)
{
    ga_vmm_chunk *chunk = calloc(1, sizeof *chunk);
    chunk->base = base;
    chunk->size = size;
    append(w, &below->link, chunk);
    ga_vmm_tree_insert(&w->pool, chunk);
    return chunk;
}

static void end_run(ga_vmm_chunk *chunk)
{
    free(chunk->run);
    chunk->run = NULL;
}

static void drop(world *w, ga_vmm_chunk *chunk)
{
    ga_vmm_tree_remove(&w->pool, chunk);
    ga_vmm_list_remove(&chunk->link);
    w->pool.addresses.count--;
    end_run(chunk);
    free(chunk);
}

/* Sometimes with addresses of its own behind it. */
static void flip(world *w, ga_vmm_chunk *chunk, uint64_t room)
{
    if (chunk->run) {
        end_run(chunk);
    } else {
        uint64_t hole = ga_vmm_chunk_after(chunk)->base - ga_vmm_chunk_end(chunk);
        chunk->run = calloc(1, sizeof *chunk->run);
        *chunk->run = (ga_vmm_run){.base = chunk->base,
                                   .size = chunk->size,
                                   .room = chunk->size + (room < hole ? room : hole),
                                   .first = chunk,
                                   .last = chunk,
                                   .live = true};
    }
    ga_vmm_tree_mark_stale(&w->pool, chunk);
}

static void end_world(world *w)
{
    while (w->pool.addresses.count > 2) {
        drop(w, ga_vmm_chunk_after(&w->walls[0]));
    }
    free(w);
}

/* ---- the walk ------------------------------------------------------------------------------ */

static uint64_t hole_before(const ga_vmm_chunk *chunk)
{
    return chunk->base - ga_vmm_tree_end(ga_vmm_chunk_of(chunk->link.before));
}

static ga_vmm_chunk *walk_rows(world *w, ga_vmm_chunk *from, uint64_t size, uint64_t *bytes)
{
    *bytes = 0;
    for (ga_vmm_chunk *c = from; c != &w->walls[1]; c = ga_vmm_chunk_after(c)) {
        bool apart = c != from && hole_before(c);
        *bytes = ga_vmm_is_occupied(c) ? 0 : (apart ? 0 : *bytes) + c->size;
        if (*bytes >= size) {
            return c;
        }
    }
    return NULL;
}

/* From the first wall on. */
static ga_vmm_chunk *walk_spans(world *w, uint64_t size, uint64_t *bytes)
{
    *bytes = 0;
    for (ga_vmm_chunk *c = &w->walls[0]; c != &w->walls[1];) {
        c = ga_vmm_chunk_after(c);
        *bytes += hole_before(c) + (ga_vmm_is_occupied(c) ? 0 : c->size);
        if (*bytes >= size) {
            return c;
        }
        *bytes = ga_vmm_is_occupied(c) ? 0 : *bytes;
    }
    return NULL;
}

static ga_vmm_chunk *walk_holes(world *w, uint64_t size)
{
    for (ga_vmm_chunk *c = &w->walls[0]; c != &w->walls[1];) {
        c = ga_vmm_chunk_after(c);
        if (hole_before(c) >= size) {
            return c;
        }
    }
    return NULL;
}

static ga_vmm_chunk *walk_back(ga_vmm_chunk *chunk)
{
    do {
        chunk = ga_vmm_chunk_of(chunk->link.before);
    } while (!ga_vmm_is_occupied(chunk));
    return chunk;
}

/* ---- both ---------------------------------------------------------------------------------- */

static ga_vmm_chunk *random_chunk(world *w, uint64_t *random)
{
    uintptr_t address = BASE + random_below(random, w->end - BASE) + 1;
    return ga_vmm_tree_below(&w->pool, address);
}

static void change(world *w, uint64_t *random)
{
    ga_vmm_chunk *chunk = random_chunk(w, random);
    uintptr_t base = ga_vmm_tree_end(chunk);
    uint64_t hole = (ga_vmm_chunk_after(chunk)->base - base) / GRANULE;
    size_t what = random_below(random, 4);
    if (what == 0 && hole) {
        uint64_t skip = random_below(random, hole < 4 ? hole : 4);
        uint64_t max = hole - skip < SIZES ? hole - skip : SIZES;
        add(w, chunk, base + skip * GRANULE, (1 + random_below(random, max)) * GRANULE);
    } else if (what == 1 && !chunk->wall) {
        drop(w, chunk);
    } else if (!chunk->wall) {
        flip(w, chunk, random_below(random, 3) * GRANULE);
    }
}

static void compare(world *w, uint64_t *random)
{
    uint64_t size = (1 + random_below(random, 2 * SIZES)) * GRANULE;
    uint64_t found;
    uint64_t walked;
    ga_vmm_chunk *from = random_chunk(w, random);
    ga_vmm_tree_refresh(&w->pool);
    ga_vmm_chunk *row = ga_vmm_tree_find(&w->pool, from, GA_VMM_MAPPED_EXTENTS, size, &found);
    cr_assert_eq(row, walk_rows(w, from, size, &walked));
    cr_assert(!row || found == walked);
    ga_vmm_chunk *span = ga_vmm_tree_find(&w->pool, &w->walls[0], GA_VMM_SPANS, size, &found);
    cr_assert_eq(span, walk_spans(w, size, &walked));
    cr_assert(!span || found == walked);
    cr_assert_eq(ga_vmm_tree_hole(&w->pool, size), walk_holes(w, size));
    from = from->link.before == &w->pool.addresses.chunks ? &w->walls[1] : from;
    cr_assert_eq(ga_vmm_tree_occupied_before(from), walk_back(from));
}

Test(vmm_tree, finds_what_a_walk_finds)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world *w = make_world(GRANULES);
        uint64_t random = seed;
        for (int i = 0; i < STEPS; i++) {
            change(w, &random);
            if (random_below(&random, 3) == 0) { /* else several are stale at once */
                compare(w, &random);
            }
        }
        end_world(w);
    }
}

static size_t depth_of(const ga_vmm_chunk *chunk)
{
    if (!chunk) {
        return 0;
    }
    size_t left = depth_of(chunk->node.left);
    size_t right = depth_of(chunk->node.right);
    return 1 + (left > right ? left : right);
}

/* Chunks side by side, as a heap that fills makes them. */
Test(vmm_tree, stays_shallow)
{
    world *w = make_world(100000);
    ga_vmm_chunk *below = &w->walls[0];
    for (uint64_t i = 0; i < 100000; i++) {
        below = add(w, below, BASE + i * GRANULE, GRANULE);
    }
    size_t depth = depth_of(w->pool.tree);
    cr_assert_leq(depth, 60, "%zu levels", depth);
    end_world(w);
}
