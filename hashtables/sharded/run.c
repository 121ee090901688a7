/* SPDX-License-Identifier: MIT
 *
 * A batch over all shards: sharded.h has the phases, the steps and their order.
 */
#include "sharded.h"

#include "platform/cuda_driver.h"

#include <string.h>

enum { /* bits of a form */
    FORM_OP = 8,
    FORM_HOW = 16
};

/* One call on this rank. */
typedef struct job {
    ga_slabhash_sharded *table;
    const ga_slabhash_batch *batch;
    uint64_t done;  /* requests of earlier pieces */
    uint64_t count; /* requests of this piece */
    uint64_t totals[GA_SHARDED_RESULTS];
    void *stream;
    ga_slabhash_op op; /* of all ranks: this one's may have no requests, and another operation */
    ga_slabhash_how how;
    bool has_values, brings_results, brings_found;
    uint32_t slices, rounds[GA_SHARDED_SLICES];
    ga_status local; /* of the shard: the exchange goes on, so that no other rank waits */
} job;

/* A slice, or a round of one. */
typedef struct step {
    uint32_t slice, round;
    uint32_t buffer;
} step;

/* A range of requests in one of the arrays. */
typedef struct range {
    uint64_t first, count;
} range;

static char *element(void *array, uint64_t index, uint32_t width)
{
    return array ? (char *)array + index * width : NULL;
}

static const char *input(const void *array, uint64_t index, uint32_t width)
{
    return array ? (const char *)array + index * width : NULL;
}

/* The size of a message. */
static uint64_t padded(uint64_t requests)
{
    return (requests + GA_SHARDED_PAD - 1) / GA_SHARDED_PAD * GA_SHARDED_PAD;
}

/* ---- what all ranks agree on ----------------------------------------------------------------- */

static bool needs_values(const job *j)
{
    return j->table->shard.mode != GA_SLABHASH_SET32 && j->op != GA_SLABHASH_SEARCH &&
           j->op != GA_SLABHASH_DELETE;
}

static bool is_supported(const job *j)
{
    bool replaces = j->batch->op == GA_SLABHASH_REPLACE || j->batch->op == GA_SLABHASH_APPLY;
    return !(replaces && j->table->shard.is_multi) &&
           !(j->batch->op == GA_SLABHASH_APPLY && j->table->shard.mode == GA_SLABHASH_SET32);
}

static ga_status check_batch(const job *j)
{
    const ga_slabhash_batch *batch = j->batch;
    if ((unsigned)batch->op >= GA_SLABHASH_OP_COUNT ||
        (unsigned)batch->how >= GA_SLABHASH_HOW_COUNT) {
        return ga_fail(
            GA_ERR_ARGUMENT, "slabhash: operation %d, how=%d: expected 0 to %d, and 0 to %d",
            (int)batch->op, (int)batch->how, GA_SLABHASH_OP_COUNT - 1, GA_SLABHASH_HOW_COUNT - 1);
    }
    if (batch->ops) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a sharded batch with an operation for each "
                                        "request: expected one for all");
    }
    if (!is_supported(j)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "slabhash: operation %d: expected one that a %s%s has",
                       (int)batch->op, j->table->shard.is_multi ? "multi-" : "",
                       ga_slabhash_mode_text(j->table->shard.mode));
    }
    if (batch->count && (!batch->keys || (needs_values(j) && !batch->values))) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without %s: expected an array",
                       (unsigned long long)batch->count, batch->keys ? "values" : "keys");
    }
    return GA_OK;
}

/* The form of a batch, not 0. */
static uint64_t form_of(const job *j)
{
    return 1u | (uint64_t)j->batch->op << FORM_OP | (uint64_t)j->batch->how << FORM_HOW;
}

