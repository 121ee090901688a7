/* SPDX-License-Identifier: MIT
 *
 * A table over the GPUs of several processes, of one host or of several: each process inserts keys
 * of its own, and searches those of the next one. README.md has the command lines.
 *
 *     nvcc -std=c++17 -arch=sm_90 table.cu -o table $(pkg-config --cflags --libs gpualloc)
 *     table FILE [LOG2_KEYS [BATCHES [TIME_LIMIT_MS]]]
 *     table --rank                                       prints the rank, and ends
 *
 * FILE is one that all ranks see, and that does not exist yet: NCCL's id is passed in it. LOG2_KEYS
 * are those of a rank in a batch. Exit status 1: an error, or a wrong answer; 3: another rank is
 * gone, and the shard of this one was read once more; 77: no GPU.
 */
#define GA_SLABHASH_ONLY_KIND 1u /* maps of 32-bit keys */
#include <gpualloc/slabhash_nccl.cuh>

#include "launch.hpp"

#include <chrono>
#include <cstring>
#include <dlfcn.h>

/* ---- NCCL ------------------------------------------------------------------------------------ */

struct nccl_id { /* ncclUniqueId */
    char bytes[128];
};

static struct {
    int (*get_id)(nccl_id *id);
    int (*init)(void **comm, int ranks, nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
} nccl;

/* At run time, because not all machines that compile this have NCCL. */
static void load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        complain("NCCL", dlerror());
    }
    *(void **)&nccl.get_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.init = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.abort = dlsym(library, "ncclCommAbort");
}

/* The communicator of all processes. */
static void *join(const launched &who, const char *file)
{
    nccl_id id;
    void *comm = NULL;
    if (who.rank == 0) {
        int error = nccl.get_id(&id);
        if (error) {
            complain("ncclGetUniqueId", "an error: NCCL_DEBUG=WARN tells more");
        }
        launch_publish(file, &id, sizeof id);
    } else {
        launch_fetch(file, &id, sizeof id);
    }
    if (nccl.init(&comm, (int)who.ranks, id, (int)who.rank)) {
        complain("ncclCommInitRank", "an error: NCCL_DEBUG=WARN tells more");
    }
    if (who.rank == 0) {
        unlink(file); /* all ranks have read it */
    }
    return comm;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A distinct key for each index below 2^31, and not a reserved one, which are above. */
__host__ __device__ static uint32_t key_of(uint64_t index)
{
    return (uint32_t)index * 2654435761u & 0x7fffffffu;
}

__device__ static uint32_t value_of(uint32_t key)
{
    return ~key; /* not 0, which is found if there is no such key */
}

__global__ static void make_pairs(uint32_t *keys, uint32_t *values, uint64_t first, uint64_t count)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        keys[i] = key_of(first + i);
        values[i] = value_of(keys[i]);
    }
}

/* tally[0]: right values; tally[1]: wrong ones. Absent keys are neither. */
__global__ static void compare(const uint32_t *keys, const uint32_t *found, uint64_t count,
                               unsigned long long *tally)
{
    unsigned long long right = 0, wrong = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        right += found[i] == value_of(keys[i]);
        wrong += found[i] && found[i] != value_of(keys[i]);
    }
    atomicAdd(tally, right);
    atomicAdd(tally + 1, wrong);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct task {
    launched who;
    uint64_t count; /* keys of a rank in a batch */
    long batches;
    cudaStream_t stream;
    ga_slabhash_sharded *table;
    uint32_t *keys, *values, *found; /* on the device */
    unsigned long long *tally;       /* likewise */
};

static void need(cudaError_t error)
{
    if (error != cudaSuccess) {
        complain("CUDA", cudaGetErrorString(error));
    }
}

/* The keys that a rank inserts with a batch. */
static uint64_t first_of(const task &t, long batch, long rank)
{
    return ((uint64_t)batch * (uint64_t)t.who.ranks + (uint64_t)rank) * t.count;
}

static void take_keys(const task &t, uint64_t first)
{
    make_pairs<<<1024, 256, 0, t.stream>>>(t.keys, t.values, first, t.count);
    need(cudaGetLastError());
}

static ga_slabhash_batch batch_of(const task &t, ga_slabhash_op op)
{
    ga_slabhash_batch batch = {};
    batch.count = t.count;
    batch.keys = t.keys;
    batch.values = op == GA_SLABHASH_INSERT ? t.values : NULL;
    batch.found = op == GA_SLABHASH_SEARCH ? t.found : NULL;
    batch.op = op;
    return batch;
}

static void expect(const task &t, uint64_t right)
{
    unsigned long long tally[2];
    need(cudaMemsetAsync(t.tally, 0, sizeof tally, t.stream));
    compare<<<1024, 256, 0, t.stream>>>(t.keys, t.found, t.count, t.tally);
    need(cudaMemcpyAsync(tally, t.tally, sizeof tally, cudaMemcpyDeviceToHost, t.stream));
    need(cudaStreamSynchronize(t.stream));
    if (tally[0] != right || tally[1]) {
        fprintf(stderr, "table: rank %ld: %llu right values, %llu wrong: expected %llu and 0\n",
                t.who.rank, tally[0], tally[1], (unsigned long long)right);
        exit(1);
    }
}

