/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc over tiles and rows, for CPU and GPU (slab-hash-2018, §V; docs/internals/slab.md has
 * the drawing). A claim takes free units, a release frees them. slab_in_turn.h has the claims of a
 * tile that takes its units one after the other.
 *
 *   ga_slab_claim_lanes     one unit for each lane of a mask
 *    |- claim_fast          a whole warp: one atomic on the home word, then one on the word that
 *    |                      the hint names. claim_lowest for some lanes: one on the home word
 *    `- claim_slow          the rest; a function of its own, for a whole warp or for some lanes
 *        `- claim_search    a new hint (slab_hint.h); the block of the last word; 4 random
 *                           sectors, 3 times; then each block whose count says that it has room
 *
 * STRUCTURE  A memory block is 1024 units and one row of 1024 bits: a bit is set while its unit is
 *            taken. Each memory block has a count of its free units too, 32 counts a row.
 *
 *              counts    row  ----+---------------  1 word: a memory block
 *              bitmaps   row  ----+---------------  1 bit:  a unit
 *
 * INVARIANT  A tile owns a unit from the moment when it set the unit's bit until it clears it. When
 *            no tile is in a call, a count is the number of clear bits of its row, because a tile
 *            that changes bits changes the count by as much soon after. In between the count may be
 *            off by the changes under way, and even below 0 (modulo 2^32).
 *
 * ORDER      SU1 and SU2 below: the accesses of a unit's last owner happen before those of the next
 *            one. Counts are relaxed, because they only guide the search: a unit is claimed by its
 *            bit. If a free happens before a claim, the claim reads the count that the free has
 *            changed. A tile's free has happened for its other lanes once they have synchronised
 *            with the leader.
 *
 * PROGRESS   Lock-free: an attempt fails only because another tile's succeeded. A claim visits each
 *            memory block at most once more than it finds room there, then returns FULL. FULL is
 *            exact while no tile frees. Beside frees a claim may return FULL too early.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_TILE_H
#define GPUALLOC_SLAB_UNITS_SLAB_TILE_H

#include "slab_hint.h"
#include "slab_units.h"

/* ---- bits and counts ----------------------------------------------------------------------- */

/* Change the count of the block of `word` by `n` units, which the caller claimed or freed. Called
 * by one lane. Relaxed: see ORDER. */
GA_SIMT void ga_slab_count_claimed(ga_slab_view slab, uint32_t word, uint32_t n)
{
    uint32_t index = ga_slab_count_index(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS);
    ga_post_add_relaxed(slab.free + index, 0u - n);
}

GA_SIMT void ga_slab_count_released(ga_slab_view slab, uint32_t word, uint32_t n)
{
    uint32_t index = ga_slab_count_index(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS);
    ga_post_add_relaxed(slab.free + index, GA_PLANTED(slab_free_not_counted) ? 0 : n);
}

/* Set `bits` of the word and return its former value: the bits of `bits` that were clear are now
 * the caller's units. Called by one lane, which then has to change the count. */
GA_SIMT uint32_t ga_slab_set_bits(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t *at = ga_slab_word(slab, word);
#if GA_PLANTED(slab_claim_relaxed)
    return ga_or_relaxed(at, bits);
#elif GA_PLANTED(slab_claim_not_atomic)
    uint32_t taken = ga_load_acquire(at); /* SU1, as a load and a store. Pairs with SU2. */
    ga_store_relaxed(at, taken | bits);
    return taken;
#else
    /* SU1: acquire. Pairs with SU2: the accesses of a unit's last owner happen before ours. */
    return ga_or_acquire(at, bits);
#endif
}

/* Like ga_slab_set_bits(), and changes the count. */
GA_SIMT uint32_t ga_slab_claim_bits(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t taken = ga_slab_set_bits(slab, word, bits);
    if (bits & ~taken) {
        ga_slab_count_claimed(slab, word, ga_bits_count(bits & ~taken));
    }
    return taken;
}

