/* SPDX-License-Identifier: MIT
 *
 * The slab hash in one thread, by arrays: batches of one operation and of several, SEARCHALL and
 * DELETEALL of many keys, and all contents at once.
 */
#include "support/slabhash_scene.h"

#include <stdint.h>
#include <string.h>

static uint32_t keys32[5000], values32[5000], found32[5000];
static uint8_t results[5000], ops[5000];

Test(slabhash_batches, batches)
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

Test(slabhash_batches, batches_of_all_operations)
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

/* Keys 0 to 99, of which key k has k % 5 pairs, of values 10 k and more; 1 at most if unique. */
static ga_slabhash *several_of_each(ga_slabhash_mode mode, uint32_t flags)
{
    ga_slabhash *table = NULL;
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = mode, .flags = flags, .buckets = 4, .seed = 1};
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

Test(slabhash_batches, batches_of_searchall_and_deleteall)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        for (uint32_t flags = 0; flags < 4; flags++) {
            batches_of_all(mode, flags);
        }
    }
}

Test(slabhash_batches, batches_of_searchall_and_deleteall_that_are_wrong)
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

/* ---- retrieval ------------------------------------------------------------------------------ */

Test(slabhash_batches, retrieve)
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

Test(slabhash_batches, a_round_ends_where_it_is_told_to)
{
    ga_slabhash *table = filled(GA_SLABHASH_MAP32, 0, 100);
    uint32_t seen = 0;
    assert_ok(ga_slabhash_each(table, stop_at_three, &seen));
    cr_assert_eq(seen, 3);
    assert_ok(ga_slabhash_close(table));
}
