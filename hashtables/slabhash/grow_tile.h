/* SPDX-License-Identifier: MIT
 *
 * Moving a slab hash to another array of buckets while it is used, over tiles and rows: twice as
 * many buckets, as many, or half. docs/slabhash.md has the argument, tests/models/slabhash.pml a
 * model.
 *
 * STRUCTURE  Two generations: an array of buckets and their chains each, path 1, over one slab
 *            heap. A bucket of the new one has its pairs from one bucket of the old one, or two:
 *
 *              old  [ frozen ]             OPEN: all pairs of these keys are here
 *                       |                        |
 *              new  [ shut ][ OPEN ]  <----------+
 *
 * INVARIANT  A bucket is frozen from its first place to the end of its chain: places that are empty
 *            are sealed, pairs have their frozen bit, the last link is SEALED. Nothing of it
 *            changes any more. Only then are its pairs brought to the new buckets, each to a place
 *            that follows from what is frozen alone, by a compare-and-swap of an empty place; only
 *            then is the new bucket OPEN. Nobody but who brings pairs looks at one that is shut.
 *
 * ORDER      O1 and O2: a new bucket is whole before anybody sees it OPEN. V1 and V2, L1 and L2 as
 *            in slots.h and list_tile.h, through frozen places to the new ones.
 *
 * PROGRESS   Lock-free: any number of tiles may freeze a bucket and bring its pairs over; each does
 *            what the others have not. A place is frozen by a compare-and-swap that fails where
 *            another's change of it has succeeded. Where a slab is wanted and there is none, the
 *            bucket stays shut and whoever wants to change it is told FULL; searches go on.
 */
#ifndef GPUALLOC_SLABHASH_GROW_TILE_H
#define GPUALLOC_SLABHASH_GROW_TILE_H

#include "hash_tile.h"

enum {
    GA_SLABHASH_SHARE_MOST =
        4 /* places of a slab for one lane: in sets; tiles are of 8 lanes at least */
};

/* From where to where. */
typedef struct ga_slabhash_shift {
    ga_slabhash_view from, to;
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;
    uint32_t *chained; /* relaxed: slabs behind the new generation's buckets */
} ga_slabhash_shift;

/* The bucket of a key in a generation. */
GA_SIMT uint32_t ga_slabhash_bucket(ga_slabhash_view table, uint64_t hash)
{
    return (uint32_t)ga_bits_high(hash, table.buckets);
}

GA_SIMT uint32_t *ga_slabhash_bucket_row(ga_slabhash_view table, uint32_t bucket)
{
    return table.rows + (size_t)bucket * GA_SLABHASH_WORDS;
}

/* ---- open or shut: bit 1 of the mark --------------------------------------------------------- */

/* Whether the new bucket is OPEN, for the calling lane. */
GA_SIMT bool ga_slabhash_own_is_open(uint32_t kind, const uint32_t *row)
{
    uint32_t mark;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        mark = ga_load_acquire(row + GA_SLABHASH_OVERFLOW_BITS); /* O2: acquire. Pairs with O1 */
    } else {
        const uint64_t *both = (const uint64_t *)(const void *)(row + GA_SLABHASH_OVERFLOW_BITS);
        /* O2: acquire. Pairs with O1: all pairs that were to come are there. */
        mark = (uint32_t)ga_load64_acquire(both);
    }
    return !(mark & 2u);
}

/* The same for all lanes. */
GA_SIMT bool ga_slabhash_is_open(uint32_t kind, ga_tile tile, const uint32_t *row)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes open = ga_lanes_all(0);
    ga_tile_sync(tile); /* what was read before was, by whichever lane */
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&open, own, ga_slabhash_own_is_open(kind, row) ? 1u : 0u); /* O2 */
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    return ga_lanes_get(tile, open, leader) != 0;
}