/* Free the units `bits` of the word. The caller's tile owns all of them and has called
 * ga_tile_publish() since it used them. Called by one lane. */
GA_SIMT void ga_slab_release_bits(ga_slab_view slab, uint32_t word, uint32_t bits)
{
    uint32_t *at = ga_slab_word(slab, word);
#if GA_PLANTED(slab_free_relaxed)
    ga_post_and_relaxed(at, ~bits);
#else
    /* SU2: release, with the tile's publish. Pairs with SU1. No lane waits for the result. */
    ga_post_and_published(at, ~bits);
#endif
    ga_slab_count_released(slab, word, ga_bits_count(bits));
}

/* Both for a tile: its leader makes the change. */
GA_SIMT uint32_t ga_slab_tile_claim_bits(ga_slab_view slab, ga_tile tile, uint32_t word,
                                         uint32_t bits)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_slab_claim_bits(slab, word, bits));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

GA_SIMT void ga_slab_tile_release_bits(ga_slab_view slab, ga_tile tile, uint32_t word,
                                       uint32_t bits)
{
    ga_tile_publish(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slab_release_bits(slab, word, bits);
    }
}

/* ---- the walk: memory blocks that have room ------------------------------------------------ */

/* A walk over all counts, once around, one row of 32 memory blocks a step. The order jumps between
 * distant rows, because full blocks often lie together. */
typedef struct ga_slab_walk {
    uint32_t steps_left; /* steps to come */
    uint32_t row;        /* index of a row of counts */
    uint32_t candidates; /* mask: blocks of the row that have room and have not been returned yet */
} ga_slab_walk;

/* Number of rows of counts that are in use. */
GA_SIMT uint32_t ga_slab_count_rows(ga_slab_view slab)
{
    uint32_t blocks = ga_slab_blocks(slab);
    uint32_t whole = blocks >> (GA_SLAB_SPREAD + 5u);
    uint32_t rest = blocks - (whole << (GA_SLAB_SPREAD + 5u));
    uint32_t max = 1u << GA_SLAB_SPREAD;
    return (whole << GA_SLAB_SPREAD) + (rest < max ? rest : max);
}

/* The lowest 2^n - 1 that is no less than the number of rows of counts. */
GA_SIMT uint32_t ga_slab_walk_mask(ga_slab_view slab)
{
    return ga_bits_below(32u - ga_bits_leading(ga_slab_count_rows(slab) | 1u));
}

GA_SIMT ga_slab_walk ga_slab_walk_begin(ga_slab_view slab)
{
    ga_slab_walk walk;
    walk.steps_left = ga_slab_walk_mask(slab) + (GA_PLANTED(slab_last_row_not_searched) ? 0u : 1u);
    walk.row = 0;
    walk.candidates = 0;
    return walk;
}

/* The next memory block that may have room, or GA_SLAB_FULL at the end: the paper's resident
 * change. `seed` is constant during a walk and sets where it begins, so that tiles spread. */
GA_SIMT uint32_t ga_slab_walk_next(ga_slab_view slab, ga_tile tile, ga_slab_walk *walk,
                                   uint32_t seed)
{
    while (!walk->candidates) {
        if (!walk->steps_left) {
            GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
            {
                (void)own;
                /* relaxed: a statistic, which the host reads between launches. */
                ga_post_add_relaxed(&slab.heap->full, 1u);
            }
            return GA_SLAB_FULL;
        }
        /* An odd multiplier modulo a power of two is a permutation: each row is visited once. */
        walk->row = ((seed + walk->steps_left) * 0x9e3779b1u) & ga_slab_walk_mask(slab);
        walk->steps_left -= 1u;
        if (walk->row < ga_slab_count_rows(slab)) {
#if GA_PLANTED(slab_free_count_relaxed)
            walk->candidates = ga_row_differ(
                tile, ga_row_load(tile, slab.free + (size_t)walk->row * GA_SLAB_ROW_WORDS), 0);
#else
            /* SG1: acquire. Pairs with SG2 (host.c, slab_growing.h): a tile that sees a new
             * superblock's count sees the superblock. */
            walk->candidates =
                ga_row_scan(tile, slab.free + (size_t)walk->row * GA_SLAB_ROW_WORDS, 0);
#endif
        }
    }
    uint32_t index = ga_bits_from(walk->candidates, seed & 31u);
    walk->candidates &= ~(1u << index);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: a statistic, which the host reads between launches. */
        ga_post_add_relaxed(&slab.heap->changes, 1u);
    }
    return ga_slab_block_of_count(GA_SLAB_SPREAD, walk->row * GA_SLAB_ROW_WORDS + index);
}

