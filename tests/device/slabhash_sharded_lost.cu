/* SPDX-License-Identifier: MIT
 *
 * A rank that is lost in the middle of a batch of several slices (gpualloc/slabhash_nccl.cuh), on
 * two GPUs and the NCCL that is installed: at each call of its exchange, as long as time allows. It
 * stays away, or it fails; or its shard is slow on the device, so that both ranks give up while it
 * still reads requests. The call must return a status on both within the time limit, the shards
 * must be readable, and no key may have the value of another one.
 *
 *   slabhash_sharded_lost [SECONDS [LOG2 OF KEYS [MS OF THE LIMIT]]]
 *
 * Exit status 1: something did not hold, which a line names; 77: fewer than two GPUs, or no NCCL.
 */
#define GA_SLABHASH_ONLY_KIND 1u /* maps of 32 bits */
#include <gpualloc/slabhash_nccl.cuh>

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <unistd.h>

namespace
{

enum {
    RANKS = 2,
    SLACK_MS = 1500, /* beside the limit */
    LAST = 4,        /* calls from the last agreement on */
    SKIP = 77
};

/* How rank 1 is lost. */
enum manner {
    NOT,
    LATE,   /* its call begins when the other rank has returned */
    FAILED, /* its call fails */
    SLOW,   /* its shard's kernel begins late */
    MANNERS
};

const char *const names[MANNERS] = {"not lost", "late", "failed", "slow"};

int log_keys = 26, limit_ms = 1000;
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

/* ---- keys ------------------------------------------------------------------------------------ */

__global__ void make_pairs(uint32_t *keys, uint32_t *values, uint64_t first, uint64_t count)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        keys[i] = (uint32_t)(first + i) * 2654435761u & 0x7fffffffu;
        values[i] = ~keys[i];
    }
}

/* tally[0]: pairs that are there; tally[1]: values of other keys. */
__global__ void compare(const uint32_t *keys, const uint32_t *found, uint64_t count,
                        unsigned long long *tally)
{
    unsigned long long there = 0, wrong = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        there += found[i] != 0;
        wrong += found[i] != 0 && found[i] != ~keys[i];
    }
    atomicAdd(tally, there);
    atomicAdd(tally + 1, wrong);
}

__global__ void wait_for(long long ns)
{
    long long begin = 0, at = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(at));
    } while (at - begin < ns);
}

/* ---- the exchange of rank 1 ------------------------------------------------------------------ */

struct trial {
    manner how;
    int at;    /* the call, of the exchange or of the shard, */
    int count; /* of so many */
    int limit_ms;
    std::atomic<int> calls, serves;
    std::atomic<bool> has_ended; /* the other rank */
    uint32_t flags;              /* of ga_nccl_options */
    ga_exchange exchange;        /* NCCL's */
    bool is_on;
    double begin;
};

/* Before a call. True: it fails. */
bool is_lost(trial &t)
{
    int number = t.is_on ? t.calls++ : -1;
    if (number < 0 || number != t.at || t.how == SLOW || t.how == NOT) {
        return false;
    }
    while (t.how == LATE && !t.has_ended) {
        usleep(1000);
    }
    return true;
}

ga_status lost()
{
    return ga_fail(GA_ERR_DEVICE, "told to be lost");
}

#define OVER(name, parameters, arguments)                                                          \
    ga_status over_##name parameters                                                               \
    {                                                                                              \
        trial &t = *(trial *)context;                                                              \
        return is_lost(t) ? lost() : t.exchange.name arguments;                                    \
    }

OVER(begin, (void *context), (t.exchange.context))
OVER(send, (void *context, const void *from, uint64_t bytes, uint32_t to, void *stream),
     (t.exchange.context, from, bytes, to, stream))
OVER(receive, (void *context, void *to, uint64_t bytes, uint32_t from, void *stream),
     (t.exchange.context, to, bytes, from, stream))
OVER(end, (void *context, void *stream), (t.exchange.context, stream))
OVER(largest, (void *context, uint64_t *values, uint32_t count, void *stream),
     (t.exchange.context, values, count, stream))
OVER(wait, (void *context, void *stream), (t.exchange.context, stream))
OVER(meet, (void *context, void *stream), (t.exchange.context, stream))
OVER(put, (void *context, const void *from, void *at, uint64_t bytes, uint32_t to, void *stream),
     (t.exchange.context, from, at, bytes, to, stream))
