/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys of a multimap over all GPUs of this host (gpualloc/slabhash_nccl.cuh), up to
 * eight: searches with enough room and too little, a key with more values than are exchanged at
 * once, deletes, and the pairs of each shard. Prints rates.
 *
 *   slabhash_sharded_all [LOG2 OF KEYS]
 *
 * Exit status 1: something did not hold, which a line names; 77: no GPU, or no NCCL.
 */
#define GA_SLABHASH_ONLY_KIND 5u /* multimaps of 32 bits */
#include <gpualloc/slabhash_nccl.cuh>

#include <chrono>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <vector>

namespace
{

enum {
    RANKS = 8,
    EACH = 16, /* numbers of values that a key has for its own; fewer are used */
    SKIP = 77
};

const uint32_t hot = 0xfffffff0u; /* a key with `hot_values` values, of numbers below that */
const uint64_t hot_values = 100000;

int ranks, log_keys = 20;
pthread_barrier_t barrier;

void fail(int rank, int line, const char *what)
{
    printf("rank %d, line %d: not so: %s (%s)\n", rank, line, what, ga_error_text());
    exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail(rank, __LINE__, #condition);                                                      \
        }                                                                                          \
    } while (0)

double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* ---- the pairs ------------------------------------------------------------------------------- */

/* Of keys below 2^28. */
__host__ __device__ uint32_t pairs_of(uint32_t key)
{
    uint32_t kind = (key * 2654435761u) >> 28;
    return kind < 4u ? 0u : kind == 15u ? 9u : kind % 4u;
}

/* Keys of a rank: `first` and following ones, each EACH times, or fewer. A slot without a pair has
 * a reserved key, which is refused. */
__global__ void make_pairs(uint32_t *keys, uint32_t *values, uint32_t first, uint64_t slots)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < slots;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t key = first + (uint32_t)(i / EACH);
        keys[i] = i % EACH < pairs_of(key) ? key : 0xffffffffu;
        values[i] = key * EACH + (uint32_t)(i % EACH);
    }
}

__global__ void make_hot(uint32_t *keys, uint32_t *values, uint32_t first, uint64_t count)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        keys[i] = hot;
        values[i] = first + (uint32_t)i;
    }
}

/* Requests: each key below `different` several times, in an order without pattern. */
__global__ void make_requests(uint32_t *keys, uint64_t count, uint32_t different, uint32_t salt)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        keys[i] = (uint32_t)(((i + salt) * 0x9e3779b97f4a7c15u) >> 20) % different;
    }
}

/* Each request has its count and, as far as they are stored, values of its own, each once. */
__global__ void compare(const uint32_t *keys, uint64_t count, const uint64_t *counts,
                        const uint64_t *firsts, const uint64_t *values, uint64_t room,
                        unsigned long long *wrong, unsigned long long *pairs)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t seen = 0;
        bool good = counts[i] == pairs_of(keys[i]);
        for (uint64_t at = firsts[i]; good && at < firsts[i] + counts[i] && at < room; at++) {
            good = values[at] / EACH == keys[i] && !(seen >> values[at] % EACH & 1u) &&
                   values[at] % EACH < counts[i];
            seen |= 1u << values[at] % EACH;
        }
        atomicAdd(pairs, (unsigned long long)pairs_of(keys[i]));
        if (!good) {
            atomicAdd(wrong, 1ull);
        }
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

template <typename T> T *device_array(uint64_t count)
{
    void *at = NULL;
    if (cudaMalloc(&at, count * sizeof(T)) != cudaSuccess) {
        printf("no memory for %llu elements\n", (unsigned long long)count);
        exit(1);
    }
    return (T *)at;
}

struct rank_state {
    int rank;
    cudaStream_t stream;
    ga_slabhash_sharded *table;
    uint32_t *keys;
    uint64_t count, *counts, *firsts, *values, value_room;
    unsigned long long *wrong; /* and pairs asked for */
};

void insert(rank_state &r, uint32_t *keys, uint32_t *values, uint64_t count)
{
    int rank = r.rank;
    ga_slabhash_batch batch = {};
    batch.count = count;
    batch.keys = keys;
    batch.values = values;
    batch.op = GA_SLABHASH_INSERT;
    CHECK(ga_slabhash_sharded_run(r.table, &batch, NULL, r.stream) == GA_OK);
}

