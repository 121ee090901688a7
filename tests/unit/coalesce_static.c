/* SPDX-License-Identifier: MIT
 *
 * Static coalescing: the payloads of a team's members, with and without headers. A superblock is
 * freed with its last payload, regardless of the lanes that free, mixed with payloads of dynamic
 * coalescing. The map from payloads to superblocks is compared with a plain one.
 */
#include "support/coalesce_world.h"
#include "support/expect.h"

#include <stdio.h>

enum {
    LANES = 32,
    SLOTS = 48,
    SLOT = 1 << 23,
    TEAM = 1024,
    BUCKETS = 512
};

static const char *const forms[] = {"auto", "8", "16", "none"};
static const char *const bares[] = {"no bare", "by note", "by map"};

#define EACH_WORLD(form, bare)                                                                     \
    for (uint32_t form = GA_COALESCE_AUTO; form < GA_COALESCE_FORMS; form++)                       \
        for (uint32_t bare = GA_COALESCE_NO_BARE; bare <= GA_COALESCE_BY_MAP; bare++)

#define WORLD     "%s, %s: "
#define OF(world) forms[(world)->view.form], bares[(world)->view.bare]

static coalesce_world *world_of(uint32_t form, uint32_t bare)
{
    return world_new(form, bare, BUCKETS, SLOTS, SLOT);
}

static void assert_clean(const coalesce_world *world)
{
    cr_assert_eq(world_live(world), 0, WORLD "%u superblocks are left", OF(world),
                 world_live(world));
    cr_assert_eq(world->wrong, 0, WORLD "%llu wrong releases", OF(world),
                 (unsigned long long)world->wrong);
    cr_assert_eq(world->heap.faults[0] + world->heap.faults[1], 0, WORLD "faults", OF(world));
    cr_assert_eq(world->heap.map.live, 0, WORLD "%u entries are left", OF(world),
                 world->heap.map.live);
    for (uint32_t i = 0; i < world->heap.map.buckets; i++) {
        cr_assert_eq(world->heap.map.spilled[i], 0, "bucket %u has spilled", i);
    }
}

/* A team of `n` members allocates, one member after the other; stores each member's payload. */
static ga_static_plan team_malloc(coalesce_world *world, bool bare, uint32_t n, uint64_t size,
                                  char **payloads)
{
    ga_static_plan plan = ga_static_plan_of(world->view, bare, size);
    char *block = ga_static_begin(world->view, world_tile(), plan, n);
    cr_assert(block, "no superblock for %u of %llu bytes", n, (unsigned long long)size);
    for (uint32_t rank = 0; rank < n; rank++) {
        payloads[rank] = ga_static_place(world->view, plan, block, rank);
    }
    return plan;
}

static void shuffle(uint64_t *random, char **payloads, uint32_t n)
{
    for (uint32_t i = n - 1; i; i--) {
        size_t other = random_below(random, i + 1);
        char *swap = payloads[i];
        payloads[i] = payloads[other];
        payloads[other] = swap;
    }
}

/* Free them all by tiles of chance; the superblocks that are there go with the last. */
static void free_all(coalesce_world *world, uint64_t *random, char **payloads, uint32_t n)
{
    while (n) {
        char *some[LANES] = {NULL};
        uint32_t giving = (uint32_t)random_next(random) | (uint32_t)random_next(random);
        for (uint32_t lane = 0; lane < LANES && n; lane++) {
            if (giving >> lane & 1u) {
                some[lane] = payloads[--n];
            }
        }
        cr_assert_gt(world_live(world), 0, WORLD "gone too early", OF(world));
        world_free(world, giving, some);
        cr_assert_eq(ga_coalesce_usable(world->view, NULL), 0, WORLD "a size of NULL", OF(world));
    }
}

static void assert_place(const coalesce_world *world, const ga_static_plan *plan, uint64_t size,
                         char *const *payloads, uint32_t n)
{
    uint64_t align = plan->kind == GA_STATIC_HEADERS || world->view.form >= GA_COALESCE_SIXTEEN ? 16
                     : size % 8                                                                 ? 4
                                                                                                : 8;
    uint64_t place = world_place(world, payloads[0]);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_eq((uintptr_t)payloads[i] % align, 0, WORLD "payload %u at %p", OF(world), i,
                     (void *)payloads[i]);
        cr_assert(!i || payloads[i] >= payloads[i - 1] + size, WORLD "payload %u overlaps",
                  OF(world), i);
        uint64_t usable = ga_coalesce_usable(world->view, payloads[i]);
        cr_assert(usable >= size && usable <= size + 16, WORLD "%llu bytes: %llu told", OF(world),
                  (unsigned long long)size, (unsigned long long)usable);
        memset(payloads[i], (int)i, usable);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t usable = ga_coalesce_usable(world->view, payloads[i]);
        cr_assert(!usable || (unsigned char)payloads[i][usable - 1] == (unsigned char)i,
                  WORLD "payload %u is another's", OF(world), i);
    }
    cr_assert_leq(payloads[n - 1] + size, world->memory + place * SLOT + world->slots[place].bytes,
                  WORLD "beyond its superblock", OF(world));
}

