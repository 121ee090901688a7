/* SPDX-License-Identifier: MIT
 *
 * Operations of kernels on the shards of all ranks (gpualloc/slabhash_peers.cuh). Ranks are
 * threads: several on one device and, where there are two devices, one or more on each. Batches of
 * the owner of a shard must find in it all that kernels of other ranks have inserted.
 */
#include <gpualloc/slabhash_peers.cuh>

#include <gpualloc/slabhash_nccl.cuh>

#include "slabhash_suite.h"

#include "device_ranks.h"

/* ---- operations ------------------------------------------------------------------------------ */

struct request {
    uint64_t key, value;
    uint32_t op, how;
};

struct answer {
    uint64_t value;
    uint32_t result;
};

template <uint32_t kind, bool whole>
static __global__ void serve(const __grid_constant__ ga_slabhash_peers_view peers, uint64_t count,
                             const request *requests, answer *answers)
{
    ga_slabhash_peers_session session = ga_slabhash_peers_begin(peers);
    for (uint64_t first = (uint64_t)blockIdx.x * blockDim.x; first < count;
         first += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t i = first + threadIdx.x;
        request to = i < count ? requests[i] : request{};
        ga_slabhash_answer a = ga_slabhash_peers_lanes<kind, GA_SLABHASH_OP_COUNT, whole>(
            &session, i < count, to.op, to.key, to.value, to.how);
        if (i < count) {
            answers[i].value = a.value;
            answers[i].result = a.result;
        }
    }
    ga_slabhash_peers_end(&session);
}

static void launch(const rank &r, uint64_t count, const request *requests, answer *answers,
                   uint32_t threads)
{
    int blocks = threads < 32 ? 50 : 200;
#define CASE(kind)                                                                                 \
    case kind:                                                                                     \
        if (threads % 32) {                                                                        \
            serve<kind, false>                                                                     \
                <<<blocks, threads, 0, r.stream>>>(r.peers.view, count, requests, answers);        \
        } else {                                                                                   \
            serve<kind, true>                                                                      \
                <<<blocks, threads, 0, r.stream>>>(r.peers.view, count, requests, answers);        \
        }                                                                                          \
        break
    switch (r.peers.view.kind) {
        CASE(GA_SLABHASH_KIND(GA_SLABHASH_SET32, false));
        CASE(GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false));
        CASE(GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false));
        CASE(GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true));
    default:
        FAIL("a kind of the cases, got %u", r.peers.view.kind);
    }
#undef CASE
}

/* Requests of each rank, at the same time; answers in place of them. */
static std::vector<std::vector<answer>>
serve_all(world &w, const std::vector<std::vector<request>> &of, uint32_t threads = 128)
{
    std::vector<std::vector<answer>> answers(of.size());
    on_all(w, [&](rank &r) {
        device_array<request> requests(of[r.in.rank]);
        device_array<answer> to(requests.size, 0xee);
        std::vector<uint64_t> nothing;
        CUDA_DONE(cudaDeviceSynchronize());
        meet(w.all, &nothing);
        launch(r, requests.size, requests.data, to.data, threads);
        CUDA_DONE(cudaGetLastError());
        CUDA_DONE(cudaStreamSynchronize(r.stream));
        answers[r.in.rank] = to.read();
    });
    return answers;
}

/* Each key by one rank. Expects `result` and, if it is FOUND in a map, the values `before`. */
static void serve_keys(world &w, uint32_t op, const std::vector<uint64_t> &keys,
                       const std::vector<uint64_t> &values, uint32_t result,
                       const std::vector<uint64_t> *before = nullptr, uint32_t threads = 128)
{
    size_t count = w.ranks.size(), wrong = 0;
    std::vector<std::vector<request>> of(count);
    for (size_t i = 0; i < keys.size(); i++) {
        of[i % count].push_back(request{keys[i], values[i], op, GA_SLABHASH_ADD});
    }
    std::vector<std::vector<answer>> answers = serve_all(w, of, threads);
    for (size_t i = 0; i < keys.size(); i++) {
        const answer &a = answers[i % count][i / count];
        wrong += a.result != result || (before && a.value != (*before)[i]);
    }
    EXPECT_EQUAL("the number of wrong answers", wrong, 0);
}

