/* SPDX-License-Identifier: MIT
 *
 * The vocabulary of warp algorithms on the CPU: each function is compared with a plain reference on
 * many inputs (tests/device compares the GPU with that reference), and at its limits with literal
 * values.
 */
#include "device/simt_reference.h"
#include "support/expect.h"
#include "support/random.h"

static void words_agree(uint32_t width, uint64_t seed)
{
    static simt_input in;
    static simt_output expected;
    static simt_output got;
    char text[512];
    for (int i = 0; i < 20000; i++) {
        simt_make_input(&seed, width < 32 ? (1u << width) - 1 : 0xffffffffu, &in);
        simt_expect(&in, false, &expected);
        simt_cpu_words(width, &in, &got);
        cr_assert_not(simt_differs(&in, &expected, &got, text, sizeof text),
                      "width %u, expected %s", width, text);
    }
}

Test(simt, words_of_4_lanes)
{
    words_agree(4, 4);
}

Test(simt, words_of_8_lanes)
{
    words_agree(8, 8);
}

Test(simt, words_of_16_lanes)
{
    words_agree(16, 16);
}

Test(simt, words_of_32_lanes)
{
    words_agree(32, 32);
}

Test(simt, atomics)
{
    static simt_atomic_output expected;
    static simt_atomic_output got;
    uint64_t seed = 5;
    char text[512];
    for (int i = 0; i < 5000; i++) {
        simt_atomic_input in;
        simt_make_atomic_input(&seed, &in);
        simt_expect_atomics(&in, &expected);
        simt_cpu_atomics(&in, &got);
        cr_assert_not(simt_atomics_differ(&in, &expected, &got, text, sizeof text), "expected %s",
                      text);
    }
}

/* All bits set, a constant, has a code path of its own. */
Test(simt, all_bits_of_a_word)
{
    uint32_t word = 0x12345678u;
    uint64_t word64 = 0x123456789abcdef0u;
    /* One thread: the orders have no partner. */
    cr_assert_eq(ga_or_acquire(&word, GA_ALL_BITS), 0x12345678u);
    cr_assert_eq(word, GA_ALL_BITS);
    cr_assert_eq(ga_or64_acq_rel(&word64, UINT64_MAX), 0x123456789abcdef0u);
    cr_assert_eq(word64, UINT64_MAX);
    word64 = 0x123456789abcdef0u;
    cr_assert_eq(ga_or64_relaxed(&word64, GA_ALL_BITS), 0x123456789abcdef0u);
    cr_assert_eq(word64, 0x12345678ffffffffu, "not all of 64");
}

/* ---- edges, with the values written out ------------------------------------------------------ */

