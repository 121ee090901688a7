/* SPDX-License-Identifier: MIT
 *
 * Positions in order: tiles compute pieces of a result at the same time, each of a length that is
 * known only afterwards, and each gets the position behind all earlier pieces. So the result has no
 * gaps.
 *
 * STRUCTURE  One word for each piece: two bits of state, 62 bits of a number of elements. A tile
 *            stores the length of its piece. Then it reads the words of the pieces before, one in
 *            each lane, up to one that has its end; the lengths since then and that end are its
 *            position (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled
 *            Look-back, 2016).
 *
 * INVARIANT  The state of a word only rises. Its end, once known, never changes, unless there is no
 *            memory up to it: then it becomes failed.
 *
 * ORDER      None: all accesses are relaxed, because only a number travels, in the word itself.
 *
 * PROGRESS   Pieces must be begun in their order. Then a tile waits only for tiles that began
 *            earlier, and the earliest waits for none. A tile that cannot finish its piece marks it
 *            as failed, so that no later one waits for it.
 */
#ifndef GPUALLOC_SPGEMM_ORDER_TILE_H
#define GPUALLOC_SPGEMM_ORDER_TILE_H

#include "simt/simt.h"

/* The states, in the upper bits of a word. Zeroed memory is unknown. */
#define GA_ORDER_STATE   ((uint64_t)3 << 62)
#define GA_ORDER_UNKNOWN ((uint64_t)0 << 62)
#define GA_ORDER_LENGTH  ((uint64_t)1 << 62) /* the number is the piece's length */
#define GA_ORDER_END     ((uint64_t)2 << 62) /* the number is the position behind it */
#define GA_ORDER_FAILED  ((uint64_t)3 << 62)

#define GA_ORDER_WINDOWS GA_SIMT_LOADS /* words that a lane loads at once */

#define GA_ORDER_NONE  (~(uint64_t)0) /* no position: an earlier piece has failed */
#define GA_ORDER_LATER (~(uint64_t)3) /* no position yet: an earlier piece has no length */

GA_SIMT void ga_order_store(ga_tile tile, uint64_t *words, uint64_t piece, uint64_t word)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store64_relaxed(words + piece, word); /* relaxed, here and below: as above */
    }
}

/* The words of the 32 pieces before `piece`, the nearest in lane 0. Those before the first one are
 * ends at 0. */
GA_SIMT void ga_order_load(ga_tile tile, const uint64_t *words, uint64_t piece, ga_lanes *low,
                           ga_lanes *high)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t word = GA_ORDER_END;
        if (own < piece) {
            word = ga_load64_relaxed(words + piece - 1u - own);
        }
        ga_lane_write(low, own, (uint32_t)word);
        ga_lane_write(high, own, (uint32_t)(word >> 32));
    }
    ga_tile_sync(tile);
}

/* The lanes whose words have the state. */
GA_SIMT uint32_t ga_order_lanes(ga_tile tile, ga_lanes high, uint64_t state)
{
    ga_lanes equal = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&equal, own,
                      (ga_lane_read(high, own) & (uint32_t)(GA_ORDER_STATE >> 32)) ==
                          (uint32_t)(state >> 32));
    }
    return ga_lanes_nonzero(tile, equal);
}

/* The sum of the numbers in some lanes, by halves, so that none overflows. */
GA_SIMT uint64_t ga_order_sum(ga_tile tile, ga_lanes numbers, uint32_t lanes)
{
    ga_lanes lower = ga_lanes_all(0), upper = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes, own)
    {
        ga_lane_write(&lower, own, ga_lane_read(numbers, own) & 0xffffu);
        ga_lane_write(&upper, own, ga_lane_read(numbers, own) >> 16);
    }
    return ga_lanes_sum(tile, lower) + ((uint64_t)ga_lanes_sum(tile, upper) << 16);
}

/* The sum of the lengths in some lanes, given as two halves of their words. */
GA_SIMT uint64_t ga_order_lengths(ga_tile tile, ga_lanes low, ga_lanes high, uint32_t lanes)
{
    ga_lanes numbers = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes, own)
    {
        ga_lane_write(&numbers, own, ga_lane_read(high, own) & ~(uint32_t)(GA_ORDER_STATE >> 32));
    }
    return ga_order_sum(tile, low, lanes) + (ga_order_sum(tile, numbers, lanes) << 32);
}

/* The position behind the pieces before `piece`, or GA_ORDER_NONE. `waits` for them, or returns
 * GA_ORDER_LATER. For a tile of 32 lanes. */
GA_SIMT uint64_t ga_order_before(ga_tile tile, const uint64_t *words, uint64_t piece, bool waits)
{
    uint64_t position = 0;
    for (;;) {
        ga_lanes low[GA_ORDER_WINDOWS], high[GA_ORDER_WINDOWS];
        GA_SIMT_UNROLL
        for (uint32_t i = 0; i < GA_ORDER_WINDOWS; i++) { /* together, because loads take long */
            low[i] = high[i] = ga_lanes_all(0);
            ga_order_load(tile, words, piece > 32u * i ? piece - 32u * i : 0, &low[i], &high[i]);
        }
        GA_SIMT_UNROLL
        for (uint32_t i = 0; i < GA_ORDER_WINDOWS; i++) {
            uint32_t unknown = ga_order_lanes(tile, high[i], GA_ORDER_UNKNOWN);
            uint32_t ends = ga_order_lanes(tile, high[i], GA_ORDER_END);
            uint32_t nearest = ends ? ga_bits_lowest(ends) : 32u;
            if (ga_order_lanes(tile, high[i], GA_ORDER_FAILED)) {
                return GA_ORDER_NONE;
            }
            if (unknown & ga_bits_below(nearest)) {
                if (!waits) {
                    return GA_ORDER_LATER;
                }
                ga_clock_sleep(100);
                break;
            }
            position += ga_order_lengths(tile, low[i], high[i], ga_bits_below(nearest));
            if (ends) {
                uint64_t end = (uint64_t)ga_lanes_get(tile, high[i], nearest) << 32 |
                               ga_lanes_get(tile, low[i], nearest);
                return position + (end & ~GA_ORDER_STATE);
            }
            piece -= 32u;
        }
    }
}

/* The position of piece number `piece`, which has `length` elements; or GA_ORDER_NONE. For a tile
 * of 32 lanes. */
GA_SIMT uint64_t ga_order_position(ga_tile tile, uint64_t *words, uint64_t piece, uint64_t length)
{
    ga_order_store(tile, words, piece, GA_ORDER_LENGTH | length);
    uint64_t position = ga_order_before(tile, words, piece, true);
    ga_order_store(tile, words, piece,
                   position == GA_ORDER_NONE ? GA_ORDER_FAILED
                                             : GA_ORDER_END | (position + length));
    return position;
}

/* No element of the piece, nor of later ones, is stored. */
GA_SIMT void ga_order_fail(ga_tile tile, uint64_t *words, uint64_t piece)
{
    ga_order_store(tile, words, piece, GA_ORDER_FAILED);
}

#endif
