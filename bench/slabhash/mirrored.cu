/* SPDX-License-Identifier: MIT
 *
 * A rank of a sharded slab hash over many GPUs, on one GPU: the other ranks are its mirrors. They
 * have the same requests, so each message that this rank would receive is a copy of one that it
 * sends. Sorts, shards and gathers are those of a rank of N; messages cost a copy on the device.
 * model.py adds the links. Answers are checked: a wrong one is exit status 1.
 *
 *   bench-slabhash-mirrored [--keys LOG2] [--rounds N] [--ranks MOST]
 *
 * Prints for 2, 4, ... MOST ranks the median times of a search and of a build, in ms:
 *   count   the count of requests for each bin, or, where it is guessed, the sort
 *   sort    agreement, exchange of the counts, and the sort, if it was not guessed
 *   steps   from the first requests served to the last ones
 *   shard   the part of it in which the shard serves
 *   rest    gather, agreement and the host's waits
 */
#define PROGRAM               "bench-slabhash-mirrored"
#define GA_SLABHASH_ONLY_KIND 1u
#include <gpualloc/slabhash_nccl.cuh>

#include <algorithm>
#include <chrono>
#include <string.h>
#include <time.h>
#include <vector>

#include "commit.h"

namespace
{

int log_keys = 27, rounds = 5, most_ranks = 1024;

void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, ga_error_text());
        exit(1);
    }
}

void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

/* ---- the exchange ---------------------------------------------------------------------------- */

struct copy {
    const char *from;
    char *to;
    uint64_t bytes;
};

enum {
    BLOCKS_EACH = 16,  /* of a message */
    COPIES = 1u << 18, /* of a batch, at most */
};

/* Sizes and addresses are multiples of 4. */
__global__ void carry(const copy *copies)
{
    copy c = copies[blockIdx.y];
    bool is_aligned = ((uintptr_t)c.from | (uintptr_t)c.to | c.bytes) % sizeof(uint4) == 0;
    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = first; is_aligned && i < c.bytes / sizeof(uint4); i += stride) {
        ((uint4 *)c.to)[i] = ((const uint4 *)c.from)[i];
    }
    for (uint64_t i = first; !is_aligned && i < c.bytes / sizeof(uint32_t); i += stride) {
        ((uint32_t *)c.to)[i] = ((const uint32_t *)c.from)[i];
    }
}

struct interval {
    cudaEvent_t begin, end;
};

/* The exchange and the shard of a rank, and the times of both. */
struct mirror {
    ga_slabhash_device table;
    std::vector<std::vector<copy>> sent, received; /* of a group, for each rank */
    copy *copies;                                  /* pinned */
    size_t used;
    std::vector<interval> shard;
    cudaEvent_t start, counted, end;
    bool is_counted;
    uint32_t words; /* of an agreement without counts */
};

ga_status mirror_begin(void *)
{
    return GA_OK;
}

ga_status mirror_send(void *context, const void *from, uint64_t bytes, uint32_t to, void *)
{
    ((mirror *)context)->sent[to].push_back({(const char *)from, NULL, bytes});
    return GA_OK;
}

ga_status mirror_receive(void *context, void *to, uint64_t bytes, uint32_t from, void *)
{
    ((mirror *)context)->received[from].push_back({NULL, (char *)to, bytes});
    return GA_OK;
}

/* From a rank comes what was sent to it, in that order. */
ga_status mirror_end(void *context, void *stream)
{
    mirror &m = *(mirror *)context;
    size_t first = m.used;
    for (size_t rank = 0; rank < m.sent.size(); rank++) {
        must(m.sent[rank].size() == m.received[rank].size(), "messages do not match");
        for (size_t i = 0; i < m.sent[rank].size(); i++) {
            copy out = m.sent[rank][i], in = m.received[rank][i];
            must(out.bytes == in.bytes && m.used < COPIES, "messages do not match");
            m.copies[m.used++] = {out.from, in.to, out.bytes};
        }
        m.sent[rank].clear();
        m.received[rank].clear();
    }
    if (m.used > first) {
        dim3 grid(BLOCKS_EACH, (unsigned)(m.used - first));
        carry<<<grid, 256, 0, (cudaStream_t)stream>>>(m.copies + first);
    }
    return cudaGetLastError() == cudaSuccess ? GA_OK : GA_ERR_DEVICE;
}

/* All have the same values. Behind those of each agreement there may be the counts of each rank for
 * the parts of each one: from a rank come as many requests as are sent to it. */
ga_status mirror_largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    mirror &m = *(mirror *)context;
    m.words = m.words && m.words < count ? m.words : count;
    size_t ranks = m.sent.size();
    size_t parts = (count - m.words) / (ranks * ranks);
    for (size_t rank = 1; parts && rank < ranks; rank++) {
        const uint64_t *own = values + m.words + rank * parts;
        check(cudaMemcpyAsync(values + m.words + rank * ranks * parts, own, parts * sizeof *own,
                              cudaMemcpyDeviceToDevice, (cudaStream_t)stream),
              "counts");
    }
    if (!m.is_counted) {
        check(cudaEventRecord(m.counted, (cudaStream_t)stream), "event");
        m.is_counted = true;
    }
    return GA_OK;
}

