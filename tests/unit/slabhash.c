/* SPDX-License-Identifier: MIT
 *
 * The slab hash in one thread: each kind of table beside an array that says what must be in it;
 * batches; files, good and damaged; bad options; heaps that fail.
 */
#include <gpualloc/slabhash.h>

#include "../../hashtables/slabhash/table.h"

#include "support/expect.h"
#include "support/random.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

static ga_slabhash *open_table(ga_slabhash_options options)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    assert_ok(ga_slabhash_open(&table, &options));
    return table;
}

/* ---- a table and what must be in it --------------------------------------------------------- */

/* The values of a key, in any order: as many as it is there. */
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

/* The ends of the range among them, and keys that differ in one half alone. */
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

/* Take one of the value out of the model; it must be there. */
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

/* What a round over the table has not seen yet. */
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

/* Flushed, the chains of a table of one bucket, or of path 1, are as short as they can be. */
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
                                       .seed = i};
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

/* ---- the paper's errata, and what follows from the design -------------------------------------
 * */

/* Figure 2, line 35: a key that is there is compared with the empty pair, and never replaced. */
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

/* A place that was deleted before a key on the same path: the key may not be put there again. */
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
            assert_ok(ga_slabhash_flush(table)); /* now there are empty places before full ones */
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

/* The hash before it was mixed: the odd factor's inverse (five steps of Newton's), and the upper half
 * out of the lower one. */
static uint64_t unmixed(uint64_t hash)
{
    uint64_t factor = UINT64_C(0xff51afd7ed558ccd);
    uint64_t inverse = factor; /* in the lowest three bits */
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
    for (uint64_t seed = 0; seed < 100; seed++) {
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

/* A path of several buckets fills them better: fewer slabs for the same keys. */
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
        cr_assert_eq(stats.marked > 0, i == 1);
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

/* ---- insert-or-apply by the caller's own way ---------------------------------------------------
 * */

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

/* ---- batches -------------------------------------------------------------------------------- */

static uint32_t keys32[5000], values32[5000], found32[5000];
static uint8_t results[5000], ops[5000];

Test(slabhash, batches)
{
    ga_slabhash *table =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .buckets = 40});
    uint64_t done = 77;
    ga_slabhash_batch batch = {.count = 5000,
                               .keys = keys32,
                               .values = values32,
                               .results = results,
                               .found = found32,
                               .op = GA_SLABHASH_INSERT};
    for (uint32_t i = 0; i < 5000; i++) {
        keys32[i] = i % 4000; /* the last ones twice */
        values32[i] = i + 1;
    }
    assert_ok(ga_slabhash_run(table, &batch, &done));
    cr_assert_eq(done, 5000);
    for (uint32_t i = 0; i < 5000; i++) {
        cr_assert_eq(results[i], i < 4000 ? GA_SLABHASH_ABSENT : GA_SLABHASH_FOUND);
        cr_assert_eq(found32[i], i < 4000 ? 0 : i - 4000 + 1);
    }
    batch.op = GA_SLABHASH_SEARCH;
    batch.values = NULL;
    assert_ok(ga_slabhash_run(table, &batch, &done));
    for (uint32_t i = 0; i < 5000; i++) {
        cr_assert_eq(results[i], GA_SLABHASH_FOUND);
        cr_assert_eq(found32[i], keys32[i] + 1);
    }
    batch.count = 0;
    batch.keys = NULL;
    assert_ok(ga_slabhash_run(table, &batch, &done));
    cr_assert_eq(done, 0);
    assert_ok(ga_slabhash_close(table));
}