static void most_for_pairs(job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint32_t slices = parts < GA_SHARDED_SLICES ? parts : GA_SHARDED_SLICES;
    for (uint32_t rank = 0; rank < t->exchange.ranks; rank++) {
        for (uint32_t slice = 0; rank != t->exchange.rank && slice < slices; slice++) {
            uint32_t first = ga_sharded_first_part(t, slice, slices);
            uint32_t end = ga_sharded_first_part(t, slice + 1, slices);
            uint64_t sum = 0;
            for (uint32_t part = first; part < end; part++) {
                sum += t->host->own_counts[rank * parts + part];
            }
            uint64_t *most = &t->host->agreed[GA_SHARDED_FOR_PAIRS + slice];
            *most = sum > *most ? sum : *most;
        }
    }
}

/* The words of this rank. */
static void fill_words(job *j, ga_status status, const uint64_t *counts)
{
    ga_slabhash_sharded *t = j->table;
    memset(t->host->agreed, 0, sizeof t->host->agreed);
    t->host->agreed[GA_SHARDED_STATUS] = status;
    t->host->agreed[GA_SHARDED_FORM] = j->batch->count ? form_of(j) : 0;
    t->host->agreed[GA_SHARDED_NOT_FORM] = j->batch->count ? ga_sharded_not(form_of(j)) : 0;
    t->host->agreed[GA_SHARDED_RESULTS_WANTED] = j->batch->results || counts;
    t->host->agreed[GA_SHARDED_FOUND_WANTED] = j->batch->found && t->sorted.found;
    t->host->agreed[GA_SHARDED_MORE] = j->batch->count - j->done > j->count;
    t->host->agreed[GA_SHARDED_LARGEST] = j->count;
    if (status == GA_OK) {
        most_for_pairs(j);
    }
}

/* From the words of all ranks: the slices of the piece, and their rounds. A slice of all parts has
 * at most as many requests for a pair as the slices that it consists of. */
static void read_words(job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint32_t most = parts < GA_SHARDED_SLICES ? parts : GA_SHARDED_SLICES;
    uint64_t form = t->host->agreed[GA_SHARDED_FORM]; /* 0: no rank has requests */
    j->op = form ? (ga_slabhash_op)(form >> FORM_OP & 0xff) : j->op;
    j->how = form ? (ga_slabhash_how)(form >> FORM_HOW & 0xff) : j->how;
    j->has_values = needs_values(j);
    j->brings_results = t->host->agreed[GA_SHARDED_RESULTS_WANTED];
    j->brings_found = t->host->agreed[GA_SHARDED_FOUND_WANTED];
    for (j->slices = 1; j->slices < most && t->host->agreed[GA_SHARDED_LARGEST] / (2 * j->slices) >=
                                                t->engine->slice_least;) {
        j->slices *= 2;
    }
    memset(j->rounds, 0, sizeof j->rounds);
    for (uint32_t slice = 0; slice < j->slices; slice++) {
        uint64_t requests = 0;
        for (uint32_t i = 0; i < most / j->slices; i++) {
            requests += t->host->agreed[GA_SHARDED_FOR_PAIRS + slice * (most / j->slices) + i];
        }
        uint64_t rounds = (padded(requests) + t->pair_most - 1) / t->pair_most;
        j->rounds[slice] = rounds ? (uint32_t)rounds : 1;
    }
}

static ga_status check_words(const job *j, ga_status status)
{
    const ga_slabhash_sharded *t = j->table;
    if (status != GA_OK) {
        return status;
    }
    if (t->host->agreed[GA_SHARDED_STATUS]) {
        return ga_fail((ga_status)t->host->agreed[GA_SHARDED_STATUS],
                       "slabhash: rank %u: nothing done, because another rank cannot take part: "
                       "it has the reason",
                       t->exchange.rank);
    }
    return !t->host->agreed[GA_SHARDED_FORM] ||
                   t->host->agreed[GA_SHARDED_FORM] ==
                       ga_sharded_not(t->host->agreed[GA_SHARDED_NOT_FORM])
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: rank %u: operation %d, how=%d: expected the same on all ranks",
                         t->exchange.rank, (int)j->batch->op, (int)j->batch->how);
}

/* ---- own requests ---------------------------------------------------------------------------- */

