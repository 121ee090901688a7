/* SPDX-License-Identifier: MIT
 *
 * Tiles and lanes on the CPU, where one thread is the tile; and what each word means.
 *
 * Lanes are a vector of 32 words, so that a branch on them does not compile. The words below work on
 * lanes in plain loops, which gcc vectorises.
 */
#ifndef GPUALLOC_SIMT_LANES_CPU_H
#define GPUALLOC_SIMT_LANES_CPU_H

#include "atomic.h"

typedef uint32_t ga_lanes __attribute__((vector_size(128)));

typedef struct ga_tile {
    uint32_t width; /* lanes are numbered from 0 to width - 1 */
} ga_tile;

/* ---- tiles ------------------------------------------------------------------------------- */

/* The tile of `width` lanes (4, 8, 16 or 32; a constant) that the caller is in. */
GA_SIMT ga_tile ga_tile_of(uint32_t width)
{
    return (ga_tile){width};
}

/* The same where the warp is whole and all its tiles go through the same words together, in no
 * branch that only some of them take: votes and shuffles cost the GPU one instruction each. Such a
 * tile works with ga_lanes_get, _nonzero, and _any, which asks all of them; with rows, but for
 * ga_row_match and what is made of it; and with ga_tile_sync, which all wait for. */
GA_SIMT ga_tile ga_tile_abreast(uint32_t width)
{
    return ga_tile_of(width);
}

/* The lanes of the mask, out of the caller's warp, which all call this and work together from now
 * on. Lanes, and the words on rows that say so, work with such a tile; ga_row values do not. */
GA_SIMT ga_tile ga_tile_among(uint32_t lanes)
{
    (void)lanes; /* a CPU thread is never divided */
    return (ga_tile){32};
}

/* The lanes of the warp that are here now, for code that only some lanes reach. */
GA_SIMT ga_tile ga_tile_present(void)
{
    return (ga_tile){32};
}

/* Whether the lanes are all of a warp, and the caller had better have code of its own for that,
 * with ga_tile_of(32): exchanges within a tile of which the compiler does not know the lanes cost
 * the GPU twice as many instructions. On the CPU there is nothing to be gained. */
GA_SIMT bool ga_warp_is_whole(uint32_t lanes)
{
    (void)lanes;
    return false;
}

/* The lanes that there are. */
GA_SIMT uint32_t ga_tile_lanes(ga_tile tile)
{
    return ga_bits_below(tile.width);
}

/* What ga_tile_among() makes a tile of these lanes of. */
GA_SIMT uint32_t ga_tile_members(ga_tile tile)
{
    return ga_tile_lanes(tile);
}

/* How many lanes there are. */
GA_SIMT uint32_t ga_tile_size(ga_tile tile)
{
    return tile.width;
}