Test(slabhash, batches_of_all_operations)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    uint64_t done;
    ga_slabhash_batch batch = {.count = 8,
                               .keys = keys32,
                               .values = values32,
                               .results = results,
                               .found = found32,
                               .ops = ops,
                               .how = GA_SLABHASH_ADD};
    static const uint8_t asked[8] = {GA_SLABHASH_INSERT,
                                     GA_SLABHASH_APPLY,
                                     GA_SLABHASH_SEARCH,
                                     GA_SLABHASH_DELETE,
                                     GA_SLABHASH_DELETE,
                                     GA_SLABHASH_REPLACE,
                                     9,
                                     GA_SLABHASH_INSERT};
    static const uint8_t expected[8] = {GA_SLABHASH_ABSENT,  GA_SLABHASH_FOUND,  GA_SLABHASH_FOUND,
                                        GA_SLABHASH_FOUND,   GA_SLABHASH_ABSENT, GA_SLABHASH_ABSENT,
                                        GA_SLABHASH_REFUSED, GA_SLABHASH_REFUSED};
    static const uint32_t there[8] = {0, 10, 15, 15, 0, 0, 0, 0};
    memcpy(ops, asked, sizeof asked);
    for (uint32_t i = 0; i < 8; i++) {
        keys32[i] = i < 7 ? 3 : 0xfffffffe;
        values32[i] = i ? 5 : 10;
    }
    assert_fails(ga_slabhash_run(table, &batch, &done), GA_ERR_ARGUMENT,
                 "slabhash: 2 of a batch of 8 refused: expected keys and values that are not "
                 "reserved, and operations of a map32");
    cr_assert_eq(done, 6);
    for (uint32_t i = 0; i < 8; i++) {
        cr_assert_eq(results[i], expected[i], "operation %u: %u", i, results[i]);
        cr_assert_eq(found32[i], there[i], "operation %u: %u", i, found32[i]);
    }
    batch.values = NULL;
    assert_fails(ga_slabhash_run(table, &batch, &done), GA_ERR_ARGUMENT,
                 "slabhash: a batch of 8 that puts pairs in, without values: expected an array");
    batch.keys = NULL;
    assert_fails(ga_slabhash_run(table, &batch, &done), GA_ERR_ARGUMENT,
                 "slabhash: a batch of 8 without keys: expected an array");
    assert_ok(ga_slabhash_close(table));
}

/* ---- memory that ends -------------------------------------------------------------------------
 * */

/* 1 MiB of slabs beside the buckets: 8192 more of 15. */
/* Keys 0 to 99, of which key k has k % 5 pairs, of values 10 k and more; 1 at most if unique. */
static ga_slabhash *several_of_each(ga_slabhash_mode mode, uint32_t flags)
{
    ga_slabhash *table = NULL;
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = mode, .flags = flags, .buckets = 4};
    assert_ok(ga_slabhash_open(&table, &options));
    for (uint64_t key = 0; key < 100; key++) {
        for (uint64_t i = 0; i < key % 5; i++) {
            assert_ok(ga_slabhash_insert(table, key, 10 * key + i, NULL));
        }
    }
    return table;
}

static void expect_all_of(ga_slabhash_mode mode, uint32_t flags, const ga_slabhash_all *all,
                          uint64_t total)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < all->count; i++) {
        uint64_t key = (i * 7) % 130, pairs = key < 100 ? key % 5 : 0, seen = 0;
        pairs = pairs && !(flags & GA_SLABHASH_MULTI) ? 1 : pairs;
        cr_assert_eq(all->counts[i], pairs, "key %llu", (unsigned long long)key);
        cr_assert_eq(all->firsts[i], sum);
        for (uint64_t j = sum; j < sum + pairs && j < all->room; j++) {
            uint64_t number = mode == GA_SLABHASH_SET32 ? seen : all->values[j] - 10 * key;
            cr_assert(number < pairs && !(seen >> number & 1));
            seen |= mode == GA_SLABHASH_SET32 ? 0 : UINT64_C(1) << number;
        }
        sum += pairs;
    }
    cr_assert_eq(total, sum);
}

static void batches_of_all(ga_slabhash_mode mode, uint32_t flags)
{
    static uint64_t keys[200], counts[200], firsts[200], values[600];
    ga_slabhash *table = several_of_each(mode, flags);
    uint64_t total, size;
    ga_slabhash_all all = {
        .count = 130, .keys = keys, .counts = counts, .firsts = firsts, .values = values};
    for (uint32_t i = 0; i < 130; i++) {
        uint32_t key = (i * 7) % 130;
        if (mode == GA_SLABHASH_MAP64) {
            keys[i] = key;
        } else {
            ((uint32_t *)keys)[i] = key;
        }
    }
    for (all.room = 0; all.room <= 600; all.room += 100) {
        memset(values, 0xee, sizeof values);
        assert_ok(ga_slabhash_run_search_all(table, &all, &total));
        expect_all_of(mode, flags, &all, total);
        cr_assert(all.room == 600 || values[all.room] == UINT64_C(0xeeeeeeeeeeeeeeee));
    }
    assert_ok(ga_slabhash_size(table, &size));
    all.count = 60;
    assert_ok(ga_slabhash_run_delete_all(table, &all, &total));
    cr_assert_gt(total, 0);
    for (uint64_t i = 0; i < 60; i++) {
        total -= counts[i];
    }
    cr_assert_eq(total, 0);
    assert_ok(ga_slabhash_run_search_all(table, &all, &total));
    cr_assert_eq(total, 0);
    all.count = 130;
    all.room = 0;
    assert_ok(ga_slabhash_run_search_all(table, &all, &total));
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(total, size);
    assert_ok(ga_slabhash_run_delete_all(table, &all, NULL));
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 0);
    assert_ok(ga_slabhash_close(table));
}

