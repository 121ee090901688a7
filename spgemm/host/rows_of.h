/* SPDX-License-Identifier: MIT
 *
 * A row in the scratch memory of a thread. rows.c includes this file for each type of values;
 * GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are as for row_tile.h.
 */

/* Adds row `row` of C to the empty table of the scratch memory, which grows as needed. Returns
 * false if there is no memory. */
static bool GA_SPGEMM_OF(add)(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row,
                              bool with_sums)
{
    ga_tile tile = ga_tile_of(32);
    ga_spgemm_part part = ga_spgemm_whole_row(job->a, row);
    for (s->now = slots_guess(job, s, row);; s->now = slots_more(job, s, row)) {
        if (!ga_spgemm_scratch_table(job, s, s->now)) {
            return false;
        }
        ga_spgemm_table table = table_of(job, s, row);
        if (with_sums ? GA_SPGEMM_OF(ga_spgemm_add_part)(tile, job->a, job->b, part, table, s->sums)
                      : GA_SPGEMM_OF(ga_spgemm_add_part)(tile, job->a, job->b, part, table, NULL)) {
            return true;
        }
        GA_SPGEMM_OF(ga_spgemm_clear_sums)(tile, table, s->sums);
        ga_spgemm_empty(tile, table);
    }
}

/* Moves the row from the table to `indices` and `values`. */
static void GA_SPGEMM_OF(take)(const ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row,
                               uint32_t *indices, GA_SPGEMM_VALUE *values)
{
    ga_tile tile = ga_tile_of(32);
    ga_spgemm_table table = table_of(job, s, row);
    bool sorts = !(job->options->flags & GA_SPGEMM_UNSORTED);
    s->last = ga_spgemm_list(tile, table, s->sorted);
    if (sorts) {
        ga_spgemm_sort(tile, s->sorted, s->last);
    }
    memcpy(indices, s->sorted, s->last * sizeof *indices);
    GA_SPGEMM_OF(ga_spgemm_copy_sums)(tile, table, s->sums, indices, s->last, values);
    GA_SPGEMM_OF(ga_spgemm_clear_sums)(tile, table, s->sums);
    ga_spgemm_empty(tile, table);
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
