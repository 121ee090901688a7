/* SPDX-License-Identifier: MIT
 *
 * A sharded table whose operations are all checked against books: each rank computes what each of
 * its requests must answer, and what each key has afterwards. Then a table that is larger than the
 * memory of one GPU. A wrong answer is exit status 1.
 *
 *   bench-slabhash-books [--billions N] [--keys LOG2] [--large GIB] [--ranks N] [--nccl FILE]
 *
 * A thread for each GPU. In seven of eight batches each key has one request, by a rank that
 * changes from batch to batch. In the eighth one all ranks add to the same keys.
 */
#define PROGRAM               "bench-slabhash-books"
#define GA_SLABHASH_ONLY_KIND 2u
#include "sharded_ranks.cuh"

#include <atomic>
#include <stdlib.h>
#include <thread>
#include <vector>

namespace
{

int billions = 10, log_keys = 26, large = 0, ranks_wanted = 0; /* keys of a rank */

enum {
    BLOCKS = 1024,
    THREADS = 256,
    ALL_ADD_EACH = 8 /* batches */
};

/* One batch of a rank. `books` has the value of each key of all ranks; 0: the key is absent. */
struct turn {
    uint64_t *keys, *values, *found, *books;
    uint8_t *ops, *results;
    uint64_t count; /* requests of a rank */
    uint32_t ranks;
    uint32_t segment; /* whose keys they are for */
    uint32_t batch;
    unsigned long long *wrong;
};

__device__ uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

__device__ uint64_t key_of(uint64_t index)
{
    return (index + 1) * 0x9e3779b97f4a7c15ull >> 1; /* no key is reserved */
}

__host__ __device__ bool all_add(uint32_t batch)
{
    return batch % ALL_ADD_EACH == ALL_ADD_EACH - 1;
}

/* What the request for a key is in a batch. */
__device__ uint32_t op_of(const turn &t, uint64_t index)
{
    const uint8_t often[] = {GA_SLABHASH_SEARCH, GA_SLABHASH_SEARCH, GA_SLABHASH_SEARCH,
                             GA_SLABHASH_INSERT, GA_SLABHASH_INSERT, GA_SLABHASH_REPLACE,
                             GA_SLABHASH_DELETE, GA_SLABHASH_APPLY};
    return all_add(t.batch) ? (uint32_t)GA_SLABHASH_APPLY
                            : often[mix(index ^ (uint64_t)t.batch << 40) & 7];
}

__device__ uint64_t value_of(const turn &t, uint64_t index)
{
    return (mix(index ^ (uint64_t)t.batch << 40) >> 24) | 1;
}

#define EACH(i, n)                                                                                 \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                    \
         i += (uint64_t)gridDim.x * blockDim.x)

__global__ void make_requests(turn t)
{
    EACH(i, t.count)
    {
        uint64_t index = t.segment * t.count + i;
        t.keys[i] = key_of(index);
        t.values[i] = value_of(t, index);
        t.ops[i] = (uint8_t)op_of(t, index);
    }
}

/* The value of the key after one request. */
__device__ uint64_t after(uint32_t op, uint64_t before, uint64_t value)
{
    return op == GA_SLABHASH_INSERT    ? (before ? before : value)
           : op == GA_SLABHASH_REPLACE ? value
           : op == GA_SLABHASH_DELETE  ? 0
           : op == GA_SLABHASH_APPLY   ? before + value
                                       : before;
}

__global__ void check_answers(turn t)
{
    EACH(i, t.count)
    {
        uint64_t index = t.segment * t.count + i, before = t.books[index];
        uint64_t added = (t.found[i] - before) / t.values[i]; /* by other ranks, before this one */
        bool is_found = t.results[i] == GA_SLABHASH_FOUND;
        bool right = is_found == (t.found[i] != 0) && t.results[i] <= GA_SLABHASH_FOUND;
        right = right &&
                (all_add(t.batch) ? t.found[i] == before + added * t.values[i] && added < t.ranks
                                  : t.found[i] == before);
        if (!right) {
            atomicAdd(t.wrong, 1ull);
        }
    }
}

/* All ranks keep the books of all keys. */
__global__ void keep_books(turn t, uint64_t keys)
{
    EACH(index, keys)
    {
        bool is_asked = !all_add(t.batch) || index / t.count == t.segment;
        uint64_t times = all_add(t.batch) ? t.ranks : 1;
        for (uint64_t i = 0; is_asked && i < times; i++) {
            t.books[index] = after(op_of(t, index), t.books[index], value_of(t, index));
        }
    }
}

