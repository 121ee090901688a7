/* SPDX-License-Identifier: MIT
 *
 * The kernels of a batch over shards; part of device_code.cu. Blocks of GA_SHARDED_THREADS.
 */
#ifndef GPUALLOC_SHARDED_SORT_KERNEL_CUH
#define GPUALLOC_SHARDED_SORT_KERNEL_CUH

#include "sort_team.h"

enum {
    GA_SHARDED_RESIDENT = 2, /* blocks of a multiprocessor */
    GA_SHARDED_AT_ONCE = 8   /* loads of a thread that are in flight together */
};

/* The dynamic shared memory of a kernel that uses ga_sharded_shared_room(). */
extern __shared__ uint4 ga_sharded_shared[];

/* The least that a multiprocessor has is 64 KiB (sm_75). */
static_assert(sizeof(ga_sharded_room) + 16 <= 65536, "a room does not fit");

static __device__ ga_sharded_room *ga_sharded_shared_room(void)
{
    return (ga_sharded_room *)(void *)ga_sharded_shared;
}

/* The range of requests of each step of a block. */
#define GA_SHARDED_EACH_RANGE(first, n, count, most)                                               \
    for (uint64_t first = (uint64_t)blockIdx.x * (most), n;                                        \
         first < (count) && (n = (count)-first < (most) ? (count)-first : (most), true);           \
         first += (uint64_t)gridDim.x * (most))

/* Adds the requests of each bin to its cursor, which is 0 before. */
template <uint32_t is_wide> static __device__ void ga_sharded_count(const ga_sharded_sort &sort)
{
    __shared__ uint32_t counts[GA_SHARDED_BINS];
    uint32_t bins = ga_sharded_bins(&sort.division);
    GA_TEAM_EACH(bin, bins)
    {
        counts[bin] = 0;
    }
    __syncthreads();
    uint64_t step = (uint64_t)gridDim.x * GA_SHARDED_THREADS;
    for (uint64_t at = (uint64_t)blockIdx.x * GA_SHARDED_THREADS + threadIdx.x; at < sort.count;
         at += step * GA_SHARDED_AT_ONCE) {
        uint64_t keys[GA_SHARDED_AT_ONCE];
        GA_UNROLL
        for (uint32_t k = 0; k < GA_SHARDED_AT_ONCE; k++) {
            uint64_t i = at + k * step;
            keys[k] =
                ga_sharded_load(sort.keys, i < sort.count ? i : at, GA_SHARDED_WIDTH(is_wide));
        }
        GA_UNROLL
        for (uint32_t k = 0; k < GA_SHARDED_AT_ONCE; k++) {
            if (at + k * step < sort.count) {
                atomicAdd(counts + ga_sharded_bin(&sort.division, keys[k]), 1u);
            }
        }
    }
    __syncthreads();
    GA_TEAM_EACH(bin, bins)
    {
        if (counts[bin]) {
            atomicAdd(sort.cursors + bin, counts[bin]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS)
    ga_sharded_count_kernel(ga_sharded_sort sort)
{
    if (sort.is_wide) {
        ga_sharded_count<1>(sort);
    } else {
        ga_sharded_count<0>(sort);
    }
}

/* The cursors are 0 before. */
extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS, GA_SHARDED_RESIDENT)
    ga_sharded_combine_kernel(ga_sharded_sort sort)
{
    ga_sharded_room *room = ga_sharded_shared_room();
    uint32_t most = GA_SHARDED_SORT_MOST(sort.is_wide);
    GA_SHARDED_EACH_RANGE(first, n, sort.count, most)
    {
        if (sort.is_wide) {
            ga_sharded_combine_team(&sort, first, (uint32_t)n, 1, room);
        } else {
            ga_sharded_combine_team(&sort, first, (uint32_t)n, 0, room);
        }
    }
}

/* A block for each bin. */
extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS)
    ga_sharded_pad_kernel(ga_sharded_pad pad)
{
    for (uint32_t bin = blockIdx.x; bin < pad.bins; bin += gridDim.x) {
        ga_sharded_pad_team(&pad, bin);
    }
}

template <uint32_t is_wide> static __device__ void ga_sharded_sort_all(const ga_sharded_sort &sort)
{
    GA_SHARDED_EACH_RANGE(first, n, sort.count, GA_SHARDED_SORT_MOST(is_wide))
    {
        ga_sharded_sort_team(&sort, first, (uint32_t)n, is_wide, ga_sharded_shared_room());
    }
}

/* The cursors are where the bins begin. A kernel for each width: in a common one the wide variant
 * would spill registers. */
extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS, GA_SHARDED_RESIDENT)
    ga_sharded_sort_kernel(ga_sharded_sort sort)
{
    ga_sharded_sort_all<0>(sort);
}

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS, GA_SHARDED_RESIDENT)
    ga_sharded_sort_wide_kernel(ga_sharded_sort sort)
{
    ga_sharded_sort_all<1>(sort);
}

template <uint32_t is_wide>
static __device__ void ga_sharded_gather_all(const ga_sharded_gather &gather)
{
    __shared__ uint32_t counts[GA_SHARDED_RESULTS];
    uint32_t own[GA_SHARDED_RESULTS] = {0, 0, 0, 0};
    if (threadIdx.x < GA_SHARDED_RESULTS) {
        counts[threadIdx.x] = 0;
    }
    __syncthreads();
    GA_SHARDED_EACH_RANGE(first, n, gather.count, GA_SHARDED_SORT_MOST(is_wide))
    {
        ga_sharded_gather_team(&gather, first, (uint32_t)n, is_wide, ga_sharded_shared_room(), own);
    }
    if (!gather.totals) {
        return;
    }
    GA_UNROLL
    for (uint32_t kind = 0; kind < GA_SHARDED_RESULTS; kind++) {
        if (own[kind]) {
            atomicAdd(counts + kind, own[kind]);
        }
    }
    __syncthreads();
    if (threadIdx.x < GA_SHARDED_RESULTS && counts[threadIdx.x]) {
        atomicAdd((ga_team_long *)gather.totals + threadIdx.x, (ga_team_long)counts[threadIdx.x]);
    }
}

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS, GA_SHARDED_RESIDENT)
    ga_sharded_gather_kernel(ga_sharded_gather gather)
{
    ga_sharded_gather_all<0>(gather);
}

extern "C" __global__ void __launch_bounds__(GA_SHARDED_THREADS, GA_SHARDED_RESIDENT)
    ga_sharded_gather_wide_kernel(ga_sharded_gather gather)
{
    ga_sharded_gather_all<1>(gather);
}

#endif
