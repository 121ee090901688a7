/* SPDX-License-Identifier: MIT
 *
 * How many requests sharded tables exchange at once, if their options do not say.
 */
#include "support/sharded_scene.h"

#include "../hashtables/sharded/sharded.h"

#define GIB (UINT64_C(1) << 30)

enum {
    RANKS = 3,
    HOST_LOG = 20, /* pieces of the host; of devices with little memory, and with more */
    SMALL_LOG = 27,
    LARGE_LOG = 28,
    SHARE = 16, /* a sixteenth of a device's free memory is for a large piece */
    SMALLEST = 500
};

/* ---- one rank -------------------------------------------------------------------------------- */

static ga_slabhash_sharded unopened(ga_slabhash_mode mode, uint32_t count, uint64_t memory)
{
    return (ga_slabhash_sharded){.shard.mode = mode,
                                 .division = {.ranks = count, .parts_log = 5},
                                 .width = mode == GA_SLABHASH_MAP64 ? 8 : 4,
                                 .guess_least = 1 << 15,
                                 .memory = memory};
}

static uint64_t piece_of(ga_slabhash_mode mode, uint32_t count, uint64_t memory)
{
    ga_slabhash_sharded table = unopened(mode, count, memory);
    return ga_sharded_default_piece(&table);
}

Test(slabhash_sharded_pieces, of_devices)
{
    cr_assert_eq(piece_of(GA_SLABHASH_MAP32, 4, 0), 1 << HOST_LOG);
    cr_assert_eq(piece_of(GA_SLABHASH_MAP32, 4, 8 * GIB), 1 << SMALL_LOG);
    cr_assert_eq(piece_of(GA_SLABHASH_MAP32, 4, 79 * GIB), 1 << SMALL_LOG);
    cr_assert_eq(piece_of(GA_SLABHASH_MAP32, 4, 120 * GIB), 1 << LARGE_LOG);
    cr_assert_eq(piece_of(GA_SLABHASH_MAP64, 4, 139 * GIB), 1 << SMALL_LOG);
}

/* The least memory of a device with large pieces. */
static uint64_t least_memory(ga_slabhash_mode mode, uint32_t count)
{
    uint64_t most = 0;
    for (uint64_t bit = 1024 * GIB; bit; bit /= 2) {
        most += piece_of(mode, count, most + bit) == 1 << LARGE_LOG ? 0 : bit;
    }
    return most + 1;
}

/* As slabhash_sharded.h has it: bytes of a request, and half of that for requests of others. */
Test(slabhash_sharded_pieces, take_what_the_header_says)
{
    static const struct {
        ga_slabhash_mode mode;
        double bytes;
    } cases[] = {{GA_SLABHASH_MAP32, 17}, {GA_SLABHASH_MAP64, 29}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t count = 2; count <= 8; count++) {
            double taken = (double)least_memory(cases[i].mode, count) / SHARE / (1 << LARGE_LOG);
            double others = cases[i].bytes / 2;
            cr_assert(taken > cases[i].bytes && taken < (cases[i].bytes + others) * 1.05,
                      "mode %d, %u ranks: %.2f bytes", (int)cases[i].mode, count, taken);
        }
    }
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static ga_status (*largest_of_all)(void *context, uint64_t *words, uint32_t count, void *stream);

/* As if the rank's device had so little memory. */
static ga_status largest_with_less(void *context, uint64_t *words, uint32_t count, void *stream)
{
    if (count == GA_SHARDED_WORDS && words[GA_SHARDED_LARGEST]) {
        words[GA_SHARDED_LARGEST] = ga_sharded_not(SMALLEST);
    }
    return largest_of_all(context, words, count, stream);
}

typedef struct opening {
    world w;
    uint64_t pieces[RANKS]; /* of the options */
    bool has_less;          /* rank 1 */
} opening;

static void open_rank(ranks *all, uint32_t rank, void *context)
{
    opening *o = context;
    ga_exchange exchange = ranks_exchange(all, rank);
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = o->w.mode, .buckets = 300, .seed = 7};
    ga_sharded_options sharded = {.options_size = sizeof sharded, .piece = o->pieces[rank]};
    if (o->has_less && rank == 1) {
        largest_of_all = exchange.largest;
        exchange.largest = largest_with_less;
    }
    o->w.opened[rank] =
        ga_slabhash_sharded_open_host(&o->w.tables[rank], &exchange, &options, &sharded);
}

static void open_all(ranks *all, opening *o)
{
    ranks_begin(all, RANKS);
    ranks_run(all, open_rank, o);
}

static void expect_pieces(const opening *o, uint64_t piece)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_ok(o->w.opened[i]);
        cr_assert_eq(o->w.tables[i]->piece, piece);
        uint64_t even = piece / GA_SHARDED_SLICES / RANKS;
        cr_assert(o->w.tables[i]->pair_most >= even + even / 4, "%lu", o->w.tables[i]->pair_most);
        cr_assert_lt(o->w.tables[i]->pair_most, even + even / 4 + 500);
    }
}

Test(slabhash_sharded_pieces, of_the_host)
{
    ranks all;
    opening o = {.w.mode = GA_SLABHASH_MAP32};
    open_all(&all, &o);
    expect_pieces(&o, 1 << HOST_LOG);
    end(&all, &o.w);
}

