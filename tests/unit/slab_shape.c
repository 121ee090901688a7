/* SPDX-License-Identifier: MIT
 *
 * Where units and counts are: pointers, numbers and 32-bit addresses both ways, pointers that are
 * no units, and heaps as large as addresses allow.
 */
#include "support/expect.h"
#include "support/slab_actor.h"
#include "support/slab_world.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t sizes[] = {16, 48, 128, 1008, 4096, 65520, 65536};

#define EACH_SIZE(unit)                                                                            \
    for (uint32_t i_ = 0, unit = sizes[0];                                                         \
         i_ < sizeof sizes / sizeof sizes[0] && (unit = sizes[i_], true); i_++)

static ga_slab_shape shape_of(uint32_t unit, uint32_t super_bits, uint32_t supers, bool light)
{
    return (ga_slab_shape){unit, super_bits, supers, GA_SLAB_SPREAD_HOST, light};
}

/* ---- pointers and addresses ---------------------------------------------------------------- */

static uint32_t unit_at(slab_world *world, uintptr_t address)
{
    return ga_slab_unit(ga_slab_view_of(&world->heap), (const void *)address);
}

static uintptr_t place_of(slab_world *world, uint32_t unit)
{
    return (uintptr_t)ga_slab_pointer(ga_slab_view_of(&world->heap), unit);
}

static void assert_no_unit(slab_world *world, uintptr_t address, const char *what, uint32_t beside)
{
    uint32_t unit = unit_at(world, address);
    cr_assert_eq(unit, GA_SLAB_FULL, "%u bytes, %s: %s of unit %u taken for unit %u",
                 world->shape.unit, world->shape.light ? "light" : "two-level", what, beside, unit);
}

/* The unit is at its address in the superblock, and only the address of its first byte is a
 * unit. */
static void assert_place(slab_world *world, uint32_t unit)
{
    uint32_t bits = world->shape.super_bits + GA_SLAB_BLOCK_BITS;
    uint64_t within = (uint64_t)(unit & ((1u << bits) - 1u)) * world->shape.unit;
    uintptr_t place = place_of(world, unit);
    uintptr_t expected = world->shape.light
                             ? (uintptr_t)world->units + (uint64_t)unit * world->shape.unit
                             : (uintptr_t)world->heap.supers[unit >> bits].units + within;
    cr_assert_eq(place, expected, "unit %u stands at %#lx, expected %#lx", unit, (long)place,
                 (long)expected);
    cr_assert_eq(unit_at(world, place), unit, "%u bytes: unit %u is taken for %u",
                 world->shape.unit, unit, unit_at(world, place));
    assert_no_unit(world, place + 1, "byte 1", unit);
    assert_no_unit(world, place - 1, "the byte before", unit);
    assert_no_unit(world, place + world->shape.unit / 2, "the middle", unit);
    assert_no_unit(world, place + world->shape.unit - 1, "the last byte", unit);
}

/* A view that can convert numbers and 32-bit addresses, and no more: there are no bitmaps. */
static ga_slab_view view_of(ga_slab_heap *heap, const ga_slab_shape *shape)
{
    *heap = (ga_slab_heap){0};
    ga_slab_heap_shape(heap, shape);
    ga_slab_view view = ga_slab_view_with(heap, 0);
    view.light = shape->light;
    return view;
}

static uint32_t address_of(const ga_slab_shape *shape, uint32_t unit)
{
    ga_slab_heap heap;
    return ga_slab_address_of_unit(view_of(&heap, shape), unit);
}

static uint32_t unit_of(const ga_slab_shape *shape, uint32_t address)
{
    ga_slab_heap heap;
    return ga_slab_unit_of_address(view_of(&heap, shape), address);
}

static void assert_address(const ga_slab_shape *shape, uint32_t unit)
{
    uint32_t address = address_of(shape, unit);
    uint32_t back = unit_of(shape, address);
    cr_assert_eq(back, unit, "%u bytes: unit %u has address %#x, which is unit %u", shape->unit,
                 unit, address, back);
}

