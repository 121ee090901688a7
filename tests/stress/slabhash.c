/* SPDX-License-Identifier: MIT
 *
 * Rounds of threads on tables of each kind, with fixed buckets or growing and compacted, one
 * operation at a time and in batches. Then each key is checked: a key that was inserted and not
 * deleted is there once, and no other key is there. Every search finds the keys that stay, and each
 * inserted value is deleted once. A thread's writes before an insert are visible to a thread that
 * finds the pair: the thread sanitizer checks this. Last, checked tables are misused.
 */
#include "stress.h"

#include <gpualloc/slabhash.h>

#include "support/random.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 4,
    KEYS = 400,
    STAYING = 50, /* of these, the first are never deleted */
    CALLS = 4000, /* of each thread in a round */
    BATCH = 100,  /* operations in a batch, now and then */
    RUSH = 3001,  /* keys of a table that grows from one bucket; a prime */
    VALUES = THREADS * CALLS + KEYS
};

static struct {
    ga_heap *heap;
    ga_slabhash *table;
    ga_slabhash_mode mode;
    bool multi, grows;
    uint64_t round;
    int32_t there[THREADS][KEYS];    /* for each thread and key: inserts minus deletions */
    uint8_t in[VALUES], out[VALUES]; /* by value, each written by one thread; relaxed for `out` */
    uint32_t messages[VALUES];       /* plain: by value, written before the value is inserted */
    uint64_t won[THREADS]; /* sum of the keys of a rush, by the thread that inserted each */
} world;

static bool has_values(void)
{
    return world.mode != GA_SLABHASH_SET32;
}

/* Keys of 64 bits differ in either half. */
static uint64_t key_of(uint64_t number)
{
    return world.mode == GA_SLABHASH_MAP64 && number % 2 ? number << 40 : number;
}

static uint64_t number_of(uint64_t key)
{
    return key >> 40 ? key >> 40 : key;
}

static void write_message(uint64_t value)
{
    world.messages[value] = (uint32_t)(value + world.round);
}

static void read_message(uint64_t value)
{
    if (has_values()) {
        stress_need(value < VALUES, "a value that nobody put in");
        stress_need(world.messages[value] == (uint32_t)(value + world.round),
                    "a value is found before what its owner did");
    }
}

/* Record that a value leaves the table: it was deleted or replaced. */
static void note_out(uint64_t value)
{
    if (has_values()) {
        /* relaxed: it is to be done once */
        stress_need(!__atomic_exchange_n(&world.out[value], 1, __ATOMIC_RELAXED),
                    "a value is taken out twice");
    }
}

static void put(size_t thread, uint64_t number, uint64_t value, bool replace)
{
    ga_slabhash_found was = {false, 0};
    write_message(value);
    ga_status status = replace && !world.multi
                           ? ga_slabhash_replace(world.table, key_of(number), value, &was)
                           : ga_slabhash_insert(world.table, key_of(number), value, &was);
    NEED(status == GA_OK);
    if (was.found) {
        read_message(was.value);
    }
    if (!was.found || replace) {
        world.in[value] = 1;
    }
    if (was.found && replace) {
        note_out(was.value);
    }
    world.there[thread][number] += was.found ? 0 : 1;
}

static void take(size_t thread, uint64_t number)
{
    ga_slabhash_found was;
    NEED(ga_slabhash_delete(world.table, key_of(number), &was) == GA_OK);
    if (was.found) {
        read_message(was.value);
        note_out(was.value);
        world.there[thread][number]--;
    }
}

static void look(uint64_t number)
{
    ga_slabhash_found found;
    NEED(ga_slabhash_search(world.table, key_of(number), &found) == GA_OK);
    stress_need(found.found || number >= STAYING, "a key that stays is not found");
    if (found.found) {
        read_message(found.value);
    }
}

