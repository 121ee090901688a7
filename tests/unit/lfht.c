/* SPDX-License-Identifier: MIT
 *
 * The lock-free hash trie map in one thread: each variant beside an array that says what must be in
 * it; bad options; heaps that fail.
 */
#include <gpualloc/lfht.h>

#include "../../hashtables/lfht/lines.h"
#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEYS = 300,
    LINE = 7 /* the most that INLINE has in a bucket */
};

static ga_heap *open_heap(const char *spec)
{
    ga_heap *heap = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    return heap;
}

static uint64_t blocks_of(ga_heap *heap)
{
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    return stats.live_blocks;
}

/* Small nodes, short chains: everything happens with few keys. */
static ga_lfht_options small(ga_lfht_variant variant, ga_heap *heap)
{
    return (ga_lfht_options){.options_size = sizeof(ga_lfht_options),
                             .flags = GA_LFHT_COUNT,
                             .variant = variant,
                             .chunk = 2,
                             .chain = 2,
                             .root = 1,
                             .heap = heap};
}

/* INLINE, too, asks for memory for almost every key. */
static ga_lfht_options narrow(ga_lfht_variant variant, ga_heap *heap)
{
    ga_lfht_options options = small(variant, heap);
    options.chain = variant == GA_LFHT_INLINE ? 1 : options.chain;
    return options;
}

static uint64_t same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return 0;
}

static uint64_t low_bits(void *context, uint64_t key)
{
    (void)context;
    return key & 3;
}

static uint64_t itself(void *context, uint64_t key)
{
    (void)context;
    return key;
}

/* ---- a map and what must be in it ----------------------------------------------------------- */

typedef struct subject {
    ga_lfht *map;
    ga_lfht_found array[KEYS];
} subject;

/* The ends of the range among them. */
static uint64_t key_of(uint64_t number)
{
    static const uint64_t first[] = {0, UINT64_MAX, 1, UINT64_MAX - 1, UINT64_C(1) << 63};
    return number < 5 ? first[number] : number << (number % 2 ? 50 : 0);
}

static void expect_was(ga_lfht_found was, ga_lfht_found expected, uint64_t key)
{
    cr_assert_eq(was.found, expected.found, "key %" PRIx64 ": found %d, expected %d", key,
                 was.found, expected.found);
    cr_assert_eq(was.value, expected.value, "key %" PRIx64 ": %" PRIu64 ", expected %" PRIu64, key,
                 was.value, expected.value);
}

static void expect_key(subject *s, uint64_t number)
{
    ga_lfht_found found;
    assert_ok(ga_lfht_lookup(s->map, key_of(number), &found));
    expect_was(found, s->array[number], key_of(number));
}

/* One call, and the same for the array if it is answered. */
static ga_status step(subject *s, uint64_t what, uint64_t number, uint64_t value)
{
    ga_lfht_found *now = &s->array[number], was = {false, 77}, before = *now, after = before;
    uint64_t key = key_of(number), expected = before.value + value % 2;
    ga_status status;
    switch (what) {
    case 0:
        status = ga_lfht_insert(s->map, key, value, &was);
        after = before.found ? before : (ga_lfht_found){true, value};
        break;
    case 1:
        status = ga_lfht_upsert(s->map, key, value, &was);
        after = (ga_lfht_found){true, value};
        break;
    case 2:
        status = ga_lfht_replace(s->map, key, value, &was);
        after = before.found ? (ga_lfht_found){true, value} : before;
        break;
    case 3:
        status = ga_lfht_compare_replace(s->map, key, expected, value, &was);
        after = before.found && before.value == expected ? (ga_lfht_found){true, value} : before;
        break;
    case 4:
        status = ga_lfht_remove(s->map, key, &was);
        after = (ga_lfht_found){false, 0};
        break;
    default:
        status = ga_lfht_lookup(s->map, key, &was);
    }
    if (status == GA_OK) {
        expect_was(was, before, key);
        *now = after;
    }
    expect_key(s, number);
    return status;
}

static bool count_one(void *context, uint64_t key, uint64_t value)
{
    (void)key;
    (void)value;
    ++*(uint64_t *)context;
    return true;
}

