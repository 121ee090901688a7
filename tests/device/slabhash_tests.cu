/* SPDX-License-Identifier: MIT
 *
 * The slab hash on GPUs: batches with their expected results, tables of each kind; concurrent
 * operations, whose counts must add up and whose histories must be linearizable; lack of memory.
 * One line a case, then `N passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77
 * without a GPU.
 *
 *   slabhash_tests [--only WORDS] [--quick] [--no-growing]
 */
#include <gpualloc/slabhash.cuh>

#include "slabhash_far.h"
#include "slabhash_suite.h"

static const subject subjects[] = {
    {narrow_key, GA_SLABHASH_SET32, 0, 1000, 1}, {narrow_key, GA_SLABHASH_MAP32, 0, 1000, 1},
    {narrow_key, GA_SLABHASH_MAP32, 0, 5000, 4}, {wide_key, GA_SLABHASH_MAP64, 0, 3000, 1},
    {wide_key, GA_SLABHASH_MAP64, 0, 10000, 6},  {narrow_key, GA_SLABHASH_MAP32, 1, 1000, 1},
    {wide_key, GA_SLABHASH_MAP64, 1, 2000, 3},   {narrow_key, GA_SLABHASH_SET32, 1, 9, 2},
};

static void batches(int device)
{
    for (const subject &s : subjects) {
        one_subject(device, s);
    }
}

/* Equal keys many times in one batch: one pair is inserted with unique keys, all pairs
 * otherwise. */
static void duplicates(int device)
{
    uint64_t n = 20000, different = 100;
    for (uint32_t flags = 0; flags < 2; flags++) {
        ga_slabhash_device table;
        ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, flags, 16, 2);
        std::vector<uint64_t> keys(n);
        for (uint64_t i = 0; i < n; i++) {
            keys[i] = narrow_key(i % different);
        }
        REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
        batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
        EXPECT_EQUAL("the results ABSENT", in.counts[GA_SLABHASH_ABSENT], (flags ? n : different));
        expect_size(&table, flags ? n : different);
        if (!flags) {
            batch_run sums = run(&table, GA_SLABHASH_APPLY, keys, std::vector<uint64_t>(n, 1));
            EXPECT_EQUAL("the results FOUND", sums.counts[GA_SLABHASH_FOUND], n);
            batch_run now = run(&table, GA_SLABHASH_SEARCH, keys, keys);
            bool right = true;
            for (uint64_t i = 0; i < n; i++) {
                right &= now.found[i] == keys[i] + n / different;
            }
            EXPECT(right);
        }
        OK(ga_slabhash_device_close(&table));
    }
}

/* Each key four times, far apart in one batch, and twice as many keys as the buckets have slots:
 * slabs are needed everywhere, often by several lanes at once, and for one key. */
