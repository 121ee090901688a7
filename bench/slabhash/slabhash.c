/* SPDX-License-Identifier: MIT
 *
 * The slab hash on the CPU beside a plain open-addressing table:
 *
 *     bench-slabhash [--keys LOG2] [--threads N,N] [--rounds N] [--fill PERCENT]
 *
 * insert   keys into an empty table
 * hit      searches of keys that are there
 * miss     searches of keys that are not
 * mix      25 % inserts, 25 % deletes and 50 % searches of keys that are there, in the filled table
 *
 * 2^LOG2 scattered keys of 32 bits with values of 32 bits, and as many calls, shared by the
 * threads. Every table has places for its keys with PERCENT of them filled, before slabs are
 * chained; `used` is the share of its bytes that are pairs at the end (slab-hash-2018, §III-C). In
 * a round every way has its turn, each round beginning with another one. The figure is the median
 * over the rounds, in millions of calls a second, then the lowest and the highest; "times" is the
 * ratio to the first way of the table, the median of the same rounds. Every answer is counted and
 * compared. `used` is that before the mix.
 *
 * Each thread reads the clock before its first call and after its last one; a round's time is from
 * the first of these to the last. The main thread's clock would not do: it may leave a barrier long
 * after the others. Tables have a fixed seed, so that they have the same layout in each run.
 */
#include <gpualloc/slabhash.h>

#include "commit.h"

#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COUNTS_MAX = 16,
    ROUNDS_MAX = 101,
    THREADS_MAX = 256,
    CHUNK = 4096, /* calls of a batch */
    AHEAD = 12,   /* operations that the baseline prefetches, as many as the slab hash */
    SEED = 11     /* of the slab hash */
};

typedef enum workload {
    INSERT = 0,
    HIT,
    MISS,
    MIX,
    WORKLOADS
} workload;

static const char *const workload_names[] = {"insert", "hit", "miss", "mix"};

/* ---- the baseline --------------------------------------------------------------------------- */

/* Linear probing over pairs of 64 bits, each written by one compare-and-swap; 0 is an empty slot,
 * so keys begin with 1. */
typedef struct plain {
    uint64_t *places;
    uint64_t count;
} plain;

static uint64_t plain_home(const plain *table, uint32_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 32) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint64_t)((__extension__(unsigned __int128) hash * table->count) >> 64);
}