Test(slabhash, batches_of_searchall_and_deleteall)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        for (uint32_t flags = 0; flags < 4; flags++) {
            batches_of_all(mode, flags);
        }
    }
}

Test(slabhash, batches_of_searchall_and_deleteall_that_are_wrong)
{
    ga_slabhash *table = several_of_each(GA_SLABHASH_MAP32, GA_SLABHASH_MULTI);
    uint32_t keys[3] = {4, 0xffffffff, 3};
    uint64_t counts[3], total = 9;
    ga_slabhash_all all = {.count = 3, .keys = keys, .counts = counts};
    assert_fails(ga_slabhash_run_search_all(table, &all, &total), GA_ERR_ARGUMENT,
                 "slabhash: 1 of a batch of 3 refused: expected keys and values that are not "
                 "reserved, and operations of a multimap32");
    cr_assert(counts[0] == 4 && counts[1] == 0 && counts[2] == 3 && total == 7);
    assert_fails_with(ga_slabhash_run_delete_all(table, &all, &total), GA_ERR_ARGUMENT,
                      "slabhash: 1 of a batch of 3 refused");
    cr_assert(counts[0] == 4 && counts[1] == 0 && counts[2] == 3 && total == 7);
    all.room = 1;
    assert_fails(ga_slabhash_run_search_all(table, &all, &total), GA_ERR_ARGUMENT,
                 "slabhash: room for 1 values without an array: expected one, or 0");
    all.room = 0;
    all.keys = NULL;
    assert_fails(ga_slabhash_run_search_all(table, &all, &total), GA_ERR_ARGUMENT,
                 "slabhash: a batch of 3 without keys: expected an array");
    assert_fails(ga_slabhash_run_delete_all(table, NULL, &total), GA_ERR_ARGUMENT,
                 "slabhash: no batch: expected a pointer");
    all.count = 0;
    assert_ok(ga_slabhash_run_delete_all(table, &all, &total));
    cr_assert_eq(total, 0);
    assert_ok(ga_slabhash_close(table));
    assert_fails(ga_slabhash_run_search_all(table, &all, &total), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
}

Test(slabhash, full_in_the_middle_of_a_batch)
{
    enum {
        MOST = 8193 * 15
    };
    ga_slabhash *table = open_table((ga_slabhash_options){
        .mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .buckets = 1024, .limit = 1 << 20});
    uint32_t *keys = calloc(2 * MOST, sizeof *keys);
    uint64_t done, size;
    ga_slabhash_batch batch = {
        .count = 2 * MOST, .keys = keys, .values = keys, .op = GA_SLABHASH_INSERT};
    for (uint32_t i = 0; i < 2 * MOST; i++) {
        keys[i] = i;
    }
    assert_fails_with(ga_slabhash_run(table, &batch, &done), GA_ERR_MEMORY,
                      "slabhash: no slabs for ");
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, done);
    cr_assert_eq(done, (8192 + 1024) * 15);
    assert_fails(ga_slabhash_insert(table, 5, 5, NULL), GA_ERR_MEMORY,
                 "slab: all 8192 units of 128 bytes are taken");
    assert_ok(ga_slabhash_clear(table));
    assert_ok(ga_slabhash_insert(table, 5, 5, NULL));
    free(keys);
    assert_ok(ga_slabhash_close(table));
}

