/* SPDX-License-Identifier: MIT
 *
 * The upper bounds of the rows of a product, and pieces of rows that take about equally many
 * multiplications.
 */
#include "job.h"

#include "platform/libc.h"

/* The multiplications that row `row` takes: its upper bound (vmm-spgemm-2023, Listing 2.2). */
static uint64_t count_multiplications(const ga_spgemm_job *job, uint64_t row)
{
    const ga_csr *a = job->a, *b = job->b;
    uint64_t upper = 0;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1]; entry++) {
        uint32_t k = a->indices[entry];
        upper += b->offsets[k + 1] - b->offsets[k];
    }
    return upper;
}

static void sum_uppers(ga_spgemm_job *job)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < job->a->rows; row++) {
        job->uppers[row] = sum;
        sum += count_multiplications(job, row);
    }
    job->uppers[job->a->rows] = sum;
}

/* Rows from `row` on, up to the first that would exceed a piece, but at least one. */
static uint64_t piece_end(const ga_spgemm_job *job, uint64_t row)
{
    uint64_t limit = job->uppers[row] + GA_SPGEMM_PIECE;
    uint64_t end = row + 1;
    while (end < job->a->rows && end - row < GA_SPGEMM_PIECE && job->uppers[end + 1] <= limit) {
        end++;
    }
    return end;
}

static uint64_t cut_pieces(ga_spgemm_job *job)
{
    uint64_t count = 0;
    for (uint64_t row = 0; row < job->a->rows; row = piece_end(job, row)) {
        if (job->pieces) {
            job->pieces[count] = row;
        }
        count++;
    }
    if (job->pieces) {
        job->pieces[count] = job->a->rows;
    }
    return count;
}

ga_status ga_spgemm_plan(ga_spgemm_job *job)
{
    uint64_t rows = job->a->rows;
    job->uppers = ga_libc.calloc(rows + 1, sizeof *job->uppers);
    if (!job->uppers) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory for the upper bounds of %llu rows",
                       (unsigned long long)rows);
    }
    sum_uppers(job);
    job->piece_count = cut_pieces(job);
    job->pieces = ga_libc.calloc(job->piece_count + 1, sizeof *job->pieces);
    if (!job->pieces) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no memory for %llu pieces",
                       (unsigned long long)job->piece_count);
    }
    cut_pieces(job);
    job->report->multiplications = job->uppers[rows];
    return GA_OK;
}

void ga_spgemm_plan_free(ga_spgemm_job *job)
{
    ga_libc.free(job->uppers);
    ga_libc.free(job->pieces);
    ga_libc.free(job->order);
}