static bool plain_insert(plain *table, uint32_t key, uint32_t value)
{
    uint64_t at = plain_home(table, key);
    for (;; at = at + 1 == table->count ? 0 : at + 1) {
        /* relaxed: the pair is the only shared data */
        uint64_t there = __atomic_load_n(&table->places[at], __ATOMIC_RELAXED);
        if (!there &&
            __atomic_compare_exchange_n(&table->places[at], &there, key | (uint64_t)value << 32,
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return true;
        }
        if ((uint32_t)there == key) {
            return false;
        }
    }
}

static bool plain_search(const plain *table, uint32_t key, uint32_t *value)
{
    uint64_t at = plain_home(table, key);
    for (;; at = at + 1 == table->count ? 0 : at + 1) {
        uint64_t there = __atomic_load_n(&table->places[at], __ATOMIC_RELAXED); /* as above */
        if (!there || (uint32_t)there == key) {
            *value = (uint32_t)(there >> 32);
            return there != 0;
        }
    }
}

/* The slot stays in use, by a key that is never searched. */
static bool plain_delete(plain *table, uint32_t key)
{
    uint64_t at = plain_home(table, key);
    for (;; at = at + 1 == table->count ? 0 : at + 1) {
        uint64_t there = __atomic_load_n(&table->places[at], __ATOMIC_RELAXED); /* as above */
        if (!there || ((uint32_t)there == key &&
                       __atomic_compare_exchange_n(&table->places[at], &there, UINT32_MAX, false,
                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED))) {
            return there != 0;
        }
    }
}

/* ---- ways ----------------------------------------------------------------------------------- */

typedef struct way {
    const char *name;
    uint32_t path; /* 0: the baseline */
    bool batches;
} way;

static const way ways[] = {
    {"open addressing", 0, false},   {"open addressing, ahead", 0, true},
    {"slab hash, path 1", 1, false}, {"slab hash, path 1, batches", 1, true},
    {"slab hash, path 4", 4, false}, {"slab hash, path 4, batches", 4, true},
};
enum {
    WAYS = sizeof ways / sizeof *ways
};

typedef struct settings {
    unsigned log2, rounds, fill, counts, threads[COUNTS_MAX];
} settings;

static double rates[WORKLOADS][WAYS][ROUNDS_MAX];
static double used[WAYS];

/* From a thread's first call to its last, in seconds of the clock. */
typedef struct stretch {
    double begin, end;
} stretch;

static struct {
    const way *way;
    workload what;
    plain plain;
    ga_slabhash *table;
    uint32_t *keys, *others; /* 2^log2 of each; the value of a key is its complement */
    uint64_t count, threads;
    stretch stretches[THREADS_MAX]; /* each written by its thread, read once that has been joined */
    pthread_barrier_t gate;
} world;

/* Compiled for each workload as a constant, so that no loop tests it. */
#define FOR_EACH_WORKLOAD static inline __attribute__((always_inline))

typedef struct calls {
    workload what;
    const uint32_t *keys, *others;
} calls;

/* The operation and key of call `i`; each key is in one call of a workload. */
FOR_EACH_WORKLOAD ga_slabhash_op op_of(calls c, uint64_t i)
{
    ga_slabhash_op mixed = i % 4 == 0   ? GA_SLABHASH_INSERT
                           : i % 4 == 1 ? GA_SLABHASH_DELETE
                                        : GA_SLABHASH_SEARCH;
    return c.what == MIX ? mixed : c.what == INSERT ? GA_SLABHASH_INSERT : GA_SLABHASH_SEARCH;
}

FOR_EACH_WORKLOAD uint32_t key_of(calls c, uint64_t i)
{
    bool other = c.what == MISS || (c.what == MIX && i % 4 == 0);
    return (other ? c.others : c.keys)[i];
}

/* Whether the result is right: the key found or not, and its value. */
FOR_EACH_WORKLOAD bool is_right(calls c, uint64_t i, bool found, uint32_t value)
{
    bool should = c.what == HIT || (c.what == MIX && i % 4 != 0);
    bool valued = op_of(c, i) == GA_SLABHASH_SEARCH && found;
    return found == should && (!valued || value == ~key_of(c, i));
}

FOR_EACH_WORKLOAD uint64_t work_plain(calls c, uint64_t first, uint64_t end)
{
    uint64_t right = 0;
    for (uint64_t i = first; i < end; i++) {
        uint32_t key = key_of(c, i), value = 0;
        if (world.way->batches && i + AHEAD < end) {
            __builtin_prefetch(&world.plain.places[plain_home(&world.plain, key_of(c, i + AHEAD))]);
        }
        switch (op_of(c, i)) {
        case GA_SLABHASH_INSERT:
            right += is_right(c, i, !plain_insert(&world.plain, key, ~key), 0);
            break;
        case GA_SLABHASH_DELETE:
            right += is_right(c, i, plain_delete(&world.plain, key), 0);
            break;
        default: {
            bool found = plain_search(&world.plain, key, &value);
            right += is_right(c, i, found, value);
        }
        }
    }
    return right;
}

FOR_EACH_WORKLOAD uint64_t work_batches(calls c, uint64_t first, uint64_t end)
{
    static _Thread_local uint32_t keys[CHUNK], values[CHUNK];
    static _Thread_local uint8_t results[CHUNK], ops[CHUNK];
    bool asks = c.what == HIT || c.what == MIX;
    uint64_t right = 0;
    for (uint64_t i = first; i < end; i += CHUNK) {
        uint64_t n = end - i < CHUNK ? end - i : CHUNK;
        ga_slabhash_batch batch = {.count = n,
                                   .keys = (c.what == MISS ? c.others : c.keys) + i,
                                   .values = values,
                                   .results = results,
                                   .found = asks ? values : NULL,
                                   .op = op_of(c, i)};
        for (uint64_t k = 0; (c.what == INSERT || c.what == MIX) && k < n; k++) {
            keys[k] = key_of(c, i + k);
            values[k] = ~keys[k];
            ops[k] = (uint8_t)op_of(c, i + k);
        }
        if (c.what == MIX) {
            batch.keys = keys;
            batch.ops = ops;
        }
        if (ga_slabhash_run(world.table, &batch, NULL) != GA_OK) {
            errx(1, "%s", ga_error_text());
        }
        for (uint64_t k = 0; k < n; k++) {
            right += is_right(c, i + k, results[k] == GA_SLABHASH_FOUND, values[k]);
        }
    }
    return right;
}

FOR_EACH_WORKLOAD uint64_t work_single(calls c, uint64_t first, uint64_t end)
{
    uint64_t right = 0;
    for (uint64_t i = first; i < end; i++) {
        uint32_t key = key_of(c, i);
        ga_slabhash_found was;
        ga_slabhash_op op = op_of(c, i);
        ga_status status = op == GA_SLABHASH_INSERT
                               ? ga_slabhash_insert(world.table, key, ~key, &was)
                           : op == GA_SLABHASH_DELETE ? ga_slabhash_delete(world.table, key, &was)
                                                      : ga_slabhash_search(world.table, key, &was);
        if (status != GA_OK) {
            errx(1, "%s", ga_error_text());
        }
        right += is_right(c, i, was.found, (uint32_t)was.value);
    }
    return right;
}

/* The calls of one thread; how many answers are right. */
FOR_EACH_WORKLOAD uint64_t work_of(workload what, uint64_t first, uint64_t end)
{
    calls c = {.what = what, .keys = world.keys, .others = world.others};
    return !world.way->path     ? work_plain(c, first, end)
           : world.way->batches ? work_batches(c, first, end)
                                : work_single(c, first, end);
}

static uint64_t work_through(uint64_t first, uint64_t end)
{
    switch (world.what) {
    case INSERT:
        return work_of(INSERT, first, end);
    case HIT:
        return work_of(HIT, first, end);
    case MISS:
        return work_of(MISS, first, end);
    default:
        return work_of(MIX, first, end);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *work(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument;
    uint64_t first = world.count * number / world.threads;
    uint64_t end = world.count * (number + 1) / world.threads;
    pthread_barrier_wait(&world.gate);
    double began = now();
    uint64_t right = work_through(first, end);
    world.stretches[number] = (stretch){began, now()};
    if (right != end - first) {
        errx(1, "%s: %s: %llu of %llu answers are wrong", world.way->name,
             workload_names[world.what], (unsigned long long)(end - first - right),
             (unsigned long long)(end - first));
    }
    return NULL;
}

/* From the first call of all threads to the last. */
static double time_taken(void)
{
    stretch whole = world.stretches[0];
    for (uint64_t i = 1; i < world.threads; i++) {
        const stretch *one = &world.stretches[i];
        whole.begin = one->begin < whole.begin ? one->begin : whole.begin;
        whole.end = one->end > whole.end ? one->end : whole.end;
    }
    return whole.end - whole.begin;
}

/* All threads do the workload once; millions of calls a second. */
static double measure(void)
{
    pthread_t threads[THREADS_MAX];
    pthread_barrier_init(&world.gate, NULL, (unsigned)world.threads);
    for (uint64_t i = 0; i < world.threads; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i)) {
            errx(1, "no thread");
        }
    }
    for (uint64_t i = 0; i < world.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&world.gate);
    return (double)world.count / time_taken() / 1e6;
}

static void open_table(const settings *s)
{
    uint64_t places = world.count * 100 / s->fill + 1;
    world.table = NULL;
    if (!world.way->path) {
        world.plain.count = places;
        world.plain.places = calloc(places, sizeof *world.plain.places);
        if (!world.plain.places) {
            errx(1, "no memory");
        }
        memset(world.plain.places, 0, places * sizeof *world.plain.places); /* there */
        return;
    }
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = GA_SLABHASH_MAP32,
                                   .buckets = (uint32_t)(places / 15 + world.way->path),
                                   .path = world.way->path,
                                   .seed = SEED};
    if (ga_slabhash_open(&world.table, &options) != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

static double share_used(void)
{
    ga_slabhash_stats stats;
    if (!world.table) {
        return (double)world.count / (double)world.plain.count;
    }
    if (ga_slabhash_get_stats(world.table, &stats) != GA_OK || stats.size != world.count) {
        errx(1, "a table of another size than was put in");
    }
    return stats.utilisation;
}

static void close_table(void)
{
    free(world.plain.places);
    world.plain.places = NULL;
    ga_slabhash_close(world.table);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *of, unsigned n)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, of, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return sorted[n / 2];
}

static void print_table(const settings *s, unsigned threads)
{
    for (workload what = INSERT; what < WORKLOADS; what++) {
        printf("\n%-6s %u threads, 2^%u keys      M/s    lowest   highest     times   used\n",
               workload_names[what], threads, s->log2);
        for (uint32_t i = 0; i < WAYS; i++) {
            double times[ROUNDS_MAX], low = rates[what][i][0], high = low;
            for (unsigned r = 0; r < s->rounds; r++) {
                double rate = rates[what][i][r];
                times[r] = rate / rates[what][0][r];
                low = rate < low ? rate : low;
                high = rate > high ? rate : high;
            }
            printf("  %-28s %8.2f  %8.2f  %8.2f  %8.2f   %.2f\n", ways[i].name,
                   median(rates[what][i], s->rounds), low, high, median(times, s->rounds), used[i]);
        }
    }
}

static void run(const settings *s, unsigned threads)
{
    world.threads = threads;
    for (unsigned r = 0; r < s->rounds; r++) {
        for (uint32_t turn = 0; turn < WAYS; turn++) {
            uint32_t i = (turn + r) % WAYS;
            world.way = &ways[i];
            open_table(s);
            for (world.what = INSERT; world.what < WORKLOADS; world.what++) {
                used[i] = world.what == MIX ? share_used() : used[i];
                rates[world.what][i][r] = measure();
            }
            close_table();
        }
    }
    print_table(s, threads);
}

static unsigned number(const char *text, unsigned least, unsigned max)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (end == text || (*end && *end != ',') || n < least || n > max) {
        errx(2, "\"%s\": expected a number from %u to %u", text, least, max);
    }
    return (unsigned)n;
}

