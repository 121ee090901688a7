/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, use one small slab heap that is full half of the time. The owner of a unit
 * writes all of it plainly, and reads it before freeing it: this detects overlaps, and the thread
 * sanitizer reports a missing order. Between rounds the counts match the bitmaps, and no claim has
 * returned FULL while there was room.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include "stress.h"

#include "support/slab_actor.h"
#include "support/slab_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS_MAX = 8,
    LANES = 32,
    HELD = 3 * GA_SLAB_BLOCK_UNITS,
    STEPS = 600, /* of a thread in a round */
    EMPTIED = 300,
    BACKLOG = 256 /* units on their way from one thread to another */
};

static slab_world *world; /* of this round */
static size_t threads;
static uint32_t seed;
static uint64_t got_full, got_units; /* relaxed: sums, read after all have joined */

static void add(uint64_t *sum, uint64_t n)
{
    __atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
}

static void need_rest(uint64_t live)
{
    uint32_t block = slab_world_wrong(world);
    uint64_t got = slab_world_live(world);
    if (block != GA_SLAB_FULL) {
        fprintf(stderr, "block %u: count %u, %u clear bits\n", block,
                slab_world_count(world, block), slab_world_room(world, block));
    }
    if (got != live) {
        fprintf(stderr, "%llu units live, expected %llu\n", (unsigned long long)got,
                (unsigned long long)live);
    }
    stress_need(block == GA_SLAB_FULL, "a count is not what the bitmap says");
    stress_need(got == live, "units were lost, or left");
}

/* ---- units with tags ----------------------------------------------------------------------- */

static uint64_t *memory_of(uint32_t unit)
{
    return ga_slab_pointer(ga_slab_view_of(&world->heap), unit);
}

static uint64_t tag_of(uint32_t unit, uint64_t owner)
{
    return (owner + 1) << 32 | unit;
}

/* Write the whole unit, so that an overlap in a neighbour's last byte is detected, too. */
static void tag(const uint32_t *units, uint32_t n, uint64_t owner)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *memory = memory_of(units[i]);
        for (uint32_t word = 0; word < world->shape.unit / 8; word++) {
            memory[word] = tag_of(units[i], owner);
        }
    }
}

static void check(const uint32_t *units, uint32_t n, uint64_t owner)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *memory = memory_of(units[i]);
        for (uint32_t word = 0; word < world->shape.unit / 8; word++) {
            if (memory[word] != tag_of(units[i], owner)) {
                fprintf(stderr, "unit %u: word %u is %#llx, expected %#llx\n", units[i], word,
                        (unsigned long long)memory[word],
                        (unsigned long long)tag_of(units[i], owner));
                stress_need(false, "two own a unit");
            }
        }
    }
}

static uint32_t claim(slab_actor *actor, uint32_t wanted, uint32_t *units)
{
    slab_claim_kind kind = (slab_claim_kind)random_below(&actor->random, SLAB_CLAIM_KINDS);
    uint32_t got = slab_actor_claim(actor, kind, wanted, units);
    add(&got_units, got);
    add(&got_full, got < wanted);
    return got;
}

static uint32_t up_to(slab_actor *actor, uint32_t max)
{
    return 1 + (uint32_t)random_below(&actor->random, max);
}

/* ---- each thread by itself ----------------------------------------------------------------- */

/* Pick some of the held units, in random order. */
static uint32_t pick(slab_actor *actor, uint32_t *held, uint32_t *count, uint32_t *units)
{
    uint32_t n = up_to(actor, LANES);
    n = n < *count ? n : *count;
    for (uint32_t i = 0; i < n; i++) {
        size_t at = random_below(&actor->random, *count);
        units[i] = held[at];
        held[at] = held[--*count];
    }
    return n;
}

static void drop(slab_actor *actor, uint32_t *held, uint32_t *count, uint64_t owner)
{
    uint32_t units[LANES];
    uint32_t n = pick(actor, held, count, units);
    check(units, n, owner);
    slab_actor_release(actor, units, n);
}

/* Together all threads request a little more than the heap has. */
static void mix(size_t number)
{
    uint32_t held[HELD + LANES];
    uint32_t count = 0;
    uint32_t max = (uint32_t)(slab_world_units(world) / threads) + LANES;
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed + (uint32_t)number);
    for (int step = 0; step < STEPS; step++) {
        if (count < max && random_below(&actor.random, 100) < 70) {
            uint32_t got = claim(&actor, up_to(&actor, LANES), held + count);
            tag(held + count, got, number);
            count += got;
        } else if (count) {
            drop(&actor, held, &count, number);
        }
        if (random_below(&actor.random, 50) == 0) {
            slab_actor_rest(&actor);
        }
    }
    while (count) {
        drop(&actor, held, &count, number);
    }
    slab_actor_rest(&actor);
}