/* Each request of a table's life fails once: the table stays as it was, and nothing is lost. */
Test(slabhash, each_request_fails_once)
{
    for (uint32_t nth = 1; nth <= 4; nth++) {
        char spec[64];
        ga_heap *heap;
        ga_slabhash *table = NULL;
        ga_stats stats;
        uint32_t failures = 0;
        snprintf(spec, sizeof spec, "fail:nth=%u/system", nth);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        ga_slabhash_options options = {
            .options_size = sizeof options, .mode = GA_SLABHASH_MAP64, .buckets = 1, .heap = heap};
        while (ga_slabhash_open(&table, &options) != GA_OK && failures < 5) {
            failures++;
        }
        for (uint64_t key = 0; key < 20000; key++) {
            ga_slabhash_found found;
            if (ga_slabhash_insert(table, key % 40, key, NULL) == GA_ERR_MEMORY) {
                assert_ok(ga_slabhash_search(table, key % 40, &found));
                cr_assert(!found.found);
                failures++;
                assert_ok(ga_slabhash_insert(table, key % 40, key, NULL));
            }
        }
        cr_assert_eq(failures, nth <= 2 ? 1 : 0, "request %u: %u failures", nth, failures);
        assert_ok(ga_slabhash_close(table));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 0);
        assert_ok(ga_heap_close(heap));
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

static char path[64];

static void make_path(void)
{
    int file;
    strcpy(path, "/tmp/slabhash-XXXXXX");
    file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
}

static ga_slabhash *filled(ga_slabhash_mode mode, uint32_t flags, uint64_t count)
{
    ga_slabhash *table = open_table(
        (ga_slabhash_options){.mode = mode, .flags = flags, .buckets = 50 + (uint32_t)count / 50});
    for (uint64_t i = 0; i < count; i++) {
        assert_ok(ga_slabhash_insert(table, flags ? i / 2 : i, i, NULL));
    }
    return table;
}

static bool expect_loaded(void *context, uint64_t key, uint64_t value)
{
    ga_slabhash_found found;
    assert_ok(ga_slabhash_search(context, key, &found));
    cr_assert(found.found &&
              (value == found.value || value == found.value + 1 || value + 1 == found.value));
    return true;
}

Test(slabhash, save_and_load)
{
    make_path();
    for (uint32_t kind = 0; kind < 6; kind++) {
        ga_slabhash_mode mode = (ga_slabhash_mode)(kind % 3);
        uint32_t flags = kind / 3;
        ga_slabhash *table = filled(mode, flags, 9001);
        ga_slabhash *other = open_table((ga_slabhash_options){
            .mode = mode, .flags = flags, .buckets = 700, .path = 3, .seed = 9});
        uint64_t size;
        assert_ok(ga_slabhash_save(table, path));
        assert_ok(ga_slabhash_load(other, path));
        assert_ok(ga_slabhash_size(other, &size));
        cr_assert_eq(size, 9001);
        assert_ok(ga_slabhash_each(table, expect_loaded, other));
        assert_ok(ga_slabhash_close(table));
        assert_ok(ga_slabhash_close(other));
    }
    unlink(path);
}

static void write_file(const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, size, file) == size);
    fclose(file);
}

static void expect_refused(ga_slabhash *table, ga_status status, const char *what)
{
    char sentence[200];
    uint64_t size;
    snprintf(sentence, sizeof sentence, "slabhash: %s: %s", path, what);
    assert_fails_with(ga_slabhash_load(table, path), status, sentence);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 0);
}

Test(slabhash, damaged_files)
{
    make_path();
    static unsigned char bytes[48 + 16 * 100 + 1];
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 100);
    assert_ok(ga_slabhash_save(table, path));
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    cr_assert_eq(size, 48 + 16 * 100);
    assert_ok(ga_slabhash_clear(table));
    for (size_t length = 0; length < size; length += length < 60 ? 1 : 97) {
        write_file(bytes, length);
        expect_refused(table, GA_ERR_IO, "truncated: expected");
    }
    write_file(bytes, size + 1);
    expect_refused(table, GA_ERR_IO, "longer than it says");
    for (size_t at = 0; at < size; at += at < 60 ? 1 : 31) {
        bytes[at] ^= 4;
        write_file(bytes, size);
        expect_refused(table, GA_ERR_IO, at < 8 ? "no table" : at >= 12 ? "corrupt" : "no table");
        bytes[at] ^= 4;
    }
    write_file(bytes, size);
    ga_slabhash *other = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64});
    expect_refused(other, GA_ERR_ARGUMENT, "a map32: expected a map64");
    assert_ok(ga_slabhash_load(table, path));
    unlink(path);
    expect_refused(other, GA_ERR_IO, "cannot open it: No such file or directory");
    assert_fails_with(ga_slabhash_save(table, "/nowhere/at/all"), GA_ERR_IO,
                      "slabhash: /nowhere/at/all: cannot make it: ");
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_slabhash_close(other));
}

