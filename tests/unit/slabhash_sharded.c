/* SPDX-License-Identifier: MIT
 *
 * Sharded tables of host threads, whose ranks are threads: all operations beside an array of the
 * expected results, many pieces, skewed keys, ranks that disagree, fail or are gone.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "support/sharded_scene.h"

static void work_through(ga_slabhash_mode mode, uint32_t flags, uint32_t count)
{
    ranks all;
    world w = {.mode = mode, .flags = flags};
    calls c;
    begin(&all, &w, count);
    uint64_t keys = deal_keys(&all, mode);
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    expect_size(&all, &w, keys);
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    for (uint32_t rank = 0; rank < count; rank++) {
        ga_sharded_report report;
        ga_slabhash_sharded_report(w.tables[rank], &report);
        cr_assert_eq(report.requests, sets[rank].count);
        cr_assert_geq(report.pieces, (KEYS + PIECE - 1) / PIECE);
        cr_assert(count > 1 ? report.sent && report.received : !report.sent);
    }
    run_all(&all, &w, GA_SLABHASH_DELETE, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    expect_size(&all, &w, 0);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    ranks_run(&all, clear_one, &w);
    expect_size(&all, &w, 0);
    end(&all, &w);
}

Test(slabhash_sharded, sets)
{
    work_through(GA_SLABHASH_SET32, 0, 3);
}

Test(slabhash_sharded, maps_of_32_bits)
{
    for (uint32_t count = 1; count <= 8; count++) {
        work_through(GA_SLABHASH_MAP32, 0, count);
    }
}

Test(slabhash_sharded, maps_of_64_bits)
{
    work_through(GA_SLABHASH_MAP64, 0, 2);
    work_through(GA_SLABHASH_MAP64, 0, 5);
}

Test(slabhash_sharded, tables_that_grow)
{
    work_through(GA_SLABHASH_MAP32, GA_SLABHASH_GROW, 3);
}

Test(slabhash_sharded, most_ranks_of_a_test)
{
    work_through(GA_SLABHASH_MAP32, 0, RANKS_MOST);
}

/* Of a piece with many requests. */
static uint32_t many_keys[1 << 20], many_found[1 << 20];

static void run_many(ranks *all, uint32_t rank, void *context)
{
    const world *w = context;
    uint64_t half = (sizeof many_keys / sizeof *many_keys) / 2;
    ga_slabhash_batch batch = {.count = half,
                               .keys = many_keys + rank * half,
                               .values = many_keys + rank * half,
                               .op = GA_SLABHASH_INSERT};
    (void)all;
    assert_ok(ga_slabhash_sharded_run(w->tables[rank], &batch, NULL, NULL));
    batch.op = GA_SLABHASH_SEARCH;
    batch.values = NULL;
    batch.keys = many_keys + (1 - rank) * half; /* that the other rank has inserted */
    batch.found = many_found + (1 - rank) * half;
    assert_ok(ga_slabhash_sharded_run(w->tables[rank], &batch, NULL, NULL));
}

Test(slabhash_sharded, pieces_of_several_slices)
{
    ranks all;
    ga_sharded_report report;
    world w = {.mode = GA_SLABHASH_MAP32, .buckets = 90000, .options = {.piece = 1 << 19}};
    for (uint32_t i = 0; i < sizeof many_keys / sizeof *many_keys; i++) {
        many_keys[i] = i * 5 + 3;
    }
    begin(&all, &w, 2);
    ranks_run(&all, run_many, &w);
    cr_assert_arr_eq(many_found, many_keys, sizeof many_keys);
    ga_slabhash_sharded_report(w.tables[0], &report);
    cr_assert_eq(report.pieces, 1);
    cr_assert_eq(report.steps, 8);
    end(&all, &w);
}

/* ---- skewed keys, duplicates ----------------------------------------------------------------- */

/* All requests of all ranks are for keys of one owner. */
Test(slabhash_sharded, keys_of_one_owner)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP64};
    calls c;
    ga_sharded_report report;
    begin(&all, &w, 4);
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
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ga_slabhash_sharded_report(w.tables[rank], &report);
        cr_assert_eq(report.served, rank == 2 ? 4 * KEYS : 0);
        cr_assert_gt(report.steps, report.pieces); /* rounds */
    }
    end(&all, &w);
}

