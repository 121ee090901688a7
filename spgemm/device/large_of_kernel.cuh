/* SPDX-License-Identifier: MIT
 *
 * Large rows, each by all threads of a block in a hash table, for one type of values:
 * GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this
 * file.
 */

GA_SIMT GA_SPGEMM_VALUE *GA_SPGEMM_OF(ga_spgemm_sums)(const ga_spgemm_work *work)
{
    return work->indices ? (GA_SPGEMM_VALUE *)ga_spgemm_shared : NULL;
}

/* Make empty tables of tiles of the shared memory, unless it has them. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_make_tables)(const ga_spgemm_work *work, ga_spgemm_block *block)
{
    uint32_t *keys = ga_spgemm_keys(work, ga_spgemm_block_slots(work));
    GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    if (ga_spgemm_takes_over(block, GA_SPGEMM_TABLES)) {
        for (uint32_t at = threadIdx.x; at < ga_spgemm_block_slots(work); at += GA_SPGEMM_BLOCK) {
            keys[at] = GA_SPGEMM_EMPTY;
            if (sums) {
                sums[at] = 0;
            }
        }
        __syncthreads();
    }
}

/* ---- a window of a row, by all threads ------------------------------------------------------- */

/* The table of a window: half as many slots as the tiles have, so that there is room for a list of
 * columns. */
GA_SIMT ga_spgemm_table GA_SPGEMM_OF(ga_spgemm_window_table)(const ga_spgemm_work *work)
{
    uint32_t slots = ga_spgemm_block_slots(work) / 2u;
    ga_spgemm_table table = ga_spgemm_table_of(ga_spgemm_keys(work, slots), slots);
    table.probes = GA_SPGEMM_PROBES;
    table.is_shared = true;
    return table;
}

/* Empty the table of a window. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_empty_window)(const ga_spgemm_work *work)
{
    ga_spgemm_table table = GA_SPGEMM_OF(ga_spgemm_window_table)(work);
    GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    for (uint32_t at = threadIdx.x; at <= table.mask; at += GA_SPGEMM_BLOCK) {
        table.keys[at] = GA_SPGEMM_EMPTY;
        if (sums) {
            sums[at] = 0;
        }
    }
    __syncthreads();
}

/* Make an empty table of a window of the shared memory, unless it has one. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_make_window)(const ga_spgemm_work *work, ga_spgemm_block *block)
{
    if (ga_spgemm_takes_over(block, GA_SPGEMM_WINDOW)) {
        GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
    }
}

/* Copy the columns of the table to `columns`. Returns their number. */
GA_SIMT uint32_t GA_SPGEMM_OF(ga_spgemm_list_window)(ga_spgemm_block *block, ga_spgemm_table table,
                                                     uint32_t *columns)
{
    block->listed = 0; /* all threads store one value */
    __syncthreads();
    for (uint32_t at = threadIdx.x; at <= table.mask; at += GA_SPGEMM_BLOCK) {
        uint32_t column = table.keys[at];
        uint32_t taken = __ballot_sync(GA_ALL_BITS, column != GA_SPGEMM_EMPTY);
        uint32_t before = 0;
        if (ga_warp_lane() == 0) {
            before = atomicAdd(&block->listed, ga_bits_count(taken));
        }
        before = __shfl_sync(GA_ALL_BITS, before, 0);
        if (columns && column != GA_SPGEMM_EMPTY) {
            columns[before + ga_bits_count(taken & ga_bits_below(ga_warp_lane()))] = column;
        }
    }
    __syncthreads();
    return block->listed;
}

/* As ga_spgemm_sort(), by all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_sort_window)(uint32_t *columns, uint32_t n)
{
    uint32_t size = 1;
    while (size < n) {
        size *= 2u;
    }
    for (uint32_t at = n + threadIdx.x; at < size; at += GA_SPGEMM_BLOCK) {
        columns[at] = GA_SPGEMM_EMPTY;
    }
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2u) {
        for (uint32_t apart = run / 2u; apart; apart /= 2u) {
            for (uint32_t pair = threadIdx.x; pair < size / 2u; pair += GA_SPGEMM_BLOCK) {
                ga_spgemm_exchange(columns, ga_spgemm_lower(pair, apart), apart, run);
            }
            __syncthreads();
        }
    }
}

/* Add the columns from `low` to below `high` of a row to the table of the window, which is empty.
 * False, with an empty table, if they do not fit. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_window)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                                uint64_t row, uint32_t low, uint32_t high,
                                                ga_spgemm_table *table)
{
    ga_spgemm_part part = ga_spgemm_whole_row(&work->a, row);
    part.low = low;
    part.high = high;
    part.is_whole = low == 0 && high == work->b.columns;
    *table = GA_SPGEMM_OF(ga_spgemm_window_table)(work);
    if (high - low <= table->mask / 3u * 2u) { /* it fits */
        table->probes = (table->mask + 1u) / 4u;
    }
    if (!GA_SPGEMM_OF(ga_spgemm_add_together)(work, block, part, *table,
                                              GA_SPGEMM_OF(ga_spgemm_sums)(work))) {
        GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
        return false;
    }
    return true;
}

/* List the columns of a window behind its keys, sorted if they are stored so. Returns their number.
 * `lists`: else count them only. */
