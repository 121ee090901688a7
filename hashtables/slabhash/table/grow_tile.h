/* SPDX-License-Identifier: MIT
 *
 * Moving a slab hash to another array of buckets while it is used, over tiles and rows: twice as
 * many buckets, equally many, or half. docs/internals/slabhash-growth.md has the argument,
 * tests/models/slabhash.pml a model.
 *
 * STRUCTURE  Two versions, each an array of buckets and their chains, path 1, over one slab heap. A
 *            bucket of the new version gets its pairs from one bucket of the old one, or two:
 *
 *              old  [ frozen ]             OPEN: all pairs of these keys are here
 *                       |                        |
 *              new  [ pending ][ OPEN ]  <-------+
 *
 * INVARIANT  A frozen bucket does not change any more, from its first slot to the end of its chain:
 *            its empty slots are sealed, its pairs have their frozen bit set, and its last link is
 *            SEALED. Only then are its pairs copied to the new buckets, each to a slot that follows
 *            from the frozen bucket's contents alone, by a compare-and-swap of an empty slot. Only
 *            then is the new bucket OPEN. Only tiles that copy pairs look into a pending bucket.
 *
 * ORDER      O1 and O2: a new bucket is complete before any tile sees it OPEN. V1 and V2, L1 and L2
 *            as in slots.h and list_tile.h, through frozen slots to the new ones.
 *
 * PROGRESS   Lock-free: any number of tiles may freeze a bucket and copy its pairs; each does the
 *            steps that the others have not done. A slot is frozen by a compare-and-swap that fails
 *            only if another tile's change has succeeded. If there is no slab for the new bucket,
 *            it stays pending and changes of its keys return FULL; searches go on.
 *
 * CALLS      ga_slabhash_do_growing
 *              ga_slabhash_seek                 a search: in the new bucket if that is OPEN
 *              ga_slabhash_for_change           a change: opens the new bucket first
 *                ga_slabhash_shift_bucket       freeze the sources, migrate their pairs, open
 *              ga_slabhash_change_in            then changes it there
 */
#ifndef GPUALLOC_SLABHASH_TABLE_GROW_TILE_H
#define GPUALLOC_SLABHASH_TABLE_GROW_TILE_H

#include "hash_tile.h"

enum {
    GA_SLABHASH_SHARE_MAX =
        4 /* slots of a slab for one lane, in sets; tiles have 8 lanes at least */
};

/* The two versions of a move. */
typedef struct ga_slabhash_shift {
    ga_slabhash_view from, to;
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;
    uint32_t *chained; /* relaxed: slabs behind the new version's buckets */
} ga_slabhash_shift;

/* The bucket of a key in a version. */
GA_SIMT uint32_t ga_slabhash_bucket(ga_slabhash_view table, uint64_t hash)
{
    return (uint32_t)ga_bits_high(hash, table.buckets);
}

GA_SIMT uint32_t *ga_slabhash_bucket_row(ga_slabhash_view table, uint32_t bucket)
{
    return table.rows + (size_t)bucket * GA_SLABHASH_WORDS;
}

/* ---- open or pending: bit 1 of the end bits ------------------------------------------------- */

/* True if the new bucket is OPEN, for the calling lane. */
GA_SIMT bool ga_slabhash_own_is_open(uint32_t kind, const uint32_t *row)
{
    uint32_t end_bits;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        end_bits = ga_load_acquire(row + GA_SLABHASH_END_BITS); /* O2: acquire. Pairs with O1 */
    } else {
        const uint64_t *both = (const uint64_t *)(const void *)(row + GA_SLABHASH_END_BITS);
        /* O2: acquire. Pairs with O1: all pairs of the bucket are there. */
        end_bits = (uint32_t)ga_load64_acquire(both);
    }
    return !(end_bits & 2u);
}

/* ga_slabhash_own_is_open() for all lanes. */
GA_SIMT bool ga_slabhash_is_open(uint32_t kind, ga_tile tile, const uint32_t *row)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes open = ga_lanes_all(0);
    ga_tile_sync(tile); /* each lane's earlier reads come before */
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&open, own, ga_slabhash_own_is_open(kind, row) ? 1u : 0u); /* O2 */
    }
    ga_tile_sync(tile); /* the leader's acquire holds for all lanes */
    return ga_lanes_get(tile, open, leader) != 0;
}

