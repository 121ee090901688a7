/* SPDX-License-Identifier: MIT
 *
 * Tables that grow by themselves, over tiles and rows: those who put pairs in make the next array
 * of buckets, clear it and move the pairs (grow_tile.h), and nobody else is there to help. For
 * kernels, while they run; docs/slabhash.md has the argument.
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
 */
#ifndef GPUALLOC_SLABHASH_GROW_TURN_TILE_H
#define GPUALLOC_SLABHASH_GROW_TURN_TILE_H

#include "grow_gone_tile.h"
#include "near_tile.h"

#define GA_SLABHASH_NO_GROUP UINT32_MAX

enum {
    GA_SLABHASH_RUN = 8,       /* groups of buckets that an operation opens */
    GA_SLABHASH_GROUP = 16,    /* the most buckets that one bucket's pairs are brought to at once */
    GA_SLABHASH_PART = 64,     /* buckets that are cleared at once */
    GA_SLABHASH_SAMPLE = 32,   /* buckets that are looked at to see how full a table is */
    GA_SLABHASH_GROWS_AT = 35, /* of 100 places of these: else more buckets are no help */
    GA_SLABHASH_WANTS = 32,    /* one in so many buckets has a slab: then they are asked for */
    GA_SLABHASH_TIMES_MOST = 16, /* as many buckets at once */
    GA_SLABHASH_SMALL = 1 << 19, /* up to so many buckets become four times as many at least */
    GA_SLABHASH_SELDOM = 16,     /* requests between two looks at the record, */
    GA_SLABHASH_RARELY = 128     /* or calls of whole warps that only search */
};

/* What a tile knows of the record, the same in all its lanes, from ga_slabhash_stand_begin() to
 * _end(): so long it is in an epoch. */
typedef struct ga_slabhash_stand {
    uint32_t *rows, *next_rows; /* of stage `number`, and the next: NULL where there was none */
    uint32_t buckets, next_buckets;
    uint32_t number;
    uint32_t clock; /* requests until it looks again, times 64, and the pin of its epoch */
} ga_slabhash_stand;

#define GA_SLABHASH_REQUEST (2u * GA_EPOCH_STRIPES) /* of `clock`: pins are less */

/* ---- stands ----------------------------------------------------------------------------------- */

GA_SIMT uint32_t ga_slabhash_stand_pin(const ga_slabhash_stand *stand)
{
    return stand->clock % GA_SLABHASH_REQUEST;
}

/* It looks again after so many requests, */
GA_SIMT void ga_slabhash_stand_waits(ga_slabhash_stand *stand, uint32_t requests)
{
    stand->clock = requests * GA_SLABHASH_REQUEST | ga_slabhash_stand_pin(stand);
}

/* with the next one, */
GA_SIMT bool ga_slabhash_stand_is_due(const ga_slabhash_stand *stand)
{
    return stand->clock < 2u * GA_SLABHASH_REQUEST;
}

/* with this one: there is another. */
GA_SIMT bool ga_slabhash_stand_counts(ga_slabhash_stand *stand)
{
    stand->clock -= GA_SLABHASH_REQUEST;
    return stand->clock < GA_SLABHASH_REQUEST;
}

/* `now` first: what it says is there. Behind T2. */
GA_SIMT void ga_slabhash_stand_take(ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slabhash_stand *stand)
{
    uint32_t now = ga_slabhash_ask(tile, &growing->now);     /* H2. Pairs with H1 */
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, now);
    const ga_slabhash_stage *next = ga_slabhash_stage_of(growing, now + 1u);
    bool moves = now + 1u < there;
    stand->number = now;
    stand->rows = stage->rows;
    stand->buckets = stage->buckets;
    stand->next_rows = moves ? next->rows : NULL;
    stand->next_buckets = moves ? next->buckets : 0;
    ga_slabhash_stand_waits(stand, GA_SLABHASH_SELDOM);
}

/* The tile enters an epoch, and reads the record. Neighbours have different numbers. */
GA_SIMT void ga_slabhash_stand_begin(ga_slabhash_growing *growing, ga_tile tile,
                                     ga_slabhash_stand *stand, uint32_t number)
{
#if GA_SLABHASH_MUTANT == 29
    stand->clock = number * 0u;
#else
    stand->clock = ga_epoch_enter(&growing->epochs, tile, number); /* T2 */
#endif
    ga_slabhash_nap();
    ga_slabhash_stand_take(growing, tile, stand);
}

/* It leaves, and uses no array any more. */
GA_SIMT void ga_slabhash_stand_end(ga_slabhash_growing *growing, ga_tile tile,
                                   const ga_slabhash_stand *stand)
{
    if (GA_SLABHASH_MUTANT != 29 && GA_SLABHASH_MUTANT != 39) {
        ga_epoch_leave(&growing->epochs, tile, ga_slabhash_stand_pin(stand)); /* L1 */
    }
}

