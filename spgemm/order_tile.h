/* SPDX-License-Identifier: MIT
 *
 * Positions in order: tiles compute pieces of a result at the same time, each of a length that is
 * known only afterwards, and each gets the position behind all earlier pieces. So the result has no
 * gaps.
 *
 *     ga_order_position          store the length of a piece, and look back for its position
 *     ga_order_advance           one tile at a time finds the positions of all pieces that are next
 *
 * STRUCTURE  One word for each piece: two bits of state, 62 bits of a number of elements. A tile
 *            stores the length of its piece. Then there are two ways to its position:
 *            - The tile reads the words of the pieces before, one in each lane, up to one that has
 *              its end; the lengths since then and that end are its position (Merrill and Garland,
 *              Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016).
 *            - A tile takes the scan, which says where the first piece without an end begins, and
 *              stores the ends of this piece and of those behind it that have a length. The other
 *              tiles find theirs in their words. If pieces take so long that hundreds of words have
 *              no end, this is less work, because no tile but one reads them.
 *
 * INVARIANT  The state of a word only rises. Its end, once known, never changes.
 *
 * ORDER      Words are accessed relaxed, because only a number travels, in the word itself.
 *            XS (is_taken): a tile that takes the scan sees `first` and `end` as the last holder
 *            stored them.
 *
 * PROGRESS   Pieces must be begun in their order. Then a tile that looks back waits only for tiles
 *            that began earlier, and the earliest waits for none. The tile that has the scan waits
 *            for nothing, so it leaves soon. A tile that finds the scan taken can go on with other
 *            work, or try again.
 */
#ifndef GPUALLOC_SPGEMM_ORDER_TILE_H
#define GPUALLOC_SPGEMM_ORDER_TILE_H

#include "simt/planted.h"
#include "simt/simt.h"

/* The states, in the upper bits of a word. Zeroed memory is unknown. */
#define GA_ORDER_STATE   ((uint64_t)3 << 62)
#define GA_ORDER_UNKNOWN ((uint64_t)0 << 62)
#define GA_ORDER_LENGTH  ((uint64_t)1 << 62) /* the number is the piece's length */
#define GA_ORDER_END     ((uint64_t)2 << 62) /* the number is the position behind it */

#define GA_ORDER_WINDOWS GA_SIMT_LOADS /* words that a lane loads at once */

#define GA_ORDER_LATER (~(uint64_t)0) /* no position yet: an earlier piece has no length */

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

/* The words of the 32 pieces from `first` on. Those behind the last one are unknown. */
GA_SIMT void ga_order_load_from(ga_tile tile, const uint64_t *words, uint64_t first, uint64_t count,
                                ga_lanes *low, ga_lanes *high)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t word = GA_ORDER_UNKNOWN;
        if (first + own < count) {
            word = ga_load64_relaxed(words + first + own);
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

/* The position behind the pieces before `piece`. Waits for them. For a tile of 32 lanes. */
GA_SIMT uint64_t ga_order_before(ga_tile tile, const uint64_t *words, uint64_t piece)
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
            if (unknown & ga_bits_below(nearest)) {
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

/* The position of piece number `piece`, which has `length` elements. For a tile of 32 lanes. */
GA_SIMT uint64_t ga_order_position(ga_tile tile, uint64_t *words, uint64_t piece, uint64_t length)
{
    ga_order_store(tile, words, piece, GA_ORDER_LENGTH | length);
    uint64_t position = ga_order_before(tile, words, piece);
    ga_order_store(tile, words, piece, GA_ORDER_END | (position + length));
    return position;
}

/* ---- positions found by one tile at a time --------------------------------------------------- */

/* How far the ends are known. Zeroed before. */
typedef struct ga_order_scan {
    uint64_t first, end; /* the first piece without an end, and where it begins */
    uint32_t is_taken;   /* 1: by a tile */
} ga_order_scan;

/* The position of a piece of `length` elements, or GA_ORDER_LATER. By one lane or more. */
GA_SIMT uint64_t ga_order_known(const uint64_t *words, uint64_t piece, uint64_t length)
{
    uint64_t word = ga_load64_relaxed(words + piece);
    return (word & GA_ORDER_STATE) == GA_ORDER_END ? (word & ~GA_ORDER_STATE) - length
                                                   : GA_ORDER_LATER;
}

/* Try to take the scan. */
GA_SIMT bool ga_order_take(ga_tile tile, ga_order_scan *scan)
{
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        bool takes = !ga_load_relaxed(&scan->is_taken);
#if GA_PLANTED(spgemm_take_relaxed)
        takes = takes && !ga_cas_relaxed(&scan->is_taken, 0, 1);
#else
        /* XS1: acquire. Pairs with XS2. */
        takes = takes && !ga_cas_acquire(&scan->is_taken, 0, 1);
#endif
        ga_lane_write(&taken, own, takes);
    }
    return ga_lanes_nonzero(tile, taken) != 0;
}

/* Leave the scan to others. The pieces before `first` have ends, the last of them `end`. */
GA_SIMT void ga_order_leave(ga_tile tile, ga_order_scan *scan, uint64_t first, uint64_t end)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        scan->first = first;
        scan->end = end;
#if GA_PLANTED(spgemm_leave_relaxed)
        ga_store_relaxed(&scan->is_taken, 0);
#else
        ga_store_release(&scan->is_taken, 0); /* XS2: release. Pairs with XS1. */
#endif
    }
}

