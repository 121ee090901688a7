/* SPDX-License-Identifier: MIT
 *
 * The typed calls: batches, hands and the pure mode claim what is free, from one heap, and leave its
 * counts right.
 */
#include "slab/typed.h"

#include "support/expect.h"
#include "support/random.h"
#include "support/slab_world.h"

#include <stdlib.h>
#include <string.h>

enum {
    LANES = 32,
    UNITS = 3 * GA_SLAB_BLOCK_UNITS
};

static const struct case_of {
    uint32_t unit;
    bool light;
} cases[] = {{128, true}, {48, true}, {16, false}, {4096, true}, {65520, false}};

static const size_t case_count = sizeof cases / sizeof cases[0];

#define EACH_CASE(of) for (const struct case_of *of = cases; of < cases + case_count; of++)

/* Three memory blocks, which are super blocks of their own. */
static slab_world *world_of(const struct case_of *of)
{
    ga_slab_shape shape = {of->unit, 0, 3, GA_SLAB_SPREAD_HOST, of->light};
    return slab_world_new(shape, 3, SLAB_WORLD_BARE);
}

/* What is claimed here, by unit number. */
static uint8_t held[UNITS];

static void take_note(slab_world *world, void *unit)
{
    uint32_t number = ga_slab_unit(ga_slab_view_of(&world->heap), unit);
    cr_assert_lt(number, (uint32_t)UNITS, "unit size %u: %p is no unit", world->heap.unit, unit);
    cr_assert_eq(held[number]++, 0, "unit size %u: unit %u was claimed twice", world->heap.unit,
                 number);
    cr_assert(slab_world_taken(world, number), "unit size %u: the bit of unit %u is clear",
              world->heap.unit, number);
}

static void strike_out(slab_world *world, void *unit)
{
    held[ga_slab_unit(ga_slab_view_of(&world->heap), unit)]--;
}

static void assert_live(slab_world *world, uint64_t expected)
{
    uint32_t wrong = slab_world_wrong(world);
    cr_assert_eq(slab_world_live(world), expected, "unit size %u: %llu units are taken, not %llu",
                 world->heap.unit, (unsigned long long)slab_world_live(world),
                 (unsigned long long)expected);
    cr_assert_eq(wrong, GA_SLAB_FULL, "unit size %u: block %u counts %u, and has %u clear bits",
                 world->heap.unit, wrong, slab_world_count(world, wrong),
                 slab_world_room(world, wrong));
}

static void shuffle(void **units, uint32_t n, uint64_t seed)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(random_next(&seed) % i);
        void *other = units[j];
        units[j] = units[i - 1];
        units[i - 1] = other;
    }
}

/* ---- batches ------------------------------------------------------------------------------ */

/* Batches of `n` until there is no more. */
static uint32_t claim_all(slab_world *world, uint32_t n, void **units)
{
    uint32_t near = 0, all = 0, got;
    do {
        got = ga_slab_claim_batch(&world->heap, &near, n, units + all);
        for (uint32_t i = 0; i < got; i++) {
            take_note(world, units[all + i]);
        }
        all += got;
    } while (got == n);
    return all;
}

Test(slab_typed, batches_claim_every_unit_once_and_give_back_all)
{
    static void *units[UNITS + LANES];
    static const uint32_t sizes[] = {1, 5, 17, 31, 32};
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            uint32_t n = sizes[s], near = 7;
            uint32_t all = claim_all(world, n, units);
            cr_assert_eq(all, (uint32_t)UNITS, "batches of %u got %u units", n, all);
            assert_live(world, UNITS);
            shuffle(units, all, n);
            for (uint32_t i = 0; i < all; i += n) {
                ga_slab_release_batch(&world->heap, &near, n < all - i ? n : all - i, units + i);
            }
            assert_live(world, 0);
            memset(held, 0, sizeof held);
        }
        slab_world_delete(world);
    }
}

