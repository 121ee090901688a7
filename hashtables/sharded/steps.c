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

static bool is_first(const step *s)
{
    return s->slice == 0 && s->round == 0;
}

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

enum {
    COLUMNS_MOST = 3
};

/* Arrays of a message: of own requests, and of those of others. */
typedef struct column {
    void *own, *here;
    uint32_t width;
} column;

static uint32_t columns_of(const ga_sharded_job *j, const step *s, bool answers, column *columns)
{
    const ga_sharded_arrays *own = &j->table->sorted;
    const ga_sharded_arrays *here = &j->table->received[s->buffer];
    uint32_t width = j->table->width;
    uint32_t count = 0;
    if (answers && j->brings_results) {
        columns[count++] = (column){own->results, here->results, 1};
    }
    if (answers && j->brings_found) {
        columns[count++] = (column){own->found, here->found, width};
    }
    if (!answers) {
        columns[count++] = (column){own->keys, here->keys, width};
    }
    if (!answers && j->has_values) {
        columns[count++] = (column){own->values, here->values, width};
    }
    if (!answers && j->has_ops) {
        columns[count++] = (column){own->ops, here->ops, 1};
    }
    return count;
}

/* The place of requests of rank `from` in the memory of rank `at`. */
static uint64_t place_of(const ga_slabhash_sharded *t, uint32_t from, uint32_t at)
{
    return (from - (from > at)) * t->pair_most;
}

/* Requests of a step from a rank, in `received`. */
static range here_from(const ga_sharded_job *j, const step *s, uint32_t rank)
{
    const ga_slabhash_sharded *t = j->table;
    return (range){place_of(t, rank, t->exchange.rank), in_round(j, s, counts_from(j, rank)).count};
}

/* Requests of a step for a rank, in `sorted`. */
static range own_in_round(const ga_sharded_job *j, const step *s, uint32_t rank)
{
    range own = in_round(j, s, counts_for(j, rank));
    own.first += own_for(j, s->slice, rank).first;
    return own;
}

/* Own requests are copied to the rank, or answers from it. It copies its own. */
static ga_status copy(ga_sharded_job *j, const column *c, range own, uint32_t rank, bool answers)
{
    const ga_slabhash_sharded *t = j->table;
    const ga_exchange *exchange = &t->exchange;
    void *at = ga_sharded_element(c->own, own.first, c->width);
    void *there = ga_sharded_element(c->here, place_of(t, exchange->rank, rank), c->width);
    uint64_t bytes = own.count * c->width;
    return !bytes ? GA_OK
           : answers
               ? exchange->fetch(exchange->context, at, there, bytes, rank, t->exchange_stream)
               : exchange->put(exchange->context, at, there, bytes, rank, t->exchange_stream);
}

static ga_status send_and_receive(ga_sharded_job *j, const column *c, range own, range here,
                                  uint32_t rank, bool answers)
{
    const ga_slabhash_sharded *t = j->table;
    const ga_exchange *exchange = &t->exchange;
    void *at = ga_sharded_element(c->own, own.first, c->width);
    void *at_here = ga_sharded_element(c->here, here.first, c->width);
    uint64_t sent = (answers ? here : own).count * c->width;
    uint64_t received = (answers ? own : here).count * c->width;
    ga_status status = sent ? exchange->send(exchange->context, answers ? at_here : at, sent, rank,
                                             t->exchange_stream)
                            : GA_OK;
    return status || !received ? status
                               : exchange->receive(exchange->context, answers ? at : at_here,
                                                   received, rank, t->exchange_stream);
}

/* Requests or answers of a step, as part of a group. Each rank begins with the next one, so that
 * copies to one rank do not meet. */
static ga_status add_messages(ga_sharded_job *j, const step *s, bool answers)
{
    ga_slabhash_sharded *t = j->table;
    column columns[COLUMNS_MOST];
    uint32_t count = columns_of(j, s, answers, columns);
    ga_status status = GA_OK;
    for (uint32_t next = 1; next < t->exchange.ranks; next++) {
        uint32_t rank = (t->exchange.rank + next) % t->exchange.ranks;
        range own = own_in_round(j, s, rank);
        range here = here_from(j, s, rank);
        for (uint32_t i = 0; status == GA_OK && i < count; i++) {
            t->report.sent += (answers ? here : own).count * columns[i].width;
            t->report.received += (answers ? own : here).count * columns[i].width;
            status = t->is_shared ? copy(j, columns + i, own, rank, answers)
                                  : send_and_receive(j, columns + i, own, here, rank, answers);
        }
    }
    return status;
}

