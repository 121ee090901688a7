/* SPDX-License-Identifier: MIT
 *
 * The kernels of GA_SPGEMM_KERNEL_DOT: a thread for each row (vmm-spgemm-2023, Listing 2.1). Part
 * of device_code.cu.
 *
 * STRUCTURE  Each row is a piece, with a word in `work.order`. A warp takes 32 rows.
 *
 * ORDER, PROGRESS  as order_tile.h, if each row gets as many positions as its upper bound; else
 *            nothing waits.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_DOT_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_DOT_KERNEL_CUH

#include "../dot.h"
#include "../order_tile.h"
#include "dynamic_kernel.cuh"

/* The positions of 32 rows at their upper bounds, each in a lane. For a warp. */
GA_SIMT uint64_t ga_dot_place(const ga_spgemm_work *work, uint64_t row)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t length = row < work->a.rows ? work->uppers[row] : 0;
    uint64_t before = ga_lanes_prefix_sum(tile, length >> 16);
    before = (before << 16) + ga_lanes_prefix_sum(tile, length & 0xffffu);
    if (row < work->a.rows) {
        ga_store64_relaxed(work->order + row, GA_ORDER_LENGTH | length); /* relaxed: order_tile.h */
    }
    uint64_t position = ga_order_before(tile, work->order, row - tile.lane) + before;
    if (row < work->a.rows) {
        ga_store64_relaxed(work->order + row, GA_ORDER_END | (position + length)); /* as above */
    }
    return position;
}

/* The position of a lane's row; 0 if entries are counted only. For a warp. */
GA_SIMT uint64_t ga_dot_position(const ga_spgemm_work *work, uint64_t row)
{
    if (work->has_gaps) {
        return ga_dot_place(work, row);
    }
    return work->is_placed && row < work->a.rows ? work->offsets[row] : 0;
}

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "dot_of_kernel.cuh"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "dot_of_kernel.cuh"

#endif
