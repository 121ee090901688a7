/* SPDX-License-Identifier: MIT
 *
 * Opens and closes sharded tables, and the calls for whole ones.
 */
#include "sharded.h"

#include "platform/cuda_driver.h"
#include "platform/libc.h"

#include <stdio.h>
#include <string.h>

enum {
    BINS_BEST = 128,      /* more make the runs short that a block sorts together */
    BINS_MOST = 512,      /* for tables whose parts would not fit into a cache: */
    PART_MOST = 48 << 20, /* bytes */
    SMALL_PARTS_LOG = 6
};

#define PIECE_MOST ((UINT64_C(1) << 31) - 1)

/* ---- open and close -------------------------------------------------------------------------- */

enum {
    HALVES = 2 /* of a seed, because exchanged words are below 2^63 */
};

/* The largest of all ranks, before there is a table. */
static ga_status find_largest(const ga_exchange *exchange, uint64_t words[HALVES])
{
    ga_slabhash_sharded table = {.exchange = *exchange};
    ga_cuda_scope scope;
    const uint64_t bytes = HALVES * sizeof *words;
    void *block = NULL;
    void *copy = NULL;
    table.engine = exchange->device < 0 ? &ga_sharded_host : &ga_sharded_device;
    ga_status status = table.engine->enter(&table, &scope);
    if (status != GA_OK) {
        return status;
    }
    void *stream = exchange->device < 0 ? NULL : scope.stream;
    status = table.engine->allocate(&table, &block, bytes);
    status = status ? status : table.engine->allocate_host(&table, &copy, bytes);
    if (status == GA_OK) {
        memcpy(copy, words, bytes);
        status = table.engine->put(&table, block, copy, bytes, stream);
    }
    status = status ? status : exchange->largest(exchange->context, block, HALVES, stream);
    status = status ? status : table.engine->get(&table, copy, block, bytes, stream);
    status = status ? status : exchange->wait(exchange->context, stream);
    if (status == GA_OK) {
        memcpy(words, copy, bytes);
    }
    if (status == GA_OK || exchange->abort) { /* else a message may still arrive in it */
        table.engine->free_host(&table, copy);
        table.engine->free_block(&table, block);
    }
    table.engine->leave(&scope);
    return status;
}

ga_status ga_sharded_seed(const ga_exchange *exchange, uint64_t *seed)
{
    ga_slabhash_plan plan;
    ga_slabhash_options options = {.options_size = sizeof options, .seed = *seed};
    uint64_t halves[HALVES] = {0};
    ga_status status = ga_slabhash_plan_of(&options, &plan);
    if (status != GA_OK) {
        return status;
    }
    if (exchange->rank == 0) {
        halves[0] = plan.seed & UINT32_MAX;
        halves[1] = plan.seed >> 32;
    }
    status = find_largest(exchange, halves);
    *seed = halves[0] | halves[1] << 32;
    return status;
}

static ga_status check_sizes(const ga_exchange *exchange, const ga_shard *shard)
{
    return exchange->exchange_size == sizeof *exchange && shard->shard_size == sizeof *shard
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: an exchange of %u bytes, a shard of %u: expected %zu and %zu",
                         exchange->exchange_size, shard->shard_size, sizeof *exchange,
                         sizeof *shard);
}

static ga_status check_ranks(const ga_exchange *exchange)
{
    if (exchange->ranks == 0 || exchange->ranks > GA_SHARDED_RANKS ||
        exchange->rank >= exchange->ranks) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: rank %u of %u: expected at most %d ranks, and one of them",
                       exchange->rank, exchange->ranks, GA_SHARDED_RANKS);
    }
    return GA_OK;
}

static ga_status check(const ga_shard *shard, const ga_sharded_options *options)
{
    if ((unsigned)shard->mode >= GA_SLABHASH_MODE_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a shard of mode %d: expected 0 to %d",
                       (int)shard->mode, GA_SLABHASH_MODE_COUNT - 1);
    }
    if (options->options_size != sizeof *options || options->reserved) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: options of %u bytes, reserved=%u: expected %zu and 0",
                       options->options_size, options->reserved, sizeof *options);
    }
    return options->piece <= PIECE_MOST
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: piece=%llu: expected at most %llu",
                         (unsigned long long)options->piece, (unsigned long long)PIECE_MOST);
}

/* Part of the words that must be the same on all ranks, or'd to GA_SHARDED_FORM. The piece is that
 * of the options. Slices of the host are smaller than those of devices. */