Test(slabhash, a_file_for_which_there_is_no_memory)
{
    make_path();
    ga_slabhash *table = filled(GA_SLABHASH_MAP64, 0, 70000);
    ga_slabhash *small =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .buckets = 512, .limit = 1});
    char sentence[100];
    uint64_t size;
    assert_ok(ga_slabhash_save(table, path));
    assert_fails_with(ga_slabhash_load(small, path), GA_ERR_MEMORY, "slabhash: /tmp/slabhash-");
    assert_ok(ga_slabhash_size(small, &size));
    snprintf(sentence, sizeof sentence, "no slabs for more than %" PRIu64 " of 70000 pairs", size);
    cr_assert(strstr(ga_error_text(), sentence), "%s", ga_error_text());
    cr_assert_gt(size, 8192 * 6);
    unlink(path);
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_slabhash_close(small));
}

/* ---- files that cannot be written: what was there stays ---------------------------------------
 * */

static uint32_t entries(const char *directory)
{
    uint32_t count = 0;
    DIR *d = opendir(directory);
    cr_assert(d);
    while (readdir(d)) {
        count++;
    }
    closedir(d);
    return count - 2; /* . and .. */
}

/* A directory of its own, and the path of a file in it. */
static char directory[32];

static void make_directory(void)
{
    strcpy(directory, "/tmp/slabhash-XXXXXX");
    cr_assert(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(slabhash, a_save_that_fails_keeps_the_old_file)
{
    char sentence[200];
    uint64_t size;
    struct stat now;
    ga_slabhash *small = filled(GA_SLABHASH_MAP32, 0, 10);
    ga_slabhash *large = filled(GA_SLABHASH_MAP32, 0, 20000);
    make_directory();
    assert_ok(ga_slabhash_save(small, path));
    cr_assert_eq(chmod(path, 0640), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(65536);
    ga_status status = ga_slabhash_save(large, path);
    limit_files(RLIM_INFINITY);
    snprintf(sentence, sizeof sentence, "slabhash: %s: cannot write it: File too large", path);
    assert_fails(status, GA_ERR_IO, sentence);
    cr_assert_eq(entries(directory), 1);
    assert_ok(ga_slabhash_clear(small));
    assert_ok(ga_slabhash_load(small, path));
    assert_ok(ga_slabhash_size(small, &size));
    cr_assert_eq(size, 10);
    assert_ok(ga_slabhash_save(large, path));
    cr_assert(stat(path, &now) == 0 && (now.st_mode & 0777) == 0640);
    cr_assert_eq(now.st_size, 48 + 16 * 20000);
    cr_assert_eq(entries(directory), 1);
    cr_assert(unlink(path) == 0 && rmdir(directory) == 0);
    assert_ok(ga_slabhash_close(small));
    assert_ok(ga_slabhash_close(large));
}

/* A link is followed; what it leads to is written if it is a file. */
Test(slabhash, what_is_no_file_stays)
{
    char link_path[80], sentence[200];
    struct stat there;
    ga_slabhash *table = filled(GA_SLABHASH_SET32, 0, 10);
    make_directory();
    snprintf(link_path, sizeof link_path, "%s/link", directory);
    for (int to_nothing = 0; to_nothing < 2; to_nothing++) {
        cr_assert_eq(symlink(to_nothing ? path : "/dev/full", link_path), 0);
        snprintf(sentence, sizeof sentence, "slabhash: %s: %s: expected", link_path,
                 to_nothing ? "a link to nothing" : "no regular file");
        assert_fails_with(ga_slabhash_save(table, link_path), GA_ERR_IO, sentence);
        cr_assert(lstat(link_path, &there) == 0 && S_ISLNK(there.st_mode));
        cr_assert_eq(entries(directory), 1);
        cr_assert_eq(unlink(link_path), 0);
    }
    assert_fails_with(ga_slabhash_save(table, directory), GA_ERR_IO, "slabhash: /tmp/slabhash-");
    assert_ok(ga_slabhash_save(table, path));
    cr_assert_eq(symlink("file", link_path), 0);
    assert_ok(ga_slabhash_insert(table, 77, 0, NULL));
    assert_ok(ga_slabhash_save(table, link_path));
    cr_assert(lstat(link_path, &there) == 0 && S_ISLNK(there.st_mode));
    cr_assert(stat(path, &there) == 0 && there.st_size == 48 + 16 * 11);
    cr_assert_eq(entries(directory), 2);
    cr_assert(unlink(link_path) == 0 && unlink(path) == 0 && rmdir(directory) == 0);
    assert_ok(ga_slabhash_close(table));
}

/* ---- retrieval ------------------------------------------------------------------------------ */

Test(slabhash, retrieve)
{
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 3000);
    uint64_t count, sum = 0;
    assert_ok(ga_slabhash_retrieve(table, keys32, values32, 5000, &count));
    cr_assert_eq(count, 3000);
    for (uint32_t i = 0; i < 3000; i++) {
        cr_assert_eq(keys32[i], values32[i]);
        sum += keys32[i];
    }
    cr_assert_eq(sum, 3000 * 2999 / 2);
    keys32[10] = 12345;
    assert_ok(ga_slabhash_retrieve(table, keys32, NULL, 10, &count));
    cr_assert_eq(count, 3000);
    cr_assert_eq(keys32[10], 12345);
    assert_ok(ga_slabhash_close(table));
}

static bool stop_at_three(void *context, uint64_t key, uint64_t value)
{
    (void)key;
    (void)value;
    return ++*(uint32_t *)context < 3;
}

Test(slabhash, a_round_ends_where_it_is_told_to)
{
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 100);
    uint32_t seen = 0;
    assert_ok(ga_slabhash_each(table, stop_at_three, &seen));
    cr_assert_eq(seen, 3);
    assert_ok(ga_slabhash_close(table));
}

/* ---- bad input ------------------------------------------------------------------------------ */

Test(slabhash, reserved_keys_and_values)
{
    ga_slabhash *map32 = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    ga_slabhash *map64 = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64});
    ga_slabhash_found found;
    assert_fails(ga_slabhash_insert(map32, 0xffffffff, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0xffffffff in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_search(map32, 0xfffffffe, &found), GA_ERR_ARGUMENT,
                 "slabhash: key 0xfffffffe in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_delete(map32, UINT64_C(1) << 32, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0x100000000 in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_replace(map32, 1, UINT64_C(1) << 32, NULL), GA_ERR_ARGUMENT,
                 "slabhash: value 0x100000000 in a map32: expected 32 bits");
    assert_fails(ga_slabhash_insert(map64, UINT64_MAX, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0xffffffffffffffff in a map64: expected anything but all bits set");
    assert_fails(ga_slabhash_insert(map64, 1, UINT64_MAX, NULL), GA_ERR_ARGUMENT,
                 "slabhash: value 0xffffffffffffffff in a map64: expected anything but all bits "
                 "set");
    assert_ok(ga_slabhash_close(map32));
    assert_ok(ga_slabhash_close(map64));
}

static uint32_t done(const ga_slabhash *table, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    ga_slabhash_change_to to = {.key = key, .value = value, .op = op};
    return ga_slabhash_do(table->kind, table->view, SLABHASH_TILE, &claimed,
                          slabhash_hash_of(table, key), to)
        .result;
}

/* What kernels call refuses them by itself, with empty and deleted places all around. */
Test(slabhash, reserved_and_wide_keys_in_kernels)
{
    static const uint64_t narrow[] = {0xffffffff, 0xfffffffe, UINT64_MAX, UINT64_C(7) << 32 | 3};
    for (uint32_t kind = 0; kind < 7; kind += kind == 2 ? 2 : 1) {
        bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
        ga_slabhash *table =
            open_table((ga_slabhash_options){.mode = (ga_slabhash_mode)GA_SLABHASH_MODE(kind),
                                             .flags = GA_SLABHASH_IS_MULTI(kind) ? 1 : 0,
                                             .buckets = 1});
        uint64_t values[4] = {5}, size;
        for (uint64_t key = 0; key < 5; key++) {
            assert_ok(ga_slabhash_insert(table, key, 9, NULL));
        }
        assert_ok(ga_slabhash_delete(table, 4, NULL));
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t key = wide ? UINT64_MAX : narrow[i];
            ga_slabhash_walk walk = ga_slabhash_walk_path(table->view, 0);
            cr_assert_eq(
                ga_slabhash_find_all(table->kind, table->view, SLABHASH_TILE, walk, key, values, 4),
                0);
            cr_assert_eq(ga_slabhash_remove_all(table->kind, table->view, SLABHASH_TILE, walk, key),
                         0);
            for (uint32_t op = 0; op < GA_SLABHASH_OP_COUNT; op++) {
                cr_assert_eq(done(table, op, key, 1), GA_SLABHASH_REFUSED, "kind %u, operation %u",
                             kind, op);
            }
        }
        bool map32 = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32;
        cr_assert_eq(done(table, GA_SLABHASH_INSERT, 8, UINT64_C(1) << 32),
                     map32 ? GA_SLABHASH_REFUSED : GA_SLABHASH_ABSENT);
        assert_ok(ga_slabhash_size(table, &size));
        cr_assert(values[0] == 5 && size == (map32 ? 4 : 5));
        assert_ok(ga_slabhash_close(table));
    }
}

Test(slabhash, operations_that_a_table_has_not)
{
    ga_slabhash *set = open_table((ga_slabhash_options){.mode = GA_SLABHASH_SET32});
    ga_slabhash *multi =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI});
    assert_fails(ga_slabhash_apply(set, 1, 1, GA_SLABHASH_ADD, NULL), GA_ERR_UNSUPPORTED,
                 "slabhash: apply in a set32: expected a map of unique keys");
    assert_fails(ga_slabhash_replace(multi, 1, 1, NULL), GA_ERR_UNSUPPORTED,
                 "slabhash: replace in a multimap32: expected a table of unique keys");
    assert_fails(ga_slabhash_apply(multi, 1, 1, (ga_slabhash_how)7, NULL), GA_ERR_ARGUMENT,
                 "slabhash: how=7: expected 0 to 2");
    assert_ok(ga_slabhash_close(set));
    assert_ok(ga_slabhash_close(multi));
}

