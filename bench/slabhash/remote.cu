/* SPDX-License-Identifier: MIT
 *
 * Operations of kernels on the shards of other GPUs of one host (gpualloc/slabhash_peers.cuh),
 * beside random reads of the same memory, which are the limit, in the same run. Every result is
 * checked: a wrong one is exit status 1. Prints GPUs, driver and date.
 *
 *   bench-slabhash-remote [--keys LOG2] [--rounds N] [--ranks N] [--fill PERCENT] [--nccl FILE]
 *
 * A thread for each GPU; all work at the same time, and once more only the first. `remote` keys are
 * of other GPUs, `local` ones of the own one, `mixed` ones of all; no table has `absent` ones. NCCL
 * is libnccl.so.2, or FILE.
 */
#define PROGRAM               "bench-slabhash-remote"
#define GA_SLABHASH_ONLY_KIND 1u
#include <gpualloc/slabhash_peers.cuh>

#include "sharded_ranks.cuh"

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace
{

int rounds = 5, ranks_wanted = 0, log_keys = 26, fill = 60;

/* ---- keys ------------------------------------------------------------------------------------ */

enum {
    LOCAL,
    REMOTE,
    MIXED,
    ABSENT,
    SETS
};

const char *const set_names[SETS] = {"local", "remote", "mixed", "absent and remote"};

/* Distinct keys below 2^32 - 2 for indices below 2^31: odd multiples modulo 2^32, without the
 * reserved ones. */
__device__ uint32_t key_of(uint64_t index)
{
    uint32_t key = (uint32_t)index * 2654435761u;
    return key >= 0xfffffffeu ? key - 0x10u : key;
}

__device__ uint32_t value_of(uint32_t key, uint32_t round)
{
    return key * 7u + round;
}

/* The keys of indices from `first` on that are of this rank, of others, or of any. */
__global__ void make_keys(const __grid_constant__ ga_slabhash_peers_view peers, int set,
                          uint64_t first, uint64_t count, uint32_t *keys, uint64_t room,
                          unsigned long long *made)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t key = key_of(first + i);
        bool is_own = ga_slabhash_peers_owner(peers, key) == peers.rank;
        if (set == MIXED || is_own == (set == LOCAL)) {
            unsigned long long at = atomicAdd(made, 1ull);
            if (at < room) {
                keys[at] = key;
            }
        }
    }
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* Random reads of the buckets of other ranks: `lanes` of a warp read 16 bytes each of one slab or
 * part of it, and `at_once` such reads are in flight. */
template <uint32_t lanes, uint32_t at_once>
__global__ void read_slabs(const __grid_constant__ ga_slabhash_peers_view peers, uint64_t reads,
                           uint32_t *sums)
{
    uint32_t ranks = peers.division.ranks;
    uint64_t group = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / lanes;
    uint32_t lane = threadIdx.x % lanes, sum = 0;
    for (uint64_t i = group; i < reads / at_once; i += groups) {
        uint32_t words[at_once][4];
#pragma unroll
        for (uint32_t j = 0; j < at_once; j++) {
            uint32_t random = ga_bits_mix((uint32_t)(i * at_once + j) * 0x9e3779b1u + 1u);
            uint32_t other = (peers.rank + 1u + (ranks > 1u ? random % (ranks - 1u) : 0)) % ranks;
            const uint32_t *rows = peers.shards[other].rows;
            uint64_t slab = (uint64_t)random * peers.shards[other].buckets >> 32;
            uint32_t part = lanes < 8u ? random % 4u * 8u : 0;
            asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[j][0]), "=r"(words[j][1]), "=r"(words[j][2]),
                           "=r"(words[j][3])
                         : "l"(rows + slab * GA_SLABHASH_WORDS + part + lane * 4u));
        }
