/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc over tiles and rows, for CPU and GPU (slab-hash-2018, §V; docs/slab.md has the
 * drawing).
 *
 * STRUCTURE  A memory block is 1024 units and one row of 1024 bits: a bit is set while its unit is
 *            taken. Each memory block has a count of its free units as well, 32 of them a row.
 *
 *              counts    row  ----+---------------  1 word: a memory block
 *              bitmaps   row  ----+---------------  1 bit:  a unit
 *
 * INVARIANT  A unit is one tile's from the moment it set the bit until it clears it. Once all tiles
 *            rest, a count is the number of clear bits of its row: whoever changes bits changes the
 *            count by as much, soon after. In between it may be off by what is under way, below 0
 *            (modulo 2^32) too.
 *
 * ORDER      U1 and U2 below: what the last owner did with a unit happens before what the next one
 *            does. Counts are relaxed: they say where to look, and a bit is always asked itself. A
 *            free that happens before a claim has changed the count that the claim reads; to others
 *            than the leader, a tile's free has happened once they have met the leader.
 *
 * PROGRESS   Lock-free: an attempt fails because another tile's has succeeded. A claim visits each
 *            memory block at most once more than it finds room there, then answers FULL. That is
 *            exact as long as nobody frees; while frees are under way it may be told too early.
 */
#ifndef GPUALLOC_SLAB_SLAB_TILE_H
#define GPUALLOC_SLAB_SLAB_TILE_H

#include "slab_hint.h"
#include "slab_units.h"

/* ---- taking and giving back --------------------------------------------------------------- */

/* `bits` of the word have been taken or given back: `n` more or fewer are free in its block. By one
 * lane. Relaxed: see ORDER. */
GA_SIMT void ga_slab_count_taken(ga_slab_view slab, uint32_t word, uint32_t n)
{
    uint32_t place = ga_slab_count_place(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS);
    ga_post_add_relaxed(slab.free + place, 0u - n);
}

GA_SIMT void ga_slab_count_given(ga_slab_view slab, uint32_t word, uint32_t n)
{
    uint32_t place = ga_slab_count_place(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS);
    ga_post_add_relaxed(slab.free + place, GA_SLAB_MUTANT == 3 ? 0 : n);
}

/* Take those of `bits` in the word that are free. Answers what was taken before. By one lane, which
 * has to change the count. */
GA_SIMT uint32_t ga_slab_take_bits(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t *at = ga_slab_word(slab, word);
#if GA_SLAB_MUTANT == 1
    return ga_or_relaxed(at, bits);
#elif GA_SLAB_MUTANT == 4
    uint32_t taken = ga_load_acquire(at); /* U1, but not at once. Pairs with U2. */
    ga_store_relaxed(at, taken | bits);
    return taken;
#else
    /* U1: acquire. Pairs with U2: what a unit's last owner did happens before what we do. */
    return ga_or_acquire(at, bits);
#endif
}

/* The same, and the count is changed. */
GA_SIMT uint32_t ga_slab_take(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t taken = ga_slab_take_bits(slab, word, bits);
    if (bits & ~taken) {
        ga_slab_count_taken(slab, word, ga_bits_count(bits & ~taken));
    }
    return taken;
}

/* Give back `bits` of the word, all of them taken by the caller's tile, which has called
 * ga_tile_publish() since it used them. By one lane. */
GA_SIMT void ga_slab_give(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t *at = ga_slab_word(slab, word);
#if GA_SLAB_MUTANT == 2
    ga_post_and_relaxed(at, ~bits);
#else
    /* U2: release, with the tile's publish. Pairs with U1. Nothing waits for the answer. */
    ga_post_and_published(at, ~bits);
#endif
    ga_slab_count_given(slab, word, ga_bits_count(bits));
}

/* The two for a tile: its leader does it. */
GA_SIMT uint32_t ga_slab_tile_take(ga_slab_view slab, ga_tile tile, uint32_t word, uint32_t bits)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_slab_take(slab, word, bits));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

GA_SIMT void ga_slab_tile_give(ga_slab_view slab, ga_tile tile, uint32_t word, uint32_t bits)
{
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slab_give(slab, word, bits);
    }
}

/* ---- the sweep: which memory blocks have room ----------------------------------------------- */

