/* SPDX-License-Identifier: MIT
 *
 * The arrays of buckets of a table that grows by itself, over tiles and rows: where they are, which
 * tiles use them, and when an older one is freed with its slabs, while kernels run.
 * resize_tile.h says when there is another; docs/internals/slabhash-growth.md has the argument,
 * tests/models/epochs.pml a model.
 *
 * STRUCTURE  One record, which never moves. It has a ring of entries for versions, each an array of
 *            buckets; a version's number says which entry:
 *
 *              version    4          5          6          7         8
 *                     [ freed ]  [ older ]  [ moves ]  [ newer ]  [ none ]
 *                                  ^ gone     ^ now       there = 8 ^ = making
 *
 *            `now` is the oldest version that may have pairs that have not moved yet. Versions from
 *            `gone` up to `now` are unused once all tiles that knew of them have left. Versions
 *            before `gone` have been freed. Each tile is in an epoch (reclaim/epoch_tile.h) while
 *            it has a snapshot: its copy of the record since it entered. `cut` says which versions
 *            are freed next. A version is freed in parts of 32 buckets, which one word hands out:
 *
 *              back   [ version + 1 | parts that no tile has claimed yet ]
 *
 * INVARIANT  The store that makes the next version `now` takes a version out of use; it comes after
 *            all buckets of the next are OPEN. `cut` is the value of `now` from before an epoch was
 *            closed. So once that epoch has drained, no tile uses a version before `cut`: tiles
 *            that were in have left, and tiles that entered later have read `cut` or more. An entry
 *            gets another version only once the one before is freed, so a tile that knows of a
 *            version finds it there. A tile that claims a part has it alone, and it belongs to the
 *            version that the tile read in that word.
 *
 * ORDER      T, L and S of the epochs. B1 and B2: the accesses of all tiles that used the version,
 *            and of the one that saw the epoch drained, happen before its slabs are freed. E: all
 *            slabs are freed before the array is. D1 and D2: an entry's old version is done with
 *            before the entry has another. H1 and H2: see resize_tile.h.
 *
 * PROGRESS   No operation waits for any of this, and no tile waits for an epoch. A tile that checks
 *            the record, 1 request in 16, does one step: it closes an epoch, or sees that one has
 *            drained, or frees one part.
 *            Versions that wait to be freed are those that the slowest tile may know of, until it
 *            next reads the record or ends its session, and those that were taken out of use since
 *            the epoch was closed. A tile that is stopped keeps versions from being freed. Then the
 *            table does not shrink, and it does not grow once its ring of 32 is full; nothing else
 *            is held up.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_ARRAYS_TILE_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_ARRAYS_TILE_H

#include "../table/grow_tile.h"
#include "array_memory.h"

#include <gpualloc/detail/reclaim/epoch_tile.h>

enum {
    GA_SLABHASH_VERSIONS = 32, /* entries in the ring; a power of 2, and one growth each from 1
                                * bucket to 2^31 */
    GA_SLABHASH_BACK = 32,     /* buckets whose chains are freed at once */
    GA_SLABHASH_BACK_MAX = 4   /* of them for one lane; tiles have 8 lanes at least */
};

/* A version: an array of buckets and their chains. */
typedef struct ga_slabhash_version {
    /* Set before Y1. */
    uint32_t *rows;
    uint32_t buckets;
    uint32_t ready;   /* Y: its number + 1: the array exists and can be cleared */
    uint32_t wanted;  /* relaxed: with that many slabs behind buckets it moves */
    uint32_t chained; /* relaxed: slabs behind buckets */
    uint32_t stays;   /* relaxed: not 0: no memory for an array that is not larger */
    uint32_t parts;   /* relaxed: handed out to be cleared */
    uint32_t cleared; /* K: parts */
    uint32_t opened;  /* C: buckets */
    uint64_t cursor;  /* relaxed: runs of buckets handed out */
} ga_slabhash_version;

