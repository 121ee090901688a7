/* SPDX-License-Identifier: MIT
 *
 * The methods of a product: when the vectors of the result get their memory.
 */
#include "job.h"

#include "../order_tile.h"

#include "arena/append.h"
#include "arena/vector_state.h"
#include "platform/libc.h"

#include <string.h>

enum {
    /* Bytes by which vectors grow: a 1024th of the upper bound, within these. */
    STEP_MIN = 64 << 10,
    STEP_MAX = 4 << 20
};

static uint64_t entries_now(const ga_spgemm_job *job)
{
    return job->offsets[job->a->rows];
}

/* Gives the vectors of indices and values room for exactly `entries`. */
static ga_status resize(ga_spgemm_job *job, uint64_t entries)
{
    ga_status status = ga_vector_reserve(job->product->indices, entries);
    status = status ? status : ga_vector_reserve(job->product->values, entries);
    status = status ? status : ga_vector_resize(job->product->indices, entries);
    return status ? status : ga_vector_resize(job->product->values, entries);
}

static void note_peak(ga_spgemm_job *job)
{
    uint64_t peak = ga_vector_capacity(job->product->indices);
    job->report->entries_peak = peak > job->report->entries_peak ? peak : job->report->entries_peak;
}

/* Turns the numbers of entries in offsets[1] and on into offsets. */
static void sum_counts(ga_spgemm_job *job)
{
    for (uint64_t row = 0; row < job->a->rows; row++) {
        job->offsets[row + 1] += job->offsets[row];
    }
}

/* ---- two passes ----------------------------------------------------------------------------- */

ga_status ga_spgemm_precise(ga_spgemm_job *job)
{
    ga_status status = ga_spgemm_run(job, ga_spgemm_count_piece);
    if (status != GA_OK) {
        return status;
    }
    sum_counts(job);
    status = resize(job, entries_now(job));
    note_peak(job);
    return status == GA_OK ? ga_spgemm_run(job, ga_spgemm_store_piece) : status;
}

/* ---- the upper bound ------------------------------------------------------------------------ */

/* Moves each row down, so that there is no gap between rows. offsets[row + 1] is the number of the
 * row's entries before, and its end afterwards. */
static void close_gaps(ga_spgemm_job *job)
{
    size_t size = ga_value_size(job->a->type);
    char *values = job->values;
    uint64_t to = 0;
    for (uint64_t row = 0; row < job->a->rows; row++) {
        uint64_t from = job->uppers[row], count = job->offsets[row + 1];
        if (from != to) {
            memmove(job->indices + to, job->indices + from, count * sizeof *job->indices);
            memmove(values + to * size, values + from * size, count * size);
        }
        to += count;
        job->offsets[row + 1] = to;
    }
}

ga_status ga_spgemm_upper(ga_spgemm_job *job)
{
    ga_status status = resize(job, job->uppers[job->a->rows]);
    note_peak(job);
    if (status == GA_OK) {
        status = ga_spgemm_run(job, ga_spgemm_store_piece);
    }
    if (status != GA_OK) {
        return status;
    }
    close_gaps(job);
    status = resize(job, entries_now(job));
    status = status ? status : ga_vector_shrink_to_fit(job->product->indices);
    return status ? status : ga_vector_shrink_to_fit(job->product->values);
}

/* ---- growing -------------------------------------------------------------------------------- */

/* Bytes by which the vector grows: a part of the upper bound, such that whole steps fill its
 * limit. */
static uint64_t step_of(const ga_spgemm_job *job, const ga_vector *vector)
{
    uint64_t limit = vector->max * vector->element;
    uint64_t step = job->uppers[job->a->rows] * vector->element / 1024;
    step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
    return limit < step ? limit : limit / (limit / step);
}

/* A vector with a limit below the least step gets all of its memory before. */
static ga_status lend(const ga_spgemm_job *job, ga_vector *vector, void **state)
{
    ga_kernel_vector view;
    uint64_t step = step_of(job, vector);
    ga_status status = step < STEP_MIN ? ga_vector_reserve(vector, vector->max) : GA_OK;
    if (status == GA_OK) {
        status = ga_vector_lend(vector, step < STEP_MIN ? STEP_MIN : step, &view);
    }
    *state = status == GA_OK ? view.state : NULL;
    return status;
}

/* Ends the loan; the vector has `entries` elements then. */
static ga_status end_loan(ga_vector *vector, ga_append *state, uint64_t entries,
                          ga_vector_appended *appended)
{
    if (!state) {
        return GA_OK;
    }
    ga_store64_relaxed(&state->tail, entries); /* relaxed: all threads have ended */
    return ga_vector_end_loan(vector, appended);
}

ga_status ga_spgemm_growing(ga_spgemm_job *job)
{
    ga_spgemm_product *c = job->product;
    job->order = ga_libc.calloc(job->piece_count + 1, sizeof *job->order);
    if (!job->order) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory for %llu pieces",
                       (unsigned long long)job->piece_count);
    }
    ga_status status = lend(job, c->indices, &job->indices_state);
    status = status ? status : lend(job, c->values, &job->values_state);
    status = status ? status : ga_spgemm_run(job, ga_spgemm_append_piece);
    uint64_t entries = status == GA_OK ? entries_now(job) : 0;
    ga_vector_appended appended[2] = {{.reason = ""}, {.reason = ""}};
    ga_status indices = end_loan(c->indices, job->indices_state, entries, &appended[0]);
    ga_status values = end_loan(c->values, job->values_state, entries, &appended[1]);
    note_peak(job);
    if (job->failed && job->failed % 2 == 0) {
        return ga_fail(GA_ERR_MEMORY, "%s: %s", ga_error_text(),
                       appended[*appended[0].reason ? 0 : 1].reason);
    }
    return status ? status : indices ? indices : values;
}