static void expect_all(subject *s)
{
    uint64_t there = 0, visited = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        expect_key(s, i);
        there += s->array[i].found;
    }
    assert_ok(ga_lfht_each(s->map, count_one, &visited));
    cr_assert_eq(visited, there, "%" PRIu64 " visited of %" PRIu64, visited, there);
    cr_assert_eq(ga_lfht_size(s->map), there);
}

/* Grows for a while, then shrinks, and so on. */
static void work(subject *s, uint64_t seed, uint64_t steps)
{
    uint64_t random = seed;
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t what = random_below(&random, 6);
        if (random_below(&random, 2)) {
            what = i / 700 % 2 ? 4 : 0;
        }
        uint64_t number = random_below(&random, KEYS);
        /* values at the ends of the range too */
        uint64_t value = random_below(&random, 4) ? random_next(&random) : UINT64_MAX * (i % 2);
        assert_ok(step(s, what, number, value));
    }
    expect_all(s);
}

static void clear(subject *s)
{
    for (uint64_t i = 0; i < KEYS; i++) {
        assert_ok(step(s, 4, i, 0));
    }
    expect_all(s);
}

/* In every variant, with what `shape` makes of the options. */
static void try_all(void (*shape)(ga_lfht_options *options, uint64_t round), uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_options options = small((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        work(&s, i, 3000);
        clear(&s);
        work(&s, i, 1000);
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

static void all_shapes(ga_lfht_options *options, uint64_t round)
{
    static const uint32_t chunks[] = {1, 2, 3, 7, 8}, chains[] = {1, 2, 16, 1, 5},
                          roots[] = {1, 2, 10, 9, 5};
    uint32_t most = options->variant == GA_LFHT_INLINE ? LINE : 16;
    options->chunk = chunks[round];
    options->chain = chains[round] < most ? chains[round] : most;
    options->root = roots[round];
    options->batch = 1 + (uint32_t)round * 100;
}

Test(lfht, does_what_the_array_does)
{
    try_all(all_shapes, 5);
}

static void bad_hashes(ga_lfht_options *options, uint64_t round)
{
    static ga_lfht_hash *const hashes[] = {same, low_bits, itself};
    options->hash = hashes[round];
}

/* Keys that have all their hash in common, or the bits that are looked at last. */
Test(lfht, takes_any_hash)
{
    try_all(bad_hashes, 3);
}

/* ---- keys that are pointers ----------------------------------------------------------------- */

static uint64_t text_hash(void *context, uint64_t key)
{
    (void)context;
    return (uint64_t)strlen((const char *)(uintptr_t)key);
}

static bool text_equal(void *context, uint64_t a, uint64_t b)
{
    ++*(uint64_t *)context;
    return strcmp((const char *)(uintptr_t)a, (const char *)(uintptr_t)b) == 0;
}

static uint64_t text(const char *key)
{
    return (uint64_t)(uintptr_t)key;
}

Test(lfht, asks_the_callers_functions)
{
    char one[] = "one", too[] = "one", six[] = "six";
    uint64_t calls = 0;
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_options options = {
        .options_size = sizeof options, .hash = text_hash, .equal = text_equal, .context = &calls};
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, text(one), 1, NULL));
    assert_ok(ga_lfht_insert(map, text(six), 6, NULL));
    assert_ok(ga_lfht_lookup(map, text(too), &found));
    cr_assert(found.found && found.value == 1);
    assert_ok(ga_lfht_insert(map, text(too), 2, &found));
    cr_assert(found.found && found.value == 1);
    assert_ok(ga_lfht_remove(map, text(too), &found));
    cr_assert(found.found);
    assert_ok(ga_lfht_lookup(map, text(six), &found));
    cr_assert(found.found && found.value == 6);
    cr_assert_gt(calls, 0);
    assert_ok(ga_lfht_close(map));
}

/* ---- growing, shrinking --------------------------------------------------------------------- */

Test(lfht, counts_what_it_does)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        ga_heap *heap = open_heap("system");
        ga_lfht_options options = small((ga_lfht_variant)v, heap);
        ga_lfht_stats stats;
        subject s = {0};
        bool shrinks = v != GA_LFHT_SNF && v != GA_LFHT_HHL;
        options.flags |= shrinks ? GA_LFHT_SHRINK : 0;
        assert_ok(ga_lfht_open(&s.map, &options));
        work(&s, 1, 600);
        ga_lfht_get_stats(s.map, &stats);
        cr_assert_gt(stats.expansions, 20);
        cr_assert_gt(stats.depth, 2);
        cr_assert_gt(stats.hops, stats.lookups);
        clear(&s);
        assert_ok(ga_lfht_drain(s.map));
        ga_lfht_get_stats(s.map, &stats);
        cr_assert_eq(stats.compressions, shrinks ? stats.expansions : 0);
        cr_assert_eq(stats.size, 0);
        if (v == GA_LFHT_FHP || v == GA_LFHT_FHPA || v == GA_LFHT_INLINE) {
            cr_assert_eq(stats.freed, stats.retired);
            cr_assert_gt(stats.bound, 0);
            cr_assert_eq(blocks_of(heap), 1, "the root alone is left");
        } else if (v == GA_LFHT_HHL) {
            cr_assert_gt(stats.freed, 100);
            cr_assert_eq(stats.freed, stats.retired);
            cr_assert_eq(stats.bound, 0);
            cr_assert_eq(blocks_of(heap), 1 + stats.expansions, "hash nodes alone are left");
        } else {
            cr_assert_eq(stats.freed, 0);
        }
        assert_ok(ga_lfht_close(s.map));
        assert_ok(ga_heap_close(heap));
    }
}