/* ---- lane-parallel: a unit for each lane --------------------------------------------------- */

/* 1 for each lane whose `bits` has at least `n` bits set, else 0. */
GA_SIMT ga_lanes ga_slab_has_at_least(ga_tile tile, ga_lanes bits, uint32_t n)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&bits, own, ga_bits_count(ga_lane_read(bits, own)) >= n);
    }
    return bits;
}

/* The state of a claim that searches. */
typedef struct ga_slab_search {
    uint32_t requesting; /* mask of the lanes that have no unit yet */
    ga_lanes units;
    uint32_t last_word; /* the last word that gave units */
    bool lost_race; /* another tile took bits first, so the words may hold more than we asked for */
} ga_slab_search;

/* Each lane of the mask `probing` reads one word. The tile claims as many free units as
 * `requesting` has lanes, and deals them out. `one_block`: all words are of one memory block. */
GA_SIMT void ga_slab_claim_in_words(ga_slab_view slab, ga_tile tile, uint32_t probing,
                                    ga_lanes words, bool one_block, ga_slab_search *search)
{
    uint32_t wanted = ga_bits_count(search->requesting);
    ga_lanes room = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, probing, own)
    {
        ga_lane_write(&room, own, ~ga_load_relaxed(ga_slab_word(slab, ga_lane_read(words, own))));
    }
    /* If one word has enough units, it gives them all. Otherwise each word gives what the words of
     * lower lanes leave open. */
    uint32_t enough = ga_lanes_nonzero(tile, ga_slab_has_at_least(tile, room, wanted));
    ga_lanes before = enough ? ga_lanes_select(tile, enough & (0u - enough), ga_lanes_all(0),
                                               ga_lanes_all(wanted))
                             : ga_lanes_prefix_count(tile, room);
    GA_EACH_LANE(tile, probing, own)
    {
        uint32_t ahead = ga_lane_read(before, own);
        uint32_t bits = ga_lane_read(room, own);
        bits = ahead < wanted ? ga_bits_take(bits, wanted - ahead) : 0;
        if (bits) {
            uint32_t taken = ga_slab_set_bits(slab, ga_lane_read(words, own), bits);
            ga_lane_write(&missed, own, bits & taken);
            bits &= ~taken;
            if (bits && !one_block) {
                ga_slab_count_claimed(slab, ga_lane_read(words, own), ga_bits_count(bits));
            }
        }
        ga_lane_write(&room, own, bits);
    }
    ga_tile_sync(tile);
    uint32_t served = 0;
    for (uint32_t serving = ga_lanes_nonzero(tile, room); serving; serving &= serving - 1u) {
        uint32_t bits = ga_lanes_get(tile, room, ga_bits_lowest(serving));
        search->last_word = ga_lanes_get(tile, words, ga_bits_lowest(serving));
        ga_lanes_deal(tile, search->requesting, served, bits, search->last_word * 32u,
                      &search->units);
        served += ga_bits_count(bits);
    }
    if (one_block && served) {
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_slab_count_claimed(slab, search->last_word, served);
        }
    }
    search->requesting &= ~ga_bits_take(search->requesting, served);
    search->lost_race = ga_lanes_any(tile, missed) && !GA_PLANTED(slab_lost_race_is_failure);
}