/* How many lanes of the tile come before each lane. */
GA_SIMT ga_lanes ga_tile_ranks(ga_tile tile)
{
    (void)tile;
    return (ga_lanes){0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
}

/* What lanes of the tile wrote before is seen by the others after. */
GA_SIMT void ga_tile_sync(ga_tile tile)
{
    (void)tile;
}

/* Loads before are asked for before any of them is waited for after, where the GPU's assembler
 * would mix them. No order of memory. */
GA_SIMT void ga_tile_gate(ga_tile tile)
{
    (void)tile;
}

/* What lanes of the tile did before happens before what others do once they have acquired what a
 * lane of the tile posts afterwards, by any number of ga_post_*_published of the same scope. On the
 * CPU those release by themselves. */
GA_SIMT void ga_tile_publish(ga_tile tile)
{
    (void)tile;
}

GA_SIMT void ga_tile_publish_block(ga_tile tile)
{
    (void)tile;
}

GA_SIMT void ga_tile_publish_system(ga_tile tile)
{
    (void)tile;
}

/* Any number, best another in each call, so that a search need not repeat itself; not uniform on
 * the GPU. On the CPU, and where GA_SIMT_NO_NOISE is defined, it is 0: what a lone tile does can be
 * told. */
GA_SIMT uint32_t ga_tile_noise(void)
{
    return 0;
}

/* ---- lanes ------------------------------------------------------------------------------- */

/* GA_EACH_LANE(tile, mask, own) { ... }: every lane of the mask for itself; `own` is its number.
 * Inside, lanes are read and written with ga_lane_read() and ga_lane_write(), and no word that is
 * collective may be called. On the GPU lanes run beside each other, on the CPU in turn. */
#define GA_EACH_LANE(tile, mask, own)                                                              \
    for (uint32_t rest_ = (mask)&ga_tile_lanes(tile), own = 0;                                     \
         rest_ && (own = ga_bits_lowest(rest_), true); rest_ &= rest_ - 1u)

GA_SIMT uint32_t ga_lane_read(ga_lanes lanes, uint32_t lane)
{
    return lanes[lane];
}

GA_SIMT void ga_lane_write(ga_lanes *lanes, uint32_t lane, uint32_t value)
{
    (*lanes)[lane] = value;
}

/* Each lane gets `value`. */
GA_SIMT ga_lanes ga_lanes_all(uint32_t value)
{
    return (ga_lanes){0} + value;
}

/* Each lane gets its own number. */
GA_SIMT ga_lanes ga_lanes_numbers(ga_tile tile)
{
    return ga_tile_ranks(tile);
}

/* Broadcast: what the lane of that number holds. */
GA_SIMT uint32_t ga_lanes_get(ga_tile tile, ga_lanes lanes, uint32_t lane)
{
    return lanes[lane & (tile.width - 1u)];
}

/* What the first lane of the mask holds; of tiles abreast, that of the first tile whose mask has
 * one, for all. Lane 31's where there is none. */
GA_SIMT uint32_t ga_lanes_pick(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    (void)tile;
    return lanes[among ? ga_bits_lowest(among) : 31u];
}

/* Each lane gets what the lane holds whose number `from` has for it: one that is here. */
GA_SIMT ga_lanes ga_lanes_from(ga_tile tile, ga_lanes lanes, ga_lanes from)
{
    ga_lanes got = {0};
    for (uint32_t i = 0; i < tile.width; i++) {
        got[i] = lanes[from[i] % tile.width];
    }
    return got;
}

/* The lanes of the mask `chosen` take `yes`, the others `no`. */
GA_SIMT ga_lanes ga_lanes_select(ga_tile tile, uint32_t chosen, ga_lanes yes, ga_lanes no)
{
    ga_lanes from = (ga_lanes)((ga_lanes_all(chosen) >> ga_tile_ranks(tile)) & 1u);
    ga_lanes mask = -from;
    return (yes & mask) | (no & ~mask);
}

/* Bit i of a mask, for what belongs to lane or word i. Masks are put together with it rather than
 * with shifts, for which SSE2 has no vectors. */
GA_SIMT ga_lanes ga_cpu_one_bit_each(void)
{
    return (ga_lanes){1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,
                      1u << 7,  1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13,
                      1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20,
                      1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27,
                      1u << 28, 1u << 29, 1u << 30, 1u << 31};
}

/* The mask of the lanes that do not hold 0. */
GA_SIMT uint32_t ga_lanes_nonzero(ga_tile tile, ga_lanes lanes)
{
    ga_lanes bits = ga_cpu_one_bit_each();
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 32; i++) {
        mask |= lanes[i] != 0 ? bits[i] : 0;
    }
    return mask & ga_tile_lanes(tile);
}

GA_SIMT bool ga_lanes_any(ga_tile tile, ga_lanes lanes)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        any |= lanes[i];
    }
    return any != 0;
}

