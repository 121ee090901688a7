/* SPDX-License-Identifier: MIT
 *
 * Kernels on the shards of other processes (gpualloc/slabhash_peers.cuh): two processes, each with
 * a rank, on two devices or on one. Both insert, search and delete keys in both shards, also the
 * same keys at the same time; the owner's calls must find what kernels of the other have done.
 *
 *   slabhash_peers_processes [LOG2 OF KEYS]
 *
 * Exit status 1: something did not hold, which a line names; 77: no GPU.
 */
#include <gpualloc/slabhash_peers.cuh>

#include <gpualloc/slabhash_sharded.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

enum {
    RANKS = 2,
    WORDS = 64,
    PATIENCE = 240, /* seconds, after which a process ends */
    SKIP = 77
};

const char *const fixed_heap = "slab:unit=128,addressing=light,capacity=512M/cuda";

/* Shared by the processes. */
struct world {
    pthread_barrier_t barrier;
    uint64_t words[RANKS][WORDS];
} * ours;

uint32_t rank;
uint64_t keys = UINT64_C(1) << 18;

/* The parent then ends the other process, which waits at the barrier. */
[[noreturn]] void fail(int line, const char *what)
{
    printf("rank %u, line %d: not so: %s (%s)\n", rank, line, what, ga_error_text());
    fflush(stdout);
    _exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail(__LINE__, #condition);                                                            \
        }                                                                                          \
    } while (0)
#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)

void meet()
{
    pthread_barrier_wait(&ours->barrier);
}

/* The sum of all ranks' numbers. */
uint64_t sum_of_all(uint64_t own)
{
    uint64_t sum = 0;
    ours->words[rank][0] = own;
    meet();
    for (const uint64_t *words : ours->words) {
        sum += words[0];
    }
    meet();
    return sum;
}

/* ---- an exchange without messages ------------------------------------------------------------ */

ga_status largest(void *, uint64_t *values, uint32_t count, void *stream)
{
    size_t bytes = count * sizeof *values;
    CHECK(count <= WORDS);
    cudaStream_t on = (cudaStream_t)stream;
    CHECK_CUDA(cudaMemcpyAsync(ours->words[rank], values, bytes, cudaMemcpyDeviceToHost, on));
    CHECK_CUDA(cudaStreamSynchronize(on));
    meet();
    uint64_t found[WORDS] = {};
    for (const uint64_t *words : ours->words) {
        for (uint32_t i = 0; i < count; i++) {
            found[i] = words[i] > found[i] ? words[i] : found[i];
        }
    }
    meet();
    CHECK_CUDA(cudaMemcpyAsync(values, found, bytes, cudaMemcpyHostToDevice, on));
    CHECK_CUDA(cudaStreamSynchronize(on));
    return GA_OK;
}

ga_status wait_for(void *, void *stream)
{
    return cudaStreamSynchronize((cudaStream_t)stream) == cudaSuccess ? GA_OK : GA_ERR_DEVICE;
}

ga_status close_shard(void *shard)
{
    return ga_slabhash_device_close((ga_slabhash_device *)shard);
}

struct opened {
    ga_heap *slabs;
    ga_slabhash_device shard;
    ga_slabhash_sharded *table;
    ga_slabhash_peers peers;
    int device;
};

/* Returns the status of the view; the table is open in any case. */
ga_status open(opened &o, ga_slabhash_mode mode, uint32_t flags, uint32_t buckets,
               const char *slabs)
{
    ga_slabhash_options options = {};
    ga_exchange exchange = {};
    ga_shard of = {};
    CHECK_CUDA(cudaGetDevice(&o.device));
    options.options_size = sizeof options;
    options.mode = mode;
    options.flags = flags;
    options.buckets = buckets;
    options.path = 1;
    options.seed = 4711;
    CHECK(ga_heap_open(&o.slabs, GA_PLACE_KERNEL, o.device, slabs) == GA_OK);
    options.heap = o.slabs;
    CHECK(ga_slabhash_device_open(&o.shard, &options, o.device, 0) == GA_OK);
    exchange.exchange_size = sizeof exchange;
    exchange.rank = rank;
    exchange.ranks = RANKS;
    exchange.device = o.device;
    exchange.largest = largest;
    exchange.wait = wait_for;
    exchange.close = [](void *) {};
    of.shard_size = sizeof of;
    of.table = &o.shard;
    of.mode = mode;
    of.a = o.shard.view.a;
    of.b = o.shard.view.b;
    of.close = close_shard;
    CHECK(ga_slabhash_sharded_open(&o.table, &exchange, &of, NULL) == GA_OK);
    return ga_slabhash_peers_open(&o.peers, o.table, 0);
}

