/* SPDX-License-Identifier: MIT
 *
 * Tiles and lanes on the GPU. The comments in lanes_cpu.h say what each function does.
 *
 * This half stays small, because no sanitizer detects races between lanes, or a scope that is too
 * narrow. tests/device/ has litmus tests, and compares each function with lanes_cpu.h.
 */
#ifndef GPUALLOC_SIMT_LANES_GPU_H
#define GPUALLOC_SIMT_LANES_GPU_H

#include "atomic.h"

typedef uint32_t ga_lanes;

typedef struct ga_tile {
    uint32_t width; /* lanes are numbered from 0 to width - 1 */
    uint32_t lane;  /* this lane's number */
    uint32_t mask;  /* the lanes of the warp that are in the tile */
    uint32_t base;  /* the lane of the warp that is lane 0 of the tile */
    bool has_gaps;  /* lanes may be missing */
} ga_tile;

#define GA_SIMT_LOADS  4u
#define GA_SIMT_UNROLL _Pragma("unroll")

/* ---- tiles ------------------------------------------------------------------------------- */

GA_SIMT uint32_t ga_warp_lane(void)
{
#ifdef GA_SIMT_EMULATED
    return ga_emulated_lane();
#else
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#endif
}

/* blockDim.x, read again by each call. The program reads it too, mostly for the number of its
 * thread, and nvcc would make one value of both. The assembler then keeps that value during a call
 * of the allocator, in local memory. */
GA_SIMT uint32_t ga_block_width(void)
{
#ifdef GA_SIMT_EMULATED
    return blockDim.x;
#else
    uint32_t width;
    asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(width));
    return width;
#endif
}

/* The clock, which differs in each call. */
GA_SIMT uint32_t ga_tile_noise(void)
{
#if defined GA_SIMT_NO_NOISE || defined GA_SIMT_EMULATED
    return 0;
#else
    uint32_t ticks;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(ticks));
    return ticks;
#endif
}

GA_SIMT uint32_t ga_multiprocessor(void)
{
#ifdef GA_SIMT_EMULATED
    return 0;
#else
    uint32_t number;
    /* volatile, so that only the branch that needs it reads it */
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
#endif
}

/* The number of lanes of the grid's blocks behind this one, which mostly have not begun. */
GA_SIMT uint64_t ga_grid_lanes_later(void)
{
    uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    uint64_t block = blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    return (blocks - block - 1u) * blockDim.x * blockDim.y * blockDim.z;
}

GA_SIMT ga_tile ga_tile_of(uint32_t width)
{
    ga_tile tile;
    uint32_t lane = ga_warp_lane();
    tile.width = width;
    tile.has_gaps = false;
    if (width == 32u) { /* a constant mask saves a check at each shuffle */
        tile.lane = lane;
        tile.base = 0;
        tile.mask = GA_ALL_BITS;
        return tile;
    }
    tile.lane = lane & (width - 1u);
    tile.base = lane - tile.lane;
    tile.mask = ga_bits_below(width) << tile.base;
    return tile;
}

/* Ballots and shuffles are those of the whole warp, whose mask the compiler knows. */
GA_SIMT ga_tile ga_tile_abreast(uint32_t width)
{
    ga_tile tile = ga_tile_of(width);
    tile.mask = GA_ALL_BITS;
    return tile;
}

GA_SIMT ga_tile ga_tile_among(uint32_t lanes)
{
    ga_tile tile;
    tile.width = 32;
    tile.lane = ga_warp_lane();
    tile.base = 0;
    tile.mask = lanes;
    tile.has_gaps = true;
    return tile;
}

/* The active lanes. The compiler (nvcc 13.0) assumes that the result of a ballot is equal in all
 * running lanes, and keeps it, and values derived from it, in registers of the whole warp. But
 * tiles that have diverged may run together again, at the same instruction of a loop or function;
 * then one would go on with the other's mask (docs/internals/simt.md). So this adds a bit that is
 * never set, which the compiler does not know: that makes the mask a value of each lane.
 * tests/device/simt_meet.cu checks it. */
GA_SIMT uint32_t ga_warp_present(void)
{
    uint32_t below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below)); /* bits 0 to 30 in lane 31 */
    return __activemask() | below >> 31;
}

GA_SIMT ga_tile ga_tile_present(void)
{
    return ga_tile_among(ga_warp_present());
}

GA_SIMT bool ga_warp_is_whole(uint32_t lanes)
{
    return lanes == GA_ALL_BITS;
}

GA_SIMT uint32_t ga_tile_lanes(ga_tile tile)
{
    return tile.has_gaps ? tile.mask : ga_bits_below(tile.width);
}

GA_SIMT uint32_t ga_tile_members(ga_tile tile)
{
    return tile.mask;
}

GA_SIMT uint32_t ga_tile_size(ga_tile tile)
{
    return tile.has_gaps ? ga_bits_count(tile.mask) : tile.width;
}

