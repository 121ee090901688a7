/* SPDX-License-Identifier: MIT
 *
 * Tables that grow by themselves, over tiles and rows: those who put pairs in make the next array
 * of buckets, clear it and move the pairs (grow_tile.h), and nobody else is there to help. For
 * kernels, while they run; docs/slabhash.md has the argument.
 *
 * STRUCTURE  One record, whose place never changes, and in it a stage for each array that there has
 *            been since somebody was last alone with the table:
 *
 *              stage     0          1          2         3
 *                     [ moved ]  [ older ]  [ newer ]  [ none ]
 *                                    ^ now      there = 3 ^ = making
 *
 *            `now` is the oldest stage that may have pairs that have not moved yet; stages below
 *            `there` may be used. Where `making` is more than `there` somebody makes that stage:
 *            has its array, and then all clear a part of it each. A tile works from a stand: what
 *            it has read of that, some time ago.
 *
 * INVARIANT  A stage is made only once all buckets of the one before are OPEN. So whoever moves
 *            pairs from a stage finds them all there. A stand may be as old as it likes: a bucket
 *            of an older stage is frozen to its end before anything changes in the newer one. So
 *            a change there fails, or meets a frozen pair or the SEALED end, and begins anew; so
 *            does a search that has met either, unless it knew of the newer stage and has seen
 *            that bucket shut before it looked.
 *
 * ORDER      G1 and G2: all of an array is EMPTY before anybody uses it. H1 and H2: all its buckets
 *            are OPEN before anybody begins with it. Y1 and Y2, K: who clears. C: as on the host.
 *
 * PROGRESS   No operation waits for another: while an array is made, pairs are chained behind the
 *            older one. Who was stopped while he makes or clears an array, or between two buckets
 *            that he opens, stops growth alone.
 *            Older arrays stay until somebody is alone with the table. Each is half as large as the
 *            next, or less, so that all together are smaller than the newest.
 */
#ifndef GPUALLOC_SLABHASH_GROW_TURN_TILE_H
#define GPUALLOC_SLABHASH_GROW_TURN_TILE_H

#include "grow_tile.h"

#ifdef __CUDACC__
#include <gpualloc/slab/sized_kernel.h>
#endif

enum {
    GA_SLABHASH_STAGES = 32,
    GA_SLABHASH_RUN = 8,         /* buckets that an operation opens */
    GA_SLABHASH_PART = 64,       /* buckets that are cleared at once */
    GA_SLABHASH_SAMPLE = 32,     /* buckets that are looked at to see how full a table is */
    GA_SLABHASH_GROWS_AT = 45,   /* of 100 places of these: else more buckets are no help */
    GA_SLABHASH_TIMES_MOST = 16, /* as many buckets at once */
    GA_SLABHASH_SELDOM = 16      /* requests between two looks at the record */
};

/* An array of buckets and their chains. */
typedef struct ga_slabhash_stage {
    /* Set before G1, and Y1. */
    uint32_t *rows;
    uint32_t buckets;
    uint32_t ready;   /* Y: there is an array, to be cleared */
    uint32_t wanted;  /* relaxed: with so many slabs behind buckets it moves on */
    uint32_t chained; /* relaxed: slabs behind buckets */
    uint32_t parts;   /* relaxed: handed out to be cleared */
    uint32_t cleared; /* K: parts */
    uint32_t opened;  /* C: buckets */
    uint64_t cursor;  /* relaxed: runs of buckets handed out */
} ga_slabhash_stage;

typedef struct ga_slabhash_growing {
    uint32_t now;    /* H */
    uint32_t there;  /* G: stages */
    uint32_t making; /* M: stages, with one that is being made */
    uint32_t failed; /* relaxed: how often there was no array to be had */
#ifdef __CUDACC__
    ga_sized_heap *arrays; /* where they come from */
#else
    void *(*array)(void *context, size_t bytes);
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;          /* for both */
#endif
    ga_slabhash_stage stages[GA_SLABHASH_STAGES];
} ga_slabhash_growing;

/* What a tile knows of the record, the same in all its lanes; begin with all bits 0 and
 * ga_slabhash_stand_read(). */
typedef struct ga_slabhash_stand {
    uint32_t *rows, *next_rows; /* of stage `number`, and the next: NULL where there was none */
    uint32_t buckets, next_buckets;
    uint32_t number;
    uint32_t requests; /* until it looks again */
} ga_slabhash_stand;

