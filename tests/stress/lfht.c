/* SPDX-License-Identifier: MIT
 *
 * Threads insert keys into a map and remove them, in rounds: every variant, with shapes that make
 * it expand and shrink all the time. Three sorts of keys share the buckets. Keys that are always
 * present, with changing values, must be found by every lookup. Absent keys must never be found.
 * For all other keys, inserts minus removals must equal the final contents. A value names its key.
 * After each round all keys are removed: removed nodes must be freed, and the heap's blocks are
 * counted.
 */
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 6,
    KEYS_MAX = 1024,
    SOME = 30,   /* keys of a batch */
    STEPS = 4000 /* of each thread and round */
};

typedef enum sort {
    COMES_AND_GOES = 0, /* two of four */
    ALWAYS = 2,
    NEVER = 3
} sort;

static struct {
    ga_heap *heap;
    ga_lfht *map;
    uint64_t keys, spread, round, steps;
    int64_t net[KEYS_MAX]; /* relaxed: inserts minus removals, a sum */
} world;

/* A hash with few values, or with one path of the trie: keys collide in full. */
static uint64_t coarse(void *context, uint64_t key)
{
    (void)context;
    return world.spread ? key % world.spread * UINT64_C(0x9e3779b97f4a7c15) : 7;
}

static uint64_t key_of(uint64_t number)
{
    return number == 0 ? UINT64_MAX : number == 1 ? 0 : number * UINT64_C(0x100000001b3);
}

static sort sort_of(uint64_t number)
{
    return number % 4 >= ALWAYS ? (sort)(number % 4) : COMES_AND_GOES;
}

static uint64_t value_of(uint64_t number, uint64_t *random)
{
    return number << 32 | (random_next(random) & 0xffffffff);
}

static void need_owner(ga_lfht_found was, uint64_t number)
{
    stress_need(!was.found || was.value >> 32 == number, "a key has another's value");
}

