/* SPDX-License-Identifier: MIT
 *
 * Epochs of tiles: they say when no tile can be using an object any more that was taken out of a
 * structure while kernels run. Epochs do for tiles what hazard pointers do for host threads
 * (gpualloc/reclaim.h): a kernel has tens of thousands of tiles that come and go, which is too many
 * for a slot each, but none of them stops forever, because kernels end. Written once, for tiles of
 * GPUs and for host threads as tiles. docs/internals/reclaim.md has the argument,
 * tests/models/epochs.pml a model.
 *
 *     pin = ga_epoch_enter(epochs, tile, number);
 *     ... read the words that lead to objects, use the objects, often ...
 *     if (ga_epoch_is_closed(epochs, tile, pin)) { leave, enter, and read those words again }
 *     ga_epoch_leave(epochs, tile, pin);
 *
 *     if (ga_epochs_claim(epochs, tile)) {
 *         list the objects that were taken out by now; ga_epochs_close(epochs, tile);
 *     }
 *     if (ga_epochs_drained(epochs, tile)) {
 *         free the objects on that list; ga_epochs_reopen(epochs, tile);
 *     }
 *
 * STRUCTURE  There are two sides. Tiles enter one of them at a time. The counts are striped, so
 *            that many tiles can enter at once:
 *
 *              stripe    entered          left            a cache line for each stripe
 *                0     [ side | 17 ]   [ 40 ][ 12 ]       `entered`: the side that tiles enter, and
 *                1     [ side |  9 ]   [ 31 ][ 20 ]       how many have since the last flip;
 *                ...                                      `left`: tiles that left each side, ever;
 *                                                         `expected`: tiles that entered each side
 *                                                         before it was closed, ever
 *
 *            Closing an epoch flips each stripe to the other side and returns how many tiles
 *            entered the old one. The epoch has drained when `left` has reached `expected`.
 *
 * INVARIANT  A tile enters a stripe either before its flip, and is counted among those that are
 *            waited for, or after it, and then sees the writes that came before the close. Nothing
 *            is in between, since one atomic does both. Tiles enter a side again only after it has
 *            drained.
 *
 * ORDER      T1 and T2: writes from before an epoch was closed happen before the accesses of tiles
 *            that entered after it. L1 and L2: the accesses of a tile that has left happen before
 *            those of the tile that has seen the epoch drained. S1 and S2: the writes of the tile
 *            that made the last step happen before those of the tile that makes the next.
 *
 * PROGRESS   Entering and leaving are one atomic each and wait for no tile. No call waits: a tile
 *            that needs to know whether an epoch has drained asks again later. A tile that is
 *            stopped between claim and reopen stops freeing, and nothing else.
 *            An object that was taken out is free for use once all tiles that were in have left or
 *            entered anew. So at any time the objects that wait are at most those taken out between
 *            two such times of the slowest tile, and once as many, which were too late for the
 *            epoch that was being closed.
 */
#ifndef GPUALLOC_RECLAIM_EPOCH_TILE_H
#define GPUALLOC_RECLAIM_EPOCH_TILE_H

#include "../simt/planted.h"
#include "../simt/simt.h"

#ifdef GA_EPOCH_YIELDS /* in stress tests: tiles yield at random between steps */
#include <sched.h>
#endif

enum {
    GA_EPOCH_STRIPES = 32 /* a power of 2 */
};

#define GA_EPOCH_SIDE (UINT64_C(1) << 63) /* of `entered` */

typedef struct ga_epoch_stripe {
    uint64_t entered; /* T */
    uint32_t left[2]; /* L */
    uint32_t padding[28];
} ga_epoch_stripe;

/* All bits 0 is the initial state. */
typedef struct ga_epochs {
    ga_epoch_stripe stripes[GA_EPOCH_STRIPES];
    uint32_t step;        /* S: 4 for each epoch; see below */
    uint32_t expected[2]; /* relaxed: only the tile that closes changes it */
    uint32_t padding[29];
} ga_epochs;

/* The low two bits of `step`: no tile is closing the epoch; one is; the epoch drains; it has
 * drained and one tile is freeing. Bit 2 is the side that the epoch closes. */
enum {
    GA_EPOCH_OPEN = 0,
    GA_EPOCH_CLOSING,
    GA_EPOCH_DRAINING,
    GA_EPOCH_DRAINED
};

GA_SIMT uint32_t ga_epoch_side(uint32_t step)
{
    return step >> 2 & 1u;
}

GA_SIMT void ga_epoch_test_yield(void)
{
#ifdef GA_EPOCH_YIELDS
    static _Thread_local uint32_t state;
    state = state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&state;
    if (state >> 29 == 0) {
        sched_yield();
    }
#endif
}

/* ---- tiles that use the structure ----------------------------------------------------------- */