/* Store the ends of the pieces from `first` on that have lengths, of which the first begins at
 * *end. Sets *end to the last end. Returns their number, at most 32. */
GA_SIMT uint32_t ga_order_extend(ga_tile tile, uint64_t *words, uint64_t first, ga_lanes low,
                                 ga_lanes high, uint64_t *end)
{
    uint32_t missing = ~ga_order_lanes(tile, high, GA_ORDER_LENGTH);
    uint32_t known = missing ? ga_bits_lowest(missing) : 32u;
    ga_lanes is_long = ga_lanes_all(0), lengths = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_bits_below(known), own)
    {
        uint32_t upper = ga_lane_read(high, own) & ~(uint32_t)(GA_ORDER_STATE >> 32);
        ga_lane_write(&is_long, own, upper || ga_lane_read(low, own) >> 26);
    }
    uint32_t longs = ga_lanes_nonzero(tile, is_long);
    if (longs & 1u) { /* alone, because sums of lanes have 32 bits */
        *end += ga_order_lengths(tile, low, high, 1u);
        ga_order_store(tile, words, first, GA_ORDER_END | *end);
        return 1;
    }
    known = longs ? ga_bits_lowest(longs) : known;
    GA_EACH_LANE(tile, ga_bits_below(known), own)
    {
        ga_lane_write(&lengths, own, ga_lane_read(low, own));
    }
    ga_lanes before = ga_lanes_prefix_sum(tile, lengths);
    GA_EACH_LANE(tile, ga_bits_below(known), own)
    {
        uint64_t own_end = *end + ga_lane_read(before, own) + ga_lane_read(lengths, own);
        ga_store64_relaxed(words + first + own, GA_ORDER_END | own_end);
    }
    *end += ga_lanes_sum(tile, lengths);
    return known;
}

/* Store the ends of pieces that have a length, of `count` in all, from the first without an end to
 * the next one without a length, or to one of 2^26 elements or more. False, and nothing is done, if
 * another tile has the scan. For a tile of 32 lanes. */
GA_SIMT bool ga_order_advance(ga_tile tile, uint64_t *words, uint64_t count, ga_order_scan *scan)
{
    if (!ga_order_take(tile, scan)) {
        return false;
    }
    ga_tile_sync(tile); /* all lanes are behind XS1 */
    uint64_t first = scan->first, end = scan->end;
    uint32_t known;
    do {
        ga_lanes low[GA_ORDER_WINDOWS], high[GA_ORDER_WINDOWS];
        GA_SIMT_UNROLL
        for (uint32_t i = 0; i < GA_ORDER_WINDOWS; i++) {
            low[i] = high[i] = ga_lanes_all(0);
            ga_order_load_from(tile, words, first + 32u * i, count, &low[i], &high[i]);
        }
        known = 32;
        GA_SIMT_UNROLL
        for (uint32_t i = 0; i < GA_ORDER_WINDOWS; i++) {
            if (known == 32u) {
                known = ga_order_extend(tile, words, first, low[i], high[i], &end);
                first += known;
            }
        }
    } while (known == 32u);
    ga_tile_sync(tile); /* all lanes have loaded the scan */
    ga_order_leave(tile, scan, first, end);
    return true;
}

#endif
