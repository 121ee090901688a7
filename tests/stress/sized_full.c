/* SPDX-License-Identifier: MIT
 *
 * Threads as tiles on a heap of all sizes that is full. Two kinds of rounds:
 *
 * Exact: as many units as the threads want altogether of one class, and no more; each region has a
 * unit that stays. A thread that frees a unit and requests one must get one each time, because
 * there is always a free one. Other threads request other classes and runs, and fail, so that
 * sweeps run and their results are kept all the time.
 *
 * Moving: threads fill the heap with one class, write to the units, check and free them, each its
 * own class, so that regions move from class to class. At the end all of the heap can be allocated
 * in each class.
 *
 * With a planted bug (meson.build) it must fail.
 */
#include "stress.h"

#include "backends/slab/classes/sized_runs.h"
#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <sched.h>
#include <stdio.h>

enum {
    BITS = 17,
    THREADS = 6,
    ASKERS = 2, /* of the threads: their requests fail */
    REGIONS = 4,
    STEPS = 4000,
    MOVES = 60,
    MANY = 1024, /* units that a thread holds at most in a moving round */
    FEW = 64,    /* in three of four, so that regions become empty more often */
    KEPT = 4096
};

static sized_world *world;
static uint32_t class_of_round, round_number;
static uint32_t share; /* units of a thread */

typedef struct actor {
    uint64_t random;
    uint32_t count, served, refused;
    char *kept[KEPT];
} actor;

static actor actors[THREADS];

static uint32_t unit_of(uint32_t class)
{
    return ga_sized_unit(class);
}

/* Check that the first and the last word of a unit name `from` as its owner, and set them to `to`.
 * 0: no owner. */
static void mark(char *block, uint32_t class, uint32_t from, uint32_t to, const char *what)
{
    uint32_t *first = (uint32_t *)block;
    uint32_t *last = (uint32_t *)(block + unit_of(class)) - 1;
    stress_need(*first == from && *last == from, what);
    *first = to;
    *last = to;
}

static uint32_t tag_of(const actor *a)
{
    return (uint32_t)(a - actors) + 1;
}

/* Claim units for `n` lanes. Returns the number of units. */
static uint32_t claim(actor *a, uint32_t class, uint32_t n)
{
    uint32_t classes[32], got;
    char *blocks[32];
    for (uint32_t lane = 0; lane < 32; lane++) {
        classes[lane] = class;
    }
    got = sized_claim(world->heap, ga_bits_below(n), classes,
                      (uint32_t)random_below(&a->random, 64), blocks);
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (blocks[lane]) {
            mark(blocks[lane], class, 0, tag_of(a), "a unit has two owners");
            a->kept[a->count++] = blocks[lane];
        }
    }
    return got;
}

static void release(actor *a, uint32_t class, uint32_t n)
{
    char *blocks[32];
    for (uint32_t lane = 0; lane < n; lane++) {
        uint32_t i = (uint32_t)random_below(&a->random, a->count);
        blocks[lane] = a->kept[i];
        a->kept[i] = a->kept[--a->count];
        mark(blocks[lane], class, tag_of(a), 0, "a unit is its owner's still");
    }
    stress_need(sized_release(world->heap, ga_bits_below(n), blocks), "a block is one");
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* No request of another class succeeds: each region has a unit that stays. */
static void ask_in_vain(actor *a)
{
    uint32_t class =
        (class_of_round + 1 + (uint32_t)random_below(&a->random, 8)) % world->heap->classes;
    for (uint32_t i = 0; i < STEPS; i++) {
        if (i % 8) {
            stress_need(claim(a, class, 1) == 0, "there is no region for another class");
        } else {
            uint32_t first = ga_sized_run_claim(world->heap, sized_tile(), 1, 1, 0);
            stress_need(first == GA_SIZED_NONE, "there is no region for a run");
        }
    }
}

static void work_exactly(size_t number)
{
    actor *a = &actors[number];
    if (number < ASKERS) {
        ask_in_vain(a);
        return;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t n = 1 + (uint32_t)random_below(&a->random, a->count < 4 ? a->count : 4);
        release(a, class_of_round, n);
        if (random_below(&a->random, 64) == 0) {
            sched_yield();
        }
        stress_need(claim(a, class_of_round, n) == n, "a unit that was freed is found");
    }
}

/* The first unit of each region stays. All threads get equal shares, and the remainder stays,
 * too. */
static void deal(void)
{
    actor *all = &actors[0];
    uint32_t units = REGIONS * ((1u << BITS) / unit_of(class_of_round));
    stress_need(units <= KEPT, "room for all units");
    while (all->count < units) {
        stress_need(claim(all, class_of_round, 1) == 1, "the heap serves all of its units");
    }
    share = (units - REGIONS) / (THREADS - ASKERS);
    uint32_t free = 0;
    for (uint32_t i = 0; i < units; i++) {
        char *block = all->kept[i];
        bool stays = (uint64_t)(block - world->heap->units) % (1u << BITS) == 0;
        actor *to = &actors[ASKERS + free / share];
        if (!stays && free < share * (THREADS - ASKERS)) {
            mark(block, class_of_round, tag_of(all), tag_of(to), "a unit has one owner");
            to->kept[to->count++] = block;
            free++;
        }
    }
    all->count = 0;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void work_moving(size_t number)
{
    actor *a = &actors[number];
    uint32_t most = round_number % 8 ? FEW : MANY;
    for (uint32_t i = 0; i < MOVES * (MANY / most); i++) {
        uint32_t class = (8 + (uint32_t)random_below(&a->random, 24)) % world->heap->classes;
        uint32_t n = 1 + (uint32_t)random_below(&a->random, 32), got = 1;
        while (got && a->count + 32 <= most) {
            got = claim(a, class, n);
        }
        a->served += a->count;
        while (a->count) {
            release(a, class, a->count < 32 ? a->count : 32);
        }
    }
}

static void need_everything(void)
{
    actor *a = &actors[0];
    stress_need(sized_world_live(world, GA_SIZED_NONE) == 0, "everything is free");
    for (uint32_t class = 8; class < world->heap->classes; class += 5) {
        uint32_t units = REGIONS * ((1u << BITS) / unit_of(class));
        while (claim(a, class, 1)) {
        }
        stress_need(a->count == units, "an empty heap serves all of it in any size");
        while (a->count) {
            release(a, class, a->count < 32 ? a->count : 32);
        }
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void begin(void)
{
    world = sized_world_new(BITS, REGIONS);
    for (uint32_t i = 0; i < THREADS; i++) {
        actors[i].random = round_number * THREADS + i + 1;
        actors[i].count = 0;
        actors[i].served = 0;
    }
    class_of_round = 12 + round_number / 2 % 20;
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    uint64_t moved = 0;
    while (stress_goes_on() || round_number < 8) {
        begin();
        if (round_number++ % 2) {
            stress_threads(THREADS, work_moving);
            for (uint32_t i = 0; i < THREADS; i++) {
                moved += actors[i].served;
            }
            need_everything();
        } else {
            deal();
            stress_threads(THREADS, work_exactly);
        }
        sized_world_delete(world);
    }
    printf("%u rounds, %llu units moved\n", round_number, (unsigned long long)moved);
    return 0;
}