/* The calling lane enters a stripe. Returns the side. */
GA_SIMT uint32_t ga_epoch_enter_stripe(ga_epoch_stripe *stripe)
{
#if GA_PLANTED(epoch_enter_relaxed)
    return (uint32_t)(ga_add64_relaxed(&stripe->entered, 1u) >> 63);
#elif GA_PLANTED(epoch_enter_not_atomic)
    /* T2 in two steps: pairs with T1 only if no flip comes between them. */
    uint32_t side = (uint32_t)(ga_load64_acquire(&stripe->entered) >> 63);
    ga_epoch_test_yield();
    (void)ga_add64_acquire(&stripe->entered, 1u);
    return side;
#else
    /* T2: acquire. Pairs with T1. */
    return (uint32_t)(ga_add64_acquire(&stripe->entered, 1u) >> 63);
#endif
}

/* The tile enters: objects that it reaches from now on stay until it leaves. Neighbouring tiles
 * pass different numbers, so that they use different stripes. Returns a pin, equal in all lanes. */
GA_SIMT uint32_t ga_epoch_enter(ga_epochs *epochs, ga_tile tile, uint32_t number)
{
    uint32_t leader = ga_tile_leader(tile), stripe = number % GA_EPOCH_STRIPES;
    ga_lanes pin = ga_lanes_all(0);
    ga_epoch_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&pin, own,
                      stripe << 1 | ga_epoch_enter_stripe(epochs->stripes + stripe)); /* T2 */
    }
    ga_tile_sync(tile); /* the leader's acquire holds for all lanes */
    return ga_lanes_get(tile, pin, leader);
}

/* The tile leaves. It must not use anything that it has found since it entered. */
GA_SIMT void ga_epoch_leave(ga_epochs *epochs, ga_tile tile, uint32_t pin)
{
    uint32_t side = GA_PLANTED(epoch_left_on_one_side) ? 0 : pin & 1u;
    ga_tile_sync(tile); /* every lane's accesses come before the leader's L1 */
    ga_epoch_test_yield();
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
#if GA_PLANTED(epoch_leave_relaxed)
        ga_post_add_relaxed(epochs->stripes[pin >> 1].left + side, 1u);
#else
        /* L1: release. Pairs with L2. */
        ga_post_add_release(epochs->stripes[pin >> 1].left + side, 1u);
#endif
    }
}

/* True if some tile waits for this one to leave, or soon will: one load. */
GA_SIMT bool ga_epoch_is_closed(const ga_epochs *epochs, ga_tile tile, uint32_t pin)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes side = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: a tile that enters anew acquires (T2) */
        uint64_t entered = ga_load64_relaxed(&epochs->stripes[pin >> 1].entered);
        ga_lane_write(&side, own, (uint32_t)(entered >> 63));
    }
    return ga_lanes_get(tile, side, leader) != (pin & 1u);
}

/* ---- tiles that free ------------------------------------------------------------------------ */

/* One step forward from `seen`. True for the one tile that made it. S2, acquire. */
GA_SIMT bool ga_epochs_try_advance(ga_epochs *epochs, ga_tile tile, uint32_t seen)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes ours = ga_lanes_all(0);
    ga_epoch_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_PLANTED(epoch_step_not_atomic)
        bool is_same_step = ga_load_acquire(&epochs->step) == seen; /* Pairs with S1 */
        ga_epoch_test_yield();
        ga_store_release(&epochs->step, seen + 1u); /* Pairs with S2 */
        ga_lane_write(&ours, own, is_same_step ? 1u : 0u);
#elif GA_PLANTED(epoch_step_relaxed)
        ga_lane_write(&ours, own, ga_cas_relaxed(&epochs->step, seen, seen + 1u) == seen ? 1u : 0u);
#else
        /* S2: acquire. Pairs with S1: the writes of the tile that made the step before. */
        ga_lane_write(&ours, own, ga_cas_acquire(&epochs->step, seen, seen + 1u) == seen ? 1u : 0u);
#endif
    }
    ga_tile_sync(tile); /* the leader's acquire holds for all lanes */
    return ga_lanes_get(tile, ours, leader) != 0;
}

/* One step forward, by the only tile that may make it. S1, release. */
GA_SIMT void ga_epochs_advance(ga_epochs *epochs, ga_tile tile)
{
    ga_tile_sync(tile); /* every lane's writes come before S1 */
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: no other tile changes it now */
        uint32_t step = ga_load_relaxed(&epochs->step) + 1u;
#if GA_PLANTED(epoch_advance_relaxed)
        ga_store_relaxed(&epochs->step, step);
#else
        ga_store_release(&epochs->step, step); /* S1: release. Pairs with S2 */
#endif
    }
    ga_tile_sync(tile);
}

GA_SIMT uint32_t ga_epochs_load_step(const ga_epochs *epochs, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes step = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&step, own, ga_load_relaxed(&epochs->step)); /* relaxed: S2 confirms it */
    }
    return ga_lanes_get(tile, step, leader);
}