void close(opened &o)
{
    CHECK(ga_slabhash_peers_close(&o.peers) == GA_OK);
    meet();
    CHECK(ga_slabhash_sharded_close(o.table) == GA_OK);
    CHECK(ga_heap_close(o.slabs) == GA_OK);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Odd multiples of a number are different below the width; reserved keys are above. */
__device__ uint64_t key_of(uint64_t i, bool is_wide)
{
    return is_wide ? (i * 0x9e3779b97f4a7c15u) >> 2 : (uint32_t)(i * 2654435761u) >> 2;
}

struct work {
    uint32_t op;
    uint64_t first, count;
    uint64_t value;                   /* of inserts: this, plus the key */
    unsigned long long *results;      /* four numbers */
    unsigned long long *wrong_values; /* of searches */
};

template <uint32_t kind> __global__ void serve(ga_slabhash_peers_view peers, work w)
{
    ga_slabhash_peers_session session = ga_slabhash_peers_begin(peers);
    bool is_wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x; at < w.count;
         at += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t i = at + threadIdx.x;
        uint64_t key = key_of(w.first + i, is_wide);
        ga_slabhash_answer a =
            ga_slabhash_peers_lanes<kind>(&session, i < w.count, w.op, key, key / 2 + w.value);
        if (i < w.count) {
            atomicAdd(w.results + a.result, 1ull);
        }
        if (i < w.count && w.op == GA_SLABHASH_SEARCH && a.result == GA_SLABHASH_FOUND &&
            a.value != key / 2 + w.value) {
            atomicAdd(w.wrong_values, 1ull);
        }
    }
    ga_slabhash_peers_end(&session);
}

struct tally {
    unsigned long long results[4], wrong_values;
};