/* Open it, by the calling lane. True for one caller, the first. */
GA_SIMT bool ga_slabhash_own_opens(uint32_t kind, uint32_t *row)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        /* O1: release. Pairs with O2 */
        return (ga_and_acq_rel(row + GA_SLABHASH_OVERFLOW_BITS, ~2u) & 2u) != 0;
    }
    /* O1: release, and acquire: what others brought. Pairs with O2. */
    return (ga_and64_acq_rel((uint64_t *)(void *)(row + GA_SLABHASH_OVERFLOW_BITS), ~UINT64_C(2)) &
            2u) != 0;
}

GA_SIMT bool ga_slabhash_open_bucket(uint32_t kind, ga_tile tile, uint32_t *row)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes first = ga_lanes_all(0);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&first, own, ga_slabhash_own_opens(kind, row) ? 1u : 0u); /* O1 */
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, first, leader) != 0;
}

/* ---- freezing -------------------------------------------------------------------------------- */

/* What a place holds, as the calling lane reads it. Relaxed: who wants more acquires it (V2). */
GA_SIMT void ga_slabhash_read_own(uint32_t kind, const uint32_t *place, uint64_t *key,
                                  uint64_t *value)
{
    const uint64_t *wide = (const uint64_t *)(const void *)place;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        *key = ga_load_relaxed(place); /* relaxed: see above */
        *value = 0;
        return;
    }
    *key = ga_load64_relaxed(wide); /* relaxed: see above */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        *value = ga_load64_relaxed(wide + 1); /* relaxed: see above */
        return;
    }
    *value = *key >> 32;
    *key = (uint32_t)*key;
}

/* One attempt of the calling lane at a place that holds this: true where nothing of it can change
 * any more. */
GA_SIMT bool ga_slabhash_freeze_own(uint32_t kind, uint32_t *place, uint64_t key, uint64_t value)
{
    bool empty = key == (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? GA_SLABHASH_EMPTY
                                                                     : (uint32_t)GA_SLABHASH_EMPTY);
    if (empty && GA_SLABHASH_MUTANT == 10) {
        return true;
    }
    if (ga_slabhash_deletes_to_free(kind) && key == GA_SLABHASH_FREE && GA_SLABHASH_MUTANT == 21) {
        return true;
    }
    if (GA_SLABHASH_MUTANT == 11 && !empty) {
        return true;
    }
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return (!empty && key & GA_SLABHASH_FROZEN32) ||
               ga_slabhash_lane_cas32(place, (uint32_t)key,
                                      empty ? GA_SLABHASH_DELETED
                                            : (uint32_t)key | GA_SLABHASH_FROZEN32);
    case GA_SLABHASH_MAP32:
        return (!empty && key & GA_SLABHASH_FROZEN32) ||
               ga_slabhash_lane_cas64(place, ga_slabhash_pair(key, value),
                                      empty ? ga_slabhash_pair(GA_SLABHASH_DELETED, UINT32_MAX)
                                            : ga_slabhash_pair(key | GA_SLABHASH_FROZEN32, value));
    default:
        if (empty) {
            return ga_slabhash_lane_cas64(place, key, GA_SLABHASH_SEALED_KEY);
        }
        return key == GA_SLABHASH_SEALED_KEY || ga_slabhash_is_frozen64(value) ||
               ga_slabhash_lane_cas64(place + 2, value,
                                      value < GA_SLABHASH_FROZEN64 ? value | GA_SLABHASH_FROZEN64
                                                                   : GA_SLABHASH_FROZEN_GONE);
    }
}

/* Places of a slab that one lane of a tile looks after: it has every eighth, or so. */
GA_SIMT uint32_t ga_slabhash_share_of(uint32_t kind, ga_tile tile)
{
    return GA_SLABHASH_WORDS / (ga_slabhash_slot_words(kind) * ga_tile_size(tile));
}

/* The `i`th of lane `own`: all lanes' first places come before their second ones. */
GA_SIMT uint32_t ga_slabhash_place_of(uint32_t kind, ga_tile tile, uint32_t own, uint32_t i)
{
    return (own + i * ga_tile_size(tile)) * ga_slabhash_slot_words(kind);
}