static bool may_need_slabs(const ga_sharded_job *j)
{
    return j->has_ops || j->op != GA_SLABHASH_SEARCH;
}

/* The messages or copies of a group: the answers of a step, and the requests of a later one, each
 * of which may be NULL. */
static ga_status carry(ga_sharded_job *j, const step *answers, const step *requests)
{
    bool brings = answers && ga_sharded_brings_answers(j);
    ga_status status = brings ? add_messages(j, answers, true) : GA_OK;
    return status || !requests ? status : add_messages(j, requests, false);
}

/* The requests of a step are here, as soon as the work on the exchange stream is done. */
static ga_status mark_got(ga_slabhash_sharded *t, const step *s)
{
    return t->engine->mark(t, GA_SHARDED_GOT + s->buffer, t->exchange_stream);
}

/* Messages, as one group. */
static ga_status exchange_messages(ga_sharded_job *j, const step *answers, const step *requests)
{
    ga_slabhash_sharded *t = j->table;
    const ga_exchange *exchange = &t->exchange;
    ga_status status = exchange->begin(exchange->context);
    status = status ? status : carry(j, answers, requests);
    status = status ? status : exchange->end(exchange->context, t->exchange_stream);
    status = status || !requests ? status : mark_got(t, requests);
    return ga_sharded_break(t, status);
}

static ga_status meet(const ga_slabhash_sharded *t)
{
    return t->exchange.meet(t->exchange.context, t->exchange_stream);
}

/* Requests of one of the first steps. Copies overwrite nothing that a shard still reads, and are
 * there once all ranks have copied. */
static ga_status bring_first(ga_sharded_job *j, const step *requests)
{
    ga_slabhash_sharded *t = j->table;
    if (!t->is_shared) {
        return exchange_messages(j, NULL, requests);
    }
    ga_status status = carry(j, NULL, requests);
    status = status ? status : meet(t);
    return ga_sharded_break(t, status ? status : mark_got(t, requests));
}

/* The host waits for the last meeting: behind it all shards have done the step before, whose buffer
 * is the next one to be copied to. */
static ga_status await_buffer(ga_slabhash_sharded *t)
{
    ga_status status = t->engine->follow(t, GA_SHARDED_MET, t->arrivals);
    return status ? status : t->exchange.wait(t->exchange.context, t->arrivals);
}

/* Copies behind step `now`: its answers, and the requests of `later`. `copied`: the step whose
 * requests the group before has copied. `later` and `copied` may be NULL. */
static ga_status exchange_copies(ga_sharded_job *j, const step *now, const step *copied,
                                 const step *later)
{
    ga_slabhash_sharded *t = j->table;
    if (!copied && !later && !ga_sharded_brings_answers(j)) {
        return GA_OK;
    }
    /* Behind the first step the buffer is a fresh one: none before has used it. */
    ga_status status = later && !is_first(now) ? await_buffer(t) : GA_OK;
    status =
        status ? status : t->engine->follow(t, GA_SHARDED_DONE + now->buffer, t->exchange_stream);
    status = status ? status : meet(t);
    status = status ? status : t->engine->mark(t, GA_SHARDED_MET, t->exchange_stream);
    status = status || !copied ? status : mark_got(t, copied);
    return ga_sharded_break(t, status ? status : carry(j, now, later));
}

/* ---- serving --------------------------------------------------------------------------------- */

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

static ga_slabhash_batch own_batch(const ga_sharded_job *j, uint32_t slice)
{
    return batch_of(j, &j->table->sorted, own_for(j, slice, j->table->exchange.rank));
}

static void serve_own(ga_sharded_job *j, uint32_t slice)
{
    ga_slabhash_batch batch = own_batch(j, slice);
    serve(j, &batch, batch.count ? 1 : 0);
}

/* Own requests keep the shard busy while messages travel: those of the first slices before the
 * first messages have arrived, those of the last slice while the last answers travel. Kernels of
 * NCCL need more time than copies: then those of each slice are served before the messages of the
 * slice before it. Copies need less than the shard: then they are served beside the messages of
 * their slice, whose buckets are read once for all. */
static bool is_served_beside(const ga_sharded_job *j, uint32_t slice)
{
    return j->table->is_shared && slice > 1 && slice + 1 < j->slices;
}

