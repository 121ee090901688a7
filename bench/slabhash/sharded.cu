/* SPDX-License-Identifier: MIT
 *
 * The slab hash over several GPUs of one host beside one GPU, in the same run: builds and searches
 * of all keys, mixes, and the exchange alone beside NCCL's own messages of the same sizes. Every
 * result is checked: a wrong one is exit status 1. Prints GPUs, driver and date.
 *
 *   bench-slabhash-sharded [--keys LOG2] [--rounds N] [--ranks N] [--piece LOG2] [--fill PERCENT]
 *                          [--messages 1] [--nccl FILE]
 *
 * A mix is half searches for the half of the keys that is there, half inserts of the others, each
 * request with an operation of its own. Over 2, 4, ... GPUs, and all; --ranks: over N alone.
 * --piece: requests of a rank that are exchanged at once; else the table chooses. --messages 1: by
 * kernels of NCCL, also where copies are possible. A thread for each GPU. NCCL is libnccl.so.2, or
 * FILE.
 */
#define PROGRAM               "bench-slabhash-sharded"
#define GA_SLABHASH_ONLY_KIND 1u
#include "sharded_timeline.cuh"

#include <algorithm>
#include <atomic>
#include <thread>

namespace
{

int rounds = 5, ranks_wanted = 0, log_keys = 28, log_piece = 0, fill = 60, by_messages = 0;

/* Of the options: 0 leaves it to the table. */
uint64_t piece_wanted()
{
    return log_piece ? UINT64_C(1) << log_piece : 0;
}

/* Seconds of each round. */
struct times {
    std::vector<double> builds, hits, misses, mixes;
};

struct rank {
    int device;
    void *comm;
    cudaStream_t stream;
    uint32_t *keys, *values, *found;
    uint8_t *ops;
    uint64_t count;  /* requests of this rank */
    uint32_t pieces; /* of them, in a batch over several GPUs */
    times of;
    std::vector<double> exchanges, groups, messages;
};

/* What a request finds. */
enum answer {
    THERE,
    ABSENT,
    MIXED /* of each pair of requests the first one is there */
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

/* A half is there, the other half is not. */
__global__ void make_mix(uint32_t *keys, uint32_t *values, uint8_t *ops, uint64_t first,
                         uint64_t count, uint64_t all)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        bool inserts = i % 2;
        uint64_t index = (first + i) / 2 + (inserts ? all / 2 : 0);
        keys[i] = key_of(index);
        values[i] = (uint32_t)index;
        ops[i] = inserts ? GA_SLABHASH_INSERT : GA_SLABHASH_SEARCH;
    }
}

__global__ void compare(const uint32_t *found, const uint32_t *values, uint64_t count,
                        answer expected, unsigned long long *wrong)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        bool is_there = expected == THERE || (expected == MIXED && i % 2 == 0);
        if (found[i] != (is_there ? values[i] : 0)) {
            atomicAdd(wrong, 1ull);
        }
    }
}

