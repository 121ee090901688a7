/* SPDX-License-Identifier: MIT
 *
 * The slab hash in one thread: each kind of table is compared with an array of its expected
 * contents; the paper's errata, and its hash; values changed by the caller's own function.
 */
#include "../../hashtables/slabhash/host/table.h"

#include "support/random.h"
#include "support/slabhash_scene.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

enum {
    KEYS = 200,
    COPIES = 64 /* of a key in a multimap, at most */
};

static bool is_wide(ga_slabhash_mode mode)
{
    return mode == GA_SLABHASH_MAP64;
}

static uint64_t same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return 0;
}

static uint64_t itself(void *context, uint64_t key)
{
    (void)context;
    return key << 56 | key;
}

/* ---- a table and its expected contents ---------------------------------------------------- */

/* The values of a key, in any order, one for each of its pairs. */
typedef struct model_key {
    uint32_t count;
    uint64_t values[COPIES];
} model_key;

typedef struct subject {
    ga_slabhash *table;
    ga_slabhash_mode mode;
    bool multi;
    model_key *keys;
} subject;

/* The ends of the range among them, and keys that differ only in one half. */
static uint64_t key_of(const subject *s, uint64_t number)
{
    static const uint64_t narrow[] = {0, 0xfffffffd, 1, 0x80000000, 0x7fffffff};
    static const uint64_t wide[] = {0, UINT64_MAX - 1, 0xffffffff, UINT64_C(0xffffffff) << 32,
                                    0xfffffffe};
    if (number < 5) {
        return is_wide(s->mode) ? wide[number] : narrow[number];
    }
    return is_wide(s->mode) && number % 3 == 0 ? number << 32 : number;
}

static uint64_t value_of(const subject *s, uint64_t random)
{
    uint64_t value = random % 7 == 0 ? UINT64_MAX - (is_wide(s->mode) ? 1 : 0) : random % 1000;
    return s->mode == GA_SLABHASH_SET32 ? 0 : is_wide(s->mode) ? value : (uint32_t)value;
}

/* Remove one pair with the value from the model; it must be there. */
static void forget(model_key *key, uint64_t value)
{
    for (uint32_t i = 0; i < key->count; i++) {
        if (key->values[i] == value) {
            key->values[i] = key->values[--key->count];
            return;
        }
    }
    cr_assert_fail("a value %" PRIu64 " that nobody put in", value);
}

static bool has(const model_key *key, uint64_t value)
{
    for (uint32_t i = 0; i < key->count; i++) {
        if (key->values[i] == value) {
            return true;
        }
    }
    return false;
}

static void expect_was(const subject *s, const model_key *key, ga_slabhash_found was)
{
    cr_assert_eq(was.found, key->count > 0, "found %d, expected %u", was.found, key->count);
    cr_assert(!was.found || has(key, was.value), "a value %" PRIu64 " of %s", was.value,
              ga_slabhash_mode_text(s->mode));
    cr_assert(was.found || !was.value);
}

static void put(subject *s, uint64_t number, uint64_t value, uint64_t what)
{
    model_key *key = &s->keys[number];
    ga_slabhash_found was = {false, 0};
    uint64_t k = key_of(s, number);
    bool map = s->mode != GA_SLABHASH_SET32;
    if (s->multi) {
        if (key->count < COPIES) {
            assert_ok(ga_slabhash_insert(s->table, k, value, NULL));
            key->values[key->count++] = value;
        }
        return;
    }
    if (what == 0) {
        assert_ok(ga_slabhash_insert(s->table, k, value, &was));
        expect_was(s, key, was);
        value = key->count ? key->values[0] : value;
    } else if (what == 1 || !map) {
        assert_ok(ga_slabhash_replace(s->table, k, value, &was));
        expect_was(s, key, was);
    } else {
        ga_slabhash_how how = (ga_slabhash_how)(value % 3);
        uint64_t there = key->values[0], sum = there + value;
        sum = is_wide(s->mode) ? sum : (uint32_t)sum;
        if (key->count && how == GA_SLABHASH_ADD && is_wide(s->mode) && sum == UINT64_MAX) {
            return;
        }
        assert_ok(ga_slabhash_apply(s->table, k, value, how, &was));
        expect_was(s, key, was);
        uint64_t less = there < value ? there : value, more = there < value ? value : there;
        value = !key->count              ? value
                : how == GA_SLABHASH_ADD ? sum
                : how == GA_SLABHASH_MIN ? less
                                         : more;
    }
    key->count = 1;
    key->values[0] = value;
}