static void crowded_table(int device, ga_slabhash_mode mode, uint32_t path)
{
    const uint64_t different = suite.quick ? 6000 : 300000, n = 4 * different;
    const uint32_t places = mode == GA_SLABHASH_SET32 ? 30 : mode == GA_SLABHASH_MAP32 ? 15 : 7;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(mode, 0, (uint32_t)(different / 2 / places), path);
    std::vector<uint64_t> keys(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = narrow_key(i * 7 % different);
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    for (int round = 0; round < 2; round++) { /* the second round beside slots that stay taken */
        batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
        EXPECT_EQUAL("the results ABSENT", in.counts[GA_SLABHASH_ABSENT], different);
        EXPECT_EQUAL("the results FOUND", in.counts[GA_SLABHASH_FOUND], n - different);
        expect_size(&table, different);
        batch_run hit = run(&table, GA_SLABHASH_SEARCH, keys, keys);
        EXPECT_EQUAL("the results FOUND", hit.counts[GA_SLABHASH_FOUND], n);
        EXPECT(mode == GA_SLABHASH_SET32 || hit.found == keys);
        batch_run out = run(&table, GA_SLABHASH_DELETE, keys, keys);
        EXPECT_EQUAL("the results FOUND", out.counts[GA_SLABHASH_FOUND], different);
        expect_size(&table, 0);
    }
    OK(ga_slabhash_device_close(&table));
}

static void crowded(int device)
{
    for (uint32_t path : {1u, 4u, 16u}) {
        crowded_table(device, GA_SLABHASH_SET32, path);
        crowded_table(device, GA_SLABHASH_MAP32, path);
        crowded_table(device, GA_SLABHASH_MAP64, path);
    }
}

static void all_pairs_of_keys(int device)
{
    for (uint32_t flags = 0; flags < 2; flags++) {
        all_of_each<uint32_t>(device, GA_SLABHASH_SET32, flags);
        all_of_each<uint32_t>(device, GA_SLABHASH_MAP32, flags);
        all_of_each<uint64_t>(device, GA_SLABHASH_MAP64, flags);
    }
}

/* Reserved keys up to 2^31, and others behind them. */
static void more_than_2_31(int device)
{
    const uint64_t many = UINT64_C(1) << 31, behind = 1000;
    size_t free_bytes = 0, bytes = 0;
    CUDA_DONE(cudaMemGetInfo(&free_bytes, &bytes));
    if (suite.quick || free_bytes < 3 * many * sizeof(uint32_t)) {
        SKIP("takes 8 GiB");
    }
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_SET32, 0, 100, 1);
    std::vector<uint32_t> last(behind);
    for (uint32_t i = 0; i < behind; i++) {
        last[i] = i;
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    device_array<uint32_t> keys(many + behind, 0xff);
    CUDA_DONE(cudaMemcpy(keys.data + many, last.data(), behind * sizeof(uint32_t),
                         cudaMemcpyHostToDevice));
    ga_slabhash_batch batch = {};
    batch.count = many + behind;
    batch.keys = keys.data;
    for (uint32_t time = 0; time < 2; time++) {
        device_array<uint64_t> counts(4);
        batch.op = time ? GA_SLABHASH_SEARCH : GA_SLABHASH_INSERT;
        OK(ga_slabhash_device_run(&table, &batch, counts.data, 0));
        std::vector<uint64_t> results = counts.read();
        EXPECT_EQUAL("the results REFUSED", results[GA_SLABHASH_REFUSED], many);
        EXPECT_EQUAL("the others", results[time ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT], behind);
    }
    expect_size(&table, behind);
    OK(ga_slabhash_device_close(&table));
}

static void retrieval(int device)
{
    uint64_t n = 5000, count = 0;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 300, 1);
    std::vector<uint64_t> keys(n), values(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = narrow_key(i);
        values[i] = i;
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    run(&table, GA_SLABHASH_INSERT, keys, values);
    device_array<uint32_t> k(n), v(n);
    OK(ga_slabhash_device_retrieve(&table, k.data, v.data, n, &count, 0));
    EXPECT_EQUAL("the pairs retrieved", count, n);
    std::vector<uint32_t> got = v.read(), their = k.read();
    bool right = true;
    for (uint64_t i = 0; i < n; i++) {
        right &= got[i] < n && their[i] == narrow_key(got[i]);
    }
    std::sort(got.begin(), got.end());
    EXPECT(right && std::unique(got.begin(), got.end()) == got.end());
    OK(ga_slabhash_device_close(&table));
}

/* ---- operations that meet ------------------------------------------------------------------- */

/* Any operations on few keys; inserts minus deletions are the contents, key by key. */
static void mixes(int device)
{
    uint64_t n = suite.quick ? 20000 : 1 << 20, different = 3000;
    for (const subject &s : subjects) {
        ga_slabhash_device table;
        ga_slabhash_options options = options_of(s.mode, s.flags, s.buckets / 8 + 2, 2);
        std::vector<uint32_t> narrow(n);
        std::vector<uint64_t> keys(n), values(n, 1);
        std::vector<uint8_t> ops(n);
        std::vector<int64_t> there(different);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
            keys[i] = s.key(random % different);
            narrow[i] = (uint32_t)keys[i];
            values[i] = random % different;
            ops[i] = random / different % 3 == 0   ? GA_SLABHASH_INSERT
                     : random / different % 3 == 1 ? GA_SLABHASH_DELETE
                                                   : GA_SLABHASH_SEARCH;
        }
        bool wide = s.mode == GA_SLABHASH_MAP64;
        device_array<uint32_t> k32(narrow);
        device_array<uint64_t> k64(keys), v64(values);
        device_array<uint8_t> o(ops), results(n);
        ga_slabhash_batch batch = {};
        batch.count = n;
        batch.keys = wide ? (void *)k64.data : k32.data;
        batch.values = wide ? (void *)v64.data : k32.data;
        batch.ops = o.data;
        batch.results = results.data;
        REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
        OK(ga_slabhash_device_run(&table, &batch, NULL, 0));
        CUDA_DONE(cudaDeviceSynchronize());
        std::vector<uint8_t> was = results.read();
        int64_t all = 0;
        for (uint64_t i = 0; i < n; i++) {
            there[values[i]] += ops[i] == GA_SLABHASH_INSERT && was[i] == GA_SLABHASH_ABSENT;
            there[values[i]] -= ops[i] == GA_SLABHASH_DELETE && was[i] == GA_SLABHASH_FOUND;
        }
        std::vector<uint64_t> each(different);
        bool right = true;
        for (uint64_t i = 0; i < different; i++) {
            each[i] = s.key(i);
            all += there[i];
            right &= there[i] >= 0 && (s.flags || there[i] <= 1);
        }
        EXPECT(right);
        expect_size(&table, (uint64_t)all);
        batch_run now = run(&table, GA_SLABHASH_SEARCH, each, each);
        for (uint64_t i = 0; i < different; i++) {
            right &= (now.results[i] == GA_SLABHASH_FOUND) == (there[i] > 0);
        }
        EXPECT(right);
        OK(ga_slabhash_device_close(&table));
    }
}

