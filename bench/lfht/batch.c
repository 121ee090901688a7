/* SPDX-License-Identifier: MIT
 *
 * Batches of calls of the lock-free hash trie map beside single calls, by one thread or several:
 *
 *     bench-lfht-batch [LOG2 [THREADS [ROUNDS [HEAP [VARIANT]]]]]       22, 1, 5, slab, FHPA
 *
 * 2^LOG2 keys, scattered. "one" are single calls, "batch" calls of 512 keys each (of 512 calls in
 * the mixed workload), "counts" single calls of a map that counts (lfht-reclamation-2022, Figure
 * 5.1); they take turns in every round. The figure is the median over the rounds, in millions of
 * keys a second, then the lowest and the highest; "times" is the ratio to "one", the median of the
 * same rounds. Every result is checked. "build" fills an empty map by one call of one thread; its
 * "times" is relative to single insertions.
 */
#include <gpualloc/lfht.h>

#include "commit.h"

#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 512,
    THREADS_MAX = 256,
    ROUNDS_MAX = 101
};

typedef enum workload {
    INSERT = 0,
    HIT,
    MISS,
    MIX, /* a quarter insertions of others, a quarter removals, half lookups */
    LOADS
} workload;

typedef enum manner {
    ONE = 0,
    BATCHED,
    COUNTED, /* one at a time, in a map with GA_LFHT_COUNT */
    WAYS
} manner;

static const char *const way_names[] = {"one", "batch", "counts"};
static const char *const load_names[] = {"insert", "hit", "miss", "mix"};

static struct {
    ga_heap *heap;
    ga_lfht *map;
    uint64_t *keys; /* twice as many as go in */
    uint64_t count;
    unsigned threads, rounds;
    workload load;
    manner way;
    ga_lfht_variant variant;
    uint64_t wrong; /* relaxed: a sum */
    pthread_barrier_t together;
    double began[THREADS_MAX], ended[THREADS_MAX]; /* by the threads' own clocks */
} bench;

static double rates[LOADS][WAYS][ROUNDS_MAX], builds[ROUNDS_MAX];

