/* SPDX-License-Identifier: MIT
 *
 * The arrays of buckets of a table that grows by itself, over tiles and rows: where they stand, who is
 * using them, and when an older one goes back with its slabs, while kernels run. grow_turn_tile.h says
 * when there is another; docs/slabhash.md has the argument, tests/models/epochs.pml a model.
 *
 * STRUCTURE  One record, whose place never changes, and in it a ring of places for stages, an array of
 *            buckets each; a stage's number says which place:
 *
 *              stage     4          5          6          7         8
 *                     [ gone ]  [ older ]  [ moves ]  [ newer ]  [ none ]
 *                                  ^ gone     ^ now       there = 8 ^ = making
 *
 *            `now` is the oldest stage that may have pairs that have not moved yet; those before it,
 *            from `gone` on, are no tile's any more once whoever knew of them has left, and those before
 *            `gone` have been given back. Each tile is in an epoch (reclaim/epoch_tile.h) as long as it
 *            has a stand: what it has read of the record since it entered.
 *            What goes back next is said by `cut`, and in which parts, of 32 buckets, by one word:
 *
 *              back   [ stage + 1 | parts that nobody has taken yet ]
 *
 * INVARIANT  A stage is taken out by the store that makes `now` the next one, and that is after all
 *            buckets of the next are OPEN. `cut` is what `now` was before an epoch was closed; so when that
 *            has drained nobody uses a stage before `cut`: who was in has left, and who came later has read
 *            `cut` or more. A place has another stage only once the one before is gone; so who knows of a
 *            stage finds it there. Who takes a part has it alone, of the stage that he has read there.
 *
 * ORDER      T, L and S of the epochs. B1 and B2: what all did who used the stage, and saw the epoch
 *            drained, happens before its slabs go back. E: all its slabs have, before its array does.
 *            D1 and D2: its place is done with before it has another stage. H1 and H2: see grow_turn_tile.h.
 *
 * PROGRESS   No operation waits for any of this, and nobody waits for an epoch: a tile that looks at the
 *            record, once in so many requests, does one step: it closes an epoch, or sees that one
 *            has drained, or gives back one part.
 *            What waits to go back: stages that the slowest tile may know of, which it does until it
 *            looks next or its turn ends, and those that were taken out since the epoch was closed. Who is
 *            stopped keeps stages from going back, so that the table does not shrink, and one whose
 *            ring of 32 is full does not grow; and nothing else.
 */
#ifndef GPUALLOC_SLABHASH_GROW_GONE_TILE_H
#define GPUALLOC_SLABHASH_GROW_GONE_TILE_H

#include "grow_tile.h"

#include <gpualloc/reclaim/epoch_tile.h>
#ifdef __CUDACC__
#include <gpualloc/slab/sized_kernel.h>
#endif

enum {
    GA_SLABHASH_STAGES = 32,  /* that can be held; a power of 2, and a growth each from 1 bucket to
                                2^31 */
    GA_SLABHASH_BACK = 32,    /* buckets whose chains go back at once */
    GA_SLABHASH_BACK_MOST = 4 /* of them for one lane; tiles are of 8 lanes at least */
};

/* An array of buckets and their chains. */
typedef struct ga_slabhash_stage {
    /* Set before Y1. */
    uint32_t *rows;
    uint32_t buckets;
    uint32_t ready;   /* Y: its number + 1: there is an array, to be cleared */
    uint32_t wanted;  /* relaxed: with so many slabs behind buckets it moves on */
    uint32_t chained; /* relaxed: slabs behind buckets */
    uint32_t stays;   /* relaxed: not 0: there was no array of as many buckets, or of fewer */
    uint32_t parts;   /* relaxed: handed out to be cleared */
    uint32_t cleared; /* K: parts */
    uint32_t opened;  /* C: buckets */
    uint64_t cursor;  /* relaxed: runs of buckets handed out */
} ga_slabhash_stage;

