/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, append to a vector that grows during the calls; a pager runs beside them. The
 * pager commits a step by a plain write, and tiles write their elements plainly, so the thread
 * sanitizer reports a missing order. At the end every element below the size has one owner, and
 * none above it has one.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include "arena/append.h"
#include "growth/pager.h"

#include "stress.h"

#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 40,
    ELEMENT = 12, /* bytes; steps do not end where elements do */
    STEP = 3008,
    PLACES = STEPS * STEP / ELEMENT,
    THREADS = 6,
    BACKED = 0x5a5a
};

static struct {
    ga_append append;
    uint32_t backed[STEPS + 1]; /* plain: written by the pager, read by a tile that uses the step */
    uint32_t owners[PLACES];    /* plain: written by the tile that reserved the element */
    uint64_t taken;             /* relaxed: a sum */
    uint32_t limit;             /* steps; set before the threads */
    uint32_t refuse;            /* the request that is refused for lack of memory, 0 for none */
    uint32_t requests;          /* of the pager: requests so far */
    uint32_t round;
    ga_pager_client *client;
} world __attribute__((aligned(128)));

/* Commits a few steps ahead. One request may be refused, and the next one granted after a while, in
 * which other tiles close the gate. */
static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    uint32_t reach = wanted + wanted % 3u;
    (void)context;
    if (++world.requests == world.refuse) {
        return GA_GROWTH_MEMORY;
    }
    if (world.refuse && world.requests == world.refuse + 1) {
        ga_clock_sleep(10000000);
    }
    for (; *backed < reach && *backed < world.limit; ++*backed) {
        world.backed[*backed] = BACKED;
    }
    return *backed >= wanted ? GA_GROWTH_GRANTED : GA_GROWTH_LIMIT;
}

static void begin(uint32_t round)
{
    memset(&world, 0, sizeof world);
    world.round = round;
    world.limit = round % 5 ? STEPS : round % STEPS;
    world.refuse = round % 3 ? 0 : 1 + round % 7;
    stress_need(ga_pager_add(&world.client, GA_PAGER_HOST, 0, back, NULL) == GA_OK, "a pager");
    world.append = (ga_append){.growth = ga_growth_first(ga_pager_mailbox(world.client), 0),
                               .element = ELEMENT,
                               .step = STEP,
                               .refused = GA_APPEND_NONE_REFUSED};
    world.append.growth.refusal_ns = 20000; /* ns */
    world.append.growth.poll_ns = 1;
}

/* Write to an element of this thread, which may lie in two steps. */
static void use(uint64_t place, size_t number)
{
    uint64_t first = place * ELEMENT / STEP, last = ((place + 1) * ELEMENT - 1) / STEP;
    stress_need(place < PLACES, "a place within the limit");
    stress_need(world.backed[first] == BACKED && world.backed[last] == BACKED,
                "a place is used that is not backed");
    stress_need(world.owners[place] == 0, "a place is given twice");
    world.owners[place] = (uint32_t)number + 1u;
}

/* Append `number` elements. Returns true if all of them were granted. */
static bool append(size_t number, uint64_t *random)
{
    ga_lanes counts = ga_lanes_all(0);
    uint64_t taken = 0, wanted = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_lane_write(&counts, lane, (uint32_t)random_below(random, 4));
    }
    ga_appended got = ga_append_take(&world.append, ga_tile_of(32), counts);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint64_t at = got.first + ga_lane_read(got.before, lane);
        uint32_t n = ga_lane_read(counts, lane);
        wanted += n;
        for (uint32_t i = 0; at + n <= got.room && i < n; i++) {
            use(at + i, number);
            taken++;
        }
    }
    __atomic_fetch_add(&world.taken, taken, __ATOMIC_RELAXED);
    return taken == wanted;
}

static void work(size_t number)
{
    uint64_t random = world.round * THREADS + number + 1;
    while (append(number, &random)) {
        if (random_below(&random, 16) == 0) {
            sched_yield();
        }
    }
}

/* Check the vector as the host sees it (loan.c). */
static void check(void)
{
    uint64_t end =
        world.append.tail < world.append.refused ? world.append.tail : world.append.refused;
    uint64_t room = (uint64_t)world.limit * STEP / ELEMENT;
    stress_need(end == world.taken, "it ends where the first was refused, without a hole");
    for (uint64_t i = 0; i < end; i++) {
        stress_need(world.owners[i] != 0, "an element is nobody's");
    }
    stress_need(world.append.reason == GA_GROWTH_LIMIT || world.append.reason == GA_GROWTH_MEMORY,
                "there is a reason");
    stress_need(world.append.reason == GA_GROWTH_MEMORY ? world.refuse != 0 : end + 3 > room,
                "nobody is refused what there is");
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    uint32_t rounds = 0;
    while (stress_goes_on() || rounds < 30) {
        begin(rounds++);
        stress_threads(THREADS, work);
        ga_pager_remove(world.client);
        check();
    }
    printf("%u rounds\n", rounds);
    return 0;
}