/* Memory for an array, by the whole tile; NULL where there is none. */
GA_SIMT void *ga_slabhash_array(ga_slabhash_growing *growing, ga_tile tile, size_t bytes)
{
#ifdef __CUDACC__
    ga_sized_view heap = ga_sized_view_of(growing->arrays);
    uint32_t regions = ga_sized_run_regions(heap, bytes);
    uint32_t first = ga_sized_run_claim(growing->arrays, tile, regions, 1u, 0);
    return first == GA_SIZED_NONE ? NULL : ga_sized_run_pointer(heap, first);
#else
    (void)tile;
    return growing->array(growing->context, bytes);
#endif
}

/* ---- what the leader does for all ------------------------------------------------------------- */

/* Both acquire. */
GA_SIMT uint32_t ga_slabhash_ask(ga_tile tile, const uint32_t *word)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes said = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* G2, H2, Y2: acquire. Pairs with G1, H1, Y1. */
        ga_lane_write(&said, own, ga_load_acquire(word));
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    return ga_lanes_get(tile, said, leader);
}

/* What a word of figures was before it went up. */
GA_SIMT uint32_t ga_slabhash_tally(ga_tile tile, uint32_t *word, uint32_t more)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes before = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&before, own, ga_add_relaxed(word, more)); /* relaxed: a figure */
    }
    return ga_lanes_get(tile, before, leader);
}

/* Count what the tile has done: true for the one who completes `all`. */
GA_SIMT bool ga_slabhash_complete(ga_tile tile, uint32_t *word, uint32_t more, uint32_t all)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes last = ga_lanes_all(0);
    ga_tile_sync(tile); /* what any lane did */
    ga_slabhash_nap();
    GA_EACH_LANE(tile, more ? 1u << leader : 0, own)
    {
        /* K, C: acq_rel. Pairs with itself: who counts the last has what the others did. */
        uint32_t before = ga_add_acq_rel(word, more);
        ga_lane_write(&last, own, before + more == all ? 1u : 0u);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, last, leader) != 0;
}

/* ---- stands ----------------------------------------------------------------------------------- */

/* `now` first: what it says is there. */
GA_SIMT void ga_slabhash_stand_read(ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slabhash_stand *stand)
{
    uint32_t now = ga_slabhash_ask(tile, &growing->now);     /* H2. Pairs with H1 */
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    const ga_slabhash_stage *stage = growing->stages + now;
    bool moves = now + 1u < there;
    stand->number = now;
    stand->rows = stage->rows;
    stand->buckets = stage->buckets;
    stand->next_rows = moves ? stage[1].rows : NULL;
    stand->next_buckets = moves ? stage[1].buckets : 0;
    stand->requests = GA_SLABHASH_SELDOM;
}

/* Something that was met says that there is a newer stage than the stand's newest: whoever did it
 * had read so, and what is read here says so at once, or as soon as that comes through. */
GA_SIMT void ga_slabhash_stand_on(ga_slabhash_growing *growing, ga_tile tile,
                                  ga_slabhash_stand *stand)
{
    uint32_t newest = stand->number + (stand->next_rows ? 1u : 0u);
    do {
        ga_slabhash_stand_read(growing, tile, stand);
    } while (stand->number + (stand->next_rows ? 1u : 0u) <= newest);
}

/* From where to where, for a table of which all but the array is said. */
GA_SIMT ga_slabhash_shift ga_slabhash_shift_of(ga_slabhash_view table, ga_slabhash_growing *growing,
                                               const ga_slabhash_stand *stand)
{
    ga_slabhash_shift shift;
    shift.from = table;
    shift.from.rows = stand->rows;
    shift.from.buckets = stand->buckets;
    shift.from.chained = &growing->stages[stand->number].chained;
    shift.to = shift.from;
    shift.to.rows = stand->next_rows;
    shift.to.buckets = stand->next_buckets;
    shift.hash = NULL;
    shift.context = NULL;
    shift.chained = NULL;
    if (stand->next_rows) {
        shift.chained = &growing->stages[stand->number + 1u].chained;
        shift.to.chained = shift.chained;
    }
#ifndef __CUDACC__
    shift.hash = growing->hash;
    shift.context = growing->context;
#endif
    return shift;
}

/* ---- another array ---------------------------------------------------------------------------- */

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
    ga_slabhash_stage *stage = growing->stages + there;
    /* Y2. Pairs with Y1: its array is known. */
    if (there == GA_SLABHASH_STAGES || !ga_slabhash_ask(tile, &stage->ready)) {
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
#if GA_SLABHASH_MUTANT == 25
        ga_store_relaxed(&growing->there, there + 1u);
#else
        ga_store_release(&growing->there, there + 1u); /* G1: release. Pairs with G2 */
#endif
    }
    ga_tile_sync(tile);
    return true;
}

