/* SPDX-License-Identifier: MIT
 *
 * The methods of a product on the host: when the vectors of the result get their memory.
 */
#include "job.h"

#include "platform/libc.h"

#include <string.h>

static uint64_t entries_now(const ga_spgemm_job *job)
{
    return job->offsets[job->a->rows];
}

void ga_spgemm_sum_counts(ga_spgemm_job *job)
{
    for (uint64_t row = 0; row < job->a->rows; row++) {
        job->offsets[row + 1] += job->offsets[row];
    }
}

/* ---- two passes ----------------------------------------------------------------------------- */

static bool is_dot(const ga_spgemm_job *job)
{
    return job->options->kernel == GA_SPGEMM_KERNEL_DOT;
}

static ga_status store(ga_spgemm_job *job)
{
    return ga_spgemm_run_pieces(job, is_dot(job) ? ga_spgemm_dot_store : ga_spgemm_store_piece);
}

static ga_status multiply_precise(ga_spgemm_job *job)
{
    ga_status status =
        ga_spgemm_run_pieces(job, is_dot(job) ? ga_spgemm_dot_count : ga_spgemm_count_piece);
    if (status != GA_OK) {
        return status;
    }
    ga_spgemm_sum_counts(job);
    status = ga_spgemm_resize(job->product, entries_now(job));
    ga_spgemm_note_peak(job->product, job->report);
    return status ? status : store(job);
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

static ga_status multiply_upper(ga_spgemm_job *job)
{
    ga_status status = ga_spgemm_resize(job->product, job->uppers[job->a->rows]);
    ga_spgemm_note_peak(job->product, job->report);
    if (status == GA_OK) {
        status = store(job);
    }
    if (status != GA_OK) {
        return status;
    }
    close_gaps(job);
    status = ga_spgemm_resize(job->product, entries_now(job));
    status = status ? status : ga_vector_shrink_to_fit(job->product->indices);
    return status ? status : ga_vector_shrink_to_fit(job->product->values);
}

/* ---- growing -------------------------------------------------------------------------------- */

static ga_status multiply_growing(ga_spgemm_job *job)
{
    job->order = ga_libc.calloc(job->piece_count + 1, sizeof *job->order);
    if (!job->order) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory for %llu pieces",
                       (unsigned long long)job->piece_count);
    }
    ga_status status = ga_spgemm_run_pieces(job, ga_spgemm_append_piece);
    ga_spgemm_note_peak(job->product, job->report);
    if (job->failed && job->failed % 2 == 0) {
        return ga_fail(GA_ERR_MEMORY, "%s: %s", ga_error_text(), job->reason);
    }
    return status ? status : ga_spgemm_resize(job->product, entries_now(job));
}

/* ---- the call -------------------------------------------------------------------------------- */

static ga_status check(const ga_csr *a, const ga_csr *b)
{
    ga_status status = ga_csr_check(a);
    return status || a == b ? status : ga_csr_check(b);
}

static ga_status run(ga_spgemm_job *job)
{
    switch (job->report->method) {
    case GA_SPGEMM_PRECISE:
        return multiply_precise(job);
    case GA_SPGEMM_UPPER:
        return multiply_upper(job);
    case GA_SPGEMM_DYNAMIC:
        return ga_spgemm_dynamic_on_host(job);
    default:
        return multiply_growing(job);
    }
}

ga_status ga_spgemm_on_host(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                            ga_spgemm_product *product, ga_spgemm_report *report)
{
    ga_status status = check(a, b);
    status = status ? status : ga_spgemm_begin(a, b, product);
    if (status != GA_OK) {
        return status;
    }
    ga_spgemm_job job = {.a = a,
                         .b = b,
                         .options = options,
                         .product = product,
                         .report = report,
                         .offsets = ga_vector_data(product->offsets),
                         .indices = ga_vector_data(product->indices),
                         .values = ga_vector_data(product->values),
                         .growth = PTHREAD_MUTEX_INITIALIZER};
    memset(job.offsets, 0, (a->rows + 1) * sizeof *job.offsets);
    status = ga_spgemm_plan(&job);
    if (status == GA_OK && is_dot(&job)) {
        status = ga_spgemm_transpose_make(b, &job.columns);
    }
    if (status == GA_OK) {
        status = run(&job);
    }
    if (status == GA_OK) {
        report->entries = entries_now(&job);
        report->scratch_bytes = job.scratch_bytes + job.columns.bytes;
    }
    ga_spgemm_transpose_free(&job.columns);
    ga_spgemm_plan_free(&job);
    pthread_mutex_destroy(&job.growth);
    return status;
}
