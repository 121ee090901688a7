/* SPDX-License-Identifier: MIT
 *
 * Growing under a running kernel, the kernels' side (docs/growth.md has the drawing). The kernel
 * asks in the mailbox and waits; the pager backs; the kernel prepares what has come, and goes on.
 * Nothing is launched and nothing is copied for it.
 *
 * STRUCTURE  One tile at a time has the turn: it looks at the mailbox, prepares the steps that have
 *            been backed, and speaks to the pager. That takes a bounded time, and then it hands the
 *            turn on. All others sleep, and look at device memory only: reading the host's takes a
 *            microsecond, and ten thousand tiles would read.
 *
 * INVARIANT  ready <= backed. Steps below `ready` are prepared; those from there on belong to the
 *            tile that has the turn. At most one wish is unanswered, but it may be replaced by a
 *            larger one.
 *
 * ORDER      M (mailbox.h's answer): what the host did to back a step happens before it is
 *            prepared. R (ready): what was done to prepare it happens before anybody uses it. T
 *            (turn): what the last tile that had it wrote. V (verdict): what has become ready
 *            happens before the refusal of the rest, so that nobody is refused what he could have.
 *
 * PROGRESS   Who waits for memory waits for the pager, but not for ever: `patience`. Who waits for
 *            the turn waits for a tile that looks and prepares, and for nothing else. Tiles of one
 *            warp may wait for each other, since lanes that have parted go on independently (sm_70
 *            and later); the lanes of one tile never do: they go together.
 *
 * Steps are prepared by a function of the caller's, prepare(tile, context, from, to), which the
 * whole tile calls for all that have come at once, from to to - 1: one fence serves a hundred of
 * them. What its lanes write is published afterwards. All words here are collective, for any tile
 * of 32 lanes or with gaps, and cost registers: call them from a GA_SIMT_SLOW function.
 */
#ifndef GPUALLOC_ARENA_GROWTH_H
#define GPUALLOC_ARENA_GROWTH_H

#include "../simt/simt.h"
#include "mailbox.h"

typedef void (*ga_growth_prepare)(ga_tile tile, void *context, uint32_t from, uint32_t to);

/* Beside the reasons, what a tile may find. */
#define GA_GROWTH_WAIT 0xfeu /* it is not decided yet */
#define GA_GROWTH_TURN 0xffu /* nor is that, and the tile has got the turn */

/* Who waits sleeps for so long, in ns, and so many times for twice as long as before. */
#define GA_GROWTH_NAP  256u
#define GA_GROWTH_NAPS 6u

/* ---- what stands in device memory: by one lane --------------------------------------------- */

/* How many steps may be used. */
GA_SIMT uint32_t ga_growth_ready(const ga_growth *growth)
{
#if GA_GROWTH_MUTANT == 1
    return ga_load_relaxed(&growth->ready);
#else
    /* R2: acquire. Pairs with R1: these steps are prepared. */
    return ga_load_acquire(&growth->ready);
#endif
}

/* Whether `want` steps are ready (GRANTED), or why not, for one who `began` to wait then; WAIT
 * where that is open. A refusal that came later than he did is meant for him, even if it is old by
 * now. */
GA_SIMT uint32_t ga_growth_standing(const ga_growth *growth, uint32_t want, uint64_t began)
{
    /* V2: acquire. Pairs with V1: what was granted together with the refusal is ready by now. */
    uint64_t verdict = ga_load64_acquire(&growth->verdict);
    uint32_t ready = ga_growth_ready(growth);
    if (ready >= want && !(GA_GROWTH_MUTANT == 6 && began < verdict)) {
        return GA_GROWTH_GRANTED;
    }
    return began < verdict ? (uint32_t)verdict & 7u : GA_GROWTH_WAIT;
}

