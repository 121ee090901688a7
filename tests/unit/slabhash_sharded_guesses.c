/* SPDX-License-Identifier: MIT
 *
 * Batches over shards whose requests are sorted without a count, into bins of a guessed size.
 */
#include <gpualloc/slabhash_sharded.h>

#include "support/sharded_scene.h"

#include "../hashtables/sharded/sharded.h"

/* As on a device with batches that are large enough. */
static void begin_guessing(ranks *all, world *w, uint32_t count)
{
    begin(all, w, count);
    for (uint32_t rank = 0; rank < count; rank++) {
        w->tables[rank]->guess_least = 1;
    }
}

/* Pads of the rank's last piece, which a guessed bin has. */
static uint64_t pads_of(const world *w, uint32_t rank)
{
    uint64_t pads = 0;
    for (uint32_t bin = 0; bin < GA_SHARDED_BINS; bin++) {
        pads += w->tables[rank]->host->own_pads[bin];
    }
    return pads;
}

/* The shards' reports leave pads out. */
static uint64_t served_by_all(const world *w, uint32_t count)
{
    uint64_t served = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        ga_sharded_report report;
        ga_slabhash_sharded_report(w->tables[rank], &report);
        served += report.served;
    }
    return served;
}

static void try_mode(ga_slabhash_mode mode, uint32_t count)
{
    ranks all;
    world w = {.mode = mode, .options.piece = KEYS};
    calls c;
    begin_guessing(&all, &w, count);
    uint64_t keys = deal_keys(&all, mode);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    cr_assert_gt(pads_of(&w, 0), 0);
    cr_assert_eq(served_by_all(&w, count), keys);
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    cr_assert_gt(pads_of(&w, 0), 0);
    expect_size(&all, &w, keys);
    run_all(&all, &w, GA_SLABHASH_DELETE, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    expect_size(&all, &w, 0);
    end(&all, &w);
}

Test(slabhash_sharded_guesses, bins_of_one_size)
{
    for (uint32_t count = 1; count <= 4; count++) {
        try_mode(GA_SLABHASH_SET32, count);
        try_mode(GA_SLABHASH_MAP32, count);
        try_mode(GA_SLABHASH_MAP64, count);
    }
}

/* Keys of one owner exceed the size of its bins: they are counted, and sorted again. */
Test(slabhash_sharded_guesses, keys_that_exceed_a_bin)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP64, .options.piece = KEYS};
    calls c;
    begin_guessing(&all, &w, 4);
    uint64_t key = 0;
    for (uint32_t rank = 0; rank < 4; rank++) {
        sets[rank].count = KEYS;
        for (uint64_t i = 0; i < KEYS; key++) {
            if (ga_slabhash_sharded_owner(w.tables[0], key) == 2) {
                set_request(&sets[rank], i++, key, value_of(w.mode, key));
            }
        }
    }
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    cr_assert_eq(served_by_all(&w, 4), 4 * KEYS);
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    for (uint32_t rank = 0; rank < 4; rank++) {
        cr_assert_eq(pads_of(&w, rank), 0);
    }
    end(&all, &w);
}

/* After wrong guesses in a row 2, 4, ... pieces are counted at once; a right one ends that. */
Test(slabhash_sharded_guesses, wrong_guesses_are_not_repeated_soon)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP64, .options.piece = KEYS};
    calls c;
    begin_guessing(&all, &w, 2);
    uint64_t key = 0;
    for (uint64_t i = 0; i < KEYS; key++) {
        if (ga_slabhash_sharded_owner(w.tables[0], key) == 1) {
            set_request(&sets[0], i++, key, value_of(w.mode, key));
        }
    }
    sets[0].count = KEYS;
    sets[1].count = 0;
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    static const uint32_t misses[] = {1, 1, 1, 2, 2, 2, 2, 2, 3};
    for (size_t i = 0; i < sizeof misses / sizeof *misses; i++) {
        cr_assert_eq(w.tables[0]->guess_misses, misses[i], "batch %zu", i);
        run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
        expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    }
    w.tables[0]->guess_skips = 0;
    (void)deal_keys(&all, w.mode);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    cr_assert_eq(w.tables[0]->guess_misses, 0);
    cr_assert_gt(pads_of(&w, 0), 0);
    end(&all, &w);
}

/* Room for a batch is room for all smaller ones, guessed or not. */
Test(slabhash_sharded_guesses, rooms)
{
    ga_slabhash_sharded t = {.guess_least = 1 << 15, .width = 4};
    for (uint32_t number = 1; number <= 16; number *= 2) {
        for (uint32_t log = 5; log <= 7; log++) {
            t.division = (ga_sharded_division){.ranks = number, .parts_log = log};
            uint64_t bins = number << log;
            uint64_t before = 0;
            for (uint64_t count = 1000; count < UINT64_C(1) << 31; count += count / 7 + 1) {
                uint64_t room = ga_sharded_room_for(&t, count);
                uint64_t capacity = ga_sharded_capacity(&t, count);
                cr_assert_geq(room, count + bins * GA_SHARDED_PAD);
                cr_assert_geq(room, before);
                cr_assert(!capacity || room >= bins * capacity + GA_SHARDED_SORT_BYTES / t.width);
                cr_assert(!capacity || bins * capacity + count <= UINT32_MAX);
                cr_assert(number <= GA_SHARDED_FEW || !capacity);
                before = room;
            }
            uint64_t most = bins * ga_sharded_capacity(&t, GA_SHARDED_GUESS_MOST);
            cr_assert_geq(before, most ? most + GA_SHARDED_SORT_BYTES / t.width : 0);
        }
    }
}

/* A small batch, a larger one and a smaller one: the memory for own requests grows between them. */
Test(slabhash_sharded_guesses, batches_of_several_sizes)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .options.piece = 2 * KEYS};
    calls c;
    static const uint64_t counts[] = {1500, KEYS, 2300, KEYS - 1};
    begin_guessing(&all, &w, 2);
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            sets[rank].count = counts[i];
            for (uint64_t k = 0; k < counts[i]; k++, key++) {
                set_request(&sets[rank], k, key, value_of(w.mode, key));
            }
        }
        run_all(&all, &w, GA_SLABHASH_INSERT, &c);
        expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
        cr_assert_gt(pads_of(&w, 0), 0);
        run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
        expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    }
    expect_size(&all, &w, key);
    end(&all, &w);
}

/* With more ranks than GA_SHARDED_FEW no bins are guessed. */
Test(slabhash_sharded_guesses, many_ranks)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c;
    begin_guessing(&all, &w, GA_SHARDED_FEW + 1);
    uint64_t keys = deal_keys(&all, w.mode);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    cr_assert_eq(pads_of(&w, 0), 0);
    cr_assert_eq(served_by_all(&w, GA_SHARDED_FEW + 1), keys);
    end(&all, &w);
}

/* One rank guesses, the other one counts. */
Test(slabhash_sharded_guesses, ranks_that_differ)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .options.piece = KEYS};
    calls c;
    begin_guessing(&all, &w, 3);
    w.tables[1]->guess_least = 0;
    uint64_t keys = deal_keys(&all, w.mode);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    cr_assert_gt(pads_of(&w, 0), 0);
    cr_assert_eq(pads_of(&w, 1), 0);
    cr_assert_eq(served_by_all(&w, 3), keys);
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    end(&all, &w);
}
