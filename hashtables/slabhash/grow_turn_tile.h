/* SPDX-License-Identifier: MIT
 *
 * Tables that grow, shrink and are compacted by themselves, over tiles and rows: those who change them
 * make the next array of buckets (grow_when_tile.h), clear it and move the pairs (grow_group_tile.h),
 * and nobody else is there to help. For kernels, while they run; docs/slabhash.md has the argument.
 *
 * STRUCTURE  The record of grow_gone_tile.h:
 *
 *              stage     4          5          6          7         8
 *                     [ gone ]  [ older ]  [ moves ]  [ newer ]  [ none ]
 *                                  ^ gone     ^ now       there = 8 ^ = making
 *
 *            `now` is the oldest stage that may have pairs that have not moved yet; stages from there
 *            on and below `there` may be used. Where `making` is more than `there` somebody makes that
 *            stage: has its array, and then all clear a part of it each. A tile works from a stand: what
 *            it has read of that, some time ago, and in an epoch, so that what it knows of stays.
 *
 *            A stage may have more buckets than the one before, fewer, or as many. It is moved to by
 *            groups; `opened` counts the newer stage's buckets.
 *
 * INVARIANT  A stage is made only once all buckets of the one before are OPEN. So whoever moves
 *            pairs from a stage finds them all there. One of fewer buckets, or as many, is made only
 *            where no older one is held: so the ring is full by growing alone. A stand may be as old
 *            as it likes: a bucket of an older stage is frozen to its end before anything changes in
 *            the newer one. So a change there fails, or meets a frozen pair or the SEALED end, and
 *            begins anew; so does a search that has met either, unless it knew of the newer stage and
 *            has seen that bucket shut before it looked.
 *
 * ORDER      G1 and G2: all of an array is EMPTY before anybody uses it. H1 and H2: all its buckets
 *            are OPEN before anybody begins with it. Y1 and Y2, K: who clears. C: as on the host.
 *
 * PROGRESS   No operation waits for another: while an array is made, pairs are chained behind the
 *            older one. Who was stopped while he makes or clears an array, or between two buckets
 *            that he opens, stops growth, and that the table shrinks, alone.
 */
#ifndef GPUALLOC_SLABHASH_GROW_TURN_TILE_H
#define GPUALLOC_SLABHASH_GROW_TURN_TILE_H

#include "grow_group_tile.h"
#include "grow_when_tile.h"

#define GA_SLABHASH_NO_GROUP UINT32_MAX

enum {
    GA_SLABHASH_RUN = 8, /* groups of buckets that an operation opens */
};

/* ---- moving on -------------------------------------------------------------------------------- */

/* So many buckets of the newer stage were opened: with the last of them it is `now`. */
GA_SIMT void ga_slabhash_note_opened(ga_slabhash_growing *growing, ga_tile tile,
                                     const ga_slabhash_stand *stand, uint32_t opened)
{
    ga_slabhash_stage *next = ga_slabhash_stage_of(growing, stand->number + 1u);
    bool last = ga_slabhash_complete(tile, &next->opened, opened, stand->next_buckets) ||
                (GA_SLABHASH_MUTANT == 23 && opened);
    GA_EACH_LANE(tile, last ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        /* H1: release. Pairs with H2. Nobody else does this: one counts the last bucket. */
        ga_store_release(&growing->now, stand->number + 1u);
    }
    ga_tile_sync(tile);
}

/* The first group of a run that nobody has been given yet; once all have, of one in eight calls each:
 * there may be some for which there was no slab. GA_SLABHASH_NO_GROUP: of none. */
GA_SIMT uint32_t ga_slabhash_next_run(ga_slabhash_shift shift, ga_slabhash_growing *growing,
                                      ga_tile tile, const ga_slabhash_stand *stand, bool asks)
{
    uint64_t runs = ((uint64_t)ga_slabhash_groups(shift) + GA_SLABHASH_RUN - 1u) / GA_SLABHASH_RUN;
    ga_slabhash_stage *next = ga_slabhash_stage_of(growing, stand->number + 1u);
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

/* Open the groups of such a run: how many buckets were. */
GA_SIMT uint32_t ga_slabhash_open_some(uint32_t kind, ga_slabhash_shift shift,
                                       ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slab_claimed *claimed, const ga_slabhash_stand *stand,
                                       bool asks)
{
    uint32_t first = ga_slabhash_next_run(shift, growing, tile, stand, asks);
    uint32_t opened = 0;
    for (uint32_t i = 0; i < GA_SLABHASH_RUN; i++) {
        bool is = first != GA_SLABHASH_NO_GROUP && first + i < ga_slabhash_groups(shift);
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, is ? first + i : 0, is);
    }
    return opened;
}

