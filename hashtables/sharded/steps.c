/* SPDX-License-Identifier: MIT
 *
 * The steps of a piece: requests travel, are served, and answers travel back. sharded.h has their
 * order.
 */
#include "job.h"

/* A slice, or a round of one. */
typedef struct step {
    uint32_t slice, round;
    uint32_t buffer;
} step;

/* A range of requests in one of the arrays. */
typedef struct range {
    uint64_t first, count;
} range;

/* Requests of this rank for each part of a rank's shard, and requests of a rank for each part of
 * this one's. */
static const uint32_t *counts_for(const ga_sharded_job *j, uint32_t rank)
{
    return j->table->host->own_counts + ((uint64_t)rank << j->table->division.parts_log);
}

static const uint32_t *counts_from(const ga_sharded_job *j, uint32_t rank)
{
    return j->table->host->other_counts + ((uint64_t)rank << j->table->division.parts_log);
}

/* The requests of a slice with their pads, from the counts of the parts. */
static uint64_t sum_of_slice(const ga_sharded_job *j, const uint32_t *counts, uint32_t slice)
{
    uint32_t end = ga_sharded_first_part(j->table, slice + 1, j->slices);
    uint64_t sum = 0;
    for (uint32_t part = ga_sharded_first_part(j->table, slice, j->slices); part < end; part++) {
        sum += ga_sharded_padded(counts[part]);
    }
    return sum;
}

/* The requests of a step, numbered within its slice. */
static range in_round(const ga_sharded_job *j, const step *s, const uint32_t *counts)
{
    uint64_t count = sum_of_slice(j, counts, s->slice);
    uint64_t first = s->round * j->table->pair_most;
    uint64_t left = first < count ? count - first : 0;
    return (range){first, left < j->table->pair_most ? left : j->table->pair_most};
}

