/* SPDX-License-Identifier: MIT
 *
 * Sorts the columns of a row in the registers of a tile. Part of device_code.cu.
 *
 * STRUCTURE  Lane i has the elements i * n to i * n + n - 1, in n registers. A bitonic network
 *            exchanges elements that are less than n apart within a lane, others by shuffles. An
 *            element is a column with the number of its slot in the lower bits, so that the sum
 *            can be found afterwards.
 *
 * All tiles of a warp call together, each with a row of its own.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_SORT_TILE_CUH
#define GPUALLOC_SPGEMM_DEVICE_SORT_TILE_CUH

#include "row_tile.cuh"

#define GA_SPGEMM_SLOT_BITS 9u /* tables of tiles have at most 512 slots */
#define GA_SPGEMM_SLOT_MASK ((1u << GA_SPGEMM_SLOT_BITS) - 1u)

/* Compare elements that are `apart`, with a multiple of n, in ascending or descending order. */
template <uint32_t n>
static __device__ __forceinline__ void ga_spgemm_compare_lanes(ga_tile tile, uint32_t (&own)[n],
                                                               uint32_t lanes_apart, bool ascends)
{
    bool is_lower = !(tile.lane & lanes_apart);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = __shfl_xor_sync(GA_ALL_BITS, own[i], (int)lanes_apart);
        uint32_t least = own[i] < other ? own[i] : other, most = own[i] < other ? other : own[i];
        own[i] = is_lower == ascends ? least : most;
    }
}

/* Compare elements that are n / 2, ..., 1 apart, with runs of `run` elements. */
template <uint32_t n>
static __device__ __forceinline__ void ga_spgemm_compare_own(ga_tile tile, uint32_t (&own)[n],
                                                             uint32_t run)
{
#pragma unroll
    for (uint32_t apart = n / 2u; apart; apart /= 2u) {
        if (apart < run) {
#pragma unroll
            for (uint32_t pair = 0; pair < n / 2u; pair++) {
                uint32_t low = pair + (pair & ~(apart - 1u)), high = low + apart;
                bool ascends = !((tile.lane * n + low) & run);
                uint32_t least = own[low] < own[high] ? own[low] : own[high];
                uint32_t most = own[low] < own[high] ? own[high] : own[low];
                own[low] = ascends ? least : most;
                own[high] = ascends ? most : least;
            }
        }
    }
}

/* Sort the n elements of each lane as one sequence of the tile. */
template <uint32_t n>
static __device__ __forceinline__ void ga_spgemm_sort_own(ga_tile tile, uint32_t (&own)[n])
{
#pragma unroll
    for (uint32_t run = 2; run <= n; run *= 2u) {
        ga_spgemm_compare_own(tile, own, run);
    }
    for (uint32_t lanes = 2; lanes <= tile.width; lanes *= 2u) {
        for (uint32_t apart = lanes / 2u; apart; apart /= 2u) {
            ga_spgemm_compare_lanes(tile, own, apart, !(tile.lane & lanes));
        }
        ga_spgemm_compare_own(tile, own, lanes * n);
    }
}

/* ---- in shared memory ------------------------------------------------------------------------ */

/* The lower element of pair number `pair` of a stage of a bitonic network, which compares elements
 * that are `apart` (a power of two). */
GA_SIMT uint32_t ga_spgemm_lower(uint32_t pair, uint32_t apart)
{
    return pair + (pair & ~(apart - 1u));
}

/* Compare and exchange the elements of a pair, in runs of `run` elements. By one lane. */
GA_SIMT void ga_spgemm_exchange(uint32_t *columns, uint32_t low, uint32_t apart, uint32_t run)
{
    uint32_t lower = columns[low], upper = columns[low + apart];
    if ((lower > upper) == !(low & run)) {
        columns[low] = upper;
        columns[low + apart] = lower;
    }
}

#endif