/* A walk over all counts, a row of 32 memory blocks a step, once round, in an order that takes it
 * far from row to row: what is full often lies together. */
typedef struct ga_slab_sweep {
    uint32_t left; /* steps still to come */
    uint32_t row;  /* of counts */
    uint32_t open; /* mask of the row's blocks that have room and have not been tried */
} ga_slab_sweep;

/* The rows of counts that are in use. */
GA_SIMT uint32_t ga_slab_count_rows(ga_slab_view slab)
{
    uint32_t blocks = ga_slab_blocks(slab);
    uint32_t whole = blocks >> (GA_SLAB_SPREAD + 5u);
    uint32_t rest = blocks - (whole << (GA_SLAB_SPREAD + 5u));
    uint32_t most = 1u << GA_SLAB_SPREAD;
    return (whole << GA_SLAB_SPREAD) + (rest < most ? rest : most);
}

/* 2^n - 1, no less than there are rows of counts. */
GA_SIMT uint32_t ga_slab_sweep_mask(ga_slab_view slab)
{
    return ga_bits_below(32u - ga_bits_leading(ga_slab_count_rows(slab) | 1u));
}

GA_SIMT ga_slab_sweep ga_slab_sweep_begin(ga_slab_view slab)
{
    ga_slab_sweep sweep;
    sweep.left = ga_slab_sweep_mask(slab) + (GA_SLAB_MUTANT == 5 ? 0u : 1u);
    sweep.row = 0;
    sweep.open = 0;
    return sweep;
}

/* The next memory block that may have room, or GA_SLAB_FULL at the end: the paper's resident
 * change. `start`, the same in each call of a sweep, is where it begins, so that tiles spread. */
GA_SIMT uint32_t ga_slab_sweep_next(ga_slab_view slab, ga_tile tile, ga_slab_sweep *sweep,
                                    uint32_t start)
{
    while (!sweep->open) {
        if (!sweep->left) {
            GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
            {
                (void)own;
                /* relaxed: a count, which the host reads between launches. */
                ga_post_add_relaxed(&slab.heap->full, 1u);
            }
            return GA_SLAB_FULL;
        }
        /* Multiplying by an odd number takes each row once. */
        sweep->row = ((start + sweep->left) * 0x9e3779b1u) & ga_slab_sweep_mask(slab);
        sweep->left -= 1u;
        if (sweep->row < ga_slab_count_rows(slab)) {
#if GA_SLAB_MUTANT == 7
            sweep->open = ga_row_differ(
                tile, ga_row_load(tile, slab.free + (size_t)sweep->row * GA_SLAB_ROW_WORDS), 0);
#else
            /* G1: acquire. Pairs with G2 (host.c): where a new super block's count is seen, so is
             * the super block. */
            sweep->open = ga_row_scan(tile, slab.free + (size_t)sweep->row * GA_SLAB_ROW_WORDS, 0);
#endif
        }
    }
    uint32_t place = ga_bits_from(sweep->open, start & 31u);
    sweep->open &= ~(1u << place);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: a count, which the host reads between launches. */
        ga_post_add_relaxed(&slab.heap->changes, 1u);
    }
    return ga_slab_count_block(GA_SLAB_SPREAD, sweep->row * GA_SLAB_ROW_WORDS + place);
}

/* ---- lane-parallel: every lane may want a unit -------------------------------------------- */

/* Which lanes hold no fewer than `n` set bits: 0 for those that do not. */
GA_SIMT ga_lanes ga_slab_has(ga_tile tile, ga_lanes bits, uint32_t n)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&bits, own, ga_bits_count(ga_lane_read(bits, own)) >= n);
    }
    return bits;
}

/* What a claim that searches has got so far. */
typedef struct ga_slab_search {
    uint32_t wanting; /* the mask of the lanes that want a unit still */
    ga_lanes units;
    uint32_t found; /* the word that the last ones came from */
    bool lost; /* in the last look another tile was faster: there may be more than was asked for */
} ga_slab_search;

/* Look at one word for each lane of the mask `looking`, take as many units as are wanted, and deal
 * them out. `together`: the words are all of one memory block. */