/* Each history is TILES blocks, of one tile each, which meet at its gate and then call. */
template <uint32_t kind>
static __global__ void history_kernel(ga_slabhash_view table, slabhash_record *records,
                                      uint32_t *gates, uint64_t *clock)
{
    uint32_t history = blockIdx.x / TILES;
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    meet(session.tile, gates + history);
    make_calls<kind>(&session, records + (size_t)blockIdx.x * CALLS, clock);
    ga_slabhash_session_end(&session);
}

/* Lanes make the calls of a history, 8 in each of 3 warps, one each: the lanes of a warp, of 4
 * histories, are served together (many_tile.h). */
template <uint32_t kind>
static __global__ void lanes_kernel(ga_slabhash_view table, slabhash_record *records,
                                    uint32_t *gates, uint64_t *clock)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t group = blockIdx.x / CALLS;
    uint32_t history = group * (32 / TILES) + threadIdx.x / TILES;
    slabhash_record *own =
        records + ((size_t)history * CALLS + blockIdx.x % CALLS) * TILES + threadIdx.x % TILES;
    uint32_t op = own->op;
    uint64_t key = own->key, value = own->value;
    if (threadIdx.x == 0) {
        ga_add_relaxed(gates + group, 1u);
        for (uint32_t i = 0; i < 4096 && ga_load_relaxed(gates + group) < CALLS; i++) {
        }
    }
    __syncwarp();
    own->began = ga_add64_relaxed(clock, 1) + 1;
    __threadfence();
    __syncwarp();
    ga_slabhash_answer answer = lanes_of_both_ways<kind>(&session, op, key, value);
    __threadfence();
    own->ended = ga_add64_relaxed(clock, 1) + 1;
    own->found = answer.result == GA_SLABHASH_FOUND;
    own->was = answer.value;
    ga_slabhash_session_end(&session);
}

/* Calls by whole tiles, or by lanes. */
template <uint32_t kind> static void histories_of(int device, uint32_t n, bool lanes)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of((ga_slabhash_mode)kind, 0, n / 8 + 3, lanes ? 2 : 3);
    device_array<slabhash_record> there(calls_of(n));
    device_array<uint32_t> gates(n);
    device_array<uint64_t> clock(1);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    if (lanes) {
        lanes_kernel<kind>
            <<<n / (32 / TILES) * CALLS, 32>>>(table.view, there.data, gates.data, clock.data);
    } else {
        history_kernel<kind>
            <<<n * TILES, GA_SLABHASH_TILE>>>(table.view, there.data, gates.data, clock.data);
    }
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    expect_linearizable(there.read(), n);
    OK(ga_slabhash_device_close(&table));
}

static void histories(int device)
{
    uint32_t n = suite.quick ? 200 : 20000;
    EXPECT(!slabhash_try_checker());
    histories_of<GA_SLABHASH_MAP32>(device, n, false);
    histories_of<GA_SLABHASH_MAP64>(device, n, false);
}

static void histories_of_lanes(int device)
{
    uint32_t n = suite.quick ? 200 : 20000;
    histories_of<GA_SLABHASH_MAP32>(device, n, true);
    histories_of<GA_SLABHASH_MAP64>(device, n, true);
}

/* --operations N: N in all. */
static void books(int device)
{
    keep_books<GA_SLABHASH_MAP32>(device, GA_SLABHASH_MAP32, 0, book_operations() / 2);
    keep_books<GA_SLABHASH_MAP64>(device, GA_SLABHASH_MAP64, 0, book_operations() / 2);
}

/* ---- memory that ends, and bad input --------------------------------------------------------- */

static void full(int device)
{
    uint64_t n = 60000;
    ga_heap *slabs = NULL;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    std::vector<uint64_t> keys = narrow_keys(n);
    /* 1024 slabs of 15 beside 64 buckets. */
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,blocks=1,capacity=128K/cuda") == GA_OK);
    options.heap = slabs;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
    uint64_t went = in.counts[GA_SLABHASH_ABSENT];
    EXPECT(went > 64 * 15 && went <= (1024 + 64) * 15);
    EXPECT_EQUAL("what went in and what is FULL", went + in.counts[GA_SLABHASH_FULL], n);
    expect_size(&table, went);
    batch_run now = run(&table, GA_SLABHASH_SEARCH, keys, keys);
    bool right = true;
    for (uint64_t i = 0; i < n; i++) {
        right &= (now.results[i] == GA_SLABHASH_FOUND) == (in.results[i] == GA_SLABHASH_ABSENT);
    }
    EXPECT(right);
    OK(ga_slabhash_device_clear(&table, 0));
    EXPECT_EQUAL("the results ABSENT",
                 run(&table, GA_SLABHASH_INSERT, {1, 2}, {1, 2}).counts[GA_SLABHASH_ABSENT], 2);
    OK(ga_slabhash_device_close(&table));
    OK(ga_heap_close(slabs));
}