static uint64_t form_of_options(const ga_slabhash_sharded *table)
{
    uint64_t form = table->shard.a ^ table->shard.b * 3 ^ table->piece * 0x9e3779b97f4a7c15u;
    form ^= (uint64_t)table->division.parts_log << 40;
    form ^= (uint64_t)(table->exchange.device < 0) << 58;
    form ^= (uint64_t)table->shard.mode << 60 ^ (uint64_t)table->shard.is_multi << 59;
    return form & INT64_MAX;
}

/* More parts are not worth their sort. */
static bool are_many(uint32_t parts_log, uint32_t ranks, uint64_t bytes)
{
    bool is_large = bytes >> (parts_log - 1) > PART_MOST;
    return ranks << parts_log > (is_large ? BINS_MOST : BINS_BEST) ||
           (!is_large && parts_log > SMALL_PARTS_LOG);
}

static uint32_t parts_log_of(uint32_t ranks, uint64_t bytes)
{
    uint32_t parts_log = GA_SHARDED_PARTS_LOG;
    while (parts_log &&
           (parts_log > GA_SHARDED_SLICES_LOG ? are_many(parts_log, ranks, bytes)
                                              : ranks << parts_log > GA_SHARDED_BINS)) {
        parts_log--;
    }
    return parts_log;
}

static void configure(ga_slabhash_sharded *table, const ga_sharded_options *options)
{
    const ga_exchange *exchange = &table->exchange;
    bool on_host = exchange->device < 0;
    uint32_t parts_log = parts_log_of(exchange->ranks, table->shard.bytes);
    table->division =
        (ga_sharded_division){table->shard.a, table->shard.b, exchange->ranks, parts_log};
    table->piece = options->piece;
    table->width = table->shard.mode == GA_SLABHASH_MAP64 ? 8 : 4;
    table->engine = on_host ? &ga_sharded_host : &ga_sharded_device;
    table->slice_least = table->engine->slice_least;
    table->guess_least = table->engine->guess_least;
}

/* Whether all ranks have opened it, alike. If the options name no piece, the smallest default of
 * all ranks is that of the table, because devices may differ in memory. */
static ga_status agree_on_options(ga_slabhash_sharded *table, ga_status status)
{
    uint64_t form = form_of_options(table);
    uint64_t piece = table->piece ? table->piece : ga_sharded_default_piece(table);
    memset(table->host->agreed, 0, sizeof table->host->agreed);
    table->host->agreed[GA_SHARDED_STATUS] = status;
    table->host->agreed[GA_SHARDED_FORM] = form;
    table->host->agreed[GA_SHARDED_NOT_FORM] = ga_sharded_not(form);
    table->host->agreed[GA_SHARDED_LARGEST] = ga_sharded_not(piece);
    ga_status agreed = ga_sharded_agree(table, false);
    if (agreed != GA_OK || status != GA_OK) {
        return agreed ? agreed : status;
    }
    if (table->host->agreed[GA_SHARDED_STATUS]) {
        return ga_fail((ga_status)table->host->agreed[GA_SHARDED_STATUS],
                       "slabhash: rank %u: another rank cannot open its part of the table",
                       table->exchange.rank);
    }
    if (table->host->agreed[GA_SHARDED_FORM] != form ||
        table->host->agreed[GA_SHARDED_NOT_FORM] != ga_sharded_not(form)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: rank %u: piece=%llu%s, %u parts for %llu bytes of buckets, %s "
                       "of seed's hash 0x%llx, on a %s: expected the same on all ranks",
                       table->exchange.rank, (unsigned long long)table->piece,
                       table->piece ? "" : " (by default)", 1u << table->division.parts_log,
                       (unsigned long long)table->shard.bytes,
                       ga_slabhash_mode_text(table->shard.mode), (unsigned long long)table->shard.a,
                       table->exchange.device < 0 ? "host" : "device");
    }
    ga_sharded_set_piece(table, ga_sharded_not(table->host->agreed[GA_SHARDED_LARGEST]));
    return GA_OK;
}

/* A rank that cannot open its part still takes part in the agreement, if it has memory for the
 * words. Otherwise the others notice by the time limit of the exchange. */
static ga_status open_inside(ga_slabhash_sharded *table, ga_status status)
{
    char reason[256];
    ga_status words = table->engine->open(table);
    words = words ? words : ga_sharded_reserve_words(table);
    if (words != GA_OK) {
        return ga_sharded_break(table, words);
    }
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    ga_status agreed = agree_on_options(table, status);
    if (status != GA_OK || agreed != GA_OK) {
        return status ? ga_fail(status, "%s", reason) : agreed;
    }
    return ga_sharded_agree_status(table, ga_sharded_reserve_fixed(table));
}