GA_SIMT void ga_slab_claim_in_words(ga_slab_view slab, ga_tile tile, uint32_t looking,
                                    ga_lanes words, bool together, ga_slab_search *search)
{
    uint32_t wanted = ga_bits_count(search->wanting);
    ga_lanes room = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, looking, own)
    {
        ga_lane_write(&room, own, ~ga_load_relaxed(ga_slab_word(slab, ga_lane_read(words, own))));
    }
    /* One word that has enough serves all; else each gives what those before it leave to be
     * wanted. */
    uint32_t enough = ga_lanes_nonzero(tile, ga_slab_has(tile, room, wanted));
    ga_lanes before = enough ? ga_lanes_select(tile, enough & (0u - enough), ga_lanes_all(0),
                                               ga_lanes_all(wanted))
                             : ga_lanes_prefix_count(tile, room);
    GA_EACH_LANE(tile, looking, own)
    {
        uint32_t ahead = ga_lane_read(before, own);
        uint32_t bits = ga_lane_read(room, own);
        bits = ahead < wanted ? ga_bits_take(bits, wanted - ahead) : 0;
        if (bits) {
            uint32_t taken = ga_slab_take_bits(slab, ga_lane_read(words, own), bits);
            ga_lane_write(&missed, own, bits & taken);
            bits &= ~taken;
            if (bits && !together) {
                ga_slab_count_taken(slab, ga_lane_read(words, own), ga_bits_count(bits));
            }
        }
        ga_lane_write(&room, own, bits);
    }
    ga_tile_sync(tile);
    uint32_t served = 0;
    for (uint32_t givers = ga_lanes_nonzero(tile, room); givers; givers &= givers - 1u) {
        uint32_t bits = ga_lanes_get(tile, room, ga_bits_lowest(givers));
        search->found = ga_lanes_get(tile, words, ga_bits_lowest(givers));
        ga_lanes_deal(tile, search->wanting, served, bits, search->found * 32u, &search->units);
        served += ga_bits_count(bits);
    }
    if (together && served) {
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_slab_count_taken(slab, search->found, served);
        }
    }
    search->wanting &= ~ga_bits_take(search->wanting, served);
    search->lost = ga_lanes_any(tile, missed) && GA_SLAB_MUTANT != 6;
}

/* A random word for each lane, out of `all`. */
GA_SIMT ga_lanes ga_slab_words_anywhere(uint32_t all, ga_tile tile, uint32_t hash)
{
    ga_lanes words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t random = ga_bits_mix(hash + ga_lane_read(words, own));
        ga_lane_write(&words, own, (uint32_t)(random * all >> 32));
    }
    return words;
}

/* The whole row of `block`, or with GA_SLAB_FULL as many words anywhere, from place `start` on: as
 * often as the tile has fewer lanes than the row has words. */
GA_SIMT void ga_slab_claim_look(ga_slab_heap *heap, uint32_t all, ga_tile tile, uint32_t block,
                                uint32_t start, ga_slab_search *search)
{
    for (uint32_t first = 0; first < GA_SLAB_ROW_WORDS && search->wanting;
         first += search->lost ? 0 : ga_tile_size(tile)) {
        ga_lanes words = (ga_tile_ranks(tile) + (first + start)) & ga_lanes_all(31u);
        words += block * GA_SLAB_ROW_WORDS;
        if (block == GA_SLAB_FULL) {
            words = ga_slab_words_anywhere(all, tile, start + first);
        }
        uint32_t looking = ga_bits_take(ga_tile_lanes(tile), GA_SLAB_ROW_WORDS - first);
        /* The view is made anew in each step: registers are dearer here than loads. */
        ga_slab_claim_in_words(ga_slab_view_with(heap, all), tile, looking, words,
                               block != GA_SLAB_FULL, search);
    }
}

/* So many units of the word as are wanted, of its lowest: which ones were free. */
GA_SIMT uint32_t ga_slab_claim_some(ga_slab_view slab, ga_tile tile, uint32_t wanting,
                                    uint32_t word)
{
    uint32_t bits = ga_bits_below(ga_bits_count(wanting));
    return bits & ~ga_slab_tile_take(slab, tile, word, bits);
}

/* Where step `step` of a search looks. */
typedef enum ga_slab_step {
    GA_SLAB_LOOK_BESIDE = 0, /* the block of the word that it has tried last */
    GA_SLAB_LOOK_ANYWHERE,   /* a few times; then in blocks whose counts say that they have room */
    GA_SLAB_LOOK_COUNTS = GA_SLAB_LOOK_ANYWHERE + 3
} ga_slab_step;

