/* SPDX-License-Identifier: MIT
 *
 * Tiles, lanes and rows on the GPU. row_cpu.h has the same words, and says what they mean.
 *
 * A lane of a tile of W lanes holds 32 / W words of a row, which it loads 16 bytes at a time where
 * it has that many: lane l has words 4l to 4l + 3 of each load. A width is a constant wherever it
 * is used, so that the loops below unroll and nothing of a row leaves the registers.
 *
 * This half stays small: no sanitizer sees the races between lanes, nor a scope that is too narrow.
 * tests/device/ has litmus tests, and compares each word with row_cpu.h.
 */
#ifndef GPUALLOC_SIMT_ROW_GPU_H
#define GPUALLOC_SIMT_ROW_GPU_H

#include "atomic.h"

typedef uint32_t ga_lanes;

typedef struct ga_row {
    uint32_t word[8]; /* the first 32 / width */
} ga_row;

typedef struct ga_sector {
    uint32_t word[8];
} ga_sector;

typedef struct ga_sectors {
    ga_lanes word[8];
} ga_sectors;

typedef struct ga_tile {
    uint32_t width; /* lanes are numbered from 0 to width - 1 */
    uint32_t lane;  /* the own number */
    uint32_t mask;  /* the warp's lanes that are here */
    uint32_t base;  /* the warp's lane that is lane 0 */
    bool has_gaps;  /* lanes may be missing */
} ga_tile;

/* ---- tiles ------------------------------------------------------------------------------- */

GA_SIMT uint32_t ga_warp_lane(void)
{
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* A number that is another in each call: the clock. */
GA_SIMT uint32_t ga_tile_noise(void)
{
#ifdef GA_SIMT_NO_NOISE
    return 0;
#else
    uint32_t ticks;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(ticks));
    return ticks;
#endif
}

GA_SIMT ga_tile ga_tile_of(uint32_t width)
{
    ga_tile tile;
    uint32_t lane = ga_warp_lane();
    tile.width = width;
    tile.has_gaps = false;
    if (width == 32u) { /* a mask that is known spares a check at each exchange */
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

/* Votes and shuffles are the whole warp's, whose mask the compiler knows. */
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

/* The lanes that are here now. The compiler (nvcc 13.0) takes what a vote answers for the same in
 * all lanes that run, and keeps it, and what comes of it, in registers of the whole warp. But tiles
 * that have parted may come to run together, at the same place of a loop or of a function: then one
 * would go on with the other's mask (docs/simt.md). So a bit that is never set, of which the
 * compiler knows nothing, is added: that makes it a value of each lane. tests/device/simt_meet.cu
 * sees to it. */
GA_SIMT uint32_t ga_warp_present(void)
{
    uint32_t below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below)); /* of lane 31 it is bits 0 to 30 */
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

/* The assembler (ptxas 13.0) takes what was loaded first in hand before it asks for the rest, and
 * no barrier keeps it from that: a branch of which it knows nothing does. It is never taken. */
GA_SIMT void ga_tile_gate(ga_tile tile)
{
    uint32_t blocks;
    (void)tile;
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
    if (!blocks) {
        __trap();
    }
}

/* One fence for all lanes, after they met: what each did is then the leader's too, in the order of
 * PTX, and the same for every other lane. A fence that only releases leaves the cache of the
 * multiprocessor alone. */
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
#define GA_FENCE_RELEASE "fence.release."
#else
#define GA_FENCE_RELEASE "fence.acq_rel."
#endif
#define GA_DEFINE_PUBLISH(suffix, scope)                                                           \
    GA_SIMT void ga_tile_publish##suffix(ga_tile tile)                                             \
    {                                                                                              \
        __syncwarp(tile.mask);                                                                     \
        asm volatile(GA_FENCE_RELEASE GA_SCOPE_##scope ";" ::: "memory");                          \
    }
GA_DEFINE_PUBLISH(, device)
GA_DEFINE_PUBLISH(_block, block)
GA_DEFINE_PUBLISH(_system, system)

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

/* The whole tile goes through the groups together: no vote is ever of a part of it. */
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

/* ---- rows -------------------------------------------------------------------------------- */

/* Word j of a lane is word ga_row_place(tile, j) of the row. */
GA_SIMT uint32_t ga_row_place(ga_tile tile, uint32_t j)
{
    uint32_t each = tile.width > 8u ? 32u / tile.width : 4u; /* words of one load */
    return j / each * (tile.width * each) + tile.lane * each + j % each;
}

GA_SIMT ga_row ga_row_load(ga_tile tile, const uint32_t *row)
{
    ga_row loaded;
    const uint32_t *own = row + ga_row_place(tile, 0);
    if (tile.width == 32u) {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(loaded.word[0]) : "l"(own));
    } else if (tile.width == 16u) {
        asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(loaded.word[0]), "=r"(loaded.word[1])
                     : "l"(own));
    } else {
#pragma unroll
        for (uint32_t j = 0; j < 32u / tile.width; j += 4) {
            asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(loaded.word[j]), "=r"(loaded.word[j + 1]), "=r"(loaded.word[j + 2]),
                           "=r"(loaded.word[j + 3])
                         : "l"(own + j * tile.width));
        }
    }
    return loaded;
}