void expect(rank &r, answer expected)
{
    unsigned long long *wrong, host = 0;
    check(cudaMallocManaged(&wrong, sizeof *wrong), "memory");
    *wrong = 0;
    compare<<<1024, 256, 0, r.stream>>>(r.found, r.values, r.count, expected, wrong);
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

void take_mix(rank &r, uint64_t first, uint64_t count, uint64_t all)
{
    r.count = count;
    make_mix<<<1024, 256, 0, r.stream>>>(r.keys, r.values, r.ops, first, count, all);
    check(cudaStreamSynchronize(r.stream), "keys");
}

ga_slabhash_batch batch_of(const rank &r, ga_slabhash_op op, bool is_mix)
{
    ga_slabhash_batch batch = {};
    batch.count = r.count;
    batch.keys = r.keys;
    batch.values = is_mix || op == GA_SLABHASH_INSERT ? r.values : NULL;
    batch.found = is_mix || op == GA_SLABHASH_SEARCH ? r.found : NULL;
    batch.ops = is_mix ? r.ops : NULL;
    batch.op = op;
    return batch;
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

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Calls of a table: `run` returns the seconds of a batch. */
template <typename CLEAR, typename RUN>
void one_round(rank &r, uint64_t first, uint64_t own, uint64_t keys, bool keep, CLEAR clear,
               RUN run)
{
    times took;
    clear();
    take_keys(r, first / 2, own / 2);
    run(batch_of(r, GA_SLABHASH_INSERT, false));
    take_mix(r, first, own, keys);
    took.mixes.push_back(run(batch_of(r, GA_SLABHASH_INSERT, true)));
    expect(r, MIXED);
    clear();
    take_keys(r, first, own);
    took.builds.push_back(run(batch_of(r, GA_SLABHASH_INSERT, false)));
    if (own < keys) { /* half of another rank's; those of the last one would wrap around */
        take_keys(r, first + own / 2 + own > keys ? 0 : first + own / 2, own);
    }
    took.hits.push_back(run(batch_of(r, GA_SLABHASH_SEARCH, false)));
    expect(r, THERE);
    take_keys(r, keys + first, own);
    took.misses.push_back(run(batch_of(r, GA_SLABHASH_SEARCH, false)));
    expect(r, ABSENT);
    if (keep) {
        r.of.mixes.push_back(took.mixes[0]);
        r.of.builds.push_back(took.builds[0]);
        r.of.hits.push_back(took.hits[0]);
        r.of.misses.push_back(took.misses[0]);
    }
}

void run_one(rank &r, uint64_t keys)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(keys);
    check(cudaSetDevice(r.device), "device");
    must(ga_slabhash_device_open(&table, &options, r.device, r.stream) == GA_OK, "open");
    auto clear = [&] {
        must(ga_slabhash_device_clear(&table, r.stream) == GA_OK, "clear");
        check(cudaStreamSynchronize(r.stream), "clear");
    };
    auto run = [&](const ga_slabhash_batch &batch) {
        double start = now();
        must(ga_slabhash_device_run(&table, &batch, NULL, r.stream) == GA_OK, "batch");
        check(cudaStreamSynchronize(r.stream), "batch");
        return now() - start;
    };
    for (int round = 0; round <= rounds; round++) {
        one_round(r, 0, keys, keys, round > 0, clear, run);
    }
    must(ga_slabhash_device_close(&table) == GA_OK, "close");
}

/* ---- several --------------------------------------------------------------------------------- */

ga_nccl_options exchange_options()
{
    ga_nccl_options options = {};
    options.options_size = sizeof options;
    options.flags = by_messages ? GA_NCCL_NO_WINDOWS : 0;
    return options;
}

/* A batch of all ranks: the time from the first start to the last end. */
double run_batch(rank &r, barrier &all, ga_slabhash_sharded *table, const ga_slabhash_batch *batch)
{
    all.meet();
    double start = now();
    must(ga_slabhash_sharded_run(table, batch, NULL, r.stream) == GA_OK, "batch");
    all.meet();
    return now() - start;
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
    ga_nccl_options over = exchange_options();
    must(ga_exchange_nccl(&w.exchange, r.comm, &over) == GA_OK, "exchange");
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
    shard.bytes = options.buckets * UINT64_C(128);
    shard.run = watched_run;
    shard.close = watched_shard_close;
    sharded.options_size = sizeof sharded;
    sharded.piece = piece_wanted();
    must(ga_slabhash_sharded_open(&opened, &exchange, &shard, &sharded) == GA_OK, "open");
    ga_slabhash_batch batch = batch_of(r, GA_SLABHASH_INSERT, false);
    run_batch(r, all, opened, &batch);
    batch = batch_of(r, GA_SLABHASH_SEARCH, false);
    run_batch(r, all, opened, &batch);
    check(cudaEventCreate(&w.start), "event");
    all.meet();
    check(cudaEventRecord(w.start, r.stream), "event");
    w.is_on = true;
    double time = run_batch(r, all, opened, &batch);
    w.is_on = false;
    expect(r, THERE);
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

void exchange_alone(rank &r, barrier &all)
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
    ga_nccl_options over = exchange_options();
    must(ga_exchange_nccl(&w.exchange, r.comm, &over) == GA_OK, "exchange");
    ga_exchange exchange = watch(w);
    shard.table = &nothing;
    shard.mode = GA_SLABHASH_MAP32;
    shard.a = plan.a;
    shard.b = plan.b;
    shard.run = serve_nothing;
    shard.close = close_nothing;
    sharded.options_size = sizeof sharded;
    sharded.piece = piece_wanted();
    must(ga_slabhash_sharded_open(&table, &exchange, &shard, &sharded) == GA_OK, "open");
    ga_slabhash_batch batch = batch_of(r, GA_SLABHASH_SEARCH, false);
    run_batch(r, all, table, &batch); /* takes memory */
    for (int round = 0; round < rounds; round++) {
        r.exchanges.push_back(run_batch(r, all, table, &batch));
    }
    for (int round = 0; round < rounds; round++) {
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
    ga_nccl_options over = exchange_options();
    ga_sharded_options sharded = {};
    uint64_t own = keys / (uint64_t)ranks, first = own * (uint64_t)r.device;
    check(cudaSetDevice(r.device), "device");
    sharded.options_size = sizeof sharded;
    sharded.piece = piece_wanted();
    r.of = {};
    r.exchanges.clear();
    r.groups.clear();
    r.messages.clear();
    must(ga_slabhash_nccl_open(&table, &options, r.comm, r.stream, &over, &sharded) == GA_OK,
         "open");
    auto clear = [&] {
        must(ga_slabhash_sharded_clear(table, r.stream) == GA_OK, "clear");
        check(cudaStreamSynchronize(r.stream), "clear");
    };
    auto run = [&](const ga_slabhash_batch &batch) { return run_batch(r, all, table, &batch); };
    for (int round = 0; round <= rounds; round++) {
        one_round(r, first, own, keys, round > 0, clear, run);
    }
    ga_sharded_report report;
    ga_slabhash_sharded_report(table, &report);
    r.pieces = report.pieces;
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
    exchange_alone(r, all);
    messages_alone(r, all, ranks);
}

/* ---- output ---------------------------------------------------------------------------------- */

void print(int ranks, const char *what, uint64_t keys, const std::vector<double> &one,
           const std::vector<double> &several)
{
    printf("%4d %-8s %8.2f %8.2f %4.1f%% %8.2f %4.1f%% %7.2f\n", ranks, what,
           (double)keys / median(one) / 1e9, (double)keys / median(several) / 1e9, spread(several),
           median(several) * 1e3, spread(one), median(one) / median(several));
}

void read_options(int count, char **words)
{
    for (int i = 1; i < count; i += 2) {
        static const struct {
            const char *name;
            int *value;
        } names[] = {{"--keys", &log_keys},        {"--rounds", &rounds},
                     {"--ranks", &ranks_wanted},   {"--piece", &log_piece},
                     {"--messages", &by_messages}, {"--fill", &fill}};
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
                    PROGRAM ": \"%s\": expected --keys, --rounds, --ranks, --piece, --fill or "
                            "--messages, and a number above 0, or --nccl, and a file\n",
                    words[i]);
            exit(2);
        }
    }
}

