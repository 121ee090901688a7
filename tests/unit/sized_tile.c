/* SPDX-License-Identifier: MIT
 *
 * Blocks of all sizes for one tile at a time: sizes and classes, words and regions, where claims begin;
 * units that nobody else has, each class to the last one and no further, and the class that an address
 * belongs to. A script of operations is held against a plain map of who has which 16 bytes.
 */
#include "support/expect.h"
#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <stdlib.h>

enum {
    LANES = 32,
    BITS = 17, /* of a region: the smallest there are */
    REGION = 1 << BITS,
    GRANULES = REGION / GA_SIZED_GRANULE,
    BITS_MOST = 21
};

static ga_sized_view view_of(const sized_world *world)
{
    return ga_sized_view_of(world->heap);
}

/* ---- sizes and classes --------------------------------------------------------------------- */

/* The unit sizes, by the plain rule: steps of 16 up to 128, then of a quarter of a power of two. */
static uint32_t list_units(uint32_t *units)
{
    uint32_t count = 0;
    for (uint32_t unit = 16; unit <= 128; unit += 16) {
        units[count++] = unit;
    }
    for (uint32_t power = 128; count < GA_SIZED_CLASSES; power *= 2) {
        for (uint32_t quarter = 1; quarter <= 4; quarter++) {
            units[count++] = power + quarter * power / 4;
        }
    }
    return count;
}

Test(sized_tile, every_size_has_the_smallest_unit_that_holds_it)
{
    uint32_t units[GA_SIZED_CLASSES];
    uint32_t count = list_units(units), class = 0;
    ga_sized_view view = {.classes = count};
    cr_assert_eq(units[count - 1], 1u << 20);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(ga_sized_unit(i), units[i], "class %u", i);
        cr_assert_eq(units[i] % 16, 0);
    }
    cr_assert_eq(ga_sized_class_of(view, 0), 0);
    for (uint32_t size = 1; size <= 1u << 20; size++) {
        class += size > units[class];
        uint32_t got = ga_sized_class_of(view, size);
        cr_assert_eq(got, class, "%u bytes: class %u, expected %u", size, got, class);
    }
}

Test(sized_tile, sizes_beyond_the_last_class_have_none)
{
    const uint64_t sizes[] = {(1 << 20) + 1,
                              1 << 21,
                              (UINT64_C(1) << 31) - 1,
                              UINT64_C(1) << 31,
                              UINT64_C(1) << 32,
                              (UINT64_C(1) << 32) + 1,
                              (UINT64_C(1) << 32) + 100,
                              UINT64_C(1) << 63,
                              UINT64_MAX - 1,
                              UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ga_sized_view view = {.classes = GA_SIZED_CLASSES};
        cr_assert_eq(ga_sized_class_of(view, sizes[i]), GA_SIZED_NONE, "%llu bytes",
                     (unsigned long long)sizes[i]);
    }
    for (uint32_t bits = BITS; bits <= BITS_MOST; bits++) {
        ga_sized_view view = {.classes = ga_sized_class_count(bits)};
        uint32_t largest = ga_sized_unit(view.classes - 1);
        cr_assert_geq(largest, 1u << (bits - 3), "regions of 2^%u bytes", bits);
        cr_assert_eq(ga_sized_class_of(view, largest), view.classes - 1);
        cr_assert_eq(ga_sized_class_of(view, largest + 1), GA_SIZED_NONE);
    }
}

/* ---- words and regions ----------------------------------------------------------------------- */

static ga_sized_class class_of(uint32_t bits, uint32_t class, uint32_t *table)
{
    ga_sized_class c;
    memset(&c, 0, sizeof c);
    ga_sized_class_begin(&c, bits, class, table);
    return c;
}

static void check_region(ga_sized_way way, uint64_t region, uint32_t bits, uint32_t class)
{
    const uint64_t within[] = {0, 1, way.words / 2, way.words - 1};
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        uint64_t word = region * way.words + within[i];
        uint64_t got = word * way.factor >> GA_SIZED_SHIFT(way);
        if (within[i] < way.words) {
            cr_assert_eq(got, word / way.words, "2^%u bytes, class %u: word %llu in region %llu",
                         bits, class, (unsigned long long)word, (unsigned long long)got);
        }
    }
}

