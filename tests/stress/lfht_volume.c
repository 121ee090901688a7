/* SPDX-License-Identifier: MIT
 *
 * Many operations on one variant of the map, or on all, in rounds. scripts/volume runs it for
 * hours.
 *
 *     stress-lfht-volume [VARIANT|all [OPERATIONS [THREADS_MAX [HEAP...]]]]
 *
 * A round has 2 to THREADS_MAX threads, a shape and one of the heaps, each in turn, and a map that
 * is filled and emptied several times, so that it expands and shrinks all over. Checks:
 *
 *   no key lost       a thread finds a key of its own until it removes it; for keys that all
 *                     threads change, inserts minus removals equal the final contents
 *   none invented     a value names its key; keys that are never inserted are not found
 *   no hang           a round ends in time: a cyclic chain has no end
 *   no leak           once all keys are removed and the domain is drained, no object waits
 *                     (FHPA, FHP, INLINE, HHL), and the closed map's heap has no live block
 *
 * A sanitizer reports uses after free. Status 0 and a line for each variant, or 1 and the
 * violation.
 */
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS_MAX = 64,
    HEAPS_MAX = 16,
    SHARED = 1 << 12, /* keys that all threads change */
    OWN = 1 << 10,    /* keys of each thread alone */
    ABSENT = 1 << 12, /* keys that are never inserted */
    ROUND = 1 << 21,  /* operations: nodes that are not freed before the end fit into memory */
    ROUNDS = 32,      /* at least, so that all shapes and heaps are used */
    TURNS = 8         /* of a round: a thread fills, then it empties */
};

static const struct {
    uint32_t chain, chunk, root, batch;
} shapes[] = {{4, 4, 14, 4096}, {4, 5, 5, 10000}, {1, 1, 1, 1}, {3, 3, 4, 100}, {2, 4, 2, 1000}};

static struct {
    ga_lfht *map;
    uint64_t each; /* operations of a thread in this round */
    uint64_t round;
    int64_t net[SHARED]; /* relaxed: inserts minus removals, sums */
} world;