static ga_status open_entered(ga_slabhash_sharded *table, ga_status status)
{
    ga_cuda_scope scope;
    ga_status entered = table->engine->enter(table, &scope);
    if (entered != GA_OK) {
        return entered;
    }
    status = open_inside(table, status);
    table->engine->leave(&scope);
    return status;
}

static ga_status close_shard(const ga_shard *shard)
{
    return shard->table ? shard->close(shard->table) : GA_OK;
}

ga_status ga_slabhash_sharded_open(ga_slabhash_sharded **out, const ga_exchange *exchange,
                                   const ga_shard *shard, const ga_sharded_options *options)
{
    static const ga_sharded_options defaults = {.options_size = sizeof defaults};
    options = options ? options : &defaults;
    *out = NULL;
    ga_status status = check_sizes(exchange, shard);
    if (status != GA_OK) {
        return status; /* where close() is, is not known */
    }
    ga_status failed = shard->failed;
    status = check_ranks(exchange);
    if (status == GA_OK && failed == GA_OK) {
        failed = check(shard, options);
        options = failed ? &defaults : options; /* so that the others learn of it */
    }
    ga_slabhash_sharded *table = status ? NULL : ga_libc.calloc(1, sizeof *table);
    if (!table) {
        status = status ? status : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for a table");
        exchange->close(exchange->context);
        (void)close_shard(shard);
        return status;
    }
    table->exchange = *exchange;
    table->shard = *shard;
    configure(table, options);
    status = open_entered(table, failed);
    if (status != GA_OK) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s", ga_error_text());
        (void)ga_slabhash_sharded_close(table);
        return ga_fail(status, "%s", reason);
    }
    *out = table;
    return GA_OK;
}

ga_status ga_slabhash_sharded_close(ga_slabhash_sharded *table)
{
    ga_cuda_scope scope;
    if (!table) {
        return GA_OK;
    }
    if (table->engine->enter(table, &scope) == GA_OK) {
        ga_sharded_free(table);
        table->exchange.close(table->exchange.context);
        table->engine->close(table);
        table->engine->leave(&scope);
    } else { /* the context is gone, and its memory */
        table->exchange.close(table->exchange.context);
    }
    ga_status status = close_shard(&table->shard);
    ga_libc.free(table);
    return status;
}

/* ---- the whole table ------------------------------------------------------------------------- */

/* Each rank puts its number into a word of its own, because an exchange finds the largest number
 * and no sum. There may be more ranks than words, so ranks take turns. */
static ga_status sum_of_all(ga_slabhash_sharded *table, uint64_t own, ga_status status,
                            uint64_t *sum)
{
    enum {
        AT_ONCE = GA_SHARDED_WORDS - 1
    };
    *sum = 0;
    for (uint32_t first = 0; first < table->exchange.ranks; first += AT_ONCE) {
        memset(table->host->agreed, 0, sizeof table->host->agreed);
        table->host->agreed[GA_SHARDED_STATUS] = status;
        if (table->exchange.rank >= first && table->exchange.rank - first < AT_ONCE) {
            table->host->agreed[1 + table->exchange.rank - first] = own;
        }
        ga_status agreed = ga_sharded_agree(table, false);
        if (agreed != GA_OK) {
            return agreed;
        }
        for (int i = 1; i < GA_SHARDED_WORDS; i++) {
            *sum += table->host->agreed[i];
        }
    }
    return status || !table->host->agreed[GA_SHARDED_STATUS]
               ? status
               : ga_fail((ga_status)table->host->agreed[GA_SHARDED_STATUS],
                         "slabhash: rank %u: another rank cannot count its pairs",
                         table->exchange.rank);
}

ga_status ga_slabhash_sharded_size(ga_slabhash_sharded *table, uint64_t *pairs, void *stream)
{
    ga_cuda_scope scope;
    uint64_t own = 0;
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = table->shard.size(table->shard.table, &own, stream);
    status = sum_of_all(table, own, status, pairs);
    table->engine->leave(&scope);
    return status;
}

ga_status ga_slabhash_sharded_clear(ga_slabhash_sharded *table, void *stream)
{
    ga_cuda_scope scope;
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = table->shard.clear(table->shard.table, stream);
    status = ga_sharded_agree_status(table, status);
    table->engine->leave(&scope);
    return status;
}

uint32_t ga_slabhash_sharded_owner(const ga_slabhash_sharded *table, uint64_t key)
{
    const ga_sharded_division *division = &table->division;
    return ga_sharded_owner(division, ga_slabhash_hash_of(division->a, division->b, key));
}

void *ga_slabhash_sharded_table(const ga_slabhash_sharded *table)
{
    return table->shard.table;
}

void ga_slabhash_sharded_report(const ga_slabhash_sharded *table, ga_sharded_report *out)
{
    *out = table->report;
}