static void serve_others(ga_sharded_job *j, const step *s)
{
    ga_slabhash_batch batches[GA_SHARDED_TOGETHER];
    uint32_t count = 0;
    if (s->round == 0 && is_served_beside(j, s->slice)) {
        batches[count] = own_batch(j, s->slice);
        count += batches[count].count != 0;
    }
    for (uint32_t rank = 0; rank < j->table->exchange.ranks; rank++) {
        if (rank == j->table->exchange.rank) {
            continue;
        }
        range here = here_from(j, s, rank);
        if (here.count) {
            batches[count++] = batch_of(j, &j->table->received[s->buffer], here);
        }
        if (count == GA_SHARDED_TOGETHER) {
            serve(j, batches, count);
            count = 0;
        }
    }
    serve(j, batches, count);
}

static void serve_own_before(ga_sharded_job *j, const step *s)
{
    if (is_first(s)) {
        serve_own(j, 0);
    }
    if (s->round == 0 && s->slice + 2 < j->slices && !is_served_beside(j, s->slice + 1)) {
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
    if (!is_first(s)) {
        serve_own_before(j, s);
    }
    ga_status status = t->engine->follow(t, GA_SHARDED_GOT + s->buffer, t->arrivals);
    status = status ? status : t->exchange.wait(t->exchange.context, t->arrivals);
    if (status != GA_OK) {
        return status;
    }
    serve_others(j, s);
    return t->engine->mark(t, GA_SHARDED_DONE + s->buffer, j->stream);
}

enum {
    /* Behind step t requests of t + 2 are the newest ones that are here, and those of t + 3 are
     * copied. So the first groups are those of steps 0 to 2. */
    STEPS_AHEAD = GA_SHARDED_BUFFERS - 2
};

/* The steps whose requests are under way, or here. The first one is served now; a fourth one takes
 * the buffer of the step before the first. */
typedef struct queue {
    step steps[GA_SHARDED_BUFFERS];
    uint32_t count;
} queue;

/* Appends the step behind the last one, if there is one. */
static void append_next(const ga_sharded_job *j, queue *q)
{
    const step *last = &q->steps[q->count - 1];
    step next = {last->slice, last->round + 1, (last->buffer + 1) % GA_SHARDED_BUFFERS};
    if (next.round == j->rounds[last->slice]) {
        next.slice++;
        next.round = 0;
    }
    if (next.slice < j->slices) {
        q->steps[q->count++] = next;
    }
}

static void drop_first(queue *q)
{
    q->count--;
    for (uint32_t i = 0; i < q->count; i++) {
        q->steps[i] = q->steps[i + 1];
    }
}

/* The group behind the first step of the queue, with the requests of `later`. */
static ga_status exchange_behind(ga_sharded_job *j, const queue *q, const step *later)
{
    ga_slabhash_sharded *t = j->table;
    const step *now = &q->steps[0];
    const step *copied = !is_first(now) && q->count > STEPS_AHEAD ? &q->steps[STEPS_AHEAD] : NULL;
    if (t->is_shared) {
        return exchange_copies(j, now, copied, later);
    }
    ga_status status = t->engine->follow(t, GA_SHARDED_DONE + now->buffer, t->exchange_stream);
    return status ? status : exchange_messages(j, now, later);
}

/* The shard begins with own requests, so that it works while the host enqueues the first ones for
 * others. (A call of a shard that grows waits, and these are enqueued after it.) */
static ga_status begin_steps(ga_sharded_job *j, queue *q)
{
    ga_status status =
        j->table->engine->follow(j->table, GA_SHARDED_SORTED, j->table->exchange_stream);
    if (status == GA_OK) {
        serve_own_before(j, q->steps);
    }
    for (uint32_t i = 0; i < STEPS_AHEAD; i++) {
        append_next(j, q);
    }
    for (uint32_t i = 0; status == GA_OK && i < q->count; i++) {
        status = bring_first(j, q->steps + i);
    }
    return status;
}

ga_status ga_sharded_run_steps(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    queue q = {.count = 1};
    ga_status status = begin_steps(j, &q);
    while (status == GA_OK && q.count) {
        uint32_t before = q.count;
        append_next(j, &q);
        const step *later = q.count > before ? q.steps + before : NULL;
        status = serve_step(j, q.steps);
        status = status ? status : exchange_behind(j, &q, later);
        drop_first(&q);
        t->report.steps++;
    }
    status = status ? status : serve_own_at_end(j);
    return status ? status : t->engine->mark(t, GA_SHARDED_ANSWERED, t->exchange_stream);
}