/* The keys of a rank. */
static std::vector<uint64_t> owned(const rank &r, const std::vector<uint64_t> &keys)
{
    std::vector<uint64_t> own;
    for (uint64_t key : keys) {
        if (ga_slabhash_sharded_owner(r.table, key) == r.in.rank) {
            own.push_back(key);
        }
    }
    return own;
}

/* Each shard has its keys, once, as a batch of its owner finds them. */
static void expect_shards(world &w, const std::vector<uint64_t> &keys)
{
    for (rank &r : w.ranks) {
        std::vector<uint64_t> own = owned(r, keys);
        CUDA_DONE(cudaSetDevice(r.device));
        EXPECT_EQUAL("the results FOUND",
                     run(&r.shard, GA_SLABHASH_SEARCH, own, own).counts[GA_SLABHASH_FOUND],
                     own.size());
        expect_size(&r.shard, own.size());
    }
    CUDA_DONE(cudaSetDevice(placement[0]));
}

static uint64_t key_count()
{
    return suite.quick ? 3000 : 100000;
}

/* Different keys from number `first` on, and values. */
static void deal(ga_slabhash_mode mode, uint64_t first, std::vector<uint64_t> *keys,
                 std::vector<uint64_t> *values)
{
    bool wide = mode == GA_SLABHASH_MAP64;
    keys->clear();
    values->clear();
    for (uint64_t i = first; i < first + key_count(); i++) {
        keys->push_back(wide ? wide_key(i) : narrow_key(i));
        values->push_back(mode == GA_SLABHASH_SET32 ? 0 : wide ? i << 33 | i : i + 7);
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* All operations of a table of unique keys. */
static void unique_keys(ga_slabhash_mode mode, uint32_t buckets, uint32_t path, uint32_t threads)
{
    world w;
    std::vector<uint64_t> keys, values, half, half_values, sums;
    begin(w, mode, 0, buckets, path);
    REQUIRE(w.is_open);
    deal(mode, 0, &keys, &values);
    std::vector<uint64_t> none(keys.size());
    bool map = mode != GA_SLABHASH_SET32;
    for (size_t i = 0; i < keys.size(); i++) {
        sums.push_back(values[i] * 2);
    }
    serve_keys(w, GA_SLABHASH_SEARCH, keys, none, GA_SLABHASH_ABSENT, &none, threads);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT, &none, threads);
    serve_keys(w, GA_SLABHASH_SEARCH, keys, none, GA_SLABHASH_FOUND, &values, threads);
    serve_keys(w, GA_SLABHASH_INSERT, keys, none, GA_SLABHASH_FOUND, &values, threads);
    expect_shards(w, keys);
    if (map) {
        serve_keys(w, GA_SLABHASH_APPLY, keys, values, GA_SLABHASH_FOUND, &values, threads);
        serve_keys(w, GA_SLABHASH_REPLACE, keys, values, GA_SLABHASH_FOUND, &sums, threads);
    }
    std::reverse(keys.begin(), keys.end()); /* so that another rank asks for a key */
    std::reverse(values.begin(), values.end());
    serve_keys(w, GA_SLABHASH_SEARCH, keys, none, GA_SLABHASH_FOUND, &values, threads);
    half.assign(keys.begin(), keys.begin() + (long)(keys.size() / 2));
    half_values.assign(values.begin(), values.begin() + (long)(keys.size() / 2));
    serve_keys(w, GA_SLABHASH_DELETE, half, none, GA_SLABHASH_FOUND, &half_values, threads);
    serve_keys(w, GA_SLABHASH_SEARCH, half, none, GA_SLABHASH_ABSENT, &none, threads);
    keys.erase(keys.begin(), keys.begin() + (long)half.size());
    expect_shards(w, keys);
    end(w);
}

static void sets(int)
{
    unique_keys(GA_SLABHASH_SET32, (uint32_t)(key_count() / 20 / placement.size()), 4, 128);
}

static void maps(int)
{
    unique_keys(GA_SLABHASH_MAP32, (uint32_t)(key_count() / 10 / placement.size()), 16, 128);
}

static void wide_maps(int)
{
    unique_keys(GA_SLABHASH_MAP64, (uint32_t)(key_count() / 5 / placement.size()), 8, 128);
}

/* Blocks of three tiles, so that no warp is whole. */
static void partial_warps(int)
{
    unique_keys(GA_SLABHASH_MAP32, (uint32_t)(key_count() / 10 / placement.size()), 3, 24);
}

/* Long chains, whose slabs are of the owner's heap: none is lost. */
static void chains(int)
{
    world w;
    std::vector<uint64_t> keys, values;
    begin(w, GA_SLABHASH_MAP32, 0, (uint32_t)(key_count() / 60 / placement.size()), 1);
    REQUIRE(w.is_open);
    deal(GA_SLABHASH_MAP32, 0, &keys, &values);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT);
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    expect_shards(w, keys);
    for (rank &r : w.ranks) {
        ga_slabhash_census census = {};
        CUDA_DONE(cudaSetDevice(r.device));
        OK(ga_slabhash_device_count(&r.shard, &census, 0));
        EXPECT(census.chained > 100);
        EXPECT_EQUAL("the slabs taken", live_of(r.shard.slabs), census.chained);
    }
    on_all(w, [](rank &r) {
        OK(ga_slabhash_sharded_clear(r.table, r.stream));
        OK(ga_slabhash_peers_refresh(&r.peers, r.stream));
    });
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_ABSENT);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT);
    expect_shards(w, keys);
    end(w);
}

