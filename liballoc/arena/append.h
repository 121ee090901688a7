/* SPDX-License-Identifier: MIT
 *
 * Appending to a vector from kernels, which grows meanwhile (growth.h). The host lends the vector
 * to them (loan.c); gpualloc/vector.cuh has the calls that programs use.
 *
 * STRUCTURE  `tail` hands out places, by one atomic for all lanes that call together. Up to `gate`
 *            there is memory behind them. Who has got places beyond it waits until the gate has
 *            risen, or closes it.
 *
 * INVARIANT  Places are handed out without gaps. Those that lie wholly below the gate are granted,
 *            all others refused, once it is closed; and then it never moves again. So the granted
 *            ones have no gaps either: the vector ends where the first one was refused.
 *
 * ORDER      G (gate): what the host did to back this room happens before anybody writes there.
 *
 * PROGRESS   One atomic and one load where there is room; else that of growth.h. One refusal, also
 *            for want of memory that others give back later, refuses all that come after it, until
 *            the vector is lent again: two answers to one place would leave a hole.
 */
#ifndef GPUALLOC_ARENA_APPEND_H
#define GPUALLOC_ARENA_APPEND_H

#include "growth.h"

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_APPEND_MUTANT
#define GA_APPEND_MUTANT 0
#endif
#define GA_APPEND_MUTANT_NAP 2000000u /* ns: so that what is weak shows */

enum {
    GA_APPEND_MOST = 1 << 26 /* elements that one lane may ask for: 32 of them fit in 32 bits */
};

#define GA_APPEND_CLOSED       ((uint64_t)1)
#define GA_APPEND_NONE_REFUSED (~(uint64_t)0)

/* In memory of the device. Its steps are of `step` bytes of the vector's arena. */
typedef struct ga_append {
    ga_growth growth;

    /* Set once, by the host: bytes. */
    uint64_t element, step;
    uint8_t apart[112];

    uint64_t tail; /* relaxed: places handed out */
    uint8_t apart_too[120];

    uint64_t gate; /* G: twice the places that there is memory for, and GA_APPEND_CLOSED */
    uint64_t
        refused; /* relaxed: the first place that was refused, GA_APPEND_NONE_REFUSED for none */
    uint32_t reason; /* relaxed: why the gate is closed */
    uint8_t apart_last[108];
} ga_append;

/* What a tile has got: `before` it in each lane, from `first` on. A lane's are granted when they
 * lie wholly below `room`. */
typedef struct ga_appended {
    uint64_t first, room;
    ga_lanes before;
} ga_appended;

/* ---- waiting for room ---------------------------------------------------------------------- */

/* One lane's word of 64 bits, in two halves, for all. */
GA_SIMT uint64_t ga_append_spread(ga_tile tile, ga_lanes low, ga_lanes high, uint32_t lane)
{
    return (uint64_t)ga_lanes_get(tile, high, lane) << 32 | ga_lanes_get(tile, low, lane);
}

GA_SIMT uint64_t ga_append_read_gate(const ga_append *append)
{
#if GA_APPEND_MUTANT == 1
    return ga_load64_relaxed(&append->gate);
#else
    /* G2: acquire. Pairs with G1: this room is backed. */
    return ga_load64_acquire(&append->gate);
#endif
}

/* The gate as it stands, for all lanes. */
GA_SIMT uint64_t ga_append_gate(ga_tile tile, const ga_append *append)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes low = ga_lanes_all(0);
    ga_lanes high = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint64_t gate = ga_append_read_gate(append);
        ga_lane_write(&low, own, (uint32_t)gate);
        ga_lane_write(&high, own, (uint32_t)(gate >> 32));
    }
    ga_tile_sync(tile);
    return ga_append_spread(tile, low, high, leader);
}

/* How many steps have room for that many places. */
GA_SIMT uint32_t ga_append_steps(const ga_append *append, uint64_t places)
{
    uint64_t steps = (places * append->element + append->step - 1u) / append->step;
    return steps < 0xffffffffu ? (uint32_t)steps : 0xffffffffu;
}

/* The steps below `to` have been backed: the gate rises, unless it has been closed. */
GA_SIMT void ga_append_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    ga_append *append = (ga_append *)context;
    uint64_t risen = (uint64_t)to * append->step / append->element << 1;
    (void)from;
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint64_t gate = ga_load64_relaxed(&append->gate); /* relaxed: tried until it is right */
        while (!(gate & GA_APPEND_CLOSED && GA_APPEND_MUTANT != 5) && gate < risen) {
#if GA_APPEND_MUTANT == 2
            uint64_t found = ga_cas64_relaxed(&append->gate, gate, risen);
#else
            /* G1: release. Pairs with G2. */
            uint64_t found = ga_cas64_release(&append->gate, gate, risen);
#endif
            gate = found == gate ? risen : found;
        }
    }
}

