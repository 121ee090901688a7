/* SPDX-License-Identifier: MIT
 *
 * A batch over all shards: agreements, sorts and gathers; steps.c has the steps. sharded.h has the
 * order of all.
 */
#include "job.h"

#include "platform/cuda_driver.h"

#include <string.h>

enum {
    SKIPS_LOG = 6 /* at most; see learn() */
};

enum {
    SKEWED_TIMES = 2, /* as many requests as in a bin on average, */
    SKEWED_LEAST = 128
};

enum {                /* of a form */
    FORM_OF_RUN = 1,  /* not set by all.c */
    FORM_HAS_OPS = 1, /* bits */
    FORM_HAS_VALUES = 2,
    FORM_OP = 8,
    FORM_HOW = 16
};

static const char *input(const void *array, uint64_t index, uint32_t width)
{
    return array ? (const char *)array + index * width : NULL;
}

/* ---- what all ranks agree on ----------------------------------------------------------------- */

static bool needs_values(const ga_sharded_job *j)
{
    const ga_slabhash_batch *batch = j->batch;
    bool changes = batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE;
    return j->table->shard.mode != GA_SLABHASH_SET32 && (batch->ops || changes);
}

/* The shard refuses requests one by one if they have operations of their own. */
static bool is_supported(const ga_sharded_job *j)
{
    bool replaces = j->batch->op == GA_SLABHASH_REPLACE || j->batch->op == GA_SLABHASH_APPLY;
    return j->batch->ops ||
           (!(replaces && j->table->shard.is_multi) &&
            !(j->batch->op == GA_SLABHASH_APPLY && j->table->shard.mode == GA_SLABHASH_SET32));
}

static ga_status check_batch(const ga_sharded_job *j)
{
    const ga_slabhash_batch *batch = j->batch;
    if ((unsigned)batch->op >= GA_SLABHASH_OP_COUNT ||
        (unsigned)batch->how >= GA_SLABHASH_HOW_COUNT) {
        return ga_fail(
            GA_ERR_ARGUMENT, "slabhash: operation %d, how=%d: expected 0 to %d, and 0 to %d",
            (int)batch->op, (int)batch->how, GA_SLABHASH_OP_COUNT - 1, GA_SLABHASH_HOW_COUNT - 1);
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
static uint64_t form_of(const ga_sharded_job *j)
{
    const ga_slabhash_batch *batch = j->batch;
    return FORM_OF_RUN | (uint64_t)(batch->ops != NULL) << FORM_HAS_OPS |
           (uint64_t)needs_values(j) << FORM_HAS_VALUES | (uint64_t)batch->op << FORM_OP |
           (uint64_t)batch->how << FORM_HOW;
}

static void most_for_pairs(ga_sharded_job *j)
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
                sum += ga_sharded_padded(t->host->own_counts[rank * parts + part]);
            }
            uint64_t *most = &t->host->agreed[GA_SHARDED_FOR_PAIRS + slice];
            *most = sum > *most ? sum : *most;
        }
    }
}

/* The words of this rank. */
static void fill_words(ga_sharded_job *j, ga_status status, const uint64_t *counts)
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
    t->host->agreed[GA_SHARDED_NOT_ALL] = 1;
    if (status == GA_OK) {
        most_for_pairs(j);
    }
}

/* From the words of all ranks: the slices of the piece, and their rounds. A slice of all parts has
 * at most as many requests for a pair as the slices that it consists of. */
