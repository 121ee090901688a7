/* SPDX-License-Identifier: MIT
 *
 * The slab hash over several GPUs of one host beside one GPU, in the same run: builds and searches
 * of all keys, and the exchange alone beside NCCL's own messages of the same sizes. Every result is
 * checked: a wrong one is exit status 1. Prints GPUs, driver and date.
 *
 *   bench-slabhash-sharded [--keys LOG2] [--rounds N] [--ranks N] [--piece LOG2] [--fill PERCENT]
 *                          [--nccl FILE]
 *
 * A thread for each GPU. NCCL is libnccl.so.2, or FILE.
 */
#define PROGRAM               "bench-slabhash-sharded"
#define GA_SLABHASH_ONLY_KIND 1u
#include "sharded_timeline.cuh"

#include <algorithm>
#include <atomic>
#include <thread>

namespace
{

int rounds = 5, ranks_wanted = 0, log_keys = 28, log_piece = 27, fill = 60;

struct rank {
    int device;
    void *comm;
    cudaStream_t stream;
    uint32_t *keys, *values, *found;
    uint64_t count; /* requests of this rank */
    std::vector<double> builds, hits, misses, exchanges, groups, messages;
};

/* Distinct keys below 2^32 - 2 for indices below 2^31: odd multiples modulo 2^32, without the
 * reserved ones. */
__device__ uint32_t key_of(uint64_t index)
{
    uint32_t key = (uint32_t)index * 2654435761u;
    return key >= 0xfffffffeu ? key - 0x10u : key;
}

__global__ void make_keys(uint32_t *keys, uint32_t *values, uint64_t first, uint64_t count)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        keys[i] = key_of(first + i);
        values[i] = (uint32_t)(first + i);
    }
}

__global__ void compare(const uint32_t *found, const uint32_t *values, uint64_t count, int absent,
                        unsigned long long *wrong)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        if (found[i] != (absent ? 0 : values[i])) {
            atomicAdd(wrong, 1ull);
        }
    }
}

void expect(rank &r, bool absent)
{
    unsigned long long *wrong, host = 0;
    check(cudaMallocManaged(&wrong, sizeof *wrong), "memory");
    *wrong = 0;
    compare<<<1024, 256, 0, r.stream>>>(r.found, r.values, r.count, absent, wrong);
    check(cudaStreamSynchronize(r.stream), "compare");
    host = *wrong;
    check(cudaFree(wrong), "memory");
    if (host) {
        fprintf(stderr, PROGRAM ": %llu of %llu answers are wrong\n", host,
                (unsigned long long)r.count);
        exit(1);
    }
}

void take_keys(rank &r, uint64_t first, uint64_t count)
{
    r.count = count;
    make_keys<<<1024, 256, 0, r.stream>>>(r.keys, r.values, first, count);
    check(cudaStreamSynchronize(r.stream), "keys");
}

ga_slabhash_options options_of(uint64_t keys)
{
    ga_slabhash_options options = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.buckets = (uint32_t)((double)keys / 15 * 100 / fill);
    options.path = 16;
    options.seed = 1;
    return options;
}

/* ---- one GPU --------------------------------------------------------------------------------- */

void run_one(rank &r, uint64_t keys)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(keys);
    check(cudaSetDevice(r.device), "device");
    must(ga_slabhash_device_open(&table, &options, r.device, r.stream) == GA_OK, "open");
    for (int round = 0; round <= rounds; round++) {
        ga_slabhash_batch batch = {};
        take_keys(r, 0, keys);
        must(ga_slabhash_device_clear(&table, r.stream) == GA_OK, "clear");
        check(cudaStreamSynchronize(r.stream), "clear");
        batch.count = keys;
        batch.keys = r.keys;
        batch.values = r.values;
        batch.op = GA_SLABHASH_INSERT;
        double start = now();
        must(ga_slabhash_device_run(&table, &batch, NULL, r.stream) == GA_OK, "build");
        check(cudaStreamSynchronize(r.stream), "build");
        double built = now() - start;
        batch.op = GA_SLABHASH_SEARCH;
        batch.values = NULL;
        batch.found = r.found;
        start = now();
        must(ga_slabhash_device_run(&table, &batch, NULL, r.stream) == GA_OK, "search");
        check(cudaStreamSynchronize(r.stream), "search");
        double hit = now() - start;
        expect(r, false);
        take_keys(r, keys, keys);
        start = now();
        must(ga_slabhash_device_run(&table, &batch, NULL, r.stream) == GA_OK, "search");
        check(cudaStreamSynchronize(r.stream), "search");
        double miss = now() - start;
        expect(r, true);
        if (round) {
            r.builds.push_back(built);
            r.hits.push_back(hit);
            r.misses.push_back(miss);
        }
    }
    must(ga_slabhash_device_close(&table) == GA_OK, "close");
}

