/* SPDX-License-Identifier: MIT
 *
 * No two live units overlap. A shadow has a byte for each 16 bytes of the heap; a thread that
 * claims a unit must find all of its bytes 0, and 1 when it frees the unit. The shadow's accesses
 * are relaxed: their results are right only if the heap orders one owner after the other.
 *
 *     stress-slab_property [SECONDS | --operations N]
 *
 * Each claim and each free of a unit is an operation. Prints their number. With N there are two
 * threads.
 */
#include "stress.h"

#include "support/slab_actor.h"
#include "support/slab_world.h"

#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 8,
    LANES = 32,
    GRANULE = 16,
    ROUND = 1 << 21 /* operations of a thread */
};

typedef struct tally {
    uint64_t claimed, released, full;
} tally;

/* Small heaps, so that each row, block or superblock is filled again and again. */
static const ga_slab_shape shapes[] = {{16, 0, 64, GA_SLAB_SPREAD_HOST, true},
                                       {48, 2, 3, GA_SLAB_SPREAD_HOST, false},
                                       {16, 0, 2, GA_SLAB_SPREAD_HOST, false},
                                       {32, 4, 2, GA_SLAB_SPREAD_HOST, true},
                                       {128, 0, 37, GA_SLAB_SPREAD_HOST, false}};

static slab_world *world;
static uint8_t *shadow;
static size_t threads = 2;
static uint32_t seed;
static tally tallies[THREADS_MAX]; /* of each thread; the sums once they have joined */

static void mark(uint32_t unit, uint8_t before, uint8_t after)
{
    const char *begin = ga_slab_pointer(ga_slab_view_of(&world->heap), unit);
    uint8_t *bytes = shadow + (size_t)(begin - world->units) / GRANULE;
    for (uint32_t i = 0; i < world->shape.unit / GRANULE; i++) {
        /* relaxed: see above. */
        uint8_t found = __atomic_exchange_n(&bytes[i], after, __ATOMIC_RELAXED);
        if (found != before) {
            fprintf(stderr, "unit %u of %u bytes, granule %u: found %u, expected %u\n", unit,
                    world->shape.unit, i, found, before);
            stress_need(false, "units overlap, or were lost");
        }
    }
}

static void mark_all(const uint32_t *units, uint32_t n, uint8_t before, uint8_t after)
{
    for (uint32_t i = 0; i < n; i++) {
        mark(units[i], before, after);
    }
}

typedef struct owner {
    slab_actor actor;
    uint32_t *held;
    uint32_t count, max;
    tally *tally;
} owner;

/* Claim in batches of 32 mostly, because these are the fastest. */
static void claim(owner *own)
{
    uint64_t dice = random_next(&own->actor.random);
    slab_claim_kind kind = dice % 8 < 6 ? SLAB_LANES : dice % 8 == 6 ? SLAB_ONE : SLAB_WORD;
    uint32_t wanted = dice >> 8 & 1 ? LANES : 1 + (uint32_t)(dice >> 16) % LANES;
    uint32_t got = slab_actor_claim(&own->actor, kind, wanted, own->held + own->count);
    mark_all(own->held + own->count, got, 0, 1);
    own->count += got;
    own->tally->claimed += got;
    own->tally->full += got < wanted;
}

/* Free the last units, which are often of one word, or random ones. */
static void release(owner *own)
{
    uint32_t n = own->count < LANES ? own->count : LANES;
    uint32_t units[LANES];
    for (uint32_t i = 0; i < n; i++) {
        bool any = own->actor.random & 1;
        size_t at = any ? random_below(&own->actor.random, own->count) : own->count - 1;
        units[i] = own->held[at];
        own->held[at] = own->held[--own->count];
    }
    mark_all(units, n, 1, 0);
    slab_actor_release(&own->actor, units, n);
    own->tally->released += n;
}

/* Together the threads request a little more than there is; in every other round they seldom reach
 * that. */
static void work(size_t number)
{
    uint32_t claims = 9 + seed / THREADS_MAX % 2; /* of 16 steps */
    owner own = {.tally = &tallies[number]};
    uint64_t begin = own.tally->claimed + own.tally->released;
    own.max = (uint32_t)(slab_world_units(world) / threads) + 2 * LANES;
    own.held = malloc((own.max + LANES) * sizeof *own.held);
    stress_need(own.held, "memory");
    slab_actor_begin(&own.actor, &world->heap, seed + (uint32_t)number);
    while (own.tally->claimed + own.tally->released - begin < ROUND) {
        if (own.count < own.max && random_below(&own.actor.random, 16) < claims) {
            claim(&own);
        } else {
            release(&own);
        }
        if (random_below(&own.actor.random, 256) == 0) {
            slab_actor_rest(&own.actor);
        }
    }
    while (own.count) {
        release(&own);
    }
    slab_actor_rest(&own.actor);
    free(own.held);
}

static void run_round(ga_slab_shape shape)
{
    size_t spans = shape.supers * ((size_t)ga_slab_super_bytes(&shape) + SLAB_WORLD_GAP);
    world = slab_world_new(shape, shape.supers, SLAB_WORLD_BARE);
    shadow = calloc(spans / GRANULE, 1);
    stress_need(shadow, "memory");
    stress_threads(threads, work);
    stress_need(slab_world_live(world) == 0, "units were lost");
    stress_need(slab_world_wrong(world) == GA_SLAB_FULL, "a count is not what the bitmap says");
    stress_need(!memchr(shadow, 1, spans / GRANULE), "units were given back that nobody had");
    free(shadow);
    slab_world_delete(world);
}

static tally sum(void)
{
    tally all = {0};
    for (size_t i = 0; i < THREADS_MAX; i++) {
        all.claimed += tallies[i].claimed;
        all.released += tallies[i].released;
        all.full += tallies[i].full;
    }
    return all;
}

static uint64_t parse(int argc, char **argv)
{
    char *end = NULL;
    if (argc != 3 || strcmp(argv[1], "--operations") != 0) {
        stress_begin(argc, argv);
        return 0;
    }
    uint64_t operations = strtoull(argv[2], &end, 10);
    if (*end || !operations) {
        errx(2, "--operations: expected a number, got %s", argv[2]);
    }
    return operations;
}

int main(int argc, char **argv)
{
    uint64_t operations = parse(argc, argv);
    uint32_t rounds = 0;
    tally all = {0};
    do {
        seed = rounds * THREADS_MAX;
        threads = operations ? 2 : 2 + rounds % (THREADS_MAX - 1);
        run_round(shapes[rounds++ % (sizeof shapes / sizeof shapes[0])]);
        all = sum();
    } while (operations ? all.claimed + all.released < operations : stress_goes_on());
    stress_need(all.claimed == all.released, "as many are given back as are claimed");
    printf("%" PRIu64 " operations: %" PRIu64 " units claimed, each given back, no two at one time "
           "over one byte; %u heaps, %" PRIu64 " times FULL\n",
           all.claimed + all.released, all.claimed, rounds, all.full);
    return 0;
}
