/* SPDX-License-Identifier: MIT
 *
 * Blocks of all sizes for one tile at a time: units do not overlap, each class is filled to its
 * last unit and no further, and addresses lead to their class. A script of operations is compared
 * with a plain map of the owners of each 16 bytes.
 */
#include "support/expect.h"
#include "support/random.h"
#include "support/sized_shape.h"

#include <stdlib.h>

enum {
    GRANULES = REGION / GA_SIZED_GRANULE
};

/* ---- the owners of each 16 bytes ---------------------------------------------------------- */

typedef struct model {
    sized_world *world;
    uint8_t *taken;  /* for each 16 bytes of all regions */
    uint32_t *owner; /* for each region the class of its live units */
    uint32_t *units; /* and their number: with 0, any class may take the region */
    uint64_t live;
} model;

static model model_of(sized_world *world)
{
    model m = {.world = world};
    m.taken = calloc(world->regions, GRANULES);
    m.owner = calloc(world->regions, sizeof *m.owner);
    m.units = calloc(world->regions, sizeof *m.units);
    cr_assert(m.taken && m.owner && m.units);
    return m;
}

static void model_end(model *m)
{
    sized_world_delete(m->world);
    free(m->taken);
    free(m->owner);
    free(m->units);
}

/* The block's own class, by the region it is in; it lies where a unit of the class does. */
static uint32_t granule_of(const model *m, uint32_t class, const char *block)
{
    uint64_t offset = (uint64_t)(block - m->world->heap->units);
    uint64_t region = offset >> BITS;
    uint32_t unit = ga_sized_unit(class);
    cr_assert_lt(region, m->world->regions, "class %u: outside", class);
    cr_assert_eq(offset % REGION % unit, 0, "class %u: at byte %llu", class,
                 (unsigned long long)(offset % REGION));
    cr_assert_leq(offset % REGION + unit, REGION, "class %u: beyond its region", class);
    if (!m->units[region]) {
        m->owner[region] = class;
    }
    cr_assert_eq(m->owner[region], class, "region %llu is of two classes",
                 (unsigned long long)region);
    return (uint32_t)(offset / GA_SIZED_GRANULE);
}

static void model_take(model *m, uint32_t class, const char *block)
{
    uint32_t first = granule_of(m, class, block);
    for (uint32_t i = first; i < first + ga_sized_unit(class) / GA_SIZED_GRANULE; i++) {
        cr_assert_eq(m->taken[i], 0, "class %u: somebody has it", class);
        m->taken[i] = 1;
    }
    m->units[first / GRANULES]++;
    m->live++;
}

static void model_give(model *m, uint32_t class, const char *block)
{
    uint32_t first = granule_of(m, class, block);
    for (uint32_t i = first; i < first + ga_sized_unit(class) / GA_SIZED_GRANULE; i++) {
        cr_assert_eq(m->taken[i], 1);
        m->taken[i] = 0;
    }
    m->units[first / GRANULES]--;
    m->live--;
}

static void expect_live(const model *m)
{
    cr_assert_eq(sized_world_live(m->world, GA_SIZED_NONE), m->live);
}

/* ---- claims ---------------------------------------------------------------------------------- */

typedef enum way_of_claiming {
    ALIKE, /* all lanes, one class */
    WARP,  /* all lanes, one class, as a whole warp does it */
    ALONE, /* one lane */
    SOME,  /* some lanes, one class */
    MIXED, /* all lanes, any classes, one of which is `class` */
    WAYS
} way_of_claiming;

static const char *const ways[] = {"alike", "warp", "alone", "some", "mixed"};

typedef struct asked {
    uint32_t lanes, served;
    uint32_t classes[LANES];
    char *blocks[LANES];
} asked;

/* Request units by this method, and record the result. */
static asked ask(model *m, way_of_claiming map, uint32_t class, uint64_t *random)
{
    asked a = {.lanes = GA_ALL_BITS};
    uint32_t number = (uint32_t)random_next(random) >> random_below(random, 32);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        a.classes[lane] =
            map == MIXED && lane ? (uint32_t)random_below(random, m->world->heap->classes) : class;
    }
    if (map == ALONE) {
        a.lanes = 1u << random_below(random, LANES);
    } else if (map == SOME) {
        a.lanes = (uint32_t)random_next(random) | 1u << random_below(random, LANES);
    }
    a.served = map == WARP ? sized_claim_warp(m->world->heap, class, number, a.blocks)
                           : sized_claim(m->world->heap, a.lanes, a.classes, number, a.blocks);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (a.blocks[lane]) {
            cr_assert(a.lanes >> lane & 1u, "lane %u did not ask", lane);
            model_take(m, a.classes[lane], a.blocks[lane]);
        }
    }
    return a;
}