static double now(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* A batch of all ranks. */
static ga_status run_batch(const task &t, long number)
{
    ga_slabhash_batch batch = batch_of(t, GA_SLABHASH_INSERT);
    take_keys(t, first_of(t, number, t.who.rank));
    need(cudaStreamSynchronize(t.stream));
    double start = now();
    ga_status status = ga_slabhash_sharded_run(t.table, &batch, NULL, t.stream);
    double middle = now();
    take_keys(t, first_of(t, number, (t.who.rank + 1) % t.who.ranks));
    batch = batch_of(t, GA_SLABHASH_SEARCH);
    status = status ? status : ga_slabhash_sharded_run(t.table, &batch, NULL, t.stream);
    double end = now();
    if (status == GA_OK) {
        expect(t, t.count);
        printf("rank %ld: batch %ld of %llu keys: inserted in %.1f ms, found in %.1f ms\n",
               t.who.rank, number, (unsigned long long)t.count, (middle - start) * 1e3,
               (end - middle) * 1e3);
    } else {
        printf("rank %ld: batch %ld: status %d after %.0f ms: %s\n", t.who.rank, number,
               (int)status, (now() - start) * 1e3, ga_error_text());
    }
    fflush(stdout);
    return status;
}

/* After a rank is gone: those keys of the first batch that this rank owns are in its shard. */
static void read_shard(const task &t)
{
    uint64_t first = first_of(t, 0, t.who.rank), owned = 0;
    ga_slabhash_batch batch = batch_of(t, GA_SLABHASH_SEARCH);
    for (uint64_t i = 0; i < t.count; i++) {
        owned += ga_slabhash_sharded_owner(t.table, key_of(first + i)) == (uint32_t)t.who.rank;
    }
    take_keys(t, first);
    if (ga_slabhash_device_run(ga_slabhash_nccl_table(t.table), &batch, NULL, t.stream) != GA_OK) {
        complain("the shard", ga_error_text());
    }
    expect(t, owned);
    printf("rank %ld: its shard can be read: %llu keys of the first batch\n", t.who.rank,
           (unsigned long long)owned);
}

static void open_table(task &t, void *comm, long time_limit_ms)
{
    uint64_t keys = t.count * (uint64_t)t.who.ranks * (uint64_t)t.batches;
    ga_slabhash_options options = {};
    ga_nccl_options limit = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.buckets = (uint32_t)(keys / 9 + 1); /* 60 % of the 15 slots of a bucket */
    options.path = 16;
    limit.options_size = sizeof limit;
    limit.time_limit_ms = (uint32_t)time_limit_ms;
    need(cudaStreamCreate(&t.stream));
    need(cudaMalloc(&t.keys, t.count * sizeof *t.keys));
    need(cudaMalloc(&t.values, t.count * sizeof *t.values));
    need(cudaMalloc(&t.found, t.count * sizeof *t.found));
    need(cudaMalloc(&t.tally, 2 * sizeof *t.tally));
    if (ga_slabhash_nccl_open(&t.table, &options, comm, t.stream, &limit) != GA_OK) {
        complain("ga_slabhash_nccl_open()", ga_error_text());
    }
}

static long argument(int count, char **words, int at, long most, long otherwise)
{
    long number = count > at ? atol(words[at]) : otherwise;
    if (number < 1 || number > most) {
        std::string why = "expected a number from 1 to " + std::to_string(most);
        complain(words[at], why.c_str());
    }
    return number;
}

int main(int count, char **words)
{
    task t = {};
    int devices = 0;
    ga_status status = GA_OK;
    if (count < 2) {
        fprintf(stderr, "usage: table FILE [LOG2_KEYS [BATCHES [TIME_LIMIT_MS]]]\n");
        return 2;
    }
    t.who = launch_find();
    if (!strcmp(words[1], "--rank")) {
        printf("rank %ld of %ld, local %ld\n", t.who.rank, t.who.ranks, t.who.local);
        return 0;
    }
    t.count = 1ull << argument(count, words, 2, 28, 20);
    t.batches = argument(count, words, 3, 1 << 20, 4);
    long limit = argument(count, words, 4, 1 << 30, 60000);
    if (t.count * (uint64_t)t.who.ranks * (uint64_t)t.batches > 1ull << 31) {
        complain("keys of all batches and ranks", "expected at most 2^31");
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        fprintf(stderr, "table: no GPU\n");
        return 77;
    }
    need(cudaSetDevice((int)(t.who.local % devices)));
    load_nccl();
    void *comm = join(t.who, words[1]);
    open_table(t, comm, limit);
    for (long batch = 0; status == GA_OK && batch < t.batches; batch++) {
        status = run_batch(t, batch);
    }
    if (status == GA_ERR_DEVICE) {
        read_shard(t);
    }
    if (ga_slabhash_sharded_close(t.table) != GA_OK) {
        complain("ga_slabhash_sharded_close()", ga_error_text());
    }
    (status == GA_OK ? nccl.destroy : nccl.abort)(comm);
    return status == GA_OK ? 0 : status == GA_ERR_DEVICE ? 3 : 1;
}
