/* SPDX-License-Identifier: MIT
 *
 * Computed positions of units of all sizes, compared with divisions: sizes and classes, words and
 * regions, and home words.
 */
#include "support/expect.h"
#include "support/random.h"
#include "support/sized_shape.h"

#include <stdlib.h>

enum {
    BITS_MAX = 21
};

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

Test(sized_places, every_size_has_the_smallest_unit_that_holds_it)
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

Test(sized_places, sizes_beyond_the_last_class_have_none)
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
    for (uint32_t bits = BITS; bits <= BITS_MAX; bits++) {
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

static void check_region(ga_sized_class_map map, uint64_t region, uint32_t bits, uint32_t class)
{
    const uint64_t within[] = {0, 1, map.words / 2, map.words - 1};
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        uint64_t word = region * map.words + within[i];
        uint64_t got = word * map.factor >> GA_SIZED_SHIFT(map);
        if (within[i] < map.words) {
            cr_assert_eq(got, word / map.words, "2^%u bytes, class %u: word %llu in region %llu",
                         bits, class, (unsigned long long)word, (unsigned long long)got);
        }
    }
}

/* For every class and region size: the first regions, the last that word indices can name, and
 * others. */
Test(sized_places, a_words_region_is_found_without_division)
{
    uint64_t random = 3;
    for (uint32_t bits = BITS; bits <= BITS_MAX; bits++) {
        uint64_t max = (UINT64_C(1) << (32 - ga_sized_stride_bits(bits))) - 1;
        for (uint32_t class = 0; class < ga_sized_class_count(bits); class ++) {
            ga_sized_class first = class_of(bits, class, NULL);
            uint64_t last = (UINT64_C(1) << 31) / first.map.words; /* the greatest number of
                                                                    * words that `total_words`
                                                                    * can count */
            last = last < max ? last : max;
            for (uint64_t region = 0; region < 2000; region++) {
                check_region(first.map, region % last, bits, class);
                check_region(first.map, last - 1 - region % last, bits, class);
                check_region(first.map, random_below(&random, last), bits, class);
            }
        }
    }
}

/* The first and the last byte of each unit, and of the space behind the last unit. */
Test(sized_places, a_bytes_unit_is_found_without_division)
{
    for (uint32_t class = 0; class < GA_SIZED_CLASSES; class ++) {
        ga_sized_steps steps = ga_sized_steps_of(class);
        uint32_t unit = ga_sized_unit(class);
        cr_assert_eq(steps.times << steps.shift, unit, "class %u", class);
        for (uint32_t at = 0; at + unit <= 1u << (BITS_MAX + 1); at += unit) {
            uint32_t first = ga_sized_slot(steps, at), last = ga_sized_slot(steps, at + unit - 1);
            cr_assert(first == at / unit && last == first, "class %u, byte %u: %u, %u", class, at,
                      first, last);
        }
    }
}

Test(sized_places, a_class_holds_what_fits_into_a_region)
{
    for (uint32_t bits = BITS; bits <= BITS_MAX; bits++) {
        for (uint32_t class = 0; class < ga_sized_class_count(bits); class ++) {
            ga_sized_class c = class_of(bits, class, NULL);
            uint64_t unit = ga_sized_unit(class);
            cr_assert_eq(c.map.unit, unit);
            cr_assert(c.units * unit <= 1u << bits && (c.units + 1) * unit > 1u << bits);
            cr_assert_geq(c.units, 2);
            cr_assert(c.map.words * 32 >= c.units && c.map.words * 32 < c.units + 32);
            cr_assert_leq(c.map.words, 1u << ga_sized_bitmap_bits(bits));
            cr_assert_eq(ga_bits_count(c.tail), c.map.words * 32 - c.units);
            cr_assert_eq(c.tail & (c.tail >> 1 | 0x80000000u), c.tail, "its highest bits");
        }
    }
}

/* The position by the short path, for contiguous regions only. */
static void check_position(ga_sized_view view, ga_sized_class_map map, uint32_t word,
                           uint32_t expected)
{
    ga_sized_position position;
    bool contiguous = ga_sized_locate_contiguous(map, word, &position);
    cr_assert_eq(contiguous, expected != GA_SIZED_NONE, "word %u of %u", word, map.total_words);
    if (contiguous) {
        cr_assert_eq(ga_sized_position_index(view, position), expected, "word %u of %u", word,
                     map.total_words);
        cr_assert_eq(ga_sized_position_pointer(view, map.unit, position, 31),
                     ga_sized_pointer(view, map.unit, expected, 31));
    }
}