static void read_arguments(settings *s, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc + 1; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--keys")) {
            s->log2 = number(value, 4, 28);
        } else if (!strcmp(argv[i], "--rounds")) {
            s->rounds = number(value, 1, ROUNDS_MAX);
        } else if (!strcmp(argv[i], "--fill")) {
            s->fill = number(value, 1, 95);
        } else if (!strcmp(argv[i], "--threads")) {
            for (s->counts = 0; value && s->counts < COUNTS_MAX; s->counts++) {
                s->threads[s->counts] = number(value, 1, THREADS_MAX);
                value = strchr(value, ',');
                value = value ? value + 1 : NULL;
            }
        } else {
            errx(2, "usage: bench-slabhash [--keys LOG2] [--threads N,N] [--rounds N] "
                    "[--fill PERCENT]");
        }
    }
}

int main(int argc, char **argv)
{
    settings s = {.log2 = 20, .rounds = 5, .fill = 60, .counts = 1, .threads = {1}};
    read_arguments(&s, argc, argv);
    world.count = UINT64_C(1) << s.log2;
    world.keys = malloc(2 * world.count * sizeof *world.keys);
    if (!world.keys) {
        errx(1, "no memory");
    }
    world.others = world.keys + world.count;
    for (uint64_t i = 0; i < 2 * world.count; i++) {
        world.keys[i] = (uint32_t)(i + 1) * UINT32_C(2654435761) & 0x7fffffff;
    }
    printf("commit %s, %u%% of the places for keys filled, %u rounds, seed %d\n", GA_BENCH_COMMIT,
           s.fill, s.rounds, SEED);
    for (unsigned i = 0; i < s.counts; i++) {
        run(&s, s.threads[i]);
    }
    free(world.keys);
    return 0;
}