/* Ranks pass the same keys: one of them inserts each. Values of the others are found. */
Test(slabhash_sharded, keys_of_several_ranks)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c;
    begin(&all, &w, 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        sets[rank].count = KEYS;
        for (uint64_t i = 0; i < KEYS; i++) {
            set_request(&sets[rank], i, i / 2, rank + 1);
        }
    }
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    uint64_t absent = 0;
    for (uint32_t rank = 0; rank < 3; rank++) {
        absent += c.counts[rank][GA_SLABHASH_ABSENT];
        for (uint64_t i = 0; i < KEYS; i++) {
            bool found = sets[rank].results[i] == GA_SLABHASH_FOUND;
            cr_assert(found ? sets[rank].found32[i] >= 1 && sets[rank].found32[i] <= 3
                            : sets[rank].found32[i] == 0);
        }
    }
    cr_assert_eq(absent, KEYS / 2);
    expect_size(&all, &w, KEYS / 2);
    end(&all, &w);
}

/* Ten keys, of which each rank has a thousand requests at a time: few of them travel, and each is
 * answered as if all had. */
Test(slabhash_sharded, keys_that_repeat)
{
    static const struct {
        ga_slabhash_op op;
        ga_slabhash_result first, others;
    } rows[] = {{GA_SLABHASH_SEARCH, GA_SLABHASH_ABSENT, GA_SLABHASH_ABSENT},
                {GA_SLABHASH_INSERT, GA_SLABHASH_ABSENT, GA_SLABHASH_FOUND},
                {GA_SLABHASH_SEARCH, GA_SLABHASH_FOUND, GA_SLABHASH_FOUND},
                {GA_SLABHASH_DELETE, GA_SLABHASH_FOUND, GA_SLABHASH_ABSENT}};
    enum {
        DIFFERENT = 10,
        RANKS = 3
    };
    ga_sharded_report report;
    for (int mode = 0; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        ranks all;
        world w = {.mode = (ga_slabhash_mode)mode, .options = {.piece = 2 * KEYS}};
        calls c;
        begin(&all, &w, RANKS);
        for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
            ga_slabhash_op op = rows[row].op;
            uint64_t of_first[DIFFERENT] = {0};
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                sets[rank].count = KEYS;
                for (uint64_t i = 0; i < KEYS; i++) {
                    set_request(&sets[rank], i, i % DIFFERENT, value_of(w.mode, i % DIFFERENT));
                }
            }
            c = (calls){.w = &w, .counted = true};
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                c.batches[rank] = batch_of(&sets[rank], w.mode, op);
                c.batches[rank].found = op == GA_SLABHASH_INSERT ? NULL : c.batches[rank].found;
            }
            ranks_run(&all, run_one, &c);
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                assert_ok(c.statuses[rank]);
                for (uint64_t i = 0; i < KEYS; i++) {
                    bool is_first = sets[rank].results[i] == rows[row].first;
                    bool has_value =
                        sets[rank].results[i] == GA_SLABHASH_FOUND && op != GA_SLABHASH_INSERT;
                    cr_assert(is_first || sets[rank].results[i] == rows[row].others);
                    of_first[i % DIFFERENT] += is_first;
                    cr_assert(op == GA_SLABHASH_INSERT || w.mode == GA_SLABHASH_SET32 ||
                              found_of(&sets[rank], w.mode, i) ==
                                  (has_value ? value_of(w.mode, i % DIFFERENT) : 0));
                }
                ga_slabhash_sharded_report(w.tables[rank], &report);
                bool combines = op != GA_SLABHASH_INSERT || w.mode != GA_SLABHASH_MAP64;
                uint64_t most = combines ? RANKS * 2 * DIFFERENT : RANKS * KEYS; /* 2 blocks */
                cr_assert_leq(report.served, most);
            }
            for (int key = 0; key < DIFFERENT; key++) {
                uint64_t of_all = RANKS * KEYS / DIFFERENT;
                uint64_t expected = rows[row].first == rows[row].others ? of_all : 1;
                cr_assert_eq(of_first[key], expected, "mode %d, operation %d, key %d: %lu", mode,
                             (int)op, key, of_first[key]);
            }
        }
        expect_size(&all, &w, 0);
        end(&all, &w);
    }
}

Test(slabhash_sharded, multimaps)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI};
    calls c;
    begin(&all, &w, 3);
    deal_keys(&all, w.mode);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_size(&all, &w, 2 * (2 * KEYS - 37));
    for (uint32_t i = 0; i < 3; i++) {
        c.batches[i].op = GA_SLABHASH_REPLACE;
    }
    ranks_run(&all, run_one, &c);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(c.statuses[i], GA_ERR_UNSUPPORTED);
    }
    end(&all, &w);
}