/* The right to close the open epoch: for one tile, once the objects of the epoch before have been
 * freed. That tile collects the objects that have been taken out by now, then closes. */
GA_SIMT bool ga_epochs_claim(ga_epochs *epochs, ga_tile tile)
{
    uint32_t step = ga_epochs_load_step(epochs, tile);
    return step % 4u == GA_EPOCH_OPEN && ga_epochs_try_advance(epochs, tile, step); /* S2 */
}

/* Flip the lane's stripes to the other side. Returns how many tiles entered the old side. */
GA_SIMT uint32_t ga_epochs_flip_stripes(ga_epochs *epochs, uint32_t first, uint32_t step,
                                        uint64_t other)
{
    uint32_t entered = 0;
    for (uint32_t i = first; i < GA_EPOCH_STRIPES; i += step) {
        ga_epoch_test_yield();
        if (GA_PLANTED(epoch_last_stripe_not_closed) && i == GA_EPOCH_STRIPES - 1u) {
            continue;
        }
#if GA_PLANTED(epoch_close_relaxed)
        entered += (uint32_t)ga_exchange64_relaxed(&epochs->stripes[i].entered, other);
#else
        /* T1: release. Pairs with T2. Modulo 2^32, as `left` is. */
        entered += (uint32_t)ga_exchange64_release(&epochs->stripes[i].entered, other);
#endif
    }
    return entered;
}

/* Close the epoch, by the tile that has claimed it. Objects that were taken out of the structure
 * before can be freed when the epoch has drained. */
GA_SIMT void ga_epochs_close(ga_epochs *epochs, ga_tile tile)
{
    uint32_t side = ga_epoch_side(ga_epochs_load_step(epochs, tile));
    ga_lanes entered = ga_lanes_all(0);
    ga_tile_sync(tile); /* every lane's writes happen before T2 of tiles that enter later */
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(
            &entered, own,
            ga_epochs_flip_stripes(epochs, own, ga_tile_size(tile), side ? 0 : GA_EPOCH_SIDE));
    }
    uint32_t sum = ga_lanes_sum(tile, entered);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: S1 and S2 order it from one closing tile to the next */
        ga_store_relaxed(epochs->expected + side, ga_load_relaxed(epochs->expected + side) + sum);
    }
    ga_epochs_advance(epochs, tile); /* S1 */
}

/* How many tiles have left a side, ever, modulo 2^32. */
GA_SIMT uint32_t ga_epochs_count_left(const ga_epochs *epochs, ga_tile tile, uint32_t side)
{
    ga_lanes left = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t mine = 0;
        for (uint32_t i = own; i < GA_EPOCH_STRIPES; i += ga_tile_size(tile)) {
#if GA_PLANTED(epoch_drain_check_relaxed)
            mine += ga_load_relaxed(epochs->stripes[i].left + side);
#else
            /* L2: acquire. Pairs with L1. The sum reaches `expected` only once every tile that
             * entered has left. */
            mine += ga_load_acquire(epochs->stripes[i].left + side);
#endif
        }
        ga_lane_write(&left, own, mine);
    }
    ga_tile_sync(tile); /* each lane's acquire holds for all lanes */
    return ga_lanes_sum(tile, left);
}

/* True for one tile if the closed epoch has drained. That tile frees the objects that waited for
 * it, and reopens. */
GA_SIMT bool ga_epochs_drained(ga_epochs *epochs, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile), step = ga_epochs_load_step(epochs, tile);
    uint32_t side = ga_epoch_side(step);
    if (step % 4u != GA_EPOCH_DRAINING) {
        return false;
    }
    ga_lanes expected = ga_lanes_all(0), is_same_step = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* S2: acquire. Pairs with S1: `expected`, if no step was made since. */
        ga_lane_write(&is_same_step, own, ga_load_acquire(&epochs->step) == step ? 1u : 0u);
        ga_lane_write(&expected, own,
                      ga_load_relaxed(epochs->expected + side)); /* relaxed: see S2 */
    }
    if (!ga_lanes_get(tile, is_same_step, leader)) {
        return false;
    }
    uint32_t sum = ga_lanes_get(tile, expected, leader);
    return (ga_epochs_count_left(epochs, tile, side) == sum ||
            GA_PLANTED(epoch_drain_not_awaited)) &&
           /* S2: fails if another tile has made the step; then it may be another epoch. */
           ga_epochs_try_advance(epochs, tile, step);
}

/* The objects that waited for the epoch are freed, or are on a list of the caller's: the next epoch
 * may be closed. */
GA_SIMT void ga_epochs_reopen(ga_epochs *epochs, ga_tile tile)
{
    ga_epochs_advance(epochs, tile); /* S1 */
}

#endif