/* All places of the slab, each lane its own, again until they are: all loads of a lane are under way
 * together, and so are its swaps. Here and below a tile that does not ask only goes along, where
 * tiles are abreast. */
GA_SIMT void ga_slabhash_freeze_slab(uint32_t kind, ga_tile tile, uint32_t *at, bool asks)
{
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        uint64_t keys[GA_SLABHASH_SHARE_MOST], values[GA_SLABHASH_SHARE_MOST];
        bool done;
        do {
            GA_UNROLL
            for (uint32_t i = 0; i < GA_SLABHASH_SHARE_MOST; i++) {
                uint32_t place = ga_slabhash_place_of(kind, tile, own, i);
                if (place < ga_slabhash_slots_end(kind)) {
                    ga_slabhash_read_own(kind, at + place, keys + i, values + i);
                }
            }
            ga_slabhash_test_yield();
            done = true;
            GA_UNROLL
            for (uint32_t i = 0; i < GA_SLABHASH_SHARE_MOST; i++) {
                uint32_t place = ga_slabhash_place_of(kind, tile, own, i);
                if (place < ga_slabhash_slots_end(kind)) {
                    done = ga_slabhash_freeze_own(kind, at + place, keys[i], values[i]) && done;
                }
            }
        } while (!done);
    }
    ga_tile_sync(tile); /* what each lane froze is frozen for all */
}

/* See to it that nothing is chained behind the slab any more: what is, or SEALED. */
GA_SIMT uint32_t ga_slabhash_seal(uint32_t kind, ga_tile tile, uint32_t *row, bool asks)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes stands = ga_lanes_all(GA_SLABHASH_SEALED);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, asks ? 1u << leader : 0, own)
    {
        uint32_t link = GA_SLABHASH_MUTANT == 12
                            ? ga_load_relaxed(row + GA_SLABHASH_NEXT)
                            : ga_slabhash_lane_link(kind, row, GA_SLABHASH_SEALED); /* L1 */
        ga_lane_write(&stands, own, link);
    }
    ga_tile_sync(tile); /* what the leader did is seen by all */
    return ga_lanes_get(tile, stands, leader);
}

/* Follow a link of a chain, as ga_slabhash_follow_link(). */
GA_SIMT bool ga_slabhash_go_on_to(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                  uint32_t **row, uint32_t link, bool asks)
{
    bool more = asks && link != GA_SLABHASH_NO_SLAB && link != GA_SLABHASH_SEALED;
    ga_tile_sync(tile); /* the link was read, by whichever lane, before each lane acquires */
    GA_EACH_LANE(tile, more ? ga_tile_lanes(tile) : 0, own)
    {
        (void)own;
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
            (void)ga_load_acquire(*row + GA_SLABHASH_NEXT); /* L2. Pairs with L1 */
        } else {
            /* L2: acquire. Pairs with L1. */
            (void)ga_load64_acquire((uint64_t *)(void *)(*row + GA_SLABHASH_OVERFLOW_BITS));
        }
    }
    *row = more ? ga_slabhash_row(table, link) : *row;
    return more;
}

/* A bucket and its chain, to the end, of each tile that asks. */
GA_SIMT void ga_slabhash_freeze_chain(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                      uint32_t bucket, bool asks)
{
    uint32_t *row = ga_slabhash_bucket_row(table, bucket);
    while (ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        ga_slabhash_freeze_slab(kind, tile, row, asks);
        uint32_t link = ga_slabhash_seal(kind, tile, row, asks);
        asks = ga_slabhash_go_on_to(kind, table, tile, &row, link, asks);
    }
}

GA_SIMT void ga_slabhash_freeze_bucket(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                       uint32_t bucket)
{
    ga_slabhash_freeze_chain(kind, table, tile, bucket, true);
}

/* ---- bringing pairs over --------------------------------------------------------------------- */

