/* SPDX-License-Identifier: MIT
 *
 * The next array of a table that grows while kernels run: when there is to be one, of how many buckets,
 * who makes it, and how all clear it. grow_turn_tile.h has the STRUCTURE and the ORDER of the record.
 */
#ifndef GPUALLOC_SLABHASH_GROW_WHEN_TILE_H
#define GPUALLOC_SLABHASH_GROW_WHEN_TILE_H

#include "grow_stand_tile.h"

enum {
    GA_SLABHASH_PART = 64,        /* buckets that are cleared at once */
    GA_SLABHASH_SAMPLE = 32,      /* buckets that are looked at to see how full a table is */
    GA_SLABHASH_GROWS_AT = 35,    /* of 100 places of these: else more buckets are no help */
    GA_SLABHASH_WANTS = 32,       /* one in so many buckets has a slab: then they are asked for */
    GA_SLABHASH_TIMES_MOST = 16,  /* as many buckets at once */
    GA_SLABHASH_SMALL = 1 << 19,  /* up to so many buckets become four times as many at least */
    GA_SLABHASH_FEW = 4,          /* buckets that are looked at first to see how empty it is */
    GA_SLABHASH_SHRINKS_AT = 4,   /* of 100 places: below that it has half as many, or a quarter */
    GA_SLABHASH_COMPACTS_AT = 20, /* of 100 places are of deleted pairs: then it gets rid of them */
    GA_SLABHASH_LOOKS_AMONG = 64  /* looks at the record of those who change something */
};

/* Write a part of an array: ones. Relaxed: K and G1 come behind it. */
GA_SIMT void ga_slabhash_blank(ga_tile tile, const ga_slabhash_stage *stage, uint32_t part)
{
    uint64_t first = (uint64_t)part * GA_SLABHASH_PART;
    uint64_t end = first + GA_SLABHASH_PART;
    end = end < stage->buckets ? end : stage->buckets;
    uint64_t *words = (uint64_t *)(void *)stage->rows;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint64_t i = first * (GA_SLABHASH_WORDS / 2u) + own;
             i < end * (GA_SLABHASH_WORDS / 2u); i += ga_tile_size(tile)) {
            ga_store64_relaxed(words + i, UINT64_MAX);
        }
    }
}

/* Clear a part of the array that is being made: false where there is none to be cleared. */
GA_SIMT bool ga_slabhash_clear_some(ga_slabhash_growing *growing, ga_tile tile)
{
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, there);
    /* Y2. Pairs with Y1: its array is known. Else its place may be that of another yet. */
    if (ga_slabhash_ask(tile, &stage->ready) != there + 1u) {
        return false;
    }
    uint32_t parts = (stage->buckets + GA_SLABHASH_PART - 1u) / GA_SLABHASH_PART;
    if (ga_slabhash_ask(tile, &stage->parts) >= parts) {
        return false;
    }
    uint32_t part = ga_slabhash_tally(tile, &stage->parts, 1u);
    if (part >= parts) {
        return false;
    }
    ga_slabhash_blank(tile, stage, part);
    bool last =
        ga_slabhash_complete(tile, &stage->cleared, 1u, GA_SLABHASH_MUTANT == 26 ? 1u : parts);
    GA_EACH_LANE(tile, last ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (GA_SLABHASH_MUTANT == 25) {
            ga_store_relaxed(&growing->there, there + 1u);
        } else {
            ga_store_release(&growing->there, there + 1u); /* G1: release. Pairs with G2 */
        }
    }
    ga_tile_sync(tile);
    return true;
}

/* What is in some first slabs, of 100 places each: pairs, and what was deleted. */
typedef struct ga_slabhash_sampled {
    uint32_t live, dead;
} ga_slabhash_sampled;

/* Of `count` buckets, as far from each other as can be; which follows from `seed`. */
GA_SIMT ga_slabhash_sampled ga_slabhash_sample(uint32_t kind, ga_tile tile,
                                               const ga_slabhash_stand *stand, uint32_t count,
                                               uint32_t seed)
{
    uint32_t places = ga_slabhash_slot_mask(kind), buckets = stand->buckets;
    uint32_t step = buckets / count + 1u, seen = 0, live = 0, dead = 0;
    uint64_t first = (uint64_t)ga_bits_mix(seed) * buckets >> 32;
    for (uint64_t i = 0; i < buckets; i += step, seen++) {
        uint64_t bucket = first + i < buckets ? first + i : first + i - buckets;
        ga_row row = ga_slabhash_load_slab(kind, tile, stand->rows + bucket * GA_SLABHASH_WORDS);
        uint32_t pairs = ga_slabhash_live_slots(kind, tile, row);
        uint32_t empty = ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_EMPTY);
        live += ga_bits_count(pairs);
        dead += ga_bits_count(places & ~pairs & ~empty);
    }
    ga_slabhash_sampled sampled;
    sampled.live = live * 100u / (seen * ga_bits_count(places));
    sampled.dead = dead * 100u / (seen * ga_bits_count(places));
    return sampled;
}