/* Open the bucket, by the calling lane. True for one caller, the first. */
GA_SIMT bool ga_slabhash_own_opens(uint32_t kind, uint32_t *row)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        /* O1: release. Pairs with O2 */
        return (ga_and_acq_rel(row + GA_SLABHASH_END_BITS, ~2u) & 2u) != 0;
    }
    /* O1: release, and acquire: pairs that other tiles copied. Pairs with O2. */
    return (ga_and64_acq_rel((uint64_t *)(void *)(row + GA_SLABHASH_END_BITS), ~UINT64_C(2)) &
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

/* The slot's contents, as the calling lane reads them. Relaxed: callers that use more acquire it
 * (V2). */
GA_SIMT void ga_slabhash_read_own(uint32_t kind, const uint32_t *slot, uint64_t *key,
                                  uint64_t *value)
{
    const uint64_t *wide = (const uint64_t *)(const void *)slot;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        *key = ga_load_relaxed(slot); /* relaxed: see above */
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

/* One attempt of the calling lane to freeze a slot with these contents. True if the slot cannot
 * change any more. */
GA_SIMT bool ga_slabhash_freeze_own(uint32_t kind, uint32_t *slot, uint64_t key, uint64_t value)
{
    bool empty = key == (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? GA_SLABHASH_EMPTY
                                                                     : (uint32_t)GA_SLABHASH_EMPTY);
    if (empty && GA_PLANTED(slabhash_empty_slot_not_sealed)) {
        return true;
    }
    if (ga_slabhash_deletes_to_free(kind) && key == GA_SLABHASH_FREE &&
        GA_PLANTED(slabhash_free_slot_not_sealed)) {
        return true;
    }
    if (GA_PLANTED(slabhash_pair_not_frozen) && !empty) {
        return true;
    }
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return (!empty && key & GA_SLABHASH_FROZEN32) ||
               ga_slabhash_lane_cas32(slot, (uint32_t)key,
                                      empty ? GA_SLABHASH_DELETED
                                            : (uint32_t)key | GA_SLABHASH_FROZEN32);
    case GA_SLABHASH_MAP32:
        return (!empty && key & GA_SLABHASH_FROZEN32) ||
               ga_slabhash_lane_cas64(slot, ga_slabhash_pair(key, value),
                                      empty ? ga_slabhash_pair(GA_SLABHASH_DELETED, UINT32_MAX)
                                            : ga_slabhash_pair(key | GA_SLABHASH_FROZEN32, value));
    default:
        if (empty) {
            return ga_slabhash_lane_cas64(slot, key, GA_SLABHASH_SEALED_KEY);
        }
        return key == GA_SLABHASH_SEALED_KEY || ga_slabhash_is_frozen64(value) ||
               ga_slabhash_lane_cas64(slot + 2, value,
                                      value < GA_SLABHASH_FROZEN64 ? value | GA_SLABHASH_FROZEN64
                                                                   : GA_SLABHASH_FROZEN_GONE);
    }
}

/* The number of slots of a slab that each lane of a tile handles. */
GA_SIMT uint32_t ga_slabhash_share_of(uint32_t kind, ga_tile tile)
{
    return GA_SLABHASH_WORDS / (ga_slabhash_slot_words(kind) * ga_tile_size(tile));
}

/* The slot number `i` of lane `own`: all lanes' first slots come before their second ones. */
GA_SIMT uint32_t ga_slabhash_slot_of(uint32_t kind, ga_tile tile, uint32_t own, uint32_t i)
{
    return (own + i * ga_tile_size(tile)) * ga_slabhash_slot_words(kind);
}

/* Freeze all slots of the slab. Each lane repeats its own slots until they are frozen; all loads of
 * a lane are in flight together, and so are its swaps. Here and below a tile that does not ask only
 * takes part in the warp's steps, if tiles work abreast. */
GA_SIMT void ga_slabhash_freeze_slab(uint32_t kind, ga_tile tile, uint32_t *at, bool asks)
{
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        uint64_t keys[GA_SLABHASH_SHARE_MAX], values[GA_SLABHASH_SHARE_MAX];
        bool done;
        do {
            GA_UNROLL
            for (uint32_t i = 0; i < GA_SLABHASH_SHARE_MAX; i++) {
                uint32_t slot = ga_slabhash_slot_of(kind, tile, own, i);
                if (slot < ga_slabhash_slots_end(kind)) {
                    ga_slabhash_read_own(kind, at + slot, keys + i, values + i);
                }
            }
            ga_slabhash_test_yield();
            done = true;
            GA_UNROLL
            for (uint32_t i = 0; i < GA_SLABHASH_SHARE_MAX; i++) {
                uint32_t slot = ga_slabhash_slot_of(kind, tile, own, i);
                if (slot < ga_slabhash_slots_end(kind)) {
                    done = ga_slabhash_freeze_own(kind, at + slot, keys[i], values[i]) && done;
                }
            }
        } while (!done);
    }
    ga_tile_sync(tile); /* each lane's freezes are visible to all */
}