/* A heap that cannot grow under kernels does between calls, once something has found it full. */
static void more_slabs(int device)
{
    const uint64_t n = 60000;
    ga_heap *slabs = NULL;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    std::vector<uint64_t> keys = narrow_keys(n);
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,blocks=1,capacity=128K,limit=4M/cuda") == GA_OK);
    options.heap = slabs;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
    EXPECT(in.counts[GA_SLABHASH_FULL] > 0);
    for (uint32_t i = 0; i < 16 && in.counts[GA_SLABHASH_FULL]; i++) {
        in = run(&table, GA_SLABHASH_INSERT, keys, keys);
    }
    EXPECT_EQUAL("the results FULL", in.counts[GA_SLABHASH_FULL], 0);
    expect_size(&table, n);
    OK(ga_slabhash_device_close(&table));
    OK(ga_heap_close(slabs));
}

/* A table that is closed full frees its slabs to the caller's heap. */
static void given_back(int device)
{
    ga_heap *slabs = NULL;
    std::vector<uint64_t> keys = narrow_keys(6000);
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,addressing=light,capacity=64M/cuda") == GA_OK);
    for (uint32_t mode = 0; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        ga_slabhash_device table;
        ga_slabhash_options options = options_of((ga_slabhash_mode)mode, 0, 64, 3);
        options.heap = slabs;
        REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
        batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
        EXPECT_EQUAL("the results ABSENT", in.counts[GA_SLABHASH_ABSENT], keys.size());
        EXPECT(live_of(slabs) >= keys.size() / 30 - 64);
        OK(ga_slabhash_device_close(&table));
        EXPECT_EQUAL("slabs that are still taken", live_of(slabs), 0);
    }
    OK(ga_heap_close(slabs));
}

/* Each lane applies its own function. */
static __global__ void apply_kernel(ga_slabhash_view table, uint32_t *results)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t lane = session.tile.lane;
    ga_slabhash_answer answer = ga_slabhash_lanes<GA_SLABHASH_MAP32>(
        &session, true, GA_SLABHASH_APPLY, lane, 10 + lane, lane % GA_SLABHASH_HOW_COUNT);
    results[lane] = answer.result;
    answer = ga_slabhash_lanes<GA_SLABHASH_MAP32>(&session, true, GA_SLABHASH_SEARCH,
                                                  (uint64_t)(lane % 2) << 32 | lane, UINT64_MAX);
    results[8 + lane] = answer.result;
    answer = ga_slabhash_lanes<GA_SLABHASH_SET32>(&session, true, GA_SLABHASH_SEARCH, lane, 0);
    results[16 + lane] = answer.result;
    ga_slabhash_session_end(&session);
}

static void lanes_differ(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 8, 1);
    std::vector<uint64_t> keys(8), values(8, 12);
    device_array<uint32_t> results(24);
    for (uint64_t i = 0; i < 8; i++) {
        keys[i] = i;
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    run(&table, GA_SLABHASH_INSERT, keys, values);
    apply_kernel<<<1, GA_SLABHASH_TILE>>>(table.view, results.data);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    std::vector<uint32_t> was = results.read();
    batch_run now = run(&table, GA_SLABHASH_SEARCH, keys, keys);
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t given = 10 + i;
        uint64_t value = i % 3 == GA_SLABHASH_ADD   ? 12 + given
                         : i % 3 == GA_SLABHASH_MIN ? std::min<uint64_t>(12, given)
                                                    : std::max<uint64_t>(12, given);
        EXPECT_EQUAL("the value", now.found[i], value);
        EXPECT_EQUAL("the result of apply", was[i], GA_SLABHASH_FOUND);
        EXPECT_EQUAL("the result of a wide key", was[8 + i],
                     (i % 2 ? GA_SLABHASH_REFUSED : GA_SLABHASH_FOUND));
        EXPECT_EQUAL("the result of another kind", was[16 + i], GA_SLABHASH_REFUSED);
    }
    OK(ga_slabhash_device_close(&table));
}

/* ---- growth between calls ------------------------------------------------------------------- */

/* All kinds, from few buckets: inserts, searches and deletions as in fixed tables. */
static void growing(int device)
{
    for (subject s : subjects) {
        s.flags |= GA_SLABHASH_GROW;
        s.buckets = 16;
        one_subject(device, s);
    }
}