/* Of every class of every region size: the first regions, the last that keys can name, others. */
Test(sized_tile, a_words_region_is_found_without_division)
{
    uint64_t random = 3;
    for (uint32_t bits = BITS; bits <= BITS_MOST; bits++) {
        uint64_t most = (UINT64_C(1) << (32 - ga_sized_stride_bits(bits))) - 1;
        for (uint32_t class = 0; class < ga_sized_class_count(bits); class ++) {
            ga_sized_class first = class_of(bits, class, NULL);
            uint64_t last = (UINT64_C(1) << 31) / first.way.words; /* what `all` can count */
            last = last < most ? last : most;
            for (uint64_t region = 0; region < 2000; region++) {
                check_region(first.way, region % last, bits, class);
                check_region(first.way, last - 1 - region % last, bits, class);
                check_region(first.way, random_below(&random, last), bits, class);
            }
        }
    }
}

/* The first and the last byte of each unit, of what is behind the last one too. */
Test(sized_tile, a_bytes_unit_is_found_without_division)
{
    for (uint32_t class = 0; class < GA_SIZED_CLASSES; class ++) {
        ga_sized_steps steps = ga_sized_steps_of(class);
        uint32_t unit = ga_sized_unit(class);
        cr_assert_eq(steps.times << steps.shift, unit, "class %u", class);
        for (uint32_t at = 0; at + unit <= 1u << (BITS_MOST + 1); at += unit) {
            uint32_t first = ga_sized_slot(steps, at), last = ga_sized_slot(steps, at + unit - 1);
            cr_assert(first == at / unit && last == first, "class %u, byte %u: %u, %u", class, at,
                      first, last);
        }
    }
}

Test(sized_tile, a_class_holds_what_fits_into_a_region)
{
    for (uint32_t bits = BITS; bits <= BITS_MOST; bits++) {
        for (uint32_t class = 0; class < ga_sized_class_count(bits); class ++) {
            ga_sized_class c = class_of(bits, class, NULL);
            uint64_t unit = ga_sized_unit(class);
            cr_assert_eq(c.way.unit, unit);
            cr_assert(c.units * unit <= 1u << bits && (c.units + 1) * unit > 1u << bits);
            cr_assert_geq(c.units, 2);
            cr_assert(c.way.words * 32 >= c.units && c.way.words * 32 < c.units + 32);
            cr_assert_leq(c.way.words, 1u << ga_sized_stride_bits(bits));
            cr_assert_eq(ga_bits_count(c.tail), c.way.words * 32 - c.units);
            cr_assert_eq(c.tail & (c.tail >> 1 | 0x80000000u), c.tail, "its highest bits");
        }
    }
}

/* The same by the short way, which knows the straight regions alone. */
static void check_spot(ga_sized_view view, ga_sized_way way, uint32_t word, uint32_t expected)
{
    ga_sized_spot spot;
    bool straight = ga_sized_straight(way, word, &spot);
    cr_assert_eq(straight, expected != GA_SIZED_NONE, "word %u of %u", word, way.all);
    if (straight) {
        cr_assert_eq(ga_sized_spot_key(view, spot), expected, "word %u of %u", word, way.all);
        cr_assert_eq(ga_sized_spot_pointer(view, way.unit, spot, 31),
                     ga_sized_pointer(view, way.unit, expected, 31));
    }
}

/* The key of every word: in regions that follow on each other, in ones of the table, and none where the
 * table does not say yet. */
