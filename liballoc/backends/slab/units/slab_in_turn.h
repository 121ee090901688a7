/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc for a tile that takes its units one after the other. slab_tile.h has the structure, the
 * invariant and the order.
 *
 *   ga_slab_claim_one       one unit for the tile: the paper's warp_allocate()
 *    `- claim_resident      from the resident block, whose bitmap the tile keeps in registers
 *        `- walk            the next block that has room becomes the resident one
 *   ga_slab_claim_word      all free units of one word, for the caller to deal out
 *    `- claim_word_slow     the home word's block; then a walk
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_IN_TURN_H
#define GPUALLOC_SLAB_UNITS_SLAB_IN_TURN_H

#include "slab_tile.h"

/* ---- one unit at a time -------------------------------------------------------------------- */

/* A tile's state between its claims, set up by ga_slab_resident_begin(). */
typedef struct ga_slab_resident {
    uint32_t block; /* the resident memory block */
    uint32_t start; /* its word to probe first, so that tiles that share a block spread */
    uint32_t hash;
    ga_row taken; /* its bitmap as the tile last saw it */
} ga_slab_resident;

/* Begin for the tile with that number. Tiles spread evenly over the words. */
GA_SIMT void ga_slab_resident_begin(ga_slab_view slab, ga_tile tile, uint32_t number,
                                    ga_slab_resident *resident)
{
    uint32_t word = number < slab.words ? number : number % slab.words;
    resident->block = word / GA_SLAB_ROW_WORDS;
    resident->start = word % GA_SLAB_ROW_WORDS;
    resident->hash = ga_bits_mix(number);
    resident->taken = ga_row_load(tile, ga_slab_row(slab, resident->block));
}

/* One unit of the resident block, or GA_SLAB_FULL once the copy of its bitmap shows no clear bit. A
 * failed attempt updates the copy. */
GA_SIMT uint32_t ga_slab_claim_resident(ga_slab_view slab, ga_tile tile, ga_slab_resident *resident)
{
    uint32_t room;
    while ((room = ga_row_differ(tile, resident->taken, GA_ALL_BITS)) != 0) {
        uint32_t index = ga_bits_from(room, resident->start);
        uint32_t seen = ga_row_get(tile, resident->taken, index);
        uint32_t bit = ~seen & (seen + 1u); /* lowest clear bit */
        uint32_t word = resident->block * GA_SLAB_ROW_WORDS + index;
        uint32_t taken = ga_slab_tile_claim_bits(slab, tile, word, bit);
        ga_row_put(tile, &resident->taken, index, taken | bit);
        if (!(taken & bit)) {
            return word * 32u + ga_bits_lowest(bit);
        }
    }
    return GA_SLAB_FULL;
}

/* One unit for the tile, or GA_SLAB_FULL: the paper's warp_allocate(), with one atomic a unit. */
GA_SIMT uint32_t ga_slab_claim_one(ga_slab_view slab, ga_tile tile, ga_slab_resident *resident)
{
    uint32_t unit = ga_slab_claim_resident(slab, tile, resident);
    if (unit != GA_SLAB_FULL) {
        return unit;
    }
    ga_slab_walk walk = ga_slab_walk_begin(slab);
    while (unit == GA_SLAB_FULL) {
        uint32_t block = ga_slab_walk_next(slab, tile, &walk, resident->hash);
        if (block == GA_SLAB_FULL) {
            break;
        }
        resident->block = block;
        resident->taken = ga_row_load(tile, ga_slab_row(slab, block));
        unit = ga_slab_claim_resident(slab, tile, resident);
    }
    resident->hash = ga_bits_mix(resident->hash + 1u);
    return unit;
}

/* Free one unit that the tile owns. */
GA_SIMT void ga_slab_release_one(ga_slab_view slab, ga_tile tile, uint32_t unit)
{
    ga_slab_tile_release_bits(slab, tile, unit / 32u, 1u << (unit % 32u));
}

/* ---- a word of units at a time ------------------------------------------------------------- */

/* Units of one word that a tile or thread has claimed ahead. Their bits are set;
 * ga_slab_release_word() frees those that are left. Initialise `word` to the word to try first and
 * `units` to 0. */
typedef struct ga_slab_claimed {
    uint32_t word;
    uint32_t units; /* mask of the units left */
} ga_slab_claimed;

/* Claim all free units of one word of the block; `units` is 0 if the block is full. */
GA_SIMT ga_slab_claimed ga_slab_claim_word_in_block(ga_slab_view slab, ga_tile tile, uint32_t block,
                                                    uint32_t start)
{
    ga_slab_claimed claimed;
    uint32_t *row = ga_slab_row(slab, block);
    uint32_t index;
    claimed.word = block * GA_SLAB_ROW_WORDS + start;
    claimed.units = 0;
    while (!claimed.units && (index = ga_row_seek(tile, row, GA_ALL_BITS, start)) != GA_NONE) {
        claimed.word = block * GA_SLAB_ROW_WORDS + index;
        claimed.units = ~ga_slab_tile_claim_bits(slab, tile, claimed.word, GA_ALL_BITS);
    }
    return claimed;
}

GA_SIMT_SLOW ga_slab_claimed ga_slab_claim_word_slow(ga_slab_heap *heap, uint32_t lanes,
                                                     uint32_t home, uint32_t words)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_slab_view slab = ga_slab_view_with(heap, words);
    uint32_t hash = ga_bits_mix(home);
    uint32_t block = home / GA_SLAB_ROW_WORDS;
    ga_slab_claimed claimed =
        ga_slab_claim_word_in_block(slab, tile, block, home % GA_SLAB_ROW_WORDS);
    ga_slab_walk walk = ga_slab_walk_begin(slab);
    while (!claimed.units && (block = ga_slab_walk_next(slab, tile, &walk, hash)) != GA_SLAB_FULL) {
        claimed = ga_slab_claim_word_in_block(slab, tile, block, hash & 31u);
    }
    return claimed;
}

/* Claim all free units of one word, beginning with `claimed->word`. `units` stays 0 if the heap is
 * full. */
GA_SIMT void ga_slab_claim_word(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    claimed->units = ~ga_slab_tile_claim_bits(slab, tile, claimed->word, GA_ALL_BITS);
    if (!claimed->units) {
        *claimed =
            ga_slab_claim_word_slow(slab.heap, ga_tile_members(tile), claimed->word, slab.words);
    }
}

/* Free the units that are left. */
GA_SIMT void ga_slab_release_word(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    if (claimed->units) {
        ga_slab_tile_release_bits(slab, tile, claimed->word, claimed->units);
        claimed->units = 0;
    }
}

#endif
