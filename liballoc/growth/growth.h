/* SPDX-License-Identifier: MIT
 *
 * Growing memory under a running kernel: the kernel's side of the protocol
 * (docs/internals/growth.md). A chunk is mapped while the kernel runs; nothing is launched or
 * copied, and no pointer changes.
 *
 *   a tile of the kernel (this file)        mailbox (pinned)     pager thread (pager.c)
 *
 *   ga_growth_await: needs `needed` steps
 *     load refusal and ready   (GV2, GR2)
 *     ready >= needed: done
 *     take the lock by a CAS   (GT1)
 *       not free: sleep for 256 ns to
 *       16 us, and start again
 *     ga_growth_poll_mailbox
 *       load the answer        (GM2)
 *       too few steps: post    (GM3)  -->  request needed -->   serve: a new serial  (GM4)
 *       release the lock       (GT2)                            back: arena/{growing,loan}.c
 *     sleep, and start again                                     ga_arena_grow
 *           .                                                      cuMemCreate
 *           .                                                      cuMemMap
 *           .                                                      cuMemSetAccess
 *     ga_growth_poll_mailbox
 *       load the answer        (GM2)  <--  answer, steps  <--   write_answer         (GM1)
 *       prepare the new steps
 *       store ready            (GR1)
 *       release the lock       (GT2)
 *     load ready >= needed     (GR2)
 *     GRANTED
 *
 * STRUCTURE  At any time one tile holds the lock: it polls the mailbox, prepares the steps that
 *            have been backed, and posts requests, in bounded time. All other tiles sleep and poll
 *            device memory only: a read of host memory takes a microsecond, and there may be ten
 *            thousand tiles.
 *
 * INVARIANT  ready <= backed. Steps below `ready` are prepared. Only the tile that holds the lock
 *            prepares steps from `ready` on. Its prepare() may publish parts of them before they
 *            are ready (slab_growing.h does, by its own orders). At most one request is unanswered,
 *            and a larger one may replace it.
 *
 * ORDER      GM (answer in the mailbox): the host's backing of a step happens before its
 *            preparation. GR (ready): the preparation of a step happens before its use. GT (lock):
 *            orders the words that the lock guards. GV (refusal): steps that became ready with a
 *            refusal are visible before it, so that no tile is refused steps that are ready.
 *
 * PROGRESS   A tile waits for `ready` or for a refusal, at most `timeout_ns` if the pager does not
 *            answer. It waits for the lock (GT) only while another tile polls and prepares, because
 *            that lock is never held across a wait for the pager; the caller's own locks may be.
 *            The pager waits for the driver. The host waits for no tile. Tiles of one warp may wait
 *            for each other, because diverged lanes progress independently (sm_70 and later); the
 *            lanes of one tile call together.
 *
 * The caller's function prepare(tile, context, from, to) prepares steps `from` to `to` - 1. The
 * whole tile calls it once for all new steps, so that one fence serves a hundred of them; its
 * writes are published afterwards. All functions here are collective, for a tile of 32 lanes or of
 * any subset, and need many registers: call them from a GA_SIMT_SLOW function.
 */
#ifndef GPUALLOC_GROWTH_GROWTH_H
#define GPUALLOC_GROWTH_GROWTH_H

#include "../simt/planted.h"
#include "../simt/simt.h"
#include "mailbox.h"

typedef void (*ga_growth_prepare)(ga_tile tile, void *context, uint32_t from, uint32_t to);

/* States beside the reasons. */
#define GA_GROWTH_UNDECIDED 0xfeu /* neither granted nor refused */
#define GA_GROWTH_LOCKED    0xffu /* undecided, and the caller has taken the lock */

/* A waiting tile sleeps for this time, in ns, doubled up to GA_GROWTH_SLEEP_DOUBLINGS times
 * (16 us). */
#define GA_GROWTH_SLEEP_NS        256u
#define GA_GROWTH_SLEEP_DOUBLINGS 6u

/* ---- state in device memory: by one lane --------------------------------------------------- */

/* Number of steps that may be used. */
GA_SIMT uint32_t ga_growth_ready(const ga_growth *growth)
{
#if GA_PLANTED(growth_ready_load_relaxed)
    return ga_load_relaxed(&growth->ready);
#else
    /* GR2: acquire. Pairs with GR1: these steps are prepared. */
    return ga_load_acquire(&growth->ready);
#endif
}

/* GRANTED if `needed` steps are ready, else the reason of the refusal, else UNDECIDED. A
 * refusal applies to a tile that began to wait (`began`) before it expires, even if it has
 * expired since. */