typedef struct ga_slabhash_growing {
    ga_epochs epochs;   /* of those who have stands */
    uint32_t now;       /* H */
    uint32_t there;     /* G: stages, ever */
    uint32_t making;    /* M: stages, with one that is being made */
    uint32_t gone;      /* D: stages that were given back */
    uint32_t failed;    /* relaxed: how often there was no array to be had */
    uint32_t least;     /* buckets: what the table had when a call was alone with it */
    uint32_t shrunk;    /* relaxed: arrays of fewer buckets than the one before, */
    uint32_t compacted; /* relaxed: and of as many */
    uint32_t looked;    /* relaxed: times that somebody looked whether fewer would do */
    uint32_t kind;      /* the table's */
    ga_slab_heap *slabs;
    uint32_t apart[20];
    uint64_t back;  /* B: parts of the stage that goes back */
    uint32_t given; /* E: its parts that have gone */
    uint32_t cut;   /* whose the epochs are: stages before it go back next */
    uint32_t apart_too[28];
#ifdef __CUDACC__
    ga_kernel_heap arrays; /* where they come from; of all sizes */
#else
    void *(*array)(void *context, size_t bytes);
    void (*give)(void *context, void *rows, size_t bytes);
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;          /* for all three */
#endif
    ga_slabhash_stage stages[GA_SLABHASH_STAGES];
} ga_slabhash_growing;

/* Where a stage stands. */
GA_SIMT ga_slabhash_stage *ga_slabhash_stage_of(ga_slabhash_growing *growing, uint32_t number)
{
    return growing->stages + number % GA_SLABHASH_STAGES;
}

GA_SIMT size_t ga_slabhash_array_bytes(uint32_t buckets)
{
    return (size_t)buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
}

/* Memory for an array, by the whole tile; NULL where there is none. */
GA_SIMT void *ga_slabhash_array(ga_slabhash_growing *growing, ga_tile tile, size_t bytes)
{
#ifdef __CUDACC__
    ga_sized_heap *arrays = (ga_sized_heap *)growing->arrays.words[GA_SIZED_WORD_HEAP];
    ga_sized_view heap = ga_sized_view_of(arrays);
    uint32_t regions = ga_sized_run_regions(heap, bytes);
    uint32_t first = ga_sized_run_claim(arrays, tile, regions, 1u, 0);
    return first == GA_SIZED_NONE ? NULL : ga_sized_run_pointer(heap, first);
#else
    (void)tile;
    return growing->array(growing->context, bytes);
#endif
}

/* The array goes back, whoever of a kernel or the host has asked for it. */
GA_SIMT void ga_slabhash_array_back(ga_slabhash_growing *growing, ga_tile tile, void *rows,
                                    size_t bytes)
{
    ga_tile_sync(tile); /* what any lane did with it */
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
#ifdef __CUDACC__
        (void)bytes;
        ga_sized_kernel_free(growing->arrays, rows);
#else
        growing->give(growing->context, rows, bytes);
#endif
    }
    ga_tile_sync(tile);
}

/* ---- what the leader does for all ------------------------------------------------------------- */

/* Both acquire. */
GA_SIMT uint32_t ga_slabhash_ask(ga_tile tile, const uint32_t *word)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes said = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* G2, H2, Y2, D2: acquire. Pairs with G1, H1, Y1, D1. */
        ga_lane_write(&said, own, ga_load_acquire(word));
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    return ga_lanes_get(tile, said, leader);
}

/* What two words say, by the way. */
GA_SIMT bool ga_slabhash_differ(ga_tile tile, const uint32_t *one, const uint32_t *other)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes differ = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: a guess, which whoever acts on it confirms */
        ga_lane_write(&differ, own, ga_load_relaxed(one) ^ ga_load_relaxed(other));
    }
    return ga_lanes_get(tile, differ, leader) != 0;
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
        /* K, C, E: acq_rel. Pairs with itself: who counts the last has what the others did. */
        uint32_t before = ga_add_acq_rel(word, more);
        ga_lane_write(&last, own, before + more == all ? 1u : 0u);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, last, leader) != 0;
}

/* ---- giving back ------------------------------------------------------------------------------ */

GA_SIMT uint32_t ga_slabhash_back_parts(const ga_slabhash_stage *stage)
{
    return (stage->buckets + GA_SLABHASH_BACK - 1u) / GA_SLABHASH_BACK;
}

/* Whether a stage may have the number: the place is free. */
GA_SIMT bool ga_slabhash_has_place(ga_slabhash_growing *growing, ga_tile tile, uint32_t number)
{
    /* D2. Pairs with D1: whoever used the place has done. */
    return number - ga_slabhash_ask(tile, &growing->gone) < GA_SLABHASH_STAGES ||
           GA_SLABHASH_MUTANT == 37;
}