/* A random word below `word_count` for each lane. Eight lanes get the words of one random sector of
 * 32 bytes, because a warp then reads 4 sectors instead of 32. */
GA_SIMT ga_lanes ga_slab_random_words(uint32_t word_count, ga_tile tile, uint32_t seed)
{
    ga_lanes words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t random = ga_bits_mix(seed + ga_lane_read(words, own) / GA_SLAB_SECTOR_WORDS);
        uint32_t word = (uint32_t)(random * word_count >> 32);
        ga_lane_write(&words, own, word & ~(GA_SLAB_SECTOR_WORDS - 1u));
    }
    return words + (ga_tile_ranks(tile) & ga_lanes_all(GA_SLAB_SECTOR_WORDS - 1u));
}

/* Probe the whole row of `block`, beginning with its word `start`; or, for GA_SLAB_FULL, 4 random
 * sectors chosen by `start`. A tile of fewer than 32 lanes does it in several steps. */
GA_SIMT void ga_slab_claim_in_row(ga_slab_heap *heap, uint32_t word_count, ga_tile tile,
                                  uint32_t block, uint32_t start, ga_slab_search *search)
{
    for (uint32_t first = 0; first < GA_SLAB_ROW_WORDS && search->requesting;
         first += search->lost_race ? 0 : ga_tile_size(tile)) {
        ga_lanes words = (ga_tile_ranks(tile) + (first + start)) & ga_lanes_all(31u);
        words += block * GA_SLAB_ROW_WORDS;
        if (block == GA_SLAB_FULL) {
            words = ga_slab_random_words(word_count, tile, start + first);
        }
        uint32_t probing = ga_bits_take(ga_tile_lanes(tile), GA_SLAB_ROW_WORDS - first);
        /* A new view in each step: to keep one would cost registers, which are dearer here than
         * loads. */
        ga_slab_claim_in_words(ga_slab_view_with(heap, word_count), tile, probing, words,
                               block != GA_SLAB_FULL, search);
    }
}

/* Claim the lowest n units of the word, where n is the number of lanes in `requesting`. Returns the
 * mask of those that were free. */
GA_SIMT uint32_t ga_slab_claim_lowest(ga_slab_view slab, ga_tile tile, uint32_t requesting,
                                      uint32_t word)
{
    uint32_t bits = ga_bits_below(ga_bits_count(requesting));
    return bits & ~ga_slab_tile_claim_bits(slab, tile, word, bits);
}

/* The steps of a search, in order. */
typedef enum ga_slab_search_step {
    GA_SLAB_SEARCH_SAME_BLOCK = 0, /* the block of the last word tried */
    GA_SLAB_SEARCH_RANDOM,         /* 4 sectors anywhere, 3 times */
    GA_SLAB_SEARCH_WALK = GA_SLAB_SEARCH_RANDOM + 3
} ga_slab_search_step;

/* The slow path of ga_slab_claim_lanes(). The home word had too few units. So had `tried`, the last
 * word tried, which may be the home word; `got` is the mask of the units that the claim got there.
 * If it got none, the hint may name another word. The search then probes 32 words at a time: the
 * block of `tried`, unless that word gave nothing, or is the home word and gave less than half of
 * the request; random sectors, because 32 words hold about 100 free units where 1 unit in 10 is
 * free; and at last each block whose count says that it has room. */