/* Batch after batch of other keys: the number of buckets fits the keys, before and after their
 * deletion. */
static void growing_fits(int device)
{
    uint64_t sizes[] = {1, 1000, 20000, 200000, 100};
    uint64_t n = 0;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GA_SLABHASH_GROW, 16, 4);
    std::vector<uint64_t> all;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    for (uint64_t size : sizes) {
        std::vector<uint64_t> keys(size);
        for (uint64_t i = 0; i < size; i++) {
            keys[i] = narrow_key(n + i);
        }
        all.insert(all.end(), keys.begin(), keys.end());
        EXPECT_EQUAL("the results ABSENT",
                     run(&table, GA_SLABHASH_INSERT, keys, keys).counts[GA_SLABHASH_ABSENT], size);
        n += size;
        batch_run hit = run(&table, GA_SLABHASH_SEARCH, all, all);
        EXPECT(hit.found == all);
        expect_size(&table, n);
        uint64_t places = (uint64_t)table.view.buckets * 15;
        EXPECT(n * 100 <= places * GA_SLABHASH_FULL_AT);
        EXPECT(places <= 16 * 15 || places <= n * 2);
    }
    std::vector<uint64_t> later(all.begin() + 500, all.end());
    run(&table, GA_SLABHASH_DELETE, later, later);
    uint32_t buckets = table.view.buckets;
    OK(ga_slabhash_device_flush(&table, 0));
    EXPECT(table.view.buckets < buckets / 100);
    expect_size(&table, 500);
    EXPECT_EQUAL("the results FOUND",
                 run(&table, GA_SLABHASH_SEARCH, all, all).counts[GA_SLABHASH_FOUND], 500);
    OK(ga_slabhash_device_close(&table));
}

/* Small batches without waits, each of new keys and then all of the same keys: the number of
 * buckets fits the keys, and hardly grows for repeated keys. */
static void growing_by_little(int device)
{
    const uint64_t each = 1000, batches = suite.quick ? 20 : 500, n = each * batches;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GA_SLABHASH_GROW, 16, 4);
    std::vector<uint32_t> keys(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = (uint32_t)narrow_key(i);
    }
    device_array<uint32_t> k(keys);
    device_array<uint64_t> counts(4);
    ga_slabhash_batch batch = {};
    batch.count = each;
    batch.op = GA_SLABHASH_INSERT;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    for (uint64_t i = 0; i < 3 * batches; i++) {
        batch.keys = batch.values = k.data + i % batches * each;
        OK(ga_slabhash_device_run(&table, &batch, counts.data, 0));
    }
    EXPECT_EQUAL("the results ABSENT", counts.read()[GA_SLABHASH_ABSENT], n);
    EXPECT_EQUAL("the results FOUND", counts.read()[GA_SLABHASH_FOUND], 2 * n);
    expect_size(&table, n);
    uint64_t places = (uint64_t)table.view.buckets * 15;
    EXPECT(n * 100 <= places * GA_SLABHASH_FULL_AT);
    EXPECT(places <= 2 * (n + each));
    OK(ga_slabhash_device_close(&table));
}

/* More requests than a part has, all for a few keys: the second part finds enough room. */
static void growing_for_few(int device)
{
    uint64_t n = (suite.quick ? 1u : 3u) << 22, part = 1u << 22;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_SET32, GA_SLABHASH_GROW, 16, 4);
    std::vector<uint64_t> keys(n + 100);
    for (uint64_t i = 0; i < keys.size(); i++) {
        keys[i] = narrow_key(i % 100);
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
    EXPECT_EQUAL("the results ABSENT", in.counts[GA_SLABHASH_ABSENT], 100);
    EXPECT_EQUAL("the results FOUND", in.counts[GA_SLABHASH_FOUND], n);
    EXPECT((uint64_t)table.view.buckets * 30 <= part * 2);
    expect_size(&table, 100);
    OK(ga_slabhash_device_close(&table));
}

/* Kernels insert by themselves the pairs that room was reserved for; a fixed table refuses. */
static __global__ void put_kernel(ga_slabhash_view table, uint32_t n, uint32_t *full)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    ga_slabhash_answer answer =
        ga_slabhash_lanes<GA_SLABHASH_MAP32>(&session, i < n, GA_SLABHASH_INSERT, i, i);
    if (i < n && answer.result != GA_SLABHASH_ABSENT) {
        atomicAdd(full, 1u);
    }
    ga_slabhash_session_end(&session);
}

