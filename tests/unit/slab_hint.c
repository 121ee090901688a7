/* SPDX-License-Identifier: MIT
 *
 * The hint of a slab heap: in heaps that were filled in order, it leads tiles to the first free
 * blocks; a wrong hint loses no unit. Also the look at the counts that tells when units are low.
 * Built twice: with the counts' layout of the host's heaps, and with that of kernels' heaps.
 */
#include "backends/slab/units/slab_growing.h"
#include "support/expect.h"
#include "support/random.h"
#include "support/slab_actor.h"
#include "support/slab_world.h"

enum {
    BLOCKS = 4000
};

static slab_world *world_of(uint32_t blocks, slab_world_kind kind)
{
    ga_slab_shape shape = {128, 0, blocks, GA_SLAB_SPREAD, true};
    return slab_world_new(shape, blocks, kind);
}

static ga_slab_view view_of(slab_world *world)
{
    return ga_slab_view_of(&world->heap);
}

/* All units of the blocks from `first` on, `n` of them, are taken or free. */
static void set_blocks(slab_world *world, uint32_t first, uint32_t n, bool taken)
{
    ga_slab_view view = view_of(world);
    for (uint32_t word = first * GA_SLAB_ROW_WORDS; word < (first + n) * GA_SLAB_ROW_WORDS;
         word++) {
        if (taken) {
            cr_assert_eq(ga_slab_tile_claim_bits(view, slab_tile(), word, GA_ALL_BITS), 0);
        } else {
            ga_slab_tile_release_bits(view, slab_tile(), word, GA_ALL_BITS);
        }
    }
}

/* A unit for each of 32 lanes. Returns the word that all of them are from, or GA_SLAB_FULL. */
static uint32_t claim_word(slab_world *world, uint32_t start)
{
    ga_lanes units = ga_slab_claim_lanes(view_of(world), slab_tile(), GA_ALL_BITS, start);
    for (uint32_t lane = 0; lane < 32; lane++) {
        cr_assert_neq(units[lane], GA_SLAB_FULL, "lane %u got nothing", lane);
        if (units[lane] / 32 != units[0] / 32) {
            return GA_SLAB_FULL;
        }
    }
    return units[0] / 32;
}

static void assert_word(slab_world *world, uint32_t start, uint32_t expected)
{
    uint32_t word = claim_word(world, start);
    cr_assert_eq(word, expected, "who begins at %u got word %u, expected %u", start, word,
                 expected);
}

static void assert_hints(const slab_world *world, uint32_t expected)
{
    for (uint32_t i = 0; i < GA_SLAB_HINT_COPIES; i++) {
        cr_assert_eq(world->heap.hints[i], expected, "hint %u: %x, expected %x", i,
                     world->heap.hints[i], expected);
    }
}

/* ---- heaps that are full in order ------------------------------------------------------------ */

/* Low: less than a quarter of the units is free. 4,000 blocks, and tiles of 32 and 4 lanes. */
Test(slab_hint, low_water_is_seen_in_the_counts)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_BARE);
    for (uint32_t taken = 0; taken < BLOCKS; taken += BLOCKS / 8) {
        bool low = taken > BLOCKS * 3 / 4;
        cr_assert_eq(ga_slab_is_low(view_of(world), slab_tile()), low, "%u blocks", taken);
        cr_assert_eq(ga_slab_is_low(view_of(world), ga_tile_of(4)), low, "%u blocks", taken);
        set_blocks(world, taken, BLOCKS / 8, true);
    }
    cr_assert(ga_slab_is_low(view_of(world), slab_tile()));
    world->heap.free[ga_slab_count_index(GA_SLAB_SPREAD, 0)] = 0u - 5u; /* for a moment */
    cr_assert(ga_slab_is_low(view_of(world), slab_tile()));
    slab_world_delete(world);
}

Test(slab_hint, leads_to_the_first_free_block_and_on_in_order)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_BARE);
    const uint32_t full = BLOCKS / 10 * 9;
    set_blocks(world, 0, full, true);
    for (uint32_t start = 0; start < 5000; start++) {
        assert_word(world, start, full * GA_SLAB_ROW_WORDS + start);
    }
    assert_hints(world, full * GA_SLAB_ROW_WORDS);
    slab_world_delete(world);
}

Test(slab_hint, leads_over_the_end_to_the_beginning)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_TAKEN);
    set_blocks(world, 100, 200, false);
    uint32_t start = 3000 * GA_SLAB_ROW_WORDS;
    for (uint32_t i = 0; i < 200 * GA_SLAB_ROW_WORDS; i++) {
        assert_word(world, start + i, 100 * GA_SLAB_ROW_WORDS + i);
    }
    slab_world_delete(world);
}

Test(slab_hint, moves_on_where_an_area_ends)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_TAKEN);
    set_blocks(world, 1000, 64, false);
    set_blocks(world, 2000, 500, false);
    assert_word(world, 0, 1000 * GA_SLAB_ROW_WORDS);
    assert_word(world, GA_SLAB_SEEKER_EVERY - 1u,
                1000 * GA_SLAB_ROW_WORDS + GA_SLAB_SEEKER_EVERY - 1u);
    assert_word(world, GA_SLAB_SEEKER_EVERY, 2000 * GA_SLAB_ROW_WORDS); /* the first past the end */
    assert_word(world, GA_SLAB_SEEKER_EVERY + 1u, 2000 * GA_SLAB_ROW_WORDS + 1u);
    slab_world_delete(world);
}

