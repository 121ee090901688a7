/* SPDX-License-Identifier: MIT
 *
 * Lock-freedom: threads that work on a map are stopped at random places, by a signal whose handler
 * waits. Another thread then makes calls of every kind on the same few keys, and all of them end.
 * If a call waited for a stopped thread, the alarm would end the program, as it does if lookups
 * leave a removal that a stopped thread has begun (lfht_removal_not_helped). In a deep map, of
 * INLINE with one pair in a line, hundreds of keys come and go, so that nodes are rebuilt while
 * others below them are rebuilt, too. No thread may leave that to the thread that began it
 * (lfht_rebuild_above_not_helped). The nodes come from slabs, because the locks of other heaps
 * could be held by a stopped thread. The heap grows beforehand to the size that it will need. No
 * thread is stopped inside malloc, which allocates a domain's lists.
 */
#include "libc_calls.h"
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/random.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    DEEP = GA_LFHT_VARIANT_COUNT,
    VICTIMS = 3,
    KEYS = 12,
    CALLS = 60,          /* while some are stopped */
    FILL = 600,          /* keys that come and go in a deep map */
    FILL_STOPPED = 1500, /* while some are stopped */
    STOPS = 3,           /* stops for each map, */
    STOPS_DEEP = 30,     /* and a deep one */
    QUOTA = 3000,        /* calls of a victim that may change a map which frees nothing */
    BEFORE = 30000       /* blocks of each size that the heap allocates beforehand */
};

static struct {
    ga_heap *heap;
    ga_lfht *map;
    pthread_t victims[VICTIMS];
    uint32_t stopped; /* seq_cst: victims that wait */
    uint32_t held;    /* seq_cst: the threads have to wait */
    uint32_t working; /* seq_cst: victims that have begun */
    uint32_t over;    /* relaxed: read until it is seen */
    bool frees;       /* the variant frees removed nodes */
    bool deep;
    uint64_t calls, stops;
} world;

/* Without yielding: on a busy machine a yield takes long, and the other threads would not get the
 * time. */