typedef struct ga_slabhash_growing {
    ga_epochs epochs;   /* of the tiles that have snapshots */
    uint32_t now;       /* H */
    uint32_t there;     /* G: versions, ever */
    uint32_t making;    /* M: versions, including one that is being made */
    uint32_t gone;      /* D: versions that were freed */
    uint32_t failed;    /* relaxed: requests for an array that found no memory */
    uint32_t least;     /* buckets that the table had when a call last had exclusive access */
    uint32_t shrunk;    /* relaxed: arrays of fewer buckets than the one before, */
    uint32_t compacted; /* relaxed: and of equally many */
    uint32_t looked;    /* relaxed: checks whether fewer buckets would do */
    uint32_t kind;      /* of the table */
    ga_slab_heap *slabs;
    uint32_t padding[20];
    uint64_t back;  /* B: parts of the version that is being freed */
    uint32_t given; /* E: its parts that have been freed */
    uint32_t cut;   /* guarded by the epochs: versions before it are freed next */
    uint32_t more_padding[28];
    ga_slabhash_array_memory memory;
    ga_slabhash_version versions[GA_SLABHASH_VERSIONS];
} ga_slabhash_growing;

/* The entry of a version. */
GA_SIMT ga_slabhash_version *ga_slabhash_version_of(ga_slabhash_growing *growing, uint32_t number)
{
    return growing->versions + number % GA_SLABHASH_VERSIONS;
}

GA_SIMT size_t ga_slabhash_array_bytes(uint32_t buckets)
{
    return (size_t)buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
}

/* Free an array, which a kernel or the host has allocated. */
GA_SIMT void ga_slabhash_array_back(ga_slabhash_growing *growing, ga_tile tile, void *rows,
                                    size_t bytes)
{
    ga_tile_sync(tile); /* every lane's accesses come before */
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slabhash_array_free(&growing->memory, rows, bytes);
    }
    ga_tile_sync(tile);
}

/* ---- steps of the leader for all lanes ------------------------------------------------------- */

/* Load a word by the leader, for all lanes. Acquires. */
GA_SIMT uint32_t ga_slabhash_ask(ga_tile tile, const uint32_t *word)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes said = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* G2, H2, Y2, D2: acquire. Pairs with G1, H1, Y1, D1. */
        ga_lane_write(&said, own, ga_load_acquire(word));
    }
    ga_tile_sync(tile); /* the leader's acquire holds for all lanes */
    return ga_lanes_get(tile, said, leader);
}

/* True if two words differ. A hint. */
GA_SIMT bool ga_slabhash_differ(ga_tile tile, const uint32_t *one, const uint32_t *other)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes differ = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: a guess, which the tile that acts on it confirms */
        ga_lane_write(&differ, own, ga_load_relaxed(one) ^ ga_load_relaxed(other));
    }
    return ga_lanes_get(tile, differ, leader) != 0;
}

/* Add to a count. Returns its old value. */
GA_SIMT uint32_t ga_slabhash_tally(ga_tile tile, uint32_t *word, uint32_t more)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes before = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&before, own, ga_add_relaxed(word, more)); /* relaxed: a count */
    }
    return ga_lanes_get(tile, before, leader);
}

/* Count the tile's work. True for the tile that completes `all`. */
GA_SIMT bool ga_slabhash_complete(ga_tile tile, uint32_t *word, uint32_t more, uint32_t all)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes last = ga_lanes_all(0);
    ga_tile_sync(tile); /* every lane's work comes before */
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, more ? 1u << leader : 0, own)
    {
        /* K, C, E: acq_rel. Pairs with itself: the tile that counts the last has the work of all
         * others. */
        uint32_t before = ga_add_acq_rel(word, more);
        ga_lane_write(&last, own, before + more == all ? 1u : 0u);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, last, leader) != 0;
}

/* ---- freeing --------------------------------------------------------------------------------- */

GA_SIMT uint32_t ga_slabhash_back_parts(const ga_slabhash_version *version)
{
    return (version->buckets + GA_SLABHASH_BACK - 1u) / GA_SLABHASH_BACK;
}

