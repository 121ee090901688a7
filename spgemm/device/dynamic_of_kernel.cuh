/* SPDX-License-Identifier: MIT
 *
 * The kernel of a round for one type of values: GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are as for
 * row_tile.cuh. dynamic_kernel.cuh includes this file.
 */

/* The list of the caller's tile, in the dynamic shared memory. */
GA_SIMT GA_SPGEMM_OF(ga_merge_list) GA_SPGEMM_OF(ga_spgemm_spare)(uint32_t width, uint32_t size)
{
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)ga_spgemm_shared;
    uint32_t *columns = (uint32_t *)(values + GA_SPGEMM_BLOCK / width * size);
    uint32_t before = threadIdx.x / width * size;
    GA_SPGEMM_OF(ga_merge_list) spare = {columns + before, values + before};
    return spare;
}

/* Merge the pieces of a round. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_fill_round)(const ga_spgemm_work *work,
                                                const ga_spgemm_round *round)
{
    ga_tile tile = ga_tile_abreast(work->width);
    GA_SPGEMM_OF(ga_merge_list) spare = GA_SPGEMM_OF(ga_spgemm_spare)(work->width, round->size);
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work->values;
    ga_spgemm_own_piece own;
    while (ga_spgemm_take_pieces(work, round, 32u / work->width, &own)) {
        uint64_t to = own.number * round->size;
        GA_SPGEMM_OF(ga_merge_list) out = {work->indices + to, values + to};
        uint64_t at = own.is_there ? work->a.offsets[own.row] : 0;
        uint64_t end = own.is_there ? work->a.offsets[own.row + 1u] : 0;
        uint32_t cursor = own.is_there ? round->cursors[own.row] : 0;
        ga_spgemm_progress merged = GA_SPGEMM_OF(ga_merge_row)(tile, &work->a, &work->b, at, end,
                                                               cursor, out, spare, round->size);
        ga_spgemm_end_piece(work, round, own.row, own.is_there && tile.lane == 0, merged);
    }
}

extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    GA_SPGEMM_OF(ga_spgemm_round_kernel)(const __grid_constant__ ga_spgemm_work work,
                                         const __grid_constant__ ga_spgemm_round round)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        round.starts[round.number] = round.first;
    }
    GA_SPGEMM_OF(ga_spgemm_fill_round)(&work, &round);
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