GA_SIMT ga_lanes ga_tile_ranks(ga_tile tile)
{
    return tile.has_gaps ? ga_bits_count(tile.mask & ga_bits_below(tile.lane)) : tile.lane;
}

GA_SIMT void ga_tile_sync(ga_tile tile)
{
    __syncwarp(tile.mask);
}

/* The assembler (ptxas 13.0) uses the first loaded values before it issues the other loads, and no
 * barrier prevents that. A branch with an unknown condition does; it is never taken. */
GA_SIMT void ga_tile_gate(ga_tile tile)
{
    (void)tile;
#ifndef GA_SIMT_EMULATED
    uint32_t blocks;
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
    if (!blocks) {
        __trap();
    }
#endif
}

/* One fence for all lanes, after they have met: the accesses of each lane then come before the
 * fence of the leader, in the order of PTX, and equally before that of every other lane. A
 * release-only fence leaves the multiprocessor's cache alone. */
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
#define GA_SIMT_FENCE_RELEASE "fence.release."
#else
#define GA_SIMT_FENCE_RELEASE "fence.acq_rel."
#endif
#ifdef GA_SIMT_EMULATED
#define GA_SIMT_FENCE(scope) __threadfence()
#else
#define GA_SIMT_FENCE(scope)                                                                       \
    asm volatile(GA_SIMT_FENCE_RELEASE GA_SIMT_SCOPE_##scope ";" ::: "memory")
#endif
#define GA_SIMT_DEFINE_PUBLISH(suffix, scope)                                                      \
    GA_SIMT void ga_tile_publish##suffix(ga_tile tile)                                             \
    {                                                                                              \
        __syncwarp(tile.mask);                                                                     \
        GA_SIMT_FENCE(scope);                                                                      \
    }
GA_SIMT_DEFINE_PUBLISH(, device)
GA_SIMT_DEFINE_PUBLISH(_block, block)
GA_SIMT_DEFINE_PUBLISH(_system, system)

/* ---- lanes ------------------------------------------------------------------------------- */

#define GA_EACH_LANE(tile, mask, own)                                                              \
    for (uint32_t own = (tile).lane, here_ = ((mask) >> own) & 1u; here_; here_ = 0)

GA_SIMT uint32_t ga_lane_read(ga_lanes lanes, uint32_t lane)
{
    (void)lane;
    return lanes;
}

GA_SIMT void ga_lane_write(ga_lanes *lanes, uint32_t lane, uint32_t value)
{
    (void)lane;
    *lanes = value;
}

GA_SIMT ga_lanes ga_lanes_all(uint32_t value)
{
    return value;
}

GA_SIMT ga_lanes ga_lanes_numbers(ga_tile tile)
{
    return tile.lane;
}

GA_SIMT uint32_t ga_lanes_get(ga_tile tile, ga_lanes lanes, uint32_t lane)
{
    return __shfl_sync(tile.mask, lanes, (int)lane, (int)tile.width);
}

GA_SIMT uint32_t ga_lanes_pick(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    uint32_t votes = __ballot_sync(tile.mask, (among >> tile.lane) & 1u);
    return __shfl_sync(tile.mask, lanes, __ffs((int)(votes & tile.mask)) - 1);
}

GA_SIMT ga_lanes ga_lanes_from(ga_tile tile, ga_lanes lanes, ga_lanes from)
{
    return __shfl_sync(tile.mask, lanes, (int)from, (int)tile.width);
}

GA_SIMT ga_lanes ga_lanes_select(ga_tile tile, uint32_t chosen, ga_lanes yes, ga_lanes no)
{
    return (chosen >> tile.lane) & 1u ? yes : no;
}

GA_SIMT uint32_t ga_lanes_nonzero(ga_tile tile, ga_lanes lanes)
{
    uint32_t votes = __ballot_sync(tile.mask, lanes != 0);
    return ((votes & tile.mask) >> tile.base) & ga_bits_below(tile.width);
}

GA_SIMT bool ga_lanes_any(ga_tile tile, ga_lanes lanes)
{
    return __any_sync(tile.mask, lanes != 0);
}

GA_SIMT bool ga_tiles_any(ga_tile tile, bool condition)
{
    return __any_sync(tile.mask, condition);
}

GA_SIMT ga_lanes ga_lanes_prefix_sum(ga_tile tile, ga_lanes lanes)
{
    uint32_t rank = ga_tile_ranks(tile);
    uint32_t sum = lanes;
#pragma unroll
    for (uint32_t step = 1; step < tile.width; step *= 2) {
        uint32_t from = rank < step     ? tile.lane
                        : tile.has_gaps ? ga_bits_nth(tile.mask, rank - step)
                                        : tile.lane - step;
        uint32_t other = __shfl_sync(tile.mask, sum, (int)from, (int)tile.width);
        sum += rank < step ? 0 : other;
    }
    return sum - lanes;
}

GA_SIMT ga_lanes ga_lanes_previous(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    uint32_t before = among & ga_bits_below(tile.lane);
    uint32_t from = before ? 31u - ga_bits_leading(before) : tile.lane;
    uint32_t value = __shfl_sync(tile.mask, lanes, (int)from, (int)tile.width);
    return before && (among >> tile.lane) & 1u ? value : 0;
}

GA_SIMT ga_lanes ga_lanes_prefix_count(ga_tile tile, ga_lanes bits)
{
    uint32_t before = ga_bits_below(ga_warp_lane());
    uint32_t count = ga_bits_count(bits);
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t plane = 0; plane < 6u; plane++) {
        uint32_t set = __ballot_sync(tile.mask, (count >> plane) & 1u);
        sum += ga_bits_count(set & tile.mask & before) << plane;
    }
    return sum;
}