static void read_words(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint32_t most = parts < GA_SHARDED_SLICES ? parts : GA_SHARDED_SLICES;
    uint64_t form = t->host->agreed[GA_SHARDED_FORM]; /* 0: no rank has requests */
    j->op = form ? (ga_slabhash_op)(form >> FORM_OP & 0xff) : j->op;
    j->how = form ? (ga_slabhash_how)(form >> FORM_HOW & 0xff) : j->how;
    j->has_ops = form >> FORM_HAS_OPS & 1u;
    j->has_values = form >> FORM_HAS_VALUES & 1u;
    j->brings_results = t->host->agreed[GA_SHARDED_RESULTS_WANTED];
    j->brings_found = t->host->agreed[GA_SHARDED_FOUND_WANTED];
    for (j->slices = 1; j->slices < most &&
                        t->host->agreed[GA_SHARDED_LARGEST] / (2 * j->slices) >= t->slice_least;) {
        j->slices *= 2;
    }
    memset(j->rounds, 0, sizeof j->rounds);
    for (uint32_t slice = 0; slice < j->slices; slice++) {
        uint64_t requests = 0;
        for (uint32_t i = 0; i < most / j->slices; i++) {
            requests += t->host->agreed[GA_SHARDED_FOR_PAIRS + slice * (most / j->slices) + i];
        }
        uint64_t rounds = (requests + t->pair_most - 1) / t->pair_most;
        j->rounds[slice] = rounds ? (uint32_t)rounds : 1;
    }
}

static ga_status check_words(const ga_sharded_job *j, ga_status status)
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
    uint64_t form = t->host->agreed[GA_SHARDED_FORM];
    return !form || ((form & FORM_OF_RUN) &&
                     form == ga_sharded_not(t->host->agreed[GA_SHARDED_NOT_FORM]))
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: rank %u: operation %d, how=%d, %s operations of each request: "
                         "expected the same on all ranks",
                         t->exchange.rank, (int)j->batch->op, (int)j->batch->how,
                         j->batch->ops ? "with" : "without");
}

/* ---- own requests ---------------------------------------------------------------------------- */

static uint32_t bins_of(const ga_sharded_job *j)
{
    return j->table->division.ranks << j->table->division.parts_log;
}

static ga_sharded_sort sort_of(const ga_sharded_job *j)
{
    const ga_slabhash_sharded *t = j->table;
    return (ga_sharded_sort){.division = t->division,
                             .count = j->count,
                             .keys = input(j->batch->keys, j->done, t->width),
                             .values =
                                 j->has_values ? input(j->batch->values, j->done, t->width) : NULL,
                             .ops = j->has_ops ? j->batch->ops + j->done : NULL,
                             .keys_to = t->sorted.keys,
                             .values_to = t->sorted.values,
                             .ops_to = t->sorted.ops,
                             .cursors = t->counts,
                             .indices = t->indices,
                             .extents = t->extents,
                             .is_wide = t->width == 8,
                             .combines = j->combines};
}

/* Counts the requests of each bin, or of those that travel, on the device and on the host. */
static ga_status count_by(ga_sharded_job *j, ga_status (*by)(ga_slabhash_sharded *table,
                                                             ga_sharded_sort *sort, void *stream))
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    uint64_t bytes = bins_of(j) * sizeof *t->counts;
    ga_status status = t->engine->fill(t, t->counts, 0, bytes, j->stream);
    status = status ? status : by(t, &sort, j->stream);
    status = status ? status : t->engine->get(t, t->host->own_counts, t->counts, bytes, j->stream);
    return status ? status : t->engine->wait(t, j->stream);
}

/* Whether a request can be answered from the answer to another one for the same key. An insert
 * would have to know the other one's value to say what it has found, and with MAP64, where some
 * values are reserved, one of the two may be refused. */
static bool may_combine(const ga_sharded_job *j)
{
    const ga_slabhash_batch *batch = j->batch;
    bool inserts = batch->op == GA_SLABHASH_INSERT && !batch->found &&
                   j->table->shard.mode != GA_SLABHASH_MAP64;
    bool changes_once = batch->op == GA_SLABHASH_DELETE || inserts;
    return !batch->ops &&
           (batch->op == GA_SLABHASH_SEARCH || (changes_once && !j->table->shard.is_multi));
}