/* The target's next slab, which it makes where nobody has; false where there is none to be had. */
GA_SIMT bool ga_slabhash_extend(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                ga_slab_claimed *claimed, ga_slabhash_walk *to)
{
    ga_row row = ga_slabhash_load_slab(kind, tile, to->row);
    uint32_t link = ga_row_get(tile, row, GA_SLABHASH_NEXT);
    if (link == GA_SLABHASH_NO_SLAB) {
        uint32_t unit = ga_slabhash_claim(shift.to.heap, tile, claimed);
        if (unit == GA_SLABHASH_NO_SLAB) {
            return false;
        }
        ga_slabhash_init_slab(kind, tile, ga_slabhash_row(shift.to, unit), GA_SLABHASH_EMPTY,
                              UINT64_MAX);
        link = ga_slabhash_tile_link(kind, tile, to->row, unit);
        claimed->units |= link == unit ? 0 : 1u << unit % 32u;
        GA_EACH_LANE(tile, link == unit ? 1u << ga_tile_leader(tile) : 0, own)
        {
            (void)own;
            ga_post_add_relaxed(shift.chained, 1); /* relaxed: a figure */
        }
    }
    return ga_slabhash_follow_link(kind, shift.to, tile, to, link);
}

/* Whether a place that holds this has a pair, frozen or not. */
GA_SIMT bool ga_slabhash_is_live(uint32_t kind, uint64_t key, uint64_t value)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return key < GA_SLABHASH_SEALED_KEY && value < GA_SLABHASH_FROZEN_GONE;
    }
    return key < GA_SLABHASH_DELETED &&
           !(ga_slabhash_deletes_to_free(kind) && key == GA_SLABHASH_FREE);
}

/* Put the pair in the place where it must be, unless somebody has: it is never empty again. By the
 * calling lane. */
GA_SIMT void ga_slabhash_bring_own(uint32_t kind, uint32_t *place, uint64_t key, uint64_t value)
{
    ga_slabhash_test_yield();
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        (void)ga_slabhash_lane_cas32(place, (uint32_t)GA_SLABHASH_EMPTY, (uint32_t)key);
        return;
    case GA_SLABHASH_MAP32:
        if (GA_SLABHASH_MUTANT == 14) {
            /* Pairs with V2, as the swap below; a store, which is what must be noticed. */
            ga_store64_release((uint64_t *)(void *)place, ga_slabhash_pair(key, value));
            return;
        }
        (void)ga_slabhash_lane_cas64(place, GA_SLABHASH_EMPTY, ga_slabhash_pair(key, value));
        return;
    default:
        if (ga_slabhash_has_cas128(kind)) {
            bool done =
                ga_slabhash_lane_cas128(place, GA_SLABHASH_EMPTY, GA_SLABHASH_UNSET, key, value);
            if (done || GA_SLABHASH_MUTANT == 42) {
                return;
            }
        } else {
            (void)ga_slabhash_lane_cas64(place, GA_SLABHASH_EMPTY, key);
        }
        ga_slabhash_test_yield();
        /* Who has made the place the key's may have stopped there. */
        (void)ga_slabhash_lane_cas64(place + 2, GA_SLABHASH_UNSET, value);
    }
}

GA_SIMT void ga_slabhash_bring(uint32_t kind, ga_tile tile, uint32_t *place, uint64_t key,
                               uint64_t value)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slabhash_bring_own(kind, place, key, value);
    }
    ga_tile_sync(tile); /* what the leader did is seen by all */
}

GA_SIMT uint64_t ga_slabhash_rehash(ga_slabhash_shift shift, uint64_t key)
{
#ifdef __CUDACC__
    return GA_SLABHASH_HASH(shift.from, key);
#else
    return shift.hash ? shift.hash(shift.context, key) : ga_slabhash_seeded(shift.from, key);
#endif
}

/* Where the next pair goes. */
typedef struct ga_slabhash_goal {
    ga_slabhash_walk at;
    uint32_t bucket;
    uint32_t place;
} ga_slabhash_goal;

