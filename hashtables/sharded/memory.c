/* SPDX-License-Identifier: MIT
 *
 * Memory for exchanges. That for requests of others is taken when the table is opened, so that no
 * rank runs out of it in the middle of a batch; that for own requests grows with the batches.
 */
#include "sharded.h"

#include <stddef.h>
#include <string.h>

enum {
    LINE = 256, /* bytes, at a multiple of which each array begins */
    PIECE_ON_HOST = 1 << 20,
    PIECE_ON_DEVICE = 1 << 28,       /* if it takes at most a sixteenth of the free memory, */
    PIECE_ON_SMALL_DEVICE = 1 << 27, /* else this */
    ROOM_MORE = 1 << 24,             /* requests: memory for own ones grows by so many at most */
    SPARE = 256 /* a pair has room for 1.25 times an even share, and so many requests */
};

/* Cuts arrays from a block; without a block it only adds up. */
typedef struct cutter {
    char *block;
    uint64_t used;
} cutter;

static void *cut(cutter *from, uint64_t bytes)
{
    void *at = from->block ? from->block + from->used : NULL;
    from->used += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

static void cut_arrays(cutter *from, ga_sharded_arrays *arrays, uint64_t count, uint32_t width,
                       bool has_values)
{
    arrays->keys = cut(from, count * width);
    arrays->values = has_values ? cut(from, count * width) : NULL;
    arrays->found = has_values ? cut(from, count * width) : NULL;
    arrays->results = cut(from, count);
    arrays->ops = cut(from, count);
}

static bool has_values(const ga_slabhash_sharded *table)
{
    return table->shard.mode != GA_SLABHASH_SET32;
}

static void cut_fixed(ga_slabhash_sharded *table, cutter *from)
{
    uint64_t others = table->pair_most * (table->division.ranks - 1);
    uint32_t bins = table->division.ranks << table->division.parts_log;
    table->counts = cut(from, bins * sizeof *table->counts);
    table->cursors = cut(from, bins * sizeof *table->cursors);
    table->counts_of_others = cut(from, bins * sizeof *table->counts_of_others);
    for (int i = 0; i < GA_SHARDED_BUFFERS; i++) {
        cut_arrays(from, &table->received[i], others, table->width, has_values(table));
    }
}

ga_status ga_sharded_reserve_words(ga_slabhash_sharded *table)
{
    void *block = NULL;
    ga_status status = table->engine->allocate(
        table, &block,
        (GA_SHARDED_WORDS + GA_SHARDED_MATRIX + 2 * GA_SHARDED_RESULTS) * sizeof(uint64_t));
    status = status
                 ? status
                 : table->engine->allocate_host(table, (void **)&table->host, sizeof *table->host);
    if (status == GA_OK) {
        memset(table->host, 0, sizeof *table->host);
    }
    table->words = block;
    table->matrix = block ? table->words + GA_SHARDED_WORDS : NULL;
    table->totals = block ? table->matrix + GA_SHARDED_MATRIX : NULL;
    table->served = block ? table->totals + GA_SHARDED_RESULTS : NULL;
    return status;
}

static void register_block(const ga_slabhash_sharded *table, void *block, uint64_t bytes)
{
    if (table->exchange.register_memory) {
        table->exchange.register_memory(table->exchange.context, block, bytes);
    }
}

static void deregister_block(const ga_slabhash_sharded *table, void *block)
{
    if (block && table->exchange.deregister_memory) {
        table->exchange.deregister_memory(table->exchange.context, block);
    }
}

/* Memory for messages. */
static ga_status take(ga_slabhash_sharded *table, void **block, uint64_t bytes)
{
    ga_status status = table->engine->allocate(table, block, bytes);
    if (status == GA_OK) {
        register_block(table, *block, bytes);
    }
    return status;
}

static void give_back(ga_slabhash_sharded *table, void **block)
{
    deregister_block(table, *block);
    table->engine->free_block(table, *block);
    *block = NULL;
}

void ga_sharded_free(ga_slabhash_sharded *table)
{
    if (table->is_broken && !table->exchange.abort) {
        return; /* messages that could not be ended may still arrive in it */
    }
    give_back(table, &table->all.values_block);
    give_back(table, &table->all.block);
    give_back(table, &table->own);
    if (table->is_fixed_exchanges) {
        deregister_block(table, table->fixed);
        table->exchange.unshare(table->exchange.context, table->fixed);
    } else {
        give_back(table, &table->fixed);
    }
    table->engine->free_block(table, table->words);
    table->engine->free_host(table, table->host);
}

/* Memory that all ranks reach, if there is such. A failure of that breaks the table. */
static ga_status share(ga_slabhash_sharded *table, uint64_t bytes)
{
    const ga_exchange *exchange = &table->exchange;
    ga_shared shared = {NULL, false};
    ga_status status = exchange->share && exchange->ranks > 1
                           ? exchange->share(exchange->context, &shared, bytes, table->words,
                                             table->exchange_stream)
                           : GA_OK;
    table->fixed = shared.block;
    table->is_fixed_exchanges = shared.block;
    table->is_shared = shared.is_reached;
    if (status == GA_OK && shared.block) { /* all.c sends from it, and receives in it */
        register_block(table, shared.block, bytes);
    }
    return ga_sharded_break(table, status);
}

ga_status ga_sharded_reserve_fixed(ga_slabhash_sharded *table)
{
    cutter sizes = {NULL, 0};
    cut_fixed(table, &sizes);
    ga_status status = share(table, sizes.used);
    status = status || table->fixed ? status : take(table, &table->fixed, sizes.used);
    if (status == GA_OK) {
        cutter parts = {table->fixed, 0};
        cut_fixed(table, &parts);
    }
    return status;
}

uint64_t ga_sharded_room_for(const ga_slabhash_sharded *table, uint64_t count)
{
    uint64_t bins = (uint64_t)table->division.ranks << table->division.parts_log;
    uint64_t counted = count + bins * GA_SHARDED_PAD;
    uint64_t guessed = count < GA_SHARDED_GUESS_MOST ? count : GA_SHARDED_GUESS_MOST;
    guessed = bins * ga_sharded_capacity(table, guessed) + GA_SHARDED_SORT_BYTES / table->width;
    return counted > guessed ? counted : guessed;
}

static void cut_own(ga_slabhash_sharded *table, cutter *from, uint64_t count)
{
    uint64_t bins = (uint64_t)table->division.ranks << table->division.parts_log;
    uint64_t blocks = count * table->width / GA_SHARDED_SORT_BYTES + 1;
    cut_arrays(from, &table->sorted, ga_sharded_room_for(table, count), table->width,
               has_values(table));
    table->indices = cut(from, count * sizeof *table->indices);
    table->extents = cut(from, blocks * (bins + 1) * sizeof *table->extents);
}

/* ---- the piece ------------------------------------------------------------------------------ */

void ga_sharded_set_piece(ga_slabhash_sharded *table, uint64_t piece)
{
    uint32_t parts_log = table->division.parts_log;
    uint32_t slices = 1u << parts_log < GA_SHARDED_SLICES ? 1u << parts_log : GA_SHARDED_SLICES;
    uint64_t even = piece / slices / table->division.ranks;
    table->piece = piece;
    table->pair_most = (even + even / 4 + SPARE) / GA_SHARDED_PAD * GA_SHARDED_PAD;
}

/* A shard passes over its table once for each piece. */
uint64_t ga_sharded_default_piece(const ga_slabhash_sharded *table)
{
    ga_slabhash_sharded sized = *table;
    cutter sizes = {NULL, 0};
    if (!table->memory) {
        return PIECE_ON_HOST;
    }
    ga_sharded_set_piece(&sized, PIECE_ON_DEVICE);
    cut_fixed(&sized, &sizes);
    cut_own(&sized, &sizes, PIECE_ON_DEVICE);
    return sizes.used <= table->memory / 16 ? PIECE_ON_DEVICE : PIECE_ON_SMALL_DEVICE;
}

/* ---- memory for own requests ---------------------------------------------------------------- */

/* Room for `count` requests, and for batches that grow. */
static uint64_t room_of(const ga_slabhash_sharded *table, uint64_t count)
{
    uint64_t more = count / 2 < ROOM_MORE ? count / 2 : ROOM_MORE;
    return count + more < table->piece ? count + more : table->piece;
}

static void give_back_own(ga_slabhash_sharded *table)
{
    give_back(table, &table->own);
    table->own_room = 0;
}

static ga_status take_own(ga_slabhash_sharded *table, uint64_t count)
{
    cutter sizes = {NULL, 0};
    give_back_own(table);
    cut_own(table, &sizes, count);
    ga_status status = take(table, &table->own, sizes.used);
    if (status == GA_OK) {
        cutter parts = {table->own, 0};
        cut_own(table, &parts, count);
        table->own_room = count;
    }
    return status;
}

static void cut_all(ga_slabhash_sharded *table, cutter *from, uint64_t count)
{
    ga_sharded_all *all = &table->all;
    uint64_t others = table->pair_most * (table->division.ranks - 1);
    uint64_t ranks = table->division.ranks;
    all->counts = cut(from, count * sizeof *all->counts);
    all->firsts = cut(from, count * sizeof *all->firsts);
    all->counts_here = cut(from, others * sizeof *all->counts_here);
    all->firsts_here = cut(from, others * sizeof *all->firsts_here);
    all->totals_here = cut(from, 2 * ranks * sizeof *all->totals_here);
    all->totals = cut(from, ranks * sizeof *all->totals);
    all->left = cut(from, sizeof *all->left);
    all->lefts = cut(from, ranks * sizeof *all->lefts);
}

static void give_back_all(ga_slabhash_sharded *table)
{
    give_back(table, &table->all.block);
    table->all.room = 0;
}

static ga_status take_all(ga_slabhash_sharded *table, uint64_t count)
{
    ga_sharded_all *all = &table->all;
    cutter sizes = {NULL, 0};
    give_back_all(table);
    cut_all(table, &sizes, count);
    ga_status status = take(table, &all->block, sizes.used);
    if (status == GA_OK) {
        cutter parts = {all->block, 0};
        cut_all(table, &parts, count);
        all->room = count;
    }
    return status;
}

/* Makes sure that there is room for `count` requests. A block that is too small is replaced by one
 * for `room` requests, at least `count`. */
static ga_status reserve(ga_slabhash_sharded *table, bool all, uint64_t count, uint64_t room)
{
    ga_status status = count <= table->own_room ? GA_OK : take_own(table, room);
    bool has_all = !all || (table->all.block && count <= table->all.room);
    return status || has_all ? status : take_all(table, room);
}

ga_status ga_sharded_reserve(ga_slabhash_sharded *table, bool all, uint64_t *count)
{
    if (table->capped_at && *count > table->capped_at) {
        bool is_lifted = ++table->capped_batches > GA_SHARDED_CAPPED_BATCHES;
        *count = is_lifted ? *count : table->capped_at;
        table->capped_at = is_lifted ? 0 : table->capped_at;
    }
    uint64_t room = room_of(table, *count);
    ga_status status = reserve(table, all, *count, room);
    if (status == GA_ERR_MEMORY && room > *count) {
        status = reserve(table, all, *count, *count);
    }
    while (status == GA_ERR_MEMORY && *count > 1 &&
           (*count + 1) / 2 >= table->piece / GA_SHARDED_LEAST_SHARE) {
        give_back_own(table);
        give_back_all(table);
        *count = (*count + 1) / 2;
        status = reserve(table, all, *count, *count);
        table->capped_at = status ? 0 : *count;
        table->capped_batches = 0;
    }
    return status;
}

ga_status ga_sharded_reserve_values(ga_slabhash_sharded *table, uint64_t room)
{
    ga_sharded_all *all = &table->all;
    uint64_t others = table->division.ranks - 1;
    uint64_t most = UINT64_MAX / (2 * sizeof *all->values) / (others + 1);
    give_back(table, &all->values_block);
    all->values_room = 0;
    if (room == 0 || others == 0) {
        return GA_OK;
    }
    ga_status status =
        room > most
            ? ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %llu values of a pair of ranks",
                      (unsigned long long)room)
            : take(table, &all->values_block, 2 * others * room * sizeof *all->values);
    if (status == GA_OK) {
        all->values_room = room;
        all->values_here = all->values_block;
        all->values = all->values_here + others * room;
    }
    return status;
}
