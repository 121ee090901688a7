/* SPDX-License-Identifier: MIT
 *
 * The kernel of rows_kernel.cuh for one type of values: GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are
 * as for row_tile.cuh.
 */

/* ---- whole rows, each by a tile -------------------------------------------------------------- */

/* Move the columns and sums of a table to its first slots, where it is no table any more. Returns
 * their number. */
GA_SIMT uint32_t GA_SPGEMM_OF(ga_spgemm_compact)(ga_tile tile, ga_spgemm_table table,
                                                 GA_SPGEMM_VALUE *sums)
{
    uint32_t count = 0;
    for (uint32_t at = tile.lane; at <= table.mask; at += tile.width) {
        uint32_t column = table.keys[at];
        GA_SPGEMM_VALUE sum = sums[at];
        uint32_t taken = ga_lanes_nonzero(tile, column != GA_SPGEMM_EMPTY);
        ga_tile_sync(tile);
        if (column != GA_SPGEMM_EMPTY) {
            uint32_t to = count + ga_bits_count(taken & ga_bits_below(tile.lane));
            table.keys[to] = column;
            sums[to] = sum;
        }
        count += ga_bits_count(taken);
    }
    ga_tile_sync(tile);
    return count;
}

/* Sort `count` compacted columns, at most n for each lane: each is stored with the number of its
 * slot. */
template <uint32_t n>
static __device__ __forceinline__ void
GA_SPGEMM_OF(ga_spgemm_sort_row)(ga_tile tile, uint32_t *keys, uint32_t count)
{
    uint32_t own[n];
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i * tile.width + tile.lane;
        own[i] = at < count ? keys[at] << GA_SPGEMM_SLOT_BITS | at : GA_SPGEMM_EMPTY;
    }
    ga_tile_sync(tile); /* the lanes store where others have loaded */
    ga_spgemm_sort_own(tile, own);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = tile.lane * n + i;
        if (at < count) {
            keys[at] = own[i];
        }
    }
    ga_tile_sync(tile);
}

/* Whether columns and slots have 32 bits together. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_sorts)(const ga_spgemm_work *work)
{
    return work->is_sorted && !(work->b.columns >> (32u - GA_SPGEMM_SLOT_BITS));
}

/* Sort compacted columns. All tiles of a warp call together; one without a row has none. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_sort_keys)(ga_tile tile, uint32_t *keys, uint32_t count)
{
    if (!ga_lanes_any(tile, count > 4u * tile.width)) {
        GA_SPGEMM_OF(ga_spgemm_sort_row)<4>(tile, keys, count);
    } else if (!ga_lanes_any(tile, count > 8u * tile.width)) {
        GA_SPGEMM_OF(ga_spgemm_sort_row)<8>(tile, keys, count);
    } else {
        GA_SPGEMM_OF(ga_spgemm_sort_row)<16>(tile, keys, count);
    }
}

/* Store compacted entries, each behind those with lower columns: for matrices with so many columns
 * that a column and the number of a slot have more than 32 bits. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_ranked)(ga_tile tile, const uint32_t *keys,
                                                  const GA_SPGEMM_VALUE *sums, uint32_t count,
                                                  uint32_t *indices, GA_SPGEMM_VALUE *values)
{
    for (uint32_t at = tile.lane; at < count; at += tile.width) {
        uint32_t column = keys[at], rank = 0;
        for (uint32_t i = 0; i < count; i++) {
            rank += keys[i] < column;
        }
        indices[rank] = column;
        values[rank] = sums[at];
    }
}

/* Store `count` compacted entries, sorted already if ga_spgemm_sorts(). */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_row)(const ga_spgemm_work *work, ga_tile tile,
                                               const uint32_t *keys, const GA_SPGEMM_VALUE *sums,
                                               uint32_t count, uint32_t *indices,
                                               GA_SPGEMM_VALUE *values)
{
    bool sorted = GA_SPGEMM_OF(ga_spgemm_sorts)(work);
    if (work->is_sorted && !sorted) {
        GA_SPGEMM_OF(ga_spgemm_store_ranked)(tile, keys, sums, count, indices, values);
        return;
    }
    for (uint32_t at = tile.lane; at < count; at += tile.width) {
        uint32_t key = keys[at];
        indices[at] = sorted ? key >> GA_SPGEMM_SLOT_BITS : key;
        values[at] = sums[sorted ? key & GA_SPGEMM_SLOT_MASK : at];
    }
}