/* One word of the area is full: tiles that begin there go elsewhere, and the others continue as
 * before. */
Test(slab_hint, stays_where_a_single_word_is_taken)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_TAKEN);
    set_blocks(world, 1000, 500, false);
    assert_word(world, 0, 1000 * GA_SLAB_ROW_WORDS);
    uint32_t hint = world->heap.hints[0];
    uint32_t word = 1000 * GA_SLAB_ROW_WORDS + GA_SLAB_SEEKER_EVERY;
    ga_slab_tile_claim_bits(view_of(world), slab_tile(), word, GA_ALL_BITS);
    claim_word(world, GA_SLAB_SEEKER_EVERY);
    assert_hints(world, hint);
    slab_world_delete(world);
}

/* ---- heaps that are full otherwise ----------------------------------------------------------- */

Test(slab_hint, says_so_where_free_blocks_lie_nowhere)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_TAKEN);
    ga_slab_view view = view_of(world);
    for (uint32_t word = 0; word < view.words; word++) {
        ga_slab_tile_release_bits(view, slab_tile(), word, 0x11111111u);
    }
    for (uint32_t start = 0; start < 3; start++) {
        claim_word(world, start);
    }
    for (uint32_t start = 0; start < 3; start++) { /* their own words are full now */
        claim_word(world, start);
    }
    assert_hints(world, GA_SLAB_HINT_NOWHERE);
    cr_assert_eq(slab_world_wrong(world), GA_SLAB_FULL);
    slab_world_delete(world);
}

Test(slab_hint, is_looked_for_anew_once_blocks_are_free)
{
    slab_world *world = world_of(BLOCKS, SLAB_WORLD_TAKEN);
    set_blocks(world, 7, 1, false); /* for searches that fail: fewer blocks than samples find */
    assert_word(world, 1, 7 * GA_SLAB_ROW_WORDS + 1u);
    uint32_t hint = world->heap.hints[0];
    cr_assert(hint == GA_SLAB_HINT_NOWHERE || hint == 7 * GA_SLAB_ROW_WORDS - 1u, "hint %x", hint);
    ga_slab_hint_publish(&world->heap, slab_tile(), GA_SLAB_HINT_NOWHERE);
    set_blocks(world, 1000, 500, false);
    assert_word(world, 0, 1000 * GA_SLAB_ROW_WORDS);
    assert_hints(world, 1000 * GA_SLAB_ROW_WORDS);
    slab_world_delete(world);
}

/* ---- hints that mean nothing ----------------------------------------------------------------- */

/* With any hint: all units can be claimed, and no more. */
static void fill_with_hints(slab_world *world, uint64_t *random, uint32_t hint)
{
    uint64_t got = 0, all = slab_world_units(world);
    for (uint32_t tries = 0; got < all && tries < 2 * all; tries++) {
        uint32_t start = (uint32_t)random_below(random, world->heap.words);
        uint32_t lanes = tries % 3 ? GA_ALL_BITS : (uint32_t)random_below(random, 1u << 31) | 1u;
        ga_lanes units = ga_slab_claim_lanes(view_of(world), slab_tile(), lanes, start);
        for (uint32_t lane = 0; lane < 32; lane++) {
            got += units[lane] != GA_SLAB_FULL;
        }
        world->heap.hints[start % GA_SLAB_HINT_COPIES] =
            hint ? hint : (uint32_t)random_below(random, UINT64_C(1) << 32);
    }
    cr_assert_eq(got, all, "hint %x: %llu units of %llu", hint, (unsigned long long)got,
                 (unsigned long long)all);
    cr_assert_eq(slab_world_live(world), all);
    cr_assert_eq(slab_world_wrong(world), GA_SLAB_FULL);
}

Test(slab_hint, may_be_anything_and_nothing_is_lost)
{
    uint64_t random = 11;
    const uint32_t hints[] = {0, GA_SLAB_HINT_PENDING,   GA_SLAB_HINT_NOWHERE,
                              1, 64 * GA_SLAB_ROW_WORDS, GA_SLAB_HINT_NOWHERE - 1u};
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        slab_world *world = world_of(i % 2 ? 65 : 1, SLAB_WORLD_BARE);
        fill_with_hints(world, &random, hints[i]);
        slab_world_delete(world);
    }
}

/* ---- the look for free blocks ---------------------------------------------------------------- */

/* An area of free blocks, no smaller than the samples' distance, is found from every word, and the
 * block that is found is half free. */
Test(slab_hint, finds_every_area_that_samples_can_see)
{
    uint64_t random = 5;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t blocks = 1 + (uint32_t)random_below(&random, 3000);
        uint32_t size = blocks / 128 + 1 + (uint32_t)random_below(&random, blocks / 8 + 1);
        uint32_t first = (uint32_t)random_below(&random, blocks);
        slab_world *world = world_of(blocks, SLAB_WORLD_TAKEN);
        size = size < blocks - first ? size : blocks - first;
        bool visible = size > blocks / 128;
        set_blocks(world, first, size, false);
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t from = (uint32_t)random_below(&random, blocks);
            uint32_t found = ga_slab_find_free_blocks(view_of(world), slab_tile(), from);
            bool inside = from > first && from < first + size;
            cr_assert(found == first || (inside && found == from) ||
                          (!visible && found == GA_SLAB_FULL),
                      "%u blocks, free from %u on %u: from %u it found %u", blocks, first, size,
                      from, found);
        }
        slab_world_delete(world);
    }
}
