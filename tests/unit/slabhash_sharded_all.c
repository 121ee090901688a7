/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys of sharded tables of host threads, whose ranks are threads: searches and
 * deletes, rooms that are too small, keys with many values, ranks that disagree, fail or have no
 * memory.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "../../hashtables/sharded/sharded.h"
#include "platform/libc.h"
#include "support/sharded_scene.h"

#include <stdlib.h>

enum {
    DIFFERENT = 600, /* keys of a table */
    EACH = 4096,     /* numbers of values that a key has for its own */
    MANY = 3000,     /* values of few keys: more than memory for values is taken at first */
    ASKED = 2000,    /* keys of a rank, at most */
    GUARD = 16       /* numbers behind `room` */
};

#define UNTOUCHED UINT64_C(0x7777777777777777)

/* ---- the pairs of a table -------------------------------------------------------------------- */

static uint64_t pairs_of(const world *w, uint64_t key)
{
    if (key >= DIFFERENT) {
        return 0; /* reserved keys, too */
    }
    if (!(w->flags & GA_SLABHASH_MULTI)) {
        return key % 3 != 0;
    }
    return key % 7 == 0 ? 0 : key == 5 || key == 500 ? MANY : key == 11 ? 700 : key % 4;
}

static uint64_t pairs_of_all(const world *w)
{
    uint64_t sum = 0;
    for (uint64_t key = 0; key < DIFFERENT; key++) {
        sum += pairs_of(w, key);
    }
    return sum;
}

/* Each rank inserts the pairs of its shard. */
static void fill_one(ranks *all, uint32_t rank, void *context)
{
    const world *w = context;
    ga_slabhash *shard = ga_slabhash_sharded_table(w->tables[rank]);
    (void)all;
    for (uint64_t key = 0; key < DIFFERENT; key++) {
        bool is_own = ga_slabhash_sharded_owner(w->tables[rank], key) == rank;
        for (uint64_t i = 0; is_own && i < pairs_of(w, key); i++) {
            assert_ok(ga_slabhash_insert(shard, key, key * EACH + i, NULL));
        }
    }
}

static void begin_full(ranks *all, world *w, uint32_t count)
{
    begin(all, w, count);
    ranks_run(all, fill_one, w);
}

/* ---- what a rank asks for, and gets ---------------------------------------------------------- */

typedef struct question {
    uint64_t count, room, total;
    uint64_t keys64[ASKED], counts[ASKED], firsts[ASKED];
    uint32_t keys32[ASKED];
    uint64_t *values;
    bool without_counts, without_firsts;
    ga_status status;
} question;

typedef struct questions {
    world *w;
    bool removes;
    question of[RANKS_MOST];
} questions;

static void ask_for(question *q, uint64_t key)
{
    q->keys64[q->count] = key;
    q->keys32[q->count++] = (uint32_t)key;
}

/* Keys with and without pairs, duplicates, and a reserved one; of the last rank of several none. */
static questions *make_questions(world *w, const ranks *all)
{
    questions *qs = calloc(1, sizeof *qs);
    qs->w = w;
    for (uint32_t rank = 0; rank < all->count; rank++) {
        question *q = &qs->of[rank];
        uint64_t count = rank && rank + 1 == all->count ? 0 : 1000 + 131 * rank;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t key = i % 97 == 96 ? DIFFERENT + i : (i * 7919 + rank * 31) % DIFFERENT;
            ask_for(q, i == 50 ? UINT64_MAX : i == 51 ? 5 : key);
        }
    }
    return qs;
}

static uint64_t pairs_asked_for(const world *w, const question *q)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < q->count; i++) {
        sum += pairs_of(w, q->keys64[i]);
    }
    return sum;
}

static ga_slabhash_all batch_of_question(const world *w, question *q)
{
    return (ga_slabhash_all){.count = q->count,
                             .keys = w->mode == GA_SLABHASH_MAP64 ? (void *)q->keys64 : q->keys32,
                             .counts = q->without_counts ? NULL : q->counts,
                             .firsts = q->without_firsts ? NULL : q->firsts,
                             .values = q->values,
                             .room = q->room};
}

static void ask_one(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    question *q = &qs->of[rank];
    (void)all;
    q->values = malloc((q->room + GUARD) * sizeof *q->values);
    for (uint64_t i = 0; i < q->room + GUARD; i++) {
        q->values[i] = UNTOUCHED;
    }
    ga_slabhash_all batch = batch_of_question(qs->w, q);
    q->status = qs->removes
                    ? ga_slabhash_sharded_delete_all(qs->w->tables[rank], &batch, &q->total, NULL)
                    : ga_slabhash_sharded_search_all(qs->w->tables[rank], &batch, &q->total, NULL);
}