static ga_sharded_sort sort_of(const job *j)
{
    const ga_slabhash_sharded *t = j->table;
    return (ga_sharded_sort){.division = t->division,
                             .count = j->count,
                             .keys = input(j->batch->keys, j->done, t->width),
                             .values =
                                 j->has_values ? input(j->batch->values, j->done, t->width) : NULL,
                             .keys_to = t->sorted.keys,
                             .values_to = t->sorted.values,
                             .cursors = t->counts,
                             .indices = t->indices,
                             .runs = t->runs,
                             .is_wide = t->width == 8};
}

/* Counts the requests of each bin, on the device and on the host. */
static ga_status count(job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    uint32_t bins = t->division.ranks << t->division.parts_log;
    uint64_t bytes = bins * sizeof *t->counts;
    ga_status status = t->engine->fill(t, t->counts, 0, bytes, j->stream);
    status = status ? status : t->engine->count(t, &sort, j->stream);
    status = status ? status : t->engine->get(t, t->host->own_counts, t->counts, bytes, j->stream);
    return status ? status : t->engine->wait(t, j->stream);
}

/* Where each bin begins in `sorted`: behind the one before, and the first of a message aligned. */
static void find_begins(job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint64_t end = 0;
    for (uint32_t bin = 0; bin < t->division.ranks * parts; bin++) {
        end = bin % (parts / j->slices) ? end : padded(end);
        t->host->begins[bin] = (uint32_t)end;
        end += t->host->own_counts[bin];
    }
}

/* Sorts the requests by bin, and pads the messages. */
static ga_status sort(job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    ga_sharded_pad pad = {.cursors = t->cursors,
                          .counts = t->counts,
                          .keys_to = t->sorted.keys,
                          .ranks = t->division.ranks,
                          .slices = j->slices,
                          .parts_log = t->division.parts_log,
                          .to = GA_SHARDED_PAD,
                          .is_wide = t->width == 8};
    uint64_t bins = (uint64_t)t->division.ranks << t->division.parts_log;
    find_begins(j);
    sort.cursors = t->cursors;
    ga_status status =
        t->engine->put(t, t->cursors, t->host->begins, bins * sizeof *t->cursors, j->stream);
    status = status ? status : t->engine->pad(t, &pad, j->stream); /* while the cursors begin */
    status = status ? status : t->engine->sort(t, &sort, j->stream);
    return status ? status : t->engine->mark(t, GA_SHARDED_SORTED, j->stream);
}

static ga_status gather(job *j)
{
    ga_slabhash_sharded *t = j->table;
    const ga_slabhash_batch *batch = j->batch;
    ga_sharded_gather gather = {
        .count = j->count,
        .indices = t->indices,
        .runs = t->runs,
        .results_from = j->brings_results ? t->sorted.results : NULL,
        .found_from = batch->found ? t->sorted.found : NULL,
        .results = batch->results ? batch->results + j->done : NULL,
        .found = batch->found && t->sorted.found ? element(batch->found, j->done, t->width) : NULL,
        .totals = t->totals,
        .bins = t->division.ranks << t->division.parts_log,
        .is_wide = t->width == 8};
    ga_status status = t->engine->fill(t, t->totals, 0, sizeof j->totals, j->stream);
    status = status ? status : t->engine->gather(t, &gather, j->stream);
    if (status == GA_OK && batch->found && !t->sorted.found) { /* sets */
        status = t->engine->fill(t, element(batch->found, j->done, t->width), 0,
                                 j->count * t->width, j->stream);
    }
    return status;
}