/* Requests of this rank for one in a slice, in `sorted`. */
static range own_for(const ga_sharded_job *j, uint32_t slice, uint32_t rank)
{
    const ga_slabhash_sharded *t = j->table;
    uint32_t first = ga_sharded_first_part(t, slice, j->slices);
    return (range){t->host->begins[(rank << t->division.parts_log) + first],
                   sum_of_slice(j, counts_for(j, rank), slice)};
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message, or the room for one. */
static ga_status carry_one(ga_sharded_job *j, void *array, range r, uint32_t width, uint32_t rank,
                           bool sends)
{
    const ga_exchange *exchange = &j->table->exchange;
    void *at = ga_sharded_element(array, r.first, width);
    uint64_t bytes = r.count * width;
    if (sends) {
        j->table->report.sent += bytes;
        return exchange->send(exchange->context, at, bytes, rank, j->table->exchange_stream);
    }
    j->table->report.received += bytes;
    return exchange->receive(exchange->context, at, bytes, rank, j->table->exchange_stream);
}

static ga_status carry_requests(ga_sharded_job *j, const ga_sharded_arrays *arrays, range r,
                                uint32_t rank, bool sends)
{
    uint32_t width = j->table->width;
    ga_status status = carry_one(j, arrays->keys, r, width, rank, sends);
    status =
        status || !j->has_values ? status : carry_one(j, arrays->values, r, width, rank, sends);
    return status || !j->has_ops ? status : carry_one(j, arrays->ops, r, 1, rank, sends);
}

static ga_status carry_answers(ga_sharded_job *j, const ga_sharded_arrays *arrays, range r,
                               uint32_t rank, bool sends)
{
    ga_status status = j->brings_results ? carry_one(j, arrays->results, r, 1, rank, sends) : GA_OK;
    return status || !j->brings_found
               ? status
               : carry_one(j, arrays->found, r, j->table->width, rank, sends);
}

/* Requests or answers of a step, as part of a group. */
static ga_status add_messages(ga_sharded_job *j, const step *s, bool answers)
{
    ga_slabhash_sharded *t = j->table;
    range in = {0, 0}; /* in `received`, behind those of lower ranks */
    ga_status status = GA_OK;
    for (uint32_t rank = 0; status == GA_OK && rank < t->exchange.ranks; rank++) {
        if (rank == t->exchange.rank) {
            continue;
        }
        range out = in_round(j, s, counts_for(j, rank));
        out.first += own_for(j, s->slice, rank).first;
        in.first += in.count;
        in.count = in_round(j, s, counts_from(j, rank)).count;
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
static ga_status exchange_steps(ga_sharded_job *j, const step *answers, const step *requests)
{
    ga_slabhash_sharded *t = j->table;
    const ga_exchange *exchange = &t->exchange;
    ga_status status = exchange->begin(exchange->context);
    status = status || !answers || !ga_sharded_brings_answers(j) ? status
                                                                 : add_messages(j, answers, true);
    status = status || !requests ? status : add_messages(j, requests, false);
    status = status ? status : exchange->end(exchange->context, t->exchange_stream);
    status = status || !requests
                 ? status
                 : t->engine->mark(t, GA_SHARDED_GOT + requests->buffer, t->exchange_stream);
    return ga_sharded_break(t, status);
}

/* ---- serving --------------------------------------------------------------------------------- */

static bool may_need_slabs(const ga_sharded_job *j)
{
    return j->has_ops || j->op != GA_SLABHASH_SEARCH;
}

static ga_slabhash_batch batch_of(const ga_sharded_job *j, const ga_sharded_arrays *arrays, range r)
{
    uint32_t width = j->table->width;
    return (ga_slabhash_batch){
        .count = r.count,
        .keys = ga_sharded_element(arrays->keys, r.first, width),
        .values = j->has_values ? ga_sharded_element(arrays->values, r.first, width) : NULL,
        .ops = j->has_ops ? arrays->ops + r.first : NULL,
        .results = j->brings_results ? arrays->results + r.first : NULL,
        .found = j->brings_found ? ga_sharded_element(arrays->found, r.first, width) : NULL,
        .op = j->op,
        .how = j->how};
}

/* The shard has failed: the rank that asked gets FULL, and a status that says more. */
static void refuse(ga_sharded_job *j, const ga_slabhash_batch *batch)
{
    ga_slabhash_sharded *t = j->table;
    if (batch->results) {
        (void)t->engine->fill(t, batch->results, GA_SLABHASH_FULL, batch->count, j->stream);
    }
    if (batch->found) {
        (void)t->engine->fill(t, batch->found, 0, batch->count * t->width, j->stream);
    }
}

/* The shard serves batches, of which each is in the order of parts. */
static void serve(ga_sharded_job *j, const ga_slabhash_batch *batches, uint32_t count)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t *counts = may_need_slabs(j) ? t->served : NULL;
    if (count && j->local == GA_OK) {
        ga_sharded_guard(t, true);
        j->local = t->shard.run(t->shard.table, batches, count, counts, j->stream);
        ga_sharded_guard(t, false);
    }
    for (uint32_t i = 0; j->local != GA_OK && i < count; i++) {
        refuse(j, batches + i);
    }
}

static void serve_own(ga_sharded_job *j, uint32_t slice)
{
    range own = own_for(j, slice, j->table->exchange.rank);
    ga_slabhash_batch batch = batch_of(j, &j->table->sorted, own);
    serve(j, &batch, own.count ? 1 : 0);
}

static void serve_others(ga_sharded_job *j, const step *s)
{
    ga_slabhash_batch batches[GA_SHARDED_TOGETHER];
    range in = {0, 0};
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < j->table->exchange.ranks; rank++) {
        if (rank == j->table->exchange.rank) {
            continue;
        }
        in.first += in.count;
        in.count = in_round(j, s, counts_from(j, rank)).count;
        if (in.count) {
            batches[count++] = batch_of(j, &j->table->received[s->buffer], in);
        }
        if (count == GA_SHARDED_TOGETHER) {
            serve(j, batches, count);
            count = 0;
        }
    }
    serve(j, batches, count);
}

/* Own requests keep the shard busy while messages travel. Those of a slice are served before the
 * messages of the slice before it, so that the first messages have time to arrive. Those of the
 * last slice are served at the end, while the last answers travel. */
static void serve_own_before(ga_sharded_job *j, const step *s)
{
    if (s->slice == 0 && s->round == 0) {
        serve_own(j, 0);
    }
    if (s->round == 0 && s->slice + 2 < j->slices) {
        serve_own(j, s->slice + 1);
    }
}

static ga_status serve_own_at_end(ga_sharded_job *j)
{
    if (j->slices > 1) {
        serve_own(j, j->slices - 1);
    }
    return j->table->engine->mark(j->table, GA_SHARDED_SERVED, j->stream);
}

static ga_status serve_step(ga_sharded_job *j, const step *s)
{
    ga_slabhash_sharded *t = j->table;
    serve_own_before(j, s);
    ga_status status = t->engine->follow(t, GA_SHARDED_GOT + s->buffer, t->arrivals);
    status = status ? status : t->exchange.wait(t->exchange.context, t->arrivals);
    if (status != GA_OK) {
        return status;
    }
    serve_others(j, s);
    return t->engine->mark(t, GA_SHARDED_DONE + s->buffer, j->stream);
}

/* The step after `s`. False: there is none. */
static bool next_step(const ga_sharded_job *j, const step *s, step *next)
{
    *next = (step){s->slice, s->round + 1, (s->buffer + 1) % GA_SHARDED_BUFFERS};
    if (next->round == j->rounds[s->slice]) {
        next->slice++;
        next->round = 0;
    }
    return next->slice < j->slices;
}

ga_status ga_sharded_run_steps(ga_sharded_job *j)
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
    status = status ? status : serve_own_at_end(j);
    return status ? status : t->engine->mark(t, GA_SHARDED_ANSWERED, t->exchange_stream);
}