/* Each lane gets the sum of the lanes before it, modulo 2^32. */
GA_SIMT ga_lanes ga_lanes_prefix_sum(ga_tile tile, ga_lanes lanes)
{
    ga_lanes sums = {0};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sums[i] = sum;
        sum += lanes[i];
    }
    return sums;
}

/* Each lane of the mask gets what the lane of the mask before it holds; the first, and others,
 * 0. */
GA_SIMT ga_lanes ga_lanes_previous(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    ga_lanes previous = {0};
    uint32_t value = 0;
    for (uint32_t rest = among & ga_tile_lanes(tile); rest; rest &= rest - 1u) {
        previous[ga_bits_lowest(rest)] = value;
        value = lanes[ga_bits_lowest(rest)];
    }
    return previous;
}

/* Each lane gets the number of bits that are set in the lanes before it. */
GA_SIMT ga_lanes ga_lanes_prefix_count(ga_tile tile, ga_lanes bits)
{
    ga_lanes sums = {0};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sums[i] = sum;
        sum += ga_bits_count(bits[i]);
    }
    return sums;
}

GA_SIMT uint32_t ga_lanes_sum(ga_tile tile, ga_lanes lanes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sum += lanes[i];
    }
    return sum;
}

/* The bits of all lanes together. */
GA_SIMT uint32_t ga_lanes_union(ga_tile tile, ga_lanes lanes)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        all |= lanes[i];
    }
    return all;
}

/* Whether all lanes hold the same. */
GA_SIMT bool ga_lanes_same(ga_tile tile, ga_lanes lanes)
{
    uint32_t other = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        other |= lanes[i] ^ lanes[0];
    }
    return other == 0;
}

/* Each lane of the mask `among` gets the mask of those among them that hold the same key, itself
 * included; other lanes get 0. */
GA_SIMT ga_lanes ga_lanes_equal(ga_tile tile, uint32_t among, ga_lanes keys)
{
    ga_lanes equal = {0};
    (void)tile;
    for (uint32_t rest = among; rest; rest &= rest - 1u) {
        uint32_t lane = ga_bits_lowest(rest);
        uint32_t mask = 0;
        for (uint32_t others = among; others; others &= others - 1u) {
            uint32_t other = ga_bits_lowest(others);
            mask |= (keys[other] == keys[lane] ? 1u : 0u) << other;
        }
        equal[lane] = mask;
    }
    return equal;
}

/* Merge of equal requests: each lane gets the union of the bits of the lanes in its mask `equal`,
 * which ga_lanes_equal() has made; 0 where that is 0. */
GA_SIMT ga_lanes ga_lanes_merge_or(ga_tile tile, ga_lanes equal, ga_lanes bits)
{
    ga_lanes merged = {0};
    for (uint32_t i = 0; i < tile.width; i++) {
        uint32_t all = 0;
        for (uint32_t rest = equal[i]; rest; rest &= rest - 1u) {
            all |= bits[ga_bits_lowest(rest)];
        }
        merged[i] = all;
    }
    return merged;
}

/* The lane of the mask `takers` with `skip + k` of them below it gets `first` and the place of the
 * set bit of `bits` with k of those below it; where there is no such bit, and outside the mask,
 * lanes stay. */
GA_SIMT void ga_lanes_deal(ga_tile tile, uint32_t takers, uint32_t skip, uint32_t bits,
                           uint32_t first, ga_lanes *lanes)
{
    if ((takers & bits) == GA_ALL_BITS && !skip) {
        *lanes = ga_tile_ranks(tile) + first;
        return;
    }
    takers &= ~ga_bits_take(takers, skip);
    for (; takers && bits; takers &= takers - 1u, bits &= bits - 1u) {
        (*lanes)[ga_bits_lowest(takers)] = first + ga_bits_lowest(bits);
    }
}

/* The lowest lane there is: it does what is to be done once, and lanes_get() tells the others. */
GA_SIMT uint32_t ga_tile_leader(ga_tile tile)
{
    (void)tile;
    return 0;
}

#endif