static bool brings_answers(const job *j)
{
    return j->brings_results || j->brings_found;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The part of a range that goes in a round. */
static range round_of(const job *j, uint64_t first, uint64_t count, uint32_t round)
{
    uint64_t most = j->table->pair_most;
    uint64_t before = round * most < count ? round * most : count;
    uint64_t left = count - before;
    return (range){first + before, left < most ? left : most};
}

/* The requests of the bins of a slice. */
static uint64_t sum_of_slice(const job *j, const uint32_t *counts, uint32_t slice)
{
    uint32_t end = ga_sharded_first_part(j->table, slice + 1, j->slices);
    uint64_t sum = 0;
    for (uint32_t part = ga_sharded_first_part(j->table, slice, j->slices); part < end; part++) {
        sum += counts[part];
    }
    return sum;
}

/* Requests of this rank for one in a slice, in `sorted`, without the pad. */
static range own_for(const job *j, uint32_t slice, uint32_t rank)
{
    const ga_slabhash_sharded *t = j->table;
    uint32_t bin = rank << t->division.parts_log;
    return (range){t->host->begins[bin + ga_sharded_first_part(t, slice, j->slices)],
                   sum_of_slice(j, t->host->own_counts + bin, slice)};
}

/* The message for another rank in a step, in `sorted`. */
static range sent_to(const job *j, step s, uint32_t rank)
{
    range own = own_for(j, s.slice, rank);
    return round_of(j, own.first, padded(own.count), s.round);
}

/* The message of another rank in a step, in `received`: behind those of lower ranks. */
static range received_from(const job *j, step s, uint32_t rank, uint64_t first)
{
    const ga_slabhash_sharded *t = j->table;
    const uint32_t *counts = t->host->other_counts + ((uint64_t)rank << t->division.parts_log);
    return (range){first, round_of(j, 0, padded(sum_of_slice(j, counts, s.slice)), s.round).count};
}

/* A message, or the room for one. */
static ga_status carry_one(job *j, void *array, range r, uint32_t width, uint32_t rank, bool sends)
{
    const ga_exchange *exchange = &j->table->exchange;
    void *at = element(array, r.first, width);
    uint64_t bytes = r.count * width;
    if (sends) {
        j->table->report.sent += bytes;
        return exchange->send(exchange->context, at, bytes, rank, j->table->exchange_stream);
    }
    j->table->report.received += bytes;
    return exchange->receive(exchange->context, at, bytes, rank, j->table->exchange_stream);
}

static ga_status carry_requests(job *j, const ga_sharded_arrays *arrays, range r, uint32_t rank,
                                bool sends)
{
    ga_status status = carry_one(j, arrays->keys, r, j->table->width, rank, sends);
    return status || !j->has_values ? status
                                    : carry_one(j, arrays->values, r, j->table->width, rank, sends);
}

static ga_status carry_answers(job *j, const ga_sharded_arrays *arrays, range r, uint32_t rank,
                               bool sends)
{
    ga_status status = j->brings_results ? carry_one(j, arrays->results, r, 1, rank, sends) : GA_OK;
    return status || !j->brings_found
               ? status
               : carry_one(j, arrays->found, r, j->table->width, rank, sends);
}

/* X or A of a step, as part of a group: its requests, or its answers, which go the other way. */
static ga_status add_messages(job *j, const step *s, bool answers)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t behind = 0;
    ga_status status = GA_OK;
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        if (rank == t->exchange.rank) {
            continue;
        }
        range out = sent_to(j, *s, rank);
        range in = received_from(j, *s, rank, behind);
        behind += in.count;
        if (out.count) {
            status = answers ? carry_answers(j, &t->sorted, out, rank, false)
                             : carry_requests(j, &t->sorted, out, rank, true);
        }
        if (status == GA_OK && in.count) {
            status = answers ? carry_answers(j, &t->received[s->buffer], in, rank, true)
                             : carry_requests(j, &t->received[s->buffer], in, rank, false);
        }
    }
    return status;
}

/* One group: the answers of a step, and the requests of a later one, each of which may be NULL. */
static ga_status exchange_steps(job *j, const step *answers, const step *requests)
{
    ga_slabhash_sharded *t = j->table;
    const ga_exchange *exchange = &t->exchange;
    ga_status status = exchange->begin(exchange->context);
    status = status || !answers || !brings_answers(j) ? status : add_messages(j, answers, true);
    status = status || !requests ? status : add_messages(j, requests, false);
    status = status ? status : exchange->end(exchange->context, t->exchange_stream);
    status = status || !requests
                 ? status
                 : t->engine->mark(t, GA_SHARDED_GOT + requests->buffer, t->exchange_stream);
    return ga_sharded_break(t, status);
}