Test(slab_typed, a_batch_of_a_whole_word_goes_back_in_any_order)
{
    void *units[LANES];
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        uint32_t near = 64;
        for (uint64_t seed = 0; seed < 3; seed++) {
            uint32_t got = ga_slab_claim_batch(&world->heap, &near, LANES, units);
            cr_assert_eq(got, (uint32_t)LANES, "got %u units of an empty heap", got);
            assert_live(world, LANES);
            if (seed) {
                shuffle(units, LANES, seed);
            }
            ga_slab_release_batch(&world->heap, &near, LANES, units);
            cr_assert_eq(near, 64u, "after giving back word 64 we are near word %u", near);
            assert_live(world, 0);
        }
        ga_slab_release_batch(&world->heap, &near, 0, units);
        assert_live(world, 0);
        slab_world_delete(world);
    }
}

Test(slab_typed, a_batch_takes_what_a_word_has_left_and_others)
{
    void *few[5], *units[LANES];
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        uint32_t near = 40;
        uint32_t got = ga_slab_claim_batch(&world->heap, &near, 5, few);
        cr_assert_eq(got, 5u, "got %u units of an empty heap", got);
        cr_assert_eq(near, 40u, "5 units of word 40 have taken us to word %u", near);
        got = ga_slab_claim_batch(&world->heap, &near, LANES, units);
        cr_assert_eq(got, (uint32_t)LANES, "got %u units beside 5", got);
        assert_live(world, LANES + 5);
        for (uint32_t i = 0; i < LANES; i++) {
            uint32_t word = ga_slab_unit(ga_slab_view_of(&world->heap), units[i]) / LANES;
            cr_assert_eq(word, i < LANES - 5 ? 40u : 41u, "unit %u is of word %u", i, word);
        }
        ga_slab_release_batch(&world->heap, &near, 5, few);
        ga_slab_release_batch(&world->heap, &near, LANES, units);
        assert_live(world, 0);
        slab_world_delete(world);
    }
}

/* ---- a hand ---------------------------------------------------------------------------------- */

Test(slab_typed, a_hand_claims_every_unit_once_and_gives_back_all)
{
    static void *units[UNITS];
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        ga_slab_hand hand;
        ga_slab_hand_begin(&hand, &world->heap, 2);
        assert_live(world, 0);
        for (uint32_t i = 0; i < UNITS; i++) {
            units[i] = ga_slab_hand_claim(&hand);
            cr_assert_neq(units[i], NULL, "full after %u units", i);
            take_note(world, units[i]);
        }
        cr_assert_eq(ga_slab_hand_claim(&hand), NULL, "one more than there are");
        shuffle(units, UNITS, of->unit);
        for (uint32_t i = 0; i < UNITS; i++) {
            cr_assert(ga_slab_hand_release(&hand, units[i]), "unit %p is refused", units[i]);
        }
        ga_slab_hand_end(&hand);
        assert_live(world, 0);
        memset(held, 0, sizeof held);
        slab_world_delete(world);
    }
}

/* Two hands by turns, each giving back what either claimed. */
Test(slab_typed, hands_share_a_heap_in_any_order)
{
    static void *units[512];
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        ga_slab_hand hands[2];
        uint64_t seed = of->unit;
        memset(units, 0, sizeof units);
        for (uint32_t i = 0; i < 2; i++) {
            ga_slab_hand_begin(&hands[i], &world->heap, i);
        }
        for (uint32_t i = 0; i < 50000; i++) {
            uint64_t random = random_next(&seed);
            void **unit = &units[random % 512];
            ga_slab_hand *hand = &hands[random >> 32 & 1];
            if (*unit) {
                strike_out(world, *unit);
                cr_assert(ga_slab_hand_release(hand, *unit), "unit %p is refused", *unit);
                *unit = NULL;
            } else {
                *unit = ga_slab_hand_claim(hand);
                cr_assert_neq(*unit, NULL, "full after %u steps", i);
                take_note(world, *unit);
            }
        }
        for (uint32_t i = 0; i < 512; i++) {
            if (units[i]) {
                strike_out(world, units[i]);
                ga_slab_hand_release(&hands[i % 2], units[i]);
            }
        }
        ga_slab_hand_end(&hands[0]);
        ga_slab_hand_end(&hands[1]);
        assert_live(world, 0);
        slab_world_delete(world);
    }
}