/* Close an epoch, of those who may know of stages that are not the table's any more. */
GA_SIMT bool ga_slabhash_close_epoch(ga_slabhash_growing *growing, ga_tile tile)
{
    if (!ga_epochs_claim(&growing->epochs, tile)) { /* S2 */
        return false;
    }
    uint32_t now = ga_slabhash_ask(tile, &growing->now); /* H2. Pairs with H1 */
    if (GA_SLABHASH_MUTANT == 34) {
        now += now + 1u < ga_slabhash_ask(tile, &growing->there) ? 1u : 0u; /* G2. Pairs with G1 */
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_relaxed(&growing->cut, now); /* relaxed: S1 and S2 hand it on */
    }
    ga_slabhash_nap();
    ga_epochs_close(&growing->epochs, tile); /* T1: what is before `cut` was taken out before */
    return true;
}

/* The next stage before `cut` may go back, in parts; or none is left. By who alone can. */
GA_SIMT void ga_slabhash_next_back(ga_slabhash_growing *growing, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes left = ga_lanes_all(0);
    uint32_t now = 0;
    if (GA_SLABHASH_MUTANT == 30) {
        now = ga_slabhash_ask(tile, &growing->now); /* H2. Pairs with H1 */
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed, all: S1 and S2 have handed them on, or the parts' E; and B1 does */
        uint32_t gone = ga_load_relaxed(&growing->gone);
        uint32_t cut = GA_SLABHASH_MUTANT == 30 ? now : ga_load_relaxed(&growing->cut);
        if (gone != cut) {
            const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, gone);
            uint64_t back = (uint64_t)(gone + 1u) << 32 | ga_slabhash_back_parts(stage);
            ga_store_relaxed(&growing->given, 0);
            if (GA_SLABHASH_MUTANT == 31) {
                ga_store64_relaxed(&growing->back, back);
            } else {
                ga_store64_release(&growing->back, back); /* B1: release. Pairs with B2 */
            }
            ga_lane_write(&left, own, 1u);
        }
    }
    ga_tile_sync(tile);
    if (!ga_lanes_get(tile, left, leader)) {
        ga_epochs_reopen(&growing->epochs, tile);
    }
}

/* The calling lane takes a part of what goes back: the word as it was, 0 where there is none. Nobody
 * else has that part, since the word is never the same again. */
GA_SIMT uint64_t ga_slabhash_take_part(ga_slabhash_growing *growing)
{
    uint64_t back = ga_load64_relaxed(&growing->back); /* relaxed: the swap confirms it */
    if (!(uint32_t)back) {
        return 0;
    }
    if (GA_SLABHASH_MUTANT == 33) {
        ga_slabhash_nap();
        (void)ga_load64_acquire(&growing->back); /* Pairs with B1 */
        ga_store64_release(&growing->back, back - 1u);
        return back;
    }
    if (GA_SLABHASH_MUTANT == 31) {
        return ga_cas64_relaxed(&growing->back, back, back - 1u) == back ? back : 0;
    }
    /* B2: acquire. Pairs with B1, through the swaps between: nobody uses the stage. */
    return ga_cas64_acquire(&growing->back, back, back - 1u) == back ? back : 0;
}

/* The slabs behind each lane's bucket, which nobody uses, of the lanes of the mask. */
GA_SIMT void ga_slabhash_chains_back(ga_slab_heap *heap, ga_tile tile, uint32_t lanes,
                                     ga_lanes unit)
{
    if (!lanes) { /* of a heap that has had no slab yet somebody may be making the tables */
        return;
    }
    ga_slab_view slabs = ga_slab_view_of(heap);
    while (lanes) {
        ga_lanes next = ga_lanes_all(GA_SLABHASH_SEALED), more = ga_lanes_all(0);
        GA_EACH_LANE(tile, lanes, own)
        {
            /* relaxed: B2 has acquired it */
            const uint32_t *row = (const uint32_t *)ga_slab_pointer(slabs, ga_lane_read(unit, own));
            uint32_t link = ga_load_relaxed(row + GA_SLABHASH_NEXT);
            ga_lane_write(&next, own, link);
            ga_lane_write(&more, own,
                          link != GA_SLABHASH_NO_SLAB && link != GA_SLABHASH_SEALED ? 1u : 0u);
        }
#ifdef __CUDACC__
        if (heap->growth) {
            ga_slab_weigh(heap, tile, 0u - ga_bits_count(lanes));
        }
#endif
        ga_tile_publish(tile); /* the links were read */
        ga_slab_release_lanes(slabs, tile, lanes, unit);
        unit = next;
        lanes = GA_SLABHASH_MUTANT == 43 ? 0 : ga_lanes_nonzero(tile, more);
    }
}

