/* SPDX-License-Identifier: MIT
 *
 * The typed calls from several threads at once: batches, hands and the pure mode on one heap, which is
 * nearly full at times. Units change hands through a table, so that they go back where others claimed
 * them. A unit says in plain memory whether it is free, and nobody else's; in the end all of them are.
 */
#include "slab/typed.h"

#include "stress.h"
#include "support/random.h"
#include "support/slab_world.h"

enum {
    THREADS = 4,
    BATCH = 32,
    SLOTS = 1920, /* of the 2048 units; hands and batches have the others */
    STEPS = 200
};

static slab_world *world;
static uint64_t *slots[SLOTS];

/* What a thread claims with, and gives back with. */
typedef struct desk {
    uint64_t random;
    uint32_t near;
    ga_slab_hand hand;
    ga_slab_resident resident;
} desk;

static void mark_claimed(uint64_t *unit)
{
    NEED(*unit == 0);
    *unit = (uint64_t)(uintptr_t)unit;
}

static void mark_free(uint64_t *unit)
{
    NEED(*unit == (uint64_t)(uintptr_t)unit);
    *unit = 0;
}

static uint32_t claim(desk *own, uint32_t way, void **units)
{
    uint32_t got = 1;
    if (way == 0) {
        got = ga_slab_claim_batch(&world->heap, &own->near,
                                  1 + (uint32_t)random_below(&own->random, BATCH), units);
    } else if (way == 1) {
        units[0] = ga_slab_hand_claim(&own->hand);
    } else {
        units[0] = ga_slab_resident_claim(&world->heap, &own->resident);
    }
    got = units[0] ? got : 0;
    for (uint32_t i = 0; i < got; i++) {
        mark_claimed(units[i]);
    }
    return got;
}

static void release(desk *own, uint32_t way, uint32_t n, void **units)
{
    for (uint32_t i = 0; i < n; i++) {
        mark_free(units[i]);
    }
    if (way == 0) {
        ga_slab_release_batch(&world->heap, &own->near, n, units);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (way == 1) {
            NEED(ga_slab_hand_release(&own->hand, units[i]));
        } else {
            ga_slab_resident_release(&world->heap, units[i]);
        }
    }
}

/* Put the units into slots, and take out what is there. */
static uint32_t exchange(desk *own, uint32_t n, void **units)
{
    uint32_t got = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t **slot = &slots[random_below(&own->random, SLOTS)];
        /* acq_rel. Pairs with itself: a unit's mark goes with it. */
        uint64_t *other = __atomic_exchange_n(slot, units[i], __ATOMIC_ACQ_REL);
        if (other) {
            units[got++] = other;
        }
    }
    return got;
}

static void work(size_t number)
{
    desk own = {.random = number, .near = ga_slab_word_apart(&world->heap, (uint32_t)number)};
    ga_slab_hand_begin(&own.hand, &world->heap, (uint32_t)number);
    ga_slab_resident_start(&world->heap, (uint32_t)number, &own.resident);
    while (stress_goes_on()) {
        for (uint32_t i = 0; i < STEPS; i++) {
            void *units[BATCH] = {NULL};
            uint32_t n = claim(&own, (uint32_t)random_below(&own.random, 3), units);
            n = exchange(&own, n, units);
            if (n) {
                release(&own, (uint32_t)random_below(&own.random, 3), n, units);
            }
        }
    }
    ga_slab_hand_end(&own.hand);
}

int main(int argc, char **argv)
{
    ga_slab_shape shape = {128, 0, 2, GA_SLAB_SPREAD_HOST, true};
    stress_begin(argc, argv);
    world = slab_world_new(shape, 2, SLAB_WORLD_FREE);
    stress_threads(THREADS, work);
    uint32_t near = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (slots[i]) {
            void *unit = slots[i];
            mark_free(unit);
            ga_slab_release_batch(&world->heap, &near, 1, &unit);
        }
    }
    NEED(slab_world_live(world) == 0);
    NEED(slab_world_wrong(world) == GA_SLAB_FULL);
    slab_world_delete(world);
    return 0;
}