Test(slab_typed, a_hand_deals_what_came_back_before_it_takes_more)
{
    slab_world *world = world_of(&cases[0]);
    ga_slab_hand hand;
    void *units[2 * LANES];
    ga_slab_hand_begin(&hand, &world->heap, 0);
    for (uint32_t i = 0; i < 2 * LANES; i++) {
        units[i] = ga_slab_hand_claim(&hand);
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2 * LANES; i++) {
            ga_slab_hand_release(&hand, units[i]);
        }
        for (uint32_t i = 0; i < 2 * LANES; i++) {
            units[i] = ga_slab_hand_claim(&hand);
        }
        assert_live(world, 2 * LANES);
    }
    ga_slab_hand_end(&hand);
    assert_live(world, 2 * LANES);
    slab_world_delete(world);
}

Test(slab_typed, a_hand_refuses_addresses_of_others)
{
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        ga_slab_hand hand;
        int foreign;
        ga_slab_hand_begin(&hand, &world->heap, 0);
        cr_assert(!ga_slab_hand_release(&hand, &foreign), "a hand with no unit took %p", &foreign);
        void *unit = ga_slab_hand_claim(&hand);
        cr_assert(!ga_slab_hand_release(&hand, &foreign), "a hand took %p", &foreign);
        cr_assert(!ga_slab_hand_release(&hand, NULL), "a hand took NULL");
        cr_assert(ga_slab_hand_release(&hand, unit), "unit %p is refused", unit);
        ga_slab_hand_end(&hand);
        assert_live(world, 0);
        slab_world_delete(world);
    }
}

/* ---- the pure mode, and all three ----------------------------------------------------------- */

Test(slab_typed, what_one_way_claims_another_gives_back)
{
    EACH_CASE(of)
    {
        slab_world *world = world_of(of);
        ga_slab_resident resident;
        ga_slab_hand hand;
        uint32_t near = ga_slab_word_apart(&world->heap, 1);
        void *units[LANES];
        ga_slab_resident_start(&world->heap, 0, &resident);
        ga_slab_hand_begin(&hand, &world->heap, 1);
        for (uint32_t round = 0; round < 200; round++) {
            for (uint32_t i = 0; i < LANES; i++) {
                units[i] = ga_slab_resident_claim(&world->heap, &resident);
                cr_assert_neq(units[i], NULL, "round %u: full", round);
                take_note(world, units[i]);
                strike_out(world, units[i]);
            }
            for (uint32_t i = 0; i < LANES / 2; i++) {
                ga_slab_hand_release(&hand, units[i]);
                units[i] = ga_slab_hand_claim(&hand);
            }
            ga_slab_release_batch(&world->heap, &near, LANES - 1, units);
            ga_slab_resident_release(&world->heap, units[LANES - 1]);
        }
        ga_slab_hand_end(&hand);
        assert_live(world, 0);
        slab_world_delete(world);
    }
}

Test(slab_typed, threads_begin_in_blocks_of_their_own)
{
    ga_slab_heap heap = {.words = 64 * GA_SLAB_ROW_WORDS};
    uint8_t seen[64] = {0};
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t word = ga_slab_word_apart(&heap, i);
        cr_assert_lt(word, heap.words, "thread %u begins in word %u of %u", i, word, heap.words);
        cr_assert_eq(seen[word / GA_SLAB_ROW_WORDS]++, 0, "thread %u begins in block %u, too", i,
                     word / GA_SLAB_ROW_WORDS);
    }
}
