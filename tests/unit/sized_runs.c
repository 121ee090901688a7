/* SPDX-License-Identifier: MIT
 *
 * Runs of whole regions beside size classes, one tile at a time: runs do not overlap, and a request
 * fails only if there is no run, in fixed and growing heaps; the pool, bit by bit; addresses in
 * runs. A script of operations is compared with a plain map of the owners of regions.
 */
#include "backends/slab/classes/sized_runs.h"
#include "support/expect.h"
#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <stdlib.h>

enum {
    BITS = 17,
    NOBODY = 0,
    A_CLASS = 1 /* in the model; runs are numbered from 2 on */
};

static uint32_t claim(sized_world *world, uint32_t n, uint32_t align, uint32_t phase)
{
    return ga_sized_run_claim(world->heap, sized_tile(), n, align, phase);
}

static bool release(sized_world *world, uint32_t first)
{
    return ga_sized_runs_free(world->heap, sized_tile(), 1, ga_lanes_all(first)) != 0;
}

static ga_sized_run find(const sized_world *world, uint64_t offset)
{
    return ga_sized_run_find(ga_sized_view_of(world->heap), world->heap->units + offset);
}

/* The pool at rest: its bits are all the regions below `next` without an owner, and their number is
 * right. */
static void check_pool(const sized_world *world)
{
    const ga_sized_heap *heap = world->heap;
    uint32_t count = 0, inside = 0;
    for (uint32_t region = 0; region < world->regions; region++) {
        uint32_t owner = heap->owners[region];
        bool bit = heap->pool[region / 32] >> region % 32 & 1;
        inside = owner & GA_SIZED_RUN ? owner & ~GA_SIZED_RUN : inside;
        bool owned = inside || ga_sized_owner_class(owner) != GA_SIZED_NONE;
        cr_assert_eq(bit, region < heap->next && !owned, "region %u, owner %x, next %u", region,
                     owner, heap->next);
        count += bit;
        inside -= inside != 0;
    }
    cr_assert_eq(heap->pooled, count);
}

/* ---- one after the other --------------------------------------------------------------------- */

Test(sized_runs, neighbours_up_to_the_whole_heap)
{
    for (uint32_t regions = 1; regions < 130; regions += regions < 70 ? 1 : 13) {
        sized_world *world = sized_world_new(BITS, regions);
        for (uint32_t n = 1; n <= regions; n++) {
            uint32_t first = claim(world, n, 1, 0);
            cr_assert_neq(first, GA_SIZED_NONE, "%u of %u", n, regions);
            cr_assert_leq(first + n, regions);
            cr_assert_eq(claim(world, regions, 1, 0), GA_SIZED_NONE);
            cr_assert_eq(claim(world, regions + 1, 1, 0), GA_SIZED_NONE);
            cr_assert(release(world, first));
            check_pool(world);
        }
        cr_assert_eq(claim(world, regions, 1, 0), 0);
        sized_world_delete(world);
    }
}

Test(sized_runs, free_regions_over_the_borders_of_words)
{
    sized_world *world = sized_world_new(BITS, 200);
    for (uint32_t i = 0; i < 200; i++) {
        cr_assert_eq(claim(world, 1, 1, 0), i);
    }
    for (uint32_t i = 30; i < 150; i++) {
        cr_assert(release(world, i));
        cr_assert_eq(claim(world, i - 28, 1, 0), GA_SIZED_NONE, "with %u free", i - 29);
    }
    check_pool(world);
    cr_assert_eq(claim(world, 121, 1, 0), GA_SIZED_NONE);
    cr_assert_eq(claim(world, 120, 1, 0), 30);
    cr_assert_eq(world->heap->pooled, 0);
    cr_assert(release(world, 30));
    cr_assert_eq(claim(world, 34, 1, 0), 30, "not in one word");
    check_pool(world);
    sized_world_delete(world);
}

/* The regions that were never used lie behind free ones. */
Test(sized_runs, free_regions_and_new_ones_together)
{
    sized_world *world = sized_world_new(BITS, 100);
    cr_assert_eq(claim(world, 40, 1, 0), 0);
    cr_assert_eq(claim(world, 30, 1, 0), 40);
    cr_assert(release(world, 40));
    cr_assert_eq(claim(world, 60, 1, 0), 40);
    cr_assert_eq(world->heap->next, 100);
    check_pool(world);
    sized_world_delete(world);
}

