/* SPDX-License-Identifier: MIT
 *
 * The merge of merge_tile.h for one type of values: GA_SPGEMM_VALUE is the type, and
 * GA_SPGEMM_OF(name) the name with a suffix for it.
 */

/* Entries in ascending columns. */
typedef struct GA_SPGEMM_OF(ga_merge_list) {
    uint32_t *columns;
    GA_SPGEMM_VALUE *values;
} GA_SPGEMM_OF(ga_merge_list);

/* The sum of the products of these lanes; `factors` are the values of the group's entries of A. */
GA_SIMT GA_SPGEMM_VALUE GA_SPGEMM_OF(ga_merge_sum)(ga_tile tile, const ga_csr *b,
                                                   const ga_merge_heads *heads, uint32_t lanes,
                                                   const GA_SPGEMM_VALUE *factors)
{
    const GA_SPGEMM_VALUE *values = (const GA_SPGEMM_VALUE *)b->values;
    GA_SPGEMM_VALUE sum = 0; /* on the GPU of this lane */
    GA_EACH_LANE(tile, lanes, own)
    {
        sum += factors[own] * values[ga_merge_position(heads, own)];
    }
    return GA_SPGEMM_OF(ga_tile_sum)(tile, sum);
}

/* Merge a group with the `listed` entries of the list `from` into the list `to`, which has room for
 * `room` entries. Returns the number of entries. merged->has_more stays true if it was. */
GA_SIMT uint32_t GA_SPGEMM_OF(ga_merge_group)(ga_tile tile, const ga_csr *b, ga_merge_heads *heads,
                                              const GA_SPGEMM_VALUE *factors,
                                              GA_SPGEMM_OF(ga_merge_list) from, uint32_t listed,
                                              GA_SPGEMM_OF(ga_merge_list) to, uint32_t room,
                                              ga_spgemm_progress *merged)
{
    uint32_t taken = 0, count = 0;
    for (;;) {
        uint32_t least = ga_lanes_least(tile, heads->column);
        uint32_t other = taken < listed ? from.columns[taken] : GA_SPGEMM_EMPTY;
        uint32_t column = least < other ? least : other;
        bool steps = column != GA_SPGEMM_EMPTY && count < room;
        if (!ga_tiles_any(tile, steps)) {
            merged->has_more |= column != GA_SPGEMM_EMPTY;
            break;
        }
        uint32_t lanes = ga_merge_matching(tile, heads, column);
        lanes = steps ? lanes : 0;
        GA_SPGEMM_VALUE sum = GA_SPGEMM_OF(ga_merge_sum)(tile, b, heads, lanes, factors);
        if (steps && other == column) {
            sum += from.values[taken++];
        }
        GA_EACH_LANE(tile, steps ? 1u << ga_tile_leader(tile) : 0, own)
        {
            (void)own;
            to.columns[count] = column;
            to.values[count] = sum;
        }
        merged->cursor = steps ? column + 1u : merged->cursor;
        count += steps;
        ga_merge_advance(tile, b, heads, lanes);
    }
    ga_tile_sync(tile);
    return count;
}

/* Store the next entries of a row of C, at most `room`, at `out`. The row of A has the entries from
 * `at` to `end`. `spare` has as much room. */
GA_SIMT ga_spgemm_progress GA_SPGEMM_OF(ga_merge_row)(
    ga_tile tile, const ga_csr *a, const ga_csr *b, uint64_t at, uint64_t end, uint32_t cursor,
    GA_SPGEMM_OF(ga_merge_list) out, GA_SPGEMM_OF(ga_merge_list) spare, uint32_t room)
{
    uint32_t size = ga_tile_size(tile);
    uint64_t groups = (end - at) / size + ((end - at) % size != 0);
    ga_spgemm_progress merged = {0, cursor, false};
    while (ga_tiles_any(tile, groups)) {
        ga_merge_heads heads = ga_merge_load(tile, a, b, at, end, cursor);
        bool is_out = groups % 2u; /* the last one is */
        const GA_SPGEMM_VALUE *factors = (const GA_SPGEMM_VALUE *)a->values + at;
        bool is_left = groups != 0;
        merged.cursor = is_left ? cursor : merged.cursor;
        uint32_t count = GA_SPGEMM_OF(ga_merge_group)(
            tile, b, &heads, factors, is_out ? spare : out, is_left ? merged.count : 0,
            is_out ? out : spare, is_left ? room : 0, &merged);
        merged.count = is_left ? count : merged.count;
        groups -= is_left;
        at += size;
    }
    return merged;
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
