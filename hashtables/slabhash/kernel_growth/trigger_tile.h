/* SPDX-License-Identifier: MIT
 *
 * The next array of a table that grows while kernels run: when it is made, how many buckets it
 * gets, which tile makes it, and how all tiles clear it. resize_tile.h has the STRUCTURE and the
 * ORDER of the record.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_TRIGGER_TILE_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_TRIGGER_TILE_H

#include "snapshot_tile.h"

enum {
    GA_SLABHASH_PART = 64,        /* buckets that are cleared at once */
    GA_SLABHASH_SAMPLE = 32,      /* buckets that are sampled to see how full a table is */
    GA_SLABHASH_GROWS_AT = 35,    /* percent of their slots: below that, more buckets do not help */
    GA_SLABHASH_CHAINED_DIV = 32, /* 1 in 32 buckets has a slab: then the table is sampled */
    GA_SLABHASH_TIMES_MAX = 16,   /* the largest factor of growth */
    GA_SLABHASH_SMALL = 1 << 19,  /* up to this many buckets grow fourfold at least */
    GA_SLABHASH_FEW = 4,          /* buckets that are sampled first to see how empty it is */
    GA_SLABHASH_SHRINKS_AT = 4,   /* percent of slots: below that it halves or quarters */
    GA_SLABHASH_COMPACTS_AT = 20, /* percent of slots with tombstones: then they are dropped */
    GA_SLABHASH_LOOKS_AMONG = 64, /* 1 in 64 checks by tiles that change something */
    /* When its session ends, 1 tile in 16 does a part of the work, and 1 in 128 checks whether
     * fewer buckets would do. */
    GA_SLABHASH_WORKING_SESSIONS = 16,
    GA_SLABHASH_SHRINKING_SESSIONS = 128
};

/* Clear a part of an array, to all ones. Relaxed: K and G1 come after it. */
GA_SIMT void ga_slabhash_blank(ga_tile tile, const ga_slabhash_version *version, uint32_t part)
{
    uint64_t first = (uint64_t)part * GA_SLABHASH_PART;
    uint64_t end = first + GA_SLABHASH_PART;
    end = end < version->buckets ? end : version->buckets;
    uint64_t *words = (uint64_t *)(void *)version->rows;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint64_t i = first * (GA_SLABHASH_WORDS / 2u) + own;
             i < end * (GA_SLABHASH_WORDS / 2u); i += ga_tile_size(tile)) {
            ga_store64_relaxed(words + i, UINT64_MAX);
        }
    }
}

/* Clear a part of the array that is being made. False: no part is left. */
GA_SIMT bool ga_slabhash_clear_some(ga_slabhash_growing *growing, ga_tile tile)
{
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    ga_slabhash_version *version = ga_slabhash_version_of(growing, there);
    /* Y2. Pairs with Y1: the array is known. Otherwise its entry may still belong to an older
     * version. */
    if (ga_slabhash_ask(tile, &version->ready) != there + 1u) {
        return false;
    }
    uint32_t parts = (version->buckets + GA_SLABHASH_PART - 1u) / GA_SLABHASH_PART;
    if (ga_slabhash_ask(tile, &version->parts) >= parts) {
        return false;
    }
    uint32_t part = ga_slabhash_tally(tile, &version->parts, 1u);
    if (part >= parts) {
        return false;
    }
    ga_slabhash_blank(tile, version, part);
    bool last = ga_slabhash_complete(tile, &version->cleared, 1u,
                                     GA_PLANTED(slabhash_array_partly_cleared) ? 1u : parts);
    GA_EACH_LANE(tile, last ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (GA_PLANTED(slabhash_new_array_relaxed)) {
            ga_store_relaxed(&growing->there, there + 1u);
        } else {
            ga_store_release(&growing->there, there + 1u); /* G1: release. Pairs with G2 */
        }
    }
    ga_tile_sync(tile);
    return true;
}

