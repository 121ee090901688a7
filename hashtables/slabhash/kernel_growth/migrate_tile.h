/* SPDX-License-Identifier: MIT
 *
 * Moving a group of buckets to the next array of a table that grows while kernels run. It does what
 * ga_slabhash_shift_bucket() (grow_tile.h) does for one bucket, with all lanes at once, and for
 * tiles that work abreast. grow_tile.h has the INVARIANT, the ORDER and the PROGRESS.
 *
 * STRUCTURE  A group has one bucket of the array that has fewer, and the buckets of the other array
 *            that share its keys:
 *
 *              grows   [ from ]                  merges  [ from ][ from ]
 *                      [ to ][ to ][ to ][ to ]          [ to ]
 *
 *            All sources are frozen, each to its SEALED end, before the first pair is copied. The
 *            pairs of each source follow those of the source before.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_MIGRATE_TILE_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_MIGRATE_TILE_H

#include "../table/grow_tile.h"
#include "../table/near_tile.h"

enum {
    GA_SLABHASH_GROUP = 16 /* the most buckets that one bucket's pairs are copied to at once */
};

/* True if several buckets become one. */
GA_SIMT bool ga_slabhash_merges(ga_slabhash_shift shift)
{
    return shift.to.buckets < shift.from.buckets;
}

GA_SIMT uint32_t ga_slabhash_groups(ga_slabhash_shift shift)
{
    return ga_slabhash_merges(shift) ? shift.to.buckets : shift.from.buckets;
}

/* Buckets of the newer version in a group. */
GA_SIMT uint32_t ga_slabhash_times(ga_slabhash_shift shift)
{
    return ga_slabhash_merges(shift) ? 1u : shift.to.buckets / shift.from.buckets;
}

/* The buckets of the older version in a group. */
GA_SIMT ga_slabhash_sources ga_slabhash_sources_in(ga_slabhash_shift shift, uint32_t group)
{
    ga_slabhash_sources sources;
    uint32_t each = ga_slabhash_merges(shift) ? shift.from.buckets / shift.to.buckets : 1u;
    sources.first = group * each;
    sources.end = sources.first + each;
    return sources;
}

/* Follow a link as ga_slabhash_go_on_to(); after the end of a chain, go to the next source. */
GA_SIMT bool ga_slabhash_go_on_among(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                     uint32_t **row, uint32_t link, ga_slabhash_sources *sources,
                                     bool asks)
{
    bool more = ga_slabhash_go_on_to(kind, table, tile, row, link, asks);
    if (asks && !more) {
        sources->first++;
        more = sources->first < sources->end;
        *row = more ? ga_slabhash_bucket_row(table, sources->first) : *row;
    }
    return more;
}

/* Freeze all sources, each to the end of its chain. */
GA_SIMT void ga_slabhash_freeze_group(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                      uint32_t group, bool asks)
{
    ga_slabhash_sources sources = ga_slabhash_sources_in(shift, group);
    uint32_t *row = ga_slabhash_bucket_row(shift.from, sources.first);
    if (GA_PLANTED(slabhash_only_first_bucket_frozen)) {
        sources.end = sources.first + 1u;
    }
    while (ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        ga_slabhash_freeze_slab(kind, tile, row, asks);
        uint32_t link = ga_slabhash_seal(kind, tile, row, asks);
        asks = ga_slabhash_go_on_among(kind, shift.from, tile, &row, link, &sources, asks);
    }
}

/* True if a bucket of the group is pending: each lane checks its own ones. */
GA_SIMT bool ga_slabhash_is_pending(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                    uint32_t first, bool asks)
{
    ga_lanes pending = ga_lanes_all(0);
    ga_tile_sync(tile); /* each lane's earlier reads come before */
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        for (uint32_t i = own; i < ga_slabhash_times(shift); i += ga_tile_size(tile)) {
            if (!ga_slabhash_own_is_open(kind, ga_slabhash_bucket_row(shift.to, first + i))) {
                ga_lane_write(&pending, own, 1u);
            }
        }
    }
    ga_tile_sync(tile); /* each lane's acquire holds for all lanes */
    return ga_lanes_nonzero(tile, pending) != 0;
}

/* The sum of the lanes' values; tiles may be abreast. */
GA_SIMT uint32_t ga_slabhash_sum(ga_tile tile, ga_lanes lanes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < ga_tile_size(tile); i++) {
        sum += ga_lanes_get(tile, lanes, i);
    }
    return sum;
}

/* How many pairs each bucket of a group has received, 8 bits each: equal in all lanes. */
typedef struct ga_slabhash_brought {
    uint32_t word[GA_SLABHASH_GROUP / 4];
} ga_slabhash_brought;