/* No more after this. Who closes it says why. */
GA_SIMT void ga_append_close(ga_tile tile, ga_append *append, uint32_t reason)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: nothing becomes visible by it, and what G1 released stays released. */
        if (!(ga_or64_relaxed(&append->gate, GA_APPEND_CLOSED) & GA_APPEND_CLOSED)) {
            ga_store_relaxed(&append->reason, reason);
        }
    }
}

/* The gate once `end` lies below it, or once it is closed. */
GA_SIMT_SLOW uint64_t ga_append_await(ga_append *append, uint32_t lanes, uint64_t end)
{
    ga_tile tile = ga_tile_among(lanes);
    uint32_t want = ga_append_steps(append, end);
    uint64_t gate;
    while ((gate = ga_append_gate(tile, append)) >> 1 < end && !(gate & GA_APPEND_CLOSED)) {
        uint32_t found = ga_growth_await(tile, &append->growth, want, ga_append_prepare, append);
        if (found != GA_GROWTH_GRANTED) {
#if GA_APPEND_MUTANT == 3
            return gate;
#elif GA_APPEND_MUTANT == 5
            ga_clock_sleep(GA_APPEND_MUTANT_NAP);                /* others begin to wait anew */
#endif
            ga_append_close(tile, append, found);
        }
    }
    return gate;
}

/* ---- low water ------------------------------------------------------------------------------ */

/* Whether the places first to end are near the gate: in the last eighth below it. There one in 16
 * of them or so asks for more, so that nobody has to wait. */
GA_SIMT bool ga_append_is_low(uint64_t first, uint64_t end, uint64_t room)
{
    uint64_t mark = (room >> 7) + 1u;
    return room - end < room >> 3 && first / mark != end / mark;
}

GA_SIMT_SLOW void ga_append_hint(ga_append *append, uint32_t lanes, uint64_t room)
{
    ga_growth_hint(ga_tile_among(lanes), &append->growth, ga_append_steps(append, room + 1u),
                   ga_append_prepare, append);
}

/* ---- taking places -------------------------------------------------------------------------- */

/* Note the first place of each lane that was refused. */
GA_SIMT_SLOW void ga_append_refuse(ga_append *append, uint32_t lanes, ga_appended got,
                                   ga_lanes counts)
{
    ga_tile tile = ga_tile_among(lanes);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t n = ga_lane_read(counts, own);
        uint64_t at = got.first + ga_lane_read(got.before, own);
        uint64_t least = ga_load64_relaxed(&append->refused); /* relaxed: tried until it is right */
        while (n && at + n > got.room && at < least) {
            uint64_t found = ga_cas64_relaxed(&append->refused, least, at);
            least = found == least ? at : found;
        }
    }
}

/* The next places, as many for each lane as `counts` has (at most GA_APPEND_MOST; 0 for a lane that
 * wants none). May wait for the host. */
GA_SIMT ga_appended ga_append_take(ga_append *append, ga_tile tile, ga_lanes counts)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t total = ga_lanes_sum(tile, counts);
    ga_lanes low = ga_lanes_all(0);
    ga_lanes high = ga_lanes_all(0);
    ga_appended got;
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_APPEND_MUTANT == 4
        uint64_t first = ga_load64_relaxed(&append->tail);
        ga_clock_sleep(GA_APPEND_MUTANT_NAP);
        ga_store64_relaxed(&append->tail, first + total);
#else
        uint64_t first = ga_add64_relaxed(&append->tail, total); /* relaxed: hands out places */
#endif
        ga_lane_write(&low, own, (uint32_t)first);
        ga_lane_write(&high, own, (uint32_t)(first >> 32));
    }
    uint64_t gate = ga_append_gate(tile, append);
    got.before = ga_lanes_prefix_sum(tile, counts);
    got.first = ga_append_spread(tile, low, high, leader);
    uint64_t end = got.first + total;
    if (end > gate >> 1 && !(gate & GA_APPEND_CLOSED)) {
        gate = ga_append_await(append, ga_tile_members(tile), end);
    }
    got.room = gate >> 1;
    if (end > got.room) {
        ga_append_refuse(append, ga_tile_members(tile), got, counts);
    } else if (ga_append_is_low(got.first, end, got.room)) {
        ga_append_hint(append, ga_tile_members(tile), got.room);
    }
    return got;
}

#endif