/* Make sure that no slab is linked behind this one any more. Returns the existing link, or
 * SEALED. */
GA_SIMT uint32_t ga_slabhash_seal(uint32_t kind, ga_tile tile, uint32_t *row, bool asks)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes link_now = ga_lanes_all(GA_SLABHASH_SEALED);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, asks ? 1u << leader : 0, own)
    {
        uint32_t link = GA_PLANTED(slabhash_last_link_not_sealed)
                            ? ga_load_relaxed(row + GA_SLABHASH_NEXT)
                            : ga_slabhash_lane_link(kind, row, GA_SLABHASH_SEALED); /* L1 */
        ga_lane_write(&link_now, own, link);
    }
    ga_tile_sync(tile); /* the leader's swap is visible to all */
    return ga_lanes_get(tile, link_now, leader);
}

/* Follow a link of a chain, as ga_slabhash_follow_link(). */
GA_SIMT bool ga_slabhash_go_on_to(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                  uint32_t **row, uint32_t link, bool asks)
{
    bool more = asks && link != GA_SLABHASH_NO_SLAB && link != GA_SLABHASH_SEALED;
    ga_tile_sync(tile); /* some lane read the link; now each lane acquires it */
    GA_EACH_LANE(tile, more ? ga_tile_lanes(tile) : 0, own)
    {
        (void)own;
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
            (void)ga_load_acquire(*row + GA_SLABHASH_NEXT); /* L2. Pairs with L1 */
        } else {
            /* L2: acquire. Pairs with L1. */
            (void)ga_load64_acquire((uint64_t *)(void *)(*row + GA_SLABHASH_END_BITS));
        }
    }
    *row = more ? ga_slabhash_row(table, link) : *row;
    return more;
}

/* Freeze a bucket and its chain to the end, for each tile that asks. */
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

/* ---- migrating pairs ------------------------------------------------------------------------ */

/* Go to the target's next slab, and append one if there is none. False if no slab is available. */
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
            ga_post_add_relaxed(shift.chained, 1); /* relaxed: a count */
        }
    }
    return ga_slabhash_follow_link(kind, shift.to, tile, to, link);
}

/* True if a slot with these contents has a pair, frozen or not. */
GA_SIMT bool ga_slabhash_is_live(uint32_t kind, uint64_t key, uint64_t value)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return key < GA_SLABHASH_SEALED_KEY && value < GA_SLABHASH_FROZEN_GONE;
    }
    return key < GA_SLABHASH_DELETED &&
           !(ga_slabhash_deletes_to_free(kind) && key == GA_SLABHASH_FREE);
}

/* Store the pair in its slot, unless another tile has: the slot is never empty again. By the
 * calling lane. */