/* How many of 100 places in first slabs are taken by pairs. */
GA_SIMT uint32_t ga_slabhash_fullness(uint32_t kind, ga_slabhash_view table, ga_tile tile)
{
    uint32_t step = table.buckets / GA_SLABHASH_SAMPLE + 1u;
    uint32_t seen = 0, taken = 0;
    for (uint64_t bucket = 0; bucket < table.buckets; bucket += step, seen++) {
        ga_row row = ga_slabhash_look(kind, tile, ga_slabhash_bucket_row(table, (uint32_t)bucket));
        taken += ga_bits_count(ga_slabhash_live(kind, tile, row));
    }
    return taken * 100u / (seen * ga_bits_count(ga_slabhash_places(kind)));
}

/* How many buckets there are to be, of which about two in three places are to be taken. */
GA_SIMT uint32_t ga_slabhash_more(uint32_t buckets, uint32_t chained)
{
    uint64_t slabs = (uint64_t)buckets + chained;
    uint32_t times = 2;
    while (times < GA_SLABHASH_TIMES_MOST && (uint64_t)buckets * times * 2u < slabs * 3u) {
        times *= 2u;
    }
    while (times > 1u && (uint64_t)buckets * times > UINT32_C(1) << 31) {
        times /= 2u;
    }
    return buckets * times;
}

/* The tile has the right to make stage `number`: its array is there to be cleared, or it has none
 * and nobody asks again until there are `later` slabs more. */
GA_SIMT void ga_slabhash_make_stage(ga_slabhash_growing *growing, ga_tile tile, uint32_t number,
                                    uint32_t buckets, uint32_t later)
{
    ga_slabhash_stage *stage = growing->stages + number;
    size_t bytes = (size_t)buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
    void *rows = ga_slabhash_array(growing, tile, bytes);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        if (rows) {
            stage->rows = (uint32_t *)rows;
            stage->buckets = buckets;
            stage->wanted = buckets / 8u;
            ga_store_release(&stage->ready, 1u); /* Y1: release. Pairs with Y2 */
        } else {
            ga_store_relaxed(&stage[-1].wanted, later); /* relaxed: a figure */
            ga_post_add_relaxed(&growing->failed, 1u);  /* relaxed: a figure */
            ga_store_release(&growing->making, number); /* M: release. Pairs with M in consider */
        }
    }
    ga_tile_sync(tile);
}

/* A slab was chained behind the stand's stage, the newest there is: if there are too many, and its
 * places are full, another is made. */
GA_SIMT void ga_slabhash_consider(uint32_t kind, ga_slabhash_shift shift,
                                  ga_slabhash_growing *growing, ga_tile tile,
                                  const ga_slabhash_stand *stand)
{
    ga_slabhash_stage *stage = growing->stages + stand->number;
    uint32_t leader = ga_tile_leader(tile);
    uint32_t chained = ga_slabhash_tally(tile, &stage->chained, 1u) + 1u;
    uint32_t number = stand->number + 1u;
    uint32_t later = chained + chained / 4u + 1u;
    ga_lanes ours = ga_lanes_all(0);
    if (number == GA_SLABHASH_STAGES || chained <= ga_slabhash_ask(tile, &stage->wanted) ||
        ga_slabhash_ask(tile, &growing->making) != number) {
        return;
    }
    uint32_t buckets = ga_slabhash_more(stand->buckets, chained);
    bool helps = buckets > stand->buckets &&
                 ga_slabhash_fullness(kind, shift.from, tile) > GA_SLABHASH_GROWS_AT;
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (!helps) {
            ga_store_relaxed(&stage->wanted, later); /* relaxed: a figure */
        } else {
            /* M: acquire. Pairs with M: what who has tried before wrote. No stage was made since
             * the stand's, which is `now`: all its buckets are OPEN. */
            uint32_t before = ga_cas_acquire(&growing->making, number, number + 1u);
            ga_lane_write(&ours, own, before == number ? 1u : 0u);
        }
    }
    ga_tile_sync(tile);
    if (ga_lanes_get(tile, ours, leader)) {
        ga_slabhash_make_stage(growing, tile, number, buckets, later);
    }
}

/* ---- moving on -------------------------------------------------------------------------------- */

/* So many buckets of the newer stage were opened: with the last of them it is `now`. */
GA_SIMT void ga_slabhash_note_opened(ga_slabhash_growing *growing, ga_tile tile,
                                     const ga_slabhash_stand *stand, uint32_t opened)
{
    ga_slabhash_stage *next = growing->stages + stand->number + 1u;
    bool last = ga_slabhash_complete(tile, &next->opened, opened, stand->next_buckets);
    if (!last && !(GA_SLABHASH_MUTANT == 23 && opened)) {
        return;
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* H1: release. Pairs with H2. Nobody else does this: one counts the last bucket. */
        ga_store_release(&growing->now, stand->number + 1u);
    }
    ga_tile_sync(tile);
}