/* ---- teams of any size ----------------------------------------------------------------------- */

Test(coalesce_static, each_member_has_a_place)
{
    static const uint32_t teams[] = {1, 2, 31, 32, 33, 1000, TEAM};
    static const uint64_t sizes[] = {0, 1, 4, 100, 200, 4095};
    char *payloads[TEAM];
    uint64_t random = 1;
    EACH_WORLD(form, bare)
    {
        coalesce_world *world = world_of(form, bare);
        for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                ga_static_plan plan = team_malloc(world, s % 2, teams[t], sizes[s], payloads);
                assert_place(world, &plan, sizes[s], payloads, teams[t]);
                cr_assert_eq(world_live(world), 1, WORLD "one call of the parent's", OF(world));
                shuffle(&random, payloads, teams[t]);
                free_all(world, &random, payloads, teams[t]);
                assert_clean(world);
            }
        }
        world_delete(world);
    }
}

/* Distances as in the paper: 25 floats with a header and its padding, and bare. */
Test(coalesce_static, payloads_are_so_far_apart)
{
    static const struct {
        uint32_t form, bare, apart, before;
    } cases[] = {{GA_COALESCE_AUTO, GA_COALESCE_NO_BARE, 112, 16},
                 {GA_COALESCE_AUTO, GA_COALESCE_BY_MAP, 100, 16},
                 {GA_COALESCE_EIGHT, GA_COALESCE_BY_NOTE, 100, 0},
                 {GA_COALESCE_SIXTEEN, GA_COALESCE_BY_MAP, 112, 16},
                 {GA_COALESCE_HEADERLESS, GA_COALESCE_NO_BARE, 112, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        coalesce_world *world = world_of(cases[i].form, cases[i].bare);
        ga_static_plan plan = ga_static_plan_of(world->view, true, 100);
        cr_assert_eq(plan.stride, cases[i].apart, WORLD "%llu apart", OF(world),
                     (unsigned long long)plan.stride);
        cr_assert_eq(plan.before, cases[i].before, WORLD "%u before", OF(world), plan.before);
        world_delete(world);
    }
}

Test(coalesce_static, huge_ones_get_nothing)
{
    EACH_WORLD(form, bare)
    {
        static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 15, (uint64_t)1 << 60, SLOT};
        coalesce_world *world = world_of(form, bare);
        for (size_t s = 0; s < 4; s++) {
            ga_static_plan plan = ga_static_plan_of(world->view, true, sizes[s]);
            cr_assert_null(ga_static_begin(world->view, world_tile(), plan, TEAM));
        }
        assert_clean(world);
        world_delete(world);
    }
}

/* ---- teams that are tiles -------------------------------------------------------------------- */

static void tile_malloc(coalesce_world *world, bool bare, uint64_t size, char **payloads)
{
    ga_wide wide = ga_static_claim(world->view, world_tile(), bare, size);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        payloads[lane] = (char *)ga_wide_read(wide, lane);
    }
}