static void take(subject *s, uint64_t number, bool all)
{
    model_key *key = &s->keys[number];
    ga_slabhash_found was;
    uint64_t count;
    if (all) {
        assert_ok(ga_slabhash_delete_all(s->table, key_of(s, number), &count));
        cr_assert_eq(count, key->count);
        key->count = 0;
        return;
    }
    assert_ok(ga_slabhash_delete(s->table, key_of(s, number), &was));
    expect_was(s, key, was);
    if (was.found) {
        forget(key, was.value);
    }
}

static void expect_key(subject *s, uint64_t number)
{
    model_key key = s->keys[number];
    uint64_t values[COPIES], count;
    ga_slabhash_found found;
    assert_ok(ga_slabhash_search(s->table, key_of(s, number), &found));
    expect_was(s, &key, found);
    assert_ok(ga_slabhash_search_all(s->table, key_of(s, number), values, COPIES, &count));
    cr_assert_eq(count, key.count, "%" PRIu64 " values, expected %u", count, key.count);
    for (uint64_t i = 0; i < count; i++) {
        forget(&key, values[i]);
    }
}

/* The pairs that a round over the table has not visited yet. */
static bool see(void *context, uint64_t key, uint64_t value)
{
    subject *left = context;
    for (uint64_t number = 0; number < KEYS; number++) {
        if (key_of(left, number) == key) {
            forget(&left->keys[number], value);
            return true;
        }
    }
    cr_assert_fail("a key 0x%" PRIx64 " that nobody put in", key);
    return false;
}

static void expect_all(subject *s)
{
    static model_key rest[KEYS];
    subject left = *s;
    uint64_t size = 0, expected = 0;
    ga_slabhash_stats stats;
    left.keys = rest;
    memcpy(rest, s->keys, sizeof rest);
    for (uint64_t number = 0; number < KEYS; number++) {
        expect_key(s, number);
        expected += s->keys[number].count;
    }
    assert_ok(ga_slabhash_each(s->table, see, &left));
    for (uint64_t number = 0; number < KEYS; number++) {
        cr_assert_eq(rest[number].count, 0, "a key that the round has not seen");
    }
    assert_ok(ga_slabhash_size(s->table, &size));
    assert_ok(ga_slabhash_get_stats(s->table, &stats));
    cr_assert_eq(size, expected, "size %" PRIu64 ", expected %" PRIu64, size, expected);
    cr_assert_eq(stats.size, expected);
    cr_assert_geq(stats.bytes_held, stats.slabs * 128);
}

/* After a flush, the chains of a table of one bucket, or of path 1, are as short as possible. */
static void expect_flushed(subject *s, uint32_t buckets)
{
    uint64_t per_slab = s->mode == GA_SLABHASH_SET32 ? 30 : is_wide(s->mode) ? 7 : 15;
    ga_slabhash_stats stats;
    assert_ok(ga_slabhash_flush(s->table));
    assert_ok(ga_slabhash_get_stats(s->table, &stats));
    cr_assert_eq(stats.deleted, 0);
    if (buckets == 1) {
        uint64_t least = (stats.size + per_slab - 1) / per_slab;
        cr_assert_eq(stats.slabs, least ? least : 1);
    }
}

static void one_shape(ga_slabhash_options options, uint64_t seed)
{
    static model_key keys[KEYS];
    memset(keys, 0, sizeof keys);
    subject s = {open_table(options), options.mode, options.flags & GA_SLABHASH_MULTI, keys};
    for (uint32_t step = 0; step < 1500; step++) {
        uint64_t what = random_below(&seed, 10), number = random_below(&seed, KEYS);
        if (what < 6) {
            put(&s, number, value_of(&s, random_next(&seed)), what % 3);
        } else {
            take(&s, number, what == 9);
        }
        expect_key(&s, number);
        if (step % 500 == 499) {
            expect_all(&s);
            expect_flushed(&s, options.buckets);
            expect_all(&s);
        }
    }
    assert_ok(ga_slabhash_clear(s.table));
    memset(keys, 0, sizeof keys);
    expect_all(&s);
    put(&s, 7, value_of(&s, 1), 0);
    expect_all(&s);
    assert_ok(ga_slabhash_close(s.table));
}

static const struct {
    uint32_t buckets, path;
    ga_slabhash_hash *hash;
} shapes[] = {{1, 1, NULL}, {3, 1, NULL},   {64, 1, NULL}, {16, 4, NULL}, {5, 5, NULL},
              {7, 3, same}, {4, 2, itself}, {2, 1, same},  {300, 6, NULL}};

