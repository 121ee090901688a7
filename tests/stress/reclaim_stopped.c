/* SPDX-License-Identifier: MIT
 *
 * Threads that are stopped at random points, by a signal whose handler waits: inside a protected
 * section, a retirement, a scan, on the way in or out; but not inside malloc. Each of the other
 * threads must make progress, and no more objects may wait than the bound permits: every writer has
 * exactly that number, and would run out if the bound did not hold.
 */
#include <gpualloc/reclaim.h>

#include "libc_calls.h"
#include "stress.h"

#include "support/random.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

enum {
    CELLS = 3,
    WRITERS = 2,
    READERS = 2,
    THREADS = WRITERS + READERS,
    SLOTS = 2,
    BATCH = 16,
    MEMBERSHIPS = 2 * THREADS,
    BOUND = MEMBERSHIPS * (BATCH + MEMBERSHIPS * SLOTS),
    POOL = BOUND + CELLS + THREADS, /* each thread may be freeing one */
    STEPS = 2000,                   /* steps of each of the other threads, while one is stopped */
    LIVE = 0x5a5a,
    FREE = 0xa5a5
};

typedef struct object {
    uint32_t state; /* plain: LIVE or FREE */
    uint32_t home;
    struct object *next;
} __attribute__((aligned(64))) object;

typedef struct worker {
    _Alignas(128) uint64_t steps; /* relaxed: a count that its thread alone writes */
    object *returned;             /* a stack of objects that other threads freed */
    pthread_t thread;
} worker;

static worker workers[THREADS];
static object pools[WRITERS][POOL];
static ga_hazard_word cells[CELLS];
static ga_domain *domain;
static bool ended;             /* relaxed: seen eventually */
static uint32_t hold, holding; /* the thread is to wait in its signal handler; it waits */
static _Thread_local object *spare;

/* ---- objects ------------------------------------------------------------------------------- */