/* Sums over all ranks. */
Test(slabhash_sharded, insert_or_apply)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP64};
    calls c = {.w = &w, .counted = true};
    begin(&all, &w, 4);
    for (uint32_t rank = 0; rank < 4; rank++) {
        sets[rank].count = KEYS;
        for (uint64_t i = 0; i < KEYS; i++) {
            set_request(&sets[rank], i, i % 100, 1);
        }
        c.batches[rank] = batch_of(&sets[rank], w.mode, GA_SLABHASH_APPLY);
        c.batches[rank].how = GA_SLABHASH_ADD;
    }
    ranks_run(&all, run_one, &c);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_ok(c.statuses[rank]);
        sets[rank].count = 100;
    }
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(sets[i % 4].found64[i], 4 * KEYS / 100);
    }
    end(&all, &w);
}

/* Each request has an operation of its own. Ranks have keys of their own, half of which are
 * there. */
Test(slabhash_sharded, operations_of_each_request)
{
    static uint8_t ops[KEYS];
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c;
    begin(&all, &w, 4);
    for (uint32_t rank = 0; rank < 4; rank++) {
        sets[rank].count = KEYS / 2;
        for (uint64_t i = 0; i < KEYS; i++) {
            set_request(&sets[rank], i, rank * KEYS + i, i + 1);
        }
    }
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    for (uint64_t i = 0; i < KEYS; i++) {
        ops[i] = (uint8_t)(i % GA_SLABHASH_OP_COUNT);
    }
    for (uint32_t rank = 0; rank < 4; rank++) {
        sets[rank].count = KEYS;
        for (uint64_t i = 0; i < KEYS; i++) {
            sets[rank].values32[i] = (uint32_t)i + 9;
        }
        c.batches[rank] = batch_of(&sets[rank], w.mode, GA_SLABHASH_APPLY);
        c.batches[rank].how = GA_SLABHASH_ADD;
        c.batches[rank].ops = ops;
    }
    ranks_run(&all, run_one, &c);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_ok(c.statuses[rank]);
        for (uint64_t i = 0; i < KEYS; i++) {
            bool was_there = i < KEYS / 2;
            cr_assert_eq(sets[rank].results[i], was_there);
            cr_assert_eq(sets[rank].found32[i], was_there ? i + 1 : 0);
        }
        cr_assert_eq(c.counts[rank][GA_SLABHASH_FOUND], KEYS / 2);
    }
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    for (uint32_t rank = 0; rank < 4; rank++) {
        for (uint64_t i = 0; i < KEYS; i++) {
            bool was_there = i < KEYS / 2;
            uint64_t before = was_there ? i + 1 : 0;
            uint64_t expected = ops[i] == GA_SLABHASH_DELETE    ? 0
                                : ops[i] == GA_SLABHASH_SEARCH  ? before
                                : ops[i] == GA_SLABHASH_REPLACE ? i + 9
                                : ops[i] == GA_SLABHASH_APPLY   ? before + i + 9
                                : was_there                     ? before
                                                                : i + 9; /* INSERT */
            cr_assert_eq(sets[rank].found32[i], expected, "rank %u, request %lu, operation %u",
                         rank, i, ops[i]);
        }
    }
    c.batches[0].ops = ops; /* of one rank alone */
    c.batches[0].values = sets[0].values32;
    ranks_run(&all, run_one, &c);
    for (uint32_t rank = 0; rank < 4; rank++) {
        cr_assert_eq(c.statuses[rank], GA_ERR_ARGUMENT);
    }
    end(&all, &w);
}

/* Each rank retrieves its shard: all pairs are there, each once. */
Test(slabhash_sharded, pairs_of_each_shard)
{
    static uint64_t keys[2 * KEYS], values[2 * KEYS];
    static uint8_t seen[2 * KEYS];
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP64};
    calls c;
    begin(&all, &w, 3);
    uint64_t pairs = deal_keys(&all, w.mode);
    uint64_t count = 0;
    uint64_t sum = 0;
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    for (uint32_t rank = 0; rank < 3; rank++, sum += count) {
        assert_ok(
            ga_slabhash_sharded_retrieve(w.tables[rank], keys, values, 2 * KEYS, &count, NULL));
        for (uint64_t i = 0; i < count; i++) {
            cr_assert_eq(ga_slabhash_sharded_owner(w.tables[rank], keys[i]), rank);
            cr_assert_eq(values[i], value_of(w.mode, keys[i]));
            cr_assert_eq(seen[keys[i]]++, 0);
        }
    }
    cr_assert_eq(sum, pairs);
    assert_fails_with(ga_slabhash_sharded_retrieve(w.tables[0], keys, NULL, 1, NULL, NULL),
                      GA_ERR_ARGUMENT, "slabhash: no place for the number of pairs");
    end(&all, &w);
}

