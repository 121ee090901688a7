/* SPDX-License-Identifier: MIT
 *
 * What all threads of a block do together for a large row, for one type of values: GA_SPGEMM_VALUE
 * and GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this file.
 */

/* Add a part of a row by all tiles of the block, each taking some of its entries. False if the
 * table is full. The threads meet afterwards. */
GA_SIMT bool GA_SPGEMM_OF(ga_spgemm_add_together)(const ga_spgemm_work *work,
                                                  ga_spgemm_block *block, ga_spgemm_part part,
                                                  ga_spgemm_table table, GA_SPGEMM_VALUE *sums)
{
    ga_tile tile = ga_tile_abreast(work->width);
    uint32_t number = threadIdx.x / work->width, tiles = GA_SPGEMM_BLOCK / work->width;
    part.first += number;
    part.stride = tiles;
    part.longs = &block->longs;
    bool fits = GA_SPGEMM_OF(ga_spgemm_add_part)(tile, &work->a, &work->b, part, table, sums);
    fits = !__syncthreads_or(!fits);
    if (block->longs.count) {
        fits = fits && GA_SPGEMM_OF(ga_spgemm_add_longs)(tile, number, tiles, &work->a, &work->b,
                                                         &block->longs, table, sums);
        fits = !__syncthreads_or(!fits);
        block->longs.count = 0; /* all threads store one value */
        __syncthreads();
    }
    return fits;
}