static void reserved(int device)
{
    const uint32_t n = 100000;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GA_SLABHASH_GROW, 0, 4);
    device_array<uint32_t> full(1);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    OK(ga_slabhash_device_reserve(&table, 10 * n, 0));
    uint32_t *rows = table.view.rows;
    EXPECT((uint64_t)table.view.buckets * 15 > 10 * n);
    put_kernel<<<(n + 127) / 128, 128>>>(table.view, n, full.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in", full.read()[0], 0);
    OK(ga_slabhash_device_reserve(&table, n, 0));
    EXPECT(table.view.rows == rows);
    expect_size(&table, n);
    OK(ga_slabhash_device_close(&table));
    options.flags = 0;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    EXPECT_EQUAL("the status", ga_slabhash_device_reserve(&table, n, 0), GA_ERR_UNSUPPORTED);
    OK(ga_slabhash_device_close(&table));
}

/* No slabs for the pairs that migrate: the table keeps its array, and loses nothing. */
static void growing_without_slabs(int device)
{
    const uint64_t n = 600; /* pairs of one key: 40 slabs behind one bucket */
    ga_heap *slabs = NULL;
    ga_slabhash_device table, other;
    ga_slabhash_options options =
        options_of(GA_SLABHASH_MAP32, GA_SLABHASH_GROW | GA_SLABHASH_MULTI, 64, 1);
    ga_slabhash_options rest = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    std::vector<uint64_t> same(n, 5), many = narrow_keys(60000);
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,blocks=1,capacity=128K/cuda") == GA_OK);
    options.heap = rest.heap = slabs;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    REQUIRE(ga_slabhash_device_open(&other, &rest, device, 0) == GA_OK);
    for (uint64_t i = 0; i < n; i += 60) { /* few tiles, since each claims 32 slabs ahead */
        std::vector<uint64_t> some(same.begin(), same.begin() + 60);
        EXPECT_EQUAL("the results ABSENT",
                     run(&table, GA_SLABHASH_INSERT, some, some).counts[GA_SLABHASH_ABSENT], 60);
    }
    while (run(&other, GA_SLABHASH_INSERT, many, many).counts[GA_SLABHASH_ABSENT]) {
        /* until no slab is left, not even one that another tile has claimed ahead */
    }
    uint32_t *rows = table.view.rows;
    batch_run more = run(&table, GA_SLABHASH_INSERT, many, many);
    EXPECT(table.view.rows == rows);
    EXPECT(more.counts[GA_SLABHASH_FULL] > 0);
    expect_size(&table, n + more.counts[GA_SLABHASH_ABSENT]);
    EXPECT_EQUAL("the status", ga_slabhash_device_reserve(&table, 1000000, 0), GA_ERR_MEMORY);
    EXPECT_EQUAL("the results FOUND",
                 run(&table, GA_SLABHASH_SEARCH, same, same).counts[GA_SLABHASH_FOUND], n);
    OK(ga_slabhash_device_close(&other));
    OK(ga_slabhash_device_reserve(&table, 1000000, 0));
    EXPECT(table.view.rows != rows);
    expect_size(&table, n + more.counts[GA_SLABHASH_ABSENT]);
    OK(ga_slabhash_device_close(&table));
    EXPECT_EQUAL("slabs that are still taken", live_of(slabs), 0);
    OK(ga_heap_close(slabs));
}