GA_SIMT uint32_t ga_lanes_sum(ga_tile tile, ga_lanes lanes)
{
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
    return __reduce_add_sync(tile.mask, lanes);
#else
    uint32_t last = 31u - (uint32_t)__clz((int)ga_tile_lanes(tile));
    return ga_lanes_get(tile, ga_lanes_prefix_sum(tile, lanes) + lanes, last);
#endif
}

#define GA_SIMT_DEFINE_SUM(suffix, type)                                                           \
    GA_SIMT type ga_tile_sum_##suffix(ga_tile tile, type own)                                      \
    {                                                                                              \
        for (uint32_t step = 1; step < tile.width; step *= 2u) {                                   \
            own += __shfl_xor_sync(tile.mask, own, (int)step);                                     \
        }                                                                                          \
        return own;                                                                                \
    }
GA_SIMT_DEFINE_SUM(f32, float)
GA_SIMT_DEFINE_SUM(f64, double)

GA_SIMT uint32_t ga_lanes_least(ga_tile tile, ga_lanes lanes)
{
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
    if (tile.width == 32u) {
        return __reduce_min_sync(tile.mask, lanes);
    }
#else
    for (uint32_t rest = tile.has_gaps ? tile.mask : 0; rest; rest &= rest - 1u) {
        uint32_t other = __shfl_sync(tile.mask, lanes, (int)ga_bits_lowest(rest));
        lanes = other < lanes ? other : lanes;
    }
    if (tile.has_gaps) {
        return lanes;
    }
#endif
    for (uint32_t step = 1; step < tile.width; step *= 2u) {
        uint32_t other = __shfl_xor_sync(tile.mask, lanes, (int)step);
        lanes = other < lanes ? other : lanes;
    }
    return lanes;
}

GA_SIMT uint32_t ga_lanes_union(ga_tile tile, ga_lanes lanes)
{
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 800
    return __reduce_or_sync(tile.mask, lanes);
#else
    uint32_t all = 0;
#pragma unroll
    for (uint32_t plane = 0; plane < 32u; plane++) {
        all |= (__any_sync(tile.mask, (lanes >> plane) & 1u) ? 1u : 0u) << plane;
    }
    return all;
#endif
}

GA_SIMT bool ga_lanes_same(ga_tile tile, ga_lanes lanes)
{
    int same;
    __match_all_sync(tile.mask, lanes, &same);
    return same != 0;
}

GA_SIMT ga_lanes ga_lanes_equal(ga_tile tile, uint32_t among, ga_lanes keys)
{
    uint32_t equal = __match_any_sync(tile.mask, keys) >> tile.base;
    return (among >> tile.lane) & 1u ? equal & among : 0;
}

/* The whole tile visits the groups together, so that no ballot covers only a part of it. */
GA_SIMT ga_lanes ga_lanes_merge_or(ga_tile tile, ga_lanes equal, ga_lanes bits)
{
    uint32_t merged = equal ? bits : 0;
    uint32_t shared = ga_lanes_nonzero(tile, equal & (equal - 1u));
    while (shared) {
        uint32_t group = ga_lanes_get(tile, equal, ga_bits_lowest(shared));
        uint32_t all = ga_lanes_union(tile, equal == group ? bits : 0);
        merged = equal == group ? all : merged;
        shared &= ~group;
    }
    return merged;
}

GA_SIMT void ga_lanes_deal(ga_tile tile, uint32_t takers, uint32_t skip, uint32_t bits,
                           uint32_t first, ga_lanes *lanes)
{
    uint32_t rank = ga_bits_count(takers & ga_bits_below(tile.lane)) - skip;
    if (((takers >> tile.lane) & 1u) && rank < ga_bits_count(bits)) {
        *lanes = first + (bits == GA_ALL_BITS ? rank : ga_bits_nth(bits, rank));
    }
}

GA_SIMT uint32_t ga_tile_leader(ga_tile tile)
{
    return tile.has_gaps ? ga_bits_lowest(tile.mask) : 0;
}

#endif
