/* SPDX-License-Identifier: MIT
 *
 * Large rows, each by all threads of a block, for one type of values: GA_SPGEMM_VALUE and
 * GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this file.
 */

GA_SIMT GA_SPGEMM_VALUE *GA_SPGEMM_OF(ga_spgemm_sums)(const ga_spgemm_work *work)
{
    return work->indices ? (GA_SPGEMM_VALUE *)ga_spgemm_shared : NULL;
}

/* Empty the tables of tiles. By all threads, which meet afterwards. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_empty_all)(const ga_spgemm_work *work)
{
    uint32_t *keys = ga_spgemm_keys(work, ga_spgemm_block_slots(work));
    GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    for (uint32_t at = threadIdx.x; at < ga_spgemm_block_slots(work); at += GA_SPGEMM_BLOCK) {
        keys[at] = GA_SPGEMM_EMPTY;
        if (sums) {
            sums[at] = 0;
        }
    }
    __syncthreads();
}

/* ---- a window of a row, by all threads ------------------------------------------------------- */

/* The table of a window: half as many slots as the tiles have, so that there is room for a list of
 * columns. It overlaps the tiles' tables: it must be emptied first, and they afterwards. */
GA_SIMT ga_spgemm_table GA_SPGEMM_OF(ga_spgemm_window_table)(const ga_spgemm_work *work)
{
    uint32_t slots = ga_spgemm_block_slots(work) / 2u;
    ga_spgemm_table table = ga_spgemm_table_of(ga_spgemm_keys(work, slots), slots);
    table.probes = GA_SPGEMM_PROBES;
    table.is_shared = true;
    return table;
}