/* TURN where the caller has it now, else WAIT. */
GA_SIMT uint32_t ga_growth_try_turn(ga_growth *growth)
{
#if GA_GROWTH_MUTANT == 5
    return GA_GROWTH_TURN;
#endif
    /* relaxed: a look too early or too late does no harm. */
    if (ga_clock_ns() < ga_load64_relaxed(&growth->look_at) || ga_load_relaxed(&growth->turn)) {
        return GA_GROWTH_WAIT;
    }
    /* T1: acquire. Pairs with T2: what the last tile that had the turn wrote. */
    return ga_cas_acquire(&growth->turn, 0, 1) == 0 ? GA_GROWTH_TURN : GA_GROWTH_WAIT;
}

/* ---- the turn: by one lane ----------------------------------------------------------------- */

/* Wish for `want` steps. */
GA_SIMT void ga_growth_post(ga_growth *growth, uint32_t want)
{
    growth->wish = ga_mail_word(want, ga_mail_serial(growth->wish) + 1u, GA_GROWTH_GRANTED);
    /* M3: relaxed. Pairs with M4 (pager.c): a wish tells of nothing but itself. */
    ga_store64_relaxed_system(&growth->mailbox->wish, growth->wish);
}

/* Refuse all who want more than is ready, until then. */
GA_SIMT void ga_growth_pronounce(ga_growth *growth, uint32_t reason, uint64_t until)
{
    /* V1: release. Pairs with V2: what is ready was so before. */
    ga_store64_release(&growth->verdict, (until & GA_GROWTH_FOR_EVER) | reason);
}

/* The last wish has been answered with too little. `verdict` is what has been pronounced on it: a
 * refusal is made known first, and once that is old the pager is asked anew. */
GA_SIMT void ga_growth_answered(ga_growth *growth, uint32_t want, uint64_t began, uint32_t reason)
{
    uint64_t now = ga_clock_ns();
    /* relaxed: written by tiles that had the turn before. */
    uint64_t verdict = ga_load64_relaxed(&growth->verdict);
    if (reason == GA_GROWTH_MEMORY && !verdict) {
        ga_growth_pronounce(growth, reason, now + growth->hold);
    } else if (reason != GA_GROWTH_GRANTED && reason != GA_GROWTH_MEMORY) {
        ga_growth_pronounce(growth, reason, GA_GROWTH_FOR_EVER);
    } else if (began >= verdict) {
        ga_store64_relaxed(&growth->verdict, 0); /* relaxed: tells of nothing */
        growth->asked = now;
        ga_growth_post(growth, want);
    }
}

/* The last wish has not been answered yet. Clocks of multiprocessors may differ a little: `now` may
 * be before `asked`. */
GA_SIMT void ga_growth_unanswered(ga_growth *growth, uint32_t want)
{
    uint64_t now = ga_clock_ns();
    if (now > growth->asked + growth->patience) {
        ga_growth_pronounce(growth, GA_GROWTH_GONE, now + growth->hold);
    } else if (ga_mail_steps(growth->wish) < want) {
        ga_growth_post(growth, want);
    }
}

/* The answer that stands in the mailbox has the lower half `heard`, and less than `want` steps. A
 * pager's goodbye answers every wish. */
GA_SIMT void ga_growth_speak(ga_growth *growth, uint32_t want, uint64_t began, uint32_t heard)
{
    uint32_t reason = ga_mail_reason(heard);
    if (ga_mail_serial(heard) == ga_mail_serial(growth->wish) || reason == GA_GROWTH_GONE ||
        GA_GROWTH_MUTANT == 7) {
        ga_growth_answered(growth, want, began, reason);
    } else {
        ga_growth_unanswered(growth, want);
    }
}

GA_SIMT void ga_growth_end_turn(ga_growth *growth)
{
    ga_store64_relaxed(&growth->look_at, ga_clock_ns() + growth->pace);
#if GA_GROWTH_MUTANT == 3
    ga_store_relaxed(&growth->turn, 0);
#else
    /* T2: release. Pairs with T1. */
    ga_store_release(&growth->turn, 0);
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
#if GA_GROWTH_MUTANT == 2
        ga_store_relaxed(&growth->ready, n);
#else
        /* R1: release. Pairs with R2. */
        ga_store_release(&growth->ready, n);
#endif
    }
}