/* It reads the record anew, and where somebody waits for that enters another epoch before: what it
 * had from the stand until now it does not use any more. */
GA_SIMT void ga_slabhash_stand_read(ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slabhash_stand *stand)
{
    uint32_t pin = ga_slabhash_stand_pin(stand);
    if (GA_SLABHASH_MUTANT != 29 && ga_epoch_is_over(&growing->epochs, tile, pin)) {
        uint32_t number = pin >> 1; /* its stripe */
#if GA_SLABHASH_MUTANT == 32
        ga_slabhash_stand_take(growing, tile, stand);
        ga_epoch_leave(&growing->epochs, tile, pin);
        for (uint32_t i = 0; i < 256; i++) {
            ga_slabhash_nap();
        }
        stand->clock = ga_epoch_enter(&growing->epochs, tile, number);
        ga_slabhash_stand_waits(stand, GA_SLABHASH_SELDOM);
        return;
#endif
        ga_epoch_leave(&growing->epochs, tile, pin);                   /* L1 */
        stand->clock = ga_epoch_enter(&growing->epochs, tile, number); /* T2 */
    }
    ga_slabhash_nap();
    ga_slabhash_stand_take(growing, tile, stand);
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
    shift.from.chained = &ga_slabhash_stage_of(growing, stand->number)->chained;
    shift.to = shift.from;
    shift.to.rows = stand->next_rows;
    shift.to.buckets = stand->next_buckets;
    shift.hash = NULL;
    shift.context = NULL;
    shift.chained = NULL;
    if (stand->next_rows) {
        shift.chained = &ga_slabhash_stage_of(growing, stand->number + 1u)->chained;
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
#if GA_SLABHASH_MUTANT == 25
        ga_store_relaxed(&growing->there, there + 1u);
#else
        ga_store_release(&growing->there, there + 1u);             /* G1: release. Pairs with G2 */
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
    uint32_t times = buckets <= GA_SLABHASH_SMALL / 4u ? 4u : 2u;
    while (times < GA_SLABHASH_TIMES_MOST && (uint64_t)buckets * times * 2u < slabs * 3u) {
        times *= 2u;
    }
    while (times > 1u && (uint64_t)buckets * times > UINT32_C(1) << 31) {
        times /= 2u;
    }
    return buckets * times;
}

/* The tile has the right to make stage `number`, which has a place: its array is there to be cleared,
 * or it has none and nobody asks again until there are `later` slabs more. */
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
            stage->chained = stage->parts = stage->cleared = stage->opened = 0;
            stage->cursor = 0;
            ga_store_release(&stage->ready, number + 1u); /* Y1: release. Pairs with Y2 */
        } else {
            ga_store_relaxed(&before->wanted, later);   /* relaxed: a figure */
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
    ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, stand->number);
    uint32_t leader = ga_tile_leader(tile);
    uint32_t chained = ga_slabhash_tally(tile, &stage->chained, 1u) + 1u;
    uint32_t number = stand->number + 1u;
    uint32_t later = chained + chained / 4u + 1u;
    ga_lanes ours = ga_lanes_all(0);
    if (chained <= ga_slabhash_ask(tile, &stage->wanted) ||
        ga_slabhash_ask(tile, &growing->making) != number ||
        !ga_slabhash_has_place(growing, tile, number)) { /* D2 */
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

/* A group: the buckets of the newer stage that have their pairs from one of the older. */
GA_SIMT uint32_t ga_slabhash_times(ga_slabhash_shift shift)
{
    return shift.to.buckets / shift.from.buckets;
}

/* Whether one of the group is shut: each lane asks for its own. */
GA_SIMT bool ga_slabhash_is_shut(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                 uint32_t first, bool asks)
{
    ga_lanes shut = ga_lanes_all(0);
    ga_tile_sync(tile); /* what was read before was, by whichever lane */
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        for (uint32_t i = own; i < ga_slabhash_times(shift); i += ga_tile_size(tile)) {
            if (!ga_slabhash_own_is_open(kind, ga_slabhash_bucket_row(shift.to, first + i))) {
                ga_lane_write(&shut, own, 1u);
            }
        }
    }
    ga_tile_sync(tile); /* what a lane acquired all have */
    return ga_lanes_nonzero(tile, shut) != 0;
}

/* The sum of what the tile's lanes hold; abreast, too. */
GA_SIMT uint32_t ga_slabhash_sum(ga_tile tile, ga_lanes lanes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < ga_tile_size(tile); i++) {
        sum += ga_lanes_get(tile, lanes, i);
    }
    return sum;
}