/* What ga_slab_claim_lanes() does where words `start` and `tried`, which may be the same, had too
 * little, the latter only `got`. It looks at 32 words at a time: those beside `tried`, if that is
 * promising; some all over the heap (where one unit in ten is free, 32 words hold a hundred); those
 * of every block that has room. */
GA_SIMT ga_lanes ga_slab_claim_rest_by(ga_slab_heap *heap, ga_tile tile, uint32_t wanting,
                                       uint32_t start, uint32_t tried, uint32_t got, uint32_t words)
{
    if (!got) {
        uint32_t word = ga_slab_hint_anew(ga_slab_view_with(heap, words), tile, start, tried);
        if (word != tried) {
            tried = word;
            got = ga_slab_claim_some(ga_slab_view_with(heap, words), tile, wanting, tried);
        }
    }
    bool promising = got && (tried != start || 2u * ga_bits_count(got) >= ga_bits_count(wanting));
    uint32_t step = promising ? GA_SLAB_LOOK_BESIDE : GA_SLAB_LOOK_ANYWHERE;
    ga_slab_search search = {wanting & ~ga_bits_take(wanting, ga_bits_count(got)),
                             ga_lanes_all(GA_SLAB_FULL), tried, false};
    uint32_t hash = ga_bits_mix(start) +
                    ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    ga_slab_sweep sweep = ga_slab_sweep_begin(ga_slab_view_with(heap, words));
    ga_lanes_deal(tile, wanting, 0, got, tried * 32u, &search.units);
    for (; search.wanting; step++) {
        uint32_t block = step == GA_SLAB_LOOK_BESIDE ? tried / GA_SLAB_ROW_WORDS : GA_SLAB_FULL;
        if (step >= GA_SLAB_LOOK_COUNTS) {
            block = ga_slab_sweep_next(ga_slab_view_with(heap, words), tile, &sweep, hash);
            if (block == GA_SLAB_FULL) {
                return search.units;
            }
        }
        uint32_t place = block == GA_SLAB_FULL ? hash + step * 0x9e3779b9u : start;
        ga_slab_claim_look(heap, words, tile, block, place, &search);
    }
    return search.units;
}

/* Functions of their own: for a whole warp so much is constant that it takes half the room. */
GA_SIMT_SLOW ga_lanes ga_slab_claim_rest_whole(ga_slab_heap *heap, uint32_t wanting, uint32_t start,
                                               uint32_t tried, uint32_t got, uint32_t words)
{
    return ga_slab_claim_rest_by(heap, ga_tile_of(32), wanting, start, tried, got, words);
}

GA_SIMT_SLOW ga_lanes ga_slab_claim_rest_among(ga_slab_heap *heap, uint32_t lanes, uint32_t wanting,
                                               uint32_t start, uint32_t tried, uint32_t got,
                                               uint32_t words)
{
    ga_tile tile = ga_tile_among(lanes);
    return ga_slab_claim_rest_by(heap, tile, wanting, start, tried, got, words);
}

GA_SIMT ga_lanes ga_slab_claim_rest(ga_slab_heap *heap, uint32_t lanes, uint32_t wanting,
                                    uint32_t start, uint32_t tried, uint32_t got, uint32_t words)
{
    return ga_warp_is_whole(lanes)
               ? ga_slab_claim_rest_whole(heap, wanting, start, tried, got, words)
               : ga_slab_claim_rest_among(heap, lanes, wanting, start, tried, got, words);
}

/* A unit for each lane of the mask `wanting` (not empty), GA_SLAB_FULL for those that get none. One
 * atomic serves them all while the word `start` of the bitmaps, where the search begins, has room:
 * tiles that call beside each other bring different ones. The tile has 32 lanes, or gaps. */
