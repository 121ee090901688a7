/* SPDX-License-Identifier: MIT
 *
 * The kernel dot on the host.
 */
#include "../dot.h"
#include "job.h"

/* Stores the next entries of a row from entry `to` of the vectors on, or counts them. */
static ga_spgemm_progress run(const ga_spgemm_job *job, uint64_t row, uint32_t cursor,
                              uint32_t room, bool stores, uint64_t to)
{
    const ga_csr *columns = &job->columns.view;
    uint32_t *indices = stores ? job->indices + to : NULL;
    return job->a->type == GA_FLOAT64 ? ga_dot_row_f64(job->a, columns, row, cursor, room, indices,
                                                       stores ? (double *)job->values + to : NULL)
                                      : ga_dot_row_f32(job->a, columns, row, cursor, room, indices,
                                                       stores ? (float *)job->values + to : NULL);
}

ga_spgemm_progress ga_spgemm_dot_some(const ga_spgemm_job *job, uint64_t row, uint32_t cursor,
                                      uint32_t room, uint64_t to)
{
    return run(job, row, cursor, room, true, to);
}

bool ga_spgemm_dot_count(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece)
{
    (void)scratch;
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        job->offsets[row + 1] = run(job, row, 0, GA_DOT_NO_LIMIT, false, 0).count;
    }
    return true;
}

bool ga_spgemm_dot_store(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece)
{
    bool has_gaps = job->report->method == GA_SPGEMM_UPPER;
    (void)scratch;
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        uint64_t to = has_gaps ? job->uppers[row] : job->offsets[row];
        uint32_t count = run(job, row, 0, GA_DOT_NO_LIMIT, true, to).count;
        if (has_gaps) {
            job->offsets[row + 1] = count;
        }
    }
    return true;
}