OVER(fetch, (void *context, void *to, const void *at, uint64_t bytes, uint32_t from, void *stream),
     (t.exchange.context, to, at, bytes, from, stream))
OVER(share, (void *context, ga_shared *out, uint64_t bytes, uint64_t *word, void *stream),
     (t.exchange.context, out, bytes, word, stream))

void over_abort(void *context)
{
    trial &t = *(trial *)context;
    t.exchange.abort(t.exchange.context);
}

void over_register(void *context, void *block, uint64_t bytes)
{
    trial &t = *(trial *)context;
    t.exchange.register_memory(t.exchange.context, block, bytes);
}

void over_deregister(void *context, void *block)
{
    trial &t = *(trial *)context;
    t.exchange.deregister_memory(t.exchange.context, block);
}

void over_unshare(void *context, void *block)
{
    trial &t = *(trial *)context;
    t.exchange.unshare(t.exchange.context, block);
}

void over_guard(void *context, bool begins)
{
    trial &t = *(trial *)context;
    t.exchange.guard(t.exchange.context, begins);
}

void over_close(void *context)
{
    trial &t = *(trial *)context;
    t.exchange.close(t.exchange.context);
}

ga_exchange over(trial &t)
{
    ga_exchange exchange = t.exchange;
    exchange.context = &t;
    exchange.begin = over_begin;
    exchange.send = over_send;
    exchange.receive = over_receive;
    exchange.end = over_end;
    exchange.largest = over_largest;
    exchange.wait = over_wait;
    exchange.meet = over_meet;
    exchange.put = over_put;
    exchange.fetch = over_fetch;
    exchange.share = over_share;
    exchange.abort = over_abort;
    exchange.register_memory = over_register;
    exchange.deregister_memory = over_deregister;
    exchange.unshare = over_unshare;
    exchange.guard = over_guard;
    exchange.close = over_close;
    return exchange;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct rank_state {
    int rank;
    void *comm;
    cudaStream_t stream;
    uint64_t count;
    uint32_t *keys, *values, *found;
    unsigned long long *tally;
    ga_slabhash_device shard;
    ga_slabhash_sharded *table;
    trial *of;
    ga_status status;
    double seconds;
    unsigned long long there; /* keys of both ranks in this shard, afterwards */
};

ga_status serve(void *shard, const ga_slabhash_batch *batches, uint32_t count, uint64_t *counts,
                void *stream)
{
    rank_state &r = *(rank_state *)shard;
    trial &t = *r.of;
    if (r.rank == 1 && t.is_on && t.serves++ == t.at && t.how == SLOW) {
        wait_for<<<1, 1, 0, (cudaStream_t)stream>>>((limit_ms + SLACK_MS) * 1000000ll);
    }
    return ga_slabhash_nccl_run(&r.shard, batches, count, counts, stream);
}

ga_status close_shard(void *shard)
{
    return ga_slabhash_device_close(&((rank_state *)shard)->shard);
}

void open_table(rank_state &r)
{
    int rank = r.rank;
    trial &t = *r.of;
    ga_slabhash_options options = {};
    ga_nccl_options limit = {};
    ga_sharded_options sharded = {};
    ga_exchange exchange = {};
    options.options_size = sizeof options;
    options.mode = GA_SLABHASH_MAP32;
    options.buckets = (uint32_t)(r.count / 9 + 1); /* 60 % of the 15 slots of a bucket */
    options.path = 16;
    options.seed = 1;
    limit.options_size = sizeof limit;
    limit.time_limit_ms = (uint32_t)t.limit_ms;
    limit.flags = t.flags;
    sharded.options_size = sizeof sharded;
    sharded.piece = r.count;
    CHECK(ga_exchange_nccl(&exchange, r.comm, &limit) == GA_OK);
    if (rank == 1) {
        t.exchange = exchange;
        exchange = over(t);
    }
    CHECK(ga_slabhash_device_open(&r.shard, &options, rank, r.stream) == GA_OK);
    CHECK(ga_slabhash_device_load(&r.shard) == GA_OK);
    ga_shard shard = {};
    shard.shard_size = sizeof shard;
    shard.table = &r;
    shard.mode = GA_SLABHASH_MAP32;
    shard.a = r.shard.view.a;
    shard.b = r.shard.view.b;
    shard.bytes = options.buckets * UINT64_C(128);
    shard.run = serve;
    shard.close = close_shard;
    CHECK(ga_slabhash_sharded_open(&r.table, &exchange, &shard, &sharded) == GA_OK);
}

ga_slabhash_batch batch_of(const rank_state &r, ga_slabhash_op op)
{
    ga_slabhash_batch batch = {};
    batch.count = r.count;
    batch.keys = r.keys;
    batch.values = op == GA_SLABHASH_INSERT ? r.values : NULL;
    batch.found = op == GA_SLABHASH_SEARCH ? r.found : NULL;
    batch.op = op;
    return batch;
}

/* All keys of both ranks, in this rank's shard alone. */
void read_shard(rank_state &r)
{
    int rank = r.rank;
    unsigned long long tally[2] = {0, 0};
    CHECK(cudaMemsetAsync(r.tally, 0, sizeof tally, r.stream) == cudaSuccess);
    for (int of = 0; of < RANKS; of++) {
        make_pairs<<<1024, 256, 0, r.stream>>>(r.keys, r.values, (uint64_t)of * r.count, r.count);
        ga_slabhash_batch batch = batch_of(r, GA_SLABHASH_SEARCH);
        CHECK(ga_slabhash_device_run(&r.shard, &batch, NULL, r.stream) == GA_OK);
        compare<<<1024, 256, 0, r.stream>>>(r.keys, r.found, r.count, r.tally);
    }
    CHECK(cudaMemcpyAsync(tally, r.tally, sizeof tally, cudaMemcpyDeviceToHost, r.stream) ==
          cudaSuccess);
    CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
    CHECK(tally[1] == 0);
    r.there = tally[0];
}

void run_rank(rank_state &r)
{
    int rank = r.rank;
    trial &t = *r.of;
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    open_table(r);
    make_pairs<<<1024, 256, 0, r.stream>>>(r.keys, r.values, (uint64_t)rank * r.count, r.count);
    CHECK(cudaStreamSynchronize(r.stream) == cudaSuccess);
    pthread_barrier_wait(&barrier);
    if (rank == 1) {
        t.is_on = true;
    }
    double begin = now();
    ga_slabhash_batch batch = batch_of(r, GA_SLABHASH_INSERT);
    r.status = ga_slabhash_sharded_run(r.table, &batch, NULL, r.stream);
    batch = batch_of(r, GA_SLABHASH_SEARCH);
    r.status = r.status ? r.status : ga_slabhash_sharded_run(r.table, &batch, NULL, r.stream);
    r.seconds = now() - begin;
    if (rank == 0) {
        t.has_ended = true;
    }
    if (r.status != GA_OK) { /* a later call fails at once */
        begin = now();
        CHECK(ga_slabhash_sharded_run(r.table, &batch, NULL, r.stream) == GA_ERR_DEVICE);
        CHECK(now() - begin < 0.5);
    }
    read_shard(r);
    pthread_barrier_wait(&barrier);
    CHECK(ga_slabhash_sharded_close(r.table) == GA_OK);
}

/* ---- trials ---------------------------------------------------------------------------------- */

void run_trial(rank_state *ranks, trial &t)
{
    std::thread threads[RANKS];
    t.calls = t.serves = 0;
    t.has_ended = t.is_on = false;
    t.limit_ms = t.how == NOT ? 60000 : limit_ms;
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank].of = &t;
        threads[rank] = std::thread([&ranks, rank] { run_rank(ranks[rank]); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

/* What must hold after a trial. The other rank may have its answers if this one is lost behind the
 * last agreement. */
void judge(const rank_state *ranks, const trial &t)
{
    int rank = 0;
    uint64_t all = RANKS * ranks[0].count;
    unsigned long long there = ranks[0].there + ranks[1].there;
    CHECK(there <= all);
    bool may_be_done = t.how == NOT || (t.how != SLOW && t.at >= t.count - LAST);
    CHECK(t.how != NOT || (there == all && ranks[0].status == GA_OK));
    CHECK(ranks[0].status == GA_ERR_DEVICE || (may_be_done && ranks[0].status == GA_OK));
    CHECK(t.how == NOT || ranks[0].seconds * 1e3 < limit_ms + SLACK_MS);
    rank = 1;
    CHECK((ranks[1].status == GA_OK) == (t.how == NOT));
    CHECK(t.how == NOT || ranks[1].seconds * 1e3 < 2 * (limit_ms + SLACK_MS));
}

/* A number of calls below `count` is lost, as many as there is time for, in an order that covers
 * them evenly. */
void lose(rank_state *ranks, trial &t, int count, double seconds)
{
    double begin = now(), slowest = 0;
    int trials = 0, stride = (int)(count * 0.618) | 1;
    t.count = count;
    while (stride % 3 == 0 || stride % 5 == 0 || stride % 7 == 0) {
        stride += 2; /* so that few counts have a common factor with it */
    }
    for (; trials < count && now() - begin < seconds; trials++) {
        t.at = (int)((long)trials * stride % count);
        run_trial(ranks, t);
        printf(
            "  at %d: status %d after %.0f ms, and %d after %.0f ms; %.1f %% and %.1f %% of keys\n",
            t.at, (int)ranks[0].status, ranks[0].seconds * 1e3, (int)ranks[1].status,
            ranks[1].seconds * 1e3, (double)ranks[0].there / (double)ranks[0].count * 50,
            (double)ranks[1].there / (double)ranks[0].count * 50);
        fflush(stdout);
        judge(ranks, t);
        slowest = ranks[0].seconds > slowest ? ranks[0].seconds : slowest;
    }
    printf("rank 1 %s, %s: %d of %d calls: rank 0 has its status after %.0f ms at most, the limit "
           "is %d ms; %.0f s\n",
           names[t.how], t.flags ? "messages" : "copies", trials, count, slowest * 1e3, limit_ms,
           now() - begin);
    fflush(stdout);
}

void prepare(rank_state &r, int rank, void *comm)
{
    r.rank = rank;
    r.comm = comm;
    r.count = UINT64_C(1) << log_keys;
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaStreamCreate(&r.stream) == cudaSuccess);
    CHECK(cudaMalloc(&r.keys, r.count * sizeof *r.keys) == cudaSuccess);
    CHECK(cudaMalloc(&r.values, r.count * sizeof *r.values) == cudaSuccess);
    CHECK(cudaMalloc(&r.found, r.count * sizeof *r.found) == cudaSuccess);
    CHECK(cudaMalloc(&r.tally, 2 * sizeof *r.tally) == cudaSuccess);
}

void run_all(rank_state *ranks, double seconds)
{
    for (uint32_t flags : {0u, (uint32_t)GA_NCCL_NO_WINDOWS}) {
        static trial t;
        t.flags = flags;
        t.how = NOT;
        t.at = -1;
        run_trial(ranks, t);
        judge(ranks, t);
        int calls = t.calls, serves = t.serves;
        printf("%s: an insert and a search of 2^%d keys on each of %d GPUs: %d calls of the "
               "exchange, %d of the shard\n",
               flags ? "messages" : "copies", log_keys, RANKS, calls, serves);
        for (manner how : {LATE, SLOW, FAILED}) {
            t.how = how;
            lose(ranks, t, how == SLOW ? serves : calls, seconds / (flags ? 10 : 5));
        }
        t.how = NOT; /* the program's communicator is as it was */
        run_trial(ranks, t);
        judge(ranks, t);
    }
}

} // namespace

int main(int count, char **words)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(void **, int, const int *) = NULL;
    int devices = 0;
    void *comms[RANKS];
    static rank_state ranks[RANKS];
    double seconds = count > 1 ? atof(words[1]) : 60;
    log_keys = count > 2 ? atoi(words[2]) : log_keys;
    limit_ms = count > 3 ? atoi(words[3]) : limit_ms;
    if (!library || cudaGetDeviceCount(&devices) != cudaSuccess || devices < RANKS) {
        printf("skipped: %s\n", library ? "fewer than two GPUs" : dlerror());
        return SKIP;
    }
    *(void **)&init = dlsym(library, "ncclCommInitAll");
    if (!init || init(comms, RANKS, NULL) != 0) {
        printf("ncclCommInitAll failed\n");
        return 1;
    }
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        prepare(ranks[rank], rank, comms[rank]);
    }
    run_all(ranks, seconds);
    return 0;
}