/* Store the row of each tile that is one of the first block->done, at the block's place, and its
 * end. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_number)(const ga_spgemm_work *work,
                                                  const ga_spgemm_block *block, ga_tile tile,
                                                  uint64_t first, const uint32_t *keys,
                                                  const GA_SPGEMM_VALUE *sums, uint32_t count)
{
    uint32_t number = threadIdx.x / work->width;
    bool stores = number < block->done;
    uint32_t before = stores ? block->before[number] : 0;
    if (stores && tile.lane == 0) {
        GA_SPGEMM_OF(ga_spgemm_store_end)(work, block, first, number, before, count);
    }
    if (!ga_spgemm_counts(work)) {
        GA_SPGEMM_OF(ga_spgemm_store_row)
        (work, tile, keys, sums, stores ? count : 0, block->indices + before,
         (GA_SPGEMM_VALUE *)block->values + before);
    }
}

/* Empty the table of a tile. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_empty_own)(ga_tile tile, ga_spgemm_table table,
                                               GA_SPGEMM_VALUE *sums)
{
    ga_tile_sync(tile);
    if (sums) {
        GA_SPGEMM_OF(ga_spgemm_clear_sums)(tile, table, sums);
    }
    ga_spgemm_empty(tile, table);
}

/* The rows from `first` to `end`, each by a tile, up to the first that does not fit: block->done is
 * their number. If all fit, or `position` is known, they are stored; else nothing is. Returns the
 * position behind them. GA_SPGEMM_NOWHERE if there is no memory. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_rows)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                              uint64_t first, uint64_t end, uint64_t position)
{
    ga_tile tile = ga_tile_abreast(work->width);
    uint32_t number = threadIdx.x / work->width;
    uint32_t rows = (uint32_t)(end - first);
    GA_SPGEMM_OF(ga_spgemm_make_tables)(work, block);
    uint32_t *keys = ga_spgemm_keys(work, ga_spgemm_block_slots(work)) + number * work->slots;
    GA_SPGEMM_VALUE *sums = GA_SPGEMM_OF(ga_spgemm_sums)(work);
    sums = sums ? sums + number * work->slots : NULL;
    ga_spgemm_table table = ga_spgemm_table_of(keys, work->slots);
    ga_spgemm_part none = {0, 0, 1u, 0, 0, true, NULL};
    ga_spgemm_part part = number < rows ? ga_spgemm_whole_row(&work->a, first + number) : none;
    bool fits = GA_SPGEMM_OF(ga_spgemm_add_part)(tile, &work->a, &work->b, part, table, sums);
    uint32_t count = sums ? GA_SPGEMM_OF(ga_spgemm_compact)(tile, table, sums)
                          : ga_spgemm_count_columns(tile, table);
    if (tile.lane == 0) {
        block->counts[number] = fits ? count : GA_SPGEMM_NO_FIT;
    }
    __syncthreads();
    bool is_unplaced = position == GA_SPGEMM_UNPLACED;
    if (threadIdx.x < 32u) {
        ga_spgemm_sum_counts(work, block, first, rows);
        if (is_unplaced && block->done == rows) {
            ga_spgemm_publish(work, block, block->total);
        }
        if (!is_unplaced || block->done == rows) {
            GA_SPGEMM_OF(ga_spgemm_try_place)(work, block, position, first, rows, block->total);
        }
    }
    if (sums && GA_SPGEMM_OF(ga_spgemm_sorts)(work)) { /* while earlier pieces are computed */
        GA_SPGEMM_OF(ga_spgemm_sort_keys)(tile, keys, count);
    }
    __syncthreads();
    if (!is_unplaced || block->done == rows) {
        if (block->position == GA_SPGEMM_CROWDED) {
            GA_SPGEMM_OF(ga_spgemm_flush)(work, block, block->deferred - 1u);
            GA_SPGEMM_OF(ga_spgemm_find_place)(work, block, position, first, rows, block->total);
        }
        position = block->position;
        if (position != GA_SPGEMM_NOWHERE) {
            GA_SPGEMM_OF(ga_spgemm_store_number)(work, block, tile, first, keys, sums, count);
            position = position == GA_ORDER_LATER ? 0 : position + block->total;
        }
    }
    GA_SPGEMM_OF(ga_spgemm_empty_own)(tile, table, sums);
    return position;
}

/* Count the rows of the piece that do not fit into the table of a tile, by all threads, and find
 * the position of the piece. All rows are computed again then. */
