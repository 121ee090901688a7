/* SPDX-License-Identifier: MIT
 *
 * Readers of a few cells, and writers that put another object into a cell and retire the one that
 * was there, to a domain that scans as often as it can. The thread that frees an object marks it
 * FREE at once, plainly, and reuses it: a reader must never find that mark in a protected object.
 * Threads begin and end, some inside a protected section, and domains are closed with objects still
 * retired. At the end each object has been freed once for each time it was retired.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include <gpualloc/reclaim.h>

#include "stress.h"

#include "support/random.h"

#include <stdio.h>

enum {
    CELLS = 2,
    OTHERS = 2, /* cells that are emptied by reclaim functions */
    WRITERS = 2,
    READERS = 2,
    NOISE = 8,  /* lines */
    POOL = 256, /* objects of each thread */
    TURNS = 20000,
    LIVE = 0x5a5a,
    FREE = 0xa5a5
};

typedef struct object {
    uint32_t state; /* plain, like the other fields: LIVE or FREE */
    uint32_t stamp; /* of its present use */
    uint32_t stamp_again;
    bool empties; /* a cell of OTHERS, when it is freed */
    struct object *next;
} __attribute__((aligned(64))) object;

static struct {
    ga_hazard_word cells[CELLS + OTHERS];
    ga_domain *domain;
    uint32_t retired, freed; /* relaxed: sums */
    uint32_t round;
    struct {
        _Alignas(64) uint32_t word;
    } noise[NOISE]; /* relaxed: the value has no meaning */
} world __attribute__((aligned(128)));

static object pools[WRITERS][POOL];
static _Thread_local object *spare;
static object *spares[WRITERS]; /* between rounds */
static object *late;            /* freed by readers and by closing; guarded by `late_lock` */
static uint32_t late_lock;

/* ---- objects ------------------------------------------------------------------------------- */

static void give_late(object *o)
{
    while (__atomic_exchange_n(&late_lock, 1, __ATOMIC_ACQUIRE)) { /* Pairs with the one below. */
    }
    o->next = late;
    late = o;
    __atomic_store_n(&late_lock, 0, __ATOMIC_RELEASE); /* Pairs with the one above. */
}

static void retire(object *o);

static void empty_another(uint32_t which)
{
    /* Acquire and release. Pairs with fill() and ga_hazard_protect(). */
    retire(
        (object *)__atomic_exchange_n(&world.cells[CELLS + which % OTHERS], 0, __ATOMIC_ACQ_REL));
}

static void free_object(void *context, void *retired)
{
    object *o = retired;
    bool empties = o->empties;
    uint32_t stamp = o->stamp;
    (void)context;
    NEED(o->state == LIVE);
    o->state = FREE;
    o->stamp = 0;
    o->stamp_again = 1;
    __atomic_fetch_add(&world.freed, 1, __ATOMIC_RELAXED); /* relaxed: a sum */
    give_late(o);
    if (empties) {
        empty_another(stamp);
    }
}

static void retire(object *o)
{
    ga_hazards *mine;
    if (o) {
        __atomic_fetch_add(&world.retired, 1, __ATOMIC_RELAXED); /* relaxed: a sum */
        NEED(ga_domain_join(world.domain, &mine) == GA_OK);
        NEED(ga_hazard_retire(mine, o, sizeof *o, free_object, NULL) == GA_OK);
    }
}

static object *take_late(void)
{
    while (__atomic_exchange_n(&late_lock, 1, __ATOMIC_ACQUIRE)) { /* Pairs with the one below. */
    }
    object *all = late;
    late = NULL;
    __atomic_store_n(&late_lock, 0, __ATOMIC_RELEASE); /* Pairs with the one above. */
    return all;
}

/* NULL if all objects are retired: a thread that delays the others has protected them. */
static object *make(uint32_t stamp, bool empties)
{
    spare = spare ? spare : take_late();
    object *o = spare;
    if (o) {
        spare = o->next;
        NEED(o->state == FREE);
        o->state = LIVE;
        o->stamp = stamp;
        o->stamp_again = stamp;
        o->empties = empties;
        o->next = NULL;
    }
    return o;
}

static void fill(uint32_t cell, object *o)
{
    /* Acquire and release. Pairs with ga_hazard_protect(): the object's contents are visible. */
    retire((object *)__atomic_exchange_n(&world.cells[cell], (uintptr_t)o, __ATOMIC_ACQ_REL));
}

/* ---- threads ------------------------------------------------------------------------------- */

/* All threads write to the same lines: stores wait for them, and the store to a slot waits behind
 * these. */