GA_SIMT ga_lanes ga_slab_claim_search(ga_slab_heap *heap, ga_tile tile, uint32_t requesting,
                                      uint32_t home, uint32_t tried, uint32_t got, uint32_t words)
{
    if (!got) {
        uint32_t word = ga_slab_hint_update(ga_slab_view_with(heap, words), tile, home, tried);
        if (word != tried) {
            tried = word;
            got = ga_slab_claim_lowest(ga_slab_view_with(heap, words), tile, requesting, tried);
        }
    }
    bool promising = got && (tried != home || 2u * ga_bits_count(got) >= ga_bits_count(requesting));
    uint32_t step = promising ? GA_SLAB_SEARCH_SAME_BLOCK : GA_SLAB_SEARCH_RANDOM;
    ga_slab_search search = {requesting & ~ga_bits_take(requesting, ga_bits_count(got)),
                             ga_lanes_all(GA_SLAB_FULL), tried, false};
    uint32_t hash =
        ga_bits_mix(home) + ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    ga_slab_walk walk = ga_slab_walk_begin(ga_slab_view_with(heap, words));
    ga_lanes_deal(tile, requesting, 0, got, tried * 32u, &search.units);
    for (; search.requesting; step++) {
        uint32_t block =
            step == GA_SLAB_SEARCH_SAME_BLOCK ? tried / GA_SLAB_ROW_WORDS : GA_SLAB_FULL;
        if (step >= GA_SLAB_SEARCH_WALK) {
            block = ga_slab_walk_next(ga_slab_view_with(heap, words), tile, &walk, hash);
            if (block == GA_SLAB_FULL) {
                return search.units;
            }
        }
        uint32_t start = block == GA_SLAB_FULL ? hash + step * 0x9e3779b9u : home;
        ga_slab_claim_in_row(heap, words, tile, block, start, &search);
    }
    return search.units;
}

/* Two functions: for a whole warp many values are constants, which halves the size. */
GA_SIMT_SLOW ga_lanes ga_slab_claim_slow_warp(ga_slab_heap *heap, uint32_t requesting,
                                              uint32_t home, uint32_t tried, uint32_t got,
                                              uint32_t words)
{
    return ga_slab_claim_search(heap, ga_tile_of(32), requesting, home, tried, got, words);
}

GA_SIMT_SLOW ga_lanes ga_slab_claim_slow_lanes(ga_slab_heap *heap, uint32_t lanes,
                                               uint32_t requesting, uint32_t home, uint32_t tried,
                                               uint32_t got, uint32_t words)
{
    ga_tile tile = ga_tile_among(lanes);
    return ga_slab_claim_search(heap, tile, requesting, home, tried, got, words);
}

GA_SIMT ga_lanes ga_slab_claim_slow(ga_slab_heap *heap, uint32_t lanes, uint32_t requesting,
                                    uint32_t home, uint32_t tried, uint32_t got, uint32_t words)
{
    return ga_warp_is_whole(lanes)
               ? ga_slab_claim_slow_warp(heap, requesting, home, tried, got, words)
               : ga_slab_claim_slow_lanes(heap, lanes, requesting, home, tried, got, words);
}

/* The number of words for searches: that of the view, or if the heap grows under kernels, that now,
 * as far as the multiprocessor's copy of it tells. */
GA_SIMT uint32_t ga_slab_words_now(const ga_slab_heap *heap, uint32_t words, bool grows)
{
    if (!grows) {
        return words;
    }
    uint32_t copy = ga_multiprocessor() % GA_SLAB_WORD_COPIES;
    /* relaxed: the rows of these words were released at device scope (slab_growing.h), and the
     * atomics that follow on the rows are performed in L2. */
    return ga_load_relaxed(heap->word_copies + copy * GA_SLAB_WORD_STRIDE);
}

/* The last word that a claim has tried, and the units of it that the claim holds. */
typedef struct ga_slab_tried {
    uint32_t word;
    uint32_t got;
} ga_slab_tried;

/* The fast path, for a whole warp. True: each lane has the unit of its number in the word `tried`.
 * One atomic on the word `home`, and one on the word that the hint names if the first got nothing.
 * `grows` is that of ga_slab_words_now(). */