/* After each operation that is no search: what the tile has opened and chained is counted, and a
 * part of what is to be done is. */
GA_SIMT void ga_slabhash_tend_standing(uint32_t kind, ga_slabhash_shift shift,
                                       ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slab_claimed *claimed, ga_slabhash_stand *stand,
                                       uint32_t opened, bool chained)
{
    if (stand->next_rows) {
        uint32_t some = ga_slabhash_open_some(kind, shift, growing, tile, claimed, stand, true);
        if (chained) {
            (void)ga_slabhash_tally(tile, shift.chained, 1u);
        }
        ga_slabhash_note_opened(growing, tile, stand, some + opened);
        if (!some) {
            ga_slabhash_stand_read(growing, tile, stand);
        }
    } else if (chained) {
        ga_slabhash_look_up(growing, stand, GA_SLABHASH_LOOK_CHAINED);
    }
}

/* ---- operations ------------------------------------------------------------------------------- */

/* Whether what was seen in a generation, and had `moved`, may be no answer: a newer one than the
 * stand knows of may have had the key for long. Where the older one was looked through because the
 * newer bucket was shut, after the call began, it is one. */
GA_SIMT bool ga_slabhash_is_stale(ga_slabhash_shift shift, ga_slabhash_view table, bool moved)
{
    return moved && GA_SLABHASH_MUTANT != 24 && (!shift.to.rows || table.rows == shift.to.rows);
}

/* SEARCH from a stand that may be old: MOVES where there is a newer stage than it knows of. */
GA_SIMT ga_slabhash_answer ga_slabhash_seek_standing(uint32_t kind, ga_slabhash_shift shift,
                                                     ga_tile tile, uint64_t hash, uint64_t key)
{
    ga_slabhash_view table = ga_slabhash_where(kind, shift, tile, hash);
    bool moved;
    ga_slabhash_answer answer = ga_slabhash_find_growing(kind, table, tile, hash, key, &moved);
    return ga_slabhash_is_stale(shift, table, moved) ? ga_slabhash_answer_of(GA_SLABHASH_MOVES, 0)
                                                     : answer;
}

/* SEARCHALL, as ga_slabhash_find_all(). */
GA_SIMT uint64_t ga_slabhash_find_all_standing(uint32_t kind, ga_slabhash_view table,
                                               ga_slabhash_growing *growing, ga_tile tile,
                                               ga_slabhash_stand *stand, uint64_t hash,
                                               uint64_t key, uint64_t *values, uint64_t room)
{
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return 0;
    }
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_stand_read(growing, tile, stand);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        ga_slabhash_view where = ga_slabhash_where(kind, shift, tile, hash);
        bool moved;
        uint64_t count =
            ga_slabhash_find_all_growing(kind, where, tile, hash, key, values, room, &moved);
        if (!ga_slabhash_is_stale(shift, where, moved)) {
            return count;
        }
        ga_slabhash_stand_on(growing, tile, stand);
    }
}