static void ask(ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        free(qs->of[rank].values);
    }
    ranks_run(all, ask_one, qs);
}

static void free_questions(const ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        free(qs->of[rank].values);
    }
    free(qs);
}

/* The values of one key that are stored: each is one of its own, and none is there twice. */
static void expect_values(const world *w, const question *q, uint64_t i)
{
    static _Thread_local uint8_t seen[EACH];
    uint64_t key = q->keys64[i];
    memset(seen, 0, sizeof seen);
    for (uint64_t at = q->firsts[i]; at < q->firsts[i] + q->counts[i] && at < q->room; at++) {
        uint64_t value = q->values[at];
        if (w->mode == GA_SLABHASH_SET32) {
            cr_assert_eq(value, 0);
            continue;
        }
        cr_assert_eq(value / EACH, key, "key %lu, at %lu: %lu", key, at, value);
        cr_assert_lt(value % EACH, pairs_of(w, key));
        cr_assert_eq(seen[value % EACH]++, 0);
    }
}

/* Counts are right, and the ranges of all keys are those of the values, each once. */
static void expect_found(const world *w, const question *q)
{
    uint8_t *used = calloc(q->total + 1, 1);
    assert_ok(q->status);
    cr_assert_eq(q->total, pairs_asked_for(w, q), "%lu, not %lu", q->total, pairs_asked_for(w, q));
    for (uint64_t i = 0; i < q->count && !q->without_counts; i++) {
        cr_assert_eq(q->counts[i], pairs_of(w, q->keys64[i]), "key %lu: %lu", q->keys64[i],
                     q->counts[i]);
        for (uint64_t k = 0; k < q->counts[i] && !q->without_firsts; k++) {
            cr_assert_lt(q->firsts[i] + k, q->total, "key %lu", q->keys64[i]);
            cr_assert_eq(used[q->firsts[i] + k]++, 0, "key %lu", q->keys64[i]);
        }
        if (!q->without_firsts) {
            expect_values(w, q, i);
        }
    }
    uint64_t stored = q->total < q->room ? q->total : q->room;
    for (uint64_t at = 0; at < q->room + GUARD; at++) {
        cr_assert_eq(q->values[at] == UNTOUCHED, at >= stored, "at %lu of %lu", at, stored);
    }
    free(used);
}

static void expect_all_found(const ranks *all, const questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        expect_found(qs->w, &qs->of[rank]);
    }
}

static void give_room(const ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        qs->of[rank].room = pairs_asked_for(qs->w, &qs->of[rank]) + 100;
    }
}

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

static void expect_statuses(const ranks *all, const questions *qs, ga_status status)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        cr_assert_eq(qs->of[rank].status, status, "rank %u: %d", rank, qs->of[rank].status);
    }
}

/* The table works after a failure that all ranks agreed on. */
static void expect_search(ranks *all, questions *qs)
{
    qs->removes = false;
    give_room(all, qs);
    ask(all, qs);
    expect_all_found(all, qs);
}

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

static _Thread_local int refuse_at; /* the blocks above that size, from 1 on; 0: none */
static int refused;

static void *short_malloc(size_t size)
{
    if (refuse_at && size >= 10000 && --refuse_at == 0) {
        refused++;
        return NULL;
    }
    return malloc(size);
}

static void ask_without_memory(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    refuse_at = rank == 1 ? (int)qs->of[1].total : 0;
    ask_one(all, rank, qs);
}

/* Rank 1 has no memory for sorted keys, answers, values, or more values; the others learn it. */
Test(slabhash_sharded_all, a_rank_without_memory)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .options = {.piece = 1500}};
    int failures = 0;
    ga_libc.malloc = short_malloc;
    for (int at = 1;; at++) {
        begin_full(&all, &w, 3);
        questions *qs = make_questions(&w, &all);
        give_room(&all, qs);
        qs->of[1].total = (uint64_t)at;
        refused = 0;
        ranks_run(&all, ask_without_memory, qs);
        bool has_failed = refused != 0;
        failures += has_failed;
        if (has_failed) {
            expect_statuses(&all, qs, GA_ERR_MEMORY);
            expect_search(&all, qs);
        } else {
            expect_all_found(&all, qs);
        }
        free_questions(&all, qs);
        end(&all, &w);
        if (!has_failed) {
            break;
        }
    }
    ga_libc.malloc = malloc;
    cr_assert_geq(failures, 3);
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
