/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys: own keys of a piece, and the rounds in which keys travel to other ranks and
 * answers back. all.c has the order.
 */
#include "all.h"

#include <string.h>

enum { /* a word of an agreement on a round, which batches have for their slices */
    VALUES_FOUND = GA_SHARDED_FOR_PAIRS /* most for a pair of ranks that are to travel */
};

/* A range of keys in an array. */
typedef struct range {
    uint64_t first, count;
} range;

/* Waits for the work of this rank and for messages. A failure breaks the table. */
static ga_status wait_for_all(const ga_sharded_all_job *j, ga_status status)
{
    ga_slabhash_sharded *t = j->table;
    status = status ? status : t->exchange.wait(t->exchange.context, t->exchange_stream);
    return ga_sharded_break(t, status);
}

/* Takes memory for that many values of a pair of ranks, or on no rank. */
static ga_status reserve_values(const ga_sharded_all_job *j, uint64_t room)
{
    ga_slabhash_sharded *t = j->table;
    ga_status status = ga_sharded_agree_status(t, ga_sharded_reserve_values(t, room));
    if (status != GA_OK && !t->is_broken) {
        (void)ga_sharded_reserve_values(t, 0);
    }
    return status;
}

/* Own keys for a rank, in `sorted`. */
static range own_for(const ga_sharded_all_job *j, uint32_t rank)
{
    const ga_slabhash_sharded *t = j->table;
    return (range){t->host->begins[rank << t->division.parts_log],
                   ga_sharded_all_keys(j, t->host->own_counts, rank)};
}

/* The part of a range that the round from key `at` on has. */
static range in_round(const ga_sharded_all_job *j, range all, uint64_t at)
{
    uint64_t before = ga_sharded_least(at, all.count);
    return (range){all.first + before, ga_sharded_least(all.count - before, j->step)};
}

/* The shard serves keys of a rank; `totals` of it go up. */
static void serve(ga_sharded_all_job *j, const ga_slabhash_all *all, uint32_t rank)
{
    const ga_slabhash_sharded *t = j->table;
    if (!all->count || j->local != GA_OK) {
        return;
    }
    ga_sharded_guard(t, true);
    ga_status status = t->shard.run_all(t->shard.table, all, j->removes,
                                        t->all.totals_here + 2u * rank, t->exchange_stream);
    ga_sharded_guard(t, false);
    j->full |= j->removes && status == GA_ERR_MEMORY;
    j->local = j->removes && status == GA_ERR_MEMORY ? GA_OK : status;
}

/* Around calls of the shard: totals begin at 0, and are read on the host. */
static ga_status begin_totals(const ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t bytes = 2 * (uint64_t)t->exchange.ranks * sizeof *t->all.totals_here;
    return t->engine->fill(t, t->all.totals_here, 0, bytes, t->exchange_stream);
}

static ga_status read_totals(const ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t bytes = 2 * (uint64_t)t->exchange.ranks * sizeof *t->all.totals_here;
    return t->engine->get(t, t->host->all_totals_here, t->all.totals_here, bytes,
                          t->exchange_stream);
}

/* Own keys have got firsts that begin at 0, and `total` pairs. `values` of them, if not NULL, go to
 * the caller's array. */
static ga_status take_answers(ga_sharded_all_job *j, range keys, uint64_t total,
                              const uint64_t *values)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_move firsts = {t->all.firsts + keys.first, t->all.firsts + keys.first,
                              j->brings_firsts ? keys.count : 0, j->found};
    ga_status status = j->found ? t->engine->move(t, &firsts, t->exchange_stream) : GA_OK;
    if (status == GA_OK && values && ga_sharded_all_left(j)) {
        ga_sharded_move stored = {values, j->all->values + j->found,
                                  ga_sharded_least(total, ga_sharded_all_left(j)), 0};
        status = t->engine->move(t, &stored, t->exchange_stream);
    }
    j->found += total;
    return status;
}