GA_SIMT ga_lanes ga_slab_claim_lanes(ga_slab_view slab, ga_tile tile, uint32_t wanting,
                                     uint32_t start)
{
    uint32_t word = start;
    uint32_t got;
    if (wanting == GA_ALL_BITS) { /* the usual case: so much is constant here */
        ga_tile all = ga_tile_of(32);
        /* relaxed: a guess. Asked for ahead, and waited for only where it is needed. */
        ga_lanes hint = ga_lanes_all(ga_load_relaxed(ga_slab_hint(slab.heap, start)));
        got = ~ga_slab_tile_take(slab, all, start, GA_ALL_BITS);
        if (got == GA_ALL_BITS) {
            return ga_lanes_numbers(all) + start * 32u;
        }
        uint32_t hinted = ga_slab_hinted(slab, ga_lanes_get(all, hint, 0), start);
        if (!got && hinted != start) {
            word = hinted;
            got = ~ga_slab_tile_take(slab, all, word, GA_ALL_BITS);
            if (got == GA_ALL_BITS) {
                return ga_lanes_numbers(all) + word * 32u;
            }
        }
    } else {
        got = ga_slab_claim_some(slab, tile, wanting, start);
    }
    return ga_slab_claim_rest(slab.heap, ga_tile_members(tile), wanting, start, word, got,
                              slab.words);
}

/* The rest of ga_slab_release_lanes(): units of several words. */
GA_SIMT void ga_slab_release_words(ga_slab_view slab, ga_tile tile, uint32_t giving, ga_lanes words,
                                   ga_lanes bits)
{
    ga_lanes equal = ga_lanes_equal(tile, giving, words);
    bits = ga_lanes_merge_or(tile, equal, bits);
    GA_EACH_LANE(tile, giving, own)
    {
        if (ga_bits_lowest(ga_lane_read(equal, own)) == own) {
            ga_slab_give(slab, ga_lane_read(words, own), ga_lane_read(bits, own));
        }
    }
}

/* Give back one unit for each lane of `giving` (not empty). Units of one word go back by one
 * atomic. The tile has called ga_tile_publish() since its lanes used them. */
GA_SIMT void ga_slab_release_lanes(ga_slab_view slab, ga_tile tile, uint32_t giving, ga_lanes units)
{
    ga_lanes words = units / 32u;
    ga_lanes bits = ga_lanes_all(1u) << (units & ga_lanes_all(31u));
    if (giving == GA_ALL_BITS) { /* the usual case: so much is constant here */
        ga_tile all = ga_tile_of(32);
        if (ga_lanes_same(all, words)) {
            uint32_t together = ga_lanes_union(all, bits);
            GA_EACH_LANE(all, 1u, own)
            {
                ga_slab_give(slab, ga_lane_read(words, own), together);
            }
            return;
        }
    }
    ga_slab_release_words(slab, tile, giving, words, bits);
}

/* ---- a tile takes one unit at a time ------------------------------------------------------ */

/* What a tile keeps between its claims. Begin with ga_slab_resident_begin(). */
typedef struct ga_slab_resident {
    uint32_t block; /* the resident memory block */
    uint32_t start; /* the word of it that we look at first, so that tiles of one block part */
    uint32_t hash;
    ga_row taken; /* its bitmap as we last saw it */
} ga_slab_resident;

/* Tile number `number` begins: tiles spread evenly over the words there are. */
GA_SIMT void ga_slab_resident_begin(ga_slab_view slab, ga_tile tile, uint32_t number,
                                    ga_slab_resident *resident)
{
    uint32_t word = number < slab.words ? number : number % slab.words;
    resident->block = word / GA_SLAB_ROW_WORDS;
    resident->start = word % GA_SLAB_ROW_WORDS;
    resident->hash = ga_bits_mix(number);
    resident->taken = ga_row_load(tile, ga_slab_row(slab, resident->block));
}

/* One unit of the resident block, as far as its bitmap in registers has room. */
GA_SIMT uint32_t ga_slab_claim_resident(ga_slab_view slab, ga_tile tile, ga_slab_resident *resident)
{
    uint32_t room;
    while ((room = ga_row_differ(tile, resident->taken, GA_ALL_BITS)) != 0) {
        uint32_t place = ga_bits_from(room, resident->start);
        uint32_t seen = ga_row_get(tile, resident->taken, place);
        uint32_t bit = ~seen & (seen + 1u); /* the lowest that is clear */
        uint32_t word = resident->block * GA_SLAB_ROW_WORDS + place;
        uint32_t taken = ga_slab_tile_take(slab, tile, word, bit);
        ga_row_put(tile, &resident->taken, place, taken | bit);
        if (!(taken & bit)) {
            return word * 32u + ga_bits_lowest(bit);
        }
    }
    return GA_SLAB_FULL;
}