/* Pairs are elements of their own, 64 bits wide: of these PTX says that they do not tear. */
GA_SIMT ga_row ga_row_load_pairs(ga_tile tile, const uint32_t *row)
{
    ga_row loaded;
    const uint32_t *own = row + ga_row_place(tile, 0);
    if (tile.width == 32u) { /* a lane has but one word: no pair is whole */
        return ga_row_load(tile, row);
    }
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j += 4) {
        uint64_t low;
        uint64_t high = 0;
        if (tile.width == 16u) {
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(low) : "l"(own));
        } else {
            asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                         : "=l"(low), "=l"(high)
                         : "l"(own + j * tile.width));
        }
        loaded.word[j] = (uint32_t)low;
        loaded.word[j + 1] = (uint32_t)(low >> 32);
        loaded.word[j + 2] = (uint32_t)high;
        loaded.word[j + 3] = (uint32_t)(high >> 32);
    }
    return loaded;
}

GA_SIMT uint32_t ga_row_match(ga_tile tile, ga_row row, uint32_t key)
{
    uint32_t mask = 0;
    if (tile.width == 32u) {
        return __ballot_sync(tile.mask, row.word[0] == key);
    }
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j++) {
        mask |= (row.word[j] == key ? 1u : 0u) << ga_row_place(tile, j);
    }
    return ga_lanes_union(tile, mask);
}

/* The first of the places of `words` words each at which `here` says that it stands, by word of the
 * lane. A vote for each word that is a place in some lane; which those are is known beforehand. */
GA_SIMT uint32_t ga_row_first_place(ga_tile tile, const bool *here, uint32_t places)
{
    uint32_t each = tile.width > 8u ? 32u / tile.width : 4u; /* words of one load */
    uint32_t first = GA_NONE;
#pragma unroll
    for (uint32_t i = 32u / tile.width / each; i-- > 0;) { /* the last load first */
        uint32_t votes[4], any = 0;
#pragma unroll
        for (uint32_t j = 0; j < each; j++) {
            bool some = false;
            for (uint32_t lane = 0; lane < tile.width; lane++) {
                some |= (places >> (i * tile.width * each + lane * each + j)) & 1u;
            }
            votes[j] = some ? ga_lanes_nonzero(tile, here[i * each + j] ? 1u : 0u) : 0;
            any |= votes[j];
        }
        uint32_t lane = any ? ga_bits_lowest(any) : 0;
        uint32_t within = each - 1u;
#pragma unroll
        for (uint32_t j = each - 1u; j-- > 0;) {
            within = (votes[j] >> lane) & 1u ? j : within;
        }
        first = any ? i * tile.width * each + lane * each + within : first;
    }
    return first;
}

GA_SIMT uint32_t ga_row_first(ga_tile tile, ga_row row, uint32_t places, uint32_t key)
{
    bool here[8];
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j++) {
        here[j] = row.word[j] == key && (places >> ga_row_place(tile, j)) & 1u;
    }
    return ga_row_first_place(tile, here, places);
}

/* Of a tile of up to 8 lanes, so that a lane holds both words. */
GA_SIMT uint32_t ga_row_first64(ga_tile tile, ga_row row, uint32_t places, uint64_t key)
{
    bool here[8];
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j++) {
        here[j] = row.word[j] == (uint32_t)key && row.word[j + 1 & 7u] == (uint32_t)(key >> 32) &&
                  (places >> ga_row_place(tile, j)) & 1u;
    }
    return ga_row_first_place(tile, here, places);
}

/* Of a lane's own words the one behind the key goes to all. */
GA_SIMT uint32_t ga_row_behind(ga_tile tile, ga_row row, uint32_t places, uint32_t key,
                               uint32_t place, uint32_t further)
{
    uint32_t each = tile.width > 8u ? 32u / tile.width : 4u;
    uint32_t mine = 0;
#pragma unroll
    for (uint32_t j = 32u / tile.width; j-- > 0;) {
        bool here = row.word[j] == key && (places >> ga_row_place(tile, j)) & 1u;
        mine = here ? row.word[(j + further) & 7u] : mine;
    }
    return ga_lanes_get(tile, mine, place % (tile.width * each) / each);
}

GA_SIMT uint32_t ga_row_get(ga_tile tile, ga_row row, uint32_t place)
{
    uint32_t each = tile.width > 8u ? 32u / tile.width : 4u;
    uint32_t within = place % (tile.width * each);
    uint32_t mine = place / (tile.width * each) * each + within % each;
    uint32_t value = row.word[0];
#pragma unroll
    for (uint32_t j = 1; j < 32u / tile.width; j++) {
        value = mine == j ? row.word[j] : value;
    }
    return ga_lanes_get(tile, value, within / each);
}

GA_SIMT void ga_row_put(ga_tile tile, ga_row *row, uint32_t place, uint32_t value)
{
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j++) {
        row->word[j] = ga_row_place(tile, j) == place ? value : row->word[j];
    }
}