static void all_shapes(ga_slabhash_mode mode, uint32_t flags)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ga_slabhash_options options = {.mode = mode,
                                       .flags = flags,
                                       .buckets = shapes[i].buckets,
                                       .path = shapes[i].path,
                                       .hash = shapes[i].hash,
                                       .seed = i + 1};
        one_shape(options, 100 + i);
    }
}

Test(slabhash, set32)
{
    all_shapes(GA_SLABHASH_SET32, 0);
}

Test(slabhash, map32)
{
    all_shapes(GA_SLABHASH_MAP32, 0);
}

Test(slabhash, map64)
{
    all_shapes(GA_SLABHASH_MAP64, 0);
}

Test(slabhash, multiset32)
{
    all_shapes(GA_SLABHASH_SET32, GA_SLABHASH_MULTI);
}

Test(slabhash, multimap32)
{
    all_shapes(GA_SLABHASH_MAP32, GA_SLABHASH_MULTI);
}

Test(slabhash, multimap64)
{
    all_shapes(GA_SLABHASH_MAP64, GA_SLABHASH_MULTI);
}

/* ---- the paper's errata, and consequences of the design ----------------------------------- */

/* Figure 2, line 35: an existing key is compared with the empty pair, and never replaced. */
Test(slabhash, replace_of_a_key_that_is_there)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    ga_slabhash_found was;
    assert_ok(ga_slabhash_replace(table, 5, 1, &was));
    assert_ok(ga_slabhash_replace(table, 5, 2, &was));
    cr_assert(was.found && was.value == 1);
    assert_ok(ga_slabhash_search(table, 5, &was));
    cr_assert(was.found && was.value == 2);
    assert_ok(ga_slabhash_close(table));
}

/* A tombstone before a key on one path: the key must not be inserted there again. */
Test(slabhash, a_deleted_place_makes_no_double)
{
    for (uint32_t path = 1; path <= 3; path++) {
        ga_slabhash *table = open_table((ga_slabhash_options){
            .mode = GA_SLABHASH_MAP32, .buckets = 3, .path = path, .hash = same});
        uint64_t count;
        for (uint64_t key = 0; key < 70; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
        }
        for (uint64_t key = 0; key < 60; key += 2) {
            assert_ok(ga_slabhash_delete(table, key, NULL));
        }
        if (path > 1) {
            assert_ok(ga_slabhash_flush(table)); /* now there are empty slots before full ones */
        }
        for (uint64_t key = 0; key < 70; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
            assert_ok(ga_slabhash_search_all(table, key, NULL, 0, &count));
            cr_assert_eq(count, 1, "key %" PRIu64 " is there %" PRIu64 " times", key, count);
        }
        assert_ok(ga_slabhash_close(table));
    }
}

Test(slabhash, deleted_places_are_reused_where_they_may_be)
{
    ga_slabhash_stats stats;
    for (uint32_t flags = 0; flags <= GA_SLABHASH_MULTI; flags++) {
        ga_slabhash *table = open_table(
            (ga_slabhash_options){.mode = GA_SLABHASH_SET32, .flags = flags, .buckets = 1});
        for (uint64_t key = 0; key < 300; key++) {
            assert_ok(ga_slabhash_insert(table, key, 0, NULL));
            assert_ok(ga_slabhash_delete(table, key, NULL));
        }
        assert_ok(ga_slabhash_get_stats(table, &stats));
        cr_assert_eq(stats.slabs, flags ? 1 : 10);
        cr_assert_eq(stats.deleted, flags ? 0 : 300);
        assert_ok(ga_slabhash_flush(table));
        assert_ok(ga_slabhash_get_stats(table, &stats));
        cr_assert_eq(stats.slabs, 1);
        assert_ok(ga_slabhash_close(table));
    }
    /* With 64 bits a deleted key's place is its own. */
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .buckets = 1});
    for (uint64_t i = 0; i < 300; i++) {
        assert_ok(ga_slabhash_insert(table, i % 3, i, NULL));
        assert_ok(ga_slabhash_delete(table, i % 3, NULL));
    }
    assert_ok(ga_slabhash_get_stats(table, &stats));
    cr_assert_eq(stats.slabs, 1);
    cr_assert_eq(stats.deleted, 3);
    assert_ok(ga_slabhash_close(table));
}

/* Keys in a row are spread evenly by a hash that multiplies; these are not. */
static uint64_t scattered(uint64_t key)
{
    return (uint32_t)key * UINT32_C(2654435761);
}