/* ---- several --------------------------------------------------------------------------------- */

/* A batch of all ranks: the time from the first start to the last end. */
double run_batch(rank &r, barrier &all, ga_slabhash_sharded *table, const ga_slabhash_batch *batch)
{
    all.meet();
    double start = now();
    must(ga_slabhash_sharded_run(table, batch, NULL, r.stream) == GA_OK, "batch");
    all.meet();
    return now() - start;
}

void search(rank &r, barrier &all, ga_slabhash_sharded *table, std::vector<double> &times,
            bool keep, bool absent)
{
    ga_slabhash_batch batch = {};
    batch.count = r.count;
    batch.keys = r.keys;
    batch.found = r.found;
    batch.op = GA_SLABHASH_SEARCH;
    double time = run_batch(r, all, table, &batch);
    expect(r, absent);
    if (keep) {
        times.push_back(time);
    }
}

/* ---- the timeline of one search -------------------------------------------------------------- */

/* A search over a table that is watched. */
void timeline(rank &r, barrier &all, uint64_t keys)
{
    watched w = {};
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(keys);
    ga_sharded_options sharded = {};
    ga_slabhash_sharded *opened;
    must(ga_exchange_nccl(&w.exchange, r.comm, NULL) == GA_OK, "exchange");
    options.buckets /= w.exchange.ranks;
    must(ga_slabhash_device_open(&table, &options, r.device, r.stream) == GA_OK, "open");
    w.shard.table = &table;
    w.shard.run = ga_slabhash_nccl_run;
    w.shard.close = [](void *of) { return ga_slabhash_device_close((ga_slabhash_device *)of); };
    ga_exchange exchange = watch(w);
    ga_shard shard = {};
    shard.shard_size = sizeof shard;
    shard.table = &w;
    shard.mode = GA_SLABHASH_MAP32;
    shard.a = table.view.a;
    shard.b = table.view.b;
    shard.run = watched_run;
    shard.close = watched_shard_close;
    sharded.options_size = sizeof sharded;
    sharded.piece = UINT64_C(1) << log_piece;
    must(ga_slabhash_sharded_open(&opened, &exchange, &shard, &sharded) == GA_OK, "open");
    ga_slabhash_batch batch = {};
    batch.count = r.count;
    batch.keys = r.keys;
    batch.values = r.values;
    batch.op = GA_SLABHASH_INSERT;
    run_batch(r, all, opened, &batch);
    batch.op = GA_SLABHASH_SEARCH;
    batch.values = NULL;
    batch.found = r.found;
    run_batch(r, all, opened, &batch);
    check(cudaEventCreate(&w.start), "event");
    all.meet();
    check(cudaEventRecord(w.start, r.stream), "event");
    w.is_on = true;
    double time = run_batch(r, all, opened, &batch);
    w.is_on = false;
    expect(r, false);
    if (r.device == 0) {
        print_timeline(w);
        printf("  the host's time: %.3f ms\n", time * 1e3);
    }
    must(ga_slabhash_sharded_close(opened) == GA_OK, "close");
}

/* Instead of the table's: nothing, so that the exchange is measured alone. */
ga_status serve_nothing(void *, const ga_slabhash_batch *, uint32_t, uint64_t *, void *)
{
    return GA_OK;
}

ga_status close_nothing(void *)
{
    return GA_OK;
}