GA_SIMT uint32_t ga_slabhash_brought_to(const ga_slabhash_brought *brought, uint32_t i)
{
    uint32_t count = 0;
    GA_UNROLL
    for (uint32_t w = 0; w < GA_SLABHASH_GROUP / 4u; w++) {
        count |= w == i / 4u ? brought->word[w] >> i % 4u * 8u : 0;
    }
    return count & 0xffu;
}

GA_SIMT void ga_slabhash_brought_one(ga_slabhash_brought *brought, uint32_t i)
{
    GA_UNROLL
    for (uint32_t w = 0; w < GA_SLABHASH_GROUP / 4u; w++) {
        brought->word[w] += w == i / 4u ? 1u << i % 4u * 8u : 0;
    }
}

/* The pair that each lane copies from a slab, and the bucket of the group that it goes to. */
typedef struct ga_slabhash_carried {
    ga_lanes key, key_high, value, value_high;
    ga_lanes to;
} ga_slabhash_carried;

/* Load each lane's slot number `round`. Returns the mask of the lanes that have a pair. */
GA_SIMT uint32_t ga_slabhash_take_up(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                     const uint32_t *row, uint32_t first, uint32_t round, bool asks,
                                     ga_slabhash_carried *load)
{
    ga_lanes live = ga_lanes_all(0);
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        uint32_t slot = ga_slabhash_slot_of(kind, tile, own, round);
        uint64_t key = GA_SLABHASH_EMPTY, value = 0;
        if (slot < ga_slabhash_slots_end(kind)) {
            ga_slabhash_read_own(kind, row + slot, &key, &value);
        }
        if (ga_slabhash_is_live(kind, key, value)) {
            ga_slabhash_acquire_slot(kind, row + slot);
            key = ga_slabhash_unfrozen_key(kind, key);
            value = ga_slabhash_unfrozen_value(kind, value);
            uint64_t hash = ga_slabhash_rehash(shift, key);
            ga_lane_write(&load->key, own, (uint32_t)key);
            ga_lane_write(&load->key_high, own, (uint32_t)(key >> 32));
            ga_lane_write(&load->value, own, (uint32_t)value);
            ga_lane_write(&load->value_high, own, (uint32_t)(value >> 32));
            ga_lane_write(&load->to, own, ga_slabhash_bucket(shift.to, hash) - first);
            ga_lane_write(&live, own, 1u);
        }
    }
    return ga_lanes_nonzero(tile, live);
}

/* Store the pairs in the order of their slots, so lower lanes first. False if a bucket of the group
 * has no slot left. */
GA_SIMT bool ga_slabhash_put_down(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                  uint32_t first, uint32_t lanes, const ga_slabhash_carried *load,
                                  ga_slabhash_brought *brought)
{
    ga_lanes equal = ga_lanes_equal(tile, lanes, load->to);
    ga_lanes over = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes, own)
    {
        uint32_t i = ga_lane_read(load->to, own);
        uint32_t before = ga_bits_count(ga_lane_read(equal, own) & ga_bits_below(own));
        uint32_t slot =
            (ga_slabhash_brought_to(brought, i) + before) * ga_slabhash_slot_words(kind);
        if (slot < ga_slabhash_slots_end(kind)) {
            ga_slabhash_migrate_pair_own(kind, ga_slabhash_bucket_row(shift.to, first + i) + slot,
                                         ga_slabhash_lane64(load->key, load->key_high, own),
                                         ga_slabhash_lane64(load->value, load->value_high, own));
        } else {
            ga_lane_write(&over, own, 1u);
        }
    }
    for (uint32_t lane = 0; lane < ga_tile_size(tile); lane++) {
        uint32_t i = ga_lanes_get(tile, load->to, lane);
        if (lanes >> lane & 1u) {
            ga_slabhash_brought_one(brought, i);
        }
    }
    return ga_lanes_nonzero(tile, over) == 0;
}

/* Copy the pairs of a group's frozen sources, in order, as ga_slabhash_migrate_bucket() does one by
 * one; each lane copies its own. False, with some of them copied, if a bucket of the group needs a
 * second slab. */
