/* SPDX-License-Identifier: MIT
 *
 * Rows on the GPU. The comments in row_cpu.h say what each function does.
 *
 * A lane of a tile of W lanes holds 32 / W words of a row, which it loads 16 bytes at a time if it
 * has that many: lane l has words 4l to 4l + 3 of each load. A width is a constant at every use,
 * so the loops below unroll and the whole row stays in registers.
 *
 * This half stays small, because no sanitizer detects races between lanes, or a scope that is too
 * narrow. tests/device/ has litmus tests, and compares each function with row_cpu.h.
 */
#ifndef GPUALLOC_SIMT_ROW_GPU_H
#define GPUALLOC_SIMT_ROW_GPU_H

#include "lanes_gpu.h"

typedef struct ga_row {
    uint32_t word[8]; /* the first 32 / width */
} ga_row;

typedef struct ga_sector {
    uint32_t word[8];
} ga_sector;

typedef struct ga_sectors {
    ga_lanes word[8];
} ga_sectors;

typedef struct ga_quad {
    uint32_t word[4];
} ga_quad;

/* Word j of a lane is word ga_row_place(tile, j) of the row. */
GA_SIMT uint32_t ga_row_place(ga_tile tile, uint32_t j)
{
    uint32_t each = tile.width > 8u ? 32u / tile.width : 4u; /* words of one load */
    return j / each * (tile.width * each) + tile.lane * each + j % each;
}

#ifdef GA_SIMT_EMULATED /* tests/emulated/cuda.h */
#define GA_SIMT_LOAD_WORD(to, from) ((to) = ga_load_relaxed(from))
#define GA_SIMT_LOAD_PAIR(to, from)                                                                \
    ((to) = ga_load64_relaxed((const uint64_t *)(const void *)(from)))
#define GA_SIMT_LOAD_TWO(to, from)                                                                 \
    (GA_SIMT_LOAD_WORD((to)[0], from), GA_SIMT_LOAD_WORD((to)[1], (from) + 1))
#define GA_SIMT_LOAD_FOUR(to, from)                                                                \
    (GA_SIMT_LOAD_TWO(to, from), GA_SIMT_LOAD_TWO((to) + 2, (from) + 2))
#define GA_SIMT_LOAD_PAIRS(low, high, from)                                                        \
    (GA_SIMT_LOAD_PAIR(low, from), GA_SIMT_LOAD_PAIR(high, (from) + 2))
#define GA_SIMT_LOAD_FOUR_IF(to, from, wanted)                                                     \
    ((wanted) ? (void)GA_SIMT_LOAD_FOUR(to, from) : (void)0)
#define GA_SIMT_LOAD_PAIRS_IF(low, high, from, wanted)                                             \
    ((wanted) ? (void)GA_SIMT_LOAD_PAIRS(low, high, from) : (void)0)
#else
#define GA_SIMT_LOAD "ld.relaxed." GA_SIMT_SCOPE_device ".global."
#define GA_SIMT_LOAD_WORD(to, from)                                                                \
    asm volatile(GA_SIMT_LOAD "u32 %0, [%1];" : "=r"(to) : "l"(from))
#define GA_SIMT_LOAD_PAIR(to, from)                                                                \
    asm volatile(GA_SIMT_LOAD "u64 %0, [%1];" : "=l"(to) : "l"(from))
#define GA_SIMT_LOAD_TWO(to, from)                                                                 \
    asm volatile(GA_SIMT_LOAD "v2.u32 {%0, %1}, [%2];" : "=r"((to)[0]), "=r"((to)[1]) : "l"(from))
#define GA_SIMT_LOAD_FOUR(to, from)                                                                \
    asm volatile(GA_SIMT_LOAD "v4.u32 {%0, %1, %2, %3}, [%4];"                                     \
                 : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]), "=r"((to)[3])                      \
                 : "l"(from))