/* ---- faults ---------------------------------------------------------------------------------- */

Test(slabhash_sharded, reserved_keys_are_refused_one_by_one)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c;
    begin(&all, &w, 2);
    deal_keys(&all, w.mode);
    sets[0].count = sets[1].count = 10;
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint64_t i = 0; i < 10; i++) {
            set_request(&sets[rank], i, i == 3 ? UINT32_MAX : 100 * rank + i, 1);
        }
    }
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    for (uint32_t rank = 0; rank < 2; rank++) {
        cr_assert_eq(c.counts[rank][GA_SLABHASH_REFUSED], 1);
        cr_assert_eq(sets[rank].results[3], GA_SLABHASH_REFUSED);
    }
    expect_size(&all, &w, 18);
    end(&all, &w);
}

/* A rank without requests says nothing of the operation, and serves the others by theirs. */
Test(slabhash_sharded, a_rank_without_requests)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c = {.w = &w, .counted = true};
    begin(&all, &w, 3);
    uint64_t keys = deal_keys(&all, w.mode); /* rank 2 has none */
    c.batches[0] = batch_of(&sets[0], w.mode, GA_SLABHASH_INSERT);
    c.batches[1] = batch_of(&sets[1], w.mode, GA_SLABHASH_INSERT);
    ranks_run(&all, run_one, &c); /* that of rank 2 is zeros: a search */
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(c.statuses[i]);
    }
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    expect_size(&all, &w, keys);
    end(&all, &w);
}

Test(slabhash_sharded, ranks_that_disagree)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c = {.w = &w};
    begin(&all, &w, 3);
    deal_keys(&all, w.mode);
    for (uint32_t i = 0; i < 3; i++) {
        c.batches[i] = batch_of(&sets[i], w.mode, i ? GA_SLABHASH_INSERT : GA_SLABHASH_REPLACE);
    }
    ranks_run(&all, run_one, &c);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(c.statuses[i], GA_ERR_ARGUMENT);
    }
    expect_size(&all, &w, 0); /* and the table goes on */
    end(&all, &w);
}

/* A rank whose batch is refused tells the others. */
Test(slabhash_sharded, a_rank_without_an_array)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c = {.w = &w};
    begin(&all, &w, 3);
    deal_keys(&all, w.mode);
    for (uint32_t i = 0; i < 3; i++) {
        c.batches[i] = batch_of(&sets[i], w.mode, GA_SLABHASH_INSERT);
    }
    c.batches[1].values = NULL;
    ranks_run(&all, run_one, &c);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(c.statuses[i], GA_ERR_ARGUMENT);
    }
    expect_size(&all, &w, 0);
    end(&all, &w);
}

enum {
    MANY_FULL = 200000 /* requests of each of two ranks; a shard has slabs for about 60,000 */
};

typedef struct filling {
    world *w;
    bool counts;
    uint64_t full[2];
    ga_status statuses[2];
} filling;

static uint8_t many_results[2][MANY_FULL];

static void fill_one(ranks *all, uint32_t rank, void *context)
{
    filling *f = context;
    uint64_t counts[4] = {0};
    ga_slabhash_batch batch = {.count = MANY_FULL,
                               .keys = many_keys + rank * MANY_FULL,
                               .values = many_keys,
                               .results = f->counts ? many_results[rank] : NULL,
                               .op = GA_SLABHASH_INSERT};
    (void)all;
    f->statuses[rank] =
        ga_slabhash_sharded_run(f->w->tables[rank], &batch, f->counts ? counts : NULL, NULL);
    f->full[rank] = counts[GA_SLABHASH_FULL];
}

/* The ranks want no results, and learn of it nevertheless; then they do, and these name the
 * requests. */
