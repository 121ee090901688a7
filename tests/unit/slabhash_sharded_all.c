/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys of sharded tables of host threads, whose ranks are threads: searches and
 * deletes, rooms that are too small, keys with many values, ranks that disagree or fail.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "../../hashtables/sharded/sharded.h"
#include "support/sharded_questions.h"

#include <stdlib.h>

/* ---- searches -------------------------------------------------------------------------------- */

static void search(ga_slabhash_mode mode, uint32_t flags, uint32_t count)
{
    ranks all;
    world w = {.mode = mode, .flags = flags};
    begin_full(&all, &w, count);
    questions *qs = make_questions(&w, &all);
    ask(&all, qs); /* only counts */
    expect_all_found(&all, qs);
    give_room(&all, qs);
    ask(&all, qs);
    expect_all_found(&all, qs);
    ga_sharded_report report;
    ga_slabhash_sharded_report(w.tables[0], &report);
    cr_assert_eq(report.requests, qs->of[0].count);
    cr_assert_eq(report.pieces, count == 1 || count == 2 ? 2 : report.pieces);
    cr_assert(count == 1 ? !report.sent : report.sent && report.received);
    free_questions(&all, qs);
    end(&all, &w);
}

Test(slabhash_sharded_all, multimaps_of_32_bits)
{
    for (uint32_t count = 1; count <= 8; count++) {
        search(GA_SLABHASH_MAP32, GA_SLABHASH_MULTI, count);
    }
}

Test(slabhash_sharded_all, multimaps_of_64_bits)
{
    search(GA_SLABHASH_MAP64, GA_SLABHASH_MULTI, 3);
    search(GA_SLABHASH_MAP64, GA_SLABHASH_MULTI | GA_SLABHASH_GROW, 2);
}

Test(slabhash_sharded_all, maps_and_sets)
{
    search(GA_SLABHASH_SET32, 0, 3);
    search(GA_SLABHASH_MAP32, 0, 5);
    search(GA_SLABHASH_MAP64, 0, 2);
}

/* Each rank has another room, and they do not all want counts and firsts. */
Test(slabhash_sharded_all, rooms_that_are_too_small)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
    begin_full(&all, &w, 4);
    questions *qs = make_questions(&w, &all);
    for (uint64_t less = 0; less < 5; less++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            question *q = &qs->of[rank];
            uint64_t pairs = pairs_asked_for(&w, q);
            const uint64_t rooms[] = {0, 1, pairs / 2, pairs ? pairs - 1 : 0, pairs};
            q->room = rooms[(rank + less) % 5];
            q->without_counts = (rank + less) % 4 == 1;
            q->without_firsts = (rank + less) % 3 == 1;
        }
        ask(&all, qs);
        expect_all_found(&all, qs);
    }
    free_questions(&all, qs);
    end(&all, &w);
}

/* All keys of all ranks are of one owner: several rounds. */
Test(slabhash_sharded_all, keys_of_one_owner)
{
    ranks all;
    ga_sharded_report report;
    world w = {.mode = GA_SLABHASH_MAP64, .flags = GA_SLABHASH_MULTI};
    begin_full(&all, &w, 3);
    questions *qs = calloc(1, sizeof *qs);
    qs->w = &w;
    for (uint64_t i = 0; qs->of[2].count < ASKED; i++) {
        uint64_t key = i % DIFFERENT;
        if (ga_slabhash_sharded_owner(w.tables[0], key) == 1 && pairs_of(&w, key) < MANY) {
            ask_for(&qs->of[i % 3], key);
        }
        qs->of[0].count -= qs->of[0].count == ASKED;
        qs->of[1].count -= qs->of[1].count == ASKED;
    }
    ask(&all, qs);
    expect_all_found(&all, qs);
    ga_slabhash_sharded_report(w.tables[1], &report);
    cr_assert_eq(report.served, qs->of[0].count + qs->of[1].count + qs->of[2].count);
    cr_assert_gt(report.steps, report.pieces);
    give_room(&all, qs);
    ask(&all, qs);
    expect_all_found(&all, qs);
    free_questions(&all, qs);
    end(&all, &w);
}

/* ---- deletes --------------------------------------------------------------------------------- */

