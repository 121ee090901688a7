/* SPDX-License-Identifier: MIT
 *
 * A full heap of all sizes whose class has many more words than a claim reads before it relies on
 * the result of an earlier sweep. One thread frees a unit anywhere and requests one: it must get
 * one each time, because no other thread requests that class. Other threads request other classes
 * and runs, and fail, so that a sweep follows each free and its result is kept.
 *
 * With a planted bug (meson.build) it must fail.
 */
#include "stress.h"

#include "backends/slab/classes/sized_runs.h"
#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <stdio.h>

enum {
    BITS = 17,
    REGIONS = 16,
    CLASS = 0, /* units of 16 bytes */
    UNITS = REGIONS << (BITS - 4),
    WORDS = UNITS / 32,
    ASKERS = 2,
    LOOKED_AT =
        1 + 4 * GA_SIZED_LANE_ATTEMPTS + 32 + 2 * 32 * (GA_SIZED_WIDE_TRIES + GA_SIZED_LOST_TRIES)
};

_Static_assert(WORDS > 4 * LOOKED_AT, "most claims do not see the word of a free unit");

static sized_world *world;
static char *units[UNITS];
static uint32_t working = 1;
static unsigned frees;

static uint32_t claim_one(uint32_t class, uint32_t number, char **block)
{
    uint32_t classes[32] = {class};
    char *blocks[32];
    uint32_t got = sized_claim(world->heap, 1, classes, number, blocks);
    *block = blocks[0];
    return got;
}

/* Claim one word at a time. */
static void claim_all(void)
{
    uint32_t count = 0;
    for (uint32_t word = 0; word < WORDS; word++) {
        count += sized_claim_warp(world->heap, CLASS, word, units + count);
    }
    stress_need(count == UNITS, "the heap serves all of its units");
}

static void free_and_claim(void)
{
    uint64_t random = 1;
    while (stress_goes_on()) {
        char **unit = &units[random_below(&random, UNITS)];
        stress_need(sized_release(world->heap, 1, unit), "a block is one");
        uint32_t number = (uint32_t)random_below(&random, WORDS);
        stress_need(claim_one(CLASS, number, unit) == 1, "a unit that was freed is found");
        frees++;
    }
    /* relaxed: a flag that ends the round; joining the threads orders it */
    __atomic_store_n(&working, 0, __ATOMIC_RELAXED);
}

static void ask_in_vain(uint32_t class)
{
    char *block;
    for (uint32_t i = 0; __atomic_load_n(&working, __ATOMIC_RELAXED); i++) {
        if (i % 8) {
            stress_need(claim_one(class, i, &block) == 0, "there is no region for another class");
        } else {
            uint32_t first = ga_sized_run_claim(world->heap, sized_tile(), 1, 1, 0);
            stress_need(first == GA_SIZED_NONE, "there is no region for a run");
        }
    }
}

static void work(size_t number)
{
    if (number == 0) {
        free_and_claim();
    } else {
        ask_in_vain(CLASS + (uint32_t)number);
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    world = sized_world_new(BITS, REGIONS);
    claim_all();
    stress_threads(1 + ASKERS, work);
    for (uint32_t i = 0; i < UNITS; i++) {
        stress_need(sized_release(world->heap, 1, &units[i]), "a block is one");
    }
    stress_need(sized_world_live(world, GA_SIZED_NONE) == 0, "everything is free");
    sized_world_delete(world);
    printf("%u units freed and claimed\n", frees);
    return 0;
}