/* This thread is alone now: it can claim every free unit. */
static void need_all(void)
{
    uint32_t units[LANES];
    uint64_t all = 0;
    uint32_t got;
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed);
    do {
        got = slab_actor_claim(&actor, (slab_claim_kind)(seed % SLAB_CLAIM_KINDS), LANES, units);
        all += got;
    } while (got == LANES);
    stress_need(all == slab_world_units(world), "FULL before the last unit");
    need_rest(all);
}

static void mixed(ga_slab_shape shape)
{
    world = slab_world_new(shape, shape.supers, SLAB_WORLD_FREE);
    for (int round = 0; round < 4; round++) {
        stress_threads(threads, mix);
        need_rest(0);
    }
    need_all();
    slab_world_delete(world);
}

/* ---- units that another thread frees ------------------------------------------------------- */

/* From each producer to its consumer. The lock orders these two threads, and no others. */
static struct line {
    pthread_mutex_t lock;
    uint32_t units[BACKLOG];
    uint32_t count;
    bool over;
} lines[THREADS_MAX / 2];

static void produce(size_t pair)
{
    struct line *line = &lines[pair];
    uint32_t units[LANES];
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed + (uint32_t)pair);
    for (int step = 0; step < STEPS; step++) {
        uint32_t got = claim(&actor, up_to(&actor, LANES), units);
        tag(units, got, pair);
        pthread_mutex_lock(&line->lock);
        while (line->count + got > BACKLOG) {
            pthread_mutex_unlock(&line->lock);
            sched_yield();
            pthread_mutex_lock(&line->lock);
        }
        for (uint32_t i = 0; i < got; i++) {
            line->units[line->count++] = units[i];
        }
        pthread_mutex_unlock(&line->lock);
    }
    slab_actor_rest(&actor);
    pthread_mutex_lock(&line->lock);
    line->over = true;
    pthread_mutex_unlock(&line->lock);
}

static void consume(size_t pair)
{
    struct line *line = &lines[pair];
    uint32_t units[LANES];
    uint32_t n;
    bool over;
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed + (uint32_t)pair);
    do {
        pthread_mutex_lock(&line->lock);
        n = line->count ? pick(&actor, line->units, &line->count, units) : 0;
        over = line->over && !line->count;
        pthread_mutex_unlock(&line->lock);
        check(units, n, pair);
        slab_actor_release(&actor, units, n);
        if (!n) {
            sched_yield();
        }
    } while (!over);
}

static void hand_over(size_t number)
{
    if (number % 2) {
        consume(number / 2);
    } else {
        produce(number / 2);
    }
}

static void handed(ga_slab_shape shape)
{
    world = slab_world_new(shape, shape.supers, SLAB_WORLD_FREE);
    for (size_t i = 0; i < THREADS_MAX / 2; i++) {
        pthread_mutex_init(&lines[i].lock, NULL);
        lines[i].count = 0;
        lines[i].over = false;
    }
    threads += threads % 2;
    stress_threads(threads, hand_over);
    need_rest(0);
    slab_world_delete(world);
}

/* ---- the last units ------------------------------------------------------------------------ */

static uint64_t arrived;   /* M1, M2 */
static uint64_t told_full; /* relaxed: the number of FULL results, read behind the meeting */

/* Let all threads continue at nearly the same time. A lock would release them one after the
 * other. */
static void meet(uint64_t *meetings)
{
    uint64_t all = ++*meetings * threads;
    /* M1: acquire and release. Pairs with M2, where the others leave. */
    __atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL);
    /* M2: acquire. Pairs with M1, where each arrives. */
    for (uint32_t spins = 1; __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < all; spins++) {
        if (spins % 1024 == 0) {
            sched_yield();
        }
    }
}

/* Free a few units that lie close together: claims lose races there. */
static void free_some(slab_actor *actor)
{
    uint32_t words = (uint32_t)slab_world_units(world) / LANES;
    uint32_t near = (uint32_t)random_below(&actor->random, words - 3) * LANES;
    for (uint32_t n = up_to(actor, 3 * LANES); n; n--) {
        uint32_t unit = near + (uint32_t)random_below(&actor->random, 4 * LANES);
        if (slab_world_taken(world, unit)) {
            slab_actor_release(actor, &unit, 1);
        }
    }
}

static void take_all(slab_actor *actor)
{
    uint32_t units[LANES];
    while (slab_actor_claim(actor, SLAB_LANES, LANES, units) == LANES) {
    }
}

/* While no thread frees, FULL stays true: every free unit can be claimed, even by calls that lose
 * races. */