/* Ranks delete the same keys: their counts together are those of the pairs. */
Test(slabhash_sharded_all, deletes)
{
    for (uint32_t count = 1; count <= 8; count += 2) {
        static uint64_t sums[DIFFERENT];
        ranks all;
        world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
        uint64_t deleted = 0;
        begin_full(&all, &w, count);
        questions *qs = make_questions(&w, &all);
        memset(sums, 0, sizeof sums);
        qs->removes = true;
        give_room(&all, qs); /* which deletes do not read */
        ask(&all, qs);
        for (uint32_t rank = 0; rank < count; rank++) {
            const question *q = &qs->of[rank];
            uint64_t total = 0;
            assert_ok(q->status);
            for (uint64_t at = 0; at < q->room; at++) {
                cr_assert_eq(q->values[at], UNTOUCHED);
            }
            for (uint64_t i = 0; i < q->count; i++) {
                cr_assert(q->keys64[i] < DIFFERENT || !q->counts[i]);
                sums[q->keys64[i] < DIFFERENT ? q->keys64[i] : 0] += q->counts[i];
                total += q->counts[i];
            }
            cr_assert_eq(total, q->total);
            deleted += total;
        }
        for (uint64_t key = 0; key < DIFFERENT; key++) { /* ranks ask for most keys */
            cr_assert(sums[key] == pairs_of(&w, key) || !sums[key], "key %lu: %lu", key, sums[key]);
        }
        cr_assert_eq(sums[5], MANY);
        expect_size(&all, &w, pairs_of_all(&w) - deleted);
        ask(&all, qs);
        for (uint32_t rank = 0; rank < count; rank++) {
            assert_ok(qs->of[rank].status);
            cr_assert_eq(qs->of[rank].total, 0);
        }
        free_questions(&all, qs);
        end(&all, &w);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void ask_without_an_array(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    ga_slabhash_all batch = batch_of_question(qs->w, &qs->of[rank]);
    (void)all;
    batch.keys = rank == 1 && !qs->of[rank].room ? NULL : batch.keys;
    batch.values = rank == 1 ? NULL : batch.values;
    qs->of[rank].status = ga_slabhash_sharded_search_all(qs->w->tables[rank], &batch, NULL, NULL);
    if (rank == 1) {
        cr_assert(strstr(ga_error_text(), "expected an array"), "%s", ga_error_text());
    }
}

Test(slabhash_sharded_all, a_rank_without_an_array)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
    begin_full(&all, &w, 3);
    questions *qs = make_questions(&w, &all);
    ranks_run(&all, ask_without_an_array, qs); /* of keys */
    expect_statuses(&all, qs, GA_ERR_ARGUMENT);
    qs->of[1].room = 10; /* of values */
    ranks_run(&all, ask_without_an_array, qs);
    expect_statuses(&all, qs, GA_ERR_ARGUMENT);
    expect_search(&all, qs);
    free_questions(&all, qs);
    end(&all, &w);
}

/* Rank 0 deletes; or rank 0 passes a batch, with and without requests. */
static void ask_differently(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    ga_slabhash_all batch = batch_of_question(qs->w, &qs->of[rank]);
    ga_slabhash_batch other = {.count = qs->of[rank].total, .keys = batch.keys};
    ga_slabhash_sharded *table = qs->w->tables[rank];
    (void)all;
    qs->of[rank].status = rank          ? ga_slabhash_sharded_search_all(table, &batch, NULL, NULL)
                          : qs->removes ? ga_slabhash_sharded_delete_all(table, &batch, NULL, NULL)
                                        : ga_slabhash_sharded_run(table, &other, NULL, NULL);
}

Test(slabhash_sharded_all, ranks_that_disagree)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
    begin_full(&all, &w, 3);
    questions *qs = make_questions(&w, &all);
    qs->removes = true;
    ranks_run(&all, ask_differently, qs);
    expect_statuses(&all, qs, GA_ERR_ARGUMENT);
    qs->removes = false;
    for (qs->of[0].total = 0; qs->of[0].total <= 9; qs->of[0].total += 9) {
        ranks_run(&all, ask_differently, qs);
        expect_statuses(&all, qs, GA_ERR_ARGUMENT);
    }
    expect_search(&all, qs); /* nothing was done */
    free_questions(&all, qs);
    end(&all, &w);
}

static ga_status run_all_fails(void *table, const ga_slabhash_all *all, bool removes,
                               uint64_t *totals, void *stream)
{
    (void)table;
    (void)all;
    (void)removes;
    (void)totals;
    (void)stream;
    return ga_fail(GA_ERR_DEVICE, "told to fail");
}