Test(sized_tile, keys_by_straight_regions_and_by_the_table)
{
    enum {
        REGIONS = 12
    };
    const uint32_t order[REGIONS] = {40, 41, 42, 43, 7, 90, 8, 9, 0, 1, 65535, 3};
    sized_world *world = sized_world_new(BITS, 1);
    for (uint32_t class = 0; class < world->heap->classes; class ++) {
        for (uint32_t straight = 0; straight <= 4; straight++) {
            uint32_t table[REGIONS];
            ga_sized_way way = class_of(BITS, class, table).way;
            for (uint32_t i = 0; i < REGIONS; i++) {
                table[i] = i >= straight ? order[i] + 1 : 0; /* not looked at below */
            }
            table[REGIONS - 1] = 0;
            way.first = order[0];
            way.all = REGIONS * way.words;
            way.straight |= straight << 6;
            for (uint32_t word = 0; word < REGIONS * way.words; word++) {
                uint32_t region = word / way.words;
                uint32_t expected = (order[region] << (BITS - 9)) + word % way.words;
                expected = region == REGIONS - 1 ? GA_SIZED_NONE : expected;
                cr_assert_eq(ga_sized_key(view_of(world), way, word), expected,
                             "class %u, %u straight, word %u", class, straight, word);
                if (way.words > 1) {
                    check_spot(view_of(world), way, word,
                               region < straight ? expected : GA_SIZED_NONE);
                }
            }
            for (uint32_t i = 0; i < 16 && way.words > 1; i++) { /* far beyond all words */
                check_spot(view_of(world), way, UINT32_MAX >> i, GA_SIZED_NONE);
            }
        }
    }
    sized_world_delete(world);
}

/* ---- where claims begin ---------------------------------------------------------------------- */

/* The word of a tile's number; of those beyond the last one goes round to each. None where that is in a region that
 * does not follow on the others, or there is none. */
Test(sized_tile, tiles_begin_at_their_words_and_go_round)
{
    for (uint32_t class = 0; class < ga_sized_class_count(BITS); class ++) {
        uint32_t table[4] = {0, 0, 0, 90};
        ga_sized_way way = class_of(BITS, class, table).way;
        ga_sized_spot home;
        cr_assert_not(ga_sized_home_of(way, 5, &home));
        if (way.words < 2) {
            continue; /* such a class has no straight regions */
        }
        way.first = 17;
        way.all = 4 * way.words;
        way.straight |= 3u << 6;
        for (uint32_t number = 0; number < 3 * way.all; number++) {
            uint32_t word = number % way.all;
            bool straight = word < 3 * way.words;
            cr_assert_eq(ga_sized_home_of(way, number, &home), straight, "number %u", number);
            if (straight) {
                cr_assert_eq(home.region, 17 + word / way.words, "number %u", number);
                cr_assert_eq(home.word, word % way.words, "number %u", number);
            }
        }
    }
}

/* Groups of n lanes of one tile have different bits; tiles have different words as long as there are as
 * many, and then tiles of one word different bits of it, as far as 32 have room for. */
Test(sized_tile, groups_begin_where_others_do_not)
{
    for (uint32_t n = 1; n <= LANES; n++) {
        uint32_t room = 1;
        while (room < n) {
            room *= 2;
        }
        for (uint32_t all = 1; all < 40; all++) {
            uint32_t used[40] = {0};
            for (uint32_t number = 0; number < all * (LANES / room); number++) {
                ga_sized_start start = ga_sized_start_of(all, number, 0, n);
                uint32_t bits = ga_bits_below(n) << start.shift;
                cr_assert_lt(start.word, all);
                cr_assert_eq(ga_bits_count(bits), n, "%u lanes from bit %u on", n, start.shift);
                cr_assert_eq(used[start.word] & bits, 0, "%u lanes, tile %u of %u", n, number, all);
                used[start.word] |= bits;
            }
        }
        uint32_t used = 0;
        for (uint32_t lane = 0; lane + room <= LANES; lane += room) {
            ga_sized_start start = ga_sized_start_of(7, 5, lane, n);
            uint32_t bits = ga_bits_below(n) << start.shift;
            cr_assert(start.word == 5 && !(used & bits), "%u lanes from lane %u on", n, lane);
            used |= bits;
        }
    }
}

