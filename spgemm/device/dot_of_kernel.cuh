/* SPDX-License-Identifier: MIT
 *
 * The kernels of dot_kernel.cuh for one type of values: GA_SPGEMM_VALUE and GA_SPGEMM_OF(name) are
 * as for row_tile.cuh. `columns` is the transpose of B.
 */

/* Whole rows: counted, or stored at their positions. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    GA_SPGEMM_OF(ga_spgemm_dot_kernel)(const __grid_constant__ ga_spgemm_work work,
                                       const __grid_constant__ ga_csr columns)
{
    ga_spgemm_round all = {0};
    all.all = all.active = work.a.rows;
    ga_spgemm_own_piece own;
    while (ga_spgemm_take_pieces(&work, &all, 32u, &own)) {
        uint64_t to = ga_dot_position(&work, own.number);
        if (!own.is_there) {
            continue;
        }
        uint32_t *indices = work.indices ? work.indices + to : NULL;
        GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work.values + to;
        uint32_t count = GA_SPGEMM_OF(ga_dot_row)(&work.a, &columns, own.row, 0, GA_DOT_NO_LIMIT,
                                                  indices, values)
                             .count;
        if (!work.is_placed) {
            work.offsets[own.row + 1u] = count;
        }
        if (!work.indices) {
            work.order[own.row] = GA_ORDER_LENGTH | count;
        }
    }
}

/* The pieces of a round of GA_SPGEMM_DYNAMIC. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    GA_SPGEMM_OF(ga_spgemm_dot_round_kernel)(const __grid_constant__ ga_spgemm_work work,
                                             const __grid_constant__ ga_spgemm_round round,
                                             const __grid_constant__ ga_csr columns)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        round.starts[round.number] = round.first;
    }
    ga_spgemm_own_piece own;
    while (ga_spgemm_take_pieces(&work, &round, 32u, &own)) {
        ga_spgemm_progress progress = {0, 0, false};
        uint64_t to = own.number * round.size;
        if (own.is_there) {
            progress = GA_SPGEMM_OF(ga_dot_row)(&work.a, &columns, own.row, round.cursors[own.row],
                                                round.size, work.indices + to,
                                                (GA_SPGEMM_VALUE *)work.values + to);
        }
        __syncwarp(GA_ALL_BITS);
        ga_spgemm_end_piece(&work, &round, own.row, own.is_there, progress);
    }
}

#undef GA_SPGEMM_VALUE
#undef GA_SPGEMM_OF