/* All that may be used of each is written to, and is no other's. */
static void fill_all(const coalesce_world *world, char *const *payloads, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        memset(payloads[i], (int)i, ga_coalesce_usable(world->view, payloads[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t usable = ga_coalesce_usable(world->view, payloads[i]);
        cr_assert(usable, WORLD "payload %u has no size", OF(world), i);
        for (uint64_t byte = 0; byte < usable; byte++) {
            cr_assert_eq((unsigned char)payloads[i][byte], (unsigned char)i,
                         WORLD "payload %u is another's", OF(world), i);
        }
    }
}

/* Payloads of all kinds are live at once, and one function frees them in any order. */
Test(coalesce_static, one_free_for_all)
{
    uint64_t random = 9;
    EACH_WORLD(form, bare)
    {
        coalesce_world *world = world_of(form, bare);
        for (int round = 0; round < 300; round++) {
            char *payloads[6 * LANES];
            uint64_t sizes[LANES];
            for (int i = 0; i < LANES; i++) {
                sizes[i] = random_below(&random, 300);
            }
            tile_malloc(world, true, random_below(&random, 300), payloads);
            world_malloc(world, GA_ALL_BITS, sizes, payloads + LANES);
            tile_malloc(world, false, random_below(&random, 300), payloads + 2 * LANES);
            team_malloc(world, true, 2 * LANES, random_below(&random, 300), payloads + 3 * LANES);
            world->view.max = 100; /* some alone */
            world_malloc(world, GA_ALL_BITS, sizes, payloads + 5 * LANES);
            world->view.max = GA_COALESCE_MAX;
            fill_all(world, payloads, 6 * LANES);
            shuffle(&random, payloads, 6 * LANES);
            free_all(world, &random, payloads, 6 * LANES);
            assert_clean(world);
        }
        world_delete(world);
    }
}

/* All lanes have a payload, or none has. */
static bool is_served(const coalesce_world *world, char *const *payloads)
{
    uint32_t served = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        served += payloads[i] != NULL;
    }
    cr_assert(served == 0 || served == LANES, WORLD "%u lanes of 32 are served", OF(world), served);
    return served != 0;
}

/* If there is no superblock, each lane gets a block of its own. */
Test(coalesce_static, without_a_superblock)
{
    uint64_t random = 4;
    EACH_WORLD(form, bare)
    {
        coalesce_world *world = world_of(form, bare);
        char *payloads[LANES];
        world->fails_to = 2; /* the static call, and the dynamic one that follows */
        tile_malloc(world, true, 60, payloads);
        cr_assert(is_served(world, payloads));
        cr_assert_eq(world_live(world), 32);
        free_all(world, &random, payloads, LANES);
        assert_clean(world);
        world->fails_to = UINT64_MAX;
        tile_malloc(world, true, 60, payloads);
        cr_assert_not(is_served(world, payloads));
        assert_clean(world);
        world_delete(world);
    }
}

/* A parent with blocks for some of the lanes: none gets one, and all are free again. */
Test(coalesce_static, blocks_for_some_lanes_only)
{
    static const uint64_t sizes[] = {0, 60, 4000};
    uint64_t random = 6;
    EACH_WORLD(form, bare)
    {
        for (uint32_t slots = 0; slots <= LANES; slots++) {
            coalesce_world *world = world_new(form, bare, BUCKETS, slots, SLOT);
            char *payloads[LANES];
            for (uint32_t s = 0; s < 3; s++) {
                world->claims = 0;
                world->fails_to = 2; /* so each lane asks for itself */
                tile_malloc(world, s % 2, sizes[s], payloads);
                cr_assert_eq(is_served(world, payloads), slots == LANES, WORLD "%u blocks",
                             OF(world), slots);
                cr_assert_eq(world_live(world), slots == LANES ? LANES : 0);
                if (slots == LANES) {
                    free_all(world, &random, payloads, LANES);
                }
                assert_clean(world);
            }
            world_delete(world);
        }
    }
}

/* Superblocks until the parent has none: each serves all lanes, and the call after the last one
 * none, as often as one is freed and claimed again. */
Test(coalesce_static, filled_to_the_last_superblock)
{
    uint64_t random = 8;
    EACH_WORLD(form, bare)
    {
        coalesce_world *world = world_of(form, bare);
        char *payloads[SLOTS][LANES], *none[LANES];
        for (uint32_t i = 0; i < SLOTS; i++) {
            tile_malloc(world, true, i, payloads[i]);
            cr_assert(is_served(world, payloads[i]), WORLD "superblock %u", OF(world), i);
        }
        for (uint32_t round = 0; round < 20; round++) {
            uint32_t one = (uint32_t)random_below(&random, SLOTS);
            cr_assert_eq(world_live(world), SLOTS);
            tile_malloc(world, round % 2, 40, none);
            cr_assert_not(is_served(world, none));
            free_all(world, &random, payloads[one], LANES);
            tile_malloc(world, true, round, payloads[one]);
            cr_assert(is_served(world, payloads[one]));
        }
        for (uint32_t i = 0; i < SLOTS; i++) {
            free_all(world, &random, payloads[i], LANES);
        }
        assert_clean(world);
        world_delete(world);
    }
}

/* The map has room for 16 payloads of the superblock, and the parent for some of the others. */
Test(coalesce_static, a_full_map_and_a_full_parent)
{
    uint64_t random = 7;
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        for (uint32_t slots = 1; slots <= 1 + LANES / 2; slots++) {
            coalesce_world *world = world_new(form, GA_COALESCE_BY_MAP, 2, slots, SLOT);
            char *payloads[LANES];
            world->fails_at = 1; /* the dynamic call after the static one */
            world->fails_to = 2;
            tile_malloc(world, true, 50, payloads);
            cr_assert_eq(is_served(world, payloads), slots == 1 + LANES / 2, "%u blocks", slots);
            if (slots == 1 + LANES / 2) {
                free_all(world, &random, payloads, LANES);
            }
            assert_clean(world);
            world_delete(world);
        }
    }
}

