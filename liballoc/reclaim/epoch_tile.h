/* SPDX-License-Identifier: MIT
 *
 * Epochs of tiles: when nobody can be using any more what was taken out of a structure, while kernels
 * run. What hazard pointers are to host threads (gpualloc/reclaim.h), for tiles: there are tens of
 * thousands of them, they come and go, and none of them stops for ever, since kernels end. Written
 * once, for tiles of GPUs and threads as tiles; docs/reclaim.md has the argument, tests/models/epochs.pml
 * a model.
 *
 *     pin = ga_epoch_enter(epochs, tile, number);
 *     ... read what leads to objects, use them, often ...
 *     if (ga_epoch_is_over(epochs, tile, pin)) { leave, enter, and read again what leads to them }
 *     ga_epoch_leave(epochs, tile, pin);
 *
 *     if (ga_epochs_claim(epochs, tile)) { note what is taken out by now; ga_epochs_close(epochs, tile); }
 *     if (ga_epochs_drained(epochs, tile)) { free what was noted; ga_epochs_reopen(epochs, tile); }
 *
 * STRUCTURE  Two sides, of which one is entered at a time, and stripes, so that many can enter at once:
 *
 *              stripe    came             left            a line each
 *                0     [ side | 17 ]   [ 40 ][ 12 ]       `came` to the side that is entered, since
 *                1     [ side |  9 ]   [ 31 ][ 20 ]       that is; `left` from each side, ever
 *                ...                                      `away`: came to each side that was closed, ever
 *
 *            To close an epoch is to turn each stripe to the other side, which says how many came to
 *            it. The epoch has drained when as many have left.
 *
 * INVARIANT  Who enters comes to a stripe before it is turned, and is counted among those that are
 *            waited for; or after, and then sees what was done before the epoch was closed. Nobody is
 *            in between, since one atomic does both. A side is entered again only after it has drained.
 *
 * ORDER      T1 and T2: what was done before an epoch was closed happens before what one does who
 *            entered behind it. L1 and L2: what one did who has left happens before what one does who
 *            has seen the epoch drained. S1 and S2: what whoever had the epochs last did.
 *
 * PROGRESS   To enter and to leave is one atomic each, and waits for nobody. No call waits: who wants to
 *            know whether an epoch has drained asks again later. Who was stopped between two of the
 *            steps from claim to reopen stops freeing, and nothing else.
 *            What is taken out is free for use once all who were in have left or entered anew: so there is
 *            never more of it than is taken out between two times that the slowest does so, and as much again,
 *            which was too late for the epoch that was being closed.
 */
#ifndef GPUALLOC_RECLAIM_EPOCH_TILE_H
#define GPUALLOC_RECLAIM_EPOCH_TILE_H

#include "../simt/simt.h"

/* Tests weaken one thing at a time; each must be noticed: -1 none, others give way between steps. */
#ifndef GA_EPOCH_MUTANT
#define GA_EPOCH_MUTANT 0
#endif
#if GA_EPOCH_MUTANT
#include <sched.h>
#endif

enum {
    GA_EPOCH_STRIPES = 32 /* a power of 2 */
};

#define GA_EPOCH_SIDE (UINT64_C(1) << 63) /* of `came` */

typedef struct ga_epoch_stripe {
    uint64_t came;    /* T */
    uint32_t left[2]; /* L */
    uint32_t apart[28];
} ga_epoch_stripe;

/* Begin with all bits 0. */
typedef struct ga_epochs {
    ga_epoch_stripe stripes[GA_EPOCH_STRIPES];
    uint32_t step;    /* S: 4 for each epoch; see below */
    uint32_t away[2]; /* relaxed: changed by who closes alone */
    uint32_t apart[29];
} ga_epochs;

/* What `step` says of the epoch that is its fourth: nobody closes it, somebody does, it drains, and
 * it has drained and somebody frees. The side that it closes is bit 2. */
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

GA_SIMT void ga_epoch_nap(void)
{
#if GA_EPOCH_MUTANT
    static _Thread_local uint32_t state;
    state = state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&state;
    if (state >> 29 == 0) {
        sched_yield();
    }
#endif
}

/* ---- who uses the structure ------------------------------------------------------------------- */