static void bad_input(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    ga_slabhash_batch batch = {};
    options.path = 65;
    EXPECT(ga_slabhash_device_open(&table, &options, device, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("path=65"));
    options.path = 1;
    ga_heap *checked = NULL;
    REQUIRE(ga_heap_open(&checked, GA_PLACE_KERNEL, device,
                         "slab:unit=128,blocks=1,check=full,capacity=128K/cuda") == GA_OK);
    options.heap = checked;
    EXPECT(ga_slabhash_device_open(&table, &options, device, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("with check=full: expected a heap without"));
    OK(ga_heap_close(checked));
    options.heap = slabs_there;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    OK(ga_slabhash_device_run(&table, &batch, NULL, 0)); /* of none */
    batch.count = 1;
    EXPECT(ga_slabhash_device_run(&table, &batch, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("without keys"));
    batch.how = GA_SLABHASH_HOW_COUNT; /* there is no GA_SLABHASH_FUNCTION here */
    EXPECT(ga_slabhash_device_run(&table, &batch, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("how=3: expected 0 to 2"));
    batch.how = GA_SLABHASH_ADD;
    device_array<uint32_t> four(std::vector<uint32_t>{1, 2, 3, 4});
    device_array<uint8_t> ops(std::vector<uint8_t>{GA_SLABHASH_INSERT, GA_SLABHASH_SEARCH,
                                                   GA_SLABHASH_REPLACE, GA_SLABHASH_DELETE});
    device_array<uint64_t> counts(4);
    batch.count = 4;
    batch.keys = four.data;
    batch.ops = ops.data; /* without values */
    OK(ga_slabhash_device_run(&table, &batch, counts.data, 0));
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT(counts.read() == (std::vector<uint64_t>{2, 0, 0, 2}));
    batch.count = 1;
    batch.ops = NULL;
    batch_run refused = run(&table, GA_SLABHASH_INSERT, {0xffffffff, 5, 0xfffffffe}, {1, 2, 3});
    EXPECT(refused.counts[GA_SLABHASH_REFUSED] == 2 && refused.counts[GA_SLABHASH_ABSENT] == 1);
    OK(ga_slabhash_device_close(&table));
    OK(ga_slabhash_device_close(&table));
    EXPECT(ga_slabhash_device_run(&table, &batch, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("closed"));
}

/* Each table draws a seed; a table with that seed has its hash. */
static void seeds(int device)
{
    ga_slabhash_device one, two, again;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    options.seed = 0;
    REQUIRE(ga_slabhash_device_open(&one, &options, device, 0) == GA_OK);
    options.flags = GA_SLABHASH_GROW;
    REQUIRE(ga_slabhash_device_open(&two, &options, device, 0) == GA_OK);
    EXPECT(one.seed && two.seed && one.seed != two.seed);
    EXPECT(one.view.a != two.view.a && one.view.b != two.view.b);
    options.seed = two.seed;
    REQUIRE(ga_slabhash_device_open(&again, &options, device, 0) == GA_OK);
    EXPECT(again.seed == two.seed && again.view.a == two.view.a && again.view.b == two.view.b);
    std::vector<uint64_t> keys(5000);
    for (uint64_t i = 0; i < keys.size(); i++) {
        keys[i] = i;
    }
    run(&again, GA_SLABHASH_INSERT, keys, keys);
    EXPECT(again.view.a == two.view.a); /* it has grown, and has its hash still */
    batch_run found = run(&again, GA_SLABHASH_SEARCH, keys, keys);
    EXPECT_EQUAL("pairs that are found", found.counts[GA_SLABHASH_FOUND], keys.size());
    OK(ga_slabhash_device_close(&one));
    OK(ga_slabhash_device_close(&two));
    OK(ga_slabhash_device_close(&again));
}

/* The name of a file in the directory for those, which is there no more. */
static std::string file_of(const char *name)
{
    const char *folder = getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/slabhash-" + name + "-" +
                       std::to_string((long)getpid());
    unlink(path.c_str());
    return path;
}

/* All pairs go to a file, and from there to a table of other buckets, and to one of the host's. */
/* From one table to another, which grows during it if `grows` is set. */
static void files_of(int device, uint32_t grows)
{
    std::string path = file_of("pairs");
    for (const subject &s : subjects) {
        ga_slabhash_device table, other;
        ga_slabhash *host = NULL;
        uint64_t n = 7000, size = 0;
        std::vector<uint64_t> keys(n), values(n);
        for (uint64_t i = 0; i < n; i++) {
            keys[i] = s.key(i);
            values[i] = s.key(i + 7);
        }
        ga_slabhash_options options = options_of(s.mode, s.flags, s.buckets, s.path);
        REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
        options.flags |= grows;
        options.buckets = grows ? 16 : s.buckets + 77;
        options.seed = 99;
        REQUIRE(ga_slabhash_device_open(&other, &options, device, 0) == GA_OK);
        OK(ga_slabhash_device_save(&table, path.c_str(), 0)); /* of none */
        OK(ga_slabhash_device_load(&other, path.c_str(), 0));
        expect_size(&other, 0);
        run(&table, GA_SLABHASH_INSERT, keys, values);
        OK(ga_slabhash_device_save(&table, path.c_str(), 0));
        OK(ga_slabhash_device_load(&other, path.c_str(), 0));
        expect_size(&other, n);
        batch_run now = run(&other, GA_SLABHASH_SEARCH, keys, values);
        bool right = true;
        for (uint64_t i = 0; i < n; i++) {
            right &= now.results[i] == GA_SLABHASH_FOUND;
            right &= s.mode == GA_SLABHASH_SET32 || now.found[i] == values[i];
        }
        EXPECT(right);
        options.heap = NULL;
        options.flags = s.flags;
        OK(ga_slabhash_open(&host, &options));
        OK(ga_slabhash_load(host, path.c_str()));
        OK(ga_slabhash_size(host, &size));
        EXPECT_EQUAL("pairs in a table of the host's", size, n);
        OK(ga_slabhash_close(host));
        OK(ga_slabhash_device_close(&other));
        OK(ga_slabhash_device_close(&table));
    }
    unlink(path.c_str());
}

static void files(int device)
{
    files_of(device, 0);
    files_of(device, GA_SLABHASH_GROW);
}

/* Cut off, changed, of another mode, not there: refused, and nothing went in. */
static void bad_files(int device)
{
    std::string path = file_of("bad");
    ga_slabhash_device table, set;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    options.mode = GA_SLABHASH_SET32;
    REQUIRE(ga_slabhash_device_open(&set, &options, device, 0) == GA_OK);
    EXPECT(ga_slabhash_device_load(&table, path.c_str(), 0) == GA_ERR_IO);
    EXPECT(ga_slabhash_device_load(&table, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(ga_slabhash_device_save(&table, NULL, 0) == GA_ERR_ARGUMENT);
    run(&table, GA_SLABHASH_INSERT, {1, 2, 3, 4, 5}, {11, 12, 13, 14, 15});
    OK(ga_slabhash_device_save(&table, path.c_str(), 0));
    EXPECT(ga_slabhash_device_load(&set, path.c_str(), 0) == GA_ERR_ARGUMENT);
    OK(ga_slabhash_device_clear(&table, 0));
    FILE *file = fopen(path.c_str(), "rb+");
    REQUIRE(file != NULL);
    EXPECT(fseek(file, -3, SEEK_END) == 0 && fputc(0x5a, file) == 0x5a && fclose(file) == 0);
    EXPECT(ga_slabhash_device_load(&table, path.c_str(), 0) == GA_ERR_IO);
    EXPECT(truncate(path.c_str(), 60) == 0);
    EXPECT(ga_slabhash_device_load(&table, path.c_str(), 0) == GA_ERR_IO);
    expect_size(&table, 0);
    expect_size(&set, 0);
    OK(ga_slabhash_device_close(&set));
    OK(ga_slabhash_device_close(&table));
    unlink(path.c_str());
}

/* Calls act on the table's device, whichever is current in the caller; a request without a device
 * is refused. */
static void other_devices(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    int devices = 0, now = -1;
    uint64_t count = 0;
    REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
    int other = devices > 1 ? (device + 1) % devices : device;
    ga_heap *strange = NULL;
    if (other != device) {
        REQUIRE(ga_heap_open(&strange, GA_PLACE_KERNEL, other,
                             "slab:unit=128,addressing=light,capacity=64M/cuda") == GA_OK);
        options.heap = strange;
        EXPECT(ga_slabhash_device_open(&table, &options, device, 0) == GA_ERR_ARGUMENT);
        EXPECT(test_error_has("expected a heap of the same device"));
        OK(ga_heap_close(strange));
        options.heap = slabs_there;
    }
    CUDA_DONE(cudaSetDevice(other));
    OK(ga_slabhash_device_open(&table, &options, device, 0));
    CUDA_DONE(cudaGetDevice(&now));
    EXPECT(now == other);
    OK(ga_slabhash_device_clear(&table, 0));
    OK(ga_slabhash_device_retrieve(&table, NULL, NULL, 0, &count, 0));
    EXPECT_EQUAL("pairs of an empty table", count, 0);
    EXPECT(ga_slabhash_device_count(&table, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("no place for a census"));
    EXPECT(ga_slabhash_device_retrieve(&table, NULL, NULL, 0, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("no place for their number"));
    OK(ga_slabhash_device_close(&table));
    CUDA_DONE(cudaGetDevice(&now));
    EXPECT(now == other);
    CUDA_DONE(cudaSetDevice(device));
}

static const test_case cases[] = {
    {"batches go in, are found and go out", batches},
    {"the same key many times in a batch", duplicates},
    {"more keys than places, each several times", crowded},
    {"tables far larger than the caches", far_tables},
    {"the same key in all of a batch that is sorted", far_same_key},
    {"all pairs of many keys at once", all_pairs_of_keys},
    {"a batch of more than 2^31", more_than_2_31},
    {"all pairs are retrieved", retrieval},
    {"mixed operations add up", mixes},
    {"books are kept of millions", books},
    {"histories are linearizable", histories},
    {"histories of lanes that are served together are", histories_of_lanes},
    {"memory that ends in the middle", full},
    {"memory that comes between calls", more_slabs},
    {"slabs go back to the heap they came from", given_back},
    {"each lane has its own operation", lanes_differ},
    {"tables grow between calls", growing},
    {"tables that grow have as many buckets as they need", growing_fits},
    {"few keys in a large batch make no large table", growing_for_few},
    {"small batches that nobody waits for", growing_by_little},
    {"room is reserved for kernels", reserved},
    {"a table that finds no slabs to grow stays whole", growing_without_slabs},
    {"each table draws a seed", seeds},
    {"bad input is refused", bad_input},
    {"a table's device, and the caller's", other_devices},
    {"pairs go to files and come from them", files},
    {"files that are damaged are refused", bad_files},
};

static void run_on(int device)
{
    if (suite.no_growing) {
        OK(ga_heap_open(&slabs_there, GA_PLACE_KERNEL, device,
                        "slab:unit=128,addressing=light,capacity=64M/cuda"));
    }
    test_run("slabhash", cases, sizeof cases / sizeof *cases, device, suite.only);
    ga_heap_close(slabs_there);
    slabs_there = NULL;
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