/* The hash's value before mixing, by the inverse of the odd factor (five steps of Newton's method)
 * and the upper half from the lower one. */
static uint64_t unmixed(uint64_t hash)
{
    uint64_t factor = UINT64_C(0xff51afd7ed558ccd);
    uint64_t inverse = factor; /* correct in the lowest three bits */
    for (int i = 0; i < 5; i++) {
        inverse *= 2 - factor * inverse;
    }
    hash *= inverse;
    return hash ^ hash >> 32;
}

/* (a k + b) mod p, by a division; a few numbers have two forms. */
Test(slabhash, hashes_as_the_paper_says)
{
    const uint64_t prime = (UINT64_C(1) << 61) - 1;
    const uint64_t edges[] = {0, 1, UINT32_MAX, prime - 1, prime, prime + 1, UINT64_MAX};
    uint64_t state = 1;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        ga_slabhash_options options = {
            .options_size = sizeof options, .mode = GA_SLABHASH_MAP64, .seed = seed};
        ga_slabhash_plan plan;
        assert_ok(ga_slabhash_plan_of(&options, &plan));
        uint64_t a = plan.a >> 3;
        cr_assert(a && a < prime && plan.b < prime);
        ga_slabhash_view view = {.a = plan.a, .b = plan.b};
        for (uint32_t i = 0; i < 200; i++) {
            uint64_t key = i < 7 ? edges[i] : random_next(&state) >> (i % 2 ? 32 : 0);
            uint64_t sum = unmixed(ga_slabhash_seeded(view, key));
            uint64_t expected =
                (uint64_t)((__extension__(unsigned __int128) a * key + plan.b) % prime);
            cr_assert(sum % prime == expected && sum <= prime + 3, "seed %" PRIu64 " key %" PRIx64,
                      seed, key);
        }
    }
}

/* A path of several buckets fills them better: fewer slabs for as many keys. */
Test(slabhash, a_longer_path_chains_less)
{
    uint64_t chained[2];
    for (uint32_t i = 0; i < 2; i++) {
        ga_slabhash *table = open_table(
            (ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .buckets = 1024, .path = i ? 6 : 1});
        ga_slabhash_stats stats;
        for (uint64_t key = 0; key < 1024 * 12; key++) {
            assert_ok(ga_slabhash_insert(table, scattered(key), key, NULL));
        }
        assert_ok(ga_slabhash_get_stats(table, &stats));
        chained[i] = stats.chained;
        cr_assert_eq(stats.overflowed > 0, i == 1);
        cr_assert_eq(stats.size, 1024 * 12);
        for (uint64_t key = 0; key < 1024 * 24; key++) {
            ga_slabhash_found found;
            assert_ok(ga_slabhash_search(table, scattered(key), &found));
            cr_assert_eq(found.found, key < 1024 * 12);
        }
        assert_ok(ga_slabhash_close(table));
    }
    cr_assert_lt(chained[1], 8);
    cr_assert_gt(chained[0], 64);
}

/* ---- insert-or-apply by the caller's own way ------------------------------------------------- */

static uint64_t append_digit(void *context, uint64_t there, uint64_t given)
{
    ++*(uint32_t *)context;
    return there * 10 + given;
}

static uint64_t all_ones(void *context, uint64_t there, uint64_t given)
{
    (void)context;
    (void)there;
    (void)given;
    return UINT64_MAX;
}

Test(slabhash, apply_by_a_function)
{
    uint32_t calls = 0;
    for (ga_slabhash_mode mode = GA_SLABHASH_MAP32; mode <= GA_SLABHASH_MAP64; mode++) {
        ga_slabhash *table = open_table((ga_slabhash_options){.mode = mode});
        ga_slabhash_found was;
        for (uint64_t digit = 1; digit <= 4; digit++) {
            assert_ok(ga_slabhash_apply_by(table, 9, digit, append_digit, &calls, &was));
        }
        cr_assert_eq(was.value, 123);
        if (mode == GA_SLABHASH_MAP64) {
            assert_fails(ga_slabhash_apply_by(table, 9, 1, all_ones, NULL, NULL), GA_ERR_ARGUMENT,
                         "slabhash: value 0xffffffffffffffff in a map64: expected anything but all "
                         "bits set");
        }
        assert_ok(ga_slabhash_search(table, 9, &was));
        cr_assert_eq(was.value, 1234);
        assert_ok(ga_slabhash_close(table));
    }
    cr_assert_eq(calls, 6);
}
