/* SPDX-License-Identifier: MIT
 *
 * Tiles and lanes on the CPU, where one thread is the tile. Also the reference for both sides: the
 * comments here say what each function does.
 *
 * Lanes are a vector of 32 words, so that a branch on them does not compile. The functions below
 * work on lanes in plain loops, which gcc vectorises.
 */
#ifndef GPUALLOC_SIMT_LANES_CPU_H
#define GPUALLOC_SIMT_LANES_CPU_H

#include "atomic.h"

typedef uint32_t ga_lanes __attribute__((vector_size(128)));

typedef struct ga_tile {
    uint32_t width; /* lanes are numbered from 0 to width - 1 */
} ga_tile;

/* Loads that a lane makes before it uses the first: on a GPU each takes long. The loops over them
 * are unrolled, so that what they load is in registers. */
#define GA_SIMT_LOADS 1u
#define GA_SIMT_UNROLL

/* ---- tiles ------------------------------------------------------------------------------- */

/* The caller's tile of `width` lanes (4, 8, 16 or 32; a constant). */
GA_SIMT ga_tile ga_tile_of(uint32_t width)
{
    return (ga_tile){width};
}

/* A tile like ga_tile_of(), for a whole warp whose tiles all call the same functions together, in
 * no branch that only some of them take. Ballots and shuffles then cost the GPU one instruction
 * each. Such a tile works with ga_lanes_get, ga_lanes_least, ga_lanes_nonzero, ga_lanes_prefix_sum,
 * ga_tile_sum_f32, ga_tile_sum_f64, ga_lanes_any and ga_tiles_any (which cover all tiles of the
 * warp), ga_tile_sync (at which all tiles wait), and with rows, except ga_row_match and functions
 * made of it. */
GA_SIMT ga_tile ga_tile_abreast(uint32_t width)
{
    return ga_tile_of(width);
}

/* The tile of the warp's lanes in the mask, which all call this and work together from now on.
 * Lanes, and those functions on rows that say so, work with such a tile; ga_row values do not. */
GA_SIMT ga_tile ga_tile_among(uint32_t lanes)
{
    (void)lanes; /* a CPU thread is never divided */
    return (ga_tile){32};
}

/* The tile of the warp's active lanes, for code that only some lanes reach. */
GA_SIMT ga_tile ga_tile_present(void)
{
    return (ga_tile){32};
}

/* True if `lanes` is a whole warp, and the caller should use ga_tile_of(32) in a code path of its
 * own: shuffles in a tile whose lanes the compiler does not know take twice as many instructions on
 * the GPU. False on the CPU, where that gains nothing. */
GA_SIMT bool ga_warp_is_whole(uint32_t lanes)
{
    (void)lanes;
    return false;
}

/* The mask of the tile's lanes. */
GA_SIMT uint32_t ga_tile_lanes(ga_tile tile)
{
    return ga_bits_below(tile.width);
}

/* The mask from which ga_tile_among() makes a tile of these lanes. */
GA_SIMT uint32_t ga_tile_members(ga_tile tile)
{
    return ga_tile_lanes(tile);
}

/* The number of lanes. */
GA_SIMT uint32_t ga_tile_size(ga_tile tile)
{
    return tile.width;
}