#pragma unroll
        for (uint32_t j = 0; j < at_once; j++) {
            sum ^= words[j][0] + words[j][1] + words[j][2] + words[j][3];
        }
    }
    if (sum == 0x12345678u) { /* so that the reads are not dropped */
        sums[0] = sum;
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

struct work {
    ga_slabhash_peers_view peers;
    const uint32_t *keys;
    uint64_t count; /* a multiple of 32 */
    uint32_t round; /* of the values that are put, or expected */
    uint32_t expected;
    unsigned long long *wrong;
};

template <uint32_t op>
__global__ void __launch_bounds__(128) operate(const __grid_constant__ work w)
{
    ga_slabhash_peers_session session = ga_slabhash_peers_begin(w.peers);
    uint32_t wrong = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < w.count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t key = w.keys[i];
        ga_slabhash_answer a = ga_slabhash_peers_lanes<GA_SLABHASH_ONLY_KIND, op, true>(
            &session, true, op, key, value_of(key, w.round));
        bool right = a.result == w.expected &&
                     (op != GA_SLABHASH_SEARCH || w.expected != GA_SLABHASH_FOUND ||
                      a.value == value_of(key, w.round));
        wrong += right ? 0 : 1u;
    }
    if (wrong) {
        atomicAdd(w.wrong, (unsigned long long)wrong);
    }
    ga_slabhash_peers_end(&session);
}

/* Searches of own keys on one table, without the view of all shards. */
__global__ void __launch_bounds__(128)
    search_own(const __grid_constant__ ga_slabhash_view table, const __grid_constant__ work w)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t wrong = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < w.count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t key = w.keys[i];
        ga_slabhash_answer a = ga_slabhash_lanes<GA_SLABHASH_ONLY_KIND, GA_SLABHASH_SEARCH, true>(
            &session, true, GA_SLABHASH_SEARCH, key, 0);
        wrong += a.result == w.expected && a.value == value_of(key, w.round) ? 0 : 1u;
    }
    if (wrong) {
        atomicAdd(w.wrong, (unsigned long long)wrong);
    }
    ga_slabhash_session_end(&session);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

struct rank {
    int device;
    uint32_t number;
    void *comm;
    cudaStream_t stream;
    ga_slabhash_sharded *table;
    ga_slabhash_peers peers;
    uint32_t *keys[SETS], *found;
    uint64_t counts[SETS];
    unsigned long long *wrong; /* in memory of the host */
    int processors;
};

pthread_barrier_t meeting;

void meet()
{
    pthread_barrier_wait(&meeting);
}

/* Of each measurement: seconds of a round, and operations of all ranks. */
struct figure {
    std::vector<double> times;
    uint64_t operations;
};

std::vector<std::string> order; /* of the figures, as rank 0 takes them */
std::map<std::string, figure> figures;
uint64_t total; /* of the measurement in progress; rank 0 resets it */
pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* Runs `launch` on all ranks, or on the first alone, from the first start to the last end. */
template <typename L>
void measure(rank &r, const std::string &name, bool keep, bool alone, uint64_t operations, L launch)
{
    bool takes_part = !alone || r.number == 0;
    check(cudaStreamSynchronize(r.stream), "earlier work");
    pthread_mutex_lock(&adding);
    total += takes_part ? operations : 0;
    pthread_mutex_unlock(&adding);
    meet();
    double start = now();
    if (takes_part) {
        launch();
        check(cudaGetLastError(), name.c_str());
        check(cudaStreamSynchronize(r.stream), name.c_str());
    }
    meet();
    double time = now() - start;
    if (r.number == 0) {
        if (!figures.count(name)) {
            order.push_back(name);
        }
        figure &f = figures[name];
        f.operations = total;
        total = 0;
        if (keep) {
            f.times.push_back(time);
        }
    }
    if (*r.wrong) {
        fprintf(stderr, PROGRAM ": %s: %llu of %llu answers are wrong\n", name.c_str(), *r.wrong,
                (unsigned long long)operations);
        exit(1);
    }
    meet();
}