GA_SIMT uint32_t ga_growth_load_state(const ga_growth *growth, uint32_t needed, uint64_t began)
{
    /* GV2: acquire. Pairs with GV1: steps granted together with the refusal are ready by now. */
    uint64_t refusal = ga_load64_acquire(&growth->refusal);
    uint32_t ready = ga_growth_ready(growth);
    if (ready >= needed && !(GA_PLANTED(growth_refused_with_ready_steps) && began < refusal)) {
        return GA_GROWTH_GRANTED;
    }
    return began < refusal ? (uint32_t)refusal & 7u : GA_GROWTH_UNDECIDED;
}

/* Returns LOCKED if the caller has taken the lock, else UNDECIDED. */
GA_SIMT uint32_t ga_growth_try_lock(ga_growth *growth)
{
#if GA_PLANTED(growth_not_locked)
    return GA_GROWTH_LOCKED;
#endif
    /* relaxed: polling too early or too late does no harm. */
    if (ga_clock_ns() < ga_load64_relaxed(&growth->next_poll) || ga_load_relaxed(&growth->lock)) {
        return GA_GROWTH_UNDECIDED;
    }
    /* GT1: acquire. Pairs with GT2: the words written by the last tile that held the lock. */
    return ga_cas_acquire(&growth->lock, 0, 1) == 0 ? GA_GROWTH_LOCKED : GA_GROWTH_UNDECIDED;
}

/* ---- with the lock: by one lane ------------------------------------------------------------ */

/* Request `needed` steps. */
GA_SIMT void ga_growth_post_request(ga_growth *growth, uint32_t needed)
{
    growth->request = ga_mail_word(needed, ga_mail_serial(growth->request) + 1u, GA_GROWTH_GRANTED);
    /* GM3: relaxed. Pairs with GM4 (pager.c): a request publishes nothing but itself. */
    ga_store64_relaxed_system(&growth->mailbox->request, growth->request);
}

/* Refuse all requests for more than the ready steps, until the given time. */
GA_SIMT void ga_growth_publish_refusal(ga_growth *growth, uint32_t reason, uint64_t until)
{
    /* GV1: release. Pairs with GV2: the granted steps became ready before. */
    ga_store64_release(&growth->refusal, (until & GA_GROWTH_FOREVER) | reason);
}

/* The last request was answered with too few steps. Limit and gone: refuse forever. Out of memory:
 * refuse for a while, so that all waiting tiles return. A tile that begins to wait after that while
 * posts a new request, and so does one whose request was larger than the one that was answered. */
GA_SIMT void ga_growth_handle_shortfall(ga_growth *growth, uint32_t needed, uint64_t began,
                                        uint32_t reason)
{
    uint64_t now = ga_clock_ns();
    /* relaxed: written by tiles that held the lock before. */
    uint64_t refusal = ga_load64_relaxed(&growth->refusal);
    if (reason == GA_GROWTH_MEMORY && !refusal) {
        ga_growth_publish_refusal(growth, reason, now + growth->refusal_ns);
    } else if (reason != GA_GROWTH_GRANTED && reason != GA_GROWTH_MEMORY) {
        ga_growth_publish_refusal(growth, reason, GA_GROWTH_FOREVER);
    } else if (began >= refusal) {
        ga_store64_relaxed(&growth->refusal, 0); /* relaxed: publishes nothing */
        growth->posted_at = now;
        ga_growth_post_request(growth, needed);
    }
}

/* The last request is not answered yet: refuse after the timeout, or request more. `now` may be
 * before `posted_at`, because the clocks of multiprocessors differ a little. */
GA_SIMT void ga_growth_handle_pending(ga_growth *growth, uint32_t needed)
{
    uint64_t now = ga_clock_ns();
    if (now > growth->posted_at + growth->timeout_ns) {
        ga_growth_publish_refusal(growth, GA_GROWTH_GONE, now + growth->refusal_ns);
    } else if (ga_mail_steps(growth->request) < needed) {
        ga_growth_post_request(growth, needed);
    }
}

/* Handle an answer with fewer than `needed` steps; `answer_low` is its lower half. If the pager has
 * closed the mailbox (GONE), that answers every request. */
GA_SIMT void ga_growth_handle_answer(ga_growth *growth, uint32_t needed, uint64_t began,
                                     uint32_t answer_low)
{
    uint32_t reason = ga_mail_reason(answer_low);
    if (ga_mail_serial(answer_low) == ga_mail_serial(growth->request) || reason == GA_GROWTH_GONE ||
        GA_PLANTED(growth_old_answer_accepted)) {
        ga_growth_handle_shortfall(growth, needed, began, reason);
    } else {
        ga_growth_handle_pending(growth, needed);
    }
}

GA_SIMT void ga_growth_unlock(ga_growth *growth)
{
    ga_store64_relaxed(&growth->next_poll, ga_clock_ns() + growth->poll_ns);
#if GA_PLANTED(growth_unlock_relaxed)
    ga_store_relaxed(&growth->lock, 0);
#else
    /* GT2: release. Pairs with GT1. */
    ga_store_release(&growth->lock, 0);
#endif
}