/* A multimap: as many pairs as inserts. */
static void multimaps(int)
{
    world w;
    std::vector<uint64_t> keys, values;
    begin(w, GA_SLABHASH_MAP32, GA_SLABHASH_MULTI, (uint32_t)(key_count() / 10 / placement.size()),
          8);
    REQUIRE(w.is_open);
    deal(GA_SLABHASH_MAP32, 0, &keys, &values);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT);
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT);
    for (rank &r : w.ranks) {
        CUDA_DONE(cudaSetDevice(r.device));
        expect_size(&r.shard, 2 * owned(r, keys).size());
    }
    serve_keys(w, GA_SLABHASH_DELETE, keys, values, GA_SLABHASH_FOUND, &values);
    expect_shards(w, keys);
    end(w);
}

/* All ranks insert the same keys at the same time: each is inserted once. Then all add to a few
 * values: no addition is lost. */
static void contended(ga_slabhash_mode mode)
{
    const uint64_t few = 40, each = suite.quick ? 2000 : 40000;
    world w;
    std::vector<uint64_t> keys, values;
    begin(w, mode, 0, (uint32_t)(key_count() / 5 / placement.size()), 4);
    REQUIRE(w.is_open);
    deal(mode, 0, &keys, &values);
    std::vector<std::vector<request>> of(w.ranks.size()), adding(w.ranks.size());
    for (size_t i = 0; i < of.size(); i++) {
        for (size_t j = 0; j < keys.size(); j++) {
            of[i].push_back(request{keys[j], values[j], GA_SLABHASH_INSERT, 0});
        }
        for (uint64_t j = 0; j < each; j++) {
            adding[i].push_back(request{keys[j % few], 1, GA_SLABHASH_APPLY, GA_SLABHASH_ADD});
        }
    }
    std::vector<std::vector<answer>> answers = serve_all(w, of);
    size_t inserted = 0, wrong = 0;
    for (size_t j = 0; j < keys.size(); j++) {
        for (const auto &of_rank : answers) {
            inserted += of_rank[j].result == GA_SLABHASH_ABSENT;
            wrong += of_rank[j].result > GA_SLABHASH_FOUND ||
                     (of_rank[j].result == GA_SLABHASH_FOUND && of_rank[j].value != values[j]);
        }
    }
    EXPECT_EQUAL("the keys inserted", inserted, keys.size());
    EXPECT_EQUAL("the number of wrong answers", wrong, 0);
    expect_shards(w, keys);
    (void)serve_all(w, adding);
    keys.resize(few);
    values.resize(few);
    for (uint64_t j = 0; j < few; j++) {
        values[j] += (each / few + (j < each % few)) * w.ranks.size();
    }
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    end(w);
}