/* The contents of some first slabs, in percent of their slots: pairs, and tombstones. */
typedef struct ga_slabhash_sampled {
    uint32_t live, dead;
} ga_slabhash_sampled;

/* Sample `count` buckets, spread evenly; `seed` says where to begin. */
GA_SIMT ga_slabhash_sampled ga_slabhash_sample(uint32_t kind, ga_tile tile,
                                               const ga_slabhash_snapshot *snapshot, uint32_t count,
                                               uint32_t seed)
{
    uint32_t slots = ga_slabhash_slot_mask(kind), buckets = snapshot->buckets;
    uint32_t step = buckets / count + 1u, seen = 0, live = 0, dead = 0;
    uint64_t first = (uint64_t)ga_bits_mix(seed) * buckets >> 32;
    for (uint64_t i = 0; i < buckets; i += step, seen++) {
        uint64_t bucket = first + i < buckets ? first + i : first + i - buckets;
        ga_row row = ga_slabhash_load_slab(kind, tile, snapshot->rows + bucket * GA_SLABHASH_WORDS);
        uint32_t pairs = ga_slabhash_live_slots(kind, tile, row);
        uint32_t empty = ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_EMPTY);
        live += ga_bits_count(pairs);
        dead += ga_bits_count(slots & ~pairs & ~empty);
    }
    ga_slabhash_sampled sampled;
    sampled.live = live * 100u / (seen * ga_bits_count(slots));
    sampled.dead = dead * 100u / (seen * ga_bits_count(slots));
    return sampled;
}

/* The number of buckets for a table that has too few, so that about two thirds of its slots will be
 * in use. */
GA_SIMT uint32_t ga_slabhash_more(uint32_t buckets, uint32_t chained)
{
    uint64_t slabs = (uint64_t)buckets + chained;
    uint32_t times = buckets <= GA_SLABHASH_SMALL / 4u ? 4u : 2u;
    while (times < GA_SLABHASH_TIMES_MAX && (uint64_t)buckets * times * 2u < slabs * 3u) {
        times *= 2u;
    }
    while (times > 1u && (uint64_t)buckets * times > UINT32_C(1) << 31) {
        times /= 2u;
    }
    return buckets * times;
}

/* The number of buckets for a table that has too many; or equally many, if tombstones take up its
 * slots. 0: it stays as it is. */
GA_SIMT uint32_t ga_slabhash_less(ga_slabhash_sampled sampled, uint32_t buckets, uint32_t least,
                                  uint32_t chained)
{
    uint32_t times = sampled.live >= GA_SLABHASH_SHRINKS_AT ? 1u : sampled.live ? 2u : 4u;
    while (times > 1u && (buckets % times || buckets / times < least)) {
        times /= 2u;
    }
    bool compacts = chained > buckets / GA_SLABHASH_CHAINED_DIV &&
                    sampled.live <= GA_SLABHASH_GROWS_AT && sampled.dead >= GA_SLABHASH_COMPACTS_AT;
    return times > 1u || compacts ? buckets / times : 0;
}

/* Make version `number`, by the tile that has the right to, with a free entry. Either its array is
 * ready to be cleared, or there is no memory and requests stop: for more buckets until `later`
 * slabs are chained, for fewer or equally many altogether. */
GA_SIMT void ga_slabhash_make_version(ga_slabhash_growing *growing, ga_tile tile, uint32_t number,
                                      uint32_t buckets, uint32_t later)
{
    ga_slabhash_version *version = ga_slabhash_version_of(growing, number);
    ga_slabhash_version *before = ga_slabhash_version_of(growing, number - 1u);
    void *rows = ga_slabhash_array_alloc(&growing->memory, tile, ga_slabhash_array_bytes(buckets));
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        if (rows) {
            version->rows = (uint32_t *)rows;
            version->buckets = buckets;
            version->wanted = buckets / GA_SLABHASH_CHAINED_DIV;
            version->chained = version->parts = version->cleared = version->opened =
                version->stays = 0;
            version->cursor = 0;
            ga_store_release(&version->ready, number + 1u); /* Y1: release. Pairs with Y2 */
            if (buckets <= before->buckets) {               /* relaxed: a count */
                ga_post_add_relaxed(
                    buckets < before->buckets ? &growing->shrunk : &growing->compacted, 1u);
            }
        } else {
            if (buckets > before->buckets) {
                ga_store_relaxed(&before->wanted, later); /* relaxed: a threshold */
            } else {
                ga_store_relaxed(&before->stays, 1u); /* relaxed: a flag */
            }
            ga_post_add_relaxed(&growing->failed, 1u);  /* relaxed: a count */
            ga_store_release(&growing->making, number); /* M: release. Pairs with M in make_next */
        }
    }
    ga_tile_sync(tile);
}