/* Counts of the results on this rank. */
template <uint32_t kind>
tally run(const opened &o, uint32_t op, uint64_t first, uint64_t count, uint64_t value)
{
    static unsigned long long *at;
    tally found;
    if (!at) {
        CHECK_CUDA(cudaMalloc(&at, sizeof found));
    }
    CHECK_CUDA(cudaMemset(at, 0, sizeof found));
    serve<kind><<<200, 128>>>(o.peers.view, work{op, first, count, value, at, at + 4});
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(&found, at, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

uint64_t live_pairs(opened &o)
{
    ga_slabhash_census census = {};
    CHECK(ga_slabhash_device_count(&o.shard, &census, 0) == GA_OK);
    return census.live;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Each rank inserts keys of its own, into both shards, and finds those of both. */
template <uint32_t kind> void own_keys(opened &o)
{
    tally t = run<kind>(o, GA_SLABHASH_INSERT, rank * keys, keys, 5);
    CHECK(t.results[GA_SLABHASH_ABSENT] == keys);
    meet();
    t = run<kind>(o, GA_SLABHASH_SEARCH, 0, RANKS * keys, 5);
    CHECK(t.results[GA_SLABHASH_FOUND] == RANKS * keys && t.wrong_values == 0);
    t = run<kind>(o, GA_SLABHASH_SEARCH, RANKS * keys, keys, 5);
    CHECK(t.results[GA_SLABHASH_ABSENT] == keys);
    uint64_t here = live_pairs(o);
    CHECK(here > keys / 2 && here < 3 * keys / 2); /* a shard has half of the keys */
    CHECK(sum_of_all(here) == RANKS * keys);
    t = run<kind>(o, GA_SLABHASH_DELETE, (RANKS - 1 - rank) * keys, keys, 0); /* of the other one */
    CHECK(t.results[GA_SLABHASH_FOUND] == keys);
    meet();
    CHECK(live_pairs(o) == 0);
    meet();
}

/* Both ranks insert the same keys at the same time, and delete them: one of them, each. */
template <uint32_t kind> void same_keys(opened &o)
{
    for (int round = 0; round < 4; round++) {
        meet();
        tally t = run<kind>(o, GA_SLABHASH_INSERT, 0, keys, 9);
        CHECK(t.results[GA_SLABHASH_ABSENT] + t.results[GA_SLABHASH_FOUND] == keys);
        CHECK(sum_of_all(t.results[GA_SLABHASH_ABSENT]) == keys);
        t = run<kind>(o, GA_SLABHASH_SEARCH, 0, keys, 9);
        CHECK(t.results[GA_SLABHASH_FOUND] == keys && t.wrong_values == 0);
        meet();
        t = run<kind>(o, GA_SLABHASH_DELETE, 0, keys, 0);
        CHECK(sum_of_all(t.results[GA_SLABHASH_FOUND]) == keys);
        CHECK(live_pairs(o) == 0);
    }
}

/* A shard that is cleared has its place; its heap's slabs are all free again. */
template <uint32_t kind> void cleared(opened &o)
{
    tally t = run<kind>(o, GA_SLABHASH_INSERT, rank * keys, keys, 5);
    CHECK(t.results[GA_SLABHASH_ABSENT] == keys);
    meet();
    uint64_t lost = sum_of_all(rank == 0 ? live_pairs(o) : 0);
    CHECK(rank != 0 || ga_slabhash_device_clear(&o.shard, 0) == GA_OK);
    CHECK(ga_slabhash_peers_refresh(&o.peers, 0) == GA_OK);
    t = run<kind>(o, GA_SLABHASH_SEARCH, 0, RANKS * keys, 5);
    CHECK(t.results[GA_SLABHASH_ABSENT] == lost && t.wrong_values == 0);
    CHECK(t.results[GA_SLABHASH_FOUND] == RANKS * keys - lost);
    meet();
    t = run<kind>(o, GA_SLABHASH_INSERT, rank * keys, keys, 5);
    CHECK(sum_of_all(t.results[GA_SLABHASH_ABSENT]) == lost);
    meet();
}

template <uint32_t kind> void one_table(ga_slabhash_mode mode, const char *name)
{
    opened o = {};
    CHECK(open(o, mode, 0, (uint32_t)(keys / 40), fixed_heap) == GA_OK); /* chains of slabs */
    CHECK(o.peers.view.may_change);
    own_keys<kind>(o);
    same_keys<kind>(o);
    cleared<kind>(o);
    close(o);
    printf("rank %u: %s passed\n", rank, name);
}

/* Tables that cannot be shared; every rank learns it, and the tables stay usable. */
void refused(uint32_t flags, const char *slabs, const char *sentence)
{
    opened o = {};
    CHECK(open(o, GA_SLABHASH_MAP32, flags, 1000, slabs) == GA_ERR_UNSUPPORTED);
    CHECK(strstr(ga_error_text(), sentence));
    CHECK(live_pairs(o) == 0);
    close(o);
    printf("rank %u: %s was refused\n", rank, slabs);
}

int run_rank()
{
    int devices = 0;
    alarm(PATIENCE);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        return SKIP;
    }
    CHECK_CUDA(cudaSetDevice((int)rank % devices));
    refused(0, "slab:unit=128/vmm", "expected slabs from a heap that does not grow");
    refused(0, "slab:unit=128,addressing=light,capacity=64M/vmm",
            "expected slabs from a heap over cuda");
    refused(GA_SLABHASH_GROW, fixed_heap, "shards that grow");
    one_table<GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false)>(GA_SLABHASH_MAP32, "a map of 32 bits");
    one_table<GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false)>(GA_SLABHASH_MAP64, "a map of 64 bits");
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    pthread_barrierattr_t shared;
    pid_t children[RANKS];
    int worst = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    keys = argc > 1 ? UINT64_C(1) << atoi(argv[1]) : keys;
    ours = (world *)mmap(NULL, sizeof *ours, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                         0);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&ours->barrier, &shared, RANKS);
    for (rank = 0; rank < RANKS; rank++) {
        children[rank] = fork(); /* before CUDA starts */
        if (children[rank] == 0) {
            _exit(run_rank());
        }
    }
    for (int i = 0; i < RANKS; i++) {
        int status = 0;
        pid_t ended = wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        worst = worst == 1 || code == 1 ? 1 : code;
        for (pid_t &child : children) {
            child = child == ended ? 0 : child;
            if (code != 0 && code != SKIP && child > 0) {
                kill(child, SIGKILL);
            }
        }
    }
    return worst;
}