Test(slabhash, no_table_and_closed_ones)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_SET32});
    ga_slabhash_found found;
    assert_ok(ga_slabhash_close(NULL));
    assert_fails(ga_slabhash_insert(NULL, 1, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: no table: expected one that is open");
    assert_fails(ga_slabhash_search(table, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: no place for what is found: expected a pointer");
    assert_ok(ga_slabhash_close(table));
    assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
    assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
}

/* ---- tables that check how they are used ------------------------------------------------------ */

static ga_slabhash *open_checked(uint32_t flags)
{
    ga_slabhash *table = NULL;
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = GA_SLABHASH_MAP32,
                                   .flags = GA_SLABHASH_CHECK | flags};
    assert_ok(ga_slabhash_open(&table, &options));
    return table;
}

/* Other tables have been opened since, which is noticed only in checked ones. */
Test(slabhash, a_checked_table_stays_closed)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags), *other[20];
        ga_slabhash_found found;
        uint64_t count;
        assert_ok(ga_slabhash_insert(table, 1, 2, NULL));
        assert_ok(ga_slabhash_close(table));
        for (uint32_t i = 0; i < 20; i++) {
            other[i] = open_checked(flags);
            cr_assert_neq(other[i], table);
        }
        static const char *const sentence =
            "slabhash: a table that was closed: expected an open one";
        assert_fails(ga_slabhash_insert(table, 1, 1, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_delete(table, 1, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_delete_all(table, 1, &count), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_retrieve(table, NULL, NULL, 0, &count), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_clear(table), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT, sentence);
        for (uint32_t i = 0; i < 20; i++) {
            assert_ok(ga_slabhash_close(other[i]));
        }
    }
}

/* All calls answer what they do without checks. */
Test(slabhash, a_checked_table_does_the_same)
{
    make_path();
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags);
        ga_slabhash_found found;
        uint64_t count;
        for (uint64_t key = 0; key < 2000; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
        }
        assert_ok(ga_slabhash_save(table, path));
        assert_ok(ga_slabhash_clear(table));
        assert_ok(ga_slabhash_load(table, path));
        for (uint64_t key = 0; key < 1000; key++) {
            assert_ok(ga_slabhash_delete(table, key, &found));
            cr_assert(found.found && found.value == key);
        }
        assert_ok(ga_slabhash_flush(table));
        for (uint64_t key = 0; key < 2000; key++) {
            assert_ok(ga_slabhash_search(table, key, &found));
            cr_assert_eq(found.found, key >= 1000);
        }
        assert_ok(ga_slabhash_delete_all(table, 1000, &count));
        assert_ok(ga_slabhash_size(table, &count));
        cr_assert_eq(count, 999);
        cr_assert_eq(table->use, 0);
        assert_ok(ga_slabhash_close(table));
    }
    unlink(path);
}