static void assert_places(slab_world *world)
{
    uint64_t all = slab_world_units(world);
    uint64_t random = world->shape.unit;
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t unit = (uint32_t)(i < 40 ? i : i < 80 ? all - 1 - (i - 40) : random_next(&random));
        unit = unit < all ? unit : (uint32_t)(unit % all);
        assert_place(world, unit);
        assert_address(&world->shape, unit);
    }
}

Test(slab_shape, pointers_of_light_addressing)
{
    EACH_SIZE(unit)
    {
        slab_world *world = slab_world_new(shape_of(unit, 3, 5, true), 5, SLAB_WORLD_BARE);
        uintptr_t end = (uintptr_t)world->units + 5 * ga_slab_super_bytes(&world->shape);
        assert_places(world);
        assert_no_unit(world, end, "the end", (uint32_t)slab_world_units(world));
        assert_no_unit(world, (uintptr_t)world->units - unit, "one before", 0);
        slab_world_delete(world);
    }
}

Test(slab_shape, pointers_of_two_levels)
{
    EACH_SIZE(unit)
    {
        for (uint32_t supers = 1; supers <= 9; supers++) {
            slab_world *world =
                slab_world_new(shape_of(unit, 2, 9, false), supers, SLAB_WORLD_BARE);
            assert_places(world);
            for (uint32_t super = 0; super < supers; super++) {
                uintptr_t begin = (uintptr_t)world->heap.supers[super].units;
                assert_no_unit(world, begin - unit, "one before", super << 12);
                assert_no_unit(world, begin + world->heap.super_bytes, "the end", super << 12);
            }
            slab_world_delete(world);
        }
    }
}

Test(slab_shape, pointers_that_are_nowhere)
{
    int local = 0;
    for (int light = 0; light < 2; light++) {
        slab_world *world = slab_world_new(shape_of(48, 2, 4, light), 2, SLAB_WORLD_BARE);
        assert_no_unit(world, 0, "NULL instead", 0);
        assert_no_unit(world, UINTPTR_MAX, "the last address instead", 0);
        assert_no_unit(world, (uintptr_t)&local, "the stack instead", 0);
        assert_no_unit(world, (uintptr_t)&world->heap, "the heap instead", 0);
        slab_world_delete(world);
    }
}

/* An address in a future superblock is not the heap's before. */
Test(slab_shape, pointers_while_growing)
{
    for (int light = 0; light < 2; light++) {
        slab_world *full = slab_world_new(shape_of(128, 1, 6, light), 6, SLAB_WORLD_BARE);
        slab_world *world = slab_world_new(shape_of(128, 1, 6, light), 1, SLAB_WORLD_BARE);
        for (uint32_t supers = 1; supers < 6; supers++) {
            for (uint32_t unit = 0; unit < slab_world_units(full); unit += 512) {
                uint32_t expected = unit < slab_world_units(world) ? unit : GA_SLAB_FULL;
                uint32_t got = unit_at(world, place_of(full, unit));
                cr_assert_eq(got, expected, "%u super blocks: got unit %u, expected %u", supers,
                             got, expected);
            }
            slab_world_grow(world);
        }
        slab_world_delete(world);
        slab_world_delete(full);
    }
}

/* slab-hash-2018, section V: 10 bits: the unit, 14: the memory block, 8: the superblock. */
Test(slab_shape, the_papers_address)
{
    ga_slab_shape shape = shape_of(128, 8, 32, false);
    uint32_t number = (21u << 18) | (200u << 10) | 1000u;
    cr_assert_eq(ga_slab_block_bits(128), 14, "%u", ga_slab_block_bits(128));
    uint32_t address = address_of(&shape, number);
    cr_assert_eq(address, (21u << 24) | (200u << 10) | 1000u, "%#x", address);
    cr_assert_eq(address_of(&shape, GA_SLAB_FULL), GA_SLAB_FULL);
    cr_assert_eq(unit_of(&shape, GA_SLAB_FULL), GA_SLAB_FULL);
    cr_assert_eq(ga_slab_reach(16) >> 20, (64ull << 10) - 1, "%llu",
                 (unsigned long long)ga_slab_reach(16));
    cr_assert_eq(ga_slab_reach(128) >> 30, 511, "%llu", (unsigned long long)ga_slab_reach(128));
}

