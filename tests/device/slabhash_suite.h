/* SPDX-License-Identifier: MIT
 *
 * Shared by the programs that test slab hashes on GPUs: batches with their expected results, and
 * histories. Only for CUDA, after gpualloc/slabhash.cuh.
 */
#ifndef TESTS_DEVICE_SLABHASH_SUITE_H
#define TESTS_DEVICE_SLABHASH_SUITE_H

#include "gpu_suite.h"

extern "C" {
#include "slabhash_oracle.h"
}

#include <algorithm>
#include <string>
#include <unistd.h>
#include <vector>

/* The heap of slabs in runs without growth, whose memory sanitizers know; otherwise NULL. */
inline ga_heap *slabs_there;

/* The call succeeds, or the case has failed with the library's sentence. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != GA_OK) {                                                                     \
            test_fail(__FILE__, __LINE__, ga_error_text());                                        \
        }                                                                                          \
    } while (0)

/* An array of the device's. */
template <typename T> struct device_array {
    T *data = nullptr;
    size_t size;
    explicit device_array(size_t n, int byte = 0) : size(n)
    {
        CUDA_DONE(cudaMalloc(&data, n * sizeof(T)));
        CUDA_DONE(cudaMemset(data, byte, n * sizeof(T)));
    }
    explicit device_array(const std::vector<T> &from) : device_array(from.size())
    {
        CUDA_DONE(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice));
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    ~device_array()
    {
        cudaFree(data);
    }
    std::vector<T> read() const
    {
        std::vector<T> to(size);
        CUDA_DONE(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }
};

static inline ga_slabhash_options options_of(ga_slabhash_mode mode, uint32_t flags,
                                             uint32_t buckets, uint32_t path)
{
    ga_slabhash_options options = {};
    options.options_size = sizeof options;
    options.mode = mode;
    options.flags = flags;
    options.buckets = buckets;
    options.path = path;
    options.seed = 5;
    options.heap = slabs_there;
    return options;
}

/* Keys and values of the width of a mode. */
struct subject {
    uint64_t (*key)(uint64_t i);
    ga_slabhash_mode mode;
    uint32_t flags, buckets, path;
};

/* Different numbers for different i, in 31 bits, and in 63. */
static inline uint64_t narrow_key(uint64_t i)
{
    return (uint32_t)i * 2654435761u & 0x7fffffffu;
}

static inline std::vector<uint64_t> narrow_keys(uint64_t n)
{
    std::vector<uint64_t> keys(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = narrow_key(i);
    }
    return keys;
}

static inline uint64_t wide_key(uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15) & (UINT64_MAX >> 1);
}

/* ---- batches -------------------------------------------------------------------------------- */

struct batch_run {
    std::vector<uint8_t> results;
    std::vector<uint64_t> found, counts;
};

template <typename T>
static inline batch_run run_as(ga_slabhash_device *table, ga_slabhash_op op,
                               const std::vector<uint64_t> &keys,
                               const std::vector<uint64_t> &values)
{
    batch_run run;
    device_array<T> k(std::vector<T>(keys.begin(), keys.end()));
    device_array<T> v(std::vector<T>(values.begin(), values.end()));
    device_array<T> found(keys.size(), 0xee);
    device_array<uint8_t> results(keys.size(), 0xee);
    device_array<uint64_t> counts(4);
    ga_slabhash_batch batch = {};
    batch.count = keys.size();
    batch.keys = k.data;
    batch.values = v.data;
    batch.results = results.data;
    batch.found = found.data;
    batch.op = op;
    OK(ga_slabhash_device_run(table, &batch, counts.data, 0));
    CUDA_DONE(cudaDeviceSynchronize());
    std::vector<T> what = found.read();
    run.found.assign(what.begin(), what.end());
    run.results = results.read();
    run.counts = counts.read();
    return run;
}

static inline batch_run run(ga_slabhash_device *table, ga_slabhash_op op,
                            const std::vector<uint64_t> &keys, const std::vector<uint64_t> &values)
{
    return GA_SLABHASH_MODE(table->view.kind) == GA_SLABHASH_MAP64
               ? run_as<uint64_t>(table, op, keys, values)
               : run_as<uint32_t>(table, op, keys, values);
}

static inline void expect_size(ga_slabhash_device *table, uint64_t size)
{
    ga_slabhash_census census = {};
    OK(ga_slabhash_device_count(table, &census, 0));
    EXPECT_EQUAL("the size", census.live, size);
}