/* How many pairs each of a group has been brought, 8 bits each: the same in all lanes. */
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

/* What each lane brings of a slab, and to which of the group. */
typedef struct ga_slabhash_carried {
    ga_lanes key, key_high, value, value_high;
    ga_lanes to;
} ga_slabhash_carried;

/* Each lane's `round`th place: the mask of those that have a pair. */
GA_SIMT uint32_t ga_slabhash_take_up(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                     const uint32_t *row, uint32_t first, uint32_t round, bool asks,
                                     ga_slabhash_carried *load)
{
    ga_lanes live = ga_lanes_all(0);
    GA_EACH_LANE(tile, asks ? ga_tile_lanes(tile) : 0, own)
    {
        uint32_t place = ga_slabhash_place_of(kind, tile, own, round);
        uint64_t key = GA_SLABHASH_EMPTY, value = 0;
        if (place < ga_slabhash_places_end(kind)) {
            ga_slabhash_read_own(kind, row + place, &key, &value);
        }
        if (ga_slabhash_is_live(kind, key, value)) {
            ga_slabhash_seen(kind, row + place);
            key = ga_slabhash_plain_key(kind, key);
            value = ga_slabhash_plain_value(kind, value);
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

/* Bring it: in the order of places, so lower lanes first. False where it is more than one of the
 * group has places for. */
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
        uint32_t place = (ga_slabhash_brought_to(brought, i) + before) * ga_slabhash_width(kind);
        if (place < ga_slabhash_places_end(kind)) {
            ga_slabhash_bring_own(kind, ga_slabhash_bucket_row(shift.to, first + i) + place,
                                  ga_slabhash_wide(load->key, load->key_high, own),
                                  ga_slabhash_wide(load->value, load->value_high, own));
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

/* Bring what stands in a frozen bucket to its group, as ga_slabhash_bring_all() does one by one, each
 * lane its own. False, with some of it done, where a bucket of the group needs a second slab. */
GA_SIMT bool ga_slabhash_bring_group(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                     uint32_t source, bool asks)
{
    uint32_t first = source * ga_slabhash_times(shift), leader = ga_tile_leader(tile);
    uint32_t *row = ga_slabhash_bucket_row(shift.from, source);
    bool fits = ga_slabhash_times(shift) <= GA_SLABHASH_GROUP;
    ga_slabhash_brought brought = {{0}};
    ga_slabhash_carried load;
    load.key = load.key_high = load.value = load.value_high = load.to = ga_lanes_all(0);
    asks = asks && fits;
    while (ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        GA_UNROLL
        for (uint32_t round = 0; round < GA_SLABHASH_SHARE_MOST; round++) {
            if (round < ga_slabhash_share_of(kind, tile)) { /* the same for all */
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
            /* relaxed: frozen; who goes on acquires it */
            ga_lane_write(&link, own, ga_load_relaxed(row + GA_SLABHASH_NEXT));
        }
        asks = ga_slabhash_go_on_to(kind, shift.from, tile, &row, ga_lanes_get(tile, link, leader),
                                    asks);
    }
    return fits;
}

/* The same with as many slabs behind the new buckets as it takes: false where there is none. */
GA_SIMT bool ga_slabhash_bring_slabs(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                     ga_slab_claimed *claimed, uint32_t source)
{
    for (uint32_t i = 0; i < ga_slabhash_times(shift); i++) {
        ga_slabhash_goal goal;
        goal.bucket = source * ga_slabhash_times(shift) + i;
        goal.at = ga_slabhash_walk_chain(shift.to, goal.bucket);
        goal.place = 0;
        if (!ga_slabhash_bring_all(kind, shift, tile, claimed, source, &goal)) {
            return false;
        }
    }
    return true;
}

/* Open the buckets of the group: how many were opened by this. */
GA_SIMT uint32_t ga_slabhash_open_each(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       uint32_t source, bool asks)
{
    uint32_t first = source * ga_slabhash_times(shift);
    ga_lanes opened = ga_lanes_all(0);
    ga_slabhash_nap();
    ga_tile_sync(tile); /* what any lane brought comes before what each opens */
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

/* See to it that the whole group is OPEN, as ga_slabhash_shift_bucket() does for one: how many this
 * call has opened. Where there is no slab they stay shut. Tiles may be abreast. */
GA_SIMT uint32_t ga_slabhash_shift_group(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                         ga_slab_claimed *claimed, uint32_t source, bool asks)
{
    asks = ga_slabhash_is_shut(kind, shift, tile, source * ga_slabhash_times(shift), asks);
    if (!ga_lanes_any(tile, ga_lanes_all(asks ? 1u : 0u))) {
        return 0;
    }
    ga_slabhash_freeze_chain(kind, shift.from, tile, source, asks);
#if GA_SLABHASH_MUTANT == 13
    (void)ga_slabhash_open_each(kind, shift, tile, source, asks);
#endif
    bool fits = ga_slabhash_bring_group(kind, shift, tile, source, asks);
    if (asks && !fits) { /* seldom, and each tile for itself */
        asks =
            ga_slabhash_bring_slabs(kind, shift, ga_tile_of(ga_tile_size(tile)), claimed, source);
    }
    ga_tile_sync(tile); /* abreast again */
    return ga_slabhash_open_each(kind, shift, tile, source, asks);
}

/* Open groups of the newer stage from that of `first` on: how many buckets were. */
GA_SIMT uint32_t ga_slabhash_open_from(uint32_t kind, ga_slabhash_shift shift, ga_tile tile,
                                       ga_slab_claimed *claimed, uint64_t first, uint32_t count)
{
    uint32_t opened = 0;
    for (uint32_t i = 0; i < count && first + i < shift.from.buckets; i++) {
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, (uint32_t)first + i, true);
    }
    return opened;
}

/* The first group of a run that nobody has been given yet; once all have, of one in eight calls each:
 * there may be some for which there was no slab. GA_SLABHASH_NO_GROUP: of none. */
GA_SIMT uint32_t ga_slabhash_next_run(ga_slabhash_shift shift, ga_slabhash_growing *growing,
                                      ga_tile tile, const ga_slabhash_stand *stand, bool asks)
{
    uint64_t runs = ((uint64_t)shift.from.buckets + GA_SLABHASH_RUN - 1u) / GA_SLABHASH_RUN;
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
        bool is = first != GA_SLABHASH_NO_GROUP && first + i < shift.from.buckets;
        opened += ga_slabhash_shift_group(kind, shift, tile, claimed, is ? first + i : 0, is);
    }
    return opened;
}

/* The tile has left: it does a part of what it may have left to others. */
GA_SIMT_SLOW void ga_slabhash_tidy_up(ga_slab_heap *heap, ga_slabhash_growing *growing,
                                      ga_tile tile)
{
    (void)ga_slabhash_give_some(heap, growing, tile);
}

/* Look at the record again, and do a part of what is to be done. A function of its own, by values: so
 * that its registers are not its callers', nor their stands in memory. */
GA_SIMT_SLOW ga_slabhash_stand ga_slabhash_look_anew(ga_slab_heap *heap,
                                                     ga_slabhash_growing *growing, ga_tile tile,
                                                     ga_slabhash_stand stand)
{
    if (!stand.next_rows) {
        (void)ga_slabhash_clear_some(growing, tile);
    }
    ga_slabhash_stand_read(growing, tile, &stand);
    (void)ga_slabhash_give_some(heap, growing, tile);
    return stand;
}

GA_SIMT void ga_slabhash_look_up(ga_slabhash_view table, ga_slabhash_growing *growing, ga_tile tile,
                                 ga_slabhash_stand *stand)
{
    *stand = ga_slabhash_look_anew(table.heap, growing, tile, *stand);
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
        ga_slabhash_consider(kind, shift, growing, tile, stand);
        ga_slabhash_look_up(shift.from, growing, tile, stand);
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
                                                   ga_slabhash_change_to to)
{
    ga_slabhash_answer answer;
    if (!ga_slabhash_has(kind, to.op) || !ga_slabhash_allowed(kind, to.op, to.key, to.value)) {
        return ga_slabhash_say(GA_SLABHASH_REFUSED, 0);
    }
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(table, growing, tile, stand);
    }
    for (;;) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, stand);
        ga_slab_claimed before = *claimed;
        uint32_t opened = 0;
        if (to.op == GA_SLABHASH_SEARCH) {
            answer = ga_slabhash_seek_standing(kind, shift, tile, hash, to.key);
        } else {
            ga_slabhash_view where =
                ga_slabhash_for_change_standing(kind, shift, tile, claimed, hash, &opened);
            answer = where.rows ? ga_slabhash_change_in(kind, where, tile, claimed, hash, to)
                                : ga_slabhash_say(GA_SLABHASH_FULL, 0);
        }
        if (answer.result == GA_SLABHASH_MOVES) {
            ga_slabhash_note_opened(growing, tile, stand, opened);
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
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(table, growing, tile, stand);
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
    if (ga_slabhash_stand_counts(stand)) {
        ga_slabhash_look_up(table, growing, alone, stand);
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
        uint32_t its = ga_slabhash_bucket(shift.to, ga_slabhash_wide(hash, hash_high, own));
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
