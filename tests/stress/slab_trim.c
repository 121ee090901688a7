/* SPDX-License-Identifier: MIT
 *
 * Claims and frees beside a thread that returns empty memory blocks to the system all the time, in
 * a heap at its limit. A live unit keeps its contents and has one owner. A claim succeeds as long
 * as a unit is free or purged. Two scenes: the first makes all threads wait for the lock for growth
 * at once, the second has no order.
 */
#include "stress.h"
#include "support/random.h"

#include "backends/slab/slab.h"
#include "backends/slab/state.h"
#include "runtime/heap.h"

#include <pthread.h>
#include <time.h>

enum {
    UNIT = 64,
    ASKED = 40, /* this size gives a block of the parent another usable size */
    WORDS = UNIT / 8,
    HOLDERS = 4,
    HELD = 1300,      /* of each thread at most: with the units in caches, fewer than there are */
    LIMIT = 8 * 1024, /* units, eight memory blocks */
    STEPS = 4000,
    ROUNDS = 20, /* of the first scene */
    STILL_LOOKS =
        5, /* samples without a new claim until all threads are taken to wait for the lock */
    LOOK_NS = 1000000
};

static ga_heap *heap;
static uint32_t working = HOLDERS;

static void write_unit(uint64_t *unit, uint64_t mark)
{
    for (size_t i = 0; i < WORDS; i++) {
        unit[i] = mark + i;
    }
}

static void check_unit(const uint64_t *unit, uint64_t mark)
{
    for (size_t i = 0; i < WORDS; i++) {
        NEED(unit[i] == mark + i);
    }
}

static uint64_t *claim_unit(size_t align, uint64_t mark)
{
    uint64_t *unit = NULL;
    NEED(ga_alloc(heap, ASKED, align, (void **)&unit) == GA_OK);
    NEED(ga_usable_size(heap, unit) == UNIT); /* otherwise the parent serves it */
    write_unit(unit, mark);
    return unit;
}

static void free_unit(uint64_t *unit, uint64_t mark)
{
    check_unit(unit, mark);
    NEED(ga_free(heap, unit) == GA_OK);
}

/* ---- all threads wait for the lock at once -------------------------------------------------- */

static pthread_barrier_t barrier;
static size_t claims[HOLDERS];

/* Aligned, because such an allocation asks its class once. Other allocations ask twice, and the
 * second claim would hide a failure of the first. */
static void claim_many(size_t number)
{
    static uint64_t *units[HOLDERS][HELD];
    uint64_t mark = (number + 1) << 48;
    for (size_t i = 0; i < HELD; i++) {
        if (i == 1) { /* the first claim made the thread's cache, which takes the lock, too */
            pthread_barrier_wait(&barrier);
            pthread_barrier_wait(&barrier);
        }
        units[number][i] = claim_unit(UNIT, mark + i * WORDS);
        /* relaxed: a figure */
        __atomic_store_n(&claims[number], i + 1, __ATOMIC_RELAXED);
    }
    pthread_barrier_wait(&barrier); /* a free may trim, and the last thread would find that room */
    for (size_t i = 0; i < HELD; i++) {
        free_unit(units[number][i], mark + i * WORDS);
    }
}

static void wait_until_nobody_claims(void)
{
    size_t before = 0;
    for (size_t still = 0; still < STILL_LOOKS;) {
        size_t sum = 0;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        for (size_t i = 0; i < HOLDERS; i++) {
            sum += __atomic_load_n(&claims[i], __ATOMIC_RELAXED);
        }
        still = sum == before ? still + 1 : 0;
        before = sum;
    }
}

/* Hold the lock for growth, as a thread does that grows the slab, until all others wait for it. */
static void hold_the_lock(void)
{
    pthread_mutex_t *lock = &((ga_slab_state *)heap->state)->store.lock;
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(lock);
    pthread_barrier_wait(&barrier);
    wait_until_nobody_claims();
    pthread_mutex_unlock(lock);
    pthread_barrier_wait(&barrier);
}

static void wait_for_room(size_t number)
{
    if (number < HOLDERS) {
        claim_many(number);
    } else {
        hold_the_lock();
    }
}

/* Two of eight blocks are in use and six are purged. Each growth restores two blocks, so there are
 * more threads than growths: the last thread must see that other threads have made room since its
 * last search. */
static void wait_side_by_side(void)
{
    pthread_barrier_init(&barrier, NULL, HOLDERS + 1);
    for (size_t round = 0; round < ROUNDS; round++) {
        NEED(ga_trim(heap, 0) == GA_OK);
        uint64_t *unit = claim_unit(0, 0);
        stress_threads(HOLDERS + 1, wait_for_room);
        free_unit(unit, 0);
    }
    pthread_barrier_destroy(&barrier);
}

/* ---- claims and frees beside a trim ---------------------------------------------------------- */

/* Fill the heap and empty it again, so that blocks become empty; a few units stay. */
static void hold(size_t number)
{
    static uint64_t *units[HOLDERS][HELD];
    uint64_t **mine = units[number];
    uint64_t random = number;
    uint64_t mark = (number + 1) << 48;
    while (stress_goes_on()) {
        bool filling = random_below(&random, 2);
        for (size_t step = 0; step < STEPS; step++) {
            size_t i = random_below(&random, HELD);
            if (!mine[i] && filling) {
                mine[i] = claim_unit(0, mark + i * WORDS);
            } else if (mine[i] && !filling && i % 500) {
                free_unit(mine[i], mark + i * WORDS);
                mine[i] = NULL;
            }
        }
    }
    for (size_t i = 0; i < HELD; i++) {
        if (mine[i]) {
            free_unit(mine[i], mark + i * WORDS);
        }
    }
    /* relaxed: a flag that ends the round; joining the threads orders it */
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELAXED);
}

static void count_one(void *context, void *block, size_t size)
{
    (void)block;
    (void)size;
    ++*(size_t *)context;
}

static void trim(void)
{
    uint64_t random = 99;
    while (__atomic_load_n(&working, __ATOMIC_RELAXED)) {
        ga_backend_stats stats;
        NEED(ga_trim(heap, random_below(&random, 2) * 2 * 1024 * UNIT) == GA_OK);
        ga_slab_backend.stats(heap->state, &stats);
        NEED(stats.held_bytes <= LIMIT * UNIT);
        NEED(stats.live_bytes <= stats.held_bytes);
    }
}

static void work(size_t number)
{
    if (number < HOLDERS) {
        hold(number);
    } else {
        trim();
    }
}

int main(int argc, char **argv)
{
    size_t live = 0;
    ga_backend_stats stats;
    stress_begin(argc, argv);
    heap = stress_open("slab:unit=64,blocks=2,limit=512K,keep=64K/system");
    wait_side_by_side();
    stress_threads(HOLDERS + 1, work);
    NEED(ga_heap_each_live(heap, count_one, &live) == GA_OK);
    NEED(live == 0);
    NEED(ga_trim(heap, 0) == GA_OK);
    ga_slab_backend.stats(heap->state, &stats);
    NEED(stats.held_bytes == 0);
    NEED(ga_heap_close(heap) == GA_OK);
    return 0;
}
