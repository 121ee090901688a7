/* SPDX-License-Identifier: MIT
 *
 * Positions of spgemm/order_tile.h: threads take pieces in order, store their lengths, and find the
 * positions of some at once and of others later. Each position is the sum of all lengths before.
 */
#include "../../spgemm/order_tile.h"
#include "stress.h"
#include "support/random.h"

#include <string.h>

enum {
    THREADS = 4,
    PIECES = 3000,
    KEPT = 40 /* pieces of a thread that have no position yet */
};

static uint64_t lengths[PIECES], before[PIECES + 1];
static uint64_t words[PIECES];
static uint64_t next_piece;
static ga_order_scan scan;

/* Few lengths have more than 26 bits, or more than 32. */
static uint64_t random_length(uint64_t *random)
{
    uint64_t kind = random_below(random, 100);
    uint64_t bits = kind < 3 ? 40 : kind < 10 ? 28 : kind < 50 ? 26 : 5;
    return random_below(random, (uint64_t)1 << bits);
}

/* Wait until at most `most` pieces have no position, the earliest first. */
static void find_positions(uint64_t *kept, size_t *count, size_t most)
{
    while (*count > most) {
        uint64_t position = ga_order_known(words, kept[0], lengths[kept[0]]);
        if (position == GA_ORDER_LATER) {
            ga_order_advance(ga_tile_of(32), words, PIECES, &scan);
            continue;
        }
        NEED(position == before[kept[0]]);
        *count -= 1;
        memmove(kept, kept + 1, *count * sizeof *kept);
    }
}

static void take_pieces(size_t number)
{
    uint64_t kept[KEPT], piece, random = number + 1;
    size_t count = 0;
    /* relaxed: hands out numbers */
    while ((piece = ga_add64_relaxed(&next_piece, 1)) < PIECES) {
        ga_order_store(ga_tile_of(32), words, piece, GA_ORDER_LENGTH | lengths[piece]);
        kept[count++] = piece;
        find_positions(kept, &count, random_below(&random, KEPT));
    }
    find_positions(kept, &count, 0);
}

int main(int argc, char **argv)
{
    uint64_t random = 1;
    stress_begin(argc, argv);
    while (stress_goes_on()) {
        memset(words, 0, sizeof words);
        memset(&scan, 0, sizeof scan);
        next_piece = 0;
        for (size_t i = 0; i < PIECES; i++) {
            lengths[i] = random_length(&random);
            before[i + 1] = before[i] + lengths[i];
        }
        stress_threads(THREADS, take_pieces);
        NEED(scan.first == PIECES && scan.end == before[PIECES]);
    }
    return 0;
}