/* n keys go in, are found, half of them go out, and the rest is found alone; then a flush. */
static inline void one_subject(int device, const subject &s)
{
    uint64_t n = suite.quick ? 4000 : 60000;
    bool map = s.mode != GA_SLABHASH_SET32;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(s.mode, s.flags, s.buckets, s.path);
    std::vector<uint64_t> keys(n), values(n), half, none(n);
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = s.key(i);
        values[i] = i + 7;
        none[i] = s.key(n + i);
        if (i % 2) {
            half.push_back(keys[i]);
        }
    }
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run in = run(&table, GA_SLABHASH_INSERT, keys, values);
    EXPECT_EQUAL("the results ABSENT", in.counts[GA_SLABHASH_ABSENT], n);
    batch_run hit = run(&table, GA_SLABHASH_SEARCH, keys, keys);
    EXPECT_EQUAL("the results FOUND", hit.counts[GA_SLABHASH_FOUND], n);
    EXPECT(!map || hit.found == values);
    EXPECT_EQUAL("the results ABSENT",
                 run(&table, GA_SLABHASH_SEARCH, none, none).counts[GA_SLABHASH_ABSENT], n);
    EXPECT_EQUAL("the results FOUND",
                 run(&table, GA_SLABHASH_DELETE, half, half).counts[GA_SLABHASH_FOUND],
                 half.size());
    expect_size(&table, n - half.size());
    for (int round = 0; round < 2; round++) {
        batch_run left = run(&table, GA_SLABHASH_SEARCH, keys, keys);
        bool right = true;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t value = i % 2 || !map ? 0 : values[i];
            right &= left.results[i] == (i % 2 ? GA_SLABHASH_ABSENT : GA_SLABHASH_FOUND) &&
                     left.found[i] == value;
        }
        EXPECT(right);
        OK(ga_slabhash_device_flush(&table, 0));
        expect_size(&table, n - half.size());
    }
    OK(ga_slabhash_device_clear(&table, 0));
    expect_size(&table, 0);
    OK(ga_slabhash_device_close(&table));
}

static inline uint64_t live_of(ga_heap *heap)
{
    ga_stats stats = {};
    OK(ga_heap_stats(heap, &stats));
    return stats.live_blocks;
}

enum {
    CALLS = 3,
    TILES = 8, /* 24 calls in a history, at most, on one key */
    KEYS = 3
};

/* The calls of all `n` histories, on keys of their own. */
static inline std::vector<slabhash_record> calls_of(uint32_t n)
{
    const uint32_t ops[] = {GA_SLABHASH_SEARCH, GA_SLABHASH_INSERT,  GA_SLABHASH_INSERT,
                            GA_SLABHASH_DELETE, GA_SLABHASH_REPLACE, GA_SLABHASH_DELETE,
                            GA_SLABHASH_APPLY};
    std::vector<slabhash_record> records((size_t)n * TILES * CALLS);
    for (size_t i = 0; i < records.size(); i++) {
        uint64_t random = (i + 3) * UINT64_C(0x9e3779b97f4a7c15) >> 24;
        records[i].op = ops[random % 7];
        records[i].key = i / (TILES * CALLS) * KEYS + random / 7 % KEYS;
        records[i].value = i % (TILES * CALLS) + 1;
    }
    return records;
}

/* A tile waits for the others of its history, with a limit: their blocks may not all be running. */
static __device__ inline void meet(ga_tile tile, uint32_t *gate)
{
    if (tile.lane == 0) {
        ga_add_relaxed(gate, 1u);
        for (uint32_t i = 0; i < 4096 && ga_load_relaxed(gate) < TILES; i++) {
        }
    }
    ga_tile_sync(tile);
}

/* Operations of every other block fill slots of MAP64 in two steps, those of the others at once if
 * the device can; all in one table. */
#define STEPWISE_TOO(kind)                                                                         \
    (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? (kind) | GA_SLABHASH_STEPWISE : (kind))

template <uint32_t kind>
static __device__ inline ga_slabhash_answer
tile_of_both_ways(ga_slabhash_session *session, uint32_t op, uint64_t key, uint64_t value)
{
    if (STEPWISE_TOO(kind) != kind && blockIdx.x % 2) {
        return ga_slabhash_tile<STEPWISE_TOO(kind)>(session, op, key, value);
    }
    return ga_slabhash_tile<kind>(session, op, key, value);
}

template <uint32_t kind>
static __device__ inline ga_slabhash_answer
lanes_of_both_ways(ga_slabhash_session *session, uint32_t op, uint64_t key, uint64_t value)
{
    if (STEPWISE_TOO(kind) != kind && blockIdx.x % 2) {
        return ga_slabhash_lanes<STEPWISE_TOO(kind)>(session, true, op, key, value);
    }
    return ga_slabhash_lanes<kind>(session, true, op, key, value);
}