static void free_object(void *context, void *retired)
{
    object *o = retired;
    object **home = &workers[o->home].returned;
    (void)context;
    NEED(o->state == LIVE);
    o->state = FREE;
    o->next = __atomic_load_n(home, __ATOMIC_RELAXED); /* relaxed: the exchange checks it */
    /* Release. Pairs with the exchange in make(): the object's contents. */
    while (
        !__atomic_compare_exchange_n(home, &o->next, o, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

static object *make(size_t number)
{
    if (!spare) {
        /* Acquire. Pairs with the exchange in free_object(). */
        spare = __atomic_exchange_n(&workers[number].returned, NULL, __ATOMIC_ACQUIRE);
    }
    object *o = spare;
    stress_need(o != NULL, "more objects wait than the bound says");
    spare = o->next;
    NEED(o->state == FREE);
    o->state = LIVE;
    return o;
}

static void fill(uint32_t cell, object *o)
{
    ga_hazards *mine;
    NEED(ga_domain_join(domain, &mine) == GA_OK);
    /* Acquire and release. Pairs with ga_hazard_protect(): the object's contents are visible. */
    object *old = (object *)__atomic_exchange_n(&cells[cell], (uintptr_t)o, __ATOMIC_ACQ_REL);
    if (old) {
        NEED(ga_hazard_retire(mine, old, 0, free_object, NULL) == GA_OK);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

static void wait_here(void)
{
    const struct timespec moment = {.tv_nsec = 20000};
    __atomic_store_n(&holding, 1, __ATOMIC_RELEASE);   /* Pairs with the load in stop_one(). */
    while (__atomic_load_n(&hold, __ATOMIC_ACQUIRE)) { /* Pairs with the stores there. */
        nanosleep(&moment, NULL);
    }
    __atomic_store_n(&holding, 0, __ATOMIC_RELEASE); /* Pairs with the load in stop_one(). */
}

static void on_signal(int number)
{
    (void)number;
    if (!libc_calls_postpone()) {
        wait_here();
    }
}

static void read_one(uint32_t cell)
{
    ga_hazards *mine;
    NEED(ga_domain_join(domain, &mine) == GA_OK);
    const volatile object *o =
        (const volatile object *)ga_hazard_protect(mine, cell % SLOTS, &cells[cell], 0);
    for (int i = 0; o && i < 10; i++) {
        NEED(o->state == LIVE);
    }
    ga_hazard_clear(mine, cell % SLOTS);
}

static void *work(void *context)
{
    worker *me = context;
    size_t number = (size_t)(me - workers);
    uint64_t random = number;
    while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) { /* relaxed: seen eventually */
        uint32_t cell = (uint32_t)random_below(&random, CELLS);
        if (number < WRITERS) {
            fill(cell, make(number));
        } else {
            read_one(cell);
        }
        if (random_below(&random, 64) == 0) {
            ga_domain_leave(domain);
        }
        __atomic_store_n(&me->steps, me->steps + 1, __ATOMIC_RELAXED); /* relaxed: a count */
    }
    return NULL;
}

static uint64_t steps_of(const worker *which)
{
    return __atomic_load_n(&which->steps, __ATOMIC_RELAXED); /* relaxed: a count */
}

static void await_steps(const worker *but)
{
    uint64_t goal[THREADS];
    for (int i = 0; i < THREADS; i++) {
        goal[i] = steps_of(&workers[i]) + STEPS;
    }
    for (int i = 0; i < THREADS; i++) {
        while (&workers[i] != but && steps_of(&workers[i]) < goal[i]) {
            sched_yield();
        }
    }
}

static void stop_one(worker *which)
{
    __atomic_store_n(&hold, 1, __ATOMIC_RELEASE); /* Pairs with the load in wait_here(). */
    NEED(pthread_kill(which->thread, SIGUSR1) == 0);
    while (!__atomic_load_n(&holding, __ATOMIC_ACQUIRE)) { /* Pairs with its store. */
        sched_yield();
    }
    await_steps(which);
    __atomic_store_n(&hold, 0, __ATOMIC_RELEASE);         /* Pairs with the load in wait_here(). */
    while (__atomic_load_n(&holding, __ATOMIC_ACQUIRE)) { /* Pairs with its store. */
        sched_yield();
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void begin(uint32_t flags)
{
    ga_domain_options options = {
        .options_size = sizeof options, .slots = SLOTS, .batch = BATCH, .flags = flags};
    NEED(ga_domain_open(&domain, &options) == GA_OK);
    for (uint32_t i = 0; i < WRITERS; i++) {
        workers[i].returned = NULL;
        for (int j = 0; j < POOL; j++) {
            pools[i][j] = (object){.state = FREE, .home = i, .next = workers[i].returned};
            workers[i].returned = &pools[i][j];
        }
    }
    ended = false;
    for (int i = 0; i < THREADS; i++) {
        NEED(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
}

static void end(void)
{
    ga_domain_stats stats;
    __atomic_store_n(&ended, true, __ATOMIC_RELAXED); /* relaxed: seen eventually */
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        fill(cell, NULL);
    }
    ga_domain_get_stats(domain, &stats);
    NEED(stats.memberships <= MEMBERSHIPS);
    NEED(ga_domain_close(domain) == GA_OK);
    for (int i = 0; i < WRITERS * POOL; i++) {
        NEED(pools[i / POOL][i % POOL].state == FREE);
    }
}

int main(int argc, char **argv)
{
    uint64_t random = 1;
    uint64_t stops = 0;
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    libc_calls_watch(wait_here);
    stress_begin(argc, argv);
    for (uint32_t round = 0; stress_goes_on(); round++) {
        begin(round % 2 ? GA_DOMAIN_SEQ_CST : 0);
        await_steps(NULL); /* the start of the threads is not under test */
        for (int i = 0; i < 40 && stress_goes_on(); i++, stops++) {
            stop_one(&workers[random_below(&random, THREADS)]);
        }
        end();
    }
    NEED(stops > 0);
    printf("%llu stops\n", (unsigned long long)stops);
    return 0;
}