ga_status mirror_wait(void *, void *stream)
{
    return cudaStreamSynchronize((cudaStream_t)stream) == cudaSuccess ? GA_OK : GA_ERR_DEVICE;
}

void mirror_close(void *)
{
}

ga_status shard_run(void *context, const ga_slabhash_batch *batches, uint32_t count,
                    uint64_t *counts, void *stream)
{
    mirror &m = *(mirror *)context;
    interval i = {};
    check(cudaEventCreate(&i.begin), "event");
    check(cudaEventCreate(&i.end), "event");
    check(cudaEventRecord(i.begin, (cudaStream_t)stream), "event");
    ga_status status = ga_slabhash_nccl_run(&m.table, batches, count, counts, stream);
    check(cudaEventRecord(i.end, (cudaStream_t)stream), "event");
    m.shard.push_back(i);
    return status;
}

ga_status shard_close(void *context)
{
    return ga_slabhash_device_close(&((mirror *)context)->table);
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct arrays {
    uint64_t count;
    uint32_t *keys, *values, *found;
    unsigned long long *wrong; /* pinned */
    cudaStream_t stream;
};

__global__ void make_keys(arrays a)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        a.keys[i] = (uint32_t)i * 2654435761u & 0x7fffffffu; /* distinct below 2^31 */
        a.values[i] = (uint32_t)i;
    }
}

__global__ void compare(arrays a)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        if (a.found[i] != a.values[i]) {
            atomicAdd(a.wrong, 1ull);
        }
    }
}

void open_arrays(arrays &a)
{
    a.count = UINT64_C(1) << log_keys;
    check(cudaStreamCreate(&a.stream), "stream");
    check(cudaMalloc(&a.keys, a.count * sizeof *a.keys), "memory");
    check(cudaMalloc(&a.values, a.count * sizeof *a.values), "memory");
    check(cudaMalloc(&a.found, a.count * sizeof *a.found), "memory");
    check(cudaMallocHost(&a.wrong, sizeof *a.wrong), "memory");
    make_keys<<<1024, 256, 0, a.stream>>>(a);
    check(cudaStreamSynchronize(a.stream), "keys");
}