/* The tile has the turn: look at the mailbox, make ready what has come, speak, and hand the turn
 * on. */
GA_SIMT void ga_growth_look(ga_tile tile, ga_growth *growth, uint32_t want, uint64_t began,
                            ga_growth_prepare prepare, void *context)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes steps = ga_lanes_all(0);
    ga_lanes heard = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_GROWTH_MUTANT == 4
        uint64_t answer = ga_load64_relaxed_system(&growth->mailbox->answer);
#else
        /* M2: acquire, from the host. Pairs with M1 (pager.c): these steps are backed. */
        uint64_t answer = ga_load64_acquire_system(&growth->mailbox->answer);
#endif
        ga_lane_write(&steps, own, ga_mail_steps(answer));
        ga_lane_write(&heard, own, (uint32_t)answer);
    }
    ga_tile_sync(tile);
    uint32_t backed = ga_lanes_get(tile, steps, leader);
    uint32_t ready =
        ga_load_relaxed(&growth->ready); /* relaxed: only who has the turn changes it */
    if (ready < backed) {
        prepare(tile, context, ready, backed);
        /* At once: thousands wait, and each time all of them would run for a little. */
        ga_growth_publish(tile, growth, backed);
    }
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        if (backed < want) {
            ga_growth_speak(growth, want, began, ga_lane_read(heard, own));
        }
        ga_growth_end_turn(growth);
    }
}

/* How it stands with `want` steps, for all lanes; and the turn, where it is to be had. `began` is
 * the leader's. */
GA_SIMT uint32_t ga_growth_ask(ga_tile tile, ga_growth *growth, uint32_t want, uint64_t began)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes found = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t standing = ga_growth_standing(growth, want, began);
        if (standing == GA_GROWTH_WAIT) {
            standing = ga_growth_try_turn(growth);
        }
        ga_lane_write(&found, own, standing);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, found, leader);
}

/* For the host: how long the tile has waited. */
GA_SIMT void ga_growth_count_wait(ga_tile tile, ga_growth *growth, uint64_t began)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint64_t ns = (ga_clock_ns() - began) | 1u;
        uint32_t place = ns >> 32 ? 31u : 31u - ga_bits_leading((uint32_t)ns);
        ga_post_add_relaxed(&growth->waits[place], 1u); /* relaxed: a count */
    }
}

/* ---- for those who grow -------------------------------------------------------------------- */

/* Wait until `want` steps are ready: GA_GROWTH_GRANTED, or the reason why they will not be. Who has
 * found nothing in n steps wants n + 1. */
GA_SIMT uint32_t ga_growth_await(ga_tile tile, ga_growth *growth, uint32_t want,
                                 ga_growth_prepare prepare, void *context)
{
    uint64_t began = ga_clock_ns();
    uint32_t rounds = 0;
    uint32_t found;
    while ((found = ga_growth_ask(tile, growth, want, began)) >= GA_GROWTH_WAIT) {
        if (found == GA_GROWTH_TURN) {
            ga_growth_look(tile, growth, want, began, prepare, context);
        } else {
            ga_clock_sleep(GA_GROWTH_NAP << (rounds < GA_GROWTH_NAPS ? rounds : GA_GROWTH_NAPS));
        }
        rounds++;
    }
    if (rounds) {
        ga_growth_count_wait(tile, growth, began);
    }
    return found;
}

/* It is getting low: `want` steps will be wanted soon. Asks for them, and makes ready what has
 * come, when nobody else is about to; waits for nothing. To be called now and then until they are
 * ready. */
GA_SIMT void ga_growth_hint(ga_tile tile, ga_growth *growth, uint32_t want,
                            ga_growth_prepare prepare, void *context)
{
    uint64_t began = ga_clock_ns();
    if (ga_growth_ask(tile, growth, want, began) == GA_GROWTH_TURN) {
        ga_growth_look(tile, growth, want, began, prepare, context);
    }
}

#endif