/* A tile's calls of a history, each with the moments at which it began and ended. */
template <uint32_t kind>
static __device__ inline void make_calls(ga_slabhash_session *session, slabhash_record *own,
                                         uint64_t *clock)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        if (session->tile.lane == 0) {
            own[i].began = ga_add64_relaxed(clock, 1) + 1;
            __threadfence();
        }
        ga_tile_sync(session->tile);
        ga_slabhash_answer answer =
            tile_of_both_ways<kind>(session, own[i].op, own[i].key, own[i].value);
        ga_tile_sync(session->tile);
        if (session->tile.lane == 0) {
            __threadfence();
            own[i].ended = ga_add64_relaxed(clock, 1) + 1;
            own[i].found = answer.result == GA_SLABHASH_FOUND;
            own[i].was = answer.value;
        }
    }
}

static inline void expect_linearizable(const std::vector<slabhash_record> &records, uint32_t n)
{
    uint32_t wrong = 0;
    for (uint32_t h = 0; h < n && !wrong; h++) {
        for (uint64_t key = 0; key < KEYS; key++) {
            wrong += !slabhash_linearizable(records.data() + (size_t)h * TILES * CALLS,
                                            TILES * CALLS, (uint64_t)h * KEYS + key);
        }
    }
    EXPECT(wrong == 0);
}

/* Key k has k % 5 pairs, of values 10 k and more; 1 at most where keys are unique. */
template <typename T>
static inline void all_of_each(int device, ga_slabhash_mode mode, uint32_t flags)
{
    uint64_t n = 3000, count = 0;
    bool grows = flags & GA_SLABHASH_GROW_IN_KERNELS, multi = flags & GA_SLABHASH_MULTI;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(mode, flags, 400, grows ? 1 : 2);
    std::vector<uint64_t> keys, values;
    std::vector<T> asked;
    for (uint64_t key = 0; key < n; key++) {
        uint64_t pairs = multi || key % 5 < 2 ? key % 5 : 1;
        for (uint64_t i = 0; i < pairs; i++) {
            keys.push_back(key);
            values.push_back(10 * key + i);
        }
        count += pairs;
        asked.push_back((T)key);
    }
    asked.push_back((T)UINT64_MAX); /* refused */
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    run(&table, GA_SLABHASH_INSERT, keys, values);
    device_array<T> k(asked);
    device_array<uint64_t> counts(n + 1, 0xee), firsts(n + 1, 0xee), all(count + 1, 0xee),
        totals(2);
    ga_slabhash_all batch = {};
    batch.count = n + 1;
    batch.keys = k.data;
    batch.counts = counts.data;
    batch.firsts = firsts.data;
    batch.values = all.data;
    batch.room = count;
    OK(ga_slabhash_device_run_all(&table, &batch, false, totals.data, 0));
    std::vector<uint64_t> c = counts.read(), f = firsts.read(), v = all.read(), t = totals.read();
    EXPECT_EQUAL("the pairs found", t[0], count);
    EXPECT_EQUAL("the keys refused", t[1], 1);
    EXPECT(c[n] == 0 && v[count] == UINT64_C(0xeeeeeeeeeeeeeeee));
    bool right = true;
    for (uint64_t key = 0; key < n; key++) {
        uint64_t pairs = multi || key % 5 < 2 ? key % 5 : 1, seen = 0;
        for (uint64_t i = 0; i < c[key] && f[key] + i < count; i++) {
            uint64_t number = mode == GA_SLABHASH_SET32 ? i : v[f[key] + i] - 10 * key;
            seen |= number < 5 ? UINT64_C(1) << number : 0;
        }
        right &= c[key] == pairs && seen == (UINT64_C(1) << pairs) - 1;
    }
    EXPECT(right);
    CUDA_DONE(cudaMemset(totals.data, 0, 2 * sizeof(uint64_t)));
    OK(ga_slabhash_device_run_all(&table, &batch, true, totals.data, 0));
    EXPECT_EQUAL("the pairs taken out", totals.read()[0], count);
    EXPECT(std::equal(c.begin(), c.end(), counts.read().begin()));
    expect_size(&table, 0);
    OK(ga_slabhash_device_close(&table));
}

/* ---- books: pairs inserted and deleted, key by key ---------------------------------------- */

enum {
    BOOK_BITS = 22, /* of keys; of a value they are the lower bits */
    BOOK_THREADS = 1 << 17
};

/* Any operations, one per lane, repeatedly. A change of the table is entered for its key: 2^32 plus
 * the value is added for each inserted pair, and subtracted for each deleted one. `wrong` counts
 * values that do not belong to their key, and operations that found no slab. */
