/* SPDX-License-Identifier: MIT
 *
 * Threads that claim, touch and give back, each by itself.
 */
#include "ways.h"

#include "slab/shape.h"
#include "slab/typed.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    BATCH = 32,
    ROUNDS = 32, /* batches of a chunk, which lies between two looks at the phase */
    CHUNK = BATCH * ROUNDS,
    STRIDE = 389 /* odd: multiples of it, modulo CHUNK, are all units in another order */
};

typedef struct slab_worker {
    pthread_t thread;
    double pairs, wall, cpu; /* counted, and the seconds that they took */
    ga_slab_heap *heap;
    uint32_t near;
    ga_slab_hand hand;
    ga_slab_resident resident;
} worker;

/* ---- chunks ------------------------------------------------------------------------------- */

/* Write to a unit, so that its memory is there and no compiler drops the pair. False for NULL. */
static inline bool touch(void *unit, uint64_t value)
{
    if (!unit) {
        return false;
    }
    *(volatile uint64_t *)unit = value;
    return true;
}

static inline bool touch_all(void *const *units, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (!touch(units[i], i)) {
            return false;
        }
    }
    return true;
}

/* A function for each pattern; in all of them a chunk is CHUNK pairs. */
#define DEFINE_CHUNKS(name, CLAIM, RELEASE)                                                        \
    static bool name##_batch(worker *own)                                                          \
    {                                                                                              \
        void *units[BATCH];                                                                        \
        (void)own;                                                                                 \
        for (unsigned n = 0; n < ROUNDS; n++) {                                                    \
            for (unsigned i = 0; i < BATCH; i++) {                                                 \
                units[i] = CLAIM;                                                                  \
            }                                                                                      \
            if (!touch_all(units, BATCH)) {                                                        \
                return false;                                                                      \
            }                                                                                      \
            for (unsigned i = 0; i < BATCH; i++) {                                                 \
                RELEASE(units[i]);                                                                 \
            }                                                                                      \
        }                                                                                          \
        return true;                                                                               \
    }                                                                                              \
    static bool name##_single(worker *own)                                                         \
    {                                                                                              \
        (void)own;                                                                                 \
        for (unsigned n = 0; n < CHUNK; n++) {                                                     \
            void *unit = CLAIM;                                                                    \
            if (!touch(unit, n)) {                                                                 \
                return false;                                                                      \
            }                                                                                      \
            RELEASE(unit);                                                                         \
        }                                                                                          \
        return true;                                                                               \
    }                                                                                              \
    static bool name##_held(worker *own)                                                           \
    {                                                                                              \
        void *units[CHUNK];                                                                        \
        (void)own;                                                                                 \
        for (unsigned i = 0; i < CHUNK; i++) {                                                     \
            units[i * STRIDE % CHUNK] = CLAIM;                                                     \
        }                                                                                          \
        if (!touch_all(units, CHUNK)) {                                                            \
            return false;                                                                          \
        }                                                                                          \
        for (unsigned i = 0; i < CHUNK; i++) {                                                     \
            RELEASE(units[i]);                                                                     \
        }                                                                                          \
        return true;                                                                               \
    }

#define HAND_RELEASE(unit)     (void)ga_slab_hand_release(&own->hand, unit)
#define RESIDENT_RELEASE(unit) ga_slab_resident_release(own->heap, unit)

DEFINE_CHUNKS(malloc, malloc(SLAB_UNIT), free)
DEFINE_CHUNKS(hand, ga_slab_hand_claim(&own->hand), HAND_RELEASE)
DEFINE_CHUNKS(resident, ga_slab_resident_claim(own->heap, &own->resident), RESIDENT_RELEASE)

static bool batch_batch(worker *own)
{
    void *units[BATCH];
    for (unsigned n = 0; n < ROUNDS; n++) {
        if (ga_slab_claim_batch(own->heap, &own->near, BATCH, units) != BATCH ||
            !touch_all(units, BATCH)) {
            return false;
        }
        ga_slab_release_batch(own->heap, &own->near, BATCH, units);
    }
    return true;
}

const char *const slab_pattern_names[SLAB_PATTERNS] = {"batch", "single", "held"};
const char *const slab_pattern_texts[SLAB_PATTERNS] = {
    "32 units claimed, touched, given back",
    "one unit claimed, touched, given back",
    "1024 units claimed, touched, given back, no two of a word in a row",
};