/* How many buckets there are to be where there are too few: about two in three of their places are
 * to be taken. */
GA_SIMT uint32_t ga_slabhash_more(uint32_t buckets, uint32_t chained)
{
    uint64_t slabs = (uint64_t)buckets + chained;
    uint32_t times = buckets <= GA_SLABHASH_SMALL / 4u ? 4u : 2u;
    while (times < GA_SLABHASH_TIMES_MOST && (uint64_t)buckets * times * 2u < slabs * 3u) {
        times *= 2u;
    }
    while (times > 1u && (uint64_t)buckets * times > UINT32_C(1) << 31) {
        times /= 2u;
    }
    return buckets * times;
}

/* How many buckets there are to be where there are too many, or as many where what was deleted takes
 * up their places: 0 where it may stay as it is. */
GA_SIMT uint32_t ga_slabhash_less(ga_slabhash_sampled sampled, uint32_t buckets, uint32_t least,
                                  uint32_t chained)
{
    uint32_t times = sampled.live >= GA_SLABHASH_SHRINKS_AT ? 1u : sampled.live ? 2u : 4u;
    while (times > 1u && (buckets % times || buckets / times < least)) {
        times /= 2u;
    }
    bool compacts = chained > buckets / GA_SLABHASH_WANTS && sampled.live <= GA_SLABHASH_GROWS_AT &&
                    sampled.dead >= GA_SLABHASH_COMPACTS_AT;
    return times > 1u || compacts ? buckets / times : 0;
}

/* The tile has the right to make stage `number`, which has a place: its array is there to be cleared,
 * or there is none, and nobody asks again: for more buckets until `later` slabs are chained, for fewer
 * or as many at all. */
GA_SIMT void ga_slabhash_make_stage(ga_slabhash_growing *growing, ga_tile tile, uint32_t number,
                                    uint32_t buckets, uint32_t later)
{
    ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, number);
    ga_slabhash_stage *before = ga_slabhash_stage_of(growing, number - 1u);
    void *rows = ga_slabhash_array(growing, tile, ga_slabhash_array_bytes(buckets));
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        if (rows) {
            stage->rows = (uint32_t *)rows;
            stage->buckets = buckets;
            stage->wanted = buckets / GA_SLABHASH_WANTS;
            stage->chained = stage->parts = stage->cleared = stage->opened = stage->stays = 0;
            stage->cursor = 0;
            ga_store_release(&stage->ready, number + 1u); /* Y1: release. Pairs with Y2 */
            if (buckets <= before->buckets) {             /* relaxed: a figure */
                ga_post_add_relaxed(
                    buckets < before->buckets ? &growing->shrunk : &growing->compacted, 1u);
            }
        } else {
            if (buckets > before->buckets) {
                ga_store_relaxed(&before->wanted, later); /* relaxed: a figure */
            } else {
                ga_store_relaxed(&before->stays, 1u); /* relaxed: a figure */
            }
            ga_post_add_relaxed(&growing->failed, 1u);  /* relaxed: a figure */
            ga_store_release(&growing->making, number); /* M: release. Pairs with M in consider */
        }
    }
    ga_tile_sync(tile);
}

/* The calling tile gets the right to make the stage behind the stand's, and makes it. */
GA_SIMT void ga_slabhash_make_next(ga_slabhash_growing *growing, ga_tile tile,
                                   const ga_slabhash_stand *stand, uint32_t buckets, uint32_t later)
{
    uint32_t leader = ga_tile_leader(tile), number = stand->number + 1u;
    ga_lanes ours = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* M: acquire. Pairs with M: what who has tried before wrote. No stage was made since
         * the stand's, which is `now`: all its buckets are OPEN. */
        uint32_t before = ga_cas_acquire(&growing->making, number, number + 1u);
        ga_lane_write(&ours, own, before == number ? 1u : 0u);
    }
    ga_tile_sync(tile);
    if (ga_lanes_get(tile, ours, leader)) {
        ga_slabhash_make_stage(growing, tile, number, buckets, later);
    }
}

/* Whether the table may move to fewer buckets, or as many: nothing moves, no array is being made,
 * older ones have gone, and none was refused. So such moves never fill the ring. */
GA_SIMT bool ga_slabhash_is_at_rest(ga_slabhash_growing *growing, ga_tile tile,
                                    const ga_slabhash_stand *stand)
{
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, stand->number);
    return ga_slabhash_ask(tile, &growing->making) == stand->number + 1u &&
           ga_slabhash_ask(tile, &growing->gone) == stand->number && /* D2 */
           !ga_slabhash_ask(tile, &stage->stays);
}

/* A slab was chained behind the stand's stage, the newest there is: if there are too many, and its
 * places are full, of pairs or of what was deleted, another is made. */