/* All slabs behind the buckets of a part. */
GA_SIMT void ga_slabhash_part_back(ga_slab_heap *heap, ga_tile tile, const ga_slabhash_stage *stage,
                                   uint32_t part)
{
    uint64_t first = (uint64_t)part * GA_SLABHASH_BACK;
    ga_lanes unit[GA_SLABHASH_BACK_MOST], chained[GA_SLABHASH_BACK_MOST];
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_BACK_MOST; i++) { /* all loads are under way at once */
        unit[i] = chained[i] = ga_lanes_all(0);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t at = own + i * ga_tile_size(tile);
            if (at < GA_SLABHASH_BACK && first + at < stage->buckets) {
                /* relaxed: B2 has acquired it */
                uint32_t link = ga_load_relaxed(stage->rows + (first + at) * GA_SLABHASH_WORDS +
                                                GA_SLABHASH_NEXT);
                ga_lane_write(&unit[i], own, link);
                ga_lane_write(&chained[i], own,
                              link != GA_SLABHASH_NO_SLAB && link != GA_SLABHASH_SEALED ? 1u : 0u);
            }
        }
    }
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_BACK_MOST; i++) {
        ga_slabhash_chains_back(heap, tile, ga_lanes_nonzero(tile, chained[i]), unit[i]);
    }
}

/* All slabs of the stage have gone, and its array goes; then the next. */
GA_SIMT void ga_slabhash_stage_back(ga_slabhash_growing *growing, ga_tile tile, uint32_t number)
{
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, number);
    ga_slabhash_array_back(growing, tile, stage->rows, ga_slabhash_array_bytes(stage->buckets));
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_release(&growing->gone, number + 1u); /* D1: release. Pairs with D2 */
    }
    ga_tile_sync(tile);
    ga_slabhash_next_back(growing, tile);
}

/* Give back a part, if there is one that nobody has taken. */
GA_SIMT bool ga_slabhash_give_part(ga_slab_heap *heap, ga_slabhash_growing *growing, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes number = ga_lanes_all(0), left = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint64_t back = ga_slabhash_take_part(growing); /* B2 */
        ga_lane_write(&number, own, (uint32_t)(back >> 32));
        ga_lane_write(&left, own, (uint32_t)back);
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    uint32_t parts_left = ga_lanes_get(tile, left, leader);
    if (!parts_left) {
        return false;
    }
    uint32_t stage_number = ga_lanes_get(tile, number, leader) - 1u;
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, stage_number);
    ga_slabhash_nap();
    ga_slabhash_part_back(heap, tile, stage, parts_left - 1u);
    uint32_t all = GA_SLABHASH_MUTANT == 38 ? 1u : ga_slabhash_back_parts(stage);
    if (ga_slabhash_complete(tile, &growing->given, 1u, all)) { /* E */
        ga_slabhash_stage_back(growing, tile, stage_number);
    }
    return true;
}

/* One step of giving back what nobody uses any more: false where there is nothing, or it cannot be made
 * now. Inside an epoch or not. `heap`: of slabs. */
GA_SIMT bool ga_slabhash_give_some(ga_slab_heap *heap, ga_slabhash_growing *growing, ga_tile tile)
{
    if (!ga_slabhash_differ(tile, &growing->gone, &growing->now)) {
        return false;
    }
    switch (ga_epochs_load_step(&growing->epochs, tile) % 4u) {
    case GA_EPOCH_OPEN:
        return ga_slabhash_close_epoch(growing, tile);
    case GA_EPOCH_DRAINING:
        if (!ga_epochs_drained(&growing->epochs, tile)) { /* L2, S2 */
            return false;
        }
        ga_slabhash_next_back(growing, tile);
        return true;
    case GA_EPOCH_DRAINED:
        return ga_slabhash_give_part(heap, growing, tile);
    default: /* somebody closes one */
        return false;
    }
}

#endif