static void give(model *m, uint32_t lanes, const uint32_t *classes, char *const *blocks)
{
    for (uint32_t rest = lanes; rest; rest &= rest - 1u) {
        model_give(m, classes[ga_bits_lowest(rest)], blocks[ga_bits_lowest(rest)]);
    }
    cr_assert(sized_release(m->world->heap, lanes, blocks));
}

Test(sized_tile, lanes_get_what_they_ask_for)
{
    uint64_t random = 1;
    for (uint32_t map = 0; map < WAYS; map++) {
        for (uint32_t round = 0; round < 100; round++) {
            model m = model_of(sized_world_new(BITS, 64));
            uint32_t class = round % m.world->heap->classes;
            asked a = ask(&m, map, class, &random);
            cr_assert_eq(a.served, ga_bits_count(a.lanes), "%s, class %u: %u", ways[map], class,
                         a.served);
            expect_live(&m);
            give(&m, a.lanes, a.classes, a.blocks);
            expect_live(&m);
            model_end(&m);
        }
    }
}

/* ---- to the last unit ------------------------------------------------------------------------ */

/* Claim all memory, each unit once; then requests by every method fail. */
static uint64_t fill(model *m, way_of_claiming map, uint32_t class, uint64_t *random)
{
    uint64_t got = 0;
    asked a;
    do {
        a = ask(m, map, class, random);
        got += a.served;
    } while (a.served == ga_bits_count(a.lanes));
    for (uint32_t i = 0; i < MIXED; i++) {
        a = ask(m, i, class, random);
        cr_assert_eq(a.served, 0, "class %u, filled %s: %s gets %u more", class, ways[map], ways[i],
                     a.served);
    }
    return got;
}

static void fill_each_class(sized_world *(*make)(uint32_t, uint32_t), uint32_t regions)
{
    uint64_t random = 2;
    for (uint32_t map = 0; map < MIXED; map++) {
        for (uint32_t class = 0; class < ga_sized_class_count(BITS); class ++) {
            model m = model_of(make(BITS, regions));
            uint64_t units = regions * (REGION / ga_sized_unit(class));
            uint64_t got = fill(&m, map, class, &random);
            cr_assert_eq(got, units, "class %u, %s: %llu units of %llu", class, ways[map],
                         (unsigned long long)got, (unsigned long long)units);
            expect_live(&m);
            cr_assert_eq(sized_world_regions(m.world, class), regions);
            model_end(&m);
        }
    }
}

Test(sized_tile, each_class_is_filled_to_the_last_unit)
{
    fill_each_class(sized_world_new, 3);
}

Test(sized_tile, each_class_grows_to_the_last_unit)
{
    fill_each_class(sized_world_growing, 3);
}

/* A claim by a tile of `width` lanes, of one unit: false if there is none. As
 * ga_sized_claim_search(), which has tiles of 32 lanes here. */
static bool claim_by(sized_world *world, uint32_t width, uint32_t class, uint32_t number)
{
    uint32_t lane = number % 32;
    ga_tile tile = ga_tile_of(width);
    ga_sized_view view = view_of(world);
    uint32_t *all = &world->heap->of[class].map.total_words;
    ga_sized_search search = {.class_ = class, .requesting = 1, .rotation = number % 32};
    uint32_t held = GA_SIZED_NONE;
    uint32_t key =
        ga_sized_home_word(view, ga_sized_load_class_map(world->heap->of + class), number);
    uint32_t taken =
        key == GA_SIZED_NONE ? GA_ALL_BITS : ga_or_relaxed(view.bits + key, 1u << lane);
    ga_lanes free = ga_lanes_all(~(taken | 1u << lane)), bits = ga_lanes_all(0);
    ga_lane_write(&bits, lane, 1u << lane & ~taken);
    ga_sized_units got =
        ga_sized_claim_by_lane(view, ga_tile_of(32), 1u << lane, ga_lanes_all(class), true, number,
                               ga_lanes_all(key), bits, free);
    if (ga_lane_read(got.word_indices, lane) != GA_SIZED_NONE) {
        return true;
    }
    do {
        if (*all) {
            ga_sized_search_class(view, tile, number, *all, &search);
        }
    } while (search.requesting && ga_sized_grow(world->heap, tile, class, *all, &held) &&
             held == GA_SIZED_NONE);
    return !search.requesting || held != GA_SIZED_NONE;
}