GA_SIMT bool ga_slabhash_migrate_group(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       uint32_t group, bool asks)
{
    uint32_t first = group * ga_slabhash_times(shift), leader = ga_tile_leader(tile);
    ga_slabhash_sources sources = ga_slabhash_sources_in(shift, group);
    uint32_t *row = ga_slabhash_bucket_row(shift.from, sources.first);
    bool fits = ga_slabhash_times(shift) <= GA_SLABHASH_GROUP;
    ga_slabhash_brought brought = {{0}};
    ga_slabhash_carried load;
    load.key = load.key_high = load.value = load.value_high = load.to = ga_lanes_all(0);
    asks = asks && fits;
    while (ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        GA_UNROLL
        for (uint32_t round = 0; round < GA_SLABHASH_SHARE_MAX; round++) {
            if (round < ga_slabhash_share_of(kind, tile)) { /* equal in all tiles */
                uint32_t lanes =
                    ga_slabhash_take_up(kind, shift, tile, row, first, round, asks, &load);
                fits =
                    ga_slabhash_put_down(kind, shift, tile, first, lanes, &load, &brought) && fits;
            }
        }
        ga_lanes link = ga_lanes_all(GA_SLABHASH_SEALED);
        asks = asks && fits;
        GA_EACH_LANE(tile, asks ? 1u << leader : 0, own)
        {
            /* relaxed: frozen; a tile that follows it acquires it */
            ga_lane_write(&link, own, ga_load_relaxed(row + GA_SLABHASH_NEXT));
        }
        uint32_t source = sources.first;
        asks = ga_slabhash_go_on_among(kind, shift.from, tile, &row,
                                       ga_lanes_get(tile, link, leader), &sources, asks);
        if (GA_PLANTED(slabhash_earlier_pairs_dropped) && source != sources.first) {
            brought = (ga_slabhash_brought){{0}};
        }
    }
    return fits;
}

/* Slow path: copy the pairs one by one, and append slabs to the new buckets as needed. False: no
 * slab. */
GA_SIMT bool ga_slabhash_migrate_group_slow(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                            ga_slab_claimed *claimed, uint32_t group)
{
    ga_slabhash_sources sources = ga_slabhash_sources_in(shift, group);
    for (uint32_t i = 0; i < ga_slabhash_times(shift); i++) {
        ga_slabhash_goal goal;
        goal.bucket = group * ga_slabhash_times(shift) + i;
        goal.at = ga_slabhash_walk_chain(shift.to, goal.bucket);
        goal.slot = 0;
        for (uint32_t source = sources.first; source < sources.end; source++) {
            if (!ga_slabhash_migrate_bucket(kind, shift, tile, claimed, source, &goal)) {
                return false;
            }
        }
    }
    return true;
}

/* Open the buckets of the group. Returns how many this call opened. */
GA_SIMT uint32_t ga_slabhash_open_each(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       uint32_t group, bool asks)
{
    uint32_t first = group * ga_slabhash_times(shift);
    ga_lanes opened = ga_lanes_all(0);
    ga_slabhash_test_yield();
    ga_tile_sync(tile); /* every lane's copies come before what each lane opens */
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        uint32_t count = 0;
        for (uint32_t i = own; i < ga_slabhash_times(shift); i += ga_tile_size(tile)) {
            count +=
                ga_slabhash_own_opens(kind, ga_slabhash_bucket_row(shift.to, first + i)) ? 1 : 0;
        }
        ga_lane_write(&opened, own, count);
    }
    ga_tile_sync(tile);
    return ga_slabhash_sum(tile, opened);
}

/* Make sure that the whole group is OPEN, as ga_slabhash_shift_bucket() does for one bucket.
 * Returns how many buckets this call opened. Without a slab they stay pending. Tiles may be
 * abreast. */
GA_SIMT uint32_t ga_slabhash_shift_group(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                         ga_slab_claimed *claimed, uint32_t group, bool asks)
{
    asks = ga_slabhash_is_pending(kind, shift, tile, group * ga_slabhash_times(shift), asks);
    if (!ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        return 0;
    }
    ga_slabhash_freeze_group(kind, shift, tile, group, asks);
    if (GA_PLANTED(slabhash_bucket_opened_early)) {
        (void)ga_slabhash_open_each(kind, shift, tile, group, asks);
    }
    bool fits = ga_slabhash_migrate_group(kind, shift, tile, group, asks);
    if (asks && !fits) { /* rare, and each tile for itself */
        asks = ga_slabhash_migrate_group_slow(kind, shift, ga_tile_of(ga_tile_size(tile)), claimed,
                                              group);
    }
    ga_tile_sync(tile); /* abreast again */
    return ga_slabhash_open_each(kind, shift, tile, group, asks);
}

/* Open groups of the newer version from `first` on. Returns how many buckets were opened. */
GA_SIMT uint32_t ga_slabhash_open_from(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       ga_slab_claimed *claimed, uint64_t first, uint32_t count)
{
    uint32_t opened = 0;
    for (uint32_t i = 0; i < count && first + i < ga_slabhash_groups(shift); i++) {
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, (uint32_t)first + i, true);
    }
    return opened;
}

#endif
