/* SPDX-License-Identifier: MIT
 *
 * Tables that grow, shrink and are compacted by themselves, over tiles and rows. The tiles that
 * change such a table make its next array of buckets (trigger_tile.h), clear it and move the
 * pairs (migrate_tile.h); no host thread helps. For kernels, while they run;
 * docs/internals/slabhash-growth.md has the argument.
 *
 * STRUCTURE  The record of arrays_tile.h:
 *
 *              version    4          5          6          7         8
 *                     [ freed ]  [ older ]  [ moves ]  [ newer ]  [ none ]
 *                                  ^ gone     ^ now       there = 8 ^ = making
 *
 *            `now` is the oldest version that may have pairs that have not moved yet. Tiles may use
 *            versions from there on and below `there`. While `making` is greater than `there`, one
 *            tile makes that version: it allocates the array, then all tiles clear a part of it
 *            each. A tile works with a snapshot: its copy of the record, which may be stale. The
 *            tile is in an epoch, so that the arrays it knows of stay.
 *
 *            A version may have more buckets than the one before, fewer, or equally many. Pairs
 *            move to it in groups of buckets; `opened` counts its buckets that are OPEN.
 *
 * INVARIANT  A version is made only once all buckets of the one before are OPEN. So a tile that
 *            moves pairs out of a version finds all of them there. A version of fewer buckets, or
 *            equally many, is made only if no older one is held, so that only growth can fill the
 *            ring. A stale snapshot is safe, because a bucket of an older version is frozen to its
 *            end before anything changes in the newer one. So a change there fails, or meets a
 *            frozen pair or the SEALED end, and restarts. So does a search that has met either,
 *            unless it knew of the newer version and saw the bucket there pending before it
 *            searched.
 *
 * ORDER      G1 and G2: all of an array is EMPTY before any tile uses it. H1 and H2: all its
 *            buckets are OPEN before any tile begins with it. Y1 and Y2, K: tiles that clear. C: as
 *            on the host (grow.c).
 *
 * PROGRESS   No operation waits for another: while an array is being made, pairs go to slabs that
 *            are chained behind the older one. A tile that is stopped while it makes or clears an
 *            array, or between two buckets that it opens, keeps the table from growing and
 *            shrinking, and nothing else. So does a bucket that finds no slab: it stays pending,
 *            and only changes of its own keys are FULL, which tells the caller to add slabs.
 *
 * CALLS      ga_slabhash_do_from_snapshot           one operation of a tile
 *              ga_slabhash_check_record             1 request in GA_SLABHASH_RENEW_REQUESTS
 *              ga_slabhash_seek_from_snapshot       a search
 *              ga_slabhash_for_change_from_snapshot a change: opens the bucket's group first
 *              ga_slabhash_snapshot_advance         restart, with a newer snapshot
 *              ga_slabhash_tend_from_snapshot       after a change: does a part of the move
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_RESIZE_TILE_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_RESIZE_TILE_H

#include "migrate_tile.h"
#include "trigger_tile.h"

#define GA_SLABHASH_NO_GROUP UINT32_MAX

enum {
    GA_SLABHASH_RUN = 8, /* groups of buckets that an operation opens */
};

/* ---- moving ---------------------------------------------------------------------------------- */

/* Count buckets of the newer version that were opened. The tile that counts the last one makes the
 * version `now`. */
GA_SIMT void ga_slabhash_note_opened(ga_slabhash_growing *growing, ga_tile tile,
                                     const ga_slabhash_snapshot *snapshot, uint32_t opened)
{
    ga_slabhash_version *next = ga_slabhash_version_of(growing, snapshot->number + 1u);
    bool last = ga_slabhash_complete(tile, &next->opened, opened, snapshot->next_buckets) ||
                (GA_PLANTED(slabhash_switched_before_open) && opened);
    GA_EACH_LANE(tile, last ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        /* H1: release. Pairs with H2. No other tile does this: one counts the last bucket. */
        ga_store_release(&growing->now, snapshot->number + 1u);
    }
    ga_tile_sync(tile);
}

/* The first group of a run that no tile has got yet. Once all runs have been handed out, 1 call in
 * 8 gets a run again, because some buckets may have found no slab. GA_SLABHASH_NO_GROUP: the call
 * gets none. */
