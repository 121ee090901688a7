/* SPDX-License-Identifier: MIT
 *
 * Positions in order: tiles compute pieces of a result at the same time, each of a length that is
 * known only afterwards, and each gets the position behind all earlier pieces. So the result has no
 * gaps, and nothing is moved.
 *
 * STRUCTURE  One word for each piece: two bits of state, 62 bits of a number of elements. A tile
 *            stores the length of its piece. Then it reads the words of the pieces before, up to
 *            one that has its end; the lengths since then and that end are its position (Merrill
 *            and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016).
 *
 * INVARIANT  The state of a word only rises. Its end, once known, never changes.
 *
 * ORDER      None: all accesses are relaxed, because only a number travels, in the word itself. The
 *            elements are read after all tiles have ended.
 *
 * PROGRESS   Pieces must be begun in their order. Then a tile waits only for tiles that began
 *            earlier, and the earliest waits for none. A tile that cannot finish its piece marks it
 *            as failed, so that no later one waits for it.
 *
 * Only host threads use it yet.
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

#define GA_ORDER_NONE (~(uint64_t)0) /* no position: an earlier piece has failed */

/* The word of the piece `back` before `piece`, once its state is known. The piece before the first
 * one ends at 0. */
GA_SIMT uint64_t ga_order_load(const uint64_t *words, uint64_t piece, uint64_t back)
{
    uint64_t word = GA_ORDER_UNKNOWN;
    if (back > piece) {
        return GA_ORDER_END;
    }
    /* relaxed, here and below: as above */
    while (((word = ga_load64_relaxed(words + piece - back)) & GA_ORDER_STATE) ==
           GA_ORDER_UNKNOWN) {
        ga_clock_sleep(100);
    }
    return word;
}

/* The position of piece number `piece`, which has `length` elements; or GA_ORDER_NONE. By one
 * lane. */
GA_SIMT uint64_t ga_order_position_lone(uint64_t *words, uint64_t piece, uint64_t length)
{
    uint64_t position = 0, word;
    uint64_t back = 1;
    ga_store64_relaxed(words + piece, GA_ORDER_LENGTH | length);
    while (((word = ga_order_load(words, piece, back)) & GA_ORDER_STATE) == GA_ORDER_LENGTH) {
        position += word & ~GA_ORDER_STATE;
        back++;
    }
    if ((word & GA_ORDER_STATE) == GA_ORDER_FAILED) {
        ga_store64_relaxed(words + piece, GA_ORDER_FAILED);
        return GA_ORDER_NONE;
    }
    position += word & ~GA_ORDER_STATE;
    ga_store64_relaxed(words + piece, GA_ORDER_END | (position + length));
    return position;
}

/* No element of the piece, nor of later ones, is stored. By one lane. */
GA_SIMT void ga_order_fail_lone(uint64_t *words, uint64_t piece)
{
    ga_store64_relaxed(words + piece, GA_ORDER_FAILED);
}

#endif