static void wait_a_little(void)
{
    nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void stop_here(void)
{
    __atomic_add_fetch(&world.stopped, 1, __ATOMIC_SEQ_CST); /* Pairs with the wait in stop(). */
    /* Pairs with the store in go_on(). */
    while (__atomic_load_n(&world.held, __ATOMIC_SEQ_CST)) {
        wait_a_little();
    }
    __atomic_sub_fetch(&world.stopped, 1, __ATOMIC_SEQ_CST); /* Pairs with the wait in go_on(). */
}

static void on_signal(int number)
{
    (void)number;
    if (!libc_calls_postpone()) {
        stop_here();
    }
}

static void give_up(int number)
{
    static const char text[] = "a call waits for a thread that is stopped\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? 1 : 2);
}

/* Three hashes, in two paths of the trie. */
static uint64_t coarse(void *context, uint64_t key)
{
    (void)context;
    return key % 3 * (UINT64_MAX / 2);
}

static uint64_t itself(void *context, uint64_t key)
{
    (void)context;
    return key;
}

static void call_together(uint64_t *random)
{
    ga_lfht_call calls[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        calls[i] = (ga_lfht_call){.op = (uint32_t)random_below(random, GA_LFHT_REMOVE + 1),
                                  .key = random_below(random, KEYS)};
    }
    NEED(ga_lfht_batch(world.map, calls, KEYS, NULL) == GA_OK);
}

static void call(uint64_t *random)
{
    uint64_t key = random_below(random, KEYS), value = random_next(random);
    ga_lfht_found was;
    switch (random_below(random, 9)) {
    case 0:
        NEED(ga_lfht_upsert(world.map, key, value, &was) == GA_OK);
        break;
    case 1:
        NEED(ga_lfht_replace(world.map, key, value, &was) == GA_OK);
        break;
    case 2:
    case 3:
        NEED(ga_lfht_insert(world.map, key, value, &was) == GA_OK);
        break;
    case 8:
        call_together(random);
        break;
    case 4:
    case 5:
    case 6:
        NEED(ga_lfht_remove(world.map, key, &was) == GA_OK);
        break;
    default:
        NEED(ga_lfht_lookup(world.map, key, &was) == GA_OK);
    }
}

/* Insert `keys` keys, and remove them. */
static void fill_and_empty(uint64_t *random, uint32_t keys)
{
    uint64_t again = *random;
    for (uint32_t i = 0; i < keys; i++) {
        NEED(ga_lfht_insert(world.map, random_next(random), i, NULL) == GA_OK);
    }
    for (uint32_t i = 0; i < keys; i++) {
        NEED(ga_lfht_remove(world.map, random_next(&again), NULL) == GA_OK);
    }
}

static void *work(void *number)
{
    uint64_t random = (uintptr_t)number, calls = 0;
    __atomic_add_fetch(&world.working, 1, __ATOMIC_SEQ_CST); /* Pairs with the wait in try_map(). */
    while (!__atomic_load_n(&world.over, __ATOMIC_RELAXED)) {
        if (world.deep) {
            fill_and_empty(&random, FILL);
        } else if (world.frees || ++calls < QUOTA) {
            call(&random);
        } else {
            ga_lfht_found was;
            NEED(ga_lfht_lookup(world.map, random_below(&random, KEYS), &was) == GA_OK);
        }
    }
    return NULL;
}

static void stop(uint32_t count)
{
    __atomic_store_n(&world.held, 1, __ATOMIC_SEQ_CST); /* Pairs with the load in stop_here(). */
    for (uint32_t i = 0; i < count; i++) {
        NEED(pthread_kill(world.victims[i], SIGUSR1) == 0);
    }
    /* Pairs with the additions in stop_here(). */
    while (__atomic_load_n(&world.stopped, __ATOMIC_SEQ_CST) < count) {
        wait_a_little();
    }
}

static void go_on(void)
{
    __atomic_store_n(&world.held, 0, __ATOMIC_SEQ_CST); /* Pairs with the load in stop_here(). */
    /* Pairs with the subtractions in stop_here(). */
    while (__atomic_load_n(&world.stopped, __ATOMIC_SEQ_CST) > 0) {
        wait_a_little();
    }
}

static bool see(void *context, uint64_t key, uint64_t value)
{
    (void)value;
    ++*(uint64_t *)context;
    return key < KEYS;
}

static void round_of(uint64_t *random)
{
    uint32_t count = world.deep ? VICTIMS : 1 + (uint32_t)random_below(random, VICTIMS);
    for (uint64_t i = random_below(random, 400); i > 0; i--) {
        call(random); /* so that they are somewhere else */
    }
    stop(count);
    alarm(GA_PLANTED_ANY ? 5 : 100); /* seconds for those */
    for (uint32_t i = 0; i < CALLS; i++) {
        call(random);
    }
    if (world.deep) {
        fill_and_empty(random, FILL_STOPPED);
    }
    world.calls += world.deep ? CALLS + 2 * (uint64_t)FILL_STOPPED : CALLS;
    uint64_t seen = 0;
    NEED(ga_lfht_each(world.map, see, &seen) == GA_OK);
    go_on();
    world.stops++;
}

/* The maps alternate: one for each variant, and at last a deep one. A planted bug is in some of
 * them. */
static uint64_t first_map(void)
{
    return GA_PLANTED(lfht_rebuild_above_not_helped) ? DEEP : GA_LFHT_FHPA;
}

static uint64_t count_maps(void)
{
    uint64_t last = GA_PLANTED(lfht_removal_not_helped) ? GA_LFHT_FHP : DEEP;
    return last - first_map() + 1;
}

static void try_map(uint64_t number)
{
    uint64_t random = number;
    uint64_t which = first_map() + number % count_maps();
    world.deep = which == DEEP;
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = world.deep ? GA_LFHT_INLINE : (ga_lfht_variant)which,
                               .chunk = 1 + (uint32_t)random_below(&random, 3),
                               .chain = 1 + (uint32_t)random_below(&random, 2),
                               .root = 1,
                               .batch = 32,
                               .hash = random_below(&random, 3) ? NULL : coarse,
                               .heap = world.heap};
    if (world.deep) {
        options.chain = 1;
        options.chunk = 4;
        options.hash = itself;
    }
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
    world.over = 0;
    world.working = 0;
    world.frees = options.variant == GA_LFHT_FHP || options.variant == GA_LFHT_FHPA ||
                  options.variant == GA_LFHT_INLINE;
    for (uintptr_t i = 0; i < VICTIMS; i++) {
        NEED(pthread_create(&world.victims[i], NULL, work, (void *)(i + 1)) == 0);
    }
    /* The start of the threads is not under test. Pairs with the additions in work(). */
    while (__atomic_load_n(&world.working, __ATOMIC_SEQ_CST) < VICTIMS) {
        wait_a_little();
    }
    uint32_t stops = world.deep ? STOPS_DEEP : STOPS;
    do {
        round_of(&random);
    } while (--stops && stress_goes_on());
    __atomic_store_n(&world.over, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < VICTIMS; i++) {
        pthread_join(world.victims[i], NULL);
    }
    NEED(ga_lfht_close(world.map) == GA_OK);
}

/* Grow the heap to the size that it will need. */
static void grow_heap(void)
{
    static void *blocks[8 * BEFORE];
    for (uint32_t i = 0; i < 8 * BEFORE; i++) {
        NEED(ga_alloc(world.heap, 16 * (1 + i % 8), 0, &blocks[i]) == GA_OK);
    }
    for (uint32_t i = 0; i < 8 * BEFORE; i++) {
        NEED(ga_free(world.heap, blocks[i]) == GA_OK);
    }
    for (uint32_t i = 0; i < BEFORE; i++) { /* INLINE's nodes */
        NEED(ga_alloc(world.heap, (size_t)128 << i % 5, 128, &blocks[i]) == GA_OK);
    }
    for (uint32_t i = 0; i < BEFORE; i++) {
        NEED(ga_free(world.heap, blocks[i]) == GA_OK);
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    uint64_t maps = 0;
    stress_begin(argc, argv);
    NEED(sigaction(SIGUSR1, &action, NULL) == 0 && signal(SIGALRM, give_up) != SIG_ERR);
    libc_calls_watch(stop_here);
    world.heap = stress_open("slab:keep=all");
    grow_heap();
    while (stress_goes_on() || maps < count_maps()) {
        try_map(maps++);
    }
    printf("%llu maps, %llu stops, %llu calls meanwhile\n", (unsigned long long)maps,
           (unsigned long long)world.stops, (unsigned long long)world.calls);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