Test(lfht, counts_nothing_but_keys_unless_asked_to)
{
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_stats stats;
    assert_ok(ga_lfht_open(&map, NULL));
    assert_ok(ga_lfht_insert(map, 1, 2, NULL));
    assert_ok(ga_lfht_lookup(map, 1, &found));
    ga_lfht_get_stats(map, &stats);
    cr_assert_eq(stats.lookups, 0);
    cr_assert_eq(stats.size, 1);
    assert_ok(ga_lfht_close(map));
}

/* ---- batches -------------------------------------------------------------------------------- */

enum {
    BATCH_MOST = 100
};

/* Some keys more than once; what the array says, and what the map does. */
static void look_many(subject *s, uint64_t *random)
{
    uint64_t keys[BATCH_MOST], numbers[BATCH_MOST], n = random_below(random, BATCH_MOST + 1);
    ga_lfht_found found[BATCH_MOST];
    for (uint64_t i = 0; i < n; i++) {
        numbers[i] = random_below(random, KEYS);
        keys[i] = key_of(numbers[i]);
        found[i] = (ga_lfht_found){true, 77};
    }
    assert_ok(ga_lfht_lookup_batch(s->map, keys, n, found));
    for (uint64_t i = 0; i < n; i++) {
        expect_was(found[i], s->array[numbers[i]], keys[i]);
    }
}

/* Different keys; how many the call says it has dealt with. */
static ga_status put_many(subject *s, uint64_t *random, size_t *done)
{
    uint64_t keys[BATCH_MOST], values[BATCH_MOST], n = random_below(random, BATCH_MOST + 1);
    uint64_t first = random_below(random, KEYS);
    ga_lfht_found was[BATCH_MOST];
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = key_of((first + i) % KEYS);
        values[i] = random_next(random);
    }
    ga_status status = ga_lfht_insert_batch(s->map, keys, values, n, was, done);
    cr_assert_eq(*done == n, status == GA_OK);
    for (uint64_t i = 0; i < *done; i++) {
        ga_lfht_found *now = &s->array[(first + i) % KEYS];
        expect_was(was[i], *now, keys[i]);
        *now = now->found ? *now : (ga_lfht_found){true, values[i]};
    }
    return status;
}

static void work_in_batches(subject *s, uint64_t seed)
{
    uint64_t random = seed;
    size_t done;
    for (int i = 0; i < 30; i++) {
        assert_ok(put_many(s, &random, &done));
        look_many(s, &random);
        for (int j = 0; j < 80; j++) {
            assert_ok(step(s, 4, random_below(&random, KEYS), 0));
        }
        look_many(s, &random);
    }
    expect_all(s);
    clear(s);
}