Test(sized_tile, any_start_is_a_place_of_the_class)
{
    uint64_t random = 9;
    for (int i = 0; i < 1000000; i++) {
        uint32_t all = 1 + (uint32_t)(random_next(&random) >> (random_next(&random) % 31 + 33));
        uint32_t n = 1 + (uint32_t)random_below(&random, LANES);
        uint32_t number = (uint32_t)random_next(&random);
        ga_sized_start start =
            ga_sized_start_of(all, number, (uint32_t)random_below(&random, LANES), n);
        cr_assert(start.word < all && start.shift + n <= 32, "%u words, tile %u, %u lanes", all,
                  number, n);
    }
}

/* ---- who has which 16 bytes -------------------------------------------------------------------- */

typedef struct model {
    sized_world *world;
    uint8_t *taken;  /* for each 16 bytes of all regions */
    uint32_t *owner; /* for each region its class, once a unit of it has been had */
    uint64_t live;
} model;

static model model_of(sized_world *world)
{
    model m = {.world = world};
    m.taken = calloc(world->regions, GRANULES);
    m.owner = malloc(world->regions * sizeof *m.owner);
    cr_assert(m.taken && m.owner);
    memset(m.owner, 0xff, world->regions * sizeof *m.owner);
    return m;
}

static void model_end(model *m)
{
    sized_world_delete(m->world);
    free(m->taken);
    free(m->owner);
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
    if (m->owner[region] == GA_SIZED_NONE) {
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
    m->live++;
}

static void model_give(model *m, uint32_t class, const char *block)
{
    uint32_t first = granule_of(m, class, block);
    for (uint32_t i = first; i < first + ga_sized_unit(class) / GA_SIZED_GRANULE; i++) {
        cr_assert_eq(m->taken[i], 1);
        m->taken[i] = 0;
    }
    m->live--;
}

static void expect_live(const model *m)
{
    cr_assert_eq(sized_world_live(m->world, GA_SIZED_NONE), m->live);
}

/* ---- claims ------------------------------------------------------------------------------------ */

typedef enum way_of_claiming {
    ALIKE, /* all lanes, one class */
    WARP,  /* the same, as a whole warp does it */
    ALONE, /* one lane */
    SOME,  /* some lanes, one class */
    MIXED, /* all lanes, any classes; of which `class` is one */
    WAYS
} way_of_claiming;

static const char *const ways[] = {"alike", "warp", "alone", "some", "mixed"};

typedef struct asked {
    uint32_t lanes, served;
    uint32_t classes[LANES];
    char *blocks[LANES];
} asked;

/* Ask in that way, and note what came. */
static asked ask(model *m, way_of_claiming way, uint32_t class, uint64_t *random)
{
    asked a = {.lanes = GA_ALL_BITS};
    uint32_t number = (uint32_t)random_next(random) >> random_below(random, 32);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        a.classes[lane] =
            way == MIXED && lane ? (uint32_t)random_below(random, m->world->heap->classes) : class;
    }
    if (way == ALONE) {
        a.lanes = 1u << random_below(random, LANES);
    } else if (way == SOME) {
        a.lanes = (uint32_t)random_next(random) | 1u << random_below(random, LANES);
    }
    a.served = way == WARP ? sized_claim_warp(m->world->heap, class, number, a.blocks)
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
    for (uint32_t way = 0; way < WAYS; way++) {
        for (uint32_t round = 0; round < 100; round++) {
            model m = model_of(sized_world_new(BITS, 64));
            uint32_t class = round % m.world->heap->classes;
            asked a = ask(&m, way, class, &random);
            cr_assert_eq(a.served, ga_bits_count(a.lanes), "%s, class %u: %u", ways[way], class,
                         a.served);
            expect_live(&m);
            give(&m, a.lanes, a.classes, a.blocks);
            expect_live(&m);
            model_end(&m);
        }
    }
}

/* ---- to the last unit -------------------------------------------------------------------------- */

