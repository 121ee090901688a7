/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, claim units of a growing slab heap; a pager runs beside them. The pager
 * commits a superblock by a plain write, and owners write to their units plainly, so the thread
 * sanitizer reports a missing order. Until a tile prepares a superblock, its rows show all units as
 * taken. No unit has two owners, no uncommitted unit is used, and no claim fails while there is
 * room.
 *
 * Planted bugs (meson.build) leave out one step when a superblock is prepared; then it must fail.
 */
#define GA_SLAB_PREPARED_WORDS 64u /* words of one superblock, prepared in two parts */
#include "backends/slab/units/slab_growing.h"
#include "backends/slab/units/shape.h"
#include "growth/pager.h"

#include "stress.h"

#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 24,
    SUPER_BITS = 1,
    STEP_UNITS = 1024 << SUPER_BITS,
    STEP_WORDS = STEP_UNITS / 32,
    UNITS = STEPS * STEP_UNITS,
    THREADS = 6,
    KEPT = UNITS + 32, /* so that a thread that is left alone can take them all */
    REFUSALS = 40,
    BACKED = 0x5a5a
};

static struct {
    ga_slab_heap heap;
    ga_growth growth;
    uint32_t rows[STEPS * STEP_WORDS] __attribute__((aligned(128)));
    uint32_t counts[STEPS * 2 + 1024] __attribute__((aligned(128)));
    uint32_t backed[STEPS]; /* plain: written by the pager, read by the owner of a unit there */
    uint32_t owners[UNITS]; /* plain: written by the unit's owner */
    uint32_t limit;         /* steps; set before the threads */
    uint32_t refuse;        /* the request that is refused for lack of memory */
    uint32_t requests;      /* the pager's */
    uint32_t round;
    ga_pager_client *client;
} world;

/* Commits up to three steps ahead; one request may be refused. */
static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    uint32_t reach = wanted + wanted % 4u;
    (void)context;
    if (++world.requests == world.refuse) {
        return GA_GROWTH_MEMORY;
    }
    for (; *backed < reach && *backed < world.limit; ++*backed) {
        world.backed[*backed] = BACKED;
    }
    return *backed >= wanted ? GA_GROWTH_GRANTED : GA_GROWTH_LIMIT;
}

static void begin(uint32_t round)
{
    ga_slab_shape shape = {.unit = 16,
                           .super_bits = SUPER_BITS,
                           .supers = STEPS,
                           .spread = GA_SLAB_SPREAD_HOST,
                           .light = true};
    memset(&world, 0, sizeof world);
    memset(world.rows, 0xff, sizeof world.rows);
    ga_slab_heap_shape(&world.heap, &shape);
    world.round = round;
    world.limit = round % 4 ? STEPS : 1 + round % STEPS;
    world.refuse = round % 3 ? 0 : 2 + round % 5;
    world.heap.rows = world.rows;
    world.heap.units = (char *)(uintptr_t)(1 << 20); /* addresses only */
    world.heap.free = world.counts;
    world.heap.growth = &world.growth;
    world.backed[0] = BACKED;
    stress_need(ga_pager_add(&world.client, GA_PAGER_HOST, 1, back, NULL) == GA_OK, "a pager");
    world.growth = ga_growth_first(ga_pager_mailbox(world.client), 1);
    world.growth.refusal_ns = 20000; /* ns */
    world.growth.poll_ns = 1;
    ga_slab_prepare(ga_tile_of(32), &world.heap, 0, 1);
}

static void own(uint32_t unit, size_t number)
{
    stress_need(unit / STEP_UNITS < world.limit, "a unit within the limit");
    stress_need(world.backed[unit / STEP_UNITS] == BACKED, "a unit is used that is not backed");
    stress_need(world.owners[unit] == 0, "a unit has two owners");
    world.owners[unit] = (uint32_t)number + 1u;
}

