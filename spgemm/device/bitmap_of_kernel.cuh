/* SPDX-License-Identifier: MIT
 *
 * Large rows, each by all threads of a block with a bitmap of its columns, for one type of values:
 * GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this
 * file.
 */

/* Mark the columns of a row; or add the products to `sums`, at their ranks. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_add_row)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                             uint64_t row, GA_SPGEMM_VALUE *sums)
{
    ga_spgemm_table table = ga_spgemm_table_of(NULL, 4);
    table.bitmap = &block->bitmap;
    table.is_shared = true;
    GA_SPGEMM_OF(ga_spgemm_add_together)
    (work, block, ga_spgemm_whole_row(&work->a, row), table, sums);
}

/* Store the entries of the marked columns at their place. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_marked)(const ga_spgemm_work *work,
                                                  ga_spgemm_block *block, uint64_t row)
{
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)block->values;
    for (uint32_t i = threadIdx.x / 32u; i < GA_SPGEMM_SEGMENTS; i += GA_SPGEMM_WARPS) {
        ga_spgemm_rank_segment(&block->bitmap, i, block->before[i], block->indices);
    }
    for (uint32_t i = threadIdx.x; i < block->total; i += GA_SPGEMM_BLOCK) {
        values[i] = 0;
    }
    block->bitmap.is_ranked = true; /* all threads store one value */
    __syncthreads();
    GA_SPGEMM_OF(ga_spgemm_add_row)(work, block, row, values);
}

/* Compute a row for which the block's bitmap was opened. The row is the block's piece: find its
 * position, unless that is known. Returns its number of entries. */
static __device__ __noinline__ uint64_t GA_SPGEMM_OF(ga_spgemm_bitmap_row)(
    const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t row, uint64_t position)
{
    GA_SPGEMM_OF(ga_spgemm_add_row)(work, block, row, NULL);
    ga_spgemm_count_bitmap(block);
    uint64_t count = block->total;
    if (position == GA_SPGEMM_UNPLACED && threadIdx.x < 32u) {
        ga_spgemm_publish(work, block, count);
    }
    GA_SPGEMM_OF(ga_spgemm_find_place)(work, block, position, row, 1, count);
    if (!ga_spgemm_counts(work) && block->position != GA_SPGEMM_NOWHERE) {
        GA_SPGEMM_OF(ga_spgemm_store_marked)(work, block, row);
    }
    ga_spgemm_clear_bitmap(&block->bitmap);
    return count;
}

/* Compute a wide row with a bitmap in device memory. Returns its number of entries. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_wide_row)(const ga_spgemm_work *work,
                                                  ga_spgemm_block *block, ga_spgemm_piece piece,
                                                  uint64_t position)
{
    uint32_t number = piece.bitmap - 1u;
    bool by_turns = work->buffers.count < gridDim.x;
    uint32_t own = by_turns ? number % work->buffers.count : blockIdx.x;
    uint32_t turn = number / work->buffers.count, *turns = work->buffers.turns + own;
    if (by_turns && threadIdx.x == 0) {
        /* XT2: acquire. Pairs with XT1: the bitmap is clear. */
        while (ga_load_acquire(turns) != turn) {
            ga_clock_sleep(1000);
        }
    }
    ga_spgemm_use_buffer(work, block, own);
    ga_spgemm_open_bitmap(&block->bitmap, 0, (uint32_t)work->b.columns, work->buffers.chunk_log);
    uint64_t count = GA_SPGEMM_OF(ga_spgemm_bitmap_row)(work, block, piece.row, position);
    block->bitmap.is_wide = false; /* all threads store one value */
    if (by_turns) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            ga_store_release(turns, turn + 1u); /* XT1: release. Pairs with XT2. */
        }
    }
    return count;
}

/* Compute a large row whose columns fit into a bitmap in shared memory. Returns its number of
 * entries. */
GA_SIMT uint64_t GA_SPGEMM_OF(ga_spgemm_narrow_row)(const ga_spgemm_work *work,
                                                    ga_spgemm_block *block, uint64_t row,
                                                    uint64_t position)
{
    ga_spgemm_make_bitmap(work, block);
    ga_spgemm_span_of_row(work, block, row);
    uint32_t low = block->bitmap.low, high = block->bitmap.high;
    __syncthreads();
    ga_spgemm_open_bitmap(&block->bitmap, low, high, GA_SPGEMM_CHUNK_LOG);
    return GA_SPGEMM_OF(ga_spgemm_bitmap_row)(work, block, row, position);
}
