/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys over all shards: searches and deletes. All work is on the exchange stream, one
 * step after the other.
 *
 *   for each piece of the keys
 *     count, agree, sort    as for a batch (sharded.h), but always counted, and without pads
 *     own keys              the shard writes values to the caller's array
 *     for each round: at most `step` keys of each rank for each other one
 *       keys                to owners, with the room that is left for values
 *       serve               the keys of each rank in a call of the shard, with room for
 *                           `values_room` values
 *       agree               has a shard failed? do the values fit?
 *       answers             totals, counts and firsts back
 *       values              back, and then to the caller's array
 *     order                 counts and firsts into the order of the keys
 *     agree                 has a shard failed?
 *
 * VALUES     of one rank's keys of a round come as one message, in the order in which the shard
 *            wrote them. The firsts that come with them are relative to it; this rank adds the
 *            number of pairs that it had found before.
 *
 * ROUNDS     If the values of a round do not fit for some pair of ranks, all ranks discard the
 *            answers and begin it again with fewer keys, by the same rule. A round of one key has
 *            memory taken for all its values. Deletes have no values, so none is repeated.
 */
#include "all.h"

#include "platform/cuda_driver.h"

#include <string.h>

enum {
    /* Of the form in an agreement; bit 0 is not set: see run.c. */
    FORM_OF_ALL = 1 << 30,
    FORM_REMOVES = 2,
    /* Words that a batch has for its slices. */
    MOST_FOR_PAIR = GA_SHARDED_FOR_PAIRS,     /* requests of a rank for another one */
    VALUES_WANTED = GA_SHARDED_FOR_PAIRS + 1, /* by a rank */
};

/* ---- what all ranks agree on ----------------------------------------------------------------- */

static ga_status check_all(const ga_sharded_all_job *j)
{
    const ga_slabhash_all *all = j->all;
    bool has_room = !j->removes && all->room;
    if (!j->table->shard.run_all) {
        return ga_fail(GA_ERR_UNSUPPORTED, "slabhash: a shard without run_all: expected one that "
                                           "has it, for all pairs of keys");
    }
    return (all->count && !all->keys) || (has_room && !all->values)
               ? ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: a batch of %llu, room=%llu, without %s: expected an array",
                         (unsigned long long)all->count, (unsigned long long)all->room,
                         all->count && !all->keys ? "keys" : "values")
               : GA_OK;
}

static uint64_t form_of(const ga_sharded_all_job *j)
{
    return FORM_OF_ALL | (j->removes ? FORM_REMOVES : 0);
}

/* The words of this rank. */
static void fill_words(const ga_sharded_all_job *j, ga_status status)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t *words = t->host->agreed;
    memset(words, 0, sizeof t->host->agreed);
    words[GA_SHARDED_STATUS] = status;
    words[GA_SHARDED_FORM] = form_of(j);
    words[GA_SHARDED_NOT_FORM] = ga_sharded_not(form_of(j));
    words[GA_SHARDED_RESULTS_WANTED] = j->all->counts != NULL;
    words[GA_SHARDED_FOUND_WANTED] = j->all->firsts && !j->removes;
    words[GA_SHARDED_MORE] = j->all->count - j->done > j->count;
    words[VALUES_WANTED] = j->all->room && !j->removes;
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        uint64_t keys =
            rank == t->exchange.rank ? 0 : ga_sharded_all_keys(j, t->host->own_counts, rank);
        words[MOST_FOR_PAIR] = keys > words[MOST_FOR_PAIR] ? keys : words[MOST_FOR_PAIR];
    }
}

static ga_status check_words(const ga_sharded_all_job *j, ga_status status)
{
    const uint64_t *words = j->table->host->agreed;
    uint64_t form = form_of(j);
    status = ga_sharded_agreed(j->table, status);
    if (status != GA_OK) {
        return status;
    }
    return words[GA_SHARDED_FORM] == form && words[GA_SHARDED_NOT_FORM] == ga_sharded_not(form) &&
                   !words[GA_SHARDED_NOT_ALL]
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: rank %u: a %s for all pairs of keys: expected the same on all "
                         "ranks",
                         j->table->exchange.rank, j->removes ? "delete" : "search");
}

static void read_words(ga_sharded_all_job *j)
{
    const uint64_t *words = j->table->host->agreed;
    j->brings_counts = words[GA_SHARDED_RESULTS_WANTED];
    j->brings_firsts = words[GA_SHARDED_FOUND_WANTED];
    j->brings_values = words[VALUES_WANTED];
    j->most_for_pair = words[MOST_FOR_PAIR];
}

/* ---- own keys -------------------------------------------------------------------------------- */

static ga_sharded_sort sort_of(const ga_sharded_all_job *j)
{
    const ga_slabhash_sharded *t = j->table;
    return (ga_sharded_sort){.division = t->division,
                             .count = j->count,
                             .keys =
                                 j->count ? (const char *)j->all->keys + j->done * t->width : NULL,
                             .keys_to = t->sorted.keys,
                             .cursors = t->counts,
                             .indices = t->indices,
                             .extents = t->extents,
                             .is_wide = t->width == 8};
}

/* Counts the keys of each bin, on the device and on the host. */
static ga_status count(const ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    uint64_t bytes = ((uint64_t)t->division.ranks << t->division.parts_log) * sizeof *t->counts;
    memset(t->host->own_pads, 0, sizeof t->host->own_pads);
    ga_status status = t->engine->fill(t, t->counts, 0, bytes, t->exchange_stream);
    status = status ? status : t->engine->count(t, &sort, t->exchange_stream);
    status = status ? status
                    : t->engine->get(t, t->host->own_counts, t->counts, bytes, t->exchange_stream);
    return status ? status : t->engine->wait(t, t->exchange_stream);
}