/* Empty the table of a window, or make it of the tables of tiles. By all threads. */
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
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_window)(const ga_spgemm_work *work, uint64_t row,
                                                uint32_t low, uint32_t high, ga_spgemm_table *table)
{
    uint64_t first = work->a.offsets[row];
    ga_spgemm_part part = {
        first + threadIdx.x / 32u,          work->a.offsets[row + 1u], GA_SPGEMM_WARPS, low, high,
        low == 0 && high == work->b.columns};
    *table = GA_SPGEMM_OF(ga_spgemm_window_table)(work);
    if (high - low <= table->mask / 3u * 2u) { /* it fits */
        table->probes = (table->mask + 1u) / 4u;
    }
    bool fits = GA_SPGEMM_OF(ga_spgemm_add_part)(ga_tile_of(32), &work->a, &work->b, part, *table,
                                                 GA_SPGEMM_OF(ga_spgemm_sums)(work));
    if (__syncthreads_or(!fits)) {
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
                                                  uint32_t count, uint64_t position)
{
    const uint32_t *list = table.keys + table.mask + 1u;
    const GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work->values;
    for (uint32_t i = threadIdx.x; i < count; i += GA_SPGEMM_BLOCK) {
        uint32_t column = list[i];
        work->indices[position + i] = column;
        values[position + i] = sums[ga_spgemm_slot(table, column)];
    }
    __syncthreads();
}

/* The columns from `low` to below `high` of a row, cut into narrower windows as needed: stored from
 * `position` on, or counted. Returns the number of entries. The tables of the tiles are empty
 * afterwards. */
static __device__ __noinline__ uint64_t
GA_SPGEMM_OF(ga_spgemm_windows_of)(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t row,
                                   uint32_t low, uint32_t high, uint64_t position)
{
    uint32_t width = high - low;
    uint64_t entries = 0;
    __syncthreads();
    GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
    while (low < high) {
        ga_spgemm_table table;
        uint32_t end = high - low < width ? high : low + width;
        if (!GA_SPGEMM_OF(ga_spgemm_add_window)(work, row, low, end, &table)) {
            width = (end - low) / 2u + (end - low) % 2u;
            continue;
        }
        bool stores = work->indices && position != GA_SPGEMM_COUNTS;
        uint32_t count = GA_SPGEMM_OF(ga_spgemm_prepare_window)(work, block, table, stores, false);
        if (stores) {
            GA_SPGEMM_OF(ga_spgemm_store_window)(work, table, count, position);
            position += count;
        }
        GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
        entries += count;
        low = end;
        if (count < (table.mask + 1u) / 8u && width < 0x80000000u) {
            width *= 2u;
        }
    }
    GA_SPGEMM_OF(ga_spgemm_empty_all)(work);
    return entries;
}

/* Compute a window whose position is not known, if its table has room for all; *count is the number
 * of its entries. The tables of the tiles are empty afterwards. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_window_at_once)(const ga_spgemm_work *work,
                                                    ga_spgemm_block *block, uint64_t row,
                                                    uint32_t low, uint32_t high, uint64_t *count)
{
    ga_spgemm_table table;
    GA_SPGEMM_OF(ga_spgemm_empty_window)(work);
    bool fits = GA_SPGEMM_OF(ga_spgemm_add_window)(work, row, low, high, &table);
    if (fits) {
        *count = GA_SPGEMM_OF(ga_spgemm_prepare_window)(work, block, table, work->indices, true);
        if (threadIdx.x < 32u) {
            ga_spgemm_place(work, block, GA_SPGEMM_UNPLACED, *count);
        }
        __syncthreads();
        if (work->indices && block->position != GA_ORDER_NONE) {
            GA_SPGEMM_OF(ga_spgemm_store_window)(work, table, (uint32_t)*count, block->position);
        }
    }
    __syncthreads();
    GA_SPGEMM_OF(ga_spgemm_empty_all)(work);
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
        if (work->indices && block->position != GA_ORDER_NONE) {
            GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0, columns, block->position);
        }
    }
    return count;
}

/* ---- a dense row, by all threads ------------------------------------------------------------- */

/* Count, or store from `at` on and empty, the columns of a part of the words. Returns their number.
 * For a warp. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_take_dense)(const ga_spgemm_work *work,
                                                    ga_spgemm_table table, GA_SPGEMM_VALUE *sums,
                                                    uint64_t at, bool stores, bool empties)
{
    ga_tile tile = ga_tile_of(32);
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work->values;
    uint64_t words = (work->b.columns + 1023u) / 1024u, count = 0;
    uint64_t each = (words + GA_SPGEMM_WARPS - 1u) / GA_SPGEMM_WARPS;
    uint64_t word = threadIdx.x / 32u * each, end = word + each < words ? word + each : words;
    for (; word < end; word++) {
        uint32_t summary = __ldcg(table.summary + word);
        if (!summary) {
            continue;
        }
        bool is_used = (summary >> tile.lane) & 1u;
        uint32_t *own = table.bits + word * 32u + tile.lane;
        uint32_t bits = is_used ? __ldcg(own) : 0, n = ga_bits_count(bits);
        uint64_t to = at + count + ga_lanes_prefix_sum(tile, n);
        count += ga_lanes_sum(tile, n);
        for (; empties && bits; bits &= bits - 1u) {
            uint32_t column = ((uint32_t)word * 32u + tile.lane) * 32u + ga_bits_lowest(bits);
            if (stores) {
                work->indices[to] = column;
                values[to++] = __ldcg(sums + column);
            }
            sums[column] = 0;
        }
        if (empties && is_used) {
            *own = 0;
        }
        if (empties && tile.lane == 0) {
            table.summary[word] = 0;
        }
    }
    return count;
}

/* Compute a dense row, in a buffer of its own, by turns. Returns its number of entries. */
static __device__ __noinline__ uint64_t
GA_SPGEMM_OF(ga_spgemm_dense_row)(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t row,
                                  uint32_t number, uint64_t position)
{
    const ga_spgemm_dense *dense = &work->dense;
    uint32_t turn = number / dense->count, *turns = dense->turns + number % dense->count;
    char *buffer = dense->buffers + number % dense->count * dense->bytes;
    GA_SPGEMM_VALUE *sums = (GA_SPGEMM_VALUE *)buffer;
    uint32_t warp = threadIdx.x / 32u;
    ga_spgemm_table table = ga_spgemm_table_of(NULL, 4);
    table.bits = (uint32_t *)(buffer + dense->bits);
    table.summary = (uint32_t *)(buffer + dense->summary);
    table.is_shared = true;
    ga_spgemm_part part = ga_spgemm_whole_row(&work->a, row);
    part.first += warp;
    part.stride = GA_SPGEMM_WARPS;
    if (threadIdx.x == 0) {
        while (ga_load_acquire(turns) != turn) { /* DT2: acquire. Pairs with DT1: it is empty. */
            ga_clock_sleep(1000);
        }
    }
    __syncthreads();
    GA_SPGEMM_OF(ga_spgemm_add_part)
    (ga_tile_of(32), &work->a, &work->b, part, table, ga_spgemm_counts(work) ? NULL : sums);
    __syncthreads();
    uint32_t own = (uint32_t)GA_SPGEMM_OF(ga_spgemm_take_dense)(work, table, sums, 0, false, false);
    block->counts[warp] = own; /* all lanes store one value */
    __syncthreads();
    uint64_t count = 0, before = 0;
    for (uint32_t i = 0; i < GA_SPGEMM_WARPS; i++) {
        before += i < warp ? block->counts[i] : 0;
        count += block->counts[i];
    }
    if (position == GA_SPGEMM_UNPLACED) {
        if (threadIdx.x < 32u) {
            ga_spgemm_publish(work, block, count);
            ga_spgemm_place(work, block, position, count);
        }
        __syncthreads();
        position = block->position;
    }
    bool stores = !ga_spgemm_counts(work) && position != GA_ORDER_NONE;
    GA_SPGEMM_OF(ga_spgemm_take_dense)(work, table, sums, position + before, stores, true);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        ga_store_release(turns, turn + 1u); /* DT1: release. Pairs with DT2. */
    }
    return count;
}

/* Compute a piece that is a large row. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_run_large)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                               ga_spgemm_piece piece, uint64_t position)
{
    uint64_t count =
        piece.dense
            ? GA_SPGEMM_OF(ga_spgemm_dense_row)(work, block, piece.row, piece.dense - 1u, position)
            : GA_SPGEMM_OF(ga_spgemm_hash_row)(work, block, piece.row, position);
    position = position == GA_SPGEMM_UNPLACED ? block->position : position;
    if (position != GA_ORDER_NONE && threadIdx.x == 0 && !work->is_placed) {
        work->offsets[piece.row + 1u] =
            work->has_gaps || ga_spgemm_counts(work) ? count : position + count;
    }
}