/* Many requests for few keys make some bins larger than others. */
static bool is_skewed(const ga_sharded_job *j)
{
    uint32_t largest = 0;
    for (uint32_t bin = 0; bin < bins_of(j); bin++) {
        uint32_t own = j->table->host->own_counts[bin];
        largest = own > largest ? own : largest;
    }
    return largest > SKEWED_TIMES * (j->count / bins_of(j)) + SKEWED_LEAST;
}

static ga_status count(ga_sharded_job *j)
{
    const ga_sharded_engine *engine = j->table->engine;
    j->combines = false;
    memset(j->table->host->own_pads, 0, sizeof j->table->host->own_pads);
    ga_status status = count_by(j, engine->count);
    if (status == GA_OK && may_combine(j) && is_skewed(j)) {
        j->combines = true;
        status = count_by(j, engine->combine);
    }
    return status;
}

/* Where each bin begins in `sorted`: behind the one before and its pad. */
static void find_begins(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t end = 0;
    for (uint32_t bin = 0; bin < bins_of(j); bin++) {
        t->host->begins[bin] = (uint32_t)end;
        end += ga_sharded_padded(t->host->own_counts[bin]);
    }
}

/* Sorts the requests by bin, and pads the bins: up to the capacity of each, or if it is 0, where
 * all are counted, up to a multiple of GA_SHARDED_PAD. */
static ga_status sort(ga_sharded_job *j, uint32_t capacity)
{
    ga_slabhash_sharded *t = j->table;
    ga_sharded_sort sort = sort_of(j);
    ga_sharded_pad pad = {.cursors = t->cursors,
                          .counts = t->counts,
                          .keys_to = t->sorted.keys,
                          .bins = bins_of(j),
                          .to = GA_SHARDED_PAD,
                          .capacity = capacity,
                          .is_wide = t->width == 8};
    find_begins(j);
    sort.cursors = t->cursors;
    sort.capacity = capacity;
    ga_status status =
        t->engine->put(t, t->cursors, t->host->begins, bins_of(j) * sizeof *t->cursors, j->stream);
    status = status ? status
                    : t->engine->fill(t, t->served, 0, GA_SHARDED_RESULTS * sizeof *t->served,
                                      j->stream);
    if (status == GA_OK && !capacity) { /* while the cursors begin */
        status = t->engine->pad(t, &pad, j->stream);
    }
    status = status ? status : t->engine->sort(t, &sort, j->stream);
    if (status == GA_OK && capacity) {
        status = t->engine->pad(t, &pad, j->stream);
    }
    return status ? status : t->engine->mark(t, GA_SHARDED_SORTED, j->stream);
}

/* Whether no bin has more requests than its capacity. */
static bool note_pads(ga_sharded_job *j, uint32_t capacity)
{
    ga_sharded_copies *host = j->table->host;
    bool fits = true;
    for (uint32_t bin = 0; bin < bins_of(j); bin++) {
        uint32_t count = host->ends[bin] - host->begins[bin];
        fits = fits && count <= capacity;
        host->own_pads[bin] = capacity - count;
    }
    return fits;
}

/* Notes whether a guess was right. Batches whose keys repeat are mostly followed by such, so that
 * after each wrong guess in a row twice as many pieces are counted at once. */
static void learn(ga_slabhash_sharded *t, bool was_right)
{
    t->guess_misses = was_right ? 0 : t->guess_misses + 1;
    if (!was_right) {
        t->guess_skips = 1u << (t->guess_misses < SKIPS_LOG ? t->guess_misses : SKIPS_LOG);
    }
}

/* Sorts without a count, into bins of the capacity that distinct keys most likely do not exceed.
 * `*fits`: whether they did not. */
static ga_status guess(ga_sharded_job *j, bool *fits)
{
    ga_slabhash_sharded *t = j->table;
    uint32_t capacity = ga_sharded_capacity(t, j->count);
    *fits = false;
    if (!capacity) {
        return GA_OK;
    }
    if (t->guess_skips) {
        t->guess_skips--;
        return GA_OK;
    }
    j->combines = false;
    for (uint32_t bin = 0; bin < bins_of(j); bin++) {
        t->host->own_counts[bin] = capacity;
    }
    ga_status status = sort(j, capacity);
    status = status ? status
                    : t->engine->get(t, t->host->ends, t->cursors, bins_of(j) * sizeof *t->cursors,
                                     j->stream);
    status = status ? status : t->engine->wait(t, j->stream);
    if (status == GA_OK) {
        *fits = note_pads(j, capacity);
        learn(t, *fits);
    }
    return status;
}

