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
    world w = {.mode = GA_SLABHASH_MAP64};
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
