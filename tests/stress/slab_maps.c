/* SPDX-License-Identifier: MIT
 *
 * The structures that find a slab heap's owner of an address: the map of regions, and the set of
 * blocks obtained from the parent. One thread inserts addresses, each where no other was inserted
 * before. Another thread looks them up until they are there, and looks up neighbours that are never
 * inserted. Then both insert and remove regions of their own, and reuse each other's records. No
 * thread touches memory at these addresses.
 *
 * With SR2, SR4, SR6 or SL2 relaxed the thread sanitizer must report it (tests/planted). It regards
 * the pages of a new table as written by the thread that maps them.
 */
#include "stress.h"

#include "backends/slab/host/regions.h"
#include "backends/slab/host/starts.h"

#include <sched.h>
#include <stdio.h>

enum {
    PIECES = 2048, /* regions, 4 GiB apart: each has its own leaf of the map */
    FIRST_PIECE = 256,
    MIDDLES = 64, /* addresses of the set, 64 GiB apart, in a round */
    HANDED = 2000,
    LEAST = GA_PLANTED_ANY ? 200 : 10, /* rounds, so that a busy machine does not miss the bug */
    UNIT = 64,
    UNITS = GA_SLAB_STEP / UNIT /* of a region: one step */
};

static char *step_of(uint64_t piece, uint64_t step)
{
    return (char *)(uintptr_t)((piece << 32) + step * GA_SLAB_STEP);
}

static ga_slab_region *enter(uint64_t piece, uint64_t step)
{
    ga_slab_region *region = ga_slab_region_new();
    stress_need(region != NULL, "a region's record");
    /* relaxed: as in host.c, another thread may still read the record */
    __atomic_store_n(&region->heap, piece, __ATOMIC_RELAXED);
    region->units = step_of(piece, step);
    region->inverse = UINT64_MAX / UNIT + 1;
    region->unit = UNIT;
    region->first = (uint32_t)step * UNITS;
    region->count = UNITS;
    region->class = 0;
    stress_need(ga_slab_region_enter(region), "the map");
    return region;
}

/* ---- regions ------------------------------------------------------------------------------- */

static ga_slab_region *entered[PIECES][2]; /* a thread removes those that it inserted */
static uint64_t piece_now;                 /* set between the rounds */

/* The leaf of the second region exists already: only the region is new. */
static void make_regions(void)
{
    for (uint64_t step = 0; step < 2; step++) {
        entered[piece_now][step] = enter(FIRST_PIECE + piece_now, step + 1);
    }
}

static void ask_for_region(uint64_t step)
{
    uint64_t piece = FIRST_PIECE + piece_now;
    const ga_slab_region *region;
    uint32_t unit;
    do {
        stress_need(!ga_slab_region_at(step_of(piece, 0)), "nothing beside the region");
        region = ga_slab_region_at(step_of(piece, step));
    } while (!region && sched_yield() == 0);
    stress_need(ga_slab_region_unit(region, step_of(piece, step) + 3 * UNIT, &unit) &&
                    unit == step * UNITS + 3,
                "a unit of the region");
}

static void regions(size_t number)
{
    if (number == 0) {
        make_regions();
    } else {
        ask_for_region(1);
        ask_for_region(2);
    }
}

static void take_out(ga_slab_region *region)
{
    ga_slab_region_remove(region);
    ga_slab_region_delete(region);
}

/* ---- records ------------------------------------------------------------------------------- */

static void hand_on(size_t number)
{
    for (uint32_t i = 0; i < HANDED; i++) {
        ga_slab_region *region = enter(FIRST_PIECE, 16 * (number + 1));
        stress_need(ga_slab_region_at(region->units) == region, "one's own region");
        take_out(region);
    }
}

/* ---- starts -------------------------------------------------------------------------------- */

static ga_slab_starts starts;

static const void *block_of(uint64_t middle)
{
    return (const void *)(uintptr_t)((middle + 1) << 36);
}

static void add_or_ask(size_t number)
{
    for (uint64_t i = 0; i < MIDDLES; i++) {
        if (number == 0) {
            stress_need(ga_slab_starts_add(&starts, block_of(i)), "the set");
            continue;
        }
        while (!ga_slab_starts_has(&starts, block_of(i))) {
            stress_need(!ga_slab_starts_has(&starts, (const char *)block_of(i) + 16),
                        "nothing beside the block");
            sched_yield();
        }
    }
}

/* ---- together ------------------------------------------------------------------------------ */

int main(int argc, char **argv)
{
    uint64_t round = 0;
    stress_begin(argc, argv);
    for (; round < PIECES && (round < LEAST || stress_goes_on()); round++) {
        piece_now = round;
        stress_threads(2, regions);
        stress_threads(2, add_or_ask);
        ga_slab_starts_end(&starts);
        starts = (ga_slab_starts){0};
        if (round % 16 == 0) {
            stress_threads(2, hand_on);
        }
    }
    for (uint64_t piece = 0; piece < round; piece++) {
        take_out(entered[piece][0]);
        take_out(entered[piece][1]);
        stress_need(!ga_slab_region_at(step_of(FIRST_PIECE + piece, 1)), "a region that went");
    }
    printf("%llu rounds\n", (unsigned long long)round);
    return 0;
}