Test(simt, bits)
{
    cr_assert_eq(ga_bits_count(0), 0);
    cr_assert_eq(ga_bits_count(GA_ALL_BITS), 32);
    cr_assert_eq(ga_bits_lowest(0x80000000u), 31);
    cr_assert_eq(ga_bits_leading(1), 31);
    cr_assert_eq(ga_bits_leading(GA_ALL_BITS), 0);
    cr_assert_eq(ga_bits_below(0), 0);
    cr_assert_eq(ga_bits_below(31), 0x7fffffffu);
    cr_assert_eq(ga_bits_below(32), GA_ALL_BITS);
    cr_assert_eq(ga_bits_nth(0x80000001u, 1), 31);
    cr_assert_eq(ga_bits_nth(GA_ALL_BITS, 17), 17);
    cr_assert_eq(ga_bits_take(0xf0u, 2), 0x30);
    cr_assert_eq(ga_bits_take(0xf0u, 0), 0);
    cr_assert_eq(ga_bits_take(0xf0u, 5), 0xf0);
    cr_assert_eq(ga_bits_take(0, 3), 0);
    cr_assert_eq(ga_bits_from(0x11u, 1), 4);
    cr_assert_eq(ga_bits_from(0x11u, 5), 0);
    cr_assert_eq(ga_bits_from(0x11u, 0), 0);
    cr_assert_eq(ga_bits_high(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
    cr_assert_eq(ga_bits_high(UINT64_MAX, 1), 0);
    uint64_t low;
    cr_assert_eq(ga_bits_product(UINT64_MAX, UINT64_MAX, &low), UINT64_MAX - 1);
    cr_assert_eq(low, 1);
    cr_assert_eq(ga_bits_product(UINT64_MAX, 1, &low), 0);
    cr_assert_eq(low, UINT64_MAX);
    cr_assert_eq(ga_bits_high32(GA_ALL_BITS, GA_ALL_BITS), GA_ALL_BITS - 1);
    cr_assert_eq(ga_bits_down(0x80u, 7), 1);
    cr_assert_eq(ga_bits_down(0x80u, 32 + 7), 1);
    cr_assert_eq(ga_bits_down(0x80u, 32), 0x80u);
    cr_assert_eq(ga_bits_quarters(4), 8);
    cr_assert_eq(ga_bits_quarters(127), 27);
    cr_assert_eq(ga_bits_quarters(128), 28);
    cr_assert_eq(ga_bits_quarters(0xffffffu), 95);
    cr_assert_eq(ga_bits_round(7, 8), 7);
    cr_assert_eq(ga_bits_round(UINT32_MAX, 10), 5);
    ga_bits_round(7, 0); /* any, but no fault */
    cr_assert_eq(ga_bits_mix(0), 0);
    cr_assert_eq(ga_bits_mix(1), 0x514e28b7u); /* as printed by MurmurHash3's authors */
}

/* Rows of one value: 0, all bits set, one other. */
Test(simt, rows)
{
    static uint32_t words[32] __attribute__((aligned(128)));
    ga_tile tile = ga_tile_of(32);
    ga_row row = ga_row_load(tile, words);
    cr_assert_eq(ga_row_match(tile, row, 0), GA_ALL_BITS);
    cr_assert_eq(ga_row_differ(tile, row, 0), 0);
    cr_assert_eq(ga_row_seek(tile, words, 0, 31), GA_NONE);
    ga_row_put(tile, &row, 31, GA_ALL_BITS);
    cr_assert_eq(ga_row_match(tile, row, GA_ALL_BITS), 1u << 31);
    cr_assert_eq(words[31], 0, "a row in registers is a copy");
    words[3] = 9;
    cr_assert_eq(ga_row_seek(tile, words, 0, 4), 3);
    cr_assert_eq(ga_row_scan(tile, words, 0), 8);
}

Test(simt, work_is_shared_lane_after_lane)
{
    ga_tile tile = ga_tile_of(32);
    ga_lanes answers = ga_lanes_all(7);
    uint32_t order = 0;
    GA_SHARE(tile, 0x80000012u, lane)
    {
        order = order * 100 + lane;
        ga_share_answer(tile, &answers, lane, lane * 2);
    }
    cr_assert_eq(order, 10431);
    cr_assert_eq(ga_lanes_get(tile, answers, 31), 62);
    cr_assert_eq(ga_lanes_get(tile, answers, 4), 8);
    cr_assert_eq(ga_lanes_get(tile, answers, 0), 7);
    GA_SHARE(tile, 0, lane)
    {
        cr_assert_fail("lane %u of none", lane);
    }
}

/* A CPU thread is a whole warp for every query of the active lanes. */
Test(simt, tiles_of_the_lanes_that_are_there)
{
    cr_assert_eq(ga_tile_lanes(ga_tile_present()), GA_ALL_BITS);
    cr_assert_eq(ga_tile_size(ga_tile_among(1)), 32);
    cr_assert_eq(ga_tile_members(ga_tile_of(8)), 0xff);
    cr_assert_eq(ga_tile_noise(), 0, "what a CPU thread does can be repeated");
    cr_assert_not(ga_warp_is_whole(GA_ALL_BITS), "a path of its own pays on the GPU alone");
    cr_assert_not(ga_warp_is_whole(1));
}

Test(simt, the_clock_never_goes_back)
{
    uint64_t first = ga_clock_ns();
    uint64_t before = first;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = ga_clock_ns();
        cr_assert_geq(now, before);
        before = now;
    }
    cr_assert_gt(before, first);
}

Test(simt, a_sleep_lasts_at_least_as_long)
{
    for (uint32_t ns = 1; ns < 1000000; ns *= 10) {
        uint64_t began = ga_clock_ns();
        ga_clock_sleep(ns);
        cr_assert_geq(ga_clock_ns() - began, ns);
    }
}