/* True if the entry of version `number` is free. */
GA_SIMT bool ga_slabhash_has_entry(ga_slabhash_growing *growing, ga_tile tile, uint32_t number)
{
    /* D2. Pairs with D1: no tile uses the entry's old version. */
    return number - ga_slabhash_ask(tile, &growing->gone) < GA_SLABHASH_VERSIONS ||
           GA_PLANTED(slabhash_entry_reused_early);
}

/* Close an epoch, of the tiles that may know of versions that are out of use. */
GA_SIMT bool ga_slabhash_close_epoch(ga_slabhash_growing *growing, ga_tile tile)
{
    if (!ga_epochs_claim(&growing->epochs, tile)) { /* S2 */
        return false;
    }
    uint32_t now = ga_slabhash_ask(tile, &growing->now); /* H2. Pairs with H1 */
    if (GA_PLANTED(slabhash_freed_before_migrated)) {
        now += now + 1u < ga_slabhash_ask(tile, &growing->there) ? 1u : 0u; /* G2. Pairs with G1 */
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_relaxed(&growing->cut, now); /* relaxed: S1 and S2 order it */
    }
    ga_slabhash_test_yield();
    ga_epochs_close(&growing->epochs, tile); /* T1: versions before `cut` were out of use before */
    return true;
}

/* Let the next version before `cut` be freed, in parts; if none is left, reopen the epochs. By the
 * only tile that may. */
GA_SIMT void ga_slabhash_next_back(ga_slabhash_growing *growing, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes left = ga_lanes_all(0);
    uint32_t now = 0;
    if (GA_PLANTED(slabhash_unlinked_while_draining)) { /* is freed with that epoch */
        now = ga_slabhash_ask(tile, &growing->now);     /* H2. Pairs with H1 */
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed, all: S1 and S2 order them, or E of the parts; and B1 does */
        uint32_t gone = ga_load_relaxed(&growing->gone);
        uint32_t cut =
            GA_PLANTED(slabhash_unlinked_while_draining) ? now : ga_load_relaxed(&growing->cut);
        if (gone != cut) {
            const ga_slabhash_version *version = ga_slabhash_version_of(growing, gone);
            uint64_t back = (uint64_t)(gone + 1u) << 32 | ga_slabhash_back_parts(version);
            ga_store_relaxed(&growing->given, 0);
            if (GA_PLANTED(slabhash_freed_array_relaxed)) {
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

/* The calling lane claims a part of the version that is being freed. Returns the word as it was; 0
 * if there is no part. No other lane gets that part, since the word never has one value twice. */
GA_SIMT uint64_t ga_slabhash_take_part(ga_slabhash_growing *growing)
{
    uint64_t back = ga_load64_relaxed(&growing->back); /* relaxed: the swap confirms it */
    if (!(uint32_t)back) {
        return 0;
    }
    if (GA_PLANTED(slabhash_share_claim_not_atomic)) {
        ga_slabhash_test_yield();
        (void)ga_load64_acquire(&growing->back); /* Pairs with B1 */
        ga_store64_release(&growing->back, back - 1u);
        return back;
    }
    if (GA_PLANTED(slabhash_freed_array_relaxed)) {
        return ga_cas64_relaxed(&growing->back, back, back - 1u) == back ? back : 0;
    }
    /* B2: acquire. Pairs with B1, through the swaps between: no tile uses the version. */
    return ga_cas64_acquire(&growing->back, back, back - 1u) == back ? back : 0;
}

/* Free the slabs behind each lane's bucket, for the lanes of the mask. The buckets are unused. */
GA_SIMT void ga_slabhash_chains_back(ga_slab_heap *heap, ga_tile tile, uint32_t lanes,
                                     ga_lanes unit)
{
    if (!lanes) { /* some tile may still be setting up a heap that has had no slab yet */
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
        ga_tile_publish(tile); /* the links were read before */
        ga_slab_release_lanes(slabs, tile, lanes, unit);
        unit = next;
        lanes = GA_PLANTED(slabhash_only_first_slab_freed) ? 0 : ga_lanes_nonzero(tile, more);
    }
}

/* Free all slabs behind the buckets of a part. */
GA_SIMT void ga_slabhash_part_back(ga_slab_heap *heap, ga_tile tile,
                                   const ga_slabhash_version *version, uint32_t part)
{
    uint64_t first = (uint64_t)part * GA_SLABHASH_BACK;
    ga_lanes unit[GA_SLABHASH_BACK_MAX], chained[GA_SLABHASH_BACK_MAX];
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_BACK_MAX; i++) { /* all loads are in flight at once */
        unit[i] = chained[i] = ga_lanes_all(0);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t at = own + i * ga_tile_size(tile);
            if (at < GA_SLABHASH_BACK && first + at < version->buckets) {
                /* relaxed: B2 has acquired it */
                uint32_t link = ga_load_relaxed(version->rows + (first + at) * GA_SLABHASH_WORDS +
                                                GA_SLABHASH_NEXT);
                ga_lane_write(&unit[i], own, link);
                ga_lane_write(&chained[i], own,
                              link != GA_SLABHASH_NO_SLAB && link != GA_SLABHASH_SEALED ? 1u : 0u);
            }
        }
    }
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_BACK_MAX; i++) {
        ga_slabhash_chains_back(heap, tile, ga_lanes_nonzero(tile, chained[i]), unit[i]);
    }
}

/* All slabs of the version are freed: free its array, then go to the next version. */
GA_SIMT void ga_slabhash_free_version(ga_slabhash_growing *growing, ga_tile tile, uint32_t number)
{
    const ga_slabhash_version *version = ga_slabhash_version_of(growing, number);
    ga_slabhash_array_back(growing, tile, version->rows, ga_slabhash_array_bytes(version->buckets));
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_store_release(&growing->gone, number + 1u); /* D1: release. Pairs with D2 */
    }
    ga_tile_sync(tile);
    ga_slabhash_next_back(growing, tile);
}