void exchange_alone(rank &r, barrier &all, bool keep)
{
    static int nothing;
    watched w = {};
    ga_shard shard = {};
    shard.shard_size = sizeof shard;
    ga_sharded_options sharded = {};
    ga_slabhash_sharded *table;
    ga_slabhash_plan plan;
    ga_slabhash_options options = options_of(1 << 20);
    must(ga_slabhash_plan_of(&options, &plan) == GA_OK, "plan");
    must(ga_exchange_nccl(&w.exchange, r.comm, NULL) == GA_OK, "exchange");
    ga_exchange exchange = watch(w);
    shard.table = &nothing;
    shard.mode = GA_SLABHASH_MAP32;
    shard.a = plan.a;
    shard.b = plan.b;
    shard.run = serve_nothing;
    shard.close = close_nothing;
    sharded.options_size = sizeof sharded;
    sharded.piece = UINT64_C(1) << log_piece;
    must(ga_slabhash_sharded_open(&table, &exchange, &shard, &sharded) == GA_OK, "open");
    ga_slabhash_batch batch = {};
    batch.count = r.count;
    batch.keys = r.keys;
    batch.found = r.found;
    batch.op = GA_SLABHASH_SEARCH;
    run_batch(r, all, table, &batch); /* takes memory */
    for (int round = 0; keep && round < rounds; round++) {
        r.exchanges.push_back(run_batch(r, all, table, &batch));
    }
    for (int round = 0; keep && round < rounds; round++) {
        w.intervals.clear();
        w.is_on = true;
        run_batch(r, all, table, &batch);
        w.is_on = false;
        r.groups.push_back(seconds_of_messages(w));
    }
    must(ga_slabhash_sharded_close(table) == GA_OK, "close");
}

/* Messages of the same sizes, one group there and one back. */
void messages_alone(rank &r, barrier &all, int ranks)
{
    uint64_t bytes = r.count / (uint64_t)ranks * sizeof *r.keys;
    for (int round = 0; round <= rounds; round++) {
        all.meet();
        double start = now();
        for (int way = 0; way < 2; way++) {
            nccl.begin();
            for (int other = 0; other < ranks; other++) {
                if (other != r.device) {
                    nccl.send((char *)r.keys + bytes * (uint64_t)other, bytes, 0, other, r.comm,
                              r.stream);
                    nccl.receive((char *)r.found + bytes * (uint64_t)other, bytes, 0, other, r.comm,
                                 r.stream);
                }
            }
            nccl.end();
        }
        check(cudaStreamSynchronize(r.stream), "messages");
        all.meet();
        if (round) {
            r.messages.push_back(now() - start);
        }
    }
}

void run_sharded(rank &r, barrier &all, int ranks, uint64_t keys)
{
    ga_slabhash_sharded *table;
    ga_slabhash_options options = options_of(keys);
    ga_sharded_options sharded = {};
    uint64_t own = keys / (uint64_t)ranks, first = own * (uint64_t)r.device;
    check(cudaSetDevice(r.device), "device");
    sharded.options_size = sizeof sharded;
    sharded.piece = UINT64_C(1) << log_piece;
    r.builds.clear();
    r.hits.clear();
    r.misses.clear();
    must(ga_slabhash_nccl_open(&table, &options, r.comm, r.stream, NULL, &sharded) == GA_OK,
         "open");
    for (int round = 0; round <= rounds; round++) {
        ga_slabhash_batch batch = {};
        take_keys(r, first, own);
        must(ga_slabhash_sharded_clear(table, r.stream) == GA_OK, "clear");
        check(cudaStreamSynchronize(r.stream), "clear");
        batch.count = own;
        batch.keys = r.keys;
        batch.values = r.values;
        batch.op = GA_SLABHASH_INSERT;
        double built = run_batch(r, all, table, &batch);
        if (round) {
            r.builds.push_back(built);
        }
        take_keys(r, (first + own / 2) % keys, own); /* half of another rank's */
        if ((first + own / 2) % keys + own > keys) { /* the last wraps around */
            take_keys(r, 0, own);
        }
        search(r, all, table, r.hits, round > 0, false);
        take_keys(r, keys + first, own);
        search(r, all, table, r.misses, round > 0, true);
    }
    uint64_t pairs = 0;
    must(ga_slabhash_sharded_size(table, &pairs, r.stream) == GA_OK, "size");
    if (pairs != keys) {
        fprintf(stderr, PROGRAM ": %llu pairs of %llu\n", (unsigned long long)pairs,
                (unsigned long long)keys);
        exit(1);
    }
    must(ga_slabhash_sharded_close(table) == GA_OK, "close");
    take_keys(r, first, own);
    timeline(r, all, keys);
    exchange_alone(r, all, true);
    messages_alone(r, all, ranks);
}