GA_SIMT uint32_t ga_row_count(ga_tile tile, ga_row row)
{
    uint32_t count = 0;
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j++) {
        count += ga_bits_count(row.word[j]);
    }
    return ga_lanes_sum(tile, count);
}

/* 16 bytes, by words or (a constant) pairs of them; zeros where they are not `wanted`, without a
 * branch, so that several loads are under way together. */
GA_SIMT void ga_sector_half(const uint32_t *words, bool pairs, bool wanted, uint32_t *to)
{
    if (pairs) {
        uint64_t low = 0, high = 0;
        asm volatile("{ .reg .pred wanted; setp.ne.u32 wanted, %3, 0;\n\t"
                     "@wanted ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2]; }"
                     : "+l"(low), "+l"(high)
                     : "l"(words), "r"((uint32_t)wanted));
        to[0] = (uint32_t)low;
        to[1] = (uint32_t)(low >> 32);
        to[2] = (uint32_t)high;
        to[3] = (uint32_t)(high >> 32);
    } else {
        to[0] = to[1] = to[2] = to[3] = 0;
        asm volatile("{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0;\n\t"
                     "@wanted ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                     : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
                     : "l"(words), "r"((uint32_t)wanted));
    }
}

GA_SIMT ga_sector ga_sector_load(const uint32_t *words)
{
    ga_sector loaded;
    ga_sector_half(words, false, true, loaded.word);
    ga_sector_half(words + 4, false, true, loaded.word + 4);
    return loaded;
}

GA_SIMT ga_sector ga_sector_load_pairs(const uint32_t *words)
{
    ga_sector loaded;
    ga_sector_half(words, true, true, loaded.word);
    ga_sector_half(words + 4, true, true, loaded.word + 4);
    return loaded;
}

/* Two neighbours load their two sectors together, half of each, so that a sector is one request;
 * then each hands over the half that is the other's. */
GA_SIMT ga_sectors ga_sectors_of_neighbours(ga_tile tile, uint32_t lanes, ga_lanes low,
                                            ga_lanes high, bool pairs)
{
    ga_sectors loaded;
    bool odd = tile.lane % 2u;
    uint32_t both = lanes >> (tile.lane & ~1u);
    uint64_t own = low | (uint64_t)high << 32;
    uint64_t other =
        __shfl_xor_sync(tile.mask, low, 1) | (uint64_t)__shfl_xor_sync(tile.mask, high, 1) << 32;
    uint32_t of_even[4], of_odd[4];
    ga_sector_half((const uint32_t *)(odd ? other : own) + (odd ? 4 : 0), pairs, both & 1u,
                   of_even);
    ga_sector_half((const uint32_t *)(odd ? own : other) + (odd ? 4 : 0), pairs, both & 2u, of_odd);
#pragma unroll
    for (uint32_t i = 0; i < 4u; i++) {
        uint32_t mine = odd ? of_odd[i] : of_even[i];
        uint32_t got = __shfl_xor_sync(tile.mask, odd ? of_even[i] : of_odd[i], 1);
        loaded.word[i] = odd ? got : mine;
        loaded.word[i + 4u] = odd ? mine : got;
    }
    return loaded;
}

GA_SIMT ga_sectors ga_sectors_load(ga_tile tile, uint32_t lanes, ga_lanes low, ga_lanes high)
{
    return ga_sectors_of_neighbours(tile, lanes, low, high, false);
}

GA_SIMT ga_sectors ga_sectors_load_pairs(ga_tile tile, uint32_t lanes, ga_lanes low, ga_lanes high)
{
    return ga_sectors_of_neighbours(tile, lanes, low, high, true);
}

GA_SIMT void ga_row_prefetch(ga_tile tile, const uint32_t *row)
{
    if (tile.lane == 0) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row));
    }
}

/* Any tile, with gaps too: each lane looks at the words of its rank. */
GA_SIMT uint32_t ga_row_seek(ga_tile tile, uint32_t *row, uint32_t other_than, uint32_t start)
{
    uint32_t size = ga_tile_size(tile);
    uint32_t rank = ga_tile_ranks(tile);
    for (uint32_t first = 0; first < 32u; first += size) {
        uint32_t place = (first + rank + start) & 31u;
        bool differs = first + rank < 32u && ga_load_relaxed(row + place) != other_than;
        uint32_t found = __ballot_sync(tile.mask, differs) & tile.mask;
        if (found) {
            return __shfl_sync(tile.mask, place, (int)ga_bits_lowest(found));
        }
    }
    return GA_NONE;
}

/* Any tile, too. */
GA_SIMT uint32_t ga_row_scan(ga_tile tile, uint32_t *row, uint32_t other_than)
{
    uint32_t size = ga_tile_size(tile);
    uint32_t rank = ga_tile_ranks(tile);
    uint32_t mine = 0;
    for (uint32_t place = rank; place < 32u; place += size) {
        /* acquire. Pairs with whatever release the caller's algorithm has for its words. */
        mine |= (ga_load_acquire(row + place) != other_than ? 1u : 0u) << place;
    }
    return ga_lanes_union(tile, mine);
}

#endif