/* After a search. */
void expect(const arrays &a)
{
    *a.wrong = 0;
    compare<<<1024, 256, 0, a.stream>>>(a);
    check(cudaStreamSynchronize(a.stream), "compare");
    if (*a.wrong) {
        fprintf(stderr, PROGRAM ": %llu of %llu answers are wrong\n", *a.wrong,
                (unsigned long long)a.count);
        exit(1);
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

ga_slabhash_options table_options()
{
    ga_slabhash_options options = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.buckets = (uint32_t)((UINT64_C(1) << log_keys) / 9 + 1); /* 60 % of 15 slots */
    options.path = 16;
    options.seed = 1;
    return options;
}

ga_slabhash_batch batch_of(const arrays &a, bool search)
{
    ga_slabhash_batch batch = {};
    batch.count = a.count;
    batch.keys = a.keys;
    batch.values = search ? NULL : a.values;
    batch.found = search ? a.found : NULL;
    batch.op = search ? GA_SLABHASH_SEARCH : GA_SLABHASH_INSERT;
    return batch;
}

ga_slabhash_sharded *open_mirror(mirror &m, const arrays &a, int ranks)
{
    ga_slabhash_options options = table_options();
    ga_sharded_options sharded = {};
    ga_slabhash_sharded *table;
    ga_exchange exchange = {};
    ga_shard shard = {};
    must(ga_slabhash_device_open(&m.table, &options, 0, a.stream) == GA_OK, "open");
    m.sent.resize((size_t)ranks);
    m.received.resize((size_t)ranks);
    exchange.exchange_size = sizeof exchange;
    exchange.context = &m;
    exchange.ranks = (uint32_t)ranks;
    exchange.begin = mirror_begin;
    exchange.send = mirror_send;
    exchange.receive = mirror_receive;
    exchange.end = mirror_end;
    exchange.largest = mirror_largest;
    exchange.wait = mirror_wait;
    exchange.close = mirror_close;
    shard.shard_size = sizeof shard;
    shard.table = &m;
    shard.mode = GA_SLABHASH_MAP32;
    shard.a = m.table.view.a;
    shard.b = m.table.view.b;
    shard.run = shard_run;
    shard.close = shard_close;
    sharded.options_size = sizeof sharded;
    sharded.piece = UINT64_C(1) << log_keys;
    must(ga_slabhash_sharded_open(&table, &exchange, &shard, &sharded) == GA_OK, "open");
    return table;
}

double ms_between(cudaEvent_t begin, cudaEvent_t end)
{
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    return ms;
}

/* Times of a batch: count, sort, steps, shard, rest, all. */
typedef std::vector<double> times;

times run_batch(mirror &m, const arrays &a, ga_slabhash_sharded *table, bool search)
{
    ga_slabhash_batch batch = batch_of(a, search);
    m.is_counted = false;
    m.used = 0;
    m.shard.clear();
    check(cudaEventRecord(m.start, a.stream), "event");
    must(ga_slabhash_sharded_run(table, &batch, NULL, a.stream) == GA_OK, "batch");
    check(cudaEventRecord(m.end, a.stream), "event");
    check(cudaStreamSynchronize(a.stream), "batch");
    double busy = 0;
    for (const interval &i : m.shard) {
        busy += ms_between(i.begin, i.end);
    }
    cudaEvent_t served = m.shard.front().begin, last = m.shard.back().end;
    times of = {ms_between(m.start, m.counted), ms_between(m.counted, served),
                ms_between(served, last),       busy,
                ms_between(last, m.end),        ms_between(m.start, m.end)};
    for (const interval &i : m.shard) {
        cudaEventDestroy(i.begin);
        cudaEventDestroy(i.end);
    }
    return of;
}

double median(std::vector<double> of)
{
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

void print(int ranks, const char *what, const std::vector<times> &all)
{
    printf("%5d %-7s", ranks, what);
    for (size_t column = 0; column < all[0].size(); column++) {
        std::vector<double> of;
        for (const times &row : all) {
            of.push_back(row[column]);
        }
        printf(" %8.3f", median(of));
    }
    printf("\n");
    fflush(stdout);
}

void run_ranks(const arrays &a, int ranks)
{
    mirror m = {};
    std::vector<times> builds, searches;
    check(cudaEventCreate(&m.start), "event");
    check(cudaEventCreate(&m.counted), "event");
    check(cudaEventCreate(&m.end), "event");
    check(cudaMallocHost(&m.copies, COPIES * sizeof *m.copies), "memory");
    ga_slabhash_sharded *table = open_mirror(m, a, ranks);
    for (int round = 0; round <= rounds; round++) {
        must(ga_slabhash_device_clear(&m.table, a.stream) == GA_OK, "clear");
        check(cudaStreamSynchronize(a.stream), "clear");
        times build = run_batch(m, a, table, false);
        times search = run_batch(m, a, table, true);
        expect(a);
        if (round) {
            builds.push_back(build);
            searches.push_back(search);
        }
    }
    print(ranks, "search", searches);
    print(ranks, "build", builds);
    must(ga_slabhash_sharded_close(table) == GA_OK, "close");
    check(cudaFreeHost(m.copies), "memory");
}

/* A table of one GPU. */
void run_alone(const arrays &a)
{
    ga_slabhash_device table;
    ga_slabhash_options options = table_options();
    std::vector<double> of[2];
    cudaEvent_t start, end;
    check(cudaEventCreate(&start), "event");
    check(cudaEventCreate(&end), "event");
    must(ga_slabhash_device_open(&table, &options, 0, a.stream) == GA_OK, "open");
    for (int round = 0; round <= rounds; round++) {
        must(ga_slabhash_device_clear(&table, a.stream) == GA_OK, "clear");
        for (int search = 0; search < 2; search++) {
            ga_slabhash_batch batch = batch_of(a, search);
            check(cudaEventRecord(start, a.stream), "event");
            must(ga_slabhash_device_run(&table, &batch, NULL, a.stream) == GA_OK, "batch");
            check(cudaEventRecord(end, a.stream), "event");
            check(cudaStreamSynchronize(a.stream), "batch");
            if (round) {
                of[search].push_back(ms_between(start, end));
            }
        }
        expect(a);
    }
    printf("one GPU: search %.3f ms, build %.3f ms\n", median(of[1]), median(of[0]));
    must(ga_slabhash_device_close(&table) == GA_OK, "close");
}

void read_options(int count, char **words)
{
    for (int i = 1; i < count; i += 2) {
        int number = i + 1 < count ? atoi(words[i + 1]) : 0;
        int *value = !strcmp(words[i], "--keys")     ? &log_keys
                     : !strcmp(words[i], "--rounds") ? &rounds
                     : !strcmp(words[i], "--ranks")  ? &most_ranks
                                                     : NULL;
        if (!value || number < 1 || (value == &log_keys && number > 30)) {
            fprintf(stderr,
                    PROGRAM ": \"%s\": expected --keys, --rounds or --ranks, and a number above "
                            "0\n",
                    words[i]);
            exit(2);
        }
        *value = number;
    }
}

} // namespace

int main(int count, char **words)
{
    cudaDeviceProp properties;
    arrays a = {};
    char date[32];
    time_t seconds = time(NULL);
    read_options(count, words);
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        printf(PROGRAM ": skipped, no GPU\n");
        return 77;
    }
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    printf(PROGRAM " %s, %s, %s, 2^%d requests of a rank, %d rounds\n", GA_BENCH_COMMIT, date,
           properties.name, log_keys, rounds);
    open_arrays(a);
    run_alone(a);
    printf("%5s %-7s %8s %8s %8s %8s %8s %8s\n", "ranks", "", "count", "sort", "steps", "shard",
           "rest", "all");
    for (int ranks = 2; ranks <= most_ranks; ranks *= 2) {
        run_ranks(a, ranks);
    }
    return 0;
}