/* Units of any possible heaps have different addresses. */
Test(slab_shape, addresses_differ)
{
    EACH_SIZE(unit)
    {
        for (uint32_t bits = 0; bits <= ga_slab_block_bits(unit); bits++) {
            uint32_t supers = 1u << (22 - ga_slab_block_bits(unit));
            ga_slab_shape shape = shape_of(unit, bits, supers, false);
            while (ga_slab_shape_check(&shape) != GA_OK) {
                shape.supers--;
            }
            cr_assert_geq(shape.supers, supers - 1, "%u bytes, %u bits: %u super blocks", unit,
                          bits, shape.supers);
            assert_address(&shape, (shape.supers << (bits + 10)) - 1u);
            assert_address(&shape, (shape.supers - 1) << (bits + 10));
            assert_address(&shape, (1u << (bits + 10)) - 1u);
            uint32_t last = address_of(&shape, (shape.supers << (bits + 10)) - 1u);
            cr_assert_neq(last, GA_SLAB_FULL, "%u bytes, %u bits: FULL is a unit", unit, bits);
        }
    }
}

/* ---- counts -------------------------------------------------------------------------------- */

static void assert_counts_stand(uint32_t spread, uint32_t blocks)
{
    ga_slab_shape shape = {16, 0, blocks, spread, true};
    size_t places = ga_slab_counts_bytes(&shape) / sizeof(uint32_t);
    uint8_t *used = calloc(places, 1);
    cr_assert_eq(places % GA_SLAB_ROW_WORDS, 0, "%zu places", places);
    for (uint32_t block = 0; block < blocks; block++) {
        uint32_t place = ga_slab_count_index(spread, block);
        cr_assert_lt(place, places, "spread %u: block %u stands at %u of %zu", spread, block, place,
                     places);
        cr_assert_eq(ga_slab_block_of_count(spread, place), block,
                     "spread %u: place %u is block %u's", spread, place, block);
        cr_assert_eq(used[place]++, 0, "spread %u: place %u is taken", spread, place);
    }
    free(used);
}

Test(slab_shape, each_count_has_its_place)
{
    static const uint32_t blocks[] = {1, 31, 32, 33, 511, 512, 513, 16383, 16384, 16385, 50000};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        assert_counts_stand(GA_SLAB_SPREAD_HOST, blocks[i]);
        assert_counts_stand(GA_SLAB_SPREAD_KERNEL, blocks[i]);
    }
}

/* Neighbours in a kernel's heap are in different rows. */
Test(slab_shape, neighbours_stand_apart)
{
    uint32_t spread = GA_SLAB_SPREAD_KERNEL;
    for (uint32_t block = 0; block < 3u << spread; block++) {
        uint32_t row = ga_slab_count_index(spread, block) / GA_SLAB_ROW_WORDS;
        cr_assert_eq(row, block & ((1u << spread) - 1u), "block %u stands in row %u", block, row);
    }
}

/* ---- shapes that cannot be ----------------------------------------------------------------- */

Test(slab_shape, unit_sizes)
{
    static const uint32_t bad[] = {0, 1, 8, 15, 17, 24, 127, 65535, 65552, 1u << 20, 0xfffffff0u};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ga_slab_shape shape = shape_of(bad[i], 0, 1, true);
        char sentence[120];
        snprintf(sentence, sizeof sentence,
                 "slab: unit: expected a multiple of 16 from 16 to 65536, got %u", bad[i]);
        assert_fails(ga_slab_shape_check(&shape), GA_ERR_SPEC, sentence);
    }
    for (uint32_t unit = 16; unit <= 65536; unit += 16) {
        ga_slab_shape shape = shape_of(unit, 0, 1, true);
        assert_ok(ga_slab_shape_check(&shape));
    }
}