GA_SIMT uint32_t ga_slabhash_next_run(ga_slabhash_shift shift, ga_slabhash_growing *growing,
                                      ga_tile tile, const ga_slabhash_snapshot *snapshot, bool asks)
{
    uint64_t runs = ((uint64_t)ga_slabhash_groups(shift) + GA_SLABHASH_RUN - 1u) / GA_SLABHASH_RUN;
    ga_slabhash_version *next = ga_slabhash_version_of(growing, snapshot->number + 1u);
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes group = ga_lanes_all(GA_SLABHASH_NO_GROUP);
    GA_EACH_LANE(tile, asks ? 1u << leader : 0, own)
    {
        /* relaxed: hands out runs */
        uint64_t run = ga_add64_relaxed(&next->cursor, 1u);
        bool again = run >= runs;
        run = again ? run - runs : run;
        if (!again || run % 8u == 0) {
            run = again ? run / 8u % runs : run;
            ga_lane_write(&group, own, (uint32_t)run * GA_SLABHASH_RUN);
        }
    }
    return ga_lanes_get(tile, group, leader);
}

/* Open the groups of such a run. Returns how many buckets were opened. */
GA_SIMT uint32_t ga_slabhash_open_some(uint32_t kind, ga_slabhash_shift shift,
                                       ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slab_claimed *claimed,
                                       const ga_slabhash_snapshot *snapshot, bool asks)
{
    uint32_t first = ga_slabhash_next_run(shift, growing, tile, snapshot, asks);
    uint32_t opened = 0;
    for (uint32_t i = 0; i < GA_SLABHASH_RUN; i++) {
        bool is = first != GA_SLABHASH_NO_GROUP && first + i < ga_slabhash_groups(shift);
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, is ? first + i : 0, is);
    }
    return opened;
}

/* After each operation but a search: count the buckets that the tile has opened and the slab that
 * it has chained, and do a part of the move. */
GA_SIMT void ga_slabhash_tend_from_snapshot(uint32_t kind, ga_slabhash_shift shift,
                                            ga_slabhash_growing *growing, ga_tile tile,
                                            ga_slab_claimed *claimed,
                                            ga_slabhash_snapshot *snapshot, uint32_t opened,
                                            bool chained)
{
    if (snapshot->next_rows) {
        uint32_t some = ga_slabhash_open_some(kind, shift, growing, tile, claimed, snapshot, true);
        if (chained) {
            (void)ga_slabhash_tally(tile, shift.chained, 1u);
        }
        ga_slabhash_note_opened(growing, tile, snapshot, some + opened);
        if (!some) {
            ga_slabhash_snapshot_renew(growing, tile, snapshot);
        }
    } else if (chained) {
        ga_slabhash_check_record(growing, snapshot, GA_SLABHASH_LOOK_CHAINED);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

/* True if a result that was found with `moved` set may be wrong: a version that is newer than the
 * snapshot may have had the key since long ago. It is right if the older version was searched
 * because the newer bucket was pending after the call began. */
GA_SIMT bool ga_slabhash_is_stale(ga_slabhash_shift shift, ga_slabhash_view table, bool moved)
{
    return moved && !GA_PLANTED(slabhash_stale_search_ends) &&
           (!shift.to.rows || table.rows == shift.to.rows);
}

/* SEARCH from a snapshot that may be stale. MOVES: there is a newer version than it knows of. */
GA_SIMT ga_slabhash_answer ga_slabhash_seek_from_snapshot(uint32_t kind, ga_slabhash_shift shift,
                                                          ga_tile tile, uint64_t hash, uint64_t key)
{
    ga_slabhash_view table = ga_slabhash_where(kind, shift, tile, hash);
    bool moved;
    ga_slabhash_answer answer = ga_slabhash_find_growing(kind, table, tile, hash, key, &moved);
    return ga_slabhash_is_stale(shift, table, moved) ? ga_slabhash_answer_of(GA_SLABHASH_MOVES, 0)
                                                     : answer;
}

/* SEARCHALL, as ga_slabhash_find_all(). */
GA_SIMT uint64_t ga_slabhash_find_all_from_snapshot(uint32_t kind, ga_slabhash_view table,
                                                    ga_slabhash_growing *growing, ga_tile tile,
                                                    ga_slabhash_snapshot *snapshot, uint64_t hash,
                                                    uint64_t key, uint64_t *values, uint64_t room)
{
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return 0;
    }
    if (ga_slabhash_snapshot_count_request(snapshot)) {
        ga_slabhash_snapshot_renew(growing, tile, snapshot);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, snapshot);
        ga_slabhash_view where = ga_slabhash_where(kind, shift, tile, hash);
        bool moved;
        uint64_t count =
            ga_slabhash_find_all_growing(kind, where, tile, hash, key, values, room, &moved);
        if (!ga_slabhash_is_stale(shift, where, moved)) {
            return count;
        }
        ga_slabhash_snapshot_advance(growing, tile, snapshot);
    }
}