GA_SIMT uint32_t GA_SPGEMM_OF(ga_spgemm_prepare_window)(const ga_spgemm_work *work,
                                                        ga_spgemm_block *block,
                                                        ga_spgemm_table table, bool lists,
                                                        bool publishes)
{
    uint32_t *list = table.keys + table.mask + 1u;
    uint32_t count = GA_SPGEMM_OF(ga_spgemm_list_window)(block, table, lists ? list : NULL);
    if (publishes && threadIdx.x < 32u) {
        ga_spgemm_publish(work, block, count);
    }
    if (lists && work->is_sorted) {
        GA_SPGEMM_OF(ga_spgemm_sort_window)(list, count);
    }
    return count;
}

/* Store the listed entries of a window. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_window)(const ga_spgemm_work *work, ga_spgemm_table table,
                                                  uint32_t count, uint32_t *indices,
                                                  GA_SPGEMM_VALUE *values)
{
    const uint32_t *list = table.keys + table.mask + 1u;
    const GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    for (uint32_t i = threadIdx.x; i < count; i += GA_SPGEMM_BLOCK) {
        uint32_t column = list[i];
        indices[i] = column;
        values[i] = sums[ga_spgemm_slot(table, column)];
    }
    __syncthreads();
}

/* The columns from `low` to below `high` of a row, cut into narrower windows as needed: stored from
 * `position` on, or counted. Returns the number of entries. */
static __device__ __noinline__ uint64_t
GA_SPGEMM_OF(ga_spgemm_windows_of)(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t row,
                                   uint32_t low, uint32_t high, uint64_t position)
{
    uint32_t width = high - low;
    uint64_t entries = 0;
    GA_SPGEMM_OF(ga_spgemm_make_window)(work, block);
    while (low < high) {
        ga_spgemm_table table;
        uint32_t end = high - low < width ? high : low + width;
        if (!GA_SPGEMM_OF(ga_spgemm_add_window)(work, block, row, low, end, &table)) {
            width = (end - low) / 2u + (end - low) % 2u;
            continue;
        }
        bool stores = work->indices && position != GA_SPGEMM_COUNTS;
        uint32_t count = GA_SPGEMM_OF(ga_spgemm_prepare_window)(work, block, table, stores, false);
        if (stores) {
            GA_SPGEMM_OF(ga_spgemm_store_window)
            (work, table, count, work->indices + position,
             (GA_SPGEMM_VALUE *)work->values + position);
            position += count;
        }
        GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
        entries += count;
        low = end;
        if (count < (table.mask + 1u) / 8u && width < 0x80000000u) {
            width *= 2u;
        }
    }
    return entries;
}

/* Compute a window whose position is not known, if its table has room for all; *count is the number
 * of its entries. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_window_at_once)(const ga_spgemm_work *work,
                                                    ga_spgemm_block *block, uint64_t row,
                                                    uint32_t low, uint32_t high, uint64_t *count)
{
    ga_spgemm_table table;
    GA_SPGEMM_OF(ga_spgemm_make_window)(work, block);
    bool fits = GA_SPGEMM_OF(ga_spgemm_add_window)(work, block, row, low, high, &table);
    if (fits) {
        *count = GA_SPGEMM_OF(ga_spgemm_prepare_window)(work, block, table, work->indices, true);
        GA_SPGEMM_OF(ga_spgemm_find_place)(work, block, GA_SPGEMM_UNPLACED, row, 1, *count);
        if (work->indices && block->position != GA_SPGEMM_NOWHERE) {
            GA_SPGEMM_OF(ga_spgemm_store_window)
            (work, table, (uint32_t)*count, block->indices, (GA_SPGEMM_VALUE *)block->values);
        }
        GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
    }
    return fits;
}

/* Compute a large row by the table of the block. Returns its number of entries. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_hash_row)(const ga_spgemm_work *work,
                                                  ga_spgemm_block *block, uint64_t row,
                                                  uint64_t position)
{
    uint32_t columns = (uint32_t)work->b.columns;
    uint64_t count = 0;
    if (position != GA_SPGEMM_UNPLACED) {
        return GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0, columns, position);
    }
    if (!GA_SPGEMM_OF(ga_spgemm_window_at_once)(work, block, row, 0, columns, &count)) {
        count = GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0, columns, GA_SPGEMM_COUNTS);
        if (threadIdx.x < 32u) {
            ga_spgemm_publish(work, block, count);
            ga_spgemm_place(work, block, GA_SPGEMM_UNPLACED, count);
        }
        __syncthreads();
        if (work->indices && block->position != GA_SPGEMM_NOWHERE) {
            GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0, columns, block->position);
        }
    }
    return count;
}

/* Compute a piece that is a large row. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_run_large)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                               ga_spgemm_piece piece, uint64_t position)
{
    uint64_t count = piece.bitmap == GA_SPGEMM_HASHED
                         ? GA_SPGEMM_OF(ga_spgemm_hash_row)(work, block, piece.row, position)
                     : piece.bitmap == GA_SPGEMM_NARROW
                         ? GA_SPGEMM_OF(ga_spgemm_narrow_row)(work, block, piece.row, position)
                         : GA_SPGEMM_OF(ga_spgemm_wide_row)(work, block, piece, position);
    if (position != GA_SPGEMM_UNPLACED) {
        block->position = position; /* all threads store one value */
    }
    if (threadIdx.x == 0 && block->position != GA_SPGEMM_NOWHERE) {
        GA_SPGEMM_OF(ga_spgemm_store_end)(work, block, piece.row, 0, 0, count);
    }
}