/* Numbers below SHARED are shared, then those of the threads, then those that are absent. */
static uint64_t key_of(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static uint64_t first_own(size_t thread)
{
    return SHARED + (uint64_t)thread * OWN;
}

static uint64_t value_of(uint64_t number, uint64_t random)
{
    return number << 32 | (random & UINT32_MAX);
}

static void need_owner(ga_lfht_found was, uint64_t number)
{
    stress_need(!was.found || was.value >> 32 == number, "a key has another's value");
}

/* ---- operations ----------------------------------------------------------------------------- */

typedef struct worker {
    uint64_t random;
    uint64_t first;
    uint64_t values[OWN]; /* 0: not there */
    int32_t net[SHARED];
    bool filling;
} worker;

static void insert(worker *d, uint64_t number)
{
    ga_lfht_found was;
    uint64_t value = value_of(number, random_next(&d->random));
    bool replaces = random_below(&d->random, 4) == 0;
    NEED((replaces ? ga_lfht_upsert : ga_lfht_insert)(world.map, key_of(number), value, &was) ==
         GA_OK);
    need_owner(was, number);
    if (number < SHARED) {
        d->net[number] += !was.found;
        return;
    }
    uint64_t *own = &d->values[number - d->first];
    stress_need(was.found == (*own != 0) && was.value == *own, "a thread's own key was changed");
    *own = was.found && !replaces ? *own : value;
}

static void take_out(worker *d, uint64_t number)
{
    ga_lfht_found was;
    NEED(ga_lfht_remove(world.map, key_of(number), &was) == GA_OK);
    need_owner(was, number);
    if (number < SHARED) {
        d->net[number] -= was.found;
        return;
    }
    uint64_t *own = &d->values[number - d->first];
    stress_need(was.found == (*own != 0) && was.value == *own, "a thread's own key was lost");
    *own = 0;
}

static void change(worker *d, uint64_t number)
{
    ga_lfht_found was;
    uint64_t value = value_of(number, random_next(&d->random));
    uint64_t expected = number < SHARED ? value : d->values[number - d->first];
    NEED(ga_lfht_compare_replace(world.map, key_of(number), expected, value, &was) == GA_OK);
    need_owner(was, number);
    if (number >= SHARED) {
        stress_need(was.found == (expected != 0),
                    "a thread's own key was not there to be replaced");
        d->values[number - d->first] = was.found ? value : 0;
    }
}

static void look(const worker *d, uint64_t number)
{
    ga_lfht_found found;
    NEED(ga_lfht_lookup(world.map, key_of(number), &found) == GA_OK);
    need_owner(found, number);
    if (number >= SHARED) {
        stress_need(found.value == d->values[number - d->first], "a thread's own key is not found");
    }
}

static void look_in_vain(worker *d)
{
    ga_lfht_found found;
    uint64_t number = first_own(THREADS_MAX) + random_below(&d->random, ABSENT);
    NEED(ga_lfht_lookup(world.map, key_of(number), &found) == GA_OK);
    stress_need(!found.found, "a key is found that nobody put in");
}

static void operate(worker *d)
{
    bool shared = random_below(&d->random, 2);
    uint64_t number =
        shared ? random_below(&d->random, SHARED) : d->first + random_below(&d->random, OWN);
    size_t what = random_below(&d->random, 16);
    if (what < 6) {
        d->filling ? insert(d, number) : take_out(d, number);
    } else if (what < 8) {
        d->filling ? take_out(d, number) : insert(d, number);
    } else if (what < 9) {
        change(d, number);
    } else if (what < 15) {
        look(d, number);
    } else {
        look_in_vain(d);
    }
}

static void work(size_t thread)
{
    worker *d = calloc(1, sizeof *d);
    NEED(d);
    d->random = world.round * THREADS_MAX + thread + 1;
    d->first = first_own(thread);
    for (uint64_t i = 0; i < world.each; i++) {
        d->filling = i * TURNS / world.each % 2 == 0;
        operate(d);
    }
    for (uint64_t i = 0; i < OWN; i++) {
        take_out(d, d->first + i);
    }
    for (uint64_t i = 0; i < SHARED; i++) {
        __atomic_fetch_add(&world.net[i], d->net[i], __ATOMIC_RELAXED);
    }
    free(d);
}

/* ---- a round -------------------------------------------------------------------------------- */

static void empty_shared(void)
{
    for (uint64_t i = 0; i < SHARED; i++) {
        ga_lfht_found was;
        NEED(ga_lfht_remove(world.map, key_of(i), &was) == GA_OK);
        need_owner(was, i);
        stress_need(world.net[i] == was.found, "what went in and out does not add up");
    }
    stress_need(ga_lfht_size(world.map) == 0, "the empty map has keys");
}

static bool see_any(void *context, uint64_t key, uint64_t value)
{
    (void)key;
    (void)value;
    ++*(uint64_t *)context;
    return true;
}

/* INLINE has an index where nodes of lines are not large enough. */
static uint32_t chunk_of(ga_lfht_variant variant, size_t shape)
{
    uint32_t chunk = shapes[shape].chunk * (variant == GA_LFHT_INLINE ? 2 : 1);
    return chunk < 8 ? chunk : 8;
}

static void run_round(ga_lfht_variant variant, const char *spec, size_t threads, uint64_t wanted)
{
    size_t shape = world.round % (sizeof shapes / sizeof *shapes);
    ga_heap *heap = stress_open(spec);
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = variant,
                               .chain = shapes[shape].chain,
                               .chunk = chunk_of(variant, shape),
                               .root = shapes[shape].root,
                               .batch = shapes[shape].batch,
                               .heap = heap};
    uint64_t left = 0;
    ga_stats stats;
    alarm(GA_PLANTED_ANY ? 30 : 1200); /* seconds for a round */
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
    memset(world.net, 0, sizeof world.net);
    world.each = wanted / threads + 1;
    stress_threads(threads, work);
    empty_shared();
    NEED(ga_lfht_each(world.map, see_any, &left) == GA_OK && left == 0);
    NEED(ga_lfht_drain(world.map) == GA_OK);
    ga_lfht_stats map;
    ga_lfht_get_stats(world.map, &map);
    bool frees = map.bound > 0 || variant == GA_LFHT_HHL; /* nodes are freed during the round */
    stress_need(!frees || map.retired == map.freed,
                "what was removed waits, though all is drained");
    NEED(ga_lfht_close(world.map) == GA_OK);
    NEED(ga_heap_stats(heap, &stats) == GA_OK);
    stress_need(stats.live_blocks == 0, "nodes are left once the map is closed");
    NEED(ga_heap_close(heap) == GA_OK);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static uint64_t number_at(int argc, char **argv, int at, uint64_t fallback)
{
    char *end = "";
    uint64_t number = argc > at ? strtoull(argv[at], &end, 10) : fallback;
    stress_need(number && !*end, "OPERATIONS and THREADS_MAX: numbers above 0");
    return number;
}

typedef struct volume {
    uint64_t wanted, max;
    char **heaps;
    size_t heap_count;
} volume;

static void run_variant(ga_lfht_variant variant, const volume *v)
{
    size_t threads = 1;
    uint64_t done = 0;
    for (world.round = 0; done < v->wanted; world.round++) {
        threads = threads * 2 > v->max ? 2 : threads * 2;
        uint64_t now = v->wanted / ROUNDS < ROUND ? v->wanted / ROUNDS + 1 : ROUND;
        run_round(variant, v->heaps[world.round % v->heap_count], threads, now);
        done += world.each * threads;
    }
    printf("%s: %llu operations in %llu rounds, 2 to %llu threads\n", ga_lfht_variant_text(variant),
           (unsigned long long)done, (unsigned long long)world.round, (unsigned long long)v->max);
    fflush(stdout);
}

static void give_up(int number)
{
    static const char text[] = "a round does not end\n";
    (void)number;
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? 1 : 2);
}

int main(int argc, char **argv)
{
    static char *usual[] = {"slab", "system"};
    volume v = {.wanted = number_at(argc, argv, 2, 200000),
                .max = number_at(argc, argv, 3, 8),
                .heaps = argc > 4 ? argv + 4 : usual,
                .heap_count = argc > 4 ? (size_t)argc - 4 : 2};
    const char *wanted = argc > 1 ? argv[1] : "all";
    bool any = false;
    signal(SIGALRM, give_up);
    v.max = v.max < 2 ? 2 : v.max > THREADS_MAX ? THREADS_MAX : v.max;
    for (int i = 0; i < GA_LFHT_VARIANT_COUNT; i++) {
        const char *name = ga_lfht_variant_text((ga_lfht_variant)i);
        if (strcmp(wanted, name) == 0 || strcmp(wanted, "all") == 0) {
            run_variant((ga_lfht_variant)i, &v);
            any = true;
        }
    }
    stress_need(any,
                "usage: stress-lfht-volume [VARIANT|all [OPERATIONS [THREADS_MAX [HEAP...]]]]");
    return 0;
}