/* Payloads without room in the map are served like others. */
Test(coalesce_static, the_map_is_full)
{
    uint64_t random = 5;
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        coalesce_world *world = world_new(form, GA_COALESCE_BY_MAP, 2, SLOTS, SLOT);
        for (int round = 0; round < 100; round++) {
            char *payloads[2 * LANES];
            tile_malloc(world, true, 50, payloads);
            tile_malloc(world, true, 70, payloads + LANES);
            cr_assert_eq(world->heap.map.live, 16, "%u entries", world->heap.map.live);
            for (uint32_t i = 0; i < 2 * LANES; i++) {
                cr_assert(payloads[i], "lane %u", i);
                memset(payloads[i], 1, i < LANES ? 50 : 70);
            }
            shuffle(&random, payloads, 2 * LANES);
            free_all(world, &random, payloads, 2 * LANES);
            assert_clean(world);
        }
        world_delete(world);
    }
}

/* A payload with a header that is freed twice counts once. */
Test(coalesce_static, a_second_free_is_noticed)
{
    coalesce_world *world = world_of(GA_COALESCE_AUTO, GA_COALESCE_NO_BARE);
    char *payloads[LANES];
    tile_malloc(world, false, 40, payloads);
    world_free_one(world, 3, payloads[7]);
    world_free_one(world, 7, payloads[7]);
    cr_assert_eq(world->heap.faults[GA_COALESCE_FREED_TWICE], 1);
    payloads[7] = NULL;
    world_free(world, GA_ALL_BITS, payloads);
    cr_assert_eq(world_live(world), 0);
    cr_assert_eq(world->heap.faults[GA_COALESCE_FREED_TWICE], 1);
    world_delete(world);
}

/* ---- the map --------------------------------------------------------------------------------- */

enum {
    KEYS = 700, /* about 300 of them are live */
    STEPS = 60000
};

/* Keys of few different homes, more than the map has room for. */
static uint64_t key_of(uint32_t number)
{
    return 0x7f0000000000u + (uint64_t)number * 16;
}

static void map_script(uint32_t buckets)
{
    coalesce_world *world = world_new(GA_COALESCE_AUTO, GA_COALESCE_BY_MAP, buckets, 1, 4096);
    ga_map *map = &world->heap.map;
    uint64_t values[KEYS] = {0};
    uint64_t random = buckets;
    uint32_t live = 0;
    uint32_t full = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)random_below(&random, KEYS);
        uint64_t value = 1 + random_next(&random) / 2;
        if (!values[number] && random_below(&random, 100) < (step / 2048 % 2 ? 30 : 80)) {
            bool done = ga_map_insert(map, key_of(number), value);
            values[number] = done ? value : 0;
            live += done;
            full += !done;
            cr_assert(done || live > buckets * GA_MAP_BUCKET / 2, "full with %u of %u", live,
                      buckets * GA_MAP_BUCKET);
        } else {
            uint64_t got = ga_map_remove(map, key_of(number));
            cr_assert_eq(got, values[number], "%u buckets: key %u has %llx, expected %llx", buckets,
                         number, (unsigned long long)got, (unsigned long long)values[number]);
            live -= got != 0;
            values[number] = 0;
        }
        cr_assert_eq(map->live, live);
    }
    cr_assert(full || buckets * GA_MAP_BUCKET > KEYS / 4, "%u buckets: never full", buckets);
    for (uint32_t number = 0; number < KEYS; number++) {
        cr_assert_eq(ga_map_remove(map, key_of(number)), values[number]);
    }
    assert_clean(world);
    world_delete(world);
}

Test(coalesce_static, the_map_against_a_plain_one)
{
    for (uint32_t buckets = 1; buckets <= 128; buckets *= 2) {
        map_script(buckets);
    }
}
