/* SPDX-License-Identifier: MIT
 *
 * A row in the scratch memory of a thread. rows.c includes this file for each type of values;
 * GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are as for row_tile.h.
 */

/* Adds row `row` of C to the empty table of the scratch memory, which grows as needed. Returns
 * false if there is no memory. */
static bool GA_SPGEMM_OF(add)(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row)
{
    ga_tile tile = ga_tile_of(32);
    for (s->now = slots_guess(job, s, row);; s->now = slots_more(job, s, row)) {
        if (!ga_spgemm_scratch_table(job, s, s->now)) {
            return false;
        }
        ga_spgemm_columns table = table_of(s);
        if (GA_SPGEMM_OF(ga_spgemm_add_row)(tile, job->a, job->b, row, table, s->sums)) {
            return true;
        }
        GA_SPGEMM_OF(ga_spgemm_clear_sums)(tile, table, s->sums);
        ga_spgemm_empty(tile, table);
    }
}

/* Moves the row from the table to `indices` and `values`. */
static void GA_SPGEMM_OF(take)(const ga_spgemm_job *job, ga_spgemm_scratch *s, uint32_t *indices,
                               GA_SPGEMM_VALUE *values)
{
    ga_tile tile = ga_tile_of(32);
    ga_spgemm_columns table = table_of(s);
    uint32_t count = s->count;
    if (!(job->options->flags & GA_SPGEMM_UNSORTED)) {
        ga_spgemm_list(tile, table, s->sorted);
        ga_spgemm_sort(tile, s->sorted, count);
        memcpy(indices, s->sorted, count * sizeof *indices);
    } else {
        ga_spgemm_list(tile, table, indices);
    }
    GA_SPGEMM_OF(ga_spgemm_copy_sums)(tile, table, s->sums, indices, count, values);
    GA_SPGEMM_OF(ga_spgemm_clear_sums)(tile, table, s->sums);
    ga_spgemm_empty(tile, table);
    s->last = count;
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