GA_SIMT void ga_slabhash_consider(uint32_t kind, ga_slabhash_growing *growing, ga_tile tile,
                                  const ga_slabhash_stand *stand)
{
    ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, stand->number);
    uint32_t chained = ga_slabhash_tally(tile, &stage->chained, 1u) + 1u;
    uint32_t number = stand->number + 1u;
    uint32_t later = chained + chained / 4u + 1u;
    if (chained <= ga_slabhash_ask(tile, &stage->wanted) ||
        ga_slabhash_ask(tile, &growing->making) != number ||
        !ga_slabhash_has_place(growing, tile, number)) { /* D2 */
        return;
    }
    ga_slabhash_sampled sampled =
        ga_slabhash_sample(kind, tile, stand, GA_SLABHASH_SAMPLE, chained);
    uint32_t buckets = 0;
    if (sampled.live > GA_SLABHASH_GROWS_AT) {
        buckets = ga_slabhash_more(stand->buckets, chained);
        buckets = buckets > stand->buckets ? buckets : 0;
    } else if (ga_slabhash_is_at_rest(growing, tile, stand)) {
        buckets = ga_slabhash_less(sampled, stand->buckets, growing->least, chained);
    }
    if (buckets) {
        ga_slabhash_make_next(growing, tile, stand, buckets, later);
        return;
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_relaxed(&stage->wanted, later); /* relaxed: a figure */
    }
    ga_tile_sync(tile);
}

/* The tile looks at the record, and is asked to change something: now and then it looks whether there
 * are buckets, or slabs behind them, that are not wanted any more. A few buckets say so at once where
 * there are not. */
GA_SIMT void ga_slabhash_consider_less(uint32_t kind, ga_slabhash_growing *growing, ga_tile tile,
                                       const ga_slabhash_stand *stand)
{
    if (stand->next_rows || !ga_slabhash_is_at_rest(growing, tile, stand)) {
        return;
    }
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, stand->number);
    uint32_t least = growing->least;
    uint32_t chained = ga_slabhash_ask(tile, &stage->chained);
    if (stand->buckets / 2u < least && chained <= stand->buckets / GA_SLABHASH_WANTS) {
        return;
    }
    uint32_t buckets = 0, seed = ga_slabhash_tally(tile, &growing->looked, 1u);
    for (uint32_t count = GA_SLABHASH_FEW; count <= GA_SLABHASH_SAMPLE;
         count *= GA_SLABHASH_SAMPLE / GA_SLABHASH_FEW) {
        ga_slabhash_sampled sampled = ga_slabhash_sample(kind, tile, stand, count, seed);
        buckets = ga_slabhash_less(sampled, stand->buckets, least, chained);
        if (!buckets) {
            return;
        }
    }
    ga_slabhash_make_next(growing, tile, stand, buckets, 0);
}

/* ---- looking at the record -------------------------------------------------------------------- */

/* Why a tile does: only for what is to be done; since it is asked to change something; since it has
 * chained a slab. */
enum {
    GA_SLABHASH_LOOK_ONLY = 0,
    GA_SLABHASH_LOOK_CHANGING,
    GA_SLABHASH_LOOK_CHAINED
};

/* One look in so many, by chance. On the CPU, where noise is 0, each. */
GA_SIMT bool ga_slabhash_is_time(ga_tile tile)
{
    uint32_t noise = ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    return ga_bits_mix(noise) % GA_SLABHASH_LOOKS_AMONG == 0;
}

/* Look at the record again, and do a part of what is to be done. A function of its own, by values: so
 * that its registers are not its callers', nor their stands in memory. */
GA_SIMT_SLOW ga_slabhash_stand ga_slabhash_look_anew(ga_slabhash_growing *growing,
                                                     ga_slabhash_stand stand, uint32_t why)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    uint32_t kind = growing->kind;
    if (why == GA_SLABHASH_LOOK_CHAINED) {
        ga_slabhash_consider(kind, growing, tile, &stand);
    } else if (why == GA_SLABHASH_LOOK_CHANGING && ga_slabhash_is_time(tile)) {
        ga_slabhash_consider_less(kind, growing, tile, &stand);
    }
    if (!stand.next_rows) {
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_stand_read(growing, tile, &stand);
    (void)ga_slabhash_give_some(growing->slabs, growing, tile);
    return stand;
}

GA_SIMT void ga_slabhash_look_up(ga_slabhash_growing *growing, ga_slabhash_stand *stand,
                                 uint32_t why)
{
    *stand = ga_slabhash_look_anew(growing, *stand, why);
}

/* The turn of a tile with such a clock ends: it does a part of what it may leave to others, and
 * leaves. */
GA_SIMT_SLOW void ga_slabhash_tidy_up(ga_slabhash_growing *growing, uint32_t clock, bool considers)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_stand stand;
    stand.clock = clock;
    if (ga_slabhash_stand_has_changed(&stand)) {
        if (considers) {
            ga_slabhash_stand_take(growing, tile, &stand);
            ga_slabhash_consider_less(growing->kind, growing, tile, &stand);
        }
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_stand_end(growing, tile, &stand);
    (void)ga_slabhash_give_some(growing->slabs, growing, tile);
}

#endif