/* The calling lane comes to a stripe: which side is entered there. */
GA_SIMT uint32_t ga_epoch_come(ga_epoch_stripe *stripe)
{
#if GA_EPOCH_MUTANT == 1
    return (uint32_t)(ga_add64_relaxed(&stripe->came, 1u) >> 63);
#elif GA_EPOCH_MUTANT == 5
    uint32_t side = (uint32_t)(ga_load64_acquire(&stripe->came) >> 63);
    ga_epoch_nap();
    (void)ga_add64_acquire(&stripe->came, 1u);
    return side;
#else
    return (uint32_t)(ga_add64_acquire(&stripe->came, 1u) >> 63); /* T2: acquire. Pairs with T1 */
#endif
}

/* The tile enters: what it finds from now on stays until it leaves. Neighbours have different
 * numbers. Answers a pin, the same in all lanes. */
GA_SIMT uint32_t ga_epoch_enter(ga_epochs *epochs, ga_tile tile, uint32_t number)
{
    uint32_t leader = ga_tile_leader(tile), stripe = number % GA_EPOCH_STRIPES;
    ga_lanes pin = ga_lanes_all(0);
    ga_epoch_nap();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&pin, own, stripe << 1 | ga_epoch_come(epochs->stripes + stripe)); /* T2 */
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    return ga_lanes_get(tile, pin, leader);
}

/* The tile leaves, and uses nothing any more that it has found since it entered. */
GA_SIMT void ga_epoch_leave(ga_epochs *epochs, ga_tile tile, uint32_t pin)
{
    uint32_t side = GA_EPOCH_MUTANT == 7 ? 0 : pin & 1u;
    ga_tile_sync(tile); /* what any lane did with it comes before */
    ga_epoch_nap();
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
#if GA_EPOCH_MUTANT == 3
        ga_post_add_relaxed(epochs->stripes[pin >> 1].left + side, 1u);
#else
        /* L1: release. Pairs with L2. */
        ga_post_add_release(epochs->stripes[pin >> 1].left + side, 1u);
#endif
    }
}

/* Whether somebody waits for the tile to leave, or soon will: one load. */
GA_SIMT bool ga_epoch_is_over(const ga_epochs *epochs, ga_tile tile, uint32_t pin)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes side = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* relaxed: who enters anew acquires it */
        uint64_t came = ga_load64_relaxed(&epochs->stripes[pin >> 1].came);
        ga_lane_write(&side, own, (uint32_t)(came >> 63));
    }
    return ga_lanes_get(tile, side, leader) != (pin & 1u);
}

/* ---- who frees --------------------------------------------------------------------------------- */

/* One step on, from `seen`, which only this tile can take then: S2, acquire. */
GA_SIMT bool ga_epochs_step(ga_epochs *epochs, ga_tile tile, uint32_t seen)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes ours = ga_lanes_all(0);
    ga_epoch_nap();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_EPOCH_MUTANT == 8
        bool is = ga_load_acquire(&epochs->step) == seen; /* Pairs with S1 */
        ga_epoch_nap();
        ga_store_release(&epochs->step, seen + 1u); /* Pairs with S2 */
        ga_lane_write(&ours, own, is ? 1u : 0u);
#elif GA_EPOCH_MUTANT == 9
        ga_lane_write(&ours, own, ga_cas_relaxed(&epochs->step, seen, seen + 1u) == seen ? 1u : 0u);
#else
        /* S2: acquire. Pairs with S1: what whoever made the step before did. */
        ga_lane_write(&ours, own, ga_cas_acquire(&epochs->step, seen, seen + 1u) == seen ? 1u : 0u);
#endif
    }
    ga_tile_sync(tile); /* what the leader acquired all have */
    return ga_lanes_get(tile, ours, leader) != 0;
}

/* The same by who alone can: S1, release. */
GA_SIMT void ga_epochs_step_on(ga_epochs *epochs, ga_tile tile)
{
    ga_tile_sync(tile); /* what any lane did */
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: nobody else changes it now */
        uint32_t step = ga_load_relaxed(&epochs->step) + 1u;
#if GA_EPOCH_MUTANT == 10
        ga_store_relaxed(&epochs->step, step);
#else
        ga_store_release(&epochs->step, step); /* S1: release. Pairs with S2 */
#endif
    }
    ga_tile_sync(tile);
}

GA_SIMT uint32_t ga_epochs_look(const ga_epochs *epochs, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes step = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&step, own, ga_load_relaxed(&epochs->step)); /* relaxed: S2 confirms it */
    }
    return ga_lanes_get(tile, step, leader);
}