/* The version in which a key may be changed, as ga_slabhash_for_change(), but opens the whole
 * group. */
GA_SIMT ga_slabhash_view ga_slabhash_for_change_from_snapshot(uint32_t kind,
                                                              ga_slabhash_shift shift, ga_tile tile,
                                                              ga_slab_claimed *claimed,
                                                              uint64_t hash, uint32_t *opened)
{
    if (!shift.to.rows) {
        return shift.from;
    }
    uint32_t bucket = ga_slabhash_bucket(shift.to, hash);
    const uint32_t *row = ga_slabhash_bucket_row(shift.to, bucket);
    if (!ga_slabhash_is_open(kind, tile, row)) {
        *opened += ga_slabhash_shift_group(kind, shift, tile, claimed,
                                           bucket / ga_slabhash_times(shift), true);
        shift.to.rows = ga_slabhash_is_open(kind, tile, row) ? shift.to.rows : NULL;
    }
    return shift.to;
}

/* One operation of any kind, with all checks. `table` has everything but the array. */
GA_SIMT ga_slabhash_answer ga_slabhash_do_from_snapshot(uint32_t kind, ga_slabhash_view table,
                                                        ga_slabhash_growing *growing, ga_tile tile,
                                                        ga_slab_claimed *claimed,
                                                        ga_slabhash_snapshot *snapshot,
                                                        uint64_t hash, ga_slabhash_operation to)
{
    ga_slabhash_answer answer;
    if (!ga_slabhash_supports(kind, to.op) || !ga_slabhash_allowed(kind, to.op, to.key, to.value)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    bool changes = to.op != GA_SLABHASH_SEARCH;
    ga_slabhash_snapshot_note_change(snapshot, changes);
    if (ga_slabhash_snapshot_count_request(snapshot)) {
        ga_slabhash_check_record(growing, snapshot,
                                 changes ? GA_SLABHASH_LOOK_CHANGING : GA_SLABHASH_LOOK_ONLY);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, snapshot);
        ga_slab_claimed before = *claimed;
        uint32_t opened = 0;
        if (!changes) {
            answer = ga_slabhash_seek_from_snapshot(kind, shift, tile, hash, to.key);
        } else {
            ga_slabhash_view where =
                ga_slabhash_for_change_from_snapshot(kind, shift, tile, claimed, hash, &opened);
            answer = where.rows ? ga_slabhash_change_in(kind, where, tile, claimed, hash, to)
                                : ga_slabhash_answer_of(GA_SLABHASH_FULL, 0);
        }
        if (answer.result == GA_SLABHASH_MOVES) {
            ga_slabhash_note_opened(growing, tile, snapshot, opened);
            ga_slabhash_snapshot_advance(growing, tile, snapshot);
            continue;
        }
        if (changes) {
            bool chained = !opened && answer.result == GA_SLABHASH_ABSENT &&
                           (before.word != claimed->word || before.units != claimed->units);
            ga_slabhash_tend_from_snapshot(kind, shift, growing, tile, claimed, snapshot, opened,
                                           chained);
        }
        return answer;
    }
}

/* DELETEALL, as ga_slabhash_remove_growing(). */
GA_SIMT uint32_t ga_slabhash_remove_from_snapshot(uint32_t kind, ga_slabhash_view table,
                                                  ga_slabhash_growing *growing, ga_tile tile,
                                                  ga_slab_claimed *claimed,
                                                  ga_slabhash_snapshot *snapshot, uint64_t hash,
                                                  uint64_t key, uint64_t *count)
{
    ga_slabhash_snapshot_note_change(snapshot, true);
    if (ga_slabhash_snapshot_count_request(snapshot)) {
        ga_slabhash_check_record(growing, snapshot, GA_SLABHASH_LOOK_CHANGING);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, snapshot);
        uint32_t opened = 0;
        ga_slabhash_view where =
            ga_slabhash_for_change_from_snapshot(kind, shift, tile, claimed, hash, &opened);
        uint32_t result =
            where.rows ? ga_slabhash_remove_each(kind, where, tile,
                                                 ga_slabhash_walk_path(where, hash), key, count)
                       : GA_SLABHASH_FULL;
        if (result != GA_SLABHASH_MOVES) {
            ga_slabhash_tend_from_snapshot(kind, shift, growing, tile, claimed, snapshot, opened,
                                           false);
            return result;
        }
        ga_slabhash_note_opened(growing, tile, snapshot, opened);
        ga_slabhash_snapshot_advance(growing, tile, snapshot);
    }
}