static ga_status gather(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    const ga_slabhash_batch *batch = j->batch;
    ga_sharded_gather gather = {.count = j->count,
                                .indices = t->indices,
                                .extents = t->extents,
                                .results_from = j->brings_results ? t->sorted.results : NULL,
                                .found_from = batch->found ? t->sorted.found : NULL,
                                .results = batch->results ? batch->results + j->done : NULL,
                                .found = batch->found && t->sorted.found
                                             ? ga_sharded_element(batch->found, j->done, t->width)
                                             : NULL,
                                .totals = t->totals,
                                .bins = bins_of(j),
                                .is_wide = t->width == 8,
                                .repeat = j->op == GA_SLABHASH_INSERT   ? GA_SHARDED_REPEAT_INSERTS
                                          : j->op == GA_SLABHASH_DELETE ? GA_SHARDED_REPEAT_DELETES
                                                                        : GA_SHARDED_REPEAT_SAME};
    ga_status status = t->engine->fill(t, t->totals, 0, sizeof j->totals, j->stream);
    status = status ? status : t->engine->gather(t, &gather, j->stream);
    if (status == GA_OK && batch->found && !t->sorted.found) { /* sets */
        status = t->engine->fill(t, ga_sharded_element(batch->found, j->done, t->width), 0,
                                 j->count * t->width, j->stream);
    }
    return status;
}

/* ---- a piece --------------------------------------------------------------------------------- */

/* Whether the shards of all ranks have done their work, and had slabs, is agreed while this rank
 * gathers. */
static ga_status enqueue_end(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    memset(t->host->agreed, 0, sizeof t->host->agreed);
    t->host->agreed[GA_SHARDED_STATUS] = j->local;
    ga_status status = t->engine->follow(t, GA_SHARDED_SERVED, t->exchange_stream);
    status =
        status ? status
               : t->engine->get(t, t->host->agreed + GA_SHARDED_FULL, t->served + GA_SLABHASH_FULL,
                                sizeof *t->served, t->exchange_stream);
    status = status ? status : ga_sharded_agree_later(t);
    status = status ? status : t->engine->mark(t, GA_SHARDED_AGREED, t->exchange_stream);
    status = status ? status : t->engine->follow(t, GA_SHARDED_ANSWERED, j->stream);
    status = status || !ga_sharded_brings_answers(j) ? status : gather(j);
    if (status == GA_OK && j->brings_results) {
        status = t->engine->get(t, t->host->totals, t->totals, sizeof t->host->totals, j->stream);
    }
    return status ? status : t->engine->follow(t, GA_SHARDED_AGREED, j->stream);
}

static ga_status finish_piece(ga_sharded_job *j)
{
    ga_slabhash_sharded *t = j->table;
    ga_status status = enqueue_end(j);
    status = status ? status : t->exchange.wait(t->exchange.context, j->stream);
    if (ga_sharded_break(t, status) != GA_OK) {
        return status;
    }
    status = ga_sharded_agreed(t, j->local);
    for (int i = 0; status == GA_OK && j->brings_results && i < GA_SHARDED_RESULTS; i++) {
        j->totals[i] += t->host->totals[i];
    }
    j->full |= t->host->agreed[GA_SHARDED_FULL];
    return status;
}