/* The right to close the epoch that is entered: for one tile, once all is freed that waited for the
 * epoch before. Who has it finds out what is taken out of the structure, and closes. */
GA_SIMT bool ga_epochs_claim(ga_epochs *epochs, ga_tile tile)
{
    uint32_t step = ga_epochs_look(epochs, tile);
    return step % 4u == GA_EPOCH_OPEN && ga_epochs_step(epochs, tile, step); /* S2 */
}

/* Turn the lane's stripes to the other side: how many came to this one. */
GA_SIMT uint32_t ga_epochs_turn(ga_epochs *epochs, uint32_t first, uint32_t step, uint64_t other)
{
    uint32_t came = 0;
    for (uint32_t i = first; i < GA_EPOCH_STRIPES; i += step) {
        ga_epoch_nap();
        if (GA_EPOCH_MUTANT == 6 && i == GA_EPOCH_STRIPES - 1u) {
            continue;
        }
#if GA_EPOCH_MUTANT == 2
        came += (uint32_t)ga_exchange64_relaxed(&epochs->stripes[i].came, other);
#else
        /* T1: release. Pairs with T2. Modulo 2^32, as what has left. */
        came += (uint32_t)ga_exchange64_release(&epochs->stripes[i].came, other);
#endif
    }
    return came;
}

/* Close it, by who has claimed that. What was taken out of the structure before can be freed when
 * the epoch has drained. */
GA_SIMT void ga_epochs_close(ga_epochs *epochs, ga_tile tile)
{
    uint32_t side = ga_epoch_side(ga_epochs_look(epochs, tile));
    ga_lanes came = ga_lanes_all(0);
    ga_tile_sync(tile); /* what any lane did happens before who comes behind it */
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&came, own,
                      ga_epochs_turn(epochs, own, ga_tile_size(tile), side ? 0 : GA_EPOCH_SIDE));
    }
    uint32_t sum = ga_lanes_sum(tile, came);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: S1 and S2 hand it on from one who closes to the next */
        ga_store_relaxed(epochs->away + side, ga_load_relaxed(epochs->away + side) + sum);
    }
    ga_epochs_step_on(epochs, tile); /* S1 */
}

/* How many have left a side, ever, modulo 2^32. */
GA_SIMT uint32_t ga_epochs_left(const ga_epochs *epochs, ga_tile tile, uint32_t side)
{
    ga_lanes left = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t mine = 0;
        for (uint32_t i = own; i < GA_EPOCH_STRIPES; i += ga_tile_size(tile)) {
#if GA_EPOCH_MUTANT == 4
            mine += ga_load_relaxed(epochs->stripes[i].left + side);
#else
            /* L2: acquire. Pairs with L1: as many as were in have left by then, or it is less. */
            mine += ga_load_acquire(epochs->stripes[i].left + side);
#endif
        }
        ga_lane_write(&left, own, mine);
    }
    ga_tile_sync(tile); /* what a lane acquired all have */
    return ga_lanes_sum(tile, left);
}

/* Whether the epoch that was closed has drained: true for one tile, which frees what waited for that,
 * and reopens. */
GA_SIMT bool ga_epochs_drained(ga_epochs *epochs, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile), step = ga_epochs_look(epochs, tile);
    uint32_t side = ga_epoch_side(step);
    if (step % 4u != GA_EPOCH_DRAINING) {
        return false;
    }
    ga_lanes away = ga_lanes_all(0), is = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* S2: acquire. Pairs with S1: how many came, where that step was made and no other. */
        ga_lane_write(&is, own, ga_load_acquire(&epochs->step) == step ? 1u : 0u);
        ga_lane_write(&away, own, ga_load_relaxed(epochs->away + side)); /* relaxed: see S2 */
    }
    if (!ga_lanes_get(tile, is, leader)) {
        return false;
    }
    uint32_t sum = ga_lanes_get(tile, away, leader);
    return (ga_epochs_left(epochs, tile, side) == sum || GA_EPOCH_MUTANT == 11) &&
           ga_epochs_step(epochs, tile,
                          step); /* S2: else others have, and it may be another epoch */
}

/* What waited for the epoch is freed, or somebody knows how to: the next may be closed. */
GA_SIMT void ga_epochs_reopen(ga_epochs *epochs, ga_tile tile)
{
    ga_epochs_step_on(epochs, tile); /* S1 */
}

#endif