/* Even if few lanes search, a class fills its newest region before it grows. */
Test(sized_tile, a_class_is_nearly_full_before_it_grows)
{
    enum {
        NEEDED = 110 /* regions */
    };
    const uint32_t classes[] = {0, 7, 19, 36}, widths[] = {1, 2, 8, 32};
    for (uint32_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (uint32_t j = 0; j < sizeof widths / sizeof *widths; j++) {
            sized_world *world = sized_world_new(BITS, 1000);
            uint32_t units = NEEDED * (REGION / ga_sized_unit(classes[i]));
            for (uint32_t number = 0; number < units; number++) {
                cr_assert(claim_by(world, widths[j], classes[i], number));
            }
            uint32_t regions = sized_world_regions(world, classes[i]);
            cr_assert(regions <= NEEDED * 12 / 11, "class %u, %u lanes: %u regions for %u",
                      classes[i], widths[j], regions, NEEDED);
            sized_world_delete(world);
        }
    }
}

static void free_and_find(uint32_t class, uint32_t regions, uint32_t times, uint64_t *random)
{
    model m = model_of(sized_world_new(BITS, regions));
    uint32_t unit = ga_sized_unit(class), last = REGION / unit - 1;
    fill(&m, ALIKE, class, random);
    for (uint32_t i = 0; i < times; i++) {
        bool end = i < 2 * regions; /* first and last of each region */
        uint32_t region = end ? i / 2 : (uint32_t)random_below(random, regions);
        uint32_t slot = end ? i % 2 * last : (uint32_t)random_below(random, last + 1);
        char *block = m.world->heap->units + region * REGION + slot * unit;
        give(&m, 1, &class, &block);
        asked a = ask(&m, i % WAYS, class, random);
        uint32_t alike = 0;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            alike += a.blocks[lane] == block;
        }
        cr_assert(a.served >= 1 && alike == 1, "class %u, %s: unit %u of region %u was not found",
                  class, ways[i % WAYS], slot, region);
    }
    expect_live(&m);
    model_end(&m);
}

/* A free unit is found at any position, by every method, and by one lane alone. */
Test(sized_tile, a_unit_that_is_freed_is_found)
{
    uint64_t random = 4;
    ga_sized_view view = {.classes = ga_sized_class_count(BITS)};
    for (uint32_t class = 0; class < view.classes; class += 1 + class % 3) {
        free_and_find(class, 5, 40, &random);
    }
    /* One word more than a tile has lanes, and one fewer. */
    free_and_find(ga_sized_class_of(view, REGION / 8), 33, 20000, &random);
    free_and_find(ga_sized_class_of(view, REGION / 8), 31, 2000, &random);
}

/* Classes take regions of one pool until it is empty; each class has the units of its regions. */
Test(sized_tile, classes_share_regions)
{
    enum {
        REGIONS = 40
    };
    uint64_t random = 6;
    for (uint32_t round = 0; round < 6; round++) {
        model m = model_of(round % 2 ? sized_world_growing(BITS, REGIONS)
                                     : sized_world_new(BITS, REGIONS));
        uint32_t classes = m.world->heap->classes, regions = 0, quiet = 0;
        while (quiet < 200) {
            asked a = ask(&m, random_below(&random, WAYS),
                          (uint32_t)random_below(&random, classes / (1 + round)), &random);
            quiet = a.served ? 0 : quiet + 1;
        }
        for (uint32_t class = 0; class < classes; class ++) {
            uint32_t own = sized_world_regions(m.world, class);
            fill(&m, ALONE, class, &random);
            cr_assert_eq(sized_world_regions(m.world, class), own, "no region is left");
            cr_assert_eq(sized_world_live(m.world, class), own * (REGION / ga_sized_unit(class)),
                         "class %u with %u regions", class, own);
            regions += own;
        }
        cr_assert_eq(regions, REGIONS);
        expect_live(&m);
        model_end(&m);
    }
}

/* The limit is lower than the addresses, and a request is refused. */
Test(sized_tile, refusals_leave_nothing_behind)
{
    uint64_t random = 8;
    for (uint32_t limit = 1; limit < 12; limit++) {
        model m = model_of(sized_world_limited(BITS, 12, limit, limit % 3));
        uint64_t got = 0, units = limit * (REGION / ga_sized_unit(20));
        for (uint32_t tries = 0; got < units && tries < 100000; tries++) {
            got += ask(&m, random_below(&random, WAYS - 1), 20, &random).served;
        }
        cr_assert_eq(got, units);
        cr_assert_eq(ask(&m, ALONE, 3, &random).served, 0, "none for another class");
        cr_assert_gt(m.world->heap->of[3].refused, 0);
        expect_live(&m);
        model_end(&m);
    }
}