static void count(uint64_t number, int64_t change)
{
    __atomic_fetch_add(&world.net[number], change, __ATOMIC_RELAXED);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void change(uint64_t number, uint64_t *random)
{
    uint64_t key = key_of(number), value = value_of(number, random);
    ga_lfht_found was;
    switch (random_below(random, 8)) {
    case 0:
        NEED(ga_lfht_upsert(world.map, key, value, &was) == GA_OK);
        count(number, !was.found);
        break;
    case 1:
        NEED(ga_lfht_replace(world.map, key, value, &was) == GA_OK);
        break;
    case 2:
    case 3:
    case 4:
        NEED(ga_lfht_insert(world.map, key, value, &was) == GA_OK);
        count(number, !was.found);
        break;
    default:
        NEED(ga_lfht_remove(world.map, key, &was) == GA_OK);
        count(number, -(int64_t)was.found);
    }
    need_owner(was, number);
}

static void change_value(uint64_t number, uint64_t *random)
{
    uint64_t key = key_of(number);
    ga_lfht_found was, old;
    NEED(ga_lfht_lookup(world.map, key, &old) == GA_OK);
    stress_need(old.found, "a key that is always there is not found");
    need_owner(old, number);
    NEED(ga_lfht_compare_replace(world.map, key, old.value, value_of(number, random), &was) ==
         GA_OK);
    stress_need(was.found, "a key that is always there is not there to be replaced");
    need_owner(was, number);
}

static void need_found(ga_lfht_found found, uint64_t number)
{
    need_owner(found, number);
    stress_need(found.found || sort_of(number) != ALWAYS, "a key that is always there is lost");
    stress_need(!found.found || sort_of(number) != NEVER, "a key is found that is never there");
}

static void look(uint64_t number)
{
    ga_lfht_found found;
    NEED(ga_lfht_lookup(world.map, key_of(number), &found) == GA_OK);
    need_found(found, number);
}

/* Look up neighbouring keys as a batch. */
static void look_at_some(uint64_t number)
{
    uint64_t keys[SOME];
    ga_lfht_found found[SOME];
    for (uint64_t i = 0; i < SOME; i++) {
        keys[i] = key_of((number + i) % world.keys);
    }
    NEED(ga_lfht_lookup_batch(world.map, keys, SOME, found) == GA_OK);
    for (uint64_t i = 0; i < SOME; i++) {
        need_found(found[i], (number + i) % world.keys);
    }
}

/* Neighbouring keys put as a batch, as far as they are keys that come and go. */
static void put_some(uint64_t number, uint64_t *random)
{
    uint64_t keys[SOME], values[SOME], numbers[SOME], n = 0;
    ga_lfht_found was[SOME];
    size_t done;
    for (uint64_t i = 0; i < SOME; i++) {
        numbers[n] = (number + i) % world.keys;
        keys[n] = key_of(numbers[n]);
        values[n] = value_of(numbers[n], random);
        n += sort_of(numbers[n]) == COMES_AND_GOES;
    }
    NEED(ga_lfht_insert_batch(world.map, keys, values, n, was, &done) == GA_OK && done == n);
    for (uint64_t i = 0; i < n; i++) {
        need_owner(was[i], numbers[i]);
        count(numbers[i], !was[i].found);
    }
}

/* Neighbouring keys inserted, looked up and removed, in any order, as a batch. */
static void do_some(uint64_t number, uint64_t *random)
{
    static const ga_lfht_op ops[] = {GA_LFHT_INSERT, GA_LFHT_LOOKUP, GA_LFHT_REMOVE};
    ga_lfht_call calls[SOME];
    uint64_t numbers[SOME];
    size_t done;
    for (uint64_t i = 0; i < SOME; i++) {
        numbers[i] = (number + i) % world.keys;
        bool changes = sort_of(numbers[i]) == COMES_AND_GOES;
        calls[i] = (ga_lfht_call){.op = changes ? ops[random_below(random, 3)] : GA_LFHT_LOOKUP,
                                  .key = key_of(numbers[i]),
                                  .value = value_of(numbers[i], random)};
    }
    NEED(ga_lfht_batch(world.map, calls, SOME, &done) == GA_OK && done == SOME);
    for (uint64_t i = 0; i < SOME; i++) {
        ga_lfht_found was = calls[i].was;
        need_found(was, numbers[i]);
        count(numbers[i], calls[i].op == GA_LFHT_INSERT   ? !was.found
                          : calls[i].op == GA_LFHT_REMOVE ? -(int64_t)was.found
                                                          : 0);
    }
}

typedef struct seen {
    uint64_t always, total;
    uint64_t last;
    bool ordered;
} seen;

static bool see(void *context, uint64_t key, uint64_t value)
{
    seen *s = context;
    uint64_t number = value >> 32;
    stress_need(number < world.keys && key_of(number) == key, "an invented key is visited");
    s->always += sort_of(number) == ALWAYS;
    s->total++;
    return true;
}

static uint64_t always_there(void)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < world.keys; i++) {
        n += sort_of(i) == ALWAYS;
    }
    return n;
}

static void visit_all(void)
{
    seen s = {0};
    NEED(ga_lfht_each(world.map, see, &s) == GA_OK);
    stress_need(s.always == always_there(), "a key that is always there is not visited once");
}

