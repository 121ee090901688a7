/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_DYNAMIC on the host: threads take runs of the pieces of a round.
 */
#include "job.h"

#include "../merge_tile.h"
#include "../rounds.h"

#include "platform/libc.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUN = 256,                       /* pieces that a thread takes at once */
    SAMPLE = 256,                    /* rows */
    SAMPLE_MULTIPLICATIONS = 1 << 14 /* of a row above which it is no sample */
};

/* ---- a row ----------------------------------------------------------------------------------- */

/* Entries of a row in memory of the stack. */
typedef struct row_buffer {
    uint32_t columns[GA_SPGEMM_SIZE_MAX];
    union {
        double f64[GA_SPGEMM_SIZE_MAX];
        float f32[GA_SPGEMM_SIZE_MAX];
    } values;
} row_buffer;

/* Stores the next entries of a row, at most `room`, at `columns` and `values`. */
static ga_spgemm_progress merge(const ga_spgemm_job *job, uint64_t row, uint32_t cursor,
                                uint32_t *columns, void *values, uint32_t room)
{
    row_buffer other;
    ga_tile tile = ga_tile_of(job->width);
    uint64_t at = job->a->offsets[row], end = job->a->offsets[row + 1];
    if (job->a->type == GA_FLOAT64) {
        ga_merge_list_f64 out = {columns, values}, spare = {other.columns, other.values.f64};
        return ga_merge_row_f64(tile, job->a, job->b, at, end, cursor, out, spare, room);
    }
    ga_merge_list_f32 out = {columns, values}, spare = {other.columns, other.values.f32};
    return ga_merge_row_f32(tile, job->a, job->b, at, end, cursor, out, spare, room);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static uint64_t run_end(uint64_t first, uint64_t pieces)
{
    return pieces - first < RUN ? pieces : first + RUN;
}

/* Stores the next piece of a row from entry `to` of the vectors on. */
static ga_spgemm_progress store(const ga_spgemm_job *job, uint64_t row, uint64_t to)
{
    const ga_spgemm_round *round = &job->rounds->round;
    char *values = (char *)job->values + to * ga_value_size(job->a->type);
    uint32_t cursor = round->cursors[row];
    return job->options->kernel == GA_SPGEMM_KERNEL_DOT
               ? ga_spgemm_dot_some(job, row, cursor, round->size, to)
               : merge(job, row, cursor, job->indices + to, values, round->size);
}

static bool fill_run(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t number)
{
    const ga_spgemm_round *round = &job->rounds->round;
    uint64_t end = run_end(number * RUN, round->active);
    (void)scratch;
    for (uint64_t i = number * RUN; i < end; i++) {
        uint64_t row = ga_spgemm_row_of(round, round->first + i);
        ga_spgemm_progress progress = store(job, row, (round->first + i) * round->size);
        job->offsets[row + 1] += progress.count;
        round->cursors[row] = progress.cursor;
        if (progress.has_more) {
            /* relaxed: hands out places in the list */
            round->rows[ga_add64_relaxed(&job->listed, 1)] = (uint32_t)row;
        }
    }
    return true;
}

/* Runs the pass for runs of so many pieces. */
static ga_status run_all(ga_spgemm_job *job, ga_spgemm_pass *pass, uint64_t pieces)
{
    job->piece_count = (pieces + RUN - 1) / RUN;
    return ga_spgemm_run_pieces(job, pass);
}

static ga_status fill(ga_spgemm_rounds *rounds, uint64_t *listed)
{
    ga_spgemm_job *job = rounds->context;
    rounds->round.starts[rounds->round.number] = rounds->round.first;
    ga_status status = run_all(job, fill_run, rounds->round.active);
    *listed = job->listed;
    return status;
}

static ga_status sum(ga_spgemm_rounds *rounds, uint64_t *entries)
{
    ga_spgemm_job *job = rounds->context;
    ga_spgemm_sum_counts(job);
    *entries = job->offsets[job->a->rows];
    return GA_OK;
}

static bool gather_run(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t number)
{
    const ga_spgemm_round *round = &job->rounds->round;
    uint64_t end = run_end(number * RUN, round->first);
    (void)scratch;
    for (uint64_t piece = number * RUN; piece < end; piece++) {
        ga_spgemm_copy copy = ga_spgemm_copy_of(round, job->offsets, piece);
        memcpy(job->to + copy.to * job->element, job->from + copy.from * job->element,
               copy.count * job->element);
    }
    return true;
}

static ga_status gather(ga_spgemm_rounds *rounds, const void *from, void *to, size_t element)
{
    ga_spgemm_job *job = rounds->context;
    job->from = from;
    job->to = to;
    job->element = element;
    return run_all(job, gather_run, rounds->round.first);
}

/* ---- the size of a piece --------------------------------------------------------------------- */

static uint32_t count_row(const ga_spgemm_job *job, uint64_t row)
{
    row_buffer buffer;
    ga_spgemm_progress merged = {.has_more = true};
    uint32_t count = 0;
    while (merged.has_more) {
        merged = merge(job, row, merged.cursor, buffer.columns, &buffer.values, GA_SPGEMM_SIZE_MAX);
        count += merged.count;
    }
    return count;
}

static int compare_counts(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Estimates the entries of the product from a sample of the rows, and chooses by them. */
static uint32_t choose_size(ga_spgemm_job *job)
{
    uint32_t counts[SAMPLE], n = 0;
    uint64_t rows = job->a->rows, multiplications = 0, entries = 0;
    for (uint64_t i = 0; i < SAMPLE && i < rows; i++) {
        uint64_t row = rows <= SAMPLE ? i : (uint64_t)((double)rows / SAMPLE * (double)i);
        uint64_t upper = job->uppers[row + 1] - job->uppers[row];
        if (upper && upper <= SAMPLE_MULTIPLICATIONS) {
            counts[n] = count_row(job, row);
            multiplications += upper;
            entries += counts[n++];
        }
    }
    qsort(counts, n, sizeof *counts, compare_counts);
    double ratio = multiplications ? (double)entries / (double)multiplications : 1;
    double estimate = (double)job->report->multiplications * ratio;
    job->report->entries_estimated = (uint64_t)estimate;
    return ga_spgemm_choose_size(job->options->goal, n ? counts[n - 1 - n / 32] : 0,
                                 rows ? estimate / (double)rows : 0);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* About as many lanes as a row of A has entries. */
static uint32_t width_of(const ga_csr *a)
{
    uint32_t width = 4;
    while (width < 32 && width * a->rows < a->offsets[a->rows]) {
        width *= 2;
    }
    return width;
}

static uint64_t row_most(const ga_spgemm_job *job)
{
    uint64_t most = 0;
    for (uint64_t row = 0; row < job->a->rows; row++) {
        uint64_t upper = job->uppers[row + 1] - job->uppers[row];
        most = upper > most ? upper : most;
    }
    return most < job->b->columns ? most : job->b->columns;
}

ga_status ga_spgemm_dynamic_on_host(ga_spgemm_job *job)
{
    uint64_t rows = job->a->rows;
    job->width = width_of(job->a);
    uint32_t size = job->options->size_per_row;
    ga_spgemm_rounds rounds = {
        .product = job->product,
        .report = job->report,
        .row_most = row_most(job),
        .context = job,
        .fill = fill,
        .sum = sum,
        .gather = gather,
        .round = {.all = rows, .size = size ? size : choose_size(job)},
    };
    rounds.round.cursors = ga_libc.calloc(rows + 1, sizeof *rounds.round.cursors);
    if (!rounds.round.cursors) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory for the cursors of %llu rows",
                       (unsigned long long)rows);
    }
    job->rounds = &rounds;
    ga_status status = ga_spgemm_run_rounds(&rounds);
    job->scratch_bytes = job->report->scratch_bytes + rows * sizeof *rounds.round.cursors;
    ga_libc.free(rounds.round.cursors);
    return status;
}