Test(sized_runs, at_multiples)
{
    for (uint32_t align = 1; align <= 256; align *= 2) {
        for (uint32_t phase = 0; phase < align; phase += 1 + align / 5) {
            sized_world *world = sized_world_new(BITS, 600);
            uint32_t first = 0;
            cr_assert_eq(claim(world, 1, 1, 0), 0);
            while ((first = claim(world, 3, align, phase)) != GA_SIZED_NONE) {
                cr_assert_eq((first + phase) % align, 0, "%u, at %u + %u", align, first, phase);
            }
            check_pool(world);
            for (uint32_t region = 1; region + 3 <= 600; region++) {
                bool free = true;
                for (uint32_t i = 0; i < 3; i++) {
                    uint32_t at = region + i;
                    free = free &&
                           (at >= world->heap->next || world->heap->pool[at / 32] >> at % 32 & 1);
                }
                cr_assert(!free || (region + phase) % align, "%u + %u: region %u", align, phase,
                          region);
            }
            sized_world_delete(world);
        }
    }
}

Test(sized_runs, an_address_is_in_its_run)
{
    const uint64_t size = UINT64_C(1) << BITS;
    sized_world *world = sized_world_new(BITS, 20);
    cr_assert_eq(find(world, 0).n, 0);
    cr_assert_eq(claim(world, 2, 1, 0), 0);
    cr_assert_eq(claim(world, 9, 1, 0), 2);
    for (uint64_t at = 0; at < 20 * size; at += 4093) {
        ga_sized_run run = find(world, at);
        uint64_t first = at < 2 * size ? 0 : 2;
        if (at < 11 * size) {
            cr_assert(run.first == first && run.n == (first ? 9 : 2));
            cr_assert_eq(run.offset, at - first * size);
        } else {
            cr_assert_eq(run.n, 0, "byte %llu", (unsigned long long)at);
        }
        ga_sized_view view = ga_sized_view_of(world->heap);
        cr_assert_eq(ga_sized_find(view, view.units + at).class_, GA_SIZED_NONE);
    }
    cr_assert_eq(find(world, 20 * size).n, 0);
    cr_assert_eq(find(world, (uint64_t)-1).n, 0);
    for (uint32_t region = 0; region < 20; region++) {
        cr_assert_eq(release(world, region), region == 0 || region == 2);
    }
    cr_assert_not(release(world, 2), "twice");
    for (uint64_t at = 0; at < 20 * size; at += size) {
        cr_assert_eq(find(world, at).n, 0, "byte %llu", (unsigned long long)at);
    }
    /* A block that was inside the old run is still there. */
    cr_assert_eq(claim(world, 3, 1, 0), 0);
    cr_assert_eq(find(world, 2 * size).n, 3);
    cr_assert_eq(find(world, 3 * size).n, 0);
    check_pool(world);
    sized_world_delete(world);
}

Test(sized_runs, a_run_becomes_shorter)
{
    sized_world *world = sized_world_new(BITS, 64);
    cr_assert_eq(claim(world, 64, 1, 0), 0);
    for (uint32_t n = 63; n; n--) {
        ga_sized_run run = find(world, 0);
        cr_assert(ga_sized_run_shorten(world->heap, sized_tile(), run, n));
        cr_assert_not(ga_sized_run_shorten(world->heap, sized_tile(), run, n), "it is another now");
        cr_assert_eq(find(world, 0).n, n);
        cr_assert_eq(find(world, (uint64_t)n << BITS).n, 0);
        check_pool(world);
    }
    sized_world_delete(world);
}

Test(sized_runs, as_many_regions_as_a_size_takes)
{
    for (uint32_t bits = 17; bits <= 21; bits++) {
        ga_sized_view view = {.region_bits = bits};
        uint64_t size = UINT64_C(1) << bits;
        cr_assert_eq(ga_sized_run_regions(view, 0), 1);
        cr_assert_eq(ga_sized_run_regions(view, size), 1);
        cr_assert_eq(ga_sized_run_regions(view, size + 1), 2);
        cr_assert_eq(ga_sized_run_regions(view, 1000 * size - 1), 1000);
        cr_assert_eq(ga_sized_run_regions(view, UINT64_MAX), GA_SIZED_REGIONS_MAX);
    }
}