/* ---- the owner of an address -------------------------------------------------------------- */

static void find_everywhere(const sized_world *world, uint32_t region, uint32_t class)
{
    const char *begin = world->heap->units + (uint64_t)region * REGION;
    uint32_t unit = ga_sized_unit(class);
    for (uint32_t at = 0; at < REGION; at++) {
        ga_sized_found found = ga_sized_find(view_of(world), begin + at);
        if (at / unit >= REGION / unit) { /* the rest of the region */
            cr_assert_eq(found.class_, GA_SIZED_NONE, "class %u, byte %u", class, at);
            continue;
        }
        cr_assert(found.class_ == class && found.offset == at % unit, "class %u, byte %u", class,
                  at);
        cr_assert_eq(found.bit_index, at / unit % 32);
        cr_assert_eq(found.word_index, (region << (BITS - 8)) + at / unit / 32);
        cr_assert_eq(ga_sized_pointer(view_of(world), unit, found.word_index, found.bit_index),
                     begin + at - found.offset);
    }
}

Test(sized_tile, every_address_of_every_class)
{
    uint64_t random = 12;
    uint32_t classes = ga_sized_class_count(BITS);
    model m = model_of(sized_world_new(BITS, classes + 2));
    for (uint32_t class = 0; class < classes; class ++) {
        ask(&m, ALONE, class, &random);
    }
    for (uint32_t region = 0; region < classes; region++) {
        find_everywhere(m.world, region, sized_world_owner(m.world, region));
    }
    model_end(&m);
}

Test(sized_tile, addresses_without_an_owner)
{
    static char foreign[64];
    uint64_t random = 13;
    model m = model_of(sized_world_new(BITS, 4));
    const char *units = m.world->heap->units;
    ask(&m, ALONE, 5, &random);
    const void *none[] = {NULL,
                          foreign,
                          units - 1,
                          units - REGION,
                          units + REGION, /* no class has that yet */
                          units + 4 * REGION - 1,
                          units + 4 * REGION,
                          (const void *)UINTPTR_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        cr_assert_eq(ga_sized_find(view_of(m.world), none[i]).class_, GA_SIZED_NONE, "%p", none[i]);
    }
    model_end(&m);
}

/* ---- scripts --------------------------------------------------------------------------------- */

typedef struct held {
    char *block;
    uint32_t class;
} held;

enum {
    BLOCKS_MAX = 20000
};

/* Free some of the held units, chosen at random. */
static void give_some(model *m, held *all, uint32_t *count, uint64_t *random)
{
    uint32_t classes[LANES], lanes = 0;
    char *blocks[LANES] = {0};
    uint32_t mask = (uint32_t)random_next(random);
    for (; mask && *count; mask &= mask - 1u) {
        uint32_t lane = ga_bits_lowest(mask);
        uint32_t i = (uint32_t)random_below(random, *count);
        classes[lane] = all[i].class;
        blocks[lane] = all[i].block;
        lanes |= 1u << lane;
        all[i] = all[--*count];
    }
    give(m, lanes, classes, blocks);
}

static void script(model *m, uint64_t seed, uint32_t steps)
{
    held *all = malloc(BLOCKS_MAX * sizeof *all);
    uint64_t random = seed;
    uint32_t count = 0, fewer = 0;
    for (uint32_t step = 0; step < steps; step++) {
        bool full = count + LANES > BLOCKS_MAX || (fewer && random_below(&random, 4));
        fewer = random_below(&random, 500) ? fewer : !fewer;
        if (full || random_below(&random, 3) == 0) {
            give_some(m, all, &count, &random);
            continue;
        }
        uint32_t class = (uint32_t)random_below(&random, m->world->heap->classes);
        asked a = ask(m, random_below(&random, WAYS), class >> random_below(&random, 6), &random);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (a.blocks[lane]) {
                all[count++] = (held){a.blocks[lane], a.classes[lane]};
            }
        }
        if (step % 1000 == 0) {
            expect_live(m);
        }
    }
    while (count) {
        give_some(m, all, &count, &random);
    }
    expect_live(m);
    cr_assert_eq(m->live, 0);
    free(all);
}

Test(sized_tile, scripts_against_a_plain_map)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint32_t regions = 10 + 30 * (uint32_t)(seed % 4);
        model m = model_of(seed % 3 ? sized_world_new(BITS, regions)
                                    : sized_world_growing(BITS, regions));
        script(&m, seed, 5000);
        model_end(&m);
    }
}