__global__ void count_pairs(const uint64_t *books, uint64_t keys, unsigned long long *pairs)
{
    EACH(index, keys)
    {
        if (books[index]) {
            atomicAdd(pairs, 1ull);
        }
    }
}

template <typename T> T *take(uint64_t count)
{
    T *at;
    check(cudaMalloc(&at, count * sizeof *at), "memory");
    return at;
}

/* A number in memory of the device, and on the host. */
struct counter {
    unsigned long long *at = take<unsigned long long>(1);
    void clear(cudaStream_t stream)
    {
        check(cudaMemsetAsync(at, 0, sizeof *at, stream), "memory");
    }
    uint64_t read(cudaStream_t stream)
    {
        unsigned long long value;
        check(cudaMemcpyAsync(&value, at, sizeof value, cudaMemcpyDeviceToHost, stream), "copy");
        check(cudaStreamSynchronize(stream), "kernels");
        return value;
    }
};

void expect(uint64_t number, uint64_t expected, const char *what)
{
    if (number != expected) {
        fprintf(stderr, PROGRAM ": %s: %llu: expected %llu\n", what, (unsigned long long)number,
                (unsigned long long)expected);
        exit(1);
    }
}

ga_slabhash_sharded *open_table(uint64_t buckets, void *comm, cudaStream_t stream)
{
    ga_slabhash_sharded *table;
    ga_slabhash_options options = {};
    ga_sharded_options sharded = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP64;
    options.buckets = (uint32_t)buckets;
    options.path = 16;
    sharded.options_size = sizeof sharded;
    sharded.piece = UINT64_C(1) << log_keys;
    must(ga_slabhash_nccl_open(&table, &options, comm, stream, NULL, &sharded) == GA_OK, "open");
    return table;
}

void run_batch(ga_slabhash_sharded *table, const turn &t, bool fixed, ga_slabhash_op op,
               cudaStream_t stream)
{
    ga_slabhash_batch batch = {};
    batch.count = t.count;
    batch.keys = t.keys;
    batch.values = op == GA_SLABHASH_SEARCH && fixed ? NULL : t.values;
    batch.ops = fixed ? NULL : t.ops;
    batch.results = fixed ? NULL : t.results;
    batch.found = op == GA_SLABHASH_INSERT && fixed ? NULL : t.found;
    batch.op = op;
    batch.how = GA_SLABHASH_ADD;
    must(ga_slabhash_sharded_run(table, &batch, NULL, stream) == GA_OK, "batch");
}

void keep(turn t, uint32_t rank, barrier &all, void *comm, cudaStream_t stream)
{
    counter wrong, pairs;
    uint64_t keys = t.count * t.ranks, done = 0, size = 0;
    ga_slabhash_sharded *table = open_table(keys / 7 * 2, comm, stream);
    double seconds = 0;
    t.wrong = wrong.at;
    t.books = take<uint64_t>(keys);
    wrong.clear(stream);
    check(cudaMemsetAsync(t.books, 0, keys * sizeof *t.books, stream), "memory");
    for (t.batch = 0; done < (uint64_t)billions * 1000000000u; t.batch++, done += keys) {
        t.segment = (all_add(t.batch) ? t.batch : t.batch + rank) % t.ranks;
        make_requests<<<BLOCKS, THREADS, 0, stream>>>(t);
        check(cudaStreamSynchronize(stream), "requests");
        all.meet();
        double start = now();
        run_batch(table, t, false, GA_SLABHASH_SEARCH, stream);
        all.meet();
        seconds += now() - start;
        check_answers<<<BLOCKS, THREADS, 0, stream>>>(t);
        keep_books<<<BLOCKS, THREADS, 0, stream>>>(t, keys);
        expect(wrong.read(stream), 0, "wrong answers");
    }
    pairs.clear(stream);
    count_pairs<<<BLOCKS, THREADS, 0, stream>>>(t.books, keys, pairs.at);
    must(ga_slabhash_sharded_size(table, &size, stream) == GA_OK, "size");
    expect(size, pairs.read(stream), "pairs");
    must(ga_slabhash_sharded_close(table) == GA_OK, "close");
    check(cudaFree(t.books), "memory");
    if (rank == 0) {
        printf("%.2f billion operations of %u ranks on %llu keys, %u batches: each answer right, "
               "%llu pairs left as in the books; %.2f G/s\n",
               (double)done / 1e9, t.ranks, (unsigned long long)keys, t.batch,
               (unsigned long long)size, (double)done / seconds / 1e9);
    }
}

/* ---- larger than one GPU --------------------------------------------------------------------- */