static ga_status serve_own(ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    range own = own_for(j, t->exchange.rank);
    uint64_t room = ga_sharded_all_left(j);
    ga_slabhash_all all = {.count = own.count,
                           .keys = ga_sharded_all_key(j, t->sorted.keys, own.first),
                           .counts = t->all.counts + own.first,
                           .firsts = t->all.firsts + own.first,
                           .values = room ? j->all->values + j->found : NULL,
                           .room = room};
    ga_status status = begin_totals(j);
    if (status == GA_OK) {
        serve(j, &all, t->exchange.rank);
    }
    status = wait_for_all(j, status ? status : read_totals(j));
    return status
               ? status
               : ga_sharded_break(
                     t, take_answers(j, own, t->host->all_totals_here[2 * t->exchange.rank], NULL));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Messages to and from a rank: about own keys for it, in `sorted`, and about its keys here, in
 * `received`. */
typedef ga_status add_messages(const ga_sharded_all_job *j, uint32_t rank, range own, range here);

static ga_status send(const ga_sharded_all_job *j, const void *from, uint64_t bytes, uint32_t rank)
{
    ga_slabhash_sharded *t = j->table;
    t->report.sent += bytes;
    return bytes ? t->exchange.send(t->exchange.context, from, bytes, rank, t->exchange_stream)
                 : GA_OK;
}

static ga_status receive(const ga_sharded_all_job *j, void *to, uint64_t bytes, uint32_t rank)
{
    ga_slabhash_sharded *t = j->table;
    t->report.received += bytes;
    return bytes ? t->exchange.receive(t->exchange.context, to, bytes, rank, t->exchange_stream)
                 : GA_OK;
}

/* Keys of a rank here, in the round from key `at` on, behind those of lower ranks. */
static range next_here(const ga_sharded_all_job *j, range before, uint32_t rank, uint64_t at)
{
    uint64_t count = ga_sharded_all_keys(j, j->table->host->other_counts, rank);
    return (range){before.first + before.count, in_round(j, (range){0, count}, at).count};
}

/* One group of messages with each other rank. */
static ga_status exchange(const ga_sharded_all_job *j, uint64_t at, add_messages *add)
{
    ga_slabhash_sharded *t = j->table;
    range here = {0, 0};
    ga_status status = t->exchange.begin(t->exchange.context);
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        if (rank != t->exchange.rank) {
            here = next_here(j, here, rank, at);
            status = add(j, rank, in_round(j, own_for(j, rank), at), here);
        }
    }
    status = status ? status : t->exchange.end(t->exchange.context, t->exchange_stream);
    return ga_sharded_break(t, status);
}

static ga_status add_keys(const ga_sharded_all_job *j, uint32_t rank, range own, range here)
{
    const ga_slabhash_sharded *t = j->table;
    ga_status status = GA_OK;
    if (j->brings_values) {
        status = send(j, t->all.left, sizeof *t->all.left, rank);
        status = status ? status : receive(j, t->all.lefts + rank, sizeof *t->all.lefts, rank);
    }
    status = status ? status
                    : send(j, ga_sharded_all_key(j, t->sorted.keys, own.first),
                           own.count * t->width, rank);
    return status ? status
                  : receive(j, ga_sharded_all_key(j, t->received[0].keys, here.first),
                            here.count * t->width, rank);
}

static ga_status add_answers(const ga_sharded_all_job *j, uint32_t rank, range own, range here)
{
    const ga_sharded_all *all = &j->table->all;
    const uint64_t each = sizeof(uint64_t);
    ga_status status = send(j, all->totals_here + 2u * rank, each, rank);
    status = status ? status : receive(j, all->totals + rank, each, rank);
    if (status == GA_OK && j->brings_counts) {
        status = send(j, all->counts_here + here.first, here.count * each, rank);
        status = status ? status : receive(j, all->counts + own.first, own.count * each, rank);
    }
    if (status == GA_OK && j->brings_firsts) {
        status = send(j, all->firsts_here + here.first, here.count * each, rank);
        status = status ? status : receive(j, all->firsts + own.first, own.count * each, rank);
    }
    return status;
}

/* The memory for values of another rank in one of the two arrays. */
static uint64_t *values_of(const ga_slabhash_sharded *t, uint64_t *values, uint32_t rank)
{
    return values + ga_sharded_other(t, rank) * t->all.values_room;
}

/* Values for a rank that travel in this round: those of its keys, for which it has room. */
static uint64_t values_for(const ga_sharded_all_job *j, uint32_t rank)
{
    const ga_sharded_copies *host = j->table->host;
    return j->brings_values ? ga_sharded_least(host->all_totals_here[2 * rank], host->lefts[rank])
                            : 0;
}