/* ---- lanes that are served together (many_tile.h) -------------------------------------------- */

/* Before the lanes of the mask make their changes: the tile reads the record if that is due, and
 * while the table moves it opens their buckets, and a run of others. Tiles work abreast. */
GA_SIMT void ga_slabhash_tend_lanes(uint32_t kind, ga_slabhash_view table,
                                    ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slab_claimed *claimed, ga_slabhash_snapshot *snapshot,
                                    uint32_t changing, ga_lanes hash, ga_lanes hash_high)
{
    ga_slabhash_snapshot_note_change(snapshot, changing != 0);
    if (ga_slabhash_snapshot_count_request(snapshot)) {
        ga_slabhash_check_record(growing, snapshot,
                                 changing ? GA_SLABHASH_LOOK_CHANGING : GA_SLABHASH_LOOK_ONLY);
    }
    ga_tile_sync(tile); /* abreast again */
    bool asks = snapshot->next_rows && changing;
    if (!ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        return;
    }
    ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, snapshot);
    uint32_t opened = 0;
    ga_lanes source = ga_lanes_all(0), pending = ga_lanes_all(0);
    GA_EACH_LANE(tile, asks ? changing : 0, own)
    {
        uint32_t its = ga_slabhash_bucket(shift.to, ga_slabhash_lane64(hash, hash_high, own));
        bool open = ga_slabhash_own_is_open(kind, ga_slabhash_bucket_row(shift.to, its));
        ga_lane_write(&source, own, its / ga_slabhash_times(shift));
        ga_lane_write(&pending, own, open ? 0 : 1u);
    }
    ga_tile_sync(tile); /* each lane's acquire holds for all lanes */
    uint32_t queue = ga_lanes_nonzero(tile, pending);
    while (ga_lanes_any(tile, ga_lanes_all(queue))) {
        uint32_t next = ga_lanes_get(tile, source, queue ? ga_bits_lowest(queue) : 0);
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, next, queue != 0);
        queue &= queue - 1u;
    }
    uint32_t some = ga_slabhash_open_some(kind, shift, growing, tile, claimed, snapshot, asks);
    ga_slabhash_note_opened(growing, tile, snapshot, some + opened);
    if (asks && !some) {
        ga_slabhash_snapshot_renew(growing, ga_tile_of(ga_tile_size(tile)), snapshot);
    }
    ga_tile_sync(tile); /* abreast again */
}

/* If lanes only search, there is nothing to do for the move: the tile reads the record now and
 * then, so that it does not hold an older array for long. */
GA_SIMT void ga_slabhash_tend_searches(ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slabhash_snapshot *snapshot)
{
    if (ga_slabhash_snapshot_count_request(snapshot)) {
        ga_slabhash_snapshot_renew(growing, ga_tile_of(ga_tile_size(tile)), snapshot);
        ga_slabhash_snapshot_set_clock(snapshot, GA_SLABHASH_RENEW_SEARCHES);
    }
    ga_tile_sync(tile); /* abreast again */
}

/* The array in which one lane's request is served. No rows: the request is deferred, because there
 * was no slab to open its bucket. The tile synchronises after this, before any of its lanes
 * searches. */
GA_SIMT ga_slabhash_view ga_slabhash_for_lane(uint32_t kind, ga_slabhash_shift shift, uint32_t op,
                                              uint64_t hash)
{
    uint32_t bucket = shift.to.rows ? ga_slabhash_bucket(shift.to, hash) : 0;
    if (!shift.to.rows) {
        return shift.from;
    }
    if (ga_slabhash_own_is_open(kind, ga_slabhash_bucket_row(shift.to, bucket))) {
        return shift.to;
    }
    shift.from.rows = op == GA_SLABHASH_SEARCH ? shift.from.rows : NULL;
    return shift.from;
}

#endif
