/* SPDX-License-Identifier: MIT
 *
 * dot.h for one type of values: GA_SPGEMM_VALUE is the type, and GA_SPGEMM_OF(name) the name with a
 * suffix for it. Of `columns`, the transpose of B, row j is column j of B.
 */

/* The dot product of a row and a column; false if they have no index in common. */
GA_SIMT bool GA_SPGEMM_OF(ga_dot)(const ga_csr *a, uint64_t row, const ga_csr *columns,
                                  uint32_t column, GA_SPGEMM_VALUE *sum)
{
    const GA_SPGEMM_VALUE *a_values = (const GA_SPGEMM_VALUE *)a->values;
    const GA_SPGEMM_VALUE *b_values = (const GA_SPGEMM_VALUE *)columns->values;
    uint64_t i = a->offsets[row], i_end = a->offsets[row + 1u];
    uint64_t j = columns->offsets[column], j_end = columns->offsets[column + 1ull];
    bool meets = false;
    *sum = 0;
    while (i < i_end && j < j_end) {
        uint32_t left = a->indices[i], right = columns->indices[j];
        if (left == right) {
            *sum += a_values[i] * b_values[j];
            meets = true;
        }
        i += left <= right;
        j += right <= left;
    }
    return meets;
}

/* Store the next entries of a row, from the cursor on and at most `room`. `indices` and `values`
 * are NULL to count only. */
GA_SIMT ga_spgemm_progress GA_SPGEMM_OF(ga_dot_row)(const ga_csr *a, const ga_csr *columns,
                                                    uint64_t row, uint32_t cursor, uint32_t room,
                                                    uint32_t *indices, GA_SPGEMM_VALUE *values)
{
    ga_spgemm_progress progress = {0, cursor, false};
    for (; progress.cursor < columns->rows; progress.cursor++) {
        GA_SPGEMM_VALUE sum;
        if (!GA_SPGEMM_OF(ga_dot)(a, row, columns, progress.cursor, &sum)) {
            continue;
        }
        if (progress.count == room) {
            progress.has_more = true;
            break;
        }
        if (indices) {
            indices[progress.count] = progress.cursor;
            values[progress.count] = sum;
        }
        progress.count++;
    }
    return progress;
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