/* Everything there is, each unit once; then every way of asking gets nothing. */
static uint64_t fill(model *m, way_of_claiming way, uint32_t class, uint64_t *random)
{
    uint64_t got = 0;
    asked a;
    do {
        a = ask(m, way, class, random);
        got += a.served;
    } while (a.served == ga_bits_count(a.lanes));
    for (uint32_t i = 0; i < MIXED; i++) {
        a = ask(m, i, class, random);
        cr_assert_eq(a.served, 0, "class %u, filled %s: %s gets %u more", class, ways[way], ways[i],
                     a.served);
    }
    return got;
}

static void fill_each_class(sized_world *(*make)(uint32_t, uint32_t), uint32_t regions)
{
    uint64_t random = 2;
    for (uint32_t way = 0; way < MIXED; way++) {
        for (uint32_t class = 0; class < ga_sized_class_count(BITS); class ++) {
            model m = model_of(make(BITS, regions));
            uint64_t units = regions * (REGION / ga_sized_unit(class));
            uint64_t got = fill(&m, way, class, &random);
            cr_assert_eq(got, units, "class %u, %s: %llu units of %llu", class, ways[way],
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

/* A claim by a tile of `width` lanes, of one unit: false where there is none. As
 * ga_sized_claim_rest(), which has tiles of 32 lanes here. */
static bool claim_by(sized_world *world, uint32_t width, uint32_t class, uint32_t number)
{
    uint32_t key;
    ga_tile tile = ga_tile_of(width);
    ga_sized_view view = view_of(world);
    uint32_t *all = &world->heap->of[class].way.all;
    ga_sized_search search = {.class_ = class, .wanting = 1, .turn = number % 32};
    if (ga_sized_take_some(view, class, 1, number, number % 32, &key)) {
        return true;
    }
    do {
        if (*all) {
            ga_sized_search_near(view, tile, number, *all, &search);
        }
    } while (search.wanting && ga_sized_grow(world->heap, tile, class, *all));
    return !search.wanting;
}

/* However few lanes look for room, what a class has just got is found before it gets more. */
Test(sized_tile, a_class_is_nearly_full_before_it_grows)
{
    const uint32_t classes[] = {0, 7, 19, 36}, widths[] = {1, 2, 8, 32};
    for (uint32_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (uint32_t j = 0; j < sizeof widths / sizeof *widths; j++) {
            sized_world *world = sized_world_new(BITS, 1000);
            uint32_t units = 300 * (REGION / ga_sized_unit(classes[i]));
            for (uint32_t number = 0; number < units; number++) {
                cr_assert(claim_by(world, widths[j], classes[i], number));
            }
            uint32_t regions = sized_world_regions(world, classes[i]);
            cr_assert(regions <= 300 * 12 / 11, "class %u, %u lanes: %u regions for what 300 hold",
                      classes[i], widths[j], regions);
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
        bool end = i < 2 * regions; /* of each region, first */
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

/* A free unit is found, wherever it is, by every way of asking, and by one lane alone. */
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

/* Classes take regions of one pool until there is none left; each has then what its regions hold. */
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

/* Where the limit is lower than the addresses, and where a wish is refused. */
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

/* ---- whose an address is ------------------------------------------------------------------------- */

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
        cr_assert_eq(found.place, at / unit % 32);
        cr_assert_eq(found.key, (region << (BITS - 9)) + at / unit / 32);
        cr_assert_eq(ga_sized_pointer(view_of(world), unit, found.key, found.place),
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

Test(sized_tile, addresses_of_nobody)
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

/* ---- scripts ----------------------------------------------------------------------------------- */

typedef struct held {
    char *block;
    uint32_t class;
} held;

enum {
    MOST = 20000
};

/* Give back some of what is held, any of it. */
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
    held *all = malloc(MOST * sizeof *all);
    uint64_t random = seed;
    uint32_t count = 0, fewer = 0;
    for (uint32_t step = 0; step < steps; step++) {
        bool full = count + LANES > MOST || (fewer && random_below(&random, 4));
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