/* A batch of inserts, whose values are `value` and those after it. */
static void put_batch(size_t thread, uint64_t value, uint64_t *random)
{
    uint32_t narrow[2][BATCH];
    uint64_t wide[2][BATCH], done;
    uint32_t numbers[BATCH];
    uint8_t results[BATCH];
    bool is_wide = world.mode == GA_SLABHASH_MAP64;
    for (uint32_t i = 0; i < BATCH; i++) {
        numbers[i] = STAYING + (uint32_t)random_below(random, KEYS - STAYING);
        write_message(value + i);
        wide[0][i] = key_of(numbers[i]);
        wide[1][i] = value + i;
        narrow[0][i] = (uint32_t)wide[0][i];
        narrow[1][i] = (uint32_t)wide[1][i];
    }
    ga_slabhash_batch batch = {.count = BATCH,
                               .keys = is_wide ? (void *)wide[0] : narrow[0],
                               .values = is_wide ? (void *)wide[1] : narrow[1],
                               .results = results,
                               .op = GA_SLABHASH_INSERT};
    NEED(ga_slabhash_run(world.table, &batch, &done) == GA_OK);
    NEED(done == BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        if (results[i] == GA_SLABHASH_ABSENT) {
            world.in[value + i] = 1;
            world.there[thread][numbers[i]]++;
        }
    }
}

static bool count_staying(void *context, uint64_t key, uint64_t value)
{
    uint32_t *seen = context;
    (void)value;
    if (number_of(key) < STAYING) {
        seen[number_of(key)]++;
    }
    return true;
}

/* A search of the whole table during other calls: each key that stays is reported once. */
static void look_at_all(void)
{
    uint32_t seen[STAYING] = {0};
    NEED(ga_slabhash_each(world.table, count_staying, seen) == GA_OK);
    for (uint32_t number = 0; number < STAYING; number++) {
        stress_need(seen[number] == 1, "a round does not see a key that stays once");
    }
}

static void work(size_t thread)
{
    uint64_t random = world.round * THREADS + thread;
    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t what = random_below(&random, 8), number = random_below(&random, KEYS);
        uint64_t value = KEYS + thread * CALLS + i;
        if (number >= STAYING && what < 3) {
            put(thread, number, value, what == 0 && !world.multi);
        } else if (number >= STAYING && what < 6) {
            take(thread, number);
        } else if (what == 7 && i % 500 == 0 && i + BATCH <= CALLS) {
            put_batch(thread, value, &random);
            i += BATCH - 1;
        } else if (what == 7 && i % 50 == 1 && world.grows) {
            NEED(ga_slabhash_compact(world.table) == GA_OK);
        } else if (what == 7 && i % 50 == 2) {
            look_at_all();
        } else {
            look(number);
        }
    }
}

/* ---- after it ---------------------------------------------------------------------------------
 * */

static bool see(void *context, uint64_t key, uint64_t value)
{
    uint32_t *seen = context;
    stress_need(number_of(key) < KEYS, "a key that nobody put in");
    seen[number_of(key)]++;
    read_message(value);
    if (has_values()) {
        stress_need(world.in[value], "a value that nobody put in is there");
        note_out(value);
    }
    return true;
}

static void check(void)
{
    static uint32_t seen[KEYS];
    memset(seen, 0, sizeof seen);
    NEED(ga_slabhash_each(world.table, see, seen) == GA_OK);
    for (uint32_t number = 0; number < KEYS; number++) {
        int32_t there = 0;
        for (uint32_t thread = 0; thread < THREADS; thread++) {
            there += world.there[thread][number];
        }
        if (there != (int32_t)seen[number]) {
            fprintf(stderr, "key %u of a %s%s: put in and not taken out %d times, there %u times\n",
                    number, world.multi ? "multi" : "", ga_slabhash_mode_text(world.mode), there,
                    seen[number]);
        }
        stress_need(there == (int32_t)seen[number], "keys are lost or doubled");
        stress_need(world.multi || seen[number] <= 1, "a key is there twice");
    }
    for (uint32_t value = 0; has_values() && value < VALUES; value++) {
        stress_need(world.in[value] == world.out[value], "a value is lost");
    }
}