Test(slabhash_sharded, shards_without_slabs)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .buckets = 500, .limit = 1, .options = {.piece = 90000}};
    filling f = {.w = &w};
    for (uint32_t i = 0; i < 2 * MANY_FULL; i++) {
        many_keys[i] = i * 7 + 1;
    }
    begin(&all, &w, 2);
    ranks_run(&all, fill_one, &f);
    cr_assert_eq(f.statuses[0], GA_ERR_MEMORY);
    cr_assert_eq(f.statuses[1], GA_ERR_MEMORY);
    f.counts = true;
    ranks_run(&all, fill_one, &f);
    uint64_t named = 0;
    for (uint64_t i = 0; i < 2 * MANY_FULL; i++) {
        named += many_results[i / MANY_FULL][i % MANY_FULL] == GA_SLABHASH_FULL;
    }
    cr_assert_eq(f.statuses[0], GA_ERR_MEMORY);
    cr_assert_eq(f.statuses[1], GA_ERR_MEMORY);
    cr_assert(named > 0 && named < 2 * MANY_FULL, "%lu", named);
    cr_assert_eq(named, f.full[0] + f.full[1]);
    expect_size(&all, &w, 2 * MANY_FULL - named);
    end(&all, &w);
}

static void open_differently(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_exchange exchange = ranks_exchange(all, rank);
    ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32};
    ga_sharded_options sharded = {.options_size = sizeof sharded, .piece = 100 + rank};
    w->opened[rank] =
        ga_slabhash_sharded_open_host(&w->tables[rank], &exchange, &options, &sharded);
}

static void open_badly(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_exchange exchange = ranks_exchange(all, rank);
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .path = rank == 1 ? 99 : 1};
    w->opened[rank] = ga_slabhash_sharded_open_host(&w->tables[rank], &exchange, &options, NULL);
    if (rank == 1) {
        cr_assert(strstr(ga_error_text(), "path"), "%s", ga_error_text());
    }
}

Test(slabhash_sharded, ranks_that_open_differently)
{
    ranks all;
    world w = {0};
    ranks_begin(&all, 3);
    ranks_run(&all, open_differently, &w);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(w.opened[i], GA_ERR_ARGUMENT);
    }
    ranks_run(&all, open_badly, &w);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_neq(w.opened[i], GA_OK);
    }
    ranks_end(&all);
}

/* Two pieces of which rank 1 fails at call `at` of its exchange. Returns the number of calls. */
static int fail_at(int at, ga_status statuses[2])
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    calls c = {.w = &w};
    begin(&all, &w, 2);
    all.seconds = 0.05;
    for (uint32_t rank = 0; rank < 2; rank++) {
        sets[rank].count = PIECE + 100;
        for (uint64_t i = 0; i < sets[rank].count; i++) {
            set_request(&sets[rank], i, 5000 * rank + i, 1);
        }
        c.batches[rank] = batch_of(&sets[rank], w.mode, GA_SLABHASH_INSERT);
    }
    int before = all.calls[1];
    all.fail_at[1] = at == RANKS_NEVER ? at : before + at;
    ranks_run(&all, run_one, &c);
    memcpy(statuses, c.statuses, 2 * sizeof *statuses);
    int made = all.calls[1] - before;
    if (at != RANKS_NEVER) { /* the shard can be read; the exchange stays broken */
        ga_slabhash_found found;
        assert_ok(ga_slabhash_search(ga_slabhash_sharded_table(w.tables[0]), 1, &found));
        cr_assert_eq(ga_slabhash_sharded_run(w.tables[1], &c.batches[1], NULL, NULL),
                     GA_ERR_DEVICE);
        cr_assert_eq(ga_slabhash_sharded_run(w.tables[0], &c.batches[0], NULL, NULL),
                     GA_ERR_DEVICE);
    }
    end(&all, &w);
    return made;
}

/* A rank fails at each call of its exchange, in turn: nothing hangs, and the other one learns it.
 * After the last agreement there is nothing that it could still learn in that call. */
Test(slabhash_sharded, exchanges_that_fail, .timeout = 60)
{
    ga_status statuses[2];
    int calls_made = fail_at(RANKS_NEVER, statuses);
    assert_ok(statuses[0]);
    assert_ok(statuses[1]);
    cr_assert_gt(calls_made, 20);
    for (int at = 0; at < calls_made; at++) {
        fail_at(at, statuses);
        cr_assert_eq(statuses[1], GA_ERR_DEVICE, "call %d", at);
        cr_assert(statuses[0] == GA_ERR_DEVICE || at == calls_made - 1, "call %d", at);
    }
}