static void fill_store_buffer(uint32_t number)
{
    for (uint32_t i = 0; i < NOISE; i++) {
        __atomic_store_n(&world.noise[(i + number) % NOISE].word, number, __ATOMIC_RELAXED);
    }
}

static void write_one(uint64_t *random)
{
    uint32_t number = (uint32_t)random_next(random);
    fill_store_buffer(number / 4096);
    object *o = make(number | 2u, number % 8 == 0);
    if (o) {
        fill(number / 8 % 4 ? number / 32 % CELLS : CELLS + number / 32 % OTHERS, o);
    }
}

static void look_at(const object *o, int times)
{
    for (int i = 0; o && i < times; i++) {
        /* As a program would: only the slot protects it. */
        const volatile object *now = o;
        NEED(now->state == LIVE);
        NEED(now->stamp == now->stamp_again);
    }
}

/* Protect an object, usually in slot 1, either from slot 0 or directly. */
static void read_one(ga_hazards *mine, uint64_t *random)
{
    uint32_t number = (uint32_t)random_next(random);
    const ga_hazard_word *cell = &world.cells[number % (CELLS + OTHERS)];
    uint32_t slot = number / 16 % 2;
    /* relaxed: a guess, which may be old by the time it is tried. */
    uintptr_t word = __atomic_load_n(cell, __ATOMIC_RELAXED);
    fill_store_buffer(number);
    while (!ga_hazard_try(mine, slot, cell, 0, &word)) {
    }
    const object *o = (const object *)word;
    int times = number / 1024 % 4 ? 2 : 200; /* some stay long enough for a membarrier */
    look_at(o, times);
    if (slot == 0) {
        ga_hazard_set(mine, 1, o);
        cell = &world.cells[number / 64 % (CELLS + OTHERS)];
        look_at((const object *)ga_hazard_protect(mine, 0, cell, 0), times);
    }
    look_at(o, times);
    ga_hazard_clear(mine, 0);
    ga_hazard_clear(mine, 1);
}

static void run(size_t number)
{
    ga_hazards *mine;
    uint64_t random = world.round * 64 + number;
    spare = number < WRITERS ? spares[number] : NULL;
    int turns = world.round % 2 ? TURNS * 5 : TURNS; /* without membarriers the turns are shorter */
    for (int turn = 0; turn < turns; turn++) {
        NEED(ga_domain_join(world.domain, &mine) == GA_OK);
        if (number < WRITERS) {
            write_one(&random);
        } else {
            read_one(mine, &random);
        }
        if (random_next(&random) % 4096 == 0) {
            ga_domain_leave(world.domain);
        }
    }
    if (random_next(&random) % 2) {
        NEED(ga_domain_join(world.domain, &mine) == GA_OK);
        ga_hazard_protect(mine, 1, &world.cells[0], 0); /* and ends inside the section */
    }
    if (number < WRITERS) {
        spares[number] = spare;
    }
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* Collect the writers' objects; objects that readers freed go to the first writer. */
static void gather(void)
{
    object *o = take_late();
    while (o) {
        object *next = o->next;
        o->next = spares[0];
        spares[0] = o;
        o = next;
    }
}

static size_t count_spares(void)
{
    size_t count = 0;
    for (int i = 0; i < WRITERS; i++) {
        for (const object *o = spares[i]; o; o = o->next) {
            NEED(o->state == FREE);
            count++;
        }
    }
    return count;
}

static void play(void)
{
    ga_domain_options options = {
        .options_size = sizeof options, .slots = 2, .batch = 1u + world.round % 7 * 3};
    ga_domain_stats stats;
    options.flags = world.round % 2 ? GA_DOMAIN_SEQ_CST : 0;
    NEED(ga_domain_open(&world.domain, &options) == GA_OK);
    stress_threads(WRITERS + READERS, run);
    for (uint32_t cell = 0; cell < CELLS + OTHERS; cell++) {
        fill(cell, NULL);
    }
    ga_domain_get_stats(world.domain, &stats);
    NEED(stats.members <= 1);
    NEED(stats.memberships <= 2 * (WRITERS + READERS) + 2);
    NEED(ga_domain_close(world.domain) == GA_OK);
    NEED(world.retired == world.freed);
    gather();
    NEED(count_spares() == WRITERS * POOL);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < WRITERS; i++) {
        for (int j = 0; j < POOL; j++) {
            pools[i][j].state = FREE;
            pools[i][j].next = spares[i];
            spares[i] = &pools[i][j];
        }
    }
    for (stress_begin(argc, argv); world.round < 2 || stress_goes_on(); world.round++) {
        play();
    }
    printf("%u rounds, %u objects retired\n", world.round, world.retired);
    return 0;
}