/* The shard serves a range of requests. If it fails, the ranks that asked learn FULL: nothing done.
 */
static void serve(job *j, const ga_sharded_arrays *arrays, range r)
{
    ga_slabhash_sharded *t = j->table;
    ga_slabhash_batch batch = {.count = r.count,
                               .keys = element(arrays->keys, r.first, t->width),
                               .op = j->op,
                               .how = j->how};
    if (!r.count) {
        return;
    }
    batch.values = j->has_values ? element(arrays->values, r.first, t->width) : NULL;
    batch.results = j->brings_results ? arrays->results + r.first : NULL;
    batch.found = j->brings_found ? element(arrays->found, r.first, t->width) : NULL;
    ga_status status = j->local;
    status = status ? status : t->shard.run(t->shard.table, &batch, j->stream);
    if (status != GA_OK && batch.results) {
        (void)t->engine->fill(t, batch.results, GA_SLABHASH_FULL, r.count, j->stream);
    }
    if (status != GA_OK && batch.found) {
        (void)t->engine->fill(t, batch.found, 0, r.count * t->width, j->stream);
    }
    j->local = status;
}

/* L: others' requests of the step. With the first round of a slice also this rank's own: while
 * requests travel, or answers. */
static ga_status serve_step(job *j, const step *s)
{
    ga_slabhash_sharded *t = j->table;
    range others = {0, 0};
    bool is_first = s->slice == 0 && s->round == 0;
    for (uint32_t rank = 0; rank < t->exchange.ranks; rank++) {
        if (rank != t->exchange.rank) {
            others.count += received_from(j, *s, rank, 0).count;
        }
    }
    if (is_first) {
        serve(j, &t->sorted, own_for(j, s->slice, t->exchange.rank));
    }
    ga_status status = t->engine->follow(t, GA_SHARDED_GOT + s->buffer, j->stream);
    if (status == GA_OK &&
        t->shard.waits) { /* it would wait for other ranks without a time limit */
        status = t->exchange.wait(t->exchange.context, t->exchange_stream);
    }
    if (status == GA_OK) {
        serve(j, &t->received[s->buffer], others);
        status = t->engine->mark(t, GA_SHARDED_DONE + s->buffer, j->stream);
    }
    if (status == GA_OK && s->round == 0 && !is_first) {
        serve(j, &t->sorted, own_for(j, s->slice, t->exchange.rank));
    }
    return status;
}

/* The step after `s`. False: there is none. */
static bool next_step(const job *j, const step *s, step *next)
{
    *next = (step){s->slice, s->round + 1, (s->buffer + 1) % GA_SHARDED_BUFFERS};
    if (next->round == j->rounds[s->slice]) {
        next->slice++;
        next->round = 0;
    }
    return next->slice < j->slices;
}

/* All steps, in the order that sharded.h has. */
static ga_status run_steps(job *j)
{
    ga_slabhash_sharded *t = j->table;
    step now = {0, 0, 0};
    step next, later;
    bool has_next = next_step(j, &now, &next);
    bool goes_on = true;
    ga_status status = t->engine->follow(t, GA_SHARDED_SORTED, t->exchange_stream);
    status = status ? status : exchange_steps(j, NULL, &now);
    status = status || !has_next ? status : exchange_steps(j, NULL, &next);
    while (status == GA_OK && goes_on) {
        bool has_later = has_next && next_step(j, &next, &later);
        status = serve_step(j, &now);
        status = status ? status
                        : t->engine->follow(t, GA_SHARDED_DONE + now.buffer, t->exchange_stream);
        status = status ? status : exchange_steps(j, &now, has_later ? &later : NULL);
        goes_on = has_next;
        now = next;
        next = later;
        has_next = has_later;
        t->report.steps++;
    }
    return status ? status : t->engine->mark(t, GA_SHARDED_ANSWERED, t->exchange_stream);
}