/* As ga_slab_kernel_claim() for a whole warp. */
static ga_lanes claim_whole(uint32_t number)
{
    ga_slab_tried tried;
    ga_slab_view slab = ga_slab_view_of(&world.heap);
    if (ga_slab_claim_fast(slab, false, number % slab.words, &tried)) {
        return ga_lanes_numbers(ga_tile_of(32)) + tried.word * 32u;
    }
    ga_lanes units = ga_slab_claim_slow_warp(&world.heap, GA_ALL_BITS, number % slab.words,
                                             tried.word, tried.got, ga_slab_words(&world.heap));
    return ga_slab_claim_growing(&world.heap, GA_ALL_BITS, number, units);
}

/* Claim for some lanes, or for all. Returns the number of lanes that got none. */
static uint32_t claim(size_t number, uint64_t *random, uint32_t *kept, uint32_t *count)
{
    uint32_t lanes = random_below(random, 2) ? GA_ALL_BITS : (uint32_t)random_next(random) | 1u;
    uint32_t home = (uint32_t)random_next(random);
    uint32_t refused = 0;
    ga_lanes units = lanes == GA_ALL_BITS ? claim_whole(home)
                                          : ga_slab_claim_growing(&world.heap, lanes, home,
                                                                  ga_lanes_all(GA_SLAB_FULL));
    for (uint32_t rest = lanes; rest; rest &= rest - 1u) {
        uint32_t unit = ga_lane_read(units, ga_bits_lowest(rest));
        if (unit == GA_SLAB_FULL) {
            refused++;
        } else {
            own(unit, number);
            kept[(*count)++] = unit;
        }
    }
    return refused;
}

/* Free up to 32 of the held units. */
static void release(size_t number, uint32_t *kept, uint32_t *count)
{
    ga_lanes units = ga_lanes_all(GA_SLAB_FULL);
    uint32_t n = *count < 32 ? *count : 32;
    for (uint32_t lane = 0; lane < n; lane++) {
        uint32_t unit = kept[--*count];
        stress_need(world.owners[unit] == (uint32_t)number + 1u, "a unit is its owner's still");
        world.owners[unit] = 0;
        ga_lane_write(&units, lane, unit);
    }
    if (n) {
        ga_slab_release_lanes(ga_slab_view_of(&world.heap), ga_tile_of(32), ga_bits_below(n),
                              units);
    }
}

static void work(size_t number)
{
    static uint32_t kept[THREADS][KEPT];
    uint64_t random = world.round * THREADS + number + 1;
    uint32_t count = 0, refusals = 0;
    while (refusals < REFUSALS) {
        if (count + 32 > KEPT || random_below(&random, 8) == 0) {
            release(number, kept[number], &count);
        } else if (claim(number, &random, kept[number], &count)) {
            refusals++;
            sched_yield();
        }
    }
    while (count) {
        release(number, kept[number], &count);
    }
}

/* All threads rest: every unit is free, and the limit's number of superblocks is there. */
static void check(void)
{
    uint32_t ready = ga_growth_ready(&world.growth);
    stress_need(ready <= world.limit, "no more than the limit");
    stress_need(world.refuse || ready == world.limit, "it grew to its limit before it refused");
    stress_need(world.heap.words == ready * STEP_WORDS, "as many words as super blocks");
    stress_need(!ga_slab_is_low(ga_slab_view_of(&world.heap), ga_tile_of(32)), "free units");
    for (uint32_t block = 0; block < ready << SUPER_BITS; block++) {
        uint32_t place = ga_slab_count_index(GA_SLAB_SPREAD, block);
        stress_need(world.counts[place] == 1024, "all units of a memory block are free");
    }
    for (uint32_t word = 0; word < world.heap.words; word++) {
        stress_need(world.rows[word] == 0, "and so their bits say");
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    uint32_t rounds = 0;
    while (stress_goes_on() || rounds < 12) {
        begin(rounds++);
        stress_threads(THREADS, work);
        ga_pager_remove(world.client);
        check();
    }
    printf("%u rounds\n", rounds);
    return 0;
}