static ga_status sort(const ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    uint32_t bins = t->division.ranks << t->division.parts_log;
    uint32_t end = 0;
    for (uint32_t bin = 0; bin < bins; bin++) {
        t->host->begins[bin] = end;
        end += t->host->own_counts[bin];
    }
    sort.cursors = t->cursors;
    ga_status status = t->engine->put(t, t->cursors, t->host->begins, bins * sizeof *t->cursors,
                                      t->exchange_stream);
    return status ? status : t->engine->sort(t, &sort, t->exchange_stream);
}

/* ---- a piece --------------------------------------------------------------------------------- */

static ga_status order(const ga_sharded_all_job *j, const uint64_t *from, uint64_t *to)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_order order = {.count = j->count,
                              .indices = t->indices,
                              .extents = t->extents,
                              .from = from,
                              .to = to + j->done,
                              .bins = t->division.ranks << t->division.parts_log,
                              .is_wide = t->width == 8};
    return t->engine->order(t, &order, t->exchange_stream);
}

static ga_status finish_piece(ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_status status = j->all->counts ? order(j, t->all.counts, j->all->counts) : GA_OK;
    status =
        status || !j->all->firsts || j->removes ? status : order(j, t->all.firsts, j->all->firsts);
    memset(t->host->agreed, 0, sizeof t->host->agreed);
    t->host->agreed[GA_SHARDED_STATUS] = j->local;
    t->host->agreed[GA_SHARDED_FULL] = j->full;
    status = status ? ga_sharded_break(t, status) : ga_sharded_agree(t, false);
    j->full |= t->host->agreed[GA_SHARDED_FULL];
    return status ? status : ga_sharded_agreed(t, j->local);
}

/* Of all ranks for this rank's shard. */
static uint64_t keys_here(const ga_sharded_all_job *j)
{
    const ga_slabhash_sharded *t = j->table;
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < t->exchange.ranks; rank++) {
        bool is_own = rank == t->exchange.rank;
        sum += ga_sharded_all_keys(j, is_own ? t->host->own_counts : t->host->other_counts, rank);
    }
    return sum;
}

/* `*more`: whether a rank has another piece. */
static ga_status run_piece(ga_sharded_all_job *j, ga_status status, bool *more)
{
    ga_slabhash_sharded *t = j->table;
    *more = false;
    uint64_t left = j->all->count - j->done;
    j->count = status ? 0 : ga_sharded_least(left, j->most);
    status = status ? status : ga_sharded_reserve(t, true, &j->count);
    j->most = j->count < left ? j->count : j->most;
    status = status ? status : count(j);
    fill_words(j, status);
    ga_status agreed = ga_sharded_agree(t, true);
    status = agreed ? agreed : check_words(j, status);
    if (status != GA_OK) {
        return status;
    }
    *more = t->host->agreed[GA_SHARDED_MORE];
    read_words(j);
    t->report.served += keys_here(j);
    status = ga_sharded_break(t, sort(j));
    status = status ? status : ga_sharded_all_rounds(j);
    status = status ? status : finish_piece(j);
    t->report.pieces++;
    j->done += j->count;
    return status;
}

static ga_status run(ga_sharded_all_job *j, void *stream)
{
    ga_slabhash_sharded *t = j->table;
    bool more = true;
    ga_status status = check_all(j);
    t->report = (ga_sharded_report){.requests = j->all->count};
    status = status ? status : t->engine->mark(t, GA_SHARDED_SORTED, stream);
    status = status ? status : t->engine->follow(t, GA_SHARDED_SORTED, t->exchange_stream);
    while (more) {
        status = run_piece(j, status, &more);
        more = more && status == GA_OK;
    }
    return status || !j->full
               ? status
               : ga_fail(GA_ERR_MEMORY,
                         "slabhash: rank %u: a shard has no slab to delete pairs of some keys: "
                         "expected a larger limit, or more memory",
                         t->exchange.rank);
}

static ga_status call(ga_slabhash_sharded *table, const ga_slabhash_all *all, bool removes,
                      uint64_t *total, void *stream)
{
    static const ga_slabhash_all none = {0};
    ga_cuda_scope scope;
    ga_sharded_all_job j = {.table = table, .all = all ? all : &none, .removes = removes};
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    j.most = table->piece;
    status = run(&j, stream);
    if (table->is_broken && table->exchange.abort) {
        /* for work that uses the caller's arrays; none of it waits for other ranks now */
        (void)table->engine->wait(table, table->exchange_stream);
    }
    if (total) {
        *total = j.found;
    }
    table->engine->leave(&scope);
    return status;
}

ga_status ga_slabhash_sharded_search_all(ga_slabhash_sharded *table, const ga_slabhash_all *all,
                                         uint64_t *total, void *stream)
{
    return call(table, all, false, total, stream);
}

ga_status ga_slabhash_sharded_delete_all(ga_slabhash_sharded *table, const ga_slabhash_all *all,
                                         uint64_t *total, void *stream)
{
    return call(table, all, true, total, stream);
}

ga_status ga_slabhash_sharded_retrieve(ga_slabhash_sharded *table, void *keys, void *values,
                                       uint64_t room, uint64_t *count, void *stream)
{
    if (!table || !count) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                       table ? "place for the number of pairs" : "sharded table");
    }
    return table->shard.retrieve
               ? table->shard.retrieve(table->shard.table, keys, values, room, count, stream)
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: a shard without retrieve: expected one that has it");
}