Test(slabhash_sharded_pieces, the_smallest_is_that_of_all_ranks)
{
    ranks all;
    opening o = {.w.mode = GA_SLABHASH_MAP32, .has_less = true};
    calls c;
    ga_sharded_report report;
    open_all(&all, &o);
    expect_pieces(&o, SMALLEST);
    uint64_t keys = deal_keys(&all, o.w.mode);
    run_all(&all, &o.w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &o.w, &c, GA_SLABHASH_ABSENT, false);
    run_all(&all, &o.w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &o.w, &c, GA_SLABHASH_FOUND, true);
    ga_slabhash_sharded_report(o.w.tables[0], &report);
    cr_assert_gt(report.pieces, 1);
    expect_size(&all, &o.w, keys);
    end(&all, &o.w);
}

/* ---- less memory than for a piece ------------------------------------------------------------ */

static uint64_t refused_above, largest_taken; /* bytes */
static uint32_t refused;

static ga_status allocate_less(ga_slabhash_sharded *table, void **block, uint64_t bytes)
{
    *block = NULL;
    if (bytes > refused_above) {
        refused++;
        return ga_fail(GA_ERR_MEMORY, "refused by the test");
    }
    largest_taken = bytes > largest_taken ? bytes : largest_taken;
    return ga_sharded_host.allocate(table, block, bytes);
}

/* Rank 1 gets no block of more than `most` bytes. */
static uint64_t begin_in_pieces(ranks *all, world *w, uint64_t piece, uint64_t most)
{
    static ga_sharded_engine engine;
    *w = (world){.mode = GA_SLABHASH_MAP32, .options = {.piece = piece}};
    begin(all, w, RANKS);
    engine = ga_sharded_host;
    engine.allocate = allocate_less;
    w->tables[1]->engine = &engine;
    refused_above = most;
    largest_taken = 0;
    return deal_keys(all, w->mode);
}

/* Pieces have room for all keys of a rank. */
static uint64_t begin_with_less(ranks *all, world *w, uint64_t most)
{
    return begin_in_pieces(all, w, KEYS, most);
}

/* Returns the number of pieces of the insert. */
static uint32_t expect_batches(ranks *all, world *w, uint64_t keys)
{
    calls c;
    ga_sharded_report report;
    run_all(all, w, GA_SLABHASH_INSERT, &c);
    expect_results(all, w, &c, GA_SLABHASH_ABSENT, false);
    ga_slabhash_sharded_report(w->tables[0], &report);
    run_all(all, w, GA_SLABHASH_SEARCH, &c);
    expect_results(all, w, &c, GA_SLABHASH_FOUND, true);
    expect_size(all, w, keys);
    return report.pieces;
}

/* Room for a whole piece, for rank 1's requests alone, for a half and a quarter of them. */
Test(slabhash_sharded_pieces, a_rank_with_less_memory_has_more)
{
    static const uint32_t expected[] = {1, 1, 2, 4};
    ranks all;
    world w;
    uint64_t most = UINT64_MAX;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint64_t keys = begin_with_less(&all, &w, most);
        cr_assert_eq(expect_batches(&all, &w, keys), expected[i]);
        cr_assert_leq(largest_taken, most);
        most = largest_taken - 1;
        end(&all, &w);
    }
}

static uint32_t pieces_of_search(ranks *all, world *w)
{
    calls c;
    ga_sharded_report report;
    run_all(all, w, GA_SLABHASH_SEARCH, &c);
    ga_slabhash_sharded_report(w->tables[0], &report);
    return report.pieces;
}

/* Not in each batch, because what the driver refuses takes long. */
Test(slabhash_sharded_pieces, more_memory_is_tried_again)
{
    ranks all;
    world w;
    uint64_t most = UINT64_MAX;
    uint32_t pieces = 1;
    for (;;) {
        uint64_t keys = begin_with_less(&all, &w, most);
        pieces = expect_batches(&all, &w, keys);
        if (pieces > 1) {
            break;
        }
        most = largest_taken - 1;
        end(&all, &w);
    }
    uint32_t refused_first = refused;
    refused_above = UINT64_MAX;
    uint32_t batches = 1; /* the search of expect_batches() */
    for (; pieces_of_search(&all, &w) == pieces; batches++) {
        cr_assert_lt(batches, GA_SHARDED_CAPPED_BATCHES);
    }
    cr_assert_eq(batches, GA_SHARDED_CAPPED_BATCHES);
    cr_assert_eq(refused, refused_first);
    cr_assert_eq(pieces_of_search(&all, &w), 1);
    end(&all, &w);
}

static void run_without_memory(uint64_t piece)
{
    ranks all;
    world w;
    calls c = {.w = &w};
    uint64_t keys = begin_in_pieces(&all, &w, piece, 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        c.batches[i] = batch_of(&sets[i], w.mode, GA_SLABHASH_INSERT);
    }
    ranks_run(&all, run_one, &c);
    for (uint32_t i = 0; i < RANKS; i++) {
        cr_assert_eq(c.statuses[i], GA_ERR_MEMORY);
    }
    expect_size(&all, &w, 0);
    refused_above = UINT64_MAX;
    cr_assert_eq(expect_batches(&all, &w, keys), (KEYS + piece - 1) / piece);
    end(&all, &w);
}

Test(slabhash_sharded_pieces, a_rank_without_memory)
{
    run_without_memory(KEYS);
    run_without_memory(8); /* of which a sixteenth is none */
}

/* One rank names the piece that the others have by default. */
Test(slabhash_sharded_pieces, named_by_one_rank_alone)
{
    ranks all;
    opening o = {.w.mode = GA_SLABHASH_MAP32, .pieces = {0, 1 << HOST_LOG, 0}};
    open_all(&all, &o);
    for (uint32_t i = 0; i < RANKS; i++) {
        cr_assert_eq(o.w.opened[i], GA_ERR_ARGUMENT);
    }
    ranks_end(&all);
}