/* As a delete that found no slab for a key, of which it had no pairs. */
static ga_status run_all_is_full(void *table, const ga_slabhash_all *all, bool removes,
                                 uint64_t *totals, void *stream)
{
    uint64_t total = 0;
    (void)stream;
    (void)(removes ? ga_slabhash_run_delete_all(table, all, &total)
                   : ga_slabhash_run_search_all(table, all, &total));
    totals[0] += total;
    return removes ? ga_fail(GA_ERR_MEMORY, "told that it is full") : GA_OK;
}

Test(slabhash_sharded_all, shards_that_fail)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
    begin_full(&all, &w, 3);
    questions *qs = make_questions(&w, &all);
    ga_shard *shard = &w.tables[1]->shard;
    ga_shard before = *shard;
    shard->run_all = run_all_fails;
    ask(&all, qs);
    expect_statuses(&all, qs, GA_ERR_DEVICE);
    shard->run_all = NULL;
    ask(&all, qs);
    expect_statuses(&all, qs, GA_ERR_UNSUPPORTED);
    shard->retrieve = NULL;
    uint64_t count;
    assert_fails_with(ga_slabhash_sharded_retrieve(w.tables[1], NULL, NULL, 0, &count, NULL),
                      GA_ERR_UNSUPPORTED, "slabhash: a shard without retrieve");
    *shard = before;
    expect_search(&all, qs);
    shard->run_all = run_all_is_full;
    qs->removes = true;
    ask(&all, qs);
    expect_statuses(&all, qs, GA_ERR_MEMORY);
    uint64_t deleted = qs->of[0].total + qs->of[1].total + qs->of[2].total;
    expect_size(&all, &w, pairs_of_all(&w) - deleted); /* all others are carried out */
    free_questions(&all, qs);
    end(&all, &w);
}

/* A search in two pieces, of which rank 1 fails at call `at` of its exchange. Returns the number of
 * calls. */
static int fail_at(int at, ga_status statuses[2])
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .options = {.piece = 40}};
    begin_full(&all, &w, 2);
    questions *qs = calloc(1, sizeof *qs);
    qs->w = &w;
    ask_for(&qs->of[0], 11); /* with more values than there is memory for, of one of the ranks */
    ask_for(&qs->of[1], 11);
    for (uint64_t i = 0; i < 40; i++) { /* rank 1 has one piece alone */
        ask_for(&qs->of[0], 12 + i);
        if (i < 3) {
            ask_for(&qs->of[1], 100 + i);
        }
    }
    give_room(&all, qs);
    all.seconds = 0.02;
    int before = all.calls[1];
    all.fail_at[1] = at == RANKS_NEVER ? at : before + at;
    ask(&all, qs);
    int made = all.calls[1] - before;
    statuses[0] = qs->of[0].status;
    statuses[1] = qs->of[1].status;
    if (at == RANKS_NEVER) {
        expect_all_found(&all, qs);
    } else { /* the shard can be read; the exchange stays broken */
        uint64_t count = 0;
        assert_ok(ga_slabhash_sharded_retrieve(w.tables[0], NULL, NULL, 0, &count, NULL));
        cr_assert_gt(count, 0);
        cr_assert_eq(ga_slabhash_sharded_search_all(w.tables[1], NULL, NULL, NULL), GA_ERR_DEVICE);
    }
    free_questions(&all, qs);
    end(&all, &w);
    return made;
}

/* A rank fails at each call of its exchange, in turn: nothing hangs, and the other one learns it,
 * but for the last agreement. In two tests, because with a sanitizer all calls take a minute. */
static void fail_at_every_second(int first)
{
    ga_status statuses[2];
    int calls_made = fail_at(RANKS_NEVER, statuses);
    cr_assert_gt(calls_made, 200);
    for (int at = first; at < calls_made; at += 2) {
        fail_at(at, statuses);
        cr_assert_eq(statuses[1], GA_ERR_DEVICE, "call %d", at);
        cr_assert(statuses[0] == GA_ERR_DEVICE || at == calls_made - 1, "call %d of %d: %d", at,
                  calls_made, statuses[0]);
    }
}

Test(slabhash_sharded_all, exchanges_that_fail_at_even_calls, .timeout = 120)
{
    fail_at_every_second(0);
}

Test(slabhash_sharded_all, exchanges_that_fail_at_odd_calls, .timeout = 120)
{
    fail_at_every_second(1);
}
