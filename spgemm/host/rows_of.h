/* SPDX-License-Identifier: MIT
 *
 * A row in the scratch memory of a thread. rows.c includes this file for each type of values:
 * GA_SPGEMM_VALUE is the type, and GA_SPGEMM_OF(name) the name with a suffix for it.
 */

/* ---- rows whose columns are close together: a sum for each column ---------------------------- */

/* Adds row `row` of C, without sums if `sums` is NULL. Returns the number of its entries. */
static inline uint32_t GA_SPGEMM_OF(add_dense)(const ga_csr *a, const ga_csr *b, uint64_t row,
                                               const ga_spgemm_scratch *s, GA_SPGEMM_VALUE *sums)
{
    const GA_SPGEMM_VALUE *a_values = a->values, *b_values = b->values;
    uint32_t *stamps = s->stamps, stamp = s->stamp, low = s->low, count = 0;
    ga_spgemm_columns set = s->set;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1]; entry++) {
        uint64_t at = b->offsets[a->indices[entry]], end = b->offsets[a->indices[entry] + 1ull];
        GA_SPGEMM_VALUE factor = sums ? a_values[entry] : 0;
        for (; at < end; at++) {
            uint32_t column = b->indices[at];
            GA_SPGEMM_VALUE product = sums ? factor * b_values[at] : 0;
            if (stamps[column - low] != stamp) {
                stamps[column - low] = stamp;
                count++;
                if (sums) {
                    ga_spgemm_columns_add(set, column);
                    sums[column - low] = 0 + product; /* as in the table: no -0 */
                }
            } else if (sums) {
                sums[column - low] += product;
            }
        }
    }
    return count;
}

/* Moves the row to `indices` and `values`. */
static void GA_SPGEMM_OF(take_dense)(ga_spgemm_scratch *s, uint32_t *indices,
                                     GA_SPGEMM_VALUE *values)
{
    const GA_SPGEMM_VALUE *sums = s->window;
    ga_spgemm_columns_take(s->set, s->low, s->high, indices);
    for (uint32_t i = 0; i < s->count; i++) {
        values[i] = sums[indices[i] - s->low];
    }
}

/* ---- other rows: a hash table ---------------------------------------------------------------- */

/* Adds row `row` of C to the table, without sums if `sums` is NULL. Returns false if it is full;
 * then it has a part of the row. */
static inline bool GA_SPGEMM_OF(add_row)(const ga_csr *a, const ga_csr *b, uint64_t row,
                                         ga_spgemm_table table, uint64_t most,
                                         GA_SPGEMM_VALUE *sums)
{
    const GA_SPGEMM_VALUE *a_values = a->values, *b_values = b->values;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1]; entry++) {
        uint64_t at = b->offsets[a->indices[entry]], end = b->offsets[a->indices[entry] + 1ull];
        GA_SPGEMM_VALUE factor = sums ? a_values[entry] : 0;
        while (at < end) {
            uint64_t left = most + 1 - *table.count; /* that fit for sure */
            uint64_t stop = end - at < left ? end : at + left;
            for (; at < stop; at++) {
                uint32_t slot = ga_spgemm_slot(table, b->indices[at]);
                if (sums) {
                    sums[slot] += factor * b_values[at];
                }
            }
            if (*table.count > most) {
                return false;
            }
        }
    }
    return true;
}

/* Empties the table; all sums are 0 then. */
static void GA_SPGEMM_OF(clear)(ga_spgemm_scratch *s)
{
    GA_SPGEMM_VALUE *sums = s->sums;
    for (uint32_t i = 0; i < s->count; i++) {
        sums[s->used[i]] = 0;
    }
    ga_spgemm_empty(table_of(s));
}

/* Adds the row to the empty table of the scratch memory, which grows as needed. Returns false if
 * there is no memory. */
static bool GA_SPGEMM_OF(add_hashed)(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row,
                                     bool with_sums)
{
    for (s->now = slots_guess(job, s, row);; s->now = slots_more(job, s, row)) {
        if (!ga_spgemm_scratch_table(job, s, s->now)) {
            return false;
        }
        ga_spgemm_table table = table_of(s);
        uint64_t most = s->now / 3 * 2;
        if (with_sums ? GA_SPGEMM_OF(add_row)(job->a, job->b, row, table, most, s->sums)
                      : GA_SPGEMM_OF(add_row)(job->a, job->b, row, table, most, NULL)) {
            return true;
        }
        GA_SPGEMM_OF(clear)(s);
    }
}

/* Copies the columns of the table to `columns`, sorted if the product is. */
static void GA_SPGEMM_OF(list_hashed)(const ga_spgemm_job *job, ga_spgemm_scratch *s,
                                      uint32_t *columns)
{
    ga_spgemm_table table = table_of(s);
    if (job->options->flags & GA_SPGEMM_UNSORTED) {
        ga_spgemm_list(table, columns);
    } else if (s->set.level[0]) {
        for (uint32_t i = 0; i < s->count; i++) {
            ga_spgemm_columns_add(s->set, table.keys[table.used[i]]);
        }
        ga_spgemm_columns_take(s->set, s->low, s->high, columns);
    } else {
        ga_spgemm_list(table, s->sorted);
        ga_spgemm_sort(s->sorted, s->count);
        memcpy(columns, s->sorted, s->count * sizeof *columns);
    }
}

static void GA_SPGEMM_OF(take_hashed)(const ga_spgemm_job *job, ga_spgemm_scratch *s,
                                      uint32_t *indices, GA_SPGEMM_VALUE *values)
{
    ga_spgemm_table table = table_of(s);
    const GA_SPGEMM_VALUE *sums = s->sums;
    GA_SPGEMM_OF(list_hashed)(job, s, indices);
    for (uint32_t i = 0; i < s->count; i++) {
        values[i] = sums[ga_spgemm_slot(table, indices[i])];
    }
    GA_SPGEMM_OF(clear)(s);
}

/* ---- all rows -------------------------------------------------------------------------------- */

/* Adds the row to the scratch memory, which has none: s->count entries. Returns false if there is
 * no memory. */
static bool GA_SPGEMM_OF(add)(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row,
                              bool with_sums)
{
    if (!choose(job, s, row)) {
        return GA_SPGEMM_OF(add_hashed)(job, s, row, with_sums);
    }
    s->count = with_sums ? GA_SPGEMM_OF(add_dense)(job->a, job->b, row, s, s->window)
                         : GA_SPGEMM_OF(add_dense)(job->a, job->b, row, s, NULL);
    return true;
}

/* Moves the row from the scratch memory to `indices` and `values`. */
static void GA_SPGEMM_OF(take)(const ga_spgemm_job *job, ga_spgemm_scratch *s, uint32_t *indices,
                               GA_SPGEMM_VALUE *values)
{
    uint32_t count = s->count;
    if (s->is_dense) {
        GA_SPGEMM_OF(take_dense)(s, indices, values);
    } else {
        GA_SPGEMM_OF(take_hashed)(job, s, indices, values);
    }
    s->count = 0;
    s->last = count;
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