Test(sized_runs, classes_whose_units_are_at_multiples)
{
    ga_sized_view view = {.classes = GA_SIZED_CLASSES};
    for (uint64_t align = 1; align; align *= 2) {
        for (uint64_t size = 0; size < 3 << 20; size += 1 + size / 7) {
            uint32_t expected = GA_SIZED_NONE;
            for (uint32_t i = GA_SIZED_CLASSES; i--;) {
                uint32_t unit = ga_sized_unit(i);
                expected = unit >= size && unit % align == 0 ? i : expected;
            }
            cr_assert_eq(ga_sized_class_aligned(view, size, align), expected, "%llu at %llu",
                         (unsigned long long)size, (unsigned long long)align);
        }
        cr_assert_eq(ga_sized_class_aligned(view, UINT64_MAX, align), GA_SIZED_NONE);
    }
}

/* ---- all lanes ------------------------------------------------------------------------------- */

Test(sized_runs, lanes_get_different_ones_until_there_are_no_more)
{
    for (uint32_t lanes = 1; lanes; lanes = lanes << 3 | (lanes & 0x100 ? 5 : 0)) {
        sized_world *world = sized_world_new(BITS, 77);
        uint32_t count = 0;
        uint8_t taken[77] = {0};
        ga_lanes n = ga_lanes_all(1) + ga_tile_ranks(sized_tile()) / ga_lanes_all(8);
        ga_lanes got = ga_sized_runs_claim(world->heap, sized_tile(), lanes, n, ga_lanes_all(1), 0);
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t first = ga_lane_read(got, lane);
            cr_assert(lanes >> lane & 1 || first == GA_SIZED_NONE);
            for (uint32_t i = 0; first != GA_SIZED_NONE && i < ga_lane_read(n, lane); i++) {
                cr_assert_not(taken[first + i]++);
                count++;
            }
        }
        check_pool(world);
        cr_assert_eq(count + world->heap->pooled, world->heap->next);
        uint32_t all = ga_lanes_nonzero(sized_tile(), got ^ ga_lanes_all(GA_SIZED_NONE));
        cr_assert_eq(ga_sized_runs_free(world->heap, sized_tile(), all, got), all);
        check_pool(world);
        cr_assert_eq(claim(world, 77, 1, 0), 0);
        sized_world_delete(world);
    }
}

/* ---- heaps that grow ------------------------------------------------------------------------- */

Test(sized_runs, memory_is_waited_for)
{
    sized_world *world = sized_world_growing(BITS, 500);
    cr_assert_eq(claim(world, 100, 1, 0), 0);
    for (uint32_t region = 0; region < 100; region++) {
        cr_assert_eq(world->backed[region], SIZED_WORLD_BACKED, "region %u", region);
    }
    cr_assert(release(world, 0));
    cr_assert_eq(claim(world, 500, 1, 0), 0);
    cr_assert_eq(world->backed[499], SIZED_WORLD_BACKED);
    cr_assert_eq(claim(world, 1, 1, 0), GA_SIZED_NONE);
    cr_assert_eq(world->heap->refused, 1);
    check_pool(world);
    sized_world_delete(world);
}

Test(sized_runs, the_limit_and_a_refusal_leave_what_there_is)
{
    sized_world *world = sized_world_growing(BITS, 500);
    world->limit = 90;
    cr_assert_eq(claim(world, 91, 1, 0), GA_SIZED_NONE);
    cr_assert_eq(claim(world, 90, 1, 0), 0);
    cr_assert(release(world, 0));
    cr_assert_eq(claim(world, 91, 1, 0), GA_SIZED_NONE);
    cr_assert_neq(claim(world, 45, 1, 0), GA_SIZED_NONE);
    cr_assert_neq(claim(world, 45, 1, 0), GA_SIZED_NONE);
    sized_world_delete(world);
    world = sized_world_growing(BITS, 500);
    world->refuse = 1;
    world->growth->refusal_ns = 20000000; /* longer than the test is off its processor */
    cr_assert_eq(claim(world, 10, 1, 0), GA_SIZED_NONE);
    uint32_t first = GA_SIZED_NONE;
    for (int i = 0; i < 1000 && first == GA_SIZED_NONE; i++) {
        first = claim(world, 10, 1, 0); /* a refusal for lack of memory counts for a while only */
        ga_clock_sleep(100000);
    }
    cr_assert_neq(first, GA_SIZED_NONE);
    check_pool(world);
    sized_world_delete(world);
}

/* ---- a script against a map ------------------------------------------------------------------ */

typedef struct model {
    sized_world *world;
    uint32_t *owner;
    uint32_t serial;
    uint32_t *firsts, *sizes; /* runs that live */
    uint32_t runs;
} model;

