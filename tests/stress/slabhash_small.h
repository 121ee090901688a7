/* SPDX-License-Identifier: MIT
 *
 * Shared by programs that make short histories on small tables, where threads compete for overflow
 * bits, a link or a slot: other keys fill the tables, and tombstones accumulate until a flush. One
 * of the threads compacts the tables that grow.
 *
 * A table serves BATCH histories. In each, all threads meet, make CALLS calls each, and meet again.
 */
#ifndef GPUALLOC_TESTS_STRESS_SLABHASH_SMALL_H
#define GPUALLOC_TESTS_STRESS_SLABHASH_SMALL_H

#include "stress.h"

#include <gpualloc/slabhash.h>

#include "support/hashes.h"
#include "support/moments.h"
#include "support/random.h"

#include <stdio.h>

enum {
    THREADS_MAX = 4,
    CALLS = 6,       /* of each thread */
    BATCH = 256,     /* histories of a table, and between two reads of the clock */
    FLUSHES = 8,     /* histories between two flushes */
    OTHERS = 1000,   /* keys from here on fill tables up */
    OTHERS_MAX = 130 /* there are fewer than OTHERS_MAX other keys */
};

static struct {
    ga_heap *heap;
    ga_slabhash *table;
    ga_slabhash_mode mode;
    bool grows;
    uint32_t ordered; /* 1 if keys may be in order; a flush does not keep the order */
    uint64_t random;
    uint64_t histories, keys, threads;
    uint64_t compacts; /* before which call of the last thread */
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have arrived at a barrier */
} world;

/* ---- provided by each program ---------------------------------------------------------------- */

/* Open world.table, by open_small(). */
static void open_table(void);

/* Draw the calls of each thread: CALLS calls, those of thread n from n * CALLS on. */
static void draw(void);

/* Make that call. */
static void do_call(size_t which);

/* Check the results of the calls; no other thread is running. */
static void check(void);

/* ---- tables ---------------------------------------------------------------------------------- */

/* The number of tables of each mode so far; the modes alternate. */
static uint64_t round_of_modes(void)
{
    return world.histories / BATCH / GA_SLABHASH_MODE_COUNT;
}

/* Open a table of the next mode; world.grows is set. */
static void open_small(uint32_t flags)
{
    static ga_slabhash_hash *const hashes[] = {NULL, hash_same, hash_two, hash_same};
    uint32_t buckets = 1 + (uint32_t)random_below(&world.random, 4);
    uint32_t path = 1 + (uint32_t)random_below(&world.random, buckets);
    world.mode = (ga_slabhash_mode)(world.histories / BATCH % GA_SLABHASH_MODE_COUNT);
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .flags = flags | (world.grows ? GA_SLABHASH_GROW : 0u),
                                   .mode = world.mode,
                                   .buckets = buckets,
                                   .path = world.grows ? 1 : path,
                                   .hash = hashes[random_below(&world.random, 4)],
                                   .seed = 1,
                                   .limit = 1 << 20,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    world.ordered = 1;
}

static void take_out(uint64_t from, uint64_t to)
{
    for (uint64_t key = from; key < to; key++) {
        NEED(ga_slabhash_delete_all(world.table, key, NULL) == GA_OK);
    }
}

/* The next history begins with none of its keys. Other keys leave few slots free, and some slots
 * are full of deleted ones. */
static void prepare(uint64_t number)
{
    take_out(0, world.keys);
    if (number % FLUSHES == 0) {
        uint64_t others = random_below(&world.random, OTHERS_MAX);
        take_out(OTHERS, OTHERS + OTHERS_MAX);
        if (random_below(&world.random, 2)) {
            NEED(ga_slabhash_flush(world.table) == GA_OK);
            world.ordered = 0;
        } else {
            NEED(ga_slabhash_clear(world.table) == GA_OK);
            world.ordered = 1;
        }
        for (uint64_t key = OTHERS; key < OTHERS + others; key++) {
            NEED(ga_slabhash_insert(world.table, key, 1, NULL) == GA_OK);
        }
    }
}

/* ---- histories ------------------------------------------------------------------------------- */

static void work(size_t number)
{
    uint64_t turn = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            prepare(i);
            draw();
            world.compacts = world.grows ? random_below(&world.random, CALLS + 1) : CALLS;
        }
        history_meet(&world.arrivals, ++turn, world.threads);
        for (uint32_t c = 0; c < CALLS; c++) {
            if (c == world.compacts && number == world.threads - 1) {
                NEED(ga_slabhash_compact(world.table) == GA_OK);
            }
            do_call(number * CALLS + c);
        }
        history_meet(&world.arrivals, ++turn, world.threads);
        if (number == 0) {
            check();
        }
    }
}

/* Make histories with 1 to `keys_max` keys, until the time is over and each mode has had `rounds`
 * tables. */
static void make_histories(uint64_t keys_max, uint64_t rounds)
{
    world.heap = stress_open("system");
    while (stress_goes_on() || round_of_modes() < rounds) {
        world.random = world.histories;
        world.threads = 2 + world.histories / BATCH % (THREADS_MAX - 1);
        world.keys = 1 + random_below(&world.random, keys_max);
        world.arrivals = 0;
        open_table();
        stress_threads(world.threads, work);
        NEED(ga_slabhash_close(world.table) == GA_OK);
        world.histories += BATCH;
    }
    printf("%llu histories\n", (unsigned long long)world.histories);
    NEED(ga_heap_close(world.heap) == GA_OK);
}

#endif