GA_SIMT bool ga_slab_claim_fast(ga_slab_view slab, bool grows, uint32_t home, ga_slab_tried *tried)
{
    ga_tile all = ga_tile_of(32);
    /* relaxed: a guess. Loaded early, so that its latency overlaps the atomic. */
    ga_lanes hint = ga_lanes_all(ga_load_relaxed(ga_slab_hint_copy(slab.heap, home)));
    tried->word = home;
    tried->got = ~ga_slab_tile_claim_bits(slab, all, home, GA_ALL_BITS);
    if (tried->got == GA_ALL_BITS) {
        return true;
    }
    if (!tried->got) {
        /* The lanes may have loaded different hints. So slab.words may differ, too, until lane 0's
         * word is taken. */
        if (home + ga_lane_read(hint, 0) >= slab.words) {
            slab.words = ga_slab_words_now(slab.heap, slab.words, grows);
        }
        hint = ga_lanes_all(ga_slab_hinted_word(slab, ga_lane_read(hint, 0), home));
        tried->word = ga_lanes_get(all, hint, 0);
        if (tried->word != home) {
            tried->got = ~ga_slab_tile_claim_bits(slab, all, tried->word, GA_ALL_BITS);
        }
    }
    return tried->got == GA_ALL_BITS;
}

/* Claim a unit for each lane of the mask `requesting` (not empty); a lane that gets none has
 * GA_SLAB_FULL. Fast path: one atomic on the word `home` serves all lanes as long as that word has
 * room. Tiles that call at the same time should pass different home words. The tile is a whole warp
 * or any subset of its lanes. */
GA_SIMT ga_lanes ga_slab_claim_lanes(ga_slab_view slab, ga_tile tile, uint32_t requesting,
                                     uint32_t home)
{
    ga_slab_tried tried = {home, 0};
    if (requesting == GA_ALL_BITS) { /* the usual case, with constants */
        if (ga_slab_claim_fast(slab, false, home, &tried)) {
            return ga_lanes_numbers(ga_tile_of(32)) + tried.word * 32u;
        }
    } else {
        tried.got = ga_slab_claim_lowest(slab, tile, requesting, home);
    }
    return ga_slab_claim_slow(slab.heap, ga_tile_members(tile), requesting, home, tried.word,
                              tried.got, slab.words);
}

/* The slow path of ga_slab_release_lanes(): the units are of several words. The lowest lane of each
 * word frees the units of that word with one atomic. */
GA_SIMT void ga_slab_release_scattered(ga_slab_view slab, ga_tile tile, uint32_t releasing,
                                       ga_lanes words, ga_lanes bits)
{
    ga_lanes equal = ga_lanes_equal(tile, releasing, words);
    bits = ga_lanes_merge_or(tile, equal, bits);
    GA_EACH_LANE(tile, releasing, own)
    {
        if (ga_bits_lowest(ga_lane_read(equal, own)) == own) {
            ga_slab_release_bits(slab, ga_lane_read(words, own), ga_lane_read(bits, own));
        }
    }
}

/* Free one unit for each lane of `releasing` (not empty). One atomic frees all units of a word. The
 * tile has called ga_tile_publish() since its lanes used the units. */
GA_SIMT void ga_slab_release_lanes(ga_slab_view slab, ga_tile tile, uint32_t releasing,
                                   ga_lanes units)
{
    ga_lanes words = units / 32u;
    ga_lanes bits = ga_lanes_all(1u) << (units & ga_lanes_all(31u));
    if (releasing == GA_ALL_BITS) { /* the usual case, with constants */
        ga_tile all = ga_tile_of(32);
        if (ga_lanes_same(all, words)) {
            uint32_t together = ga_lanes_union(all, bits);
            GA_EACH_LANE(all, 1u, own)
            {
                ga_slab_release_bits(slab, ga_lane_read(words, own), together);
            }
            return;
        }
    }
    ga_slab_release_scattered(slab, tile, releasing, words, bits);
}

#endif