static bool has_live_unit(const sized_world *world, uint32_t region, uint32_t class)
{
    const ga_sized_class *c = &world->heap->of[class];
    const uint32_t *bits =
        world->heap->bits + ga_sized_bitmap_index(BITS, region, world->heap->owners[region]);
    uint32_t live = 0;
    for (uint32_t i = 0; i < c->map.words; i++) {
        live |= bits[i] & ~(i + 1 == c->map.words ? c->tail : 0);
    }
    return live != 0;
}

/* Record the regions that classes have got since: each was free before. No class gives a region
 * with a live unit back. A run may have any other. */
static void note_classes(model *m)
{
    for (uint32_t region = 0; region < m->world->regions; region++) {
        uint32_t class = sized_world_owner(m->world, region);
        if (class != GA_SIZED_NONE && has_live_unit(m->world, region, class)) {
            cr_assert_leq(m->owner[region], A_CLASS, "region %u is in a run", region);
            m->owner[region] = A_CLASS;
        } else {
            cr_assert_neq(m->owner[region], A_CLASS);
        }
    }
}

static bool has_room(const model *m, uint32_t n, uint32_t align, uint32_t phase)
{
    for (uint32_t first = 0; first + n <= m->world->regions; first++) {
        uint32_t free = 0;
        while (free < n && !m->owner[first + free]) {
            free++;
        }
        if (free == n && (first + phase) % align == 0) {
            return true;
        }
    }
    return false;
}

static void model_claim(model *m, uint64_t *random)
{
    uint32_t n = 1 + (uint32_t)random_below(random, random_below(random, 8) ? 5 : 90);
    uint32_t align = random_below(random, 4) ? 1 : 1u << random_below(random, 8);
    uint32_t phase = (uint32_t)random_below(random, align);
    uint32_t first = claim(m->world, n, align, phase);
    cr_assert_eq(first != GA_SIZED_NONE, has_room(m, n, align, phase), "%u at %u + %u", n, align,
                 phase);
    if (first != GA_SIZED_NONE) {
        cr_assert_eq((first + phase) % align, 0);
        m->serial++;
        for (uint32_t i = 0; i < n; i++) {
            cr_assert_eq(m->owner[first + i], NOBODY, "region %u", first + i);
            m->owner[first + i] = 1 + m->serial;
        }
        m->firsts[m->runs] = first;
        m->sizes[m->runs++] = n;
    }
}

static void model_release(model *m, uint32_t which)
{
    cr_assert(release(m->world, m->firsts[which]));
    memset(m->owner + m->firsts[which], 0, m->sizes[which] * sizeof *m->owner);
    m->runs--;
    m->firsts[which] = m->firsts[m->runs];
    m->sizes[which] = m->sizes[m->runs];
}

static void model_take_units(model *m, uint64_t *random)
{
    char *blocks[32];
    uint32_t classes[32];
    for (uint32_t lane = 0; lane < 32; lane++) {
        classes[lane] = m->world->heap->classes - 1 - (uint32_t)random_below(random, 3);
    }
    sized_claim(m->world->heap, 1u << random_below(random, 32), classes, 7, blocks);
    note_classes(m);
}

static void run_script(sized_world *world, uint64_t random)
{
    model m = {.world = world};
    m.owner = calloc(world->regions, sizeof *m.owner);
    m.firsts = calloc(world->regions, sizeof *m.firsts);
    m.sizes = calloc(world->regions, sizeof *m.sizes);
    cr_assert(m.owner && m.firsts && m.sizes);
    for (int i = 0; i < 3000; i++) {
        uint64_t what = random_below(&random, 100);
        if (what < 3) {
            model_take_units(&m, &random);
        } else if (what < 50 + (uint64_t)(i / 500 % 2) * 20) {
            model_claim(&m, &random);
        } else if (m.runs) {
            model_release(&m, (uint32_t)random_below(&random, m.runs));
        }
        check_pool(world);
    }
    free(m.owner);
    free(m.firsts);
    free(m.sizes);
    sized_world_delete(world);
}

Test(sized_runs, scripts_against_a_map)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        run_script(sized_world_new(BITS, (uint32_t)(20 + 37 * seed)), seed);
    }
}

Test(sized_runs, scripts_against_a_map_growing)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run_script(sized_world_growing(BITS, (uint32_t)(50 + 61 * seed)), seed);
    }
}