const slab_way slab_ways[SLAB_WAYS] = {
    {"slab batch", {batch_batch, NULL, NULL}, NULL, NULL, {3, 0, 0}},
    {"slab hand", {hand_batch, hand_single, hand_held}, NULL, NULL, {0, 1.5, 0}},
    {"slab resident", {resident_batch, resident_single, resident_held}, NULL, NULL, {0, 0, 0}},
    {"system", {malloc_batch, malloc_single, malloc_held}, NULL, NULL, {0, 0, 0}},
    {"jemalloc",
     {malloc_batch, malloc_single, malloc_held},
     "libjemalloc.so.2",
     "mallctl",
     {0, 0, 0}},
    {"mimalloc",
     {malloc_batch, malloc_single, malloc_held},
     "libmimalloc.so.2",
     "mi_version",
     {0, 0, 0}},
};

bool slab_way_is_there(const slab_way *way)
{
    return !way->symbol || dlsym(RTLD_DEFAULT, way->symbol);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* One super block with light addressing, and a row of counts for each thread. */
static bool make_heap(ga_slab_heap *heap, unsigned threads)
{
    ga_slab_shape shape = {
        .unit = SLAB_UNIT, .supers = 1, .spread = GA_SLAB_SPREAD_HOST, .light = true};
    while (1u << shape.super_bits < threads * 32u) {
        shape.super_bits++;
    }
    ga_slab_heap_shape(heap, &shape);
    heap->rows = map(ga_slab_super_rows_bytes(&shape));
    heap->units = map(ga_slab_super_bytes(&shape));
    heap->free = map(ga_slab_counts_bytes(&shape));
    if (!heap->rows || !heap->units || !heap->free) {
        return false;
    }
    for (uint32_t i = 0; i < 1u << shape.super_bits; i++) {
        heap->free[i] = GA_SLAB_BLOCK_UNITS;
    }
    heap->super_count = 1;
    heap->words = GA_SLAB_ROW_WORDS << shape.super_bits;
    return true;
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Ahead of the threads: 0 warming up, 1 counting, 2 over. */
static uint32_t phase;
static pthread_barrier_t all_here;
static bool (*chunk)(worker *);

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static void *work(void *argument)
{
    worker *own = argument;
    bool well = true;
    void *volatile kept = malloc(SLAB_UNIT); /* nobody's last block goes with each single one */
    pthread_barrier_wait(&all_here);
    while (well && ga_load_relaxed(&phase) == 0) { /* relaxed: when, not what */
        well = chunk(own);
    }
    double wall = seconds_of(CLOCK_MONOTONIC);
    double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    do { /* one at least: on a busy machine the phase may be over before a thread is there */
        well = well && chunk(own);
        own->pairs += CHUNK;
    } while (well && ga_load_relaxed(&phase) == 1); /* relaxed: the same */
    own->wall = seconds_of(CLOCK_MONOTONIC) - wall;
    own->cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    free(kept);
    return well ? own : NULL;
}

static void begin_worker(worker *own, unsigned number, ga_slab_heap *heap)
{
    own->heap = heap;
    own->near = ga_slab_word_apart(heap, number);
    ga_slab_hand_begin(&own->hand, heap, number);
    ga_slab_resident_start(heap, number, &own->resident);
}

/* Let the threads run, and add up. */
static bool run_workers(worker *workers, unsigned threads, double seconds, slab_cost *cost)
{
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double pairs = 0, rate = 0, cpu = 0;
    bool well = true;
    pthread_barrier_wait(&all_here);
    sleep_for(seconds / 4);
    ga_store_relaxed(&phase, 1); /* relaxed: they see it soon */
    sleep_for(seconds);
    ga_store_relaxed(&phase, 2); /* relaxed: the same */
    for (unsigned i = 0; i < threads; i++) {
        void *ended;
        pthread_join(workers[i].thread, &ended);
        well = well && ended;
        rate += workers[i].pairs / workers[i].wall;
        cpu += workers[i].cpu;
        pairs += workers[i].pairs;
    }
    cost->wall = 1e9 * (threads < cores ? threads : cores) / rate;
    cost->cpu = 1e9 * cpu / pairs;
    return well;
}

bool slab_way_measure(const slab_way *way, slab_pattern pattern, unsigned threads, double seconds,
                      slab_cost *cost)
{
    static ga_slab_heap heap;
    static worker workers[SLAB_THREADS_MAX];
    chunk = way->chunk[pattern];
    if (!make_heap(&heap, threads)) {
        return false;
    }
    pthread_barrier_init(&all_here, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        begin_worker(&workers[i], i, &heap);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
            return false;
        }
    }
    return run_workers(workers, threads, seconds, cost);
}