template <typename K> int blocks_of(const rank &r, K kernel)
{
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 0), "occupancy");
    return blocks * r.processors;
}

template <uint32_t lanes, uint32_t at_once>
void measure_reads(rank &r, const char *what, bool keep, bool alone)
{
    uint64_t reads = UINT64_C(1) << (log_keys < 27 ? log_keys : 27);
    auto kernel = read_slabs<lanes, at_once>;
    int blocks = blocks_of(r, kernel);
    std::string name = std::string(what) + ", " + std::to_string(at_once) + " a group" +
                       (alone ? ", first GPU only" : "");
    measure(r, name, keep, alone, reads, [&] {
        kernel<<<blocks, 128, 0, r.stream>>>(r.peers.view, reads, (uint32_t *)r.found);
    });
}

work work_of(const rank &r, int set, uint32_t round, uint32_t expected)
{
    work w = {};
    w.peers = r.peers.view;
    w.keys = r.keys[set];
    w.count = r.counts[set];
    w.round = round;
    w.expected = expected;
    w.wrong = r.wrong;
    return w;
}

template <uint32_t op>
void measure_operation(rank &r, const char *what, int set, uint32_t round, uint32_t expected,
                       bool keep, bool alone = false)
{
    work w = work_of(r, set, round, expected);
    int blocks = blocks_of(r, operate<op>);
    std::string name =
        std::string(what) + ", " + set_names[set] + (alone ? ", first GPU only" : "");
    measure(r, name, keep, alone, w.count, [&] { operate<op><<<blocks, 128, 0, r.stream>>>(w); });
}

void measure_own(rank &r, uint32_t round, bool keep)
{
    work w = work_of(r, LOCAL, round, GA_SLABHASH_FOUND);
    int blocks = blocks_of(r, search_own);
    ga_slabhash_view table = ga_slabhash_nccl_table(r.table)->view;
    measure(r, "searches, own table alone", keep, false, w.count,
            [&] { search_own<<<blocks, 128, 0, r.stream>>>(table, w); });
}

/* The collective batch of the same keys. */
void measure_batch(rank &r, bool keep)
{
    ga_slabhash_batch batch = {};
    batch.count = r.counts[MIXED];
    batch.keys = r.keys[MIXED];
    batch.found = r.found;
    batch.op = GA_SLABHASH_SEARCH;
    measure(r, "searches, a sharded batch", keep, false, batch.count, [&] {
        must(ga_slabhash_sharded_run(r.table, &batch, NULL, r.stream) == GA_OK, "batch");
    });
}

/* How the views serve searches: the library's choice is the first. */
enum way {
    PEEK, /* one sector, then whole slabs */
    SLABS,
    LANES, /* each lane by itself, sectors of one slab */
    WAYS
};

void set_way(rank &r, way to)
{
    std::vector<ga_slabhash_view> views(r.peers.view.division.ranks);
    size_t bytes = views.size() * sizeof views[0];
    check(cudaMemcpy(views.data(), r.peers.memory, bytes, cudaMemcpyDeviceToHost), "views");
    static std::map<int, const uint32_t *> ordered; /* of each device; filled under the lock */
    pthread_mutex_lock(&adding);
    if (!ordered.count(r.device)) {
        ordered[r.device] = views[0].ordered;
    }
    for (auto &view : views) {
        view.ordered = to == SLABS ? NULL : ordered[r.device];
        view.exceeds_l2 = to == LANES ? 0 : GA_SLABHASH_BEHIND_LINK;
    }
    pthread_mutex_unlock(&adding);
    check(cudaMemcpy(r.peers.memory, views.data(), bytes, cudaMemcpyHostToDevice), "views");
}

void empty(rank &r)
{
    must(ga_slabhash_sharded_clear(r.table, r.stream) == GA_OK, "clear");
    must(ga_slabhash_peers_refresh(&r.peers, r.stream) == GA_OK, "refresh");
}

