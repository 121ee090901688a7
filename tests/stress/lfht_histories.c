/* SPDX-License-Identifier: MIT
 *
 * Short histories of a map, each of which must be linearizable: a few threads, a few keys, a few
 * calls of each. A call is written down with the moments at which it began and ended, and what it
 * answered. A history is right if its calls can be put in an order in which each answers what it
 * must, and none comes before one that had ended when it began. Calls on different keys do not
 * concern each other, so each key is looked at alone, by trying all orders (Wing and Gong's way).
 *
 * The checker itself is tried first, with histories that are right and wrong.
 *
 * GA_LFHT_MUTANT weakens one thing at a time; each of these programs must fail, or be reported by a
 * sanitizer (meson.build here, and that of tests/planted). The one that frees too early is tried in
 * the variants that free, the others in those that do not, where nothing worse can happen than a
 * wrong answer.
 */
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#ifndef GA_LFHT_MUTANT
#define GA_LFHT_MUTANT 0
#endif

enum {
    THREADS_MOST = 4,
    CALLS = 6, /* of each thread */
    KEYS_MOST = 6,
    BATCH = 256, /* histories of a map, and between two looks at the clock */
    ALL = THREADS_MOST * CALLS
};

typedef enum kind {
    LOOKUP = 0,
    INSERT,
    UPSERT,
    REPLACE,
    COMPARE,
    REMOVE,
    KINDS
} kind;

typedef struct call {
    kind kind;
    uint64_t key, value, expected;
    ga_lfht_found was;
    uint64_t began, ended;
} call;

#if GA_LFHT_MUTANT == 1
#define FIRST_VARIANT GA_LFHT_FHPA
#define VARIANTS      2
#elif GA_LFHT_MUTANT > 1
#define FIRST_VARIANT GA_LFHT_SNF
#define VARIANTS      3
#else
#define FIRST_VARIANT GA_LFHT_FHPA
#define VARIANTS      GA_LFHT_VARIANT_COUNT
#endif

/* ---- the checker ---------------------------------------------------------------------------- */

/* What a key has: `value` is 0 where it is not there. Values that are put in are never 0. */
static bool answers(const call *c, uint64_t *value)
{
    bool there = *value != 0;
    if (c->was.found != there || (there && c->was.value != *value)) {
        return false;
    }
    switch (c->kind) {
    case INSERT:
        *value = there ? *value : c->value;
        break;
    case UPSERT:
        *value = c->value;
        break;
    case REPLACE:
        *value = there ? c->value : 0;
        break;
    case COMPARE:
        *value = there && *value == c->expected ? c->value : *value;
        break;
    case REMOVE:
        *value = 0;
        break;
    default:
        break;
    }
    return true;
}

/* Whether the calls that are not in `done` can follow, with the key as it is. Sets that failed are
 * remembered with their value. */
typedef struct search {
    const call *calls[ALL];
    uint32_t count;
    uint32_t failed_done[256];
    uint64_t failed_value[256];
    uint32_t failed;
} search;

static bool failed_before(const search *s, uint32_t done, uint64_t value)
{
    for (uint32_t i = 0; i < s->failed && i < 256; i++) {
        if (s->failed_done[i] == done && s->failed_value[i] == value) {
            return true;
        }
    }
    return false;
}

/* Nobody who is not done ended before this one began. */
static bool may_be_next(const search *s, uint32_t done, uint32_t which)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (!(done >> i & 1) && s->calls[i]->ended < s->calls[which]->began) {
            return false;
        }
    }
    return true;
}

static bool can_follow(search *s, uint32_t done, uint64_t value)
{
    if (done == (1u << s->count) - 1) {
        return true;
    }
    if (failed_before(s, done, value)) {
        return false;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t next = value;
        if (!(done >> i & 1) && may_be_next(s, done, i) && answers(s->calls[i], &next) &&
            can_follow(s, done | 1u << i, next)) {
            return true;
        }
    }
    s->failed_done[s->failed % 256] = done;
    s->failed_value[s->failed++ % 256] = value;
    return false;
}

static bool linearizable(const call *calls, uint32_t count, uint64_t key)
{
    search s = {.count = 0, .failed = 0};
    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].key == key) {
            s.calls[s.count++] = &calls[i];
        }
    }
    return can_follow(&s, 0, 0);
}

static void try_checker(void)
{
    const ga_lfht_found none = {false, 0}, one = {true, 1}, two = {true, 2};
    const call right[] = {{INSERT, 0, 1, 0, none, 1, 4}, /* overlaps the lookup, which is before */
                          {LOOKUP, 0, 0, 0, none, 2, 3},
                          {UPSERT, 0, 2, 0, one, 5, 6},
                          {REMOVE, 0, 0, 0, two, 7, 9},
                          {INSERT, 0, 3, 0, none, 8, 10}};
    call wrong[] = {{INSERT, 0, 1, 0, none, 1, 2}, {LOOKUP, 0, 0, 0, none, 3, 4}};
    call twice[] = {
        {INSERT, 0, 1, 0, none, 1, 2}, {REMOVE, 0, 0, 0, one, 3, 6}, {REMOVE, 0, 0, 0, one, 4, 5}};
    stress_need(linearizable(right, 5, 0), "the checker refuses what is right");
    stress_need(!linearizable(wrong, 2, 0), "the checker takes a lost key");
    stress_need(!linearizable(twice, 3, 0), "the checker takes a key that is removed twice");
    wrong[1].began = 1;
    stress_need(linearizable(wrong, 2, 0), "the checker refuses calls that overlap");
}