/* Owners insert their keys by batches while kernels of all ranks insert them, too: each key is
 * inserted once. */
template <typename T> static void beside_batches(ga_slabhash_mode mode)
{
    world w;
    std::vector<uint64_t> keys, values;
    begin(w, mode, 0, (uint32_t)(key_count() / 5 / placement.size()), 4);
    REQUIRE(w.is_open);
    deal(mode, 0, &keys, &values);
    std::vector<std::vector<answer>> answers(w.ranks.size());
    std::vector<size_t> by_batch(w.ranks.size());
    on_all(w, [&](rank &r) {
        std::vector<uint64_t> own, own_values, nothing;
        std::vector<request> of;
        for (size_t i = 0; i < keys.size(); i++) {
            if (ga_slabhash_sharded_owner(r.table, keys[i]) == r.in.rank) {
                own.push_back(keys[i]);
                own_values.push_back(values[i]);
            }
            of.push_back(request{keys[i], values[i], GA_SLABHASH_INSERT, 0});
        }
        device_array<T> k(std::vector<T>(own.begin(), own.end()));
        device_array<T> v(std::vector<T>(own_values.begin(), own_values.end()));
        device_array<uint64_t> counts(4);
        device_array<request> requests(of);
        device_array<answer> to(requests.size, 0xee);
        cudaStream_t beside;
        ga_slabhash_batch batch = {};
        batch.count = own.size();
        batch.keys = k.data;
        batch.values = v.data;
        batch.op = GA_SLABHASH_INSERT;
        CUDA_DONE(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
        CUDA_DONE(cudaDeviceSynchronize());
        meet(w.all, &nothing);
        launch(r, requests.size, requests.data, to.data, 128);
        OK(ga_slabhash_device_run(&r.shard, &batch, counts.data, beside));
        CUDA_DONE(cudaStreamSynchronize(r.stream));
        CUDA_DONE(cudaStreamSynchronize(beside));
        CUDA_DONE(cudaStreamDestroy(beside));
        answers[r.in.rank] = to.read();
        by_batch[r.in.rank] = counts.read()[GA_SLABHASH_ABSENT];
    });
    size_t inserted = 0;
    for (size_t i = 0; i < answers.size(); i++) {
        inserted += by_batch[i];
        for (const answer &a : answers[i]) {
            inserted += a.result == GA_SLABHASH_ABSENT;
        }
    }
    EXPECT_EQUAL("the keys inserted", inserted, keys.size());
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    expect_shards(w, keys);
    end(w);
}

static void maps_beside_batches(int)
{
    beside_batches<uint32_t>(GA_SLABHASH_MAP32);
}

static void wide_maps_beside_batches(int)
{
    beside_batches<uint64_t>(GA_SLABHASH_MAP64);
}

static void contended_maps(int)
{
    contended(GA_SLABHASH_MAP32);
}

static void contended_wide_maps(int)
{
    contended(GA_SLABHASH_MAP64);
}

/* Owners insert their keys by batches, whose slabs are in memory that is mapped after the view was
 * opened. */
static void memory_of_later(int)
{
    world w;
    uint64_t count = suite.quick ? 20000 : 4000000;
    std::vector<uint64_t> keys(count), values(count);
    begin(w, GA_SLABHASH_MAP32, 0, (uint32_t)(count / 200 / placement.size()), 1,
          "slab:unit=128,capacity=4M,limit=1G/vmm");
    REQUIRE(w.is_open);
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = narrow_key(i);
        values[i] = keys[i] + 1;
    }
    for (rank &r : w.ranks) {
        std::vector<uint64_t> own = owned(r, keys), its_values;
        for (uint64_t key : own) {
            its_values.push_back(key + 1);
        }
        ga_stats before = {}, after = {};
        CUDA_DONE(cudaSetDevice(r.device));
        OK(ga_heap_stats(r.slabs, &before));
        EXPECT_EQUAL("the results ABSENT",
                     run(&r.shard, GA_SLABHASH_INSERT, own, its_values).counts[GA_SLABHASH_ABSENT],
                     own.size());
        OK(ga_heap_stats(r.slabs, &after));
        EXPECT(suite.quick || after.growths > before.growths);
        EXPECT(suite.quick || after.held_bytes > before.held_bytes + (4 << 20));
    }
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    end(w);
}