/* In a round, which is a call: those that want the table alone are refused, others are not. */
static bool want_it_alone(void *context, uint64_t key, uint64_t value)
{
    ga_slabhash *table = context;
    (void)value;
    assert_fails(ga_slabhash_clear(table), GA_ERR_ARGUMENT,
                 "slabhash: clear beside 1 other calls: expected the table alone");
    assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT,
                 "slabhash: close beside 1 other calls: expected the table alone");
    assert_fails(ga_slabhash_load(table, "/dev/null"), GA_ERR_ARGUMENT,
                 "slabhash: load beside 1 other calls: expected the table alone");
    if (!slabhash_grows(table)) {
        assert_fails(ga_slabhash_flush(table), GA_ERR_ARGUMENT,
                     "slabhash: flush beside 1 other calls: expected the table alone");
    }
    assert_ok(ga_slabhash_delete(table, key, NULL));
    return true;
}

Test(slabhash, who_is_not_alone_is_refused_in_a_checked_table)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags);
        uint64_t size;
        for (uint64_t key = 0; key < 100; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
        }
        assert_ok(ga_slabhash_each(table, want_it_alone, table));
        assert_ok(ga_slabhash_size(table, &size));
        cr_assert_eq(size, 0);
        assert_ok(ga_slabhash_clear(table));
        assert_ok(ga_slabhash_close(table));
    }
}

