/* SPDX-License-Identifier: MIT
 *
 * Threads free segments of the same superblocks, in any order and by tiles of any size, while they
 * allocate others. The thread that frees a payload writes to it plainly, and the parent overwrites
 * each superblock that returns, so the thread sanitizer reports a missing order. After each round
 * every superblock was freed once, and the map is empty.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include "stress.h"

#include "support/coalesce_world.h"

#include <sched.h>
#include <stdio.h>

enum {
    THREADS_MAX = 8,
    LANES = 32,
    SETS = 24, /* superblocks, at least, that all threads free at the same time */
    SLOTS = 1024,
    SLOT = 1 << 14,
    BUCKETS = 32 /* 256 entries: the map is full now and then */
};

typedef struct owned {
    char *payload;
    uint64_t size;
} owned;

static coalesce_world *world; /* of this round */
static size_t threads;
static uint64_t seed;
static owned shares[THREADS_MAX][SETS * LANES];
static uint32_t share_count[THREADS_MAX];
static uint64_t arrived; /* M1, M2 */
static uint64_t freed;   /* relaxed: a sum, read after all have joined */

/* ---- making them ----------------------------------------------------------------------------- */

static uint64_t some_size(uint64_t *random, bool tiny)
{
    return random_below(random, tiny ? 3 : 64);
}

static void make_dynamic(uint64_t *random, char **payloads, uint64_t *sizes)
{
    bool tiny = random_below(random, 3) == 0;
    uint32_t wanting = (uint32_t)random_next(random) | 1u;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        sizes[lane] = some_size(random, tiny);
    }
    world_malloc(world, wanting, sizes, payloads);
}

static void make_static(uint64_t *random, char **payloads, uint64_t *sizes)
{
    uint64_t size = some_size(random, false);
    ga_wide wide = ga_static_claim(world->view, world_tile(), random_below(random, 2), size);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        payloads[lane] = (char *)ga_wide_read(wide, lane);
        sizes[lane] = size;
    }
}

/* Allocate payloads for up to 32 lanes. Returns how many lanes called. */
static uint32_t make(uint64_t *random, owned *made)
{
    char *payloads[LANES];
    uint64_t sizes[LANES];
    uint32_t count = 0;
    (random_below(random, 2) ? make_dynamic : make_static)(random, payloads, sizes);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (payloads[lane]) {
            made[count++] = (owned){payloads[lane], sizes[lane]};
        }
    }
    return count;
}

/* ---- freeing them ---------------------------------------------------------------------------- */

static void free_some(uint64_t *random, const owned *some, uint32_t n)
{
    char *payloads[LANES] = {NULL};
    uint32_t turn = (uint32_t)random_below(random, LANES);
    for (uint32_t i = 0; i < n; i++) {
        payloads[(turn + i) % LANES] = some[i].payload;
        world_fill(some[i].payload, 1, some[i].size);
    }
    world_free(world, GA_ALL_BITS, payloads);
    __atomic_fetch_add(&freed, n, __ATOMIC_RELAXED);
}

/* A thread allocates and frees its own payloads, so that memory and entries of the map are
 * reused. */
static void make_and_free(uint64_t *random)
{
    owned made[LANES];
    uint32_t n = make(random, made);
    free_some(random, made, n);
}

/* Let all threads continue at nearly the same time. */
static void meet(void)
{
    /* M1: acquire and release. Pairs with M2, where the others leave. */
    __atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL);
    /* M2: acquire. Pairs with M1, where each arrives. */
    for (uint32_t spins = 1; __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < threads; spins++) {
        if (spins % 1024 == 0) {
            sched_yield();
        }
    }
}

static void free_share(size_t number)
{
    uint64_t random = seed + number;
    uint32_t at = 0;
    meet();
    while (at < share_count[number]) {
        uint32_t n = 1 + (uint32_t)random_below(&random, random_below(&random, 2) ? 3 : LANES);
        n = n < share_count[number] - at ? n : share_count[number] - at;
        free_some(&random, shares[number] + at, n);
        at += n;
        if (random_below(&random, 8) == 0) {
            make_and_free(&random);
        }
    }
}

/* ---- a round --------------------------------------------------------------------------------- */

/* Allocate superblocks and deal out their payloads; each thread frees its share in random order. */
static void deal(uint64_t *random)
{
    memset(share_count, 0, sizeof share_count);
    for (uint32_t set = 0; set < SETS; set++) {
        owned made[LANES];
        uint32_t n = make(random, made);
        for (uint32_t i = 0; i < n; i++) {
            size_t to = random_below(random, threads);
            size_t at = random_below(random, share_count[to] + 1u);
            shares[to][share_count[to]++] = shares[to][at];
            shares[to][at] = made[i];
        }
    }
}

static void need_clean(void)
{
    if (world_live(world) || world->wrong || world->heap.map.live) {
        fprintf(stderr, "form %u, bare %u: %u superblocks left, %llu wrong releases, %u entries\n",
                world->view.form, world->view.bare, world_live(world),
                (unsigned long long)world->wrong, world->heap.map.live);
    }
    stress_need(world_live(world) == 0, "all superblocks went back");
    stress_need(world->wrong == 0, "each superblock goes back once");
    stress_need(world->heap.map.live == 0, "the map is empty");
    stress_need(world->heap.faults[0] + world->heap.faults[1] == 0, "no faults");
}

static void play(uint32_t form, uint32_t bare, bool plain)
{
    world = world_new(form, bare, BUCKETS, SLOTS, SLOT);
    world->view.plain = plain;
    for (int i = 0; i < 4; i++) {
        arrived = 0;
        seed += THREADS_MAX;
        uint64_t random = seed;
        deal(&random);
        stress_threads(threads, free_share);
        need_clean();
    }
    world_delete(world);
}

int main(int argc, char **argv)
{
    uint32_t least = GA_PLANTED_ANY ? 200 : 1; /* so that a busy machine does not miss the bug */
    stress_begin(argc, argv);
    for (uint32_t round = 0; round < least || stress_goes_on(); round++) {
        threads = 2 + round % (THREADS_MAX - 1);
        for (uint32_t form = GA_COALESCE_AUTO; form < GA_COALESCE_FORMS; form++) {
            play(form, round % 3, false);
        }
        play(GA_COALESCE_HEADERLESS, GA_COALESCE_NO_BARE, true);
    }
    printf("%llu payloads\n", (unsigned long long)freed);
    return 0;
}