static void open_table(void)
{
    uint64_t random = world.round;
    uint32_t buckets = 1 + (uint32_t)random_below(&random, random_below(&random, 2) ? 40 : 8);
    uint32_t longest = buckets < 6 ? buckets : 6;
    world.mode = (ga_slabhash_mode)(world.round % GA_SLABHASH_MODE_COUNT);
    world.multi = world.round / GA_SLABHASH_MODE_COUNT % 2 == 1;
    world.grows = world.round / GA_SLABHASH_MODE_COUNT % 4 >= 2;
    ga_slabhash_options options = {
        .options_size = sizeof options,
        .flags = (world.multi ? GA_SLABHASH_MULTI : 0u) | (world.grows ? GA_SLABHASH_GROW : 0u),
        .mode = world.mode,
        .buckets = buckets,
        .path = world.grows ? 1 : 1 + (uint32_t)random_below(&random, longest),
        .seed = world.round + 1,
        .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
}

/* ---- a rush: all threads put all keys in, each in an order of its own; then take them out ---- */

static void rush_in(size_t thread)
{
    for (uint64_t i = 0; i < RUSH; i++) {
        uint64_t number = (i * (2 * thread + 1) + thread * RUSH / THREADS) % RUSH;
        ga_slabhash_found was;
        NEED(ga_slabhash_insert(world.table, key_of(number), number, &was) == GA_OK);
        world.won[thread] += was.found ? 0 : 1;
        NEED(ga_slabhash_search(world.table, key_of(number), &was) == GA_OK);
        stress_need(was.found && (!has_values() || was.value == number), "a key is lost");
    }
}

static void rush_out(size_t thread)
{
    for (uint64_t i = 0; i < RUSH; i++) {
        uint64_t number = (i * (2 * thread + 1) + thread * RUSH / THREADS) % RUSH;
        ga_slabhash_found was;
        NEED(ga_slabhash_delete(world.table, key_of(number), &was) == GA_OK);
        world.won[thread] += was.found ? 1 : 0;
        NEED(ga_slabhash_search(world.table, key_of(number), &was) == GA_OK);
        stress_need(!was.found, "a key that was taken out is there");
    }
}

static void rush(void (*work_of)(size_t thread), uint64_t size)
{
    uint64_t won = 0, there;
    memset(world.won, 0, sizeof world.won);
    stress_threads(THREADS, work_of);
    for (uint32_t thread = 0; thread < THREADS; thread++) {
        won += world.won[thread];
    }
    stress_need(won == RUSH, "a key is put in or taken out twice, or by nobody");
    NEED(ga_slabhash_size(world.table, &there) == GA_OK);
    stress_need(there == size, "the size is wrong");
}

static void grow_and_shrink(void)
{
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .flags = GA_SLABHASH_GROW,
                                   .mode = world.mode,
                                   .buckets = 1,
                                   .seed = world.round + 1,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    rush(rush_in, RUSH);
    rush(rush_out, 0);
    NEED(ga_slabhash_close(world.table) == GA_OK);
}

/* ---- a checked table: one thread makes exclusive calls, and then closes it ------------------- */

static bool refused(ga_status status)
{
    stress_need(status == GA_OK || status == GA_ERR_ARGUMENT, "a call fails");
    return status != GA_OK;
}

/* Other threads call until a call reports that the table is closed. */
static void misuse(size_t thread)
{
    for (uint64_t i = 0; thread == 0 && i < 500; i++) {
        (void)refused(i % 2 ? ga_slabhash_clear(world.table) : ga_slabhash_flush(world.table));
        sched_yield();
    }
    while (thread == 0 && refused(ga_slabhash_close(world.table))) {
        sched_yield();
    }
    for (uint64_t key = thread; thread; key = (key + THREADS) % KEYS) {
        ga_slabhash_found was;
        if (refused(ga_slabhash_insert(world.table, key, key, NULL)) &&
            strstr(ga_error_text(), "closed")) {
            break;
        }
        if (!refused(ga_slabhash_search(world.table, key, &was)) && was.found) {
            stress_need(!has_values() || was.value == key, "another value is found");
        }
        (void)refused(ga_slabhash_delete(world.table, key, NULL));
        sched_yield();
    }
}

static void misuse_one(void)
{
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .flags = GA_SLABHASH_CHECK |
                                            (world.grows ? GA_SLABHASH_GROW : 0u) |
                                            (world.multi ? GA_SLABHASH_MULTI : 0u),
                                   .mode = world.mode,
                                   .buckets = 4,
                                   .seed = 1,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    stress_threads(THREADS, misuse);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    world.heap = stress_open("system");
    for (; stress_goes_on() || world.round < 4 * GA_SLABHASH_MODE_COUNT; world.round++) {
        memset(world.there, 0, sizeof world.there);
        memset(world.in, 0, sizeof world.in);
        memset(world.out, 0, sizeof world.out);
        open_table();
        for (uint64_t number = 0; number < STAYING; number++) {
            put(0, number, number, false);
        }
        stress_threads(THREADS, work);
        check();
        NEED(ga_slabhash_close(world.table) == GA_OK);
        if (world.grows && !world.multi) {
            grow_and_shrink();
        }
        misuse_one();
    }
    printf("%" PRIu64 " rounds\n", world.round);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
