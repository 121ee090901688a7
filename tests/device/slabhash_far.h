/* SPDX-License-Identifier: MIT
 *
 * Tables larger than the L2 cache, for slabhash_tests.cu: small tables that are marked as such.
 * Batches that change them and need no answers are sorted before they run.
 */
#ifndef GPUALLOC_TESTS_SLABHASH_FAR_H
#define GPUALLOC_TESTS_SLABHASH_FAR_H

#include "slabhash_suite.h"

/* A batch that needs no answers, only the number of each. */
template <typename T>
static inline std::vector<uint64_t>
count_as(ga_slabhash_device *table, const std::vector<uint8_t> &ops, ga_slabhash_op op,
         const std::vector<uint64_t> &keys, const std::vector<uint64_t> &values)
{
    device_array<T> k(std::vector<T>(keys.begin(), keys.end()));
    device_array<T> v(std::vector<T>(values.begin(), values.end()));
    device_array<uint8_t> each(ops.empty() ? std::vector<uint8_t>(1) : ops);
    device_array<uint64_t> counts(std::vector<uint64_t>(GA_SLABHASH_REFUSED + 1));
    ga_slabhash_batch batch = {};
    batch.count = keys.size();
    batch.keys = k.data;
    batch.values = GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_SET32 ? NULL : v.data;
    batch.ops = ops.empty() ? NULL : each.data;
    batch.op = op;
    EXPECT(ga_slabhash_device_should_sort(table, &batch));
    OK(ga_slabhash_device_run(table, &batch, counts.data, 0));
    return counts.read();
}

static inline std::vector<uint64_t> count(ga_slabhash_device *table,
                                          const std::vector<uint8_t> &ops, ga_slabhash_op op,
                                          const std::vector<uint64_t> &keys,
                                          const std::vector<uint64_t> &values)
{
    return GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64
               ? count_as<uint64_t>(table, ops, op, keys, values)
               : count_as<uint32_t>(table, ops, op, keys, values);
}

/* The table contains every other key, with its new value. */
static inline void expect_odd_ones(ga_slabhash_device *table, const std::vector<uint64_t> &keys,
                                   const std::vector<uint64_t> &values)
{
    bool map = GA_SLABHASH_MODE(table->view.kind) != GA_SLABHASH_SET32;
    batch_run left = run(table, GA_SLABHASH_SEARCH, keys, keys);
    bool right = true;
    for (uint64_t i = 0; i < keys.size(); i++) {
        right &= left.results[i] == (i % 2 ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT) &&
                 left.found[i] == (i % 2 && map ? values[i] : 0);
    }
    EXPECT(right);
}

/* Keys are inserted, all are found, half of them are deleted while the others get new values. */
static inline void far_subject(int device, const subject &s)
{
    uint64_t n = suite.quick ? 20001 : 200001;
    bool map = s.mode != GA_SLABHASH_SET32;
    std::vector<uint64_t> keys(n), values(n), newer(n), none(n);
    std::vector<uint8_t> ops(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = s.key(i);
        values[i] = i + 7;
        newer[i] = i + 9;
        none[i] = s.key(n + i);
        ops[i] = i % 2 == 0 ? GA_SLABHASH_DELETE : map ? GA_SLABHASH_REPLACE : GA_SLABHASH_INSERT;
    }
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(s.mode, s.flags, s.buckets, s.path);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    table.view.exceeds_l2 = 1;
    std::vector<uint64_t> in = count(&table, {}, GA_SLABHASH_INSERT, keys, values);
    EXPECT_EQUAL("the results ABSENT", in[GA_SLABHASH_ABSENT], n);
    in = count(&table, {}, GA_SLABHASH_INSERT, keys, newer);
    EXPECT_EQUAL("the results FOUND", in[GA_SLABHASH_FOUND], n);
    batch_run hit = run(&table, GA_SLABHASH_SEARCH, keys, keys);
    EXPECT_EQUAL("the results FOUND", hit.counts[GA_SLABHASH_FOUND], n);
    EXPECT(!map || hit.found == values);
    EXPECT_EQUAL("the results ABSENT",
                 run(&table, GA_SLABHASH_SEARCH, none, none).counts[GA_SLABHASH_ABSENT], n);
    std::vector<uint64_t> mixed = count(&table, ops, GA_SLABHASH_SEARCH, keys, newer);
    EXPECT_EQUAL("the results FOUND", mixed[GA_SLABHASH_FOUND], n);
    expect_odd_ones(&table, keys, newer);
    keys[0] = UINT64_MAX; /* reserved, and as 32 bits, too */
    in = count(&table, {}, GA_SLABHASH_DELETE, keys, values);
    EXPECT_EQUAL("the results REFUSED", in[GA_SLABHASH_REFUSED], 1);
    EXPECT_EQUAL("the results FOUND", in[GA_SLABHASH_FOUND], n / 2);
    expect_size(&table, 0);
    OK(ga_slabhash_device_close(&table));
}

static void far_tables(int device)
{
    static const subject subjects[] = {
        {narrow_key, GA_SLABHASH_SET32, 0, 3001, 1}, {narrow_key, GA_SLABHASH_SET32, 0, 16384, 16},
        {narrow_key, GA_SLABHASH_MAP32, 0, 5000, 1}, {narrow_key, GA_SLABHASH_MAP32, 0, 20000, 6},
        {wide_key, GA_SLABHASH_MAP64, 0, 9000, 1},   {wide_key, GA_SLABHASH_MAP64, 0, 20000, 16}};
    for (const subject &s : subjects) {
        far_subject(device, s);
    }
}

/* A batch of one key falls into one part. */
static void far_same_key(int device)
{
    uint64_t n = 50000;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 1000, 4);
    std::vector<uint64_t> keys(n, narrow_key(5)), ones(n, 1);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    table.view.exceeds_l2 = 1;
    std::vector<uint64_t> in = count(&table, {}, GA_SLABHASH_INSERT, keys, ones);
    EXPECT_EQUAL("the results ABSENT", in[GA_SLABHASH_ABSENT], 1);
    in = count(&table, {}, GA_SLABHASH_APPLY, keys, ones);
    EXPECT_EQUAL("the results FOUND", in[GA_SLABHASH_FOUND], n);
    batch_run now = run(&table, GA_SLABHASH_SEARCH, {keys[0]}, {keys[0]});
    EXPECT_EQUAL("the sum", now.found[0], n + 1);
    OK(ga_slabhash_device_close(&table));
}

#endif