/* The generation in which a key may be changed, as ga_slabhash_for_change(): with its group. */
GA_SIMT ga_slabhash_view ga_slabhash_for_change_standing(uint32_t kind, ga_slabhash_shift shift,
                                                         ga_tile tile, ga_slab_claimed *claimed,
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

/* One operation of any kind, with everything checked. `table` says all but which array. */
GA_SIMT ga_slabhash_answer ga_slabhash_do_standing(uint32_t kind, ga_slabhash_view table,
                                                   ga_slabhash_growing *growing, ga_tile tile,
                                                   ga_slab_claimed *claimed,
                                                   ga_slabhash_stand *stand, uint64_t hash,
                                                   ga_slabhash_operation to)
{
    ga_slabhash_answer answer;
    if (!ga_slabhash_supports(kind, to.op) || !ga_slabhash_allowed(kind, to.op, to.key, to.value)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    bool changes = to.op != GA_SLABHASH_SEARCH;
    ga_slabhash_stand_changes(stand, changes);
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(growing, stand,
                            changes ? GA_SLABHASH_LOOK_CHANGING : GA_SLABHASH_LOOK_ONLY);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        ga_slab_claimed before = *claimed;
        uint32_t opened = 0;
        if (!changes) {
            answer = ga_slabhash_seek_standing(kind, shift, tile, hash, to.key);
        } else {
            ga_slabhash_view where =
                ga_slabhash_for_change_standing(kind, shift, tile, claimed, hash, &opened);
            answer = where.rows ? ga_slabhash_change_in(kind, where, tile, claimed, hash, to)
                                : ga_slabhash_answer_of(GA_SLABHASH_FULL, 0);
        }
        if (answer.result == GA_SLABHASH_MOVES) {
            ga_slabhash_note_opened(growing, tile, stand, opened);
            ga_slabhash_stand_on(growing, tile, stand);
            continue;
        }
        if (changes) {
            bool chained = !opened && answer.result == GA_SLABHASH_ABSENT &&
                           (before.word != claimed->word || before.units != claimed->units);
            ga_slabhash_tend_standing(kind, shift, growing, tile, claimed, stand, opened, chained);
        }
        return answer;
    }
}

/* DELETEALL, as ga_slabhash_remove_growing(). */
GA_SIMT uint32_t ga_slabhash_remove_standing(uint32_t kind, ga_slabhash_view table,
                                             ga_slabhash_growing *growing, ga_tile tile,
                                             ga_slab_claimed *claimed, ga_slabhash_stand *stand,
                                             uint64_t hash, uint64_t key, uint64_t *count)
{
    ga_slabhash_stand_changes(stand, true);
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(growing, stand, GA_SLABHASH_LOOK_CHANGING);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        uint32_t opened = 0;
        ga_slabhash_view where =
            ga_slabhash_for_change_standing(kind, shift, tile, claimed, hash, &opened);
        uint32_t result =
            where.rows ? ga_slabhash_remove_each(kind, where, tile,
                                                 ga_slabhash_walk_path(where, hash), key, count)
                       : GA_SLABHASH_FULL;
        if (result != GA_SLABHASH_MOVES) {
            ga_slabhash_tend_standing(kind, shift, growing, tile, claimed, stand, opened, false);
            return result;
        }
        ga_slabhash_note_opened(growing, tile, stand, opened);
        ga_slabhash_stand_on(growing, tile, stand);
    }
}

/* ---- lanes that are served together (many_tile.h) --------------------------------------------- */

/* Before the lanes of the mask change what they ask for: the tile looks at the record now and then,
 * and while the table moves it opens their buckets, and a run of others. Tiles are abreast. */
GA_SIMT void ga_slabhash_tend_lanes(uint32_t kind, ga_slabhash_view table,
                                    ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slab_claimed *claimed, ga_slabhash_stand *stand,
                                    uint32_t changing, ga_lanes hash, ga_lanes hash_high)
{
    ga_tile alone = ga_tile_of(ga_tile_size(tile));
    ga_slabhash_stand_changes(stand, changing != 0);
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(growing, stand,
                            changing ? GA_SLABHASH_LOOK_CHANGING : GA_SLABHASH_LOOK_ONLY);
    }
    ga_tile_sync(tile); /* abreast again */
    bool asks = stand->next_rows && changing;
    if (!ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        return;
    }
    ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
    uint32_t opened = 0;
    ga_lanes source = ga_lanes_all(0), shut = ga_lanes_all(0);
    GA_EACH_LANE(tile, asks ? changing : 0, own)
    {
        uint32_t its = ga_slabhash_bucket(shift.to, ga_slabhash_lane64(hash, hash_high, own));
        bool open = ga_slabhash_own_is_open(kind, ga_slabhash_bucket_row(shift.to, its));
        ga_lane_write(&source, own, its / ga_slabhash_times(shift));
        ga_lane_write(&shut, own, open ? 0 : 1u);
    }
    ga_tile_sync(tile); /* what a lane acquired all have */
    uint32_t queue = ga_lanes_nonzero(tile, shut);
    while (ga_lanes_any(tile, ga_lanes_all(queue))) {
        uint32_t next = ga_lanes_get(tile, source, queue ? ga_bits_lowest(queue) : 0);
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, next, queue != 0);
        queue &= queue - 1u;
    }
    uint32_t some = ga_slabhash_open_some(kind, shift, growing, tile, claimed, stand, asks);
    ga_slabhash_note_opened(growing, tile, stand, some + opened);
    if (asks && !some) {
        ga_slabhash_stand_read(growing, alone, stand);
    }
    ga_tile_sync(tile); /* abreast again */
}

/* The same where lanes only search, which have nothing to be tended: now and then the tile reads the
 * record, so that it keeps no older array for long. */
GA_SIMT void ga_slabhash_tend_searches(ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slabhash_stand *stand)
{
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_stand_read(growing, ga_tile_of(ga_tile_size(tile)), stand);
        ga_slabhash_stand_waits(stand, GA_SLABHASH_RARELY);
    }
    ga_tile_sync(tile); /* abreast again */
}

/* The array in which one lane's request is served: no rows where that is for later, since there was
 * no slab to open its bucket. Behind it the tile meets, before any of its lanes looks. */
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