GA_SIMT void ga_slabhash_migrate_pair_own(uint32_t kind, uint32_t *slot, uint64_t key,
                                          uint64_t value)
{
    ga_slabhash_test_yield();
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        (void)ga_slabhash_lane_cas32(slot, (uint32_t)GA_SLABHASH_EMPTY, (uint32_t)key);
        return;
    case GA_SLABHASH_MAP32:
        if (GA_PLANTED(slabhash_migrate_by_store)) {
            /* Pairs with V2, as the swap below; a plain store, which the test must notice. */
            ga_store64_release((uint64_t *)(void *)slot, ga_slabhash_pair(key, value));
            return;
        }
        (void)ga_slabhash_lane_cas64(slot, GA_SLABHASH_EMPTY, ga_slabhash_pair(key, value));
        return;
    default:
        if (ga_slabhash_has_cas128(kind)) {
            bool done =
                ga_slabhash_lane_cas128(slot, GA_SLABHASH_EMPTY, GA_SLABHASH_UNSET, key, value);
            if (done || GA_PLANTED(slabhash_half_migrated_skipped)) {
                return;
            }
        } else {
            (void)ga_slabhash_lane_cas64(slot, GA_SLABHASH_EMPTY, key);
        }
        ga_slabhash_test_yield();
        /* The tile that set the slot's key may have stopped before it set the value. */
        (void)ga_slabhash_lane_cas64(slot + 2, GA_SLABHASH_UNSET, value);
    }
}

GA_SIMT void ga_slabhash_migrate_pair(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                                      uint64_t value)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slabhash_migrate_pair_own(kind, slot, key, value);
    }
    ga_tile_sync(tile); /* the leader's swap is visible to all */
}

GA_SIMT uint64_t ga_slabhash_rehash(ga_slabhash_shift shift, uint64_t key)
{
    return GA_SLABHASH_REHASH(shift, key);
}

/* The slot that the next pair goes to. */
typedef struct ga_slabhash_goal {
    ga_slabhash_walk at;
    uint32_t bucket;
    uint32_t slot;
} ga_slabhash_goal;

/* Copy those pairs of a frozen bucket that belong to the goal's bucket. False: no slab. */
GA_SIMT bool ga_slabhash_migrate_bucket(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                        ga_slab_claimed *claimed, uint32_t bucket,
                                        ga_slabhash_goal *goal)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(shift.from, bucket);
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        for (uint32_t live = ga_slabhash_live_slots(kind, tile, row); live; live &= live - 1u) {
            uint32_t slot = ga_bits_lowest(live);
            uint64_t key =
                ga_slabhash_unfrozen_key(kind, ga_slabhash_key_at(kind, tile, row, slot));
            if (ga_slabhash_bucket(shift.to, ga_slabhash_rehash(shift, key)) != goal->bucket) {
                continue;
            }
            if (goal->slot >= ga_slabhash_slots_end(kind)) {
                if (!ga_slabhash_extend(kind, shift, tile, claimed, &goal->at)) {
                    return false;
                }
                goal->slot = 0;
            }
            ga_slabhash_acquire_slot(kind, walk.row + slot);
            ga_slabhash_migrate_pair(
                kind, tile, goal->at.row + goal->slot, key,
                ga_slabhash_unfrozen_value(kind, ga_slabhash_value_at(kind, tile, row, slot)));
            goal->slot += ga_slabhash_slot_words(kind);
        }
    } while (ga_slabhash_walk_next(kind, shift.from, tile, &walk, row, false));
    return true;
}

/* The old buckets that a new one gets its pairs from. */
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

/* The result of opening a new bucket. */
typedef enum ga_slabhash_opening {
    GA_SLABHASH_WAS_OPEN = 0,
    GA_SLABHASH_OPENED, /* by this call */
    GA_SLABHASH_PENDING /* no slab was available */
} ga_slabhash_opening;

/* Make sure that a bucket of the new version is OPEN. */
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
    if (GA_PLANTED(slabhash_bucket_opened_early)) {
        (void)ga_slabhash_open_bucket(kind, tile, row);
    }
    goal.at = ga_slabhash_walk_chain(shift.to, bucket);
    goal.bucket = bucket;
    goal.slot = 0;
    for (uint32_t source = sources.first; source < sources.end; source++) {
        if (!ga_slabhash_migrate_bucket(kind, shift, tile, claimed, source, &goal)) {
            return GA_SLABHASH_PENDING;
        }
    }
    return ga_slabhash_open_bucket(kind, tile, row) ? GA_SLABHASH_OPENED : GA_SLABHASH_WAS_OPEN;
}