__global__ void make_pairs(turn t, uint64_t first)
{
    EACH(i, t.count)
    {
        t.keys[i] = key_of(first + i);
        t.values[i] = mix(first + i);
    }
}

__global__ void check_pairs(turn t, uint64_t first)
{
    EACH(i, t.count)
    {
        if (t.found[i] != mix(first + i)) {
            atomicAdd(t.wrong, 1ull);
        }
    }
}

void fill(turn t, uint32_t rank, barrier &all, void *comm, cudaStream_t stream)
{
    counter wrong;
    size_t free_bytes, bytes;
    uint64_t size = 0, buckets = (uint64_t)large << 23; /* of 128 bytes */
    uint64_t batches = (uint64_t)((double)buckets * 7 * 0.6 / (double)(t.count * t.ranks));
    ga_slabhash_sharded *table = open_table(buckets, comm, stream);
    t.wrong = wrong.at;
    wrong.clear(stream);
    all.meet();
    double start = now();
    for (uint64_t batch = 0; batch < batches; batch++) {
        make_pairs<<<BLOCKS, THREADS, 0, stream>>>(t, (batch * t.ranks + rank) * t.count);
        run_batch(table, t, true, GA_SLABHASH_INSERT, stream);
    }
    all.meet();
    double built = now() - start;
    start = now();
    for (uint64_t batch = 0; batch < batches; batch++) {
        uint64_t first = (batch * t.ranks + (rank + 1) % t.ranks) * t.count; /* another rank's */
        make_pairs<<<BLOCKS, THREADS, 0, stream>>>(t, first);
        run_batch(table, t, true, GA_SLABHASH_SEARCH, stream);
        check_pairs<<<BLOCKS, THREADS, 0, stream>>>(t, first);
    }
    expect(wrong.read(stream), 0, "wrong answers");
    all.meet();
    double searched = now() - start;
    must(ga_slabhash_sharded_size(table, &size, stream) == GA_OK, "size");
    expect(size, batches * t.ranks * t.count, "pairs");
    check(cudaMemGetInfo(&free_bytes, &bytes), "memory");
    must(ga_slabhash_sharded_close(table) == GA_OK, "close");
    if (rank == 0) {
        printf(
            "%.2f billion pairs in %d GiB of buckets on %u GPUs of %.1f GiB: built in %.2f s, all "
            "found in %.2f s\n",
            (double)size / 1e9, large, t.ranks, (double)bytes / (1u << 30), built, searched);
    }
}

void run_rank(uint32_t rank, uint32_t ranks, barrier &all, void *comm)
{
    cudaStream_t stream;
    turn t = {};
    check(cudaSetDevice((int)rank), "device");
    check(cudaStreamCreate(&stream), "stream");
    t.count = UINT64_C(1) << log_keys;
    t.ranks = ranks;
    t.keys = take<uint64_t>(t.count);
    t.values = take<uint64_t>(t.count);
    t.found = take<uint64_t>(t.count);
    t.ops = take<uint8_t>(t.count);
    t.results = take<uint8_t>(t.count);
    if (billions) {
        keep(t, rank, all, comm, stream);
    }
    if (large) {
        fill(t, rank, all, comm, stream);
    }
}

void read_options(int count, char **words)
{
    for (int i = 1; i < count; i += 2) {
        static const struct {
            const char *name;
            int *value;
        } names[] = {{"--billions", &billions},
                     {"--keys", &log_keys},
                     {"--large", &large},
                     {"--ranks", &ranks_wanted}};
        bool known = i + 1 < count && !strcmp(words[i], "--nccl");
        nccl_file = known ? words[i + 1] : nccl_file;
        for (const auto &name : names) {
            if (i + 1 < count && !strcmp(words[i], name.name)) {
                *name.value = atoi(words[i + 1]);
                known = *name.value >= 0;
            }
        }
        if (!known || log_keys < 10 || log_keys > 28 || large > 511) {
            fprintf(stderr,
                    PROGRAM ": \"%s\": expected --billions, --keys of 10 to 28, --large of at most "
                            "511 or --ranks, and a number, or --nccl, and a file\n",
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
    std::vector<void *> comms((size_t)ranks);
    std::vector<std::thread> threads;
    barrier meeting(ranks);
    print_machine(ranks);
    must(nccl.init(comms.data(), ranks, NULL) == 0, "ncclCommInitAll");
    for (int i = 0; i < ranks; i++) {
        threads.emplace_back([&, i] { run_rank((uint32_t)i, (uint32_t)ranks, meeting, comms[i]); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    return 0;
}