/* Bring what is in a frozen bucket and belongs to the goal's. */
GA_SIMT bool ga_slabhash_bring_all(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                   ga_slab_claimed *claimed, uint32_t bucket,
                                   ga_slabhash_goal *goal)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(shift.from, bucket);
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        for (uint32_t live = ga_slabhash_live_slots(kind, tile, row); live; live &= live - 1u) {
            uint32_t place = ga_bits_lowest(live);
            uint64_t key =
                ga_slabhash_unfrozen_key(kind, ga_slabhash_key_at(kind, tile, row, place));
            if (ga_slabhash_bucket(shift.to, ga_slabhash_rehash(shift, key)) != goal->bucket) {
                continue;
            }
            if (goal->place >= ga_slabhash_slots_end(kind)) {
                if (!ga_slabhash_extend(kind, shift, tile, claimed, &goal->at)) {
                    return false;
                }
                goal->place = 0;
            }
            ga_slabhash_acquire_slot(kind, walk.row + place);
            ga_slabhash_bring(
                kind, tile, goal->at.row + goal->place, key,
                ga_slabhash_unfrozen_value(kind, ga_slabhash_value_at(kind, tile, row, place)));
            goal->place += ga_slabhash_slot_words(kind);
        }
    } while (ga_slabhash_walk_next(kind, shift.from, tile, &walk, row, false));
    return true;
}

/* The old buckets that the new one has its pairs from. */
typedef struct ga_slabhash_sources {
    uint32_t first, end;
} ga_slabhash_sources;

GA_SIMT ga_slabhash_sources ga_slabhash_sources_of(ga_slabhash_shift shift, uint32_t bucket)
{
    ga_slabhash_sources sources;
    uint64_t first = (uint64_t)bucket * shift.from.buckets / shift.to.buckets;
    uint32_t each = shift.from.buckets / shift.to.buckets;
    sources.first = (uint32_t)first;
    sources.end = (uint32_t)first + (each ? each : 1u);
    return sources;
}

/* What came of opening a new bucket. */
typedef enum ga_slabhash_opening {
    GA_SLABHASH_WAS_OPEN = 0,
    GA_SLABHASH_OPENED, /* by this call */
    GA_SLABHASH_SHUT    /* no slab to be had */
} ga_slabhash_opening;

/* See to it that a bucket of the new generation is OPEN. */
GA_SIMT uint32_t ga_slabhash_shift_bucket(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                          ga_slab_claimed *claimed, uint32_t bucket)
{
    uint32_t *row = ga_slabhash_bucket_row(shift.to, bucket);
    ga_slabhash_sources sources = ga_slabhash_sources_of(shift, bucket);
    ga_slabhash_goal goal;
    if (ga_slabhash_is_open(kind, tile, row)) {
        return GA_SLABHASH_WAS_OPEN;
    }
    for (uint32_t source = sources.first; source < sources.end; source++) {
        ga_slabhash_freeze_bucket(kind, shift.from, tile, source);
    }
    if (GA_SLABHASH_MUTANT == 13) {
        (void)ga_slabhash_open_bucket(kind, tile, row);
    }
    goal.at = ga_slabhash_walk_chain(shift.to, bucket);
    goal.bucket = bucket;
    goal.place = 0;
    for (uint32_t source = sources.first; source < sources.end; source++) {
        if (!ga_slabhash_bring_all(kind, shift, tile, claimed, source, &goal)) {
            return GA_SLABHASH_SHUT;
        }
    }
    return ga_slabhash_open_bucket(kind, tile, row) ? GA_SLABHASH_OPENED : GA_SLABHASH_WAS_OPEN;
}

/* ---- searching while a table moves ----------------------------------------------------------- */

/* The value of a key that is frozen at the place, or that it is not there. */
GA_SIMT ga_slabhash_answer ga_slabhash_say_frozen(uint32_t kind, ga_tile tile, ga_row row,
                                                  uint32_t place)
{
    uint64_t value = ga_slabhash_value_at(kind, tile, row, place);
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && value == GA_SLABHASH_FROZEN_GONE
               ? ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0)
               : ga_slabhash_answer_of(GA_SLABHASH_FOUND, ga_slabhash_unfrozen_value(kind, value));
}