static uint64_t spread(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void need(ga_status status)
{
    if (status != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

/* Keys in the order of `gpualloc bench lfht mix`. */
static ga_lfht_call mixed(const uint64_t *key, uint64_t i)
{
    switch (i % 4) {
    case 0:
        return (ga_lfht_call){GA_LFHT_INSERT, key[bench.count], key[bench.count], 0, {0}};
    case 1:
        return (ga_lfht_call){GA_LFHT_REMOVE, *key, 0, 0, {0}};
    default:
        return (ga_lfht_call){GA_LFHT_LOOKUP, *key, 0, 0, {0}};
    }
}

/* Number of wrong results of n calls. */
static uint64_t mixed_batch_of(const uint64_t *keys, uint64_t n)
{
    ga_lfht_call calls[BATCH];
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        calls[i] = mixed(&keys[i], i);
    }
    if (bench.way == BATCHED) {
        need(ga_lfht_batch(bench.map, calls, n, NULL));
    }
    for (uint64_t i = 0; i < n; i++) {
        ga_lfht_call *c = &calls[i];
        if (bench.way != BATCHED && c->op == GA_LFHT_LOOKUP) {
            need(ga_lfht_lookup(bench.map, c->key, &c->was));
        } else if (bench.way != BATCHED && c->op == GA_LFHT_REMOVE) {
            need(ga_lfht_remove(bench.map, c->key, &c->was));
        } else if (bench.way != BATCHED) {
            need(ga_lfht_insert(bench.map, c->key, c->value, &c->was));
        }
        wrong += c->was.found != (c->op != GA_LFHT_INSERT);
    }
    return wrong;
}

/* Number of keys with a wrong result, of n. */
static uint64_t batch_of(const uint64_t *keys, uint64_t n)
{
    if (bench.load == MIX) {
        return mixed_batch_of(keys, n);
    }
    ga_lfht_found found[BATCH];
    uint64_t wrong = 0;
    bool batched = bench.way == BATCHED;
    if (bench.load == INSERT && batched) {
        need(ga_lfht_insert_batch(bench.map, keys, keys, n, found, NULL));
    } else if (batched) {
        need(ga_lfht_lookup_batch(bench.map, keys, n, found));
    }
    for (uint64_t i = 0; i < n; i++) {
        if (bench.load == INSERT && !batched) {
            need(ga_lfht_insert(bench.map, keys[i], keys[i], &found[i]));
        } else if (!batched) {
            need(ga_lfht_lookup(bench.map, keys[i], &found[i]));
        }
        wrong += found[i].found != (bench.load == HIT);
    }
    return wrong;
}

static void *run(void *context)
{
    uint64_t number = (uint64_t)(uintptr_t)context, wrong = 0;
    uint64_t first = bench.count * number / bench.threads;
    uint64_t last = bench.count * (number + 1) / bench.threads;
    const uint64_t *keys = bench.keys + (bench.load == MISS ? bench.count : 0);
    pthread_barrier_wait(&bench.together);
    bench.began[number] = now();
    for (uint64_t i = first; i < last; i += BATCH) {
        wrong += batch_of(keys + i, last - i < BATCH ? last - i : BATCH);
    }
    bench.ended[number] = now();
    __atomic_fetch_add(&bench.wrong, wrong, __ATOMIC_RELAXED); /* relaxed: a sum */
    return NULL;
}

static void open_map(manner way)
{
    ga_lfht_options options = {.options_size = sizeof options,
                               .flags = way == COUNTED ? GA_LFHT_COUNT : 0,
                               .variant = bench.variant,
                               .heap = bench.heap,
                               .expected = bench.count};
    bench.way = way;
    need(ga_lfht_open(&bench.map, &options));
}

static double measure(workload load)
{
    pthread_t threads[THREADS_MAX];
    bench.load = load;
    for (uintptr_t i = 0; i < bench.threads; i++) {
        if (pthread_create(&threads[i], NULL, run, (void *)i)) {
            err(1, "a thread");
        }
    }
    double began = 0, ended = 0;
    for (unsigned i = 0; i < bench.threads; i++) {
        pthread_join(threads[i], NULL);
        began = i && began < bench.began[i] ? began : bench.began[i];
        ended = ended > bench.ended[i] ? ended : bench.ended[i];
    }
    return (double)bench.count / (ended - began) * 1e-6;
}

static void round_of(unsigned round)
{
    for (unsigned turn = 0; turn < WAYS; turn++) {
        unsigned way_now = (turn + round) % WAYS;
        open_map((manner)way_now);
        for (unsigned load = INSERT; load < LOADS; load++) {
            rates[load][way_now][round] = measure((workload)load);
        }
        need(ga_lfht_close(bench.map));
    }
    open_map(ONE);
    double begin = now();
    need(ga_lfht_build(bench.map, bench.keys, bench.keys, bench.count));
    builds[round] = (double)bench.count / (now() - begin) * 1e-6;
    bench.wrong += ga_lfht_size(bench.map) != bench.count;
    need(ga_lfht_close(bench.map));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print(const char *what, const char *how, const double *values, const double *base)
{
    double own[ROUNDS_MAX], ratios[ROUNDS_MAX];
    for (unsigned i = 0; i < bench.rounds; i++) {
        own[i] = values[i];
        ratios[i] = values[i] / base[i];
    }
    double middle = median(own, bench.rounds);
    printf("%-7s %-6s %8.2f %8.2f %8.2f %7.2f\n", what, how, middle, own[0], own[bench.rounds - 1],
           median(ratios, bench.rounds));
}

static unsigned number(int argc, char **argv, int which, unsigned usual, unsigned most)
{
    char *end = NULL;
    unsigned long value = argc > which ? strtoul(argv[which], &end, 10) : usual;
    if (argc > which && (*end || value < 1 || value > most)) {
        errx(2, "\"%s\": expected a number from 1 to %u", argv[which], most);
    }
    return (unsigned)value;
}

static ga_lfht_variant variant_of(const char *name)
{
    ga_lfht_variant variant = 0;
    while (variant < GA_LFHT_VARIANT_COUNT && strcmp(name, ga_lfht_variant_text(variant)) != 0) {
        variant++;
    }
    if (variant == GA_LFHT_VARIANT_COUNT) {
        errx(2, "\"%s\": expected a variant such as FHPA", name);
    }
    return variant;
}

int main(int argc, char **argv)
{
    unsigned log2 = number(argc, argv, 1, 22, 28);
    const char *heap = argc > 4 ? argv[4] : "slab";
    bench.threads = number(argc, argv, 2, 1, THREADS_MAX);
    bench.rounds = number(argc, argv, 3, 5, ROUNDS_MAX);
    bench.variant = variant_of(argc > 5 ? argv[5] : "FHPA");
    bench.count = UINT64_C(1) << log2;
    bench.keys = malloc(2 * bench.count * sizeof *bench.keys);
    if (!bench.keys) {
        err(1, "keys");
    }
    for (uint64_t i = 0; i < 2 * bench.count; i++) {
        bench.keys[i] = spread(i);
    }
    need(ga_heap_open(&bench.heap, GA_PLACE_HOST, 0, heap));
    pthread_barrier_init(&bench.together, NULL, bench.threads);
    for (unsigned round = 0; round < bench.rounds; round++) {
        round_of(round);
    }
    if (bench.wrong) {
        errx(1, "%llu wrong answers", (unsigned long long)bench.wrong);
    }
    printf("2^%u keys, %u threads, %s, nodes from %s, %u rounds, commit %s\n", log2, bench.threads,
           ga_lfht_variant_text(bench.variant), heap, bench.rounds, GA_BENCH_COMMIT);
    printf("%-7s %-6s %8s %8s %8s %7s\n", "", "", "M/s", "lowest", "highest", "times");
    for (unsigned load = INSERT; load < LOADS; load++) {
        for (unsigned i = 0; i < WAYS; i++) {
            print(load_names[load], way_names[i], rates[load][i], rates[load][ONE]);
        }
    }
    print("build", "", builds, rates[INSERT][ONE]);
    need(ga_heap_close(bench.heap));
    free(bench.keys);
    return 0;
}