#define GA_SIMT_LOAD_PAIRS(low, high, from)                                                        \
    asm volatile(GA_SIMT_LOAD "v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(from))
/* Without a branch, so that several loads are in flight together. */
#define GA_SIMT_LOAD_FOUR_IF(to, from, wanted)                                                     \
    asm volatile("{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0;\n\t"                             \
                 "@wanted " GA_SIMT_LOAD "v4.u32 {%0, %1, %2, %3}, [%4]; }"                        \
                 : "+r"((to)[0]), "+r"((to)[1]), "+r"((to)[2]), "+r"((to)[3])                      \
                 : "l"(from), "r"((uint32_t)(wanted)))
#define GA_SIMT_LOAD_PAIRS_IF(low, high, from, wanted)                                             \
    asm volatile("{ .reg .pred wanted; setp.ne.u32 wanted, %3, 0;\n\t"                             \
                 "@wanted " GA_SIMT_LOAD "v2.u64 {%0, %1}, [%2]; }"                                \
                 : "+l"(low), "+l"(high)                                                           \
                 : "l"(from), "r"((uint32_t)(wanted)))
#endif

GA_SIMT ga_row ga_row_load(ga_tile tile, const uint32_t *row)
{
    ga_row loaded;
    const uint32_t *own = row + ga_row_place(tile, 0);
    if (tile.width == 32u) {
        GA_SIMT_LOAD_WORD(loaded.word[0], own);
    } else if (tile.width == 16u) {
        GA_SIMT_LOAD_TWO(loaded.word, own);
    } else {
#pragma unroll
        for (uint32_t j = 0; j < 32u / tile.width; j += 4) {
            GA_SIMT_LOAD_FOUR(loaded.word + j, own + j * tile.width);
        }
    }
    return loaded;
}

/* A pair is one element of 64 bits, and PTX guarantees that elements do not tear. */
GA_SIMT ga_row ga_row_load_pairs(ga_tile tile, const uint32_t *row)
{
    ga_row loaded;
    const uint32_t *own = row + ga_row_place(tile, 0);
    if (tile.width == 32u) { /* a lane has only one word, so no pair is whole */
        return ga_row_load(tile, row);
    }
#pragma unroll
    for (uint32_t j = 0; j < 32u / tile.width; j += 4) {
        uint64_t low;
        uint64_t high = 0;
        if (tile.width == 16u) {
            GA_SIMT_LOAD_PAIR(low, own);
        } else {
            GA_SIMT_LOAD_PAIRS(low, high, own + j * tile.width);
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

GA_SIMT ga_quad ga_row_quad(ga_tile tile, ga_row row, uint32_t own)
{
    ga_quad quad;
    (void)tile;
    (void)own;
#pragma unroll
    for (uint32_t j = 0; j < 4u; j++) {
        quad.word[j] = row.word[j];
    }
    return quad;
}

/* The first index of the mask `places` whose word has `here` set in its lane. Needs one ballot for
 * each word of a lane that is in `places` in some lane, which the compiler knows. */
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

/* In a tile of up to 8 lanes, so that a lane holds both words. */
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

/* The lane that holds the key broadcasts the word behind it. */
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

/* Load 16 bytes, by words or (a constant) pairs of words; zeros if not `wanted`. */
GA_SIMT void ga_sector_half(const uint32_t *words, bool pairs, bool wanted, uint32_t *to)
{
    if (pairs) {
        uint64_t low = 0, high = 0;
        GA_SIMT_LOAD_PAIRS_IF(low, high, words, wanted);
        to[0] = (uint32_t)low;
        to[1] = (uint32_t)(low >> 32);
        to[2] = (uint32_t)high;
        to[3] = (uint32_t)(high >> 32);
    } else {
        to[0] = to[1] = to[2] = to[3] = 0;
        GA_SIMT_LOAD_FOUR_IF(to, words, wanted);
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

/* Two neighbouring lanes load their two sectors together, half of each, so that a sector is one
 * memory request. Then they exchange the halves that belong to the other. */
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

/* For any tile, with gaps too: each lane tests the words of its rank. */
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

/* For any tile, with gaps too. */
GA_SIMT uint32_t ga_row_scan(ga_tile tile, uint32_t *row, uint32_t other_than)
{
    uint32_t size = ga_tile_size(tile);
    uint32_t rank = ga_tile_ranks(tile);
    uint32_t mine = 0;
    for (uint32_t place = rank; place < 32u; place += size) {
        /* acquire. Pairs with the release that the caller's algorithm has for its words. */
        mine |= (ga_load_acquire(row + place) != other_than ? 1u : 0u) << place;
    }
    return ga_lanes_union(tile, mine);
}

#endif