template <uint32_t kind>
static __global__ void books_kernel(ga_slabhash_view table, uint32_t keys, uint64_t round,
                                    uint32_t each, unsigned long long *books, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t i = 0; i < each; i++) {
        uint64_t random =
            ((round * each + i) * BOOK_THREADS + thread) * UINT64_C(0x9e3779b97f4a7c15);
        random = (random ^ random >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
        uint32_t key = (uint32_t)(random >> 32) % keys, dice = (uint32_t)random >> 13 & 7u;
        uint64_t value = key | (random & 0x3ffu) << BOOK_BITS;
        uint32_t op = dice < 2   ? GA_SLABHASH_INSERT
                      : dice < 4 ? GA_SLABHASH_DELETE
                      : dice < 5 ? GA_SLABHASH_REPLACE
                                 : GA_SLABHASH_SEARCH;
        ga_slabhash_answer answer = lanes_of_both_ways<kind>(&session, op, key, value);
        bool found = answer.result == GA_SLABHASH_FOUND;
        bool goes_in = op == GA_SLABHASH_REPLACE || (op == GA_SLABHASH_INSERT && !found);
        bool comes_out = found && (op == GA_SLABHASH_REPLACE || op == GA_SLABHASH_DELETE);
        if (answer.result > GA_SLABHASH_FOUND ||
            (found && (answer.value & ((1u << BOOK_BITS) - 1u)) != key)) {
            atomicAdd(wrong, 1u);
        } else if (goes_in || comes_out) {
            unsigned long long entry = (goes_in ? (UINT64_C(1) << 32) + value : 0) -
                                       (comes_out ? (UINT64_C(1) << 32) + answer.value : 0);
            atomicAdd(books + key, entry);
        }
        __syncwarp();
    }
    ga_slabhash_session_end(&session);
}

/* Each key is there as its book says, or is not; `wrong` counts those that are not so, and behind
 * it how many are there. */
template <uint32_t kind>
static __global__ void audit_kernel(ga_slabhash_view table, uint32_t keys,
                                    const unsigned long long *books, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t key = blockIdx.x * blockDim.x + threadIdx.x;
    ga_slabhash_answer answer =
        ga_slabhash_lanes<kind>(&session, key < keys, GA_SLABHASH_SEARCH, key, 0);
    if (key < keys) {
        bool found = answer.result == GA_SLABHASH_FOUND;
        if (books[key] != (found ? (UINT64_C(1) << 32) + answer.value : 0)) {
            atomicAdd(wrong, 1u);
        }
        atomicAdd(wrong + 1, found ? 1u : 0u);
    }
    ga_slabhash_session_end(&session);
}

/* `operations` operations, in rounds, each followed by a check of the books; then a flush. */
template <uint32_t kind>
static inline void keep_books(int device, ga_slabhash_mode mode, uint32_t flags,
                              uint64_t operations)
{
    const uint32_t keys = suite.quick ? 3000 : 1u << BOOK_BITS, each = suite.quick ? 1 : 128;
    const uint64_t round = (uint64_t)BOOK_THREADS * each;
    ga_slabhash_device table;
    /* The buckets are about half full, counting pairs and tombstones. */
    ga_slabhash_options options =
        options_of(mode, flags, flags ? 64 : keys / (mode == GA_SLABHASH_MAP64 ? 5 : 8), 1);
    device_array<unsigned long long> books(keys);
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    uint64_t rounds = operations / round + 1;
    for (uint64_t i = 0; i < rounds; i++) {
        books_kernel<kind>
            <<<BOOK_THREADS / 128, 128>>>(table.view, keys, i, each, books.data, wrong.data);
        CUDA_DONE(cudaMemset(wrong.data + 1, 0, sizeof(uint32_t)));
        audit_kernel<kind><<<(keys + 127) / 128, 128>>>(table.view, keys, books.data, wrong.data);
        std::vector<uint32_t> found = wrong.read();
        if (!EXPECT_EQUAL("keys that are not as the books say, or of other values", found[0], 0)) {
            break;
        }
        expect_size(&table, found[1]); /* none is there twice */
        OK(ga_slabhash_device_flush(&table, 0));
    }
    if (suite.operations) {
        printf("     %llu operations of kind %u, books of %u keys, looked through %llu times\n",
               (unsigned long long)(rounds * round), kind, keys, (unsigned long long)rounds);
    }
    OK(ga_slabhash_device_close(&table));
}

static inline uint64_t book_operations()
{
    return suite.operations ? suite.operations : suite.quick ? 1u << 17 : 1u << 26;
}

#endif
