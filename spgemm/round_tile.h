/* SPDX-License-Identifier: MIT
 *
 * Rounds of a product in which each row that is not complete gets room for some more entries, and
 * where these pieces of rows are (vmm-spgemm-2023, Algorithm 3).
 *
 * STRUCTURE  Piece p begins at entry p * size of the vectors. The first round has a piece for each
 *            row; of later pieces `rows` has the row. `starts` has the first piece of each round.
 *            The cursor of a row is the column from which its next piece goes on.
 *
 * INVARIANT  A row has a piece in each round from the first to its last, and all of them but the
 *            last one are full. So its piece of round r has the entries from r * size on.
 *
 *            Rows are listed for the next round one behind another, so the number of those that
 *            have been listed in all rounds is the place of the next one in `rows`.
 *
 * ORDER      None: the tiles of a round touch different rows and pieces, and rounds are ordered by
 *            the caller.
 *
 * PROGRESS   Nothing waits.
 */
#ifndef GPUALLOC_SPGEMM_ROUND_TILE_H
#define GPUALLOC_SPGEMM_ROUND_TILE_H

#include "simt/simt.h"

/* A parameter of kernels. The arrays are where the product is. */
typedef struct ga_spgemm_round {
    uint32_t size;          /* entries of a piece */
    uint64_t all;           /* rows of the product */
    uint64_t *starts;       /* of each round: its first piece */
    uint32_t *rows;         /* of each piece from number `all` on: its row */
    uint32_t *cursors;      /* of each row */
    uint64_t number;        /* of this round, from 0 */
    uint64_t first, active; /* its first piece, and its pieces */
} ga_spgemm_round;

/* What has been stored of a row, by one piece. */
typedef struct ga_spgemm_progress {
    uint32_t count;  /* entries */
    uint32_t cursor; /* a column behind the last one, and not behind the next one */
    bool has_more;   /* the row has entries from the cursor on */
} ga_spgemm_progress;

/* Where a piece goes. */
typedef struct ga_spgemm_copy {
    uint64_t from, to;
    uint32_t count;
} ga_spgemm_copy;

GA_SIMT uint64_t ga_spgemm_row_of(const ga_spgemm_round *round, uint64_t piece)
{
    return piece < round->all ? piece : round->rows[piece - round->all];
}

/* The next round. `listed` rows have been listed in all rounds so far. */
GA_SIMT void ga_spgemm_next_round(ga_spgemm_round *round, uint64_t listed)
{
    round->first += round->active;
    round->active = round->all + listed - round->first;
    round->number++;
}

/* The round of a piece, after all rounds: `round->number` is how many there were. */
GA_SIMT uint64_t ga_spgemm_round_of(const ga_spgemm_round *round, uint64_t piece)
{
    uint64_t low = 0, high = round->number - 1u;
    while (low < high) {
        uint64_t middle = high - (high - low) / 2u;
        if (round->starts[middle] <= piece) {
            low = middle;
        } else {
            high = middle - 1u;
        }
    }
    return low;
}

/* From the entries of a piece to their positions in the matrix, whose offsets are known. */
GA_SIMT ga_spgemm_copy ga_spgemm_copy_of(const ga_spgemm_round *round, const uint64_t *offsets,
                                         uint64_t piece)
{
    uint64_t row = ga_spgemm_row_of(round, piece);
    uint64_t before = ga_spgemm_round_of(round, piece) * round->size;
    uint64_t left = offsets[row + 1u] - offsets[row] - before;
    ga_spgemm_copy copy = {piece * round->size, offsets[row] + before,
                           left < round->size ? (uint32_t)left : round->size};
    return copy;
}

#endif