/* ---- tiles --------------------------------------------------------------------------------- */

/* All lanes have prepared steps 0 to n - 1. */
GA_SIMT void ga_growth_publish(ga_tile tile, ga_growth *growth, uint32_t n)
{
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
#if GA_PLANTED(growth_ready_store_relaxed)
        ga_store_relaxed(&growth->ready, n);
#else
        /* GR1: release. Pairs with GR2. */
        ga_store_release(&growth->ready, n);
#endif
    }
}

/* With the lock: poll the mailbox, prepare new steps, post or refuse, and release the lock. */
GA_SIMT void ga_growth_poll_mailbox(ga_tile tile, ga_growth *growth, uint32_t needed,
                                    uint64_t began, ga_growth_prepare prepare, void *context)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes steps = ga_lanes_all(0);
    ga_lanes answer_low = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_PLANTED(growth_answer_relaxed)
        uint64_t answer = ga_load64_relaxed_system(&growth->mailbox->answer);
#else
        /* GM2: acquire, from the host. Pairs with GM1 (pager.c): these steps are backed. */
        uint64_t answer = ga_load64_acquire_system(&growth->mailbox->answer);
#endif
        ga_lane_write(&steps, own, ga_mail_steps(answer));
        ga_lane_write(&answer_low, own, (uint32_t)answer);
    }
    ga_tile_sync(tile);
    uint32_t backed = ga_lanes_get(tile, steps, leader);
    uint32_t ready = ga_load_relaxed(&growth->ready); /* relaxed: only the lock holder changes it */
    if (ready < backed) {
        prepare(tile, context, ready, backed);
        /* All new steps at once, because thousands of tiles wait, and every change makes all of
         * them run for a moment. */
        ga_growth_publish(tile, growth, backed);
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (backed < needed) {
            ga_growth_handle_answer(growth, needed, began, ga_lane_read(answer_low, own));
        }
        ga_growth_unlock(growth);
    }
}

/* The state for `needed` steps, for all lanes; takes the lock if it is free and polling is due.
 * `began` is the leader's. */
GA_SIMT uint32_t ga_growth_load_or_lock(ga_tile tile, ga_growth *growth, uint32_t needed,
                                        uint64_t began)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes states = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t state = ga_growth_load_state(growth, needed, began);
        if (state == GA_GROWTH_UNDECIDED) {
            state = ga_growth_try_lock(growth);
        }
        ga_lane_write(&states, own, state);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, states, leader);
}

/* Count the tile's waiting time, for the host's statistics. */
GA_SIMT void ga_growth_count_wait(ga_tile tile, ga_growth *growth, uint64_t began)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint64_t ns = (ga_clock_ns() - began) | 1u;
        uint32_t bin = ns >> 32 ? 31u : 31u - ga_bits_leading((uint32_t)ns);
        ga_post_add_relaxed(&growth->waits[bin], 1u); /* relaxed: a count */
    }
}

/* ---- entry points -------------------------------------------------------------------------- */

/* Wait until `needed` steps are ready. Returns GA_GROWTH_GRANTED or the reason of the refusal. A
 * tile that found n steps full needs n + 1. */
GA_SIMT uint32_t ga_growth_await(ga_tile tile, ga_growth *growth, uint32_t needed,
                                 ga_growth_prepare prepare, void *context)
{
    uint64_t began = ga_clock_ns();
    uint32_t rounds = 0;
    uint32_t state;
    while ((state = ga_growth_load_or_lock(tile, growth, needed, began)) >= GA_GROWTH_UNDECIDED) {
        if (state == GA_GROWTH_LOCKED) {
            ga_growth_poll_mailbox(tile, growth, needed, began, prepare, context);
        } else {
            ga_clock_sleep(
                GA_GROWTH_SLEEP_NS
                << (rounds < GA_GROWTH_SLEEP_DOUBLINGS ? rounds : GA_GROWTH_SLEEP_DOUBLINGS));
        }
        rounds++;
    }
    if (rounds) {
        ga_growth_count_wait(tile, growth, began);
    }
    return state;
}

/* Low water: `needed` steps will be needed soon. Requests them and prepares new steps, unless
 * another tile holds the lock; never waits. Call it now and then until they are ready. */
GA_SIMT void ga_growth_hint(ga_tile tile, ga_growth *growth, uint32_t needed,
                            ga_growth_prepare prepare, void *context)
{
    uint64_t began = ga_clock_ns();
    if (ga_growth_load_or_lock(tile, growth, needed, began) == GA_GROWTH_LOCKED) {
        ga_growth_poll_mailbox(tile, growth, needed, began, prepare, context);
    }
}

#endif