void print(const char *what, uint64_t keys, const std::vector<double> &one,
           const std::vector<double> &several)
{
    printf("%-8s %8.2f %8.2f %4.1f%% %8.2f %4.1f%% %7.2f\n", what, (double)keys / median(one) / 1e9,
           (double)keys / median(several) / 1e9, spread(several), median(several) * 1e3,
           spread(one), median(one) / median(several));
}

void read_options(int count, char **words)
{
    for (int i = 1; i < count; i += 2) {
        static const struct {
            const char *name;
            int *value;
        } names[] = {{"--keys", &log_keys},
                     {"--rounds", &rounds},
                     {"--ranks", &ranks_wanted},
                     {"--piece", &log_piece},
                     {"--fill", &fill}};
        bool known = i + 1 < count && !strcmp(words[i], "--nccl");
        nccl_file = known ? words[i + 1] : nccl_file;
        for (const auto &name : names) {
            if (i + 1 < count && !strcmp(words[i], name.name) && atoi(words[i + 1]) > 0) {
                *name.value = atoi(words[i + 1]);
                known = true;
            }
        }
        if (!known || log_keys > 31 || log_piece > 30 || fill > 100) {
            fprintf(stderr,
                    PROGRAM ": \"%s\": expected --keys, --rounds, --ranks, --piece or "
                            "--fill, and a number above 0, or --nccl, and a file\n",
                    words[i]);
            exit(2);
        }
    }
}

} // namespace

int main(int count, char **words)
{
    int devices = 0;
    read_options(count, words);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        printf(PROGRAM ": skipped, no GPU\n");
        return 77;
    }
    load_nccl();
    int ranks = ranks_wanted && ranks_wanted < devices ? ranks_wanted : devices;
    uint64_t keys = UINT64_C(1) << log_keys;
    std::vector<rank> all((size_t)ranks);
    std::vector<void *> comms((size_t)ranks);
    std::vector<std::thread> threads;
    barrier meeting(ranks);
    print_machine(ranks);
    must(nccl.init(comms.data(), ranks, NULL) == 0, "ncclCommInitAll");
    for (int i = 0; i < ranks; i++) {
        uint64_t room = (i ? keys / (uint64_t)ranks : keys) * sizeof(uint32_t);
        all[i].device = i;
        all[i].comm = comms[i];
        check(cudaSetDevice(i), "device");
        check(cudaStreamCreate(&all[i].stream), "stream");
        check(cudaMalloc(&all[i].keys, room), "memory");
        check(cudaMalloc(&all[i].values, room), "memory");
        check(cudaMalloc(&all[i].found, room), "memory");
    }
    check(cudaSetDevice(0), "device");
    run_one(all[0], keys);
    rank one = all[0];
    for (auto &r : all) {
        threads.emplace_back([&] { run_sharded(r, meeting, ranks, keys); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    printf("2^%d keys, %d rounds, %d %% of slots filled, pieces of 2^%d; G/s, medians and half the "
           "interquartile range\n",
           log_keys, rounds, fill, log_piece);
    printf("%-8s %8s %8s %5s %8s %5s %7s\n", "", "one GPU", "all", "+-", "ms", "one+-", "times");
    print("builds", keys, one.builds, all[0].builds);
    print("hits", keys, one.hits, all[0].hits);
    print("misses", keys, one.misses, all[0].misses);
    double bytes =
        (double)(keys / (uint64_t)ranks / (uint64_t)ranks * (uint64_t)(ranks - 1)) * 4 * 2;
    printf(
        "a search without shards %.2f ms (+- %.1f%%), of which messages %.2f ms (+- %.1f%%); such "
        "messages alone by NCCL %.2f ms (+- %.1f%%), %.0f GB/s each way\n",
        median(all[0].exchanges) * 1e3, spread(all[0].exchanges), median(all[0].groups) * 1e3,
        spread(all[0].groups), median(all[0].messages) * 1e3, spread(all[0].messages),
        bytes / median(all[0].messages) / 1e9);
    return 0;
}