/* ---- searching while a table moves ----------------------------------------------------------- */

/* The value of a key whose slot is frozen, or ABSENT. */
GA_SIMT ga_slabhash_answer ga_slabhash_say_frozen(uint32_t kind, ga_tile tile, ga_row row,
                                                  uint32_t slot)
{
    uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && value == GA_SLABHASH_FROZEN_GONE
               ? ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0)
               : ga_slabhash_answer_of(GA_SLABHASH_FOUND, ga_slabhash_unfrozen_value(kind, value));
}

/* Store all values of the key in one version, frozen or not, and return their number. `moved`, here
 * and below: some slot that was seen is frozen, or the chain is sealed. Then the answer holds for
 * this version, and for the table as long as the newer bucket is pending. */
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
            uint32_t slot = ga_bits_lowest(here);
            uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
            ga_slabhash_acquire_slot(kind, walk.row + slot);
            ga_slabhash_write_value(tile, values, room, count,
                                    ga_slabhash_unfrozen_value(kind, value));
            count++;
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    *moved = *moved || ga_slabhash_is_sealed(kind, walk);
    return count;
}

/* Search the key in one version, frozen or not. */
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
                uint32_t slot = ga_bits_lowest(here);
                uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
                ga_slabhash_acquire_slot(kind, walk.row + slot);
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
            uint32_t slot = ga_bits_lowest(found);
            uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
            if (!ga_slabhash_is_set(kind, value)) {
                return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
            }
            ga_slabhash_acquire_slot(kind, walk.row + slot);
            return ga_slabhash_answer_of(GA_SLABHASH_FOUND, value);
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    *moved = *moved || ga_slabhash_is_sealed(kind, walk);
    return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
}

/* The version in which to search a key, in a table that moves or (if `to` has no rows) may begin
 * to. */
GA_SIMT ga_slabhash_view ga_slabhash_where(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                           uint64_t hash)
{
    bool newer = shift.to.rows != NULL;
    if (newer && !GA_PLANTED(slabhash_pending_bucket_searched)) {
        uint32_t bucket = ga_slabhash_bucket(shift.to, hash);
        newer = ga_slabhash_is_open(kind, tile, ga_slabhash_bucket_row(shift.to, bucket));
    }
    ga_slabhash_test_yield();
    return newer ? shift.to : shift.from;
}

/* Search the key. Writes nothing and never restarts: when the call began, the version that it
 * searches was the right one, and slots that were frozen since hold the state of that moment. */
GA_SIMT ga_slabhash_answer ga_slabhash_seek(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                            uint64_t hash, uint64_t key)
{
    bool moved; /* only a move during this call */
    return ga_slabhash_find_growing(kind, ga_slabhash_where(kind, shift, tile, hash), tile, hash,
                                    key, &moved);
}

/* All values of the key, as ga_slabhash_find_all(). */
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

/* Any operation but a search, in one version. */
GA_SIMT ga_slabhash_answer ga_slabhash_change_in(uint32_t kind, ga_slabhash_view table,
                                                 ga_tile tile, ga_slab_claimed *claimed,
                                                 uint64_t hash, ga_slabhash_operation to)
{
    ga_slabhash_walk walk = ga_slabhash_walk_path(table, hash);
    return to.op == GA_SLABHASH_DELETE ? ga_slabhash_remove(kind, table, tile, walk, to.key)
                                       : ga_slabhash_put(kind, table, tile, walk, claimed, to);
}

/* The version in which a key may be changed: the newer one, whose bucket is OPEN on return. No rows
 * if there was no slab to open it. `shift.to` may have no rows, as above. */
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
    shift.to.rows = opening == GA_SLABHASH_PENDING ? NULL : shift.to.rows;
    return shift.to;
}

/* One operation of any kind, with all checks. */
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

/* DELETEALL, as ga_slabhash_remove_each(). Also FULL, if there is no slab to open the bucket. */
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