/* ---- a piece --------------------------------------------------------------------------------- */

/* Whether the shards of all ranks have done their work is agreed while this rank gathers. */
static ga_status enqueue_end(job *j)
{
    ga_slabhash_sharded *t = j->table;
    memset(t->host->agreed, 0, sizeof t->host->agreed);
    t->host->agreed[GA_SHARDED_STATUS] = j->local;
    ga_status status = ga_sharded_agree_later(t);
    status = status ? status : t->engine->mark(t, GA_SHARDED_AGREED, t->exchange_stream);
    status = status ? status : t->engine->follow(t, GA_SHARDED_ANSWERED, j->stream);
    status = status || !brings_answers(j) ? status : gather(j);
    if (status == GA_OK && j->brings_results) {
        status = t->engine->get(t, t->host->totals, t->totals, sizeof t->host->totals, j->stream);
    }
    return status ? status : t->engine->follow(t, GA_SHARDED_AGREED, j->stream);
}

static ga_status finish_piece(job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_status status = enqueue_end(j);
    status = status ? status : t->exchange.wait(t->exchange.context, j->stream);
    for (int i = 0; status == GA_OK && j->brings_results && i < GA_SHARDED_RESULTS; i++) {
        j->totals[i] += t->host->totals[i];
    }
    return ga_sharded_break(t, status) ? status : ga_sharded_agreed(t, j->local);
}

/* Of all ranks for this rank's shard. */
static uint64_t requests_here(const job *j)
{
    const ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < t->division.ranks; rank++) {
        const uint32_t *counts =
            rank == t->exchange.rank ? t->host->own_counts : t->host->other_counts;
        for (uint32_t part = 0; part < parts; part++) {
            sum += counts[rank * parts + part];
        }
    }
    return sum;
}

/* `*more`: whether a rank has another piece. */
static ga_status run_piece(job *j, ga_status status, const uint64_t *counts, bool *more)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t left = j->batch->count - j->done;
    *more = false;
    j->count = status ? 0 : left < t->piece ? left : t->piece;
    status = status ? status : ga_sharded_reserve(t, j->count);
    status = status ? status : count(j);
    fill_words(j, status, counts);
    ga_status agreed = ga_sharded_agree(t, true);
    status = agreed ? agreed : check_words(j, status);
    if (status != GA_OK) {
        return status;
    }
    *more = t->host->agreed[GA_SHARDED_MORE];
    read_words(j);
    t->report.served += requests_here(j);
    status = sort(j);
    status = status ? status : run_steps(j);
    status = status ? ga_sharded_break(t, status) : finish_piece(j);
    t->report.pieces++;
    j->done += j->count;
    return status;
}

static ga_status run(job *j, const uint64_t *counts)
{
    ga_slabhash_sharded *t = j->table;
    bool more = true;
    ga_status status = check_batch(j);
    t->report = (ga_sharded_report){.requests = j->batch->count};
    while (more) {
        status = run_piece(j, status, counts, &more);
        more = more && status == GA_OK;
    }
    return status;
}

ga_status ga_slabhash_sharded_run(ga_slabhash_sharded *table, const ga_slabhash_batch *batch,
                                  uint64_t *counts, void *stream)
{
    static const ga_slabhash_batch none = {0};
    ga_cuda_scope scope;
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    job j = {.table = table, .batch = batch ? batch : &none, .stream = stream};
    j.op = j.batch->op;
    j.how = j.batch->how;
    status = run(&j, counts);
    if (table->is_broken) { /* work that uses the caller's arrays; none waits for other ranks now */
        (void)table->engine->wait(table, table->exchange_stream);
        (void)table->engine->wait(table, stream);
    }
    if (counts) {
        memcpy(counts, j.totals, sizeof j.totals);
    }
    table->engine->leave(&scope);
    return status;
}