/* Claim the right to make the version after the snapshot's, and make it. */
GA_SIMT void ga_slabhash_make_next(ga_slabhash_growing *growing, ga_tile tile,
                                   const ga_slabhash_snapshot *snapshot, uint32_t buckets,
                                   uint32_t later)
{
    uint32_t leader = ga_tile_leader(tile), number = snapshot->number + 1u;
    ga_lanes ours = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* M: acquire. Pairs with M: the writes of the tile that tried before. No version was made
         * since the snapshot's, which is `now`, so all its buckets are OPEN. */
        uint32_t before = ga_cas_acquire(&growing->making, number, number + 1u);
        ga_lane_write(&ours, own, before == number ? 1u : 0u);
    }
    ga_tile_sync(tile);
    if (ga_lanes_get(tile, ours, leader)) {
        ga_slabhash_make_version(growing, tile, number, buckets, later);
    }
}

/* True if the table may move to fewer buckets, or equally many: nothing moves, no array is being
 * made, older ones have been freed, and none was refused. So such moves never fill the ring. */
GA_SIMT bool ga_slabhash_is_at_rest(ga_slabhash_growing *growing, ga_tile tile,
                                    const ga_slabhash_snapshot *snapshot)
{
    const ga_slabhash_version *version = ga_slabhash_version_of(growing, snapshot->number);
    return ga_slabhash_ask(tile, &growing->making) == snapshot->number + 1u &&
           ga_slabhash_ask(tile, &growing->gone) == snapshot->number && /* D2 */
           !ga_slabhash_ask(tile, &version->stays);
}

/* A slab was chained behind the snapshot's version, the newest one. If there are too many, and its
 * slots are full of pairs or tombstones, make another version. */
GA_SIMT void ga_slabhash_consider(uint32_t kind, ga_slabhash_growing *growing, ga_tile tile,
                                  const ga_slabhash_snapshot *snapshot)
{
    ga_slabhash_version *version = ga_slabhash_version_of(growing, snapshot->number);
    uint32_t chained = ga_slabhash_tally(tile, &version->chained, 1u) + 1u;
    uint32_t number = snapshot->number + 1u;
    uint32_t later = chained + chained / 4u + 1u;
    if (chained <= ga_slabhash_ask(tile, &version->wanted) ||
        ga_slabhash_ask(tile, &growing->making) != number ||
        !ga_slabhash_has_entry(growing, tile, number)) { /* D2 */
        return;
    }
    ga_slabhash_sampled sampled =
        ga_slabhash_sample(kind, tile, snapshot, GA_SLABHASH_SAMPLE, chained);
    uint32_t buckets = 0;
    if (sampled.live > GA_SLABHASH_GROWS_AT) {
        buckets = ga_slabhash_more(snapshot->buckets, chained);
        buckets = buckets > snapshot->buckets ? buckets : 0;
    } else if (ga_slabhash_is_at_rest(growing, tile, snapshot)) {
        buckets = ga_slabhash_less(sampled, snapshot->buckets, growing->least, chained);
    }
    if (buckets) {
        ga_slabhash_make_next(growing, tile, snapshot, buckets, later);
        return;
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_relaxed(&version->wanted, later); /* relaxed: a threshold */
    }
    ga_tile_sync(tile);
}

