/* SPDX-License-Identifier: MIT
 *
 * Makes positions of lengths, after a kernel that counted the entries. Part of device_code.cu.
 *
 * STRUCTURE  A warp takes 32 pieces, each lane one.
 *
 * ORDER, PROGRESS  as order_tile.h, with `ends` as words for the warps.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_SCAN_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_SCAN_KERNEL_CUH

#include "../order_tile.h"
#include "rows_kernel.cuh"

/* The rows of a piece. */
GA_SIMT uint32_t ga_spgemm_rows_of(const ga_spgemm_work *work, uint64_t number, uint64_t *row)
{
    uint32_t each = GA_SPGEMM_BLOCK / work->width;
    *row = number * each;
    if (work->pieces) {
        ga_spgemm_piece piece = work->pieces[number];
        *row = piece.row;
        return piece.count ? piece.count : 1u;
    }
    return work->a.rows - *row < each ? (uint32_t)(work->a.rows - *row) : each;
}

/* Replace the lengths of rows by their ends. By one lane. */
GA_SIMT void ga_spgemm_end_rows(const ga_spgemm_work *work, uint64_t number, uint64_t begin,
                                uint64_t end)
{
    uint64_t row;
    uint32_t rows = ga_spgemm_rows_of(work, number, &row);
    for (uint32_t i = 0; i + 1u < rows; i++) {
        begin += work->offsets[row + i + 1u];
        work->offsets[row + i + 1u] = begin;
    }
    work->offsets[row + rows] = end;
}

/* `ends` has a zeroed word for each 32 pieces. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_scan_kernel(const __grid_constant__ ga_spgemm_work work, uint64_t *ends)
{
    ga_tile tile = ga_tile_of(32);
    for (;;) {
        uint64_t ticket = 0;
        if (tile.lane == 0) {
            ticket = atomicAdd((unsigned long long *)&work.totals->tickets, 1ull);
        }
        ticket = __shfl_sync(GA_ALL_BITS, ticket, 0);
        uint64_t number = ticket * 32u + tile.lane;
        if (ticket * 32u >= work.piece_count) {
            return;
        }
        bool is_piece = number < work.piece_count;
        /* One length has 32 bits, but the sum of 32 may have more. */
        uint32_t length = is_piece ? (uint32_t)work.order[number] : 0, low = length & 0xffffu;
        uint64_t before = ga_lanes_prefix_sum(tile, length >> 16);
        before = (before << 16) + ga_lanes_prefix_sum(tile, low);
        uint64_t all = ga_order_sum(tile, length, GA_ALL_BITS);
        uint64_t begin = ga_order_position(tile, ends, ticket, all) + before;
        if (is_piece) {
            work.order[number] = GA_ORDER_END | (begin + length);
            ga_spgemm_end_rows(&work, number, begin, begin + length);
        }
    }
}

#endif