static void empty(size_t number)
{
    uint32_t units[LANES];
    uint64_t meetings = 0;
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed + (uint32_t)number);
    for (int round = 0; round < EMPTIED; round++) {
        uint32_t wanted = up_to(&actor, number % 2 ? 4 : LANES);
        if (number == 0) {
            free_some(&actor);
            told_full = 0;
        }
        meet(&meetings);
        add(&told_full, claim(&actor, wanted, units) < wanted);
        actor.claimed.units = 0; /* they stay taken */
        meet(&meetings);
        if (number == 0) {
            uint64_t left = slab_world_units(world) - slab_world_live(world);
            if (told_full && left) {
                fprintf(stderr, "%llu units are free\n", (unsigned long long)left);
                stress_need(false, "FULL while there is room");
            }
            take_all(&actor);
        }
    }
}

static void emptied(ga_slab_shape shape)
{
    world = slab_world_new(shape, shape.supers, SLAB_WORLD_TAKEN);
    arrived = 0;
    stress_threads(threads, empty);
    need_rest(slab_world_units(world));
    slab_world_delete(world);
}

/* ---- growth -------------------------------------------------------------------------------- */

static pthread_mutex_t growth = PTHREAD_MUTEX_INITIALIZER;
static uint64_t grown_units; /* relaxed: a sum */

/* A thread that gets FULL adds a superblock, unless another thread has added one since `seen`.
 * Returns false if the limit is reached. */
static bool grow(uint32_t *seen)
{
    pthread_mutex_lock(&growth);
    bool can = *seen < world->shape.supers;
    if (world->heap.super_count == *seen && can) {
        slab_world_grow(world);
    }
    *seen = world->heap.super_count;
    pthread_mutex_unlock(&growth);
    return can;
}

/* Find units by their pointers while superblocks are inserted between theirs. */
static void look_up(const uint32_t *units, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t found = ga_slab_unit(ga_slab_view_of(&world->heap), memory_of(units[i]));
        if (found != units[i]) {
            fprintf(stderr, "unit %u was found as %u\n", units[i], found);
            stress_need(false, "a pointer's unit");
        }
    }
}

/* Look up some units of the first superblock while others are added. */
static void look_on(slab_actor *actor)
{
    uint32_t units[LANES];
    uint32_t got = claim(actor, LANES, units);
    /* acquire, as in ga_slab_unit(). Pairs with the release store of super_count in slab_heap.h. */
    while (__atomic_load_n(&world->heap.super_count, __ATOMIC_ACQUIRE) < world->shape.supers) {
        look_up(units, got);
    }
    add(&grown_units, got);
}

static void fill_and_grow(size_t number)
{
    uint32_t units[LANES];
    uint32_t seen = 1;
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, seed + (uint32_t)number);
    if (number == 0) {
        look_on(&actor);
    }
    do {
        uint32_t wanted = up_to(&actor, LANES);
        uint32_t got = wanted;
        while (got == wanted) {
            got = claim(&actor, wanted, units);
            tag(units, got, number);
            check(units, got, number);
            add(&grown_units, got);
        }
    } while (grow(&seen));
    add(&grown_units, ga_bits_count(actor.claimed.units));
}

static void grown(ga_slab_shape shape)
{
    shape.light = false;
    shape.supers = 20;
    world = slab_world_new(shape, 1, SLAB_WORLD_FREE);
    grown_units = 0;
    stress_threads(threads, fill_and_grow);
    stress_need(grown_units == slab_world_units(world), "not all units of all super blocks");
    need_rest(grown_units);
    slab_world_delete(world);
}

int main(int argc, char **argv)
{
    /* One memory block, several, and more than a row of counts. */
    static const ga_slab_shape shapes[] = {{48, 0, 1, GA_SLAB_SPREAD_HOST, true},
                                           {128, 1, 1, GA_SLAB_SPREAD_HOST, false},
                                           {16, 0, 3, GA_SLAB_SPREAD_HOST, false},
                                           {16, 0, 40, GA_SLAB_SPREAD_HOST, true}};
    uint32_t least = GA_PLANTED_ANY ? 200 : 1; /* so that a busy machine does not miss the bug */
    stress_begin(argc, argv);
    for (uint32_t round = 0; round < least || stress_goes_on(); round++) {
        ga_slab_shape shape = shapes[round % 3];
        seed = round * THREADS_MAX;
        threads = 2 + round % (THREADS_MAX - 1);
        mixed(shape);
        handed(shape);
        emptied(shapes[round % 4]);
        grown(shape);
    }
    stress_need(got_full > 0, "a heap that is full now and then");
    printf("%llu units, %llu times FULL\n", (unsigned long long)got_units,
           (unsigned long long)got_full);
    return 0;
}