/* Free a part, if there is one that no tile has claimed. False: there is none. */
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
    ga_tile_sync(tile); /* the leader's acquire holds for all lanes */
    uint32_t parts_left = ga_lanes_get(tile, left, leader);
    if (!parts_left) {
        return false;
    }
    uint32_t version_number = ga_lanes_get(tile, number, leader) - 1u;
    const ga_slabhash_version *version = ga_slabhash_version_of(growing, version_number);
    ga_slabhash_test_yield();
    ga_slabhash_part_back(heap, tile, version, parts_left - 1u);
    uint32_t all =
        GA_PLANTED(slabhash_freed_after_first_share) ? 1u : ga_slabhash_back_parts(version);
    if (ga_slabhash_complete(tile, &growing->given, 1u, all)) { /* E */
        ga_slabhash_free_version(growing, tile, version_number);
    }
    return true;
}

/* One step of freeing unused versions. False if there is nothing to free, or the step cannot be
 * made now. Inside an epoch or outside. `heap`: of slabs. A tile may close an epoch after others
 * have freed the last unused version; such an epoch drains and opens as any other. */
GA_SIMT bool ga_slabhash_give_some(ga_slab_heap *heap, ga_slabhash_growing *growing, ga_tile tile)
{
    bool has_unused = ga_slabhash_differ(tile, &growing->gone, &growing->now);
    switch (ga_epochs_load_step(&growing->epochs, tile) % 4u) {
    case GA_EPOCH_OPEN:
        return has_unused && ga_slabhash_close_epoch(growing, tile);
    case GA_EPOCH_DRAINING:
        if (!ga_epochs_drained(&growing->epochs, tile)) { /* L2, S2 */
            return false;
        }
        ga_slabhash_next_back(growing, tile);
        return true;
    case GA_EPOCH_DRAINED:
        return ga_slabhash_give_part(heap, growing, tile);
    default: /* another tile is closing one */
        return false;
    }
}

#endif