/* Another thread is alone. */
Test(slabhash, a_call_beside_one_that_is_alone_is_refused_in_a_checked_table)
{
    static const char *const sentence =
        "slabhash: a call beside one that wants the table alone: expected one after the other";
    ga_slabhash *table = open_checked(0);
    uint64_t size;
    uint32_t key = 1;
    ga_slabhash_found found;
    ga_slabhash_batch batch = {.count = 1, .keys = &key, .values = &key, .op = GA_SLABHASH_INSERT};
    ga_slabhash_all all = {.count = 1, .keys = &key};
    assert_ok(ga_slabhash_insert(table, 1, 1, NULL));
    cr_assert_eq(ga_slabhash_use_begin(&table->use, true), 0);
    assert_fails(ga_slabhash_insert(table, 2, 2, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_run(table, &batch, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_run_delete_all(table, &all, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_size(table, &size), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_flush(table), GA_ERR_ARGUMENT,
                 "slabhash: flush beside 1 other calls: expected the table alone");
    ga_slabhash_use_end(&table->use, true);
    cr_assert_eq(table->use, 0);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 1);
    assert_ok(ga_slabhash_close(table));
}

Test(slabhash, bad_options)
{
    ga_slabhash *table;
    ga_slabhash_options good = {.options_size = sizeof good}, bad = good;
    bad.options_size = 8;
    assert_fails_with(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                      "slabhash: options_size=8: expected ");
    cr_assert_null(table);
    bad = good;
    bad.flags = 8;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: flags=0x8: expected any of GA_SLABHASH_MULTI, _GROW, _CHECK, or none");
    bad = good;
    bad.mode = (ga_slabhash_mode)3;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: mode=3: expected 0 to 2");
    bad = good;
    bad.buckets = 5;
    bad.path = 6;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: path=6 with buckets=5: expected 1 to 5, or 0");
    bad = good;
    bad.path = 17;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: path=17 with buckets=1024: expected 1 to 16, or 0");
    bad = good;
    bad.limit = (UINT64_C(64) << 30) + 1;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: limit=68719476737: expected at most 68719476736 bytes, or 0");
    ga_slabhash_plan plan;
    bad.limit = UINT64_MAX; /* no affair of tables in other memory */
    assert_ok(ga_slabhash_plan_of(&bad, &plan));
    cr_assert(plan.buckets == 1024 && plan.bytes == 1024 * 128);
    assert_fails(ga_slabhash_open(NULL, &good), GA_ERR_ARGUMENT,
                 "slabhash: no place for the table: expected a pointer");
    assert_ok(ga_slabhash_open(&table, NULL));
    cr_assert_str_eq(ga_slabhash_mode_text(GA_SLABHASH_MAP32), "map32");
    cr_assert_str_eq(ga_slabhash_mode_text((ga_slabhash_mode)77), "?");
    assert_ok(ga_slabhash_close(table));
}