/* Of all ranks for this rank's shard. */
static uint64_t requests_here(const ga_sharded_job *j)
{
    const ga_slabhash_sharded *t = j->table;
    uint32_t parts = 1u << t->division.parts_log;
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < t->division.ranks; rank++) {
        const uint32_t *counts =
            rank == t->exchange.rank ? t->host->own_counts : t->host->other_counts;
        const uint32_t *pads = rank == t->exchange.rank ? t->host->own_pads : t->host->other_pads;
        for (uint32_t part = 0; part < parts; part++) {
            sum += counts[rank * parts + part] - pads[rank * parts + part];
        }
    }
    return sum;
}

/* All ranks agree, while this one sorts, if it has not. `*sort_status`: a failure of that, which
 * the others do not learn here. */
static ga_status agree_and_sort(ga_sharded_job *j, ga_status status, bool has_sorted,
                                ga_status *sort_status)
{
    ga_slabhash_sharded *t = j->table;
    ga_status agreed = ga_sharded_begin_agreement(t, true);
    if (agreed == GA_OK && status == GA_OK && !has_sorted) {
        *sort_status = sort(j, 0);
    }
    agreed = agreed ? agreed : ga_sharded_end_agreement(t, true);
    status = agreed ? agreed : check_words(j, status);
    if (status != GA_OK) { /* the sort reads the caller's arrays */
        (void)t->engine->wait(t, j->stream);
    }
    return status;
}

/* `*more`: whether a rank has another piece. */
static ga_status run_piece(ga_sharded_job *j, ga_status status, const uint64_t *counts, bool *more)
{
    ga_slabhash_sharded *t = j->table;
    uint64_t left = j->batch->count - j->done;
    ga_status sort_status = GA_OK;
    bool has_sorted = false;
    *more = false;
    j->count = status ? 0 : ga_sharded_least(left, j->most);
    status = status ? status : ga_sharded_reserve(t, false, &j->count);
    j->most = j->count < left ? j->count : j->most;
    j->has_values = needs_values(j);
    j->has_ops = j->batch->ops;
    status = status ? status : guess(j, &has_sorted);
    status = status || has_sorted ? status : count(j);
    fill_words(j, status, counts);
    status = agree_and_sort(j, status, has_sorted, &sort_status);
    if (status != GA_OK) {
        return status;
    }
    *more = t->host->agreed[GA_SHARDED_MORE];
    read_words(j);
    t->report.served += requests_here(j);
    status = sort_status ? sort_status : ga_sharded_run_steps(j);
    status = status ? ga_sharded_break(t, status) : finish_piece(j);
    t->report.pieces++;
    j->done += j->count;
    return status;
}

static ga_status run(ga_sharded_job *j, const uint64_t *counts)
{
    ga_slabhash_sharded *t = j->table;
    bool more = true;
    ga_status status = check_batch(j);
    t->report = (ga_sharded_report){.requests = j->batch->count};
    while (more) {
        status = run_piece(j, status, counts, &more);
        more = more && status == GA_OK;
    }
    return status || !j->full
               ? status
               : ga_fail(GA_ERR_MEMORY,
                         "slabhash: rank %u: a shard has no slab for some requests of the ranks: "
                         "expected a larger limit, or more memory: their results say so",
                         t->exchange.rank);
}

ga_status ga_slabhash_sharded_run(ga_slabhash_sharded *table, const ga_slabhash_batch *batch,
                                  uint64_t *counts, void *stream)
{
    static const ga_slabhash_batch none = {0};
    ga_cuda_scope scope;
    if (counts) {
        memset(counts, 0, GA_SHARDED_RESULTS * sizeof *counts);
    }
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    ga_sharded_job j = {
        .table = table, .batch = batch ? batch : &none, .most = table->piece, .stream = stream};
    j.op = j.batch->op;
    j.how = j.batch->how;
    status = run(&j, counts);
    if (table->is_broken && table->exchange.abort) {
        /* for work that uses the caller's arrays; none of it waits for other ranks now */
        (void)table->engine->wait(table, table->exchange_stream);
        (void)table->engine->wait(table, stream);
    }
    if (counts) {
        memcpy(counts, j.totals, sizeof j.totals);
    }
    table->engine->leave(&scope);
    return status;
}