static ga_status add_values(const ga_sharded_all_job *j, uint32_t rank, range own, range here)
{
    const ga_slabhash_sharded *t = j->table;
    uint64_t arriving = ga_sharded_least(t->host->all_totals[rank], ga_sharded_all_left(j));
    (void)own;
    (void)here;
    ga_status status = send(j, values_of(t, t->all.values_here, rank),
                            values_for(j, rank) * sizeof(uint64_t), rank);
    return status
               ? status
               : receive(j, values_of(t, t->all.values, rank), arriving * sizeof(uint64_t), rank);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Keys to owners. The host waits for those of others, so that an exchange that is aborted leaves no
 * work that would serve the contents of the buffer once more. */
static ga_status exchange_keys(const ga_sharded_all_job *j, uint64_t at)
{
    ga_slabhash_sharded *t = j->table;
    void *stream = t->exchange_stream;
    t->host->left = ga_sharded_all_left(j);
    ga_status status = t->engine->put(t, t->all.left, &t->host->left, sizeof t->host->left, stream);
    status = status ? ga_sharded_break(t, status) : exchange(j, at, add_keys);
    status = status ? status
                    : t->engine->get(t, t->host->lefts, t->all.lefts,
                                     t->exchange.ranks * sizeof *t->host->lefts, stream);
    return wait_for_all(j, status);
}

static ga_status serve_others(ga_sharded_all_job *j, uint64_t at)
{
    ga_slabhash_sharded *t = j->table;
    range here = {0, 0};
    ga_status status = begin_totals(j);
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        if (rank == t->exchange.rank) {
            continue;
        }
        here = next_here(j, here, rank, at);
        uint64_t room =
            j->brings_values ? ga_sharded_least(t->all.values_room, t->host->lefts[rank]) : 0;
        ga_slabhash_all all = {.count = here.count,
                               .keys = ga_sharded_all_key(j, t->received[0].keys, here.first),
                               .counts = t->all.counts_here + here.first,
                               .firsts = t->all.firsts_here + here.first,
                               .values = room ? values_of(t, t->all.values_here, rank) : NULL,
                               .room = room};
        serve(j, &all, rank);
    }
    return wait_for_all(j, status ? status : read_totals(j));
}

/* `*most`: values for a pair of ranks. */
static ga_status agree_on_round(const ga_sharded_all_job *j, uint64_t *most)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t own = 0;
    for (uint32_t rank = 0; rank < t->exchange.ranks; rank++) {
        uint64_t values = rank == t->exchange.rank ? 0 : values_for(j, rank);
        own = values > own ? values : own;
    }
    memset(t->host->agreed, 0, sizeof t->host->agreed);
    t->host->agreed[GA_SHARDED_STATUS] = j->local;
    t->host->agreed[VALUES_FOUND] = own;
    ga_status status = ga_sharded_agree(t, false);
    *most = t->host->agreed[VALUES_FOUND];
    return status ? status : ga_sharded_agreed(t, j->local);
}

/* The values of a round did not fit. */
static ga_status prepare_again(ga_sharded_all_job *j, uint64_t most)
{
    uint64_t room = j->table->all.values_room;
    if (j->step == 1) {
        return reserve_values(j, most);
    }
    uint64_t fewer = j->step / 2 / (most / room);
    j->step = fewer ? fewer : 1;
    return GA_OK;
}

/* They did: the next round has as many keys as may fill half of the memory. */
static void prepare_next(ga_sharded_all_job *j, uint64_t most)
{
    const ga_slabhash_sharded *t = j->table;
    uint64_t times = most ? t->all.values_room / 2 / most : t->pair_most;
    if (times > 1) {
        j->step = ga_sharded_least(j->step * ga_sharded_least(times, t->pair_most), t->pair_most);
    }
}

static ga_status bring_back(ga_sharded_all_job *j, uint64_t at)
{
    ga_slabhash_sharded *t = j->table;
    ga_status status = exchange(j, at, add_answers);
    status = status ? status
                    : t->engine->get(t, t->host->all_totals, t->all.totals,
                                     t->exchange.ranks * sizeof *t->host->all_totals,
                                     t->exchange_stream);
    status = wait_for_all(j, status);
    status = status || !j->brings_values ? status : exchange(j, at, add_values);
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        if (rank != t->exchange.rank) {
            status = take_answers(j, in_round(j, own_for(j, rank), at), t->host->all_totals[rank],
                                  j->brings_values ? values_of(t, t->all.values, rank) : NULL);
        }
    }
    return ga_sharded_break(t, status);
}

/* A round from key `*at` on of each pair. */
static ga_status run_round(ga_sharded_all_job *j, uint64_t *at)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t most = 0;
    ga_status status = exchange_keys(j, *at);
    status = status ? status : serve_others(j, *at);
    status = status ? status : agree_on_round(j, &most);
    t->report.steps++;
    if (status == GA_OK && most > t->all.values_room) {
        return prepare_again(j, most);
    }
    status = status ? status : bring_back(j, *at);
    *at += j->step;
    prepare_next(j, most);
    return status;
}

ga_status ga_sharded_all_rounds(ga_sharded_all_job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t at = 0;
    j->step = t->pair_most;
    ga_status status =
        j->brings_values && !t->all.values_room ? reserve_values(j, t->pair_most) : GA_OK;
    status = status ? status : serve_own(j);
    while (status == GA_OK && at < j->most_for_pair) {
        status = run_round(j, &at);
    }
    return status;
}