/* Note all values of the key in one generation, frozen or not. Answers how many. `moved`, here and
 * below: some of what was seen is frozen, or the chain to its end; so the answer is that of this
 * generation, and of the table's as long as the newer bucket is shut. */
GA_SIMT uint64_t ga_slabhash_find_all_growing(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                              uint64_t hash, uint64_t key, uint64_t *values,
                                              uint64_t room, bool *moved)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(table, ga_slabhash_bucket(table, hash));
    uint64_t count = 0;
    *moved = false;
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        *moved = *moved || ga_slabhash_has_frozen(kind, tile, row, key,
                                                  ga_slabhash_match_key(kind, tile, row, key));
        for (uint32_t here = ga_slabhash_match_any(kind, tile, row, key); here; here &= here - 1u) {
            uint32_t place = ga_bits_lowest(here);
            uint64_t value = ga_slabhash_value_at(kind, tile, row, place);
            ga_slabhash_acquire_slot(kind, walk.row + place);
            ga_slabhash_write_value(tile, values, room, count,
                                    ga_slabhash_unfrozen_value(kind, value));
            count++;
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    *moved = *moved || ga_slabhash_is_sealed(kind, walk);
    return count;
}

/* The key in one generation, frozen or not. */
GA_SIMT ga_slabhash_answer ga_slabhash_find_growing(uint32_t kind, ga_slabhash_view table,
                                                    ga_tile tile, uint64_t hash, uint64_t key,
                                                    bool *moved)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(table, ga_slabhash_bucket(table, hash));
    ga_row row;
    *moved = false;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t found = ga_slabhash_match_key(kind, tile, row, key);
        uint32_t frozen = ga_slabhash_frozen_at(kind, tile, row, key, found);
        *moved = *moved || frozen != GA_NONE;
        if (GA_SLABHASH_IS_MULTI(kind)) {
            uint32_t here = ga_slabhash_match_any(kind, tile, row, key);
            if (here) {
                uint32_t place = ga_bits_lowest(here);
                uint64_t value = ga_slabhash_value_at(kind, tile, row, place);
                ga_slabhash_acquire_slot(kind, walk.row + place);
                return ga_slabhash_answer_of(GA_SLABHASH_FOUND,
                                             ga_slabhash_unfrozen_value(kind, value));
            }
            continue;
        }
        if (frozen != GA_NONE) {
            ga_slabhash_acquire_slot(kind, walk.row + frozen);
            return ga_slabhash_say_frozen(kind, tile, row, frozen);
        }
        if (found) {
            uint32_t place = ga_bits_lowest(found);
            uint64_t value = ga_slabhash_value_at(kind, tile, row, place);
            if (!ga_slabhash_is_set(kind, value)) {
                return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
            }
            ga_slabhash_acquire_slot(kind, walk.row + place);
            return ga_slabhash_answer_of(GA_SLABHASH_FOUND, value);
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    *moved = *moved || ga_slabhash_is_sealed(kind, walk);
    return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
}

/* The generation of a table that moves, or, where `to` has no rows, may begin to, in which a key is
 * to be looked for. */
GA_SIMT ga_slabhash_view ga_slabhash_where(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                           uint64_t hash)
{
    bool newer = shift.to.rows != NULL;
    if (newer && GA_SLABHASH_MUTANT != 15) {
        uint32_t bucket = ga_slabhash_bucket(shift.to, hash);
        newer = ga_slabhash_is_open(kind, tile, ga_slabhash_bucket_row(shift.to, bucket));
    }
    ga_slabhash_test_yield();
    return newer ? shift.to : shift.from;
}

/* The key. Writes nothing, and never has to begin anew: when it began, the generation in which it
 * looks was the one to look in, and what is frozen there since was so at that moment. */