void fill(rank_state &r)
{
    uint64_t own = UINT64_C(1) << log_keys, slots = own * EACH;
    uint32_t *keys = device_array<uint32_t>(slots), *values = device_array<uint32_t>(slots);
    make_pairs<<<1024, 256, 0, r.stream>>>(keys, values, (uint32_t)(own * (uint64_t)r.rank), slots);
    insert(r, keys, values, slots);
    uint64_t part = hot_values / (uint64_t)ranks;
    make_hot<<<1024, 256, 0, r.stream>>>(keys, values, (uint32_t)(part * (uint64_t)r.rank), part);
    insert(r, keys, values, part);
    cudaFree(keys);
    cudaFree(values);
}

void search(rank_state &r, uint64_t room, bool prints)
{
    int rank = r.rank;
    uint64_t total = 0;
    unsigned long long wrong[2] = {0, 0};
    ga_slabhash_all all = {r.count, r.keys, r.counts, r.firsts, r.values, room};
    ga_sharded_report report;
    CHECK(cudaMemsetAsync(r.wrong, 0, sizeof wrong, r.stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(r.values, 0xff, r.value_room * sizeof *r.values, r.stream) ==
          cudaSuccess);
    cudaStreamSynchronize(r.stream);
    pthread_barrier_wait(&barrier);
    double start = now();
    CHECK(ga_slabhash_sharded_search_all(r.table, &all, &total, r.stream) == GA_OK);
    double seconds = now() - start;
    ga_slabhash_sharded_report(r.table, &report);
    compare<<<1024, 256, 0, r.stream>>>(r.keys, r.count, r.counts, r.firsts, r.values, room,
                                        r.wrong, r.wrong + 1);
    CHECK(cudaMemcpy(wrong, r.wrong, sizeof wrong, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(wrong[0] == 0);
    CHECK(total == wrong[1]);
    if (room < total) {
        uint64_t behind = 0;
        CHECK(cudaMemcpy(&behind, r.values + room, sizeof behind, cudaMemcpyDeviceToHost) ==
              cudaSuccess);
        CHECK(behind == UINT64_MAX);
    }
    if (prints && rank == 0) {
        printf("%llu keys a rank, room=%llu: %llu pairs, %.3f ms, %.0f M keys/s of all ranks, "
               "%u pieces, %u steps\n",
               (unsigned long long)r.count, (unsigned long long)room, (unsigned long long)total,
               seconds * 1e3, (double)(r.count * (uint64_t)ranks) / seconds / 1e6, report.pieces,
               report.steps);
        fflush(stdout);
    }
}

/* All ranks ask for the key with many values; one has room for half of them. */
void search_hot(rank_state &r)
{
    int rank = r.rank;
    uint64_t total = 0, count = 0, first = 0;
    uint64_t pairs = hot_values / (uint64_t)ranks * (uint64_t)ranks;
    uint64_t room = rank ? pairs : pairs / 2;
    ga_slabhash_all all = {1, r.keys, r.counts, r.firsts, r.values, room};
    CHECK(cudaMemcpy(r.keys, &hot, sizeof hot, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(ga_slabhash_sharded_search_all(r.table, &all, &total, r.stream) == GA_OK);
    CHECK(cudaMemcpy(&count, r.counts, sizeof count, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(cudaMemcpy(&first, r.firsts, sizeof first, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(total == pairs);
    CHECK(count == pairs);
    CHECK(first == 0);
    std::vector<uint64_t> values(room);
    std::vector<bool> seen(pairs);
    CHECK(cudaMemcpy(values.data(), r.values, room * sizeof(uint64_t), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    for (uint64_t value : values) {
        CHECK(value < pairs);
        CHECK(!seen[value]);
        seen[value] = true;
    }
    if (rank == 0) {
        printf("a key with %llu values\n", (unsigned long long)pairs);
    }
}

void delete_all(rank_state &r)
{
    static uint64_t totals[RANKS];
    int rank = r.rank;
    uint64_t before = 0, after = 0, sum = 0, own = 0;
    ga_slabhash_all all = {r.count, r.keys, r.counts, NULL, NULL, 0};
    CHECK(ga_slabhash_sharded_size(r.table, &before, r.stream) == GA_OK);
    CHECK(ga_slabhash_sharded_delete_all(r.table, &all, &totals[rank], r.stream) == GA_OK);
    CHECK(ga_slabhash_sharded_size(r.table, &after, r.stream) == GA_OK);
    for (int i = 0; i < ranks; i++) {
        sum += totals[i];
    }
    CHECK(sum > 0 && before - after == sum);
    CHECK(ga_slabhash_sharded_delete_all(r.table, &all, &own, r.stream) == GA_OK);
    CHECK(own == 0);
    CHECK(ga_slabhash_sharded_retrieve(r.table, NULL, NULL, 0, &totals[rank], r.stream) == GA_OK);
    pthread_barrier_wait(&barrier);
    sum = 0;
    for (int i = 0; i < ranks; i++) {
        sum += totals[i];
    }
    CHECK(sum == after);
    if (rank == 0) {
        printf("%llu pairs deleted, %llu are left\n", (unsigned long long)(before - after),
               (unsigned long long)after);
    }
}

void work(int rank, void *comm, uint32_t flags)
{
    rank_state r = {};
    ga_slabhash_options options = {};
    ga_sharded_options sharded = {};
    r.rank = rank;
    r.count = (UINT64_C(1) << log_keys) + 1000 * (uint64_t)rank;
    r.value_room = 4 * r.count > hot_values ? 4 * r.count : hot_values;
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaStreamCreate(&r.stream) == cudaSuccess);
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.flags = GA_SLABHASH_MULTI | flags;
    options.buckets = (uint32_t)(((UINT64_C(1) << log_keys) * (uint64_t)ranks) / 6 + 1);
    sharded.options_size = sizeof sharded;
    sharded.piece = (UINT64_C(1) << log_keys) / 4 * 3; /* two pieces */
    CHECK(ga_slabhash_nccl_open(&r.table, &options, comm, r.stream, NULL, &sharded) == GA_OK);
    r.keys = device_array<uint32_t>(r.count);
    r.counts = device_array<uint64_t>(r.count);
    r.firsts = device_array<uint64_t>(r.count);
    r.values = device_array<uint64_t>(r.value_room);
    r.wrong = device_array<unsigned long long>(2);
    fill(r);
    make_requests<<<1024, 256, 0, r.stream>>>(r.keys, r.count, (uint32_t)ranks << log_keys,
                                              (uint32_t)rank * 77u);
    for (int round = 0; round < 3; round++) {
        search(r, r.value_room, true);
    }
    search(r, 0, true);
    search(r, r.count / 3 + 5, true);
    delete_all(r);
    search_hot(r);
    CHECK(ga_slabhash_sharded_close(r.table) == GA_OK);
    cudaFree(r.keys);
    cudaFree(r.counts);
    cudaFree(r.firsts);
    cudaFree(r.values);
    cudaFree(r.wrong);
}

} // namespace

int main(int argc, char **argv)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(void **, int, const int *) = NULL;
    void *comms[RANKS];
    std::vector<std::thread> threads;
    log_keys = argc > 1 ? atoi(argv[1]) : log_keys;
    if (!library || cudaGetDeviceCount(&ranks) != cudaSuccess || !ranks) {
        printf("skipped: %s\n", library ? "no GPU" : dlerror());
        return SKIP;
    }
    ranks = ranks < RANKS ? ranks : RANKS;
    *(void **)&init = dlsym(library, "ncclCommInitAll");
    if (!init || init(comms, ranks, NULL) != 0) {
        printf("ncclCommInitAll failed\n");
        return 1;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)ranks);
    printf("%d ranks\n", ranks);
    for (uint32_t flags : {0u, (uint32_t)GA_SLABHASH_GROW}) {
        printf("%s\n", flags ? "a table that grows" : "a table of fixed size");
        for (int rank = 0; rank < ranks; rank++) {
            threads.emplace_back(work, rank, comms[rank], flags);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        threads.clear();
    }
    return 0;
}