/* Batches give the shards other arrays. */
static void tables_that_grow(int)
{
    world w;
    std::vector<uint64_t> keys, values;
    begin(w, GA_SLABHASH_MAP32, GA_SLABHASH_GROW, 64, 4);
    REQUIRE(w.is_open);
    deal(GA_SLABHASH_MAP32, 0, &keys, &values);
    for (rank &r : w.ranks) {
        std::vector<uint64_t> own = owned(r, keys);
        CUDA_DONE(cudaSetDevice(r.device));
        (void)run(&r.shard, GA_SLABHASH_INSERT, own, own);
        EXPECT(r.shard.view.buckets > 64);
    }
    on_all(w, [](rank &r) { OK(ga_slabhash_peers_refresh(&r.peers, r.stream)); });
    serve_keys(w, GA_SLABHASH_SEARCH, keys, keys, GA_SLABHASH_FOUND, &keys);
    serve_keys(w, GA_SLABHASH_REPLACE, keys, values, GA_SLABHASH_FOUND, &keys);
    expect_shards(w, keys);
    end(w);
}

/* One shard was flushed and has no order of slots any more, so that none has one: kernels of all
 * ranks and batches of owners still agree on where a key goes. */
static void flushed(int)
{
    world w;
    std::vector<uint64_t> keys, values, more, more_values;
    begin(w, GA_SLABHASH_MAP32, 0, (uint32_t)(key_count() / 6 / placement.size()), 8);
    REQUIRE(w.is_open);
    deal(GA_SLABHASH_MAP32, 0, &keys, &values);
    deal(GA_SLABHASH_MAP32, key_count(), &more, &more_values);
    serve_keys(w, GA_SLABHASH_INSERT, keys, values, GA_SLABHASH_ABSENT);
    on_all(w, [](rank &r) {
        if (r.in.rank == 0) {
            OK(ga_slabhash_device_flush(&r.shard, r.stream));
        }
        OK(ga_slabhash_peers_refresh(&r.peers, r.stream));
    });
    serve_keys(w, GA_SLABHASH_SEARCH, keys, values, GA_SLABHASH_FOUND, &values);
    serve_keys(w, GA_SLABHASH_INSERT, more, more_values, GA_SLABHASH_ABSENT);
    keys.insert(keys.end(), more.begin(), more.end());
    for (rank &r : w.ranks) { /* finds those that kernels have inserted */
        std::vector<uint64_t> own = owned(r, keys);
        CUDA_DONE(cudaSetDevice(r.device));
        EXPECT_EQUAL("the results FOUND",
                     run(&r.shard, GA_SLABHASH_INSERT, own, own).counts[GA_SLABHASH_FOUND],
                     own.size());
    }
    expect_shards(w, keys);
    end(w);
}

static __global__ void ask_as_a_set(const __grid_constant__ ga_slabhash_peers_view peers,
                                    uint32_t *result)
{
    ga_slabhash_peers_session session = ga_slabhash_peers_begin(peers);
    ga_slabhash_answer a = ga_slabhash_peers_lanes<GA_SLABHASH_SET32>(
        &session, true, GA_SLABHASH_SEARCH, threadIdx.x, 0);
    result[threadIdx.x] = a.result;
    ga_slabhash_peers_end(&session);
}

static ga_status largest_of_one(void *, uint64_t *, uint32_t, void *)
{
    return GA_OK;
}