/* Check whether the table has too many buckets, or slabs behind them, for a tile that changes
 * something; if so, make a smaller version. The first four buckets decide at once if it has not. */
GA_SIMT void ga_slabhash_consider_less(uint32_t kind, ga_slabhash_growing *growing, ga_tile tile,
                                       const ga_slabhash_snapshot *snapshot)
{
    if (snapshot->next_rows || !ga_slabhash_is_at_rest(growing, tile, snapshot)) {
        return;
    }
    const ga_slabhash_version *version = ga_slabhash_version_of(growing, snapshot->number);
    uint32_t least = growing->least;
    uint32_t chained = ga_slabhash_ask(tile, &version->chained);
    if (snapshot->buckets / 2u < least && chained <= snapshot->buckets / GA_SLABHASH_CHAINED_DIV) {
        return;
    }
    uint32_t buckets = 0, seed = ga_slabhash_tally(tile, &growing->looked, 1u);
    for (uint32_t count = GA_SLABHASH_FEW; count <= GA_SLABHASH_SAMPLE;
         count *= GA_SLABHASH_SAMPLE / GA_SLABHASH_FEW) {
        ga_slabhash_sampled sampled = ga_slabhash_sample(kind, tile, snapshot, count, seed);
        buckets = ga_slabhash_less(sampled, snapshot->buckets, least, chained);
        if (!buckets) {
            return;
        }
    }
    ga_slabhash_make_next(growing, tile, snapshot, buckets, 0);
}

/* ---- checking the record --------------------------------------------------------------------- */

/* Why a tile checks the record: to do a part of the work; because it changes something; because it
 * has chained a slab. */
enum {
    GA_SLABHASH_LOOK_ONLY = 0,
    GA_SLABHASH_LOOK_CHANGING,
    GA_SLABHASH_LOOK_CHAINED
};

/* True for 1 check in 64, at random. On the CPU, where noise is 0, for each. */
GA_SIMT bool ga_slabhash_is_time(ga_tile tile)
{
    uint32_t noise = ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    return ga_bits_mix(noise) % GA_SLABHASH_LOOKS_AMONG == 0;
}

/* Check the record and do a part of the work. Out of line and by value, so that callers need no
 * registers for it and keep their snapshots out of memory. */
GA_SIMT_SLOW ga_slabhash_snapshot ga_slabhash_check_record_slow(ga_slabhash_growing *growing,
                                                                ga_slabhash_snapshot snapshot,
                                                                uint32_t why)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    uint32_t kind = growing->kind;
    if (why == GA_SLABHASH_LOOK_CHAINED) {
        ga_slabhash_consider(kind, growing, tile, &snapshot);
    } else if (why == GA_SLABHASH_LOOK_CHANGING && ga_slabhash_is_time(tile)) {
        ga_slabhash_consider_less(kind, growing, tile, &snapshot);
    }
    if (!snapshot.next_rows) {
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_snapshot_renew(growing, tile, &snapshot);
    (void)ga_slabhash_give_some(growing->slabs, growing, tile);
    return snapshot;
}

GA_SIMT void ga_slabhash_check_record(ga_slabhash_growing *growing, ga_slabhash_snapshot *snapshot,
                                      uint32_t why)
{
    *snapshot = ga_slabhash_check_record_slow(growing, *snapshot, why);
}

/* A tile with this clock ends its session: it does a part of the work, and leaves its epoch. */
GA_SIMT_SLOW void ga_slabhash_end_session(ga_slabhash_growing *growing, uint32_t clock,
                                          bool considers)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_snapshot snapshot;
    snapshot.clock = clock;
    if (ga_slabhash_snapshot_has_changed(&snapshot)) {
        if (considers) {
            ga_slabhash_snapshot_load(growing, tile, &snapshot);
            ga_slabhash_consider_less(growing->kind, growing, tile, &snapshot);
        }
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_snapshot_end(growing, tile, &snapshot);
    (void)ga_slabhash_give_some(growing->slabs, growing, tile);
}

#endif