/* One unit for the tile, or GA_SLAB_FULL: the paper's warp_allocate(), one atomic a unit. */
GA_SIMT uint32_t ga_slab_claim_one(ga_slab_view slab, ga_tile tile, ga_slab_resident *resident)
{
    uint32_t unit = ga_slab_claim_resident(slab, tile, resident);
    if (unit != GA_SLAB_FULL) {
        return unit;
    }
    ga_slab_sweep sweep = ga_slab_sweep_begin(slab);
    while (unit == GA_SLAB_FULL) {
        uint32_t block = ga_slab_sweep_next(slab, tile, &sweep, resident->hash);
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

/* Give back one unit of the tile's. */
GA_SIMT void ga_slab_release_one(ga_slab_view slab, ga_tile tile, uint32_t unit)
{
    ga_slab_tile_give(slab, tile, unit / 32u, 1u << (unit % 32u));
}

/* ---- a word at a time ---------------------------------------------------------------------- */

/* Units that a tile or thread has taken ahead: those of one word. They count as taken; what is left
 * goes back with ga_slab_give_word(). Begin with `word` where to look first and `units` 0. */
typedef struct ga_slab_claimed {
    uint32_t word;
    uint32_t units; /* the mask of those left */
} ga_slab_claimed;

/* All that is free in one word of the block; none where it has no room. */
GA_SIMT ga_slab_claimed ga_slab_claim_word_of(ga_slab_view slab, ga_tile tile, uint32_t block,
                                              uint32_t start)
{
    ga_slab_claimed claimed;
    uint32_t *row = ga_slab_row(slab, block);
    uint32_t place;
    claimed.word = block * GA_SLAB_ROW_WORDS + start;
    claimed.units = 0;
    while (!claimed.units && (place = ga_row_seek(tile, row, GA_ALL_BITS, start)) != GA_NONE) {
        claimed.word = block * GA_SLAB_ROW_WORDS + place;
        claimed.units = ~ga_slab_tile_take(slab, tile, claimed.word, GA_ALL_BITS);
    }
    return claimed;
}

GA_SIMT_SLOW ga_slab_claimed ga_slab_claim_word_rest(ga_slab_heap *heap, uint32_t lanes,
                                                     uint32_t start, uint32_t words)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_slab_view slab = ga_slab_view_with(heap, words);
    uint32_t hash = ga_bits_mix(start);
    uint32_t block = start / GA_SLAB_ROW_WORDS;
    ga_slab_claimed claimed = ga_slab_claim_word_of(slab, tile, block, start % GA_SLAB_ROW_WORDS);
    ga_slab_sweep sweep = ga_slab_sweep_begin(slab);
    while (!claimed.units &&
           (block = ga_slab_sweep_next(slab, tile, &sweep, hash)) != GA_SLAB_FULL) {
        claimed = ga_slab_claim_word_of(slab, tile, block, hash & 31u);
    }
    return claimed;
}

/* Take all that is free in one word, from `claimed->word` on; `units` stays 0 where the heap is
 * full. */
GA_SIMT void ga_slab_claim_word(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    claimed->units = ~ga_slab_tile_take(slab, tile, claimed->word, GA_ALL_BITS);
    if (!claimed->units) {
        *claimed =
            ga_slab_claim_word_rest(slab.heap, ga_tile_members(tile), claimed->word, slab.words);
    }
}

/* Give back what is left of it. */
GA_SIMT void ga_slab_give_word(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    if (claimed->units) {
        ga_slab_tile_give(slab, tile, claimed->word, claimed->units);
        claimed->units = 0;
    }
}

/* One unit for the tile out of the word that it has claimed, claiming the next when that is used
 * up; or GA_SLAB_FULL. One atomic for up to 32 units. */
GA_SIMT uint32_t ga_slab_claim_next(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    if (!claimed->units) {
        ga_slab_claim_word(slab, tile, claimed);
        if (!claimed->units) {
            return GA_SLAB_FULL;
        }
    }
    uint32_t unit = claimed->word * 32u + ga_bits_lowest(claimed->units);
    claimed->units &= claimed->units - 1u;
    return unit;
}

#endif