void run_round(rank &r, uint32_t round)
{
    bool keep = round > 0;
    set_way(r, PEEK);
    empty(r);
    measure_operation<GA_SLABHASH_INSERT>(r, "inserts", REMOTE, 0, GA_SLABHASH_ABSENT, keep);
    empty(r);
    measure_operation<GA_SLABHASH_INSERT>(r, "inserts", MIXED, 0, GA_SLABHASH_ABSENT, keep);
    for (bool alone : {false, true}) {
        measure_reads<8, 1>(r, "reads of 128 bytes", keep, alone);
        measure_reads<8, 4>(r, "reads of 128 bytes", keep, alone);
        measure_reads<8, 8>(r, "reads of 128 bytes", keep, alone);
        measure_reads<2, 4>(r, "reads of 32 bytes", keep, alone);
        measure_operation<GA_SLABHASH_SEARCH>(r, "searches", REMOTE, 0, GA_SLABHASH_FOUND, keep,
                                              alone);
    }
    measure_operation<GA_SLABHASH_SEARCH>(r, "searches", MIXED, 0, GA_SLABHASH_FOUND, keep);
    measure_operation<GA_SLABHASH_SEARCH>(r, "searches", LOCAL, 0, GA_SLABHASH_FOUND, keep);
    measure_operation<GA_SLABHASH_SEARCH>(r, "searches", ABSENT, 0, GA_SLABHASH_ABSENT, keep);
    set_way(r, SLABS);
    measure_operation<GA_SLABHASH_SEARCH>(r, "searches by slabs", REMOTE, 0, GA_SLABHASH_FOUND,
                                          keep);
    set_way(r, LANES);
    measure_operation<GA_SLABHASH_SEARCH>(r, "searches by lanes", REMOTE, 0, GA_SLABHASH_FOUND,
                                          keep);
    set_way(r, PEEK);
    measure_own(r, 0, keep);
    measure_batch(r, keep);
    measure_operation<GA_SLABHASH_REPLACE>(r, "replaces", REMOTE, 1, GA_SLABHASH_FOUND, keep);
    measure_operation<GA_SLABHASH_SEARCH>(r, "found after", REMOTE, 1, GA_SLABHASH_FOUND, false);
    measure_operation<GA_SLABHASH_DELETE>(r, "deletes", REMOTE, 1, GA_SLABHASH_FOUND, keep);
    measure_operation<GA_SLABHASH_SEARCH>(r, "absent after", REMOTE, 1, GA_SLABHASH_ABSENT, false);
}

void take_keys(rank &r, int set, uint64_t first, uint64_t count, uint64_t room)
{
    unsigned long long *made;
    check(cudaMalloc(&r.keys[set], room * sizeof(uint32_t)), "memory");
    check(cudaMallocManaged(&made, sizeof *made), "memory");
    *made = 0;
    make_keys<<<1024, 256, 0, r.stream>>>(r.peers.view, set, first, count, r.keys[set], room, made);
    check(cudaStreamSynchronize(r.stream), "keys");
    r.counts[set] = std::min((uint64_t)*made, room) / 32 * 32;
    check(cudaFree(made), "memory");
}