GA_SIMT ga_slabhash_answer ga_slabhash_seek(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                            uint64_t hash, uint64_t key)
{
    bool moved; /* while this call is under way, if at all */
    return ga_slabhash_find_growing(kind, ga_slabhash_where(kind, shift, tile, hash), tile, hash,
                                    key, &moved);
}

/* The same for all values of the key, as ga_slabhash_find_all(). */
GA_SIMT uint64_t ga_slabhash_seek_all(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                      uint64_t hash, uint64_t key, uint64_t *values, uint64_t room)
{
    ga_slabhash_view table = ga_slabhash_where(kind, shift, tile, hash);
    bool moved; /* as above */
    if (!GA_SLABHASH_IS_MULTI(kind)) {
        ga_slabhash_answer one = ga_slabhash_find_growing(kind, table, tile, hash, key, &moved);
        bool found = one.result == GA_SLABHASH_FOUND;
        ga_slabhash_write_value(tile, values, found ? room : 0, 0, one.value);
        return found ? 1 : 0;
    }
    return ga_slabhash_find_all_growing(kind, table, tile, hash, key, values, room, &moved);
}

/* Any operation but a search, in one generation. */
GA_SIMT ga_slabhash_answer ga_slabhash_change_in(uint32_t kind, ga_slabhash_view table,
                                                 ga_tile tile, ga_slab_claimed *claimed,
                                                 uint64_t hash, ga_slabhash_operation to)
{
    ga_slabhash_walk walk = ga_slabhash_walk_path(table, hash);
    return to.op == GA_SLABHASH_DELETE ? ga_slabhash_remove(kind, table, tile, walk, to.key)
                                       : ga_slabhash_put(kind, table, tile, walk, claimed, to);
}

/* The generation in which a key may be changed: the newer one, where its bucket is OPEN then. It has
 * no rows where there was no slab for that. `shift.to` may have none, as above. */
GA_SIMT ga_slabhash_view ga_slabhash_for_change(uint32_t kind, ga_slabhash_shift shift,
                                                ga_tile tile, ga_slab_claimed *claimed,
                                                uint64_t hash, bool *opened)
{
    if (!shift.to.rows) {
        return shift.from;
    }
    uint32_t opening =
        ga_slabhash_shift_bucket(kind, shift, tile, claimed, ga_slabhash_bucket(shift.to, hash));
    *opened = opening == GA_SLABHASH_OPENED;
    shift.to.rows = opening == GA_SLABHASH_SHUT ? NULL : shift.to.rows;
    return shift.to;
}

/* One operation of any kind, with everything checked. */
GA_SIMT ga_slabhash_answer ga_slabhash_do_growing(uint32_t kind, ga_slabhash_shift shift,
                                                  ga_tile tile, ga_slab_claimed *claimed,
                                                  uint64_t hash, ga_slabhash_operation to,
                                                  bool *opened)
{
    if (!ga_slabhash_supports(kind, to.op) || !ga_slabhash_allowed(kind, to.op, to.key, to.value)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    if (to.op == GA_SLABHASH_SEARCH) {
        return ga_slabhash_seek(kind, shift, tile, hash, to.key);
    }
    ga_slabhash_view table = ga_slabhash_for_change(kind, shift, tile, claimed, hash, opened);
    return table.rows ? ga_slabhash_change_in(kind, table, tile, claimed, hash, to)
                      : ga_slabhash_answer_of(GA_SLABHASH_FULL, 0);
}

/* DELETEALL, as ga_slabhash_remove_each(): also FULL, where there is no slab to open the bucket. */
GA_SIMT uint32_t ga_slabhash_remove_growing(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                            ga_slab_claimed *claimed, uint64_t hash, uint64_t key,
                                            uint64_t *count, bool *opened)
{
    ga_slabhash_view table = ga_slabhash_for_change(kind, shift, tile, claimed, hash, opened);
    return table.rows ? ga_slabhash_remove_each(kind, table, tile,
                                                ga_slabhash_walk_path(table, hash), key, count)
                      : GA_SLABHASH_FULL;
}

#endif