/* A view of tables of host threads. */
static void refused_on_the_host()
{
    meeting one;
    member in = {&one, 0};
    ga_slabhash_sharded *table = NULL;
    ga_slabhash_peers peers = {};
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    one.count = 1;
    ga_exchange exchange = exchange_of(&in, -1);
    exchange.largest = largest_of_one;
    exchange.wait = [](void *, void *) { return GA_OK; };
    REQUIRE(ga_slabhash_sharded_open_host(&table, &exchange, &options, NULL) == GA_OK);
    EXPECT(ga_slabhash_peers_open(&peers, table, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("a sharded table in memory of the host: expected one of devices"));
    OK(ga_slabhash_sharded_close(table));
}

/* Misuse. */
static void refused(int)
{
    world w;
    refused_on_the_host();
    ga_slabhash_peers none = {};
    begin(w, GA_SLABHASH_MAP32, 0, 64, 1);
    REQUIRE(w.is_open);
    rank &first = w.ranks[0];
    EXPECT(ga_slabhash_peers_open(&none, NULL, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("no sharded table: expected a pointer"));
    EXPECT(ga_slabhash_peers_open(NULL, first.table, 0) == GA_ERR_ARGUMENT);
    EXPECT(ga_slabhash_peers_refresh(&none, 0) == GA_ERR_ARGUMENT);
    EXPECT(test_error_has("no view of all shards: expected one that is open"));
    OK(ga_slabhash_peers_close(&none));
    OK(ga_slabhash_peers_close(NULL));
    device_array<uint32_t> results(32, 0xee);
    ask_as_a_set<<<1, 32, 0, first.stream>>>(first.peers.view, results.data);
    CUDA_DONE(cudaStreamSynchronize(first.stream));
    EXPECT(results.read() == std::vector<uint32_t>(32, GA_SLABHASH_REFUSED));
    first.peers.view.may_change = 0;
    std::vector<uint64_t> keys = narrow_keys(50);
    std::vector<std::vector<request>> of(w.ranks.size());
    for (uint64_t key : keys) {
        of[0].push_back(request{key, 1, GA_SLABHASH_INSERT, 0});
    }
    of[0].push_back(request{keys[0], 1, GA_SLABHASH_SEARCH, 0});
    for (size_t i = 1; i < of.size(); i++) {
        of[i] = {request{UINT32_MAX, 1, GA_SLABHASH_INSERT, 0}};
    }
    std::vector<std::vector<answer>> answers = serve_all(w, of);
    for (size_t i = 0; i < keys.size(); i++) {
        EXPECT_EQUAL("the result", answers[0][i].result, GA_SLABHASH_REFUSED);
    }
    EXPECT_EQUAL("the result", answers[0].back().result, GA_SLABHASH_ABSENT);
    EXPECT_EQUAL("the result of a reserved key", answers[1][0].result, GA_SLABHASH_REFUSED);
    end(w);
}

static const test_case cases[] = {
    {"sets", sets},
    {"maps", maps},
    {"maps of 64 bits", wide_maps},
    {"warps that are not whole", partial_warps},
    {"chains", chains},
    {"multimaps", multimaps},
    {"the same keys on all ranks", contended_maps},
    {"the same keys on all ranks, 64 bits", contended_wide_maps},
    {"batches of owners beside kernels of all", maps_beside_batches},
    {"batches of owners beside kernels of all, 64 bits", wide_maps_beside_batches},
    {"memory that is mapped later", memory_of_later},
    {"tables that grow", tables_that_grow},
    {"a shard that was flushed", flushed},
    {"misuse", refused},
};

static void run_on(int device)
{
    int devices = 0;
    CUDA_DONE(cudaGetDeviceCount(&devices));
    placement = {device, device};
    test_run("two ranks on one device", cases, sizeof cases / sizeof *cases, device, suite.only);
    if (device || devices < 2) {
        return;
    }
    for (const std::vector<int> &on : {std::vector<int>{0, 1}, std::vector<int>{0, 1, 0}}) {
        placement = on;
        test_run(on.size() == 2 ? "two devices" : "three ranks on two devices", cases,
                 sizeof cases / sizeof *cases, device, suite.only);
    }
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