void print_several(const rank &one, const rank &first, int ranks, uint64_t keys)
{
    printf("%4s %-8s %8s %8s %5s %8s %5s %7s\n", "GPUs", "", "one GPU", "all", "+-", "ms", "one+-",
           "times");
    print(ranks, "builds", keys, one.of.builds, first.of.builds);
    print(ranks, "hits", keys, one.of.hits, first.of.hits);
    print(ranks, "misses", keys, one.of.misses, first.of.misses);
    print(ranks, "mixes", keys, one.of.mixes, first.of.mixes);
    uint64_t each = keys / (uint64_t)ranks / (uint64_t)ranks;
    double bytes = (double)(each * (uint64_t)(ranks - 1)) * 4 * 2;
    printf(
        "a search without shards %.2f ms (+- %.1f%%), of which messages %.2f ms (+- %.1f%%); such "
        "messages alone by NCCL %.2f ms (+- %.1f%%), %.0f GB/s each way; mixes are of %u pieces\n",
        median(first.exchanges) * 1e3, spread(first.exchanges), median(first.groups) * 1e3,
        spread(first.groups), median(first.messages) * 1e3, spread(first.messages),
        bytes / median(first.messages) / 1e9, first.pieces);
    fflush(stdout);
}

/* The numbers of ranks. */
std::vector<int> ranks_of(int devices)
{
    std::vector<int> counts;
    int most = ranks_wanted && ranks_wanted < devices ? ranks_wanted : devices;
    for (int ranks = 2; ranks < most && !ranks_wanted; ranks *= 2) {
        counts.push_back(ranks);
    }
    counts.push_back(most);
    return counts;
}

/* Memory for the requests of the fewest ranks with which the rank takes part. */
void prepare(rank &r, const std::vector<int> &counts, uint64_t keys)
{
    uint64_t fewest = 1;
    for (size_t i = counts.size(); r.device && i-- > 0;) {
        fewest = counts[i] > r.device ? (uint64_t)counts[i] : fewest;
    }
    uint64_t room = keys / fewest;
    check(cudaSetDevice(r.device), "device");
    check(cudaStreamCreate(&r.stream), "stream");
    check(cudaMalloc(&r.keys, room * sizeof *r.keys), "memory");
    check(cudaMalloc(&r.values, room * sizeof *r.values), "memory");
    check(cudaMalloc(&r.found, room * sizeof *r.found), "memory");
    check(cudaMalloc(&r.ops, room), "memory");
}

void run_several(std::vector<rank> &all, int ranks, uint64_t keys)
{
    std::vector<void *> comms((size_t)ranks);
    std::vector<std::thread> threads;
    barrier meeting(ranks);
    must(nccl.init(comms.data(), ranks, NULL) == 0, "ncclCommInitAll");
    for (int i = 0; i < ranks; i++) {
        rank &r = all[(size_t)i];
        r.comm = comms[(size_t)i];
        threads.emplace_back([&] { run_sharded(r, meeting, ranks, keys); });
    }
    for (auto &thread : threads) {
        thread.join();
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
    std::vector<int> counts = ranks_of(devices);
    uint64_t keys = UINT64_C(1) << log_keys;
    std::vector<rank> all((size_t)counts.back());
    print_machine(counts.back());
    char pieces[16] = "default size";
    if (log_piece) {
        snprintf(pieces, sizeof pieces, "2^%d", log_piece);
    }
    printf(
        "2^%d keys, %d rounds, %d %% of slots filled, pieces of %s, by %s; G/s, medians and half "
        "the interquartile range\n",
        log_keys, rounds, fill, pieces, by_messages ? "messages" : "copies if possible");
    for (size_t i = 0; i < all.size(); i++) {
        all[i].device = (int)i;
        prepare(all[i], counts, keys);
    }
    check(cudaSetDevice(0), "device");
    run_one(all[0], keys);
    rank one = all[0];
    for (int ranks : counts) {
        run_several(all, ranks, keys);
        print_several(one, all[0], ranks, keys);
    }
    return 0;
}