/* The index of every word: in contiguous regions, in regions of the table, and none where the table
 * has no entry yet. */
Test(sized_places, keys_by_straight_regions_and_by_the_table)
{
    enum {
        REGIONS = 12
    };
    const uint32_t order[REGIONS] = {40, 41, 42, 43, 7, 90, 8, 9, 0, 1, 65535, 3};
    sized_world *world = sized_world_new(BITS, 1);
    for (uint32_t class = 0; class < world->heap->classes; class ++) {
        for (uint32_t contiguous = 0; contiguous <= 4; contiguous++) {
            uint32_t table[REGIONS];
            ga_sized_class_map map = class_of(BITS, class, table).map;
            for (uint32_t i = 0; i < REGIONS; i++) {
                table[i] = i >= contiguous ? order[i] + 1 : 0; /* not read below */
                table[i] |= i >= contiguous && i % 3 == 2 ? GA_SIZED_SPENT : 0;
            }
            table[REGIONS - 1] = 0;
            map.first = order[0];
            map.total_words = REGIONS * map.words;
            map.contiguous |= contiguous << 6;
            for (uint32_t word = 0; word < REGIONS * map.words; word++) {
                uint32_t region = word / map.words;
                uint32_t second = region >= contiguous && region % 3 == 2 ? 1u << (BITS - 9) : 0;
                uint32_t expected = (order[region] << (BITS - 8)) + second + word % map.words;
                expected = region == REGIONS - 1 ? GA_SIZED_NONE : expected;
                cr_assert_eq(ga_sized_word_index(view_of(world), map, word), expected,
                             "class %u, %u contiguous, word %u", class, contiguous, word);
                if (map.words > 1) {
                    check_position(view_of(world), map, word,
                                   region < contiguous ? expected : GA_SIZED_NONE);
                }
            }
            for (uint32_t i = 0; i < 16 && map.words > 1;
                 i++) { /* indices far behind the last word */
                check_position(view_of(world), map, UINT32_MAX >> i, GA_SIZED_NONE);
            }
        }
    }
    sized_world_delete(world);
}

/* ---- where claims begin ---------------------------------------------------------------------- */

/* The home word of a tile's number; numbers beyond the last word wrap around. None if it is in a
 * region that is not contiguous, or if there are no words. */
Test(sized_places, tiles_begin_at_their_words_and_go_round)
{
    for (uint32_t class = 0; class < ga_sized_class_count(BITS); class ++) {
        uint32_t table[4] = {0, 0, 0, 90};
        ga_sized_class_map map = class_of(BITS, class, table).map;
        ga_sized_position home;
        cr_assert_not(ga_sized_home_position(map, 5, &home));
        if (map.words < 2) {
            continue; /* such a class has no contiguous regions */
        }
        map.first = 17;
        map.total_words = 4 * map.words;
        map.contiguous |= 3u << 6;
        for (uint32_t number = 0; number < 3 * map.total_words; number++) {
            uint32_t word = number % map.total_words;
            bool contiguous = word < 3 * map.words;
            cr_assert_eq(ga_sized_home_position(map, number, &home), contiguous, "number %u",
                         number);
            if (contiguous) {
                cr_assert_eq(home.region, 17 + word / map.words, "number %u", number);
                cr_assert_eq(home.bitmap_word, word % map.words, "number %u", number);
            }
        }
    }
}

/* The home word of any number is a word of the class; there is none only if the class has none. */
Test(sized_places, any_number_has_a_home_word)
{
    uint64_t random = 9;
    uint32_t table[4] = {1, 2, 3, 4};
    sized_world *world = sized_world_new(BITS, 1);
    ga_sized_view view = view_of(world);
    for (int i = 0; i < 100000; i++) {
        uint32_t class = (uint32_t)random_below(&random, world->heap->classes);
        uint32_t number = (uint32_t)(random_next(&random) >> (random_next(&random) % 31 + 33));
        ga_sized_class_map map = class_of(BITS, class, table).map;
        cr_assert_eq(ga_sized_home_word(view, map, number), GA_SIZED_NONE);
        map.total_words = map.words * (1 + (uint32_t)random_below(&random, 4));
        cr_assert_eq(ga_sized_home_word(view, map, number),
                     ga_sized_word_index(view, map, number % map.total_words),
                     "class %u, %u words, tile %u", class, map.total_words, number);
    }
    sized_world_delete(world);
}
