/* SPDX-License-Identifier: MIT
 *
 * The kernels for all pairs of keys; part of device_code.cu. Blocks of GA_SHARDED_THREADS.
 */
#ifndef GPUALLOC_SHARDED_ALL_KERNEL_CUH
#define GPUALLOC_SHARDED_ALL_KERNEL_CUH

#include "all_team.h"
#include "sort_kernel.cuh"

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS)
    ga_sharded_order_kernel(ga_sharded_order order)
{
    uint32_t most = GA_SHARDED_SORT_MOST(order.is_wide);
    GA_SHARDED_EACH_RANGE(first, n, order.count, most)
    {
        ga_sharded_order_team(&order, first, (uint32_t)n, ga_sharded_shared_room());
    }
}

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS)
    ga_sharded_move_kernel(ga_sharded_move move)
{
    uint32_t most = GA_SHARDED_SORT_MOST(0);
    GA_SHARDED_EACH_RANGE(first, n, move.count, most)
    {
        ga_sharded_move_team(&move, first, (uint32_t)n);
    }
}

#endif