static void work(size_t number)
{
    uint64_t random = world.round * THREADS + number + 1;
    for (uint64_t step = 0; step < world.steps; step++) {
        uint64_t key = random_below(&random, world.keys);
        uint64_t batch = random_below(&random, 80);
        if (batch == 2) {
            do_some(key, &random);
        } else if (batch < 2) {
            batch ? look_at_some(key) : put_some(key, &random);
        } else if (random_below(&random, 4) == 0 || sort_of(key) == NEVER) {
            look(key);
        } else if (sort_of(key) == ALWAYS) {
            change_value(key, &random);
        } else {
            change(key, &random);
        }
    }
    visit_all();
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void open_map(void)
{
    uint64_t random = world.round;
    ga_lfht_variant turn = (ga_lfht_variant)(world.round % GA_LFHT_VARIANT_COUNT);
    bool only_inline = GA_PLANTED(lfht_frozen_link_trusted);
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = only_inline ? GA_LFHT_INLINE : turn,
                               .flags = world.round % 2 ? GA_LFHT_COUNT : 0,
                               .chunk = 1 + (uint32_t)random_below(&random, 3),
                               .chain = 1 + (uint32_t)random_below(&random, 3),
                               .root = 1 + (uint32_t)random_below(&random, 2),
                               .batch = 1 + (uint32_t)random_below(&random, 100),
                               .heap = world.heap};
    if (options.variant == GA_LFHT_INLINE) { /* lines as wide as they are, and indices */
        options.chain = random_below(&random, 2) ? 0 : options.chain;
        options.chunk += (uint32_t)random_below(&random, 5);
        options.batch = only_inline ? 1 : options.batch; /* objects are freed soon */
    }
    static const uint64_t few[] = {8, 16, 40, 200, KEYS_MAX};
    static const uint64_t spreads[] = {0, 3, 11, 100};
    world.keys = few[random_below(&random, 5)];
    world.steps = STEPS;
    if (random_below(&random, 3) == 0) {
        world.spread = spreads[random_below(&random, 4)];
        options.hash = coarse;
        world.keys = world.keys > 40 ? 40 : world.keys; /* long chains are slow */
    }
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
    memset(world.net, 0, sizeof world.net);
    for (uint64_t i = 0; i < world.keys; i++) {
        if (sort_of(i) == ALWAYS) {
            NEED(ga_lfht_insert(world.map, key_of(i), value_of(i, &random), NULL) == GA_OK);
        }
    }
}

/* The contents are the keys that were inserted and not removed. */
static void check(void)
{
    uint64_t there = always_there();
    seen s = {0};
    for (uint64_t i = 0; i < world.keys; i++) {
        ga_lfht_found found;
        NEED(ga_lfht_lookup(world.map, key_of(i), &found) == GA_OK);
        stress_need(world.net[i] == 0 || world.net[i] == 1, "a key was put in or out twice");
        stress_need(found.found == (world.net[i] || sort_of(i) == ALWAYS),
                    "a key was lost, or came back");
        there += (uint64_t)world.net[i];
    }
    NEED(ga_lfht_each(world.map, see, &s) == GA_OK);
    stress_need(s.total == there, "not every key is visited once");
    stress_need(ga_lfht_size(world.map) == there, "the size is wrong");
}

/* The threads share the keys. */
static void clear(size_t number)
{
    for (uint64_t i = number; i < world.keys; i += THREADS) {
        NEED(ga_lfht_remove(world.map, key_of(i), NULL) == GA_OK);
    }
}

static void check_empty(void)
{
    seen s = {0};
    ga_lfht_stats stats;
    ga_stats blocks;
    NEED(ga_lfht_each(world.map, see, &s) == GA_OK);
    stress_need(s.total == 0 && ga_lfht_size(world.map) == 0, "something is left in the map");
    NEED(ga_lfht_drain(world.map) == GA_OK);
    ga_lfht_get_stats(world.map, &stats);
    NEED(ga_heap_stats(world.heap, &blocks) == GA_OK);
    if (stats.bound || stats.freed) {
        stress_need(stats.retired == stats.freed, "something that was removed is not freed");
    }
    if (stats.bound) {
        stress_need(blocks.live_blocks == 1, "an empty map has more than its root");
    }
    NEED(ga_lfht_close(world.map) == GA_OK);
    NEED(ga_heap_stats(world.heap, &blocks) == GA_OK);
    stress_need(blocks.live_blocks == 0, "a closed map has left nodes behind");
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    world.heap = stress_open(getenv("LFHT_HEAP") ? getenv("LFHT_HEAP") : "system");
    while (stress_goes_on() || world.round < 2 * GA_LFHT_VARIANT_COUNT) {
        open_map();
        stress_threads(THREADS, work);
        check();
        stress_threads(THREADS, clear);
        check_empty();
        world.round++;
    }
    printf("%llu rounds, %llu steps\n", (unsigned long long)world.round,
           (unsigned long long)world.round * STEPS * THREADS);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