void run_rank(rank &r, uint64_t keys)
{
    ga_slabhash_options options = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.buckets = (uint32_t)((double)keys / 15 * 100 / fill);
    options.path = 16;
    options.seed = 1;
    check(cudaSetDevice(r.device), "device");
    check(cudaDeviceGetAttribute(&r.processors, cudaDevAttrMultiProcessorCount, r.device), "ask");
    must(ga_slabhash_nccl_open(&r.table, &options, r.comm, r.stream) == GA_OK, "open");
    must(ga_slabhash_peers_open(&r.peers, r.table, r.stream) == GA_OK, "open for peers");
    uint64_t ranks = r.peers.view.division.ranks, own = keys / ranks;
    r.number = r.peers.view.rank;
    check(cudaMalloc(&r.found, own * sizeof *r.found), "memory");
    check(cudaHostAlloc(&r.wrong, sizeof *r.wrong, cudaHostAllocPortable), "memory");
    *r.wrong = 0;
    take_keys(r, MIXED, own * r.number, own, own);
    take_keys(r, LOCAL, 0, keys, own);
    if (ranks > 2) { /* keys of others that no other rank has */
        take_keys(r, REMOTE, own * r.number, own, own);
    } else {
        take_keys(r, REMOTE, 0, keys, own);
    }
    take_keys(r, ABSENT, keys + own * r.number, own, own);
    for (int round = 0; round <= rounds; round++) {
        run_round(r, (uint32_t)round);
    }
    must(ga_slabhash_peers_close(&r.peers) == GA_OK, "close");
    meet();
    must(ga_slabhash_sharded_close(r.table) == GA_OK, "close");
}

/* ---- the program ----------------------------------------------------------------------------- */

double rate(const std::string &name)
{
    const figure &f = figures[name];
    return (double)f.operations / median(f.times) / 1e9;
}

/* The best rate of 128-byte reads. */
double limit(bool alone)
{
    double best = 0;
    for (const std::string &name : order) {
        bool is_alone = name.find("first GPU only") != std::string::npos;
        if (name.find("reads of 128") == 0 && is_alone == alone) {
            best = std::max(best, rate(name));
        }
    }
    return best;
}

void print_figures(int ranks)
{
    printf(
        "2^%d keys, %d rounds, %d %% of slots filled; G/s of all GPUs together, medians and half "
        "the interquartile range; of the best rate of 128-byte reads\n",
        log_keys, rounds, fill);
    printf("%-48s %8s %6s %6s\n", "", "G/s", "+-", "limit");
    for (const std::string &name : order) {
        if (figures[name].times.empty()) {
            continue;
        }
        bool alone = name.find("first GPU only") != std::string::npos;
        printf("%-48s %8.3f %5.1f%% %5.0f%%\n", name.c_str(), rate(name),
               spread(figures[name].times), rate(name) / limit(alone) * 100);
    }
    printf("limit: %.0f GB/s to each GPU, %.0f to the first alone\n", limit(false) * 128 / ranks,
           limit(true) * 128);
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
                     {"--fill", &fill}};
        bool known = i + 1 < count && !strcmp(words[i], "--nccl");
        nccl_file = known ? words[i + 1] : nccl_file;
        for (const auto &name : names) {
            if (i + 1 < count && !strcmp(words[i], name.name) && atoi(words[i + 1]) > 0) {
                *name.value = atoi(words[i + 1]);
                known = true;
            }
        }
        if (!known || log_keys > 30 || log_keys < 12 || fill > 100) {
            fprintf(stderr,
                    PROGRAM ": \"%s\": expected --keys of 12 to 30, --rounds, --ranks or --fill, "
                            "and a number above 0, or --nccl, and a file\n",
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
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
        printf(PROGRAM ": skipped, expected two GPUs\n");
        return 77;
    }
    load_nccl();
    int ranks = ranks_wanted > 1 && ranks_wanted < devices ? ranks_wanted : devices;
    std::vector<rank> all((size_t)ranks);
    std::vector<void *> comms((size_t)ranks);
    std::vector<std::thread> threads;
    pthread_barrier_init(&meeting, NULL, (unsigned)ranks);
    print_machine(ranks);
    must(nccl.init(comms.data(), ranks, NULL) == 0, "ncclCommInitAll");
    for (int i = 0; i < ranks; i++) {
        all[i].device = i;
        all[i].comm = comms[i];
        check(cudaSetDevice(i), "device");
        check(cudaStreamCreate(&all[i].stream), "stream");
    }
    for (auto &r : all) {
        threads.emplace_back([&r] { run_rank(r, UINT64_C(1) << log_keys); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    print_figures(ranks);
    return 0;
}