static void any_shape(ga_lfht_options *options, uint64_t round)
{
    if (round < 5) {
        all_shapes(options, round);
    } else {
        bad_hashes(options, round - 5);
    }
}

Test(lfht, does_in_batches_what_it_does_one_by_one)
{
    for (uint64_t i = 0; i < 8 * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_options options = small((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        any_shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        work_in_batches(&s, i);
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

/* With the request of that number refused. Whether a batch has failed of it. */
static bool batches_fail(ga_lfht_variant variant, uint64_t nth)
{
    char spec[64];
    snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
    ga_heap *heap = open_heap(spec);
    ga_lfht_options options = narrow(variant, heap);
    subject s = {0};
    uint64_t random = 3, refused = 0;
    size_t done;
    assert_ok(ga_lfht_open(&s.map, &options));
    for (int i = 0; i < 3; i++) {
        refused += put_many(&s, &random, &done) != GA_OK;
    }
    cr_assert_leq(refused, 1);
    for (uint64_t i = 0; i < KEYS; i++) {
        expect_key(&s, i);
    }
    assert_ok(ga_lfht_close(s.map));
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
    return refused;
}

Test(lfht, says_how_much_of_a_batch_went_in)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t nth = 2;
        while (batches_fail((ga_lfht_variant)v, nth)) {
            nth++;
        }
        cr_assert_gt(nth, 100);
    }
}

/* ---- building ------------------------------------------------------------------------------- */

/* Every key, some of them twice: the first of two goes in. */
static ga_status build(subject *s)
{
    uint64_t keys[KEYS + 50], values[KEYS + 50];
    for (uint64_t i = 0; i < KEYS + 50; i++) {
        keys[i] = key_of(i % KEYS);
        values[i] = i * i;
    }
    ga_status status = ga_lfht_build(s->map, keys, values, KEYS + 50);
    for (uint64_t i = 0; status == GA_OK && i < KEYS; i++) {
        s->array[i] = (ga_lfht_found){true, values[i]};
    }
    return status;
}

Test(lfht, is_built_as_insertions_would_have_left_it)
{
    for (uint64_t i = 0; i < 8 * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_stats stats;
        ga_lfht_options options = small((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        any_shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        work(&s, i, 300); /* what that leaves goes */
        clear(&s);
        assert_ok(build(&s));
        expect_all(&s);
        assert_fails(build(&s), GA_ERR_ARGUMENT, "lfht: build: 300 keys in the map: expected none");
        work(&s, i, 1000);
        clear(&s);
        assert_ok(ga_lfht_drain(s.map));
        ga_lfht_get_stats(s.map, &stats);
        cr_assert(!stats.bound || blocks_of(heap) == 1, "the root alone is left");
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

Test(lfht, stays_empty_when_there_is_no_memory_to_build_it)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t nth = 2;
        for (ga_status status = GA_ERR_MEMORY; status != GA_OK; nth += 7) {
            char spec[64];
            snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
            ga_heap *heap = open_heap(spec);
            ga_lfht_options options = small((ga_lfht_variant)v, heap);
            subject s = {0};
            assert_ok(ga_lfht_open(&s.map, &options));
            status = build(&s);
            cr_assert(status == GA_OK || status == GA_ERR_MEMORY);
            cr_assert(status == GA_OK || blocks_of(heap) == 1, "the root alone");
            expect_all(&s);
            assert_ok(s.array[0].found ? GA_OK : build(&s));
            expect_all(&s);
            assert_ok(ga_lfht_close(s.map));
            cr_assert_eq(blocks_of(heap), 0);
            assert_ok(ga_heap_close(heap));
        }
        /* of INLINE nodes alone are asked for, each for some keys */
        cr_assert_gt(nth, v == GA_LFHT_INLINE ? KEYS / 4 : KEYS);
    }
}

Test(lfht, refuses_arrays_that_are_not_there)
{
    ga_lfht *map;
    uint64_t keys[3] = {1, 2, 3};
    ga_lfht_found found[3];
    size_t done = 9;
    assert_ok(ga_lfht_open(&map, NULL));
    assert_fails(ga_lfht_lookup_batch(map, keys, 3, NULL), GA_ERR_ARGUMENT,
                 "lfht: no array of answers for 3 keys: expected a pointer");
    assert_fails(ga_lfht_lookup_batch(map, NULL, 3, found), GA_ERR_ARGUMENT,
                 "lfht: no array of keys for 3 keys: expected a pointer");
    assert_fails(ga_lfht_insert_batch(map, keys, NULL, 3, found, &done), GA_ERR_ARGUMENT,
                 "lfht: no array of values for 3 keys: expected a pointer");
    cr_assert_eq(done, 0);
    assert_fails(ga_lfht_insert_batch(NULL, keys, keys, 3, found, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_lookup_batch(NULL, keys, 3, found), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_build(map, keys, NULL, 3), GA_ERR_ARGUMENT,
                 "lfht: no array of values for 3 keys: expected a pointer");
    assert_fails(ga_lfht_build(NULL, keys, keys, 3), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_build(map, keys, keys, SIZE_MAX / 16), GA_ERR_MEMORY,
                 "lfht: no memory to sort 1152921504606846975 keys: expected 48 bytes for each");
    assert_ok(ga_lfht_lookup_batch(map, NULL, 0, NULL));
    assert_ok(ga_lfht_insert_batch(map, NULL, NULL, 0, NULL, NULL));
    assert_ok(ga_lfht_build(map, NULL, NULL, 0));
    assert_ok(ga_lfht_insert_batch(map, keys, keys, 3, NULL, NULL));
    cr_assert_eq(ga_lfht_size(map), 3);
    assert_ok(ga_lfht_close(map));
}

/* ---- visiting ------------------------------------------------------------------------------- */

typedef struct visitor {
    ga_lfht *map;
    uint64_t last, visited, most;
} visitor;

/* Takes out what it sees. */
static bool take_out(void *context, uint64_t key, uint64_t value)
{
    visitor *v = context;
    ga_lfht_found was;
    assert_ok(ga_lfht_remove(v->map, key, &was));
    cr_assert(was.found && was.value == value);
    cr_assert(v->visited == 0 || key > v->last, "in the order of the hashes");
    v->last = key;
    return ++v->visited < v->most;
}

Test(lfht, visits_in_order_and_may_be_changed_meanwhile)
{
    for (int variant = 0; variant < GA_LFHT_VARIANT_COUNT; variant++) {
        visitor v = {.most = 40};
        ga_lfht_options options = small((ga_lfht_variant)variant, NULL);
        options.hash = itself;
        assert_ok(ga_lfht_open(&v.map, &options));
        for (uint64_t i = 0; i < 100; i++) {
            assert_ok(ga_lfht_insert(v.map, i * UINT64_C(0x28f5c28f5c28f5c), i, NULL));
        }
        assert_ok(ga_lfht_each(v.map, take_out, &v));
        cr_assert_eq(v.visited, 40, "it ends when it is told to");
        cr_assert_eq(ga_lfht_size(v.map), 60);
        v.visited = 0;
        v.most = 1000;
        assert_ok(ga_lfht_each(v.map, take_out, &v));
        cr_assert_eq(v.visited, 60);
        assert_ok(ga_lfht_close(v.map));
    }
}

/* ---- what cannot be ------------------------------------------------------------------------- */

static void refuses(ga_lfht_options options, ga_status status, const char *sentence)
{
    ga_lfht *map = (ga_lfht *)&options;
    options.options_size = options.options_size ? options.options_size : sizeof options;
    assert_fails(ga_lfht_open(&map, &options), status, sentence);
    cr_assert_null(map);
}

Test(lfht, refuses_options_that_cannot_be)
{
    refuses((ga_lfht_options){.chunk = 9}, GA_ERR_ARGUMENT, "lfht: chunk=9: expected 1 to 8, or 0");
    refuses((ga_lfht_options){.chain = 17}, GA_ERR_ARGUMENT,
            "lfht: chain=17: expected 1 to 16, or 0");
    refuses((ga_lfht_options){.variant = GA_LFHT_INLINE, .chain = 8}, GA_ERR_ARGUMENT,
            "lfht: chain=8 with INLINE: expected 1 to 7, or 0: a line has no more");
    refuses((ga_lfht_options){.root = 25}, GA_ERR_ARGUMENT,
            "lfht: root=25: expected 1 to 24, or 0");
    refuses((ga_lfht_options){.batch = UINT32_MAX}, GA_ERR_ARGUMENT,
            "lfht: batch=4294967295: expected 1 to 16777216, or 0");
    refuses((ga_lfht_options){.flags = 14}, GA_ERR_ARGUMENT,
            "lfht: flags=0xe: expected any of GA_LFHT_COUNT, _SHRINK, _CHECK, or none");
    refuses((ga_lfht_options){.variant = GA_LFHT_VARIANT_COUNT}, GA_ERR_ARGUMENT,
            "lfht: variant=7: expected 0 to 6");
    refuses((ga_lfht_options){.flags = GA_LFHT_SHRINK, .variant = GA_LFHT_HHL}, GA_ERR_ARGUMENT,
            "lfht: HHL with GA_LFHT_SHRINK: its hash nodes stay; expected FHPA, FHP, FNF, CNF or "
            "INLINE");
    refuses((ga_lfht_options){.flags = GA_LFHT_SHRINK, .variant = GA_LFHT_SNF}, GA_ERR_ARGUMENT,
            "lfht: SNF with GA_LFHT_SHRINK: its hash nodes stay; expected FHPA, FHP, FNF, CNF or "
            "INLINE");
    refuses((ga_lfht_options){.options_size = 8}, GA_ERR_ARGUMENT,
            "lfht: options_size=8: expected 72");
}

Test(lfht, refuses_a_heap_that_fails)
{
    ga_heap *heap = open_heap("fail:nth=1/system");
    refuses((ga_lfht_options){.heap = heap}, GA_ERR_MEMORY,
            "fail: refused as nth=1 says; asked for 131096 bytes");
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
}

/* The first that is asked for is the root. */
static void wants_root_of(uint32_t bits, ga_lfht_options options)
{
    char sentence[96];
    size_t head = options.variant == GA_LFHT_INLINE ? 0 : 24;
    options.heap = open_heap("fail:nth=1/system");
    snprintf(sentence, sizeof sentence, "fail: refused as nth=1 says; asked for %zu bytes",
             ((size_t)8 << bits) + head);
    refuses(options, GA_ERR_MEMORY, sentence);
    assert_ok(ga_heap_close(options.heap));
}

Test(lfht, makes_the_root_for_the_keys_that_it_expects)
{
    static const struct {
        uint64_t keys;
        uint32_t bits;
    } cases[] = {{0, 14},       {1, 14},        {36 << 14, 15},  {(36 << 14) - 1, 14},
                 {4 << 20, 17}, {16 << 20, 19}, {UINT64_MAX, 24}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wants_root_of(cases[i].bits, (ga_lfht_options){.expected = cases[i].keys});
        wants_root_of(cases[i].bits,
                      (ga_lfht_options){.variant = GA_LFHT_INLINE, .expected = cases[i].keys});
    }
    wants_root_of(5, (ga_lfht_options){.expected = 4 << 20, .root = 5});
}

Test(lfht, refuses_to_do_without)
{
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_stats stats;
    assert_fails(ga_lfht_open(NULL, NULL), GA_ERR_ARGUMENT,
                 "lfht: no place for the map: expected a pointer");
    assert_fails(ga_lfht_insert(NULL, 1, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_remove(NULL, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_drain(NULL), GA_ERR_ARGUMENT, "lfht: no map: expected one that is open");
    assert_ok(ga_lfht_open(&map, NULL));
    assert_fails(ga_lfht_lookup(map, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no place for what is found: expected a pointer");
    assert_fails(ga_lfht_lookup(NULL, 1, &found), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_each(map, NULL, NULL), GA_ERR_ARGUMENT,
                 "lfht: no function to call: expected a pointer");
    assert_ok(ga_lfht_close(map));
    assert_ok(ga_lfht_close(NULL));
    cr_assert_eq(ga_lfht_size(NULL), 0);
    ga_lfht_get_stats(NULL, &stats);
    cr_assert_eq(stats.size + stats.bound, 0);
    cr_assert_str_eq(ga_lfht_variant_text(GA_LFHT_CNF), "CNF");
    cr_assert_str_eq(ga_lfht_variant_text((ga_lfht_variant)99), "?");
}

Test(lfht, knows_a_checked_map_that_is_closed)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        const char *sentence = "lfht: the map is closed: expected one that is open";
        ga_lfht *map;
        ga_lfht_found found;
        ga_lfht_stats stats;
        uint64_t key = 1, seen = 0;
        ga_lfht_options options = small((ga_lfht_variant)v, NULL);
        options.flags |= GA_LFHT_CHECK;
        assert_ok(ga_lfht_open(&map, &options));
        assert_ok(ga_lfht_insert(map, 1, 1, NULL));
        assert_ok(ga_lfht_close(map));
        assert_fails(ga_lfht_insert(map, 2, 2, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_lookup(map, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_remove(map, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_lookup_batch(map, &key, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_insert_batch(map, &key, &key, 1, NULL, NULL), GA_ERR_ARGUMENT,
                     sentence);
        assert_fails(ga_lfht_build(map, &key, &key, 1), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_each(map, count_one, &seen), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_drain(map), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_close(map), GA_ERR_ARGUMENT, sentence);
        ga_lfht_get_stats(map, &stats);
        cr_assert_eq(ga_lfht_size(map) + stats.size + stats.lookups, 0);
    }
}

/* ---- heaps that fail ------------------------------------------------------------------------ */

/* A call that fails has changed nothing, and can be made again. Whether none has failed. */
static bool script(subject *s)
{
    uint64_t random = 5, refusals = 0;
    for (uint64_t i = 0; i < 250; i++) {
        uint64_t what = i < 100 ? 0 : i < 200 ? random_below(&random, 6) : 4;
        uint64_t number = i < 100 ? i : random_below(&random, 100);
        uint64_t value = random_next(&random);
        if (step(s, what, number, value) != GA_OK) {
            refusals++;
            assert_ok(step(s, what, number, value));
        }
    }
    cr_assert_leq(refusals, 1);
    uint64_t there = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        there += s->array[i].found;
    }
    cr_assert_eq(ga_lfht_size(s->map), there);
    return refusals == 0;
}

/* Every request for memory fails once. Freezing asks too, and then goes without: so the script
 * also ends without a refusal before the last one. */
Test(lfht, stays_whole_when_memory_runs_out)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t refused = 0;
        for (uint64_t nth = 2; nth < 400; nth++) {
            char spec[64];
            snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
            ga_heap *heap = open_heap(spec);
            ga_lfht_options options = narrow((ga_lfht_variant)v, heap);
            subject s = {0};
            assert_ok(ga_lfht_open(&s.map, &options));
            refused += !script(&s);
            assert_ok(ga_lfht_close(s.map));
            cr_assert_eq(blocks_of(heap), 0);
            assert_ok(ga_heap_close(heap));
        }
        cr_assert_gt(refused, 120, "%" PRIu64 " refused", refused);
        cr_assert_lt(refused, 390, "the script has more requests than are tried");
    }
}

Test(lfht, visits_nothing_more_when_memory_runs_out)
{
    ga_heap *heap = open_heap("fail:nth=3/system");
    ga_lfht_options options = small(GA_LFHT_FHPA, heap);
    ga_lfht *map;
    uint64_t visited = 0;
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, 1, 1, NULL));
    assert_fails(ga_lfht_each(map, count_one, &visited), GA_ERR_MEMORY,
                 "fail: refused as nth=3 says; asked for 256 bytes");
    cr_assert_eq(visited, 0);
    assert_ok(ga_lfht_each(map, count_one, &visited));
    cr_assert_eq(visited, 1);
    assert_ok(ga_lfht_close(map));
    assert_ok(ga_heap_close(heap));
}

/* ---- threads that end ----------------------------------------------------------------------- */

static bool ends_the_thread(void *context, uint64_t a, uint64_t b)
{
    if (context) {
        pthread_exit(NULL);
    }
    return a == b;
}

static void *insert_colliding(void *map)
{
    assert_ok(ga_lfht_insert(map, 2, 2, NULL));
    return NULL;
}

/* In the middle of a call, with what it looks at protected. */
Test(lfht, survives_a_thread_that_ends_inside)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        ga_lfht *map;
        pthread_t thread;
        ga_lfht_found found;
        ga_lfht_options options = small((ga_lfht_variant)v, NULL);
        options.hash = same;
        options.equal = ends_the_thread;
        options.context = &options;
        assert_ok(ga_lfht_open(&map, &options));
        assert_ok(ga_lfht_insert(map, 1, 1, NULL));
        cr_assert_eq(pthread_create(&thread, NULL, insert_colliding, map), 0);
        pthread_join(thread, NULL);
        assert_ok(ga_lfht_lookup(map, 1, &found)); /* the key itself: nobody is asked */
        cr_assert(found.found);
        assert_ok(ga_lfht_remove(map, 1, &found));
        cr_assert(found.found);
        assert_ok(ga_lfht_close(map));
    }
}

static void *insert_some(void *map)
{
    static uint64_t next;
    uint64_t first = __atomic_fetch_add(&next, 10, __ATOMIC_RELAXED); /* relaxed: a number */
    for (uint64_t i = first; i < first + 10; i++) {
        assert_ok(ga_lfht_insert(map, i, i, NULL));
    }
    return NULL;
}

/* More than have lanes of their own. */
Test(lfht, takes_any_number_of_threads)
{
    enum {
        THREADS = 150
    };
    ga_lfht *map;
    assert_ok(ga_lfht_open(&map, NULL));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, insert_some, map), 0);
        pthread_join(thread, NULL);
    }
    cr_assert_eq(ga_lfht_size(map), 10 * THREADS);
    assert_ok(ga_lfht_close(map));
}

/* ---- claims of threads that are stopped ----------------------------------------------------- */

/* The line that the hash's pair is in, and how many bits of the hash lead to it. */
static lfht_line *line_of(const ga_lfht *map, uint64_t hash, uint32_t *used)
{
    lfht_word *place = &map->words[hash >> (64 - map->root_bits)];
    *used = map->root_bits;
    while (*place & LINE_LINK && line_at(*place) && !line_is_deep(*place)) {
        lfht_word link = *place;
        place = line_place_of(link, *used, hash);
        *used += line_bits(link);
    }
    return *place & LINE_LINK ? NULL : (lfht_line *)place;
}

/* All free lanes are claimed, as by threads that were stopped before they put their pairs in. */
static void claim_all(lfht_line *line)
{
    while (line_free(line->word)) {
        line->word =
            line_raised(line_set(line->word, line_lane(line_free(line->word)), LINE_CLAIMED));
    }
}

/* Who comes next finds no lane. What it makes anew must not be as large as before: else all could
 * claim and come for ever, and none would get its pair in. In the end no bits are left, and the
 * pairs are in an array, which knows no claims. */
Test(lfht, claims_do_not_come_for_ever)
{
    ga_heap *heap = open_heap("slab/system");
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = GA_LFHT_INLINE,
                               .root = 1,
                               .chunk = 1,
                               .hash = same,
                               .heap = heap};
    ga_lfht *map;
    ga_lfht_found was;
    uint32_t used, before = 0, rounds = 0;
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, 1, 1, NULL));
    uint64_t hash = same(NULL, 1);
    for (lfht_line *line; (line = line_of(map, hash, &used)); rounds++) {
        cr_assert(rounds == 0 || used > before, "%u bits, and then %u", before, used);
        before = used;
        claim_all(line);
        assert_ok(ga_lfht_insert(map, 2, 2, &was));
        cr_assert_not(was.found);
        assert_ok(ga_lfht_remove(map, 2, &was));
        cr_assert(was.found);
    }
    cr_assert_eq(rounds, 64, "a bit each time, and an array: %u", rounds);
    assert_ok(ga_lfht_lookup(map, 1, &was));
    cr_assert(was.found && was.value == 1);
    assert_ok(ga_lfht_close(map));
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
}