/* Each lane gets the number of the tile's lanes before it. */
GA_SIMT ga_lanes ga_tile_ranks(ga_tile tile)
{
    (void)tile;
    return (ga_lanes){0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
}

/* Writes of the tile's lanes before this are visible to its lanes after it. */
GA_SIMT void ga_tile_sync(ga_tile tile)
{
    (void)tile;
}

/* Issue all loads before this point ahead of the first use of their values, where the GPU's
 * assembler would interleave them. Does not order memory. */
GA_SIMT void ga_tile_gate(ga_tile tile)
{
    (void)tile;
}

/* Everything that the tile's lanes did before happens before the actions of a thread that acquires
 * a later post of any of these lanes (ga_post_*_published of the same scope, any number of them).
 * On the CPU each post releases by itself. */
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

/* An arbitrary number, ideally different in each call, so that a search does not repeat itself; not
 * uniform on the GPU. 0 on the CPU, and if GA_SIMT_NO_NOISE is defined: then a lone tile is
 * deterministic. */
GA_SIMT uint32_t ga_tile_noise(void)
{
    return 0;
}

/* The number of the multiprocessor that runs the lane. It spreads accesses, so that any number is
 * right; not uniform on the GPU. 0 on the CPU. */
GA_SIMT uint32_t ga_multiprocessor(void)
{
    return 0;
}

/* On the CPU no lane comes later. */
GA_SIMT uint64_t ga_grid_lanes_later(void)
{
    return 0;
}

/* ---- lanes ------------------------------------------------------------------------------- */

/* GA_EACH_LANE(tile, mask, own) { ... }: each lane of the mask runs the body; `own` is its number.
 * Inside, lanes are accessed by ga_lane_read() and ga_lane_write(), and no collective function may
 * be called. On the GPU the lanes run in parallel, on the CPU one after the other. */
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

/* Broadcast the value of the lane with that number. */
GA_SIMT uint32_t ga_lanes_get(ga_tile tile, ga_lanes lanes, uint32_t lane)
{
    return lanes[lane & (tile.width - 1u)];
}

/* The value of the first lane of the mask. With tiles abreast: of the first tile whose mask is not
 * 0, for all tiles. If there is none, the value of lane 31. */
GA_SIMT uint32_t ga_lanes_pick(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    (void)tile;
    return lanes[among ? ga_bits_lowest(among) : 31u];
}

/* Each lane gets the value of the lane whose number it has in `from`, which must be in the tile. */
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

/* Bit i in element i. Masks are composed from it and not by shifts, because SSE2 has no vector
 * shifts by different amounts. */
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

/* True if the condition, which is uniform in each tile, holds in any tile of the warp. */
GA_SIMT bool ga_tiles_any(ga_tile tile, bool condition)
{
    (void)tile;
    return condition;
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

/* Each lane of the mask gets the value of the preceding lane of the mask; the first, and all
 * others, get 0. */
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

/* Each lane gets the number of set bits in the lanes before it. */
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

/* The sum of what the lanes have added to `own` in GA_EACH_LANE, from 0 on. For tiles without gaps.
 */
GA_SIMT float ga_tile_sum_f32(ga_tile tile, float own)
{
    (void)tile;
    return own;
}

GA_SIMT double ga_tile_sum_f64(ga_tile tile, double own)
{
    (void)tile;
    return own;
}

/* The least value. */
GA_SIMT uint32_t ga_lanes_least(ga_tile tile, ga_lanes lanes)
{
    uint32_t least = lanes[0];
    for (uint32_t i = 1; i < tile.width; i++) {
        least = lanes[i] < least ? lanes[i] : least;
    }
    return least;
}

/* The bitwise or of all lanes. */
GA_SIMT uint32_t ga_lanes_union(ga_tile tile, ga_lanes lanes)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        all |= lanes[i];
    }
    return all;
}

/* True if all lanes have the same value. */
GA_SIMT bool ga_lanes_same(ga_tile tile, ga_lanes lanes)
{
    uint32_t other = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        other |= lanes[i] ^ lanes[0];
    }
    return other == 0;
}

/* Each lane of the mask `among` gets the mask of those lanes of `among` that hold the same key,
 * itself included. Other lanes get 0. */
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

/* Merge equal requests: each lane gets the bitwise or of `bits` over the lanes of its mask `equal`,
 * which comes from ga_lanes_equal(); 0 if the mask is 0. */
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

/* Deal set bits to lanes: the lane of `takers` that has `skip + k` lanes of `takers` below it gets
 * `first` plus the index of set bit number k of `bits`. Lanes without such a bit, and lanes outside
 * the mask, keep their values. */
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

/* The lowest lane. It does the work that is needed once; ga_lanes_get() passes the result to the
 * others. */
GA_SIMT uint32_t ga_tile_leader(ga_tile tile)
{
    (void)tile;
    return 0;
}

#endif