static __device__ __noinline__ uint64_t GA_SPGEMM_OF(ga_spgemm_count_rows)(
    const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t first, uint64_t end)
{
    uint64_t all = 0;
    for (uint64_t row = first; row < end; row++) {
        uint64_t count = block->counts[row - first];
        if (count == GA_SPGEMM_NO_FIT) {
            count = GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0,
                                                       (uint32_t)work->b.columns, GA_SPGEMM_COUNTS);
        }
        if (ga_spgemm_counts(work) && threadIdx.x == 0) {
            work->offsets[row + 1u] = count;
        }
        all += count;
    }
    __syncthreads();
    if (threadIdx.x < 32u) {
        ga_spgemm_publish(work, block, all);
        ga_spgemm_place(work, block, GA_SPGEMM_UNPLACED, all);
    }
    __syncthreads();
    return block->position;
}

/* Compute a row of a piece, at a known position, by all threads. Returns the position behind it. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_large_row)(const ga_spgemm_work *work,
                                                   ga_spgemm_block *block, uint64_t row,
                                                   uint64_t position)
{
    uint64_t count = GA_SPGEMM_OF(ga_spgemm_windows_of)(work, block, row, 0,
                                                        (uint32_t)work->b.columns, position);
    if (threadIdx.x == 0 && !work->is_placed) {
        work->offsets[row + 1u] = work->has_gaps ? count : position + count;
    }
    return position + (work->has_gaps ? work->uppers[row] : count);
}

/* Compute a piece of whole rows. Its position is known if it is not GA_SPGEMM_UNPLACED. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_run_rows)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                              uint64_t row, uint64_t end, uint64_t position)
{
    while (row < end && position != GA_SPGEMM_NOWHERE) {
        bool was_unplaced = position == GA_SPGEMM_UNPLACED;
        position = GA_SPGEMM_OF(ga_spgemm_rows)(work, block, row, end, position);
        if (position == GA_SPGEMM_UNPLACED) {
            __syncthreads();
            position = GA_SPGEMM_OF(ga_spgemm_count_rows)(work, block, row, end);
            row = ga_spgemm_counts(work) ? end : row;
        } else if (position != GA_SPGEMM_NOWHERE) {
            row += was_unplaced ? end - row : block->done;
            if (row < end) {
                __syncthreads();
                position = GA_SPGEMM_OF(ga_spgemm_large_row)(work, block, row, position);
                row++;
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK, GA_SPGEMM_RESIDENT)
    GA_SPGEMM_OF(ga_spgemm_rows_kernel)(const __grid_constant__ ga_spgemm_work work)
{
    __shared__ ga_spgemm_block block;
    uint32_t each = GA_SPGEMM_BLOCK / work.width;
    ga_spgemm_begin_block(&block);
    for (;;) {
        if (threadIdx.x == 0) {
            /* relaxed: as where it is stored */
            block.piece = ga_load_relaxed(&work.totals->stop)
                              ? ~(uint64_t)0
                              : atomicAdd((unsigned long long *)&work.totals->tickets, 1ull);
        }
        if (threadIdx.x / 32u == 1u && work.store.capacity) { /* meanwhile */
            ga_spgemm_find_next(&work, &block);
        }
        __syncthreads();
        GA_SPGEMM_OF(ga_spgemm_settle_ready)(&work, &block);
        if (block.piece >= work.piece_count) {
            break;
        }
        uint64_t row = block.piece * each, left = work.a.rows - row;
        ga_spgemm_piece piece = {row, left < each ? (uint32_t)left : each, 0};
        if (work.pieces) {
            piece = work.pieces[block.piece];
            row = piece.row;
        }
        uint64_t position = GA_SPGEMM_UNPLACED;
        if (work.is_placed) {
            position = ga_spgemm_known(&work, block.piece);
        } else if (work.has_gaps) {
            if (threadIdx.x < 32u) {
                uint32_t length = 0; /* of all rows of the piece */
                for (uint32_t i = threadIdx.x; i < (piece.count ? piece.count : 1u); i += 32u) {
                    length += work.uppers[piece.row + i];
                }
                block.position = ga_order_position(ga_tile_of(32), work.order, block.piece,
                                                   ga_lanes_sum(ga_tile_of(32), length));
            }
            __syncthreads();
            position = block.position;
        }
        if (piece.count) {
            GA_SPGEMM_OF(ga_spgemm_run_rows)(&work, &block, row, row + piece.count, position);
        } else {
            GA_SPGEMM_OF(ga_spgemm_run_large)(&work, &block, piece, position);
        }
        __syncthreads();
    }
    if (block.deferred) {
        GA_SPGEMM_OF(ga_spgemm_flush)(&work, &block, 0);
    }
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