/* Open buckets of the newer stage from `first` on: how many were. */
GA_SIMT uint32_t ga_slabhash_open_from(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       ga_slab_claimed *claimed, uint64_t first, uint32_t count)
{
    uint32_t opened = 0;
    for (uint32_t i = 0; i < count && first + i < shift.to.buckets; i++) {
        uint32_t opening =
            ga_slabhash_shift_bucket(kind, shift, tile, claimed, (uint32_t)first + i);
        opened += opening == GA_SLABHASH_OPENED ? 1u : 0u;
    }
    return opened;
}

/* Open the buckets of a run that nobody has been given yet; once all have, of one in eight calls
 * each: there may be some for which there was no slab. */
GA_SIMT uint32_t ga_slabhash_open_some(uint32_t kind, ga_slabhash_shift shift,
                                       ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slab_claimed *claimed, const ga_slabhash_stand *stand)
{
    uint64_t runs = ((uint64_t)shift.to.buckets + GA_SLABHASH_RUN - 1u) / GA_SLABHASH_RUN;
    uint64_t run = ga_slabhash_reserve(tile, &growing->stages[stand->number + 1u].cursor, 1u);
    if (run >= runs) {
        run -= runs;
        if (run % 8u) {
            return 0;
        }
        run = run / 8u % runs;
    }
    return ga_slabhash_open_from(kind, shift, tile, claimed, run * GA_SLABHASH_RUN,
                                 GA_SLABHASH_RUN);
}

/* Look at the record again, and do a part of what is to be done. */
GA_SIMT void ga_slabhash_look_up(ga_slabhash_growing *growing, ga_tile tile,
                                 ga_slabhash_stand *stand)
{
    if (!stand->next_rows) {
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_stand_read(growing, tile, stand);
}

/* After each operation that is no search: what the tile has opened and chained is counted, and a
 * part of what is to be done is. */
GA_SIMT void ga_slabhash_tend_standing(uint32_t kind, ga_slabhash_shift shift,
                                       ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slab_claimed *claimed, ga_slabhash_stand *stand,
                                       bool opened, bool chained)
{
    if (stand->next_rows) {
        uint32_t some = ga_slabhash_open_some(kind, shift, growing, tile, claimed, stand);
        if (chained) {
            (void)ga_slabhash_tally(tile, shift.chained, 1u);
        }
        ga_slabhash_note_opened(growing, tile, stand, some + (opened ? 1u : 0u));
        if (!some) {
            ga_slabhash_stand_read(growing, tile, stand);
        }
    } else if (chained) {
        ga_slabhash_consider(kind, shift, growing, tile, stand);
        ga_slabhash_look_up(growing, tile, stand);
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
    return ga_slabhash_is_stale(shift, table, moved) ? ga_slabhash_say(GA_SLABHASH_MOVES, 0)
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

/* One operation of any kind, with everything checked. `table` says all but which array. */
GA_SIMT ga_slabhash_answer ga_slabhash_do_standing(uint32_t kind, ga_slabhash_view table,
                                                   ga_slabhash_growing *growing, ga_tile tile,
                                                   ga_slab_claimed *claimed,
                                                   ga_slabhash_stand *stand, uint64_t hash,
                                                   ga_slabhash_change_to to)
{
    ga_slabhash_answer answer;
    if (!ga_slabhash_has(kind, to.op) || !ga_slabhash_allowed(kind, to.op, to.key, to.value)) {
        return ga_slabhash_say(GA_SLABHASH_REFUSED, 0);
    }
    if (!--stand->requests) {
        ga_slabhash_look_up(growing, tile, stand);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        ga_slab_claimed before = *claimed;
        bool opened = false;
        if (to.op == GA_SLABHASH_SEARCH) {
            answer = ga_slabhash_seek_standing(kind, shift, tile, hash, to.key);
        } else {
            answer = ga_slabhash_change_growing(kind, shift, tile, claimed, hash, to, &opened);
        }
        if (answer.result == GA_SLABHASH_MOVES) {
            ga_slabhash_note_opened(growing, tile, stand, opened ? 1u : 0u);
            ga_slabhash_stand_on(growing, tile, stand);
            continue;
        }
        if (to.op != GA_SLABHASH_SEARCH) {
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
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        bool opened = false;
        uint32_t result =
            ga_slabhash_remove_growing(kind, shift, tile, claimed, hash, key, count, &opened);
        if (result != GA_SLABHASH_MOVES) {
            ga_slabhash_tend_standing(kind, shift, growing, tile, claimed, stand, opened, false);
            return result;
        }
        ga_slabhash_note_opened(growing, tile, stand, opened ? 1u : 0u);
        ga_slabhash_stand_on(growing, tile, stand);
    }
}

#endif