/* ---- histories ------------------------------------------------------------------------------ */

static struct {
    ga_heap *heap;
    ga_lfht *map;
    call calls[ALL];
    uint64_t histories, keys, threads;
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have come to a barrier */
} world;

static uint64_t coarse(void *context, uint64_t key)
{
    (void)context;
    return key % 2 ? 0 : UINT64_MAX;
}

static uint64_t spread(void *context, uint64_t key)
{
    (void)context;
    return key * UINT64_C(0x2aaaaaaaaaaaaaab); /* neighbours begin with other bits */
}

static void do_call(call *c)
{
    ga_status status;
    c->began =
        __atomic_add_fetch(&world.clock, 1, __ATOMIC_SEQ_CST); /* Pairs with itself: moments */
    switch (c->kind) {
    case INSERT:
        status = ga_lfht_insert(world.map, c->key, c->value, &c->was);
        break;
    case UPSERT:
        status = ga_lfht_upsert(world.map, c->key, c->value, &c->was);
        break;
    case REPLACE:
        status = ga_lfht_replace(world.map, c->key, c->value, &c->was);
        break;
    case COMPARE:
        status = ga_lfht_compare_replace(world.map, c->key, c->expected, c->value, &c->was);
        break;
    case REMOVE:
        status = ga_lfht_remove(world.map, c->key, &c->was);
        break;
    default:
        status = ga_lfht_lookup(world.map, c->key, &c->was);
    }
    c->ended =
        __atomic_add_fetch(&world.clock, 1, __ATOMIC_SEQ_CST); /* Pairs with itself: moments */
    NEED(status == GA_OK);
}

/* What each thread will do. */
static void draw(uint64_t *random)
{
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        static const kind kinds[] = {LOOKUP,  LOOKUP,  INSERT, INSERT, INSERT, UPSERT,
                                     REPLACE, COMPARE, REMOVE, REMOVE, REMOVE};
        world.calls[i] = (call){.kind = kinds[random_below(random, 11)],
                                .key = random_below(random, world.keys),
                                .value = i + 1,
                                .expected = 1 + random_below(random, world.threads * CALLS)};
    }
}

static ga_lfht_variant variant(void)
{
    return (ga_lfht_variant)(FIRST_VARIANT + world.histories / BATCH % VARIANTS);
}

static void open_map(void)
{
    uint64_t random = world.histories;
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = variant(),
                               .chunk = 1 + (uint32_t)random_below(&random, 2),
                               .chain = 1 + (uint32_t)random_below(&random, 2),
                               .root = 1,
                               .batch = 1,
                               .hash =
                                   random_below(&random, GA_LFHT_MUTANT ? 2 : 8) ? spread : coarse,
                               .heap = world.heap};
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
}

/* All threads that take part have come. */
static void meet(uint32_t turn)
{
    /* Pairs with itself: what was done before the barrier is seen behind it. */
    __atomic_add_fetch(&world.arrivals, 1, __ATOMIC_SEQ_CST);
    for (uint32_t tries = 1;
         __atomic_load_n(&world.arrivals, __ATOMIC_SEQ_CST) < turn * world.threads; tries++) {
        if (tries % 64 == 0) {
            sched_yield();
        }
    }
}

static void check(void)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        if (!linearizable(world.calls, (uint32_t)world.threads * CALLS, key)) {
            for (uint32_t i = 0; i < world.threads * CALLS; i++) {
                const call *c = &world.calls[i];
                if (c->key == key) {
                    fprintf(
                        stderr, "kind %d value %llu expected %llu was %d %llu at %llu to %llu\n",
                        (int)c->kind, (unsigned long long)c->value, (unsigned long long)c->expected,
                        c->was.found, (unsigned long long)c->was.value,
                        (unsigned long long)c->began, (unsigned long long)c->ended);
                }
            }
            fprintf(stderr, "%s, history %llu\n", ga_lfht_variant_text(variant()),
                    (unsigned long long)world.histories);
            stress_need(false, "a history is not linearizable");
        }
    }
}

/* The next history begins with no key. */
static void clear(void)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        NEED(ga_lfht_remove(world.map, key, NULL) == GA_OK);
    }
}

static void work(size_t number)
{
    uint32_t turn = 0;
    uint64_t random = world.histories + 1;
    for (uint32_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            draw(&random);
        }
        meet(++turn);
        for (uint32_t c = 0; c < CALLS; c++) {
            do_call(&world.calls[number * CALLS + c]);
        }
        meet(++turn);
        if (number == 0) {
            check();
            clear();
        }
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    try_checker();
    world.heap = stress_open("system");
    while (stress_goes_on() || world.histories < BATCH * GA_LFHT_VARIANT_COUNT) {
        world.threads = 2 + world.histories / BATCH % 3;
        world.keys = 1 + world.histories / BATCH % KEYS_MOST;
        world.arrivals = 0;
        open_map();
        stress_threads(world.threads, work);
        NEED(ga_lfht_close(world.map) == GA_OK);
        world.histories += BATCH;
    }
    printf("%llu histories\n", (unsigned long long)world.histories);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