Test(slab_shape, too_many_units)
{
    for (int light = 0; light < 2; light++) {
        ga_slab_shape shape = shape_of(128, 8, 0, light);
        assert_fails_with(ga_slab_shape_check(&shape), GA_ERR_SPEC, "slab: ");
    }
    ga_slab_shape max = shape_of(16, 0, (1u << 22) - 1, true);
    assert_ok(ga_slab_shape_check(&max));
    max.supers++;
    assert_fails_with(ga_slab_shape_check(&max), GA_ERR_SPEC, "slab: ");
    static const uint32_t bits[] = {22, 32, 53, 54, 60, 64, 1000, 0xffffffffu};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        for (int light = 0; light < 2; light++) {
            ga_slab_shape large = shape_of(128, bits[i], 1, light);
            assert_fails_with(ga_slab_shape_check(&large), GA_ERR_SPEC, "slab: ");
        }
    }
}

/* A number for which an address has no bits is refused, so that two units never share an
 * address. */
Test(slab_shape, too_many_superblocks)
{
    ga_slab_shape shape = shape_of(128, 8, 256, false);
    assert_ok(ga_slab_shape_check(&shape));
    shape.supers = 257;
    assert_fails_with(ga_slab_shape_check(&shape), GA_ERR_SPEC, "slab: ");
    shape.light = true;
    assert_ok(ga_slab_shape_check(&shape));
    shape = shape_of(128, 15, 1, false);
    assert_fails_with(ga_slab_shape_check(&shape), GA_ERR_SPEC, "slab: ");
}

/* ---- as large as can be -------------------------------------------------------------------- */

/* All but some units of the largest heap are taken; they are found, and their places are right. */
static void assert_reaches(ga_slab_shape shape)
{
    slab_world *world = slab_world_new(shape, shape.supers, SLAB_WORLD_TAKEN);
    uint64_t all = slab_world_units(world);
    uint32_t last = (uint32_t)(all - 1);
    slab_actor actor;
    cr_assert_leq(all, UINT64_C(0x100000000) - GA_SLAB_BLOCK_UNITS, "%llu units",
                  (unsigned long long)all);
    slab_actor_begin(&actor, &world->heap, last / 32);
    cr_assert_eq(actor.resident.block, last / GA_SLAB_BLOCK_UNITS, "%u", actor.resident.block);
    const uint32_t numbers[] = {last,        last - 1, last - 1023, last - 1024, 0x80000000u,
                                0x7fffffffu, 0};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        for (slab_claim_kind kind = SLAB_LANES; numbers[i] <= last && kind < SLAB_CLAIM_KINDS;
             kind++) {
            uint32_t units[32] = {GA_SLAB_FULL};
            slab_actor_release(&actor, &numbers[i], 1);
            uint32_t got = slab_actor_claim(&actor, kind, kind == SLAB_LANES ? 32 : 1, units);
            cr_assert(got == 1 && units[0] == numbers[i],
                      "kind %d: got %u units, the first %u, not %u", (int)kind, got, units[0],
                      numbers[i]);
            assert_place(world, units[0]);
            assert_address(&shape, units[0]);
        }
    }
    assert_places(world);
    slab_world_delete(world);
}

Test(slab_shape, the_largest_light_heaps)
{
    assert_reaches(shape_of(16, 0, (1u << 22) - 1, true));
    assert_reaches(shape_of(48, 0, (1u << 22) - 1, true));
    assert_reaches(shape_of(65520, 0, (1u << 22) - 1, true));
    assert_reaches(shape_of(65536, 0, (1u << 22) - 1, true));
}

Test(slab_shape, the_largest_two_level_heaps)
{
    assert_reaches(shape_of(16, 17, 31, false));
    assert_reaches(shape_of(128, 14, 255, false));
    assert_reaches(shape_of(1008, 11, 2047, false));
}
