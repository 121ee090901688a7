/* SPDX-License-Identifier: MIT
 *
 * Appending to a vector from kernels while it grows (growth.h). The host lends the vector to them
 * (loan.c); gpualloc/vector.cuh has the calls for programs.
 *
 * STRUCTURE  `tail` hands out positions, by one atomic for all lanes that call together. Positions
 *            below `gate` have memory. A tile with positions above it waits until the gate has
 *            risen, or closes it.
 *
 * INVARIANT  Positions are handed out without gaps. A lane whose positions lie wholly below the
 *            gate is granted them. All others are refused once the gate is closed, and a closed
 *            gate never moves. So the granted positions have no gaps either: the vector ends at the
 *            first refused position.
 *
 * ORDER      AG (gate): the host's backing of memory happens before any write to it.
 *
 * PROGRESS   One atomic and one load while there is room; otherwise as growth.h. After one refusal
 *            all later appends are refused until the vector is lent again, even if memory becomes
 *            free: granting a later position would leave a hole.
 */
#ifndef GPUALLOC_ARENA_APPEND_H
#define GPUALLOC_ARENA_APPEND_H

#include "../growth/growth.h"
#include "../simt/planted.h"

#define GA_APPEND_PLANTED_SLEEP 2000000u /* ns: long enough for a planted bug to show */

enum {
    /* Most elements that one lane may append: those of 32 lanes fit in 32 bits. */
    GA_APPEND_MAX = 1 << 26
};

#define GA_APPEND_CLOSED       ((uint64_t)1)
#define GA_APPEND_NONE_REFUSED (~(uint64_t)0)

/* In device memory. A step is `step` bytes of the vector's arena. */
typedef struct ga_append {
    ga_growth growth;

    /* In bytes; set once, by the host. */
    uint64_t element, step;
    uint8_t padding[112];

    uint64_t tail; /* relaxed: positions handed out */
    uint8_t padding_2[120];

    uint64_t gate; /* AG: twice the number of positions with memory, and GA_APPEND_CLOSED */
    /* relaxed: the first refused position, or GA_APPEND_NONE_REFUSED. */
    uint64_t refused;
    uint32_t reason; /* relaxed: why the gate is closed */
    uint8_t padding_3[108];
} ga_append;

/* The positions of a tile: a lane's begin at `first` plus its `before`. They are granted if they
 * lie wholly below `room`. */
typedef struct ga_appended {
    uint64_t first, room;
    ga_lanes before;
} ga_appended;

/* ---- waiting for room ---------------------------------------------------------------------- */

/* Broadcast a lane's 64-bit word, given as two halves. */
GA_SIMT uint64_t ga_append_broadcast64(ga_tile tile, ga_lanes low, ga_lanes high, uint32_t lane)
{
    return (uint64_t)ga_lanes_get(tile, high, lane) << 32 | ga_lanes_get(tile, low, lane);
}

GA_SIMT uint64_t ga_append_read_gate(const ga_append *append)
{
#if GA_PLANTED(append_gate_load_relaxed)
    return ga_load64_relaxed(&append->gate);
#else
    /* AG2: acquire. Pairs with AG1: this room is backed. */
    return ga_load64_acquire(&append->gate);
#endif
}

/* The gate, for all lanes. */
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
    return ga_append_broadcast64(tile, low, high, leader);
}

/* Number of steps that hold that many positions. */
GA_SIMT uint32_t ga_append_steps(const ga_append *append, uint64_t positions)
{
    uint64_t steps = (positions * append->element + append->step - 1u) / append->step;
    return steps < 0xffffffffu ? (uint32_t)steps : 0xffffffffu;
}

/* The steps below `to` are backed: raise the gate, unless it is closed. */
GA_SIMT void ga_append_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    ga_append *append = (ga_append *)context;
    uint64_t raised = (uint64_t)to * append->step / append->element << 1;
    (void)from;
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint64_t gate = ga_load64_relaxed(&append->gate); /* relaxed: the CAS below retries */
        while (!(gate & GA_APPEND_CLOSED && !GA_PLANTED(append_closed_gate_raised)) &&
               gate < raised) {
#if GA_PLANTED(append_gate_raise_relaxed)
            uint64_t found = ga_cas64_relaxed(&append->gate, gate, raised);
#else
            /* AG1: release. Pairs with AG2. */
            uint64_t found = ga_cas64_release(&append->gate, gate, raised);
#endif
            gate = found == gate ? raised : found;
        }
    }
}

/* Close the gate. The tile that closes it stores the reason. */
GA_SIMT void ga_append_close(ga_tile tile, ga_append *append, uint32_t reason)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: publishes nothing, and the memory that AG1 published stays published. */
        if (!(ga_or64_relaxed(&append->gate, GA_APPEND_CLOSED) & GA_APPEND_CLOSED)) {
            ga_store_relaxed(&append->reason, reason);
        }
    }
}

/* Wait until `end` lies below the gate or the gate is closed; returns the gate. */
GA_SIMT_SLOW uint64_t ga_append_await(ga_append *append, uint32_t lanes, uint64_t end)
{
    ga_tile tile = ga_tile_among(lanes);
    uint32_t needed = ga_append_steps(append, end);
    uint64_t gate;
    while ((gate = ga_append_gate(tile, append)) >> 1 < end && !(gate & GA_APPEND_CLOSED)) {
        uint32_t found = ga_growth_await(tile, &append->growth, needed, ga_append_prepare, append);
        if (found != GA_GROWTH_GRANTED) {
#if GA_PLANTED(append_refused_leaves_gate_open)
            return gate;
#elif GA_PLANTED(append_closed_gate_raised)
            ga_clock_sleep(GA_APPEND_PLANTED_SLEEP); /* other tiles begin to wait again */
#endif
            ga_append_close(tile, append, found);
        }
    }
    return gate;
}

/* ---- low water ------------------------------------------------------------------------------ */

/* True if the positions lie in the last eighth below the gate. There about 1 in 16 appends requests
 * more memory, so that no tile has to wait. */
GA_SIMT bool ga_append_is_low(uint64_t first, uint64_t end, uint64_t room)
{
    uint64_t interval = (room >> 7) + 1u;
    return room - end < room >> 3 && first / interval != end / interval;
}

GA_SIMT_SLOW void ga_append_hint(ga_append *append, uint32_t lanes, uint64_t room)
{
    ga_growth_hint(ga_tile_among(lanes), &append->growth, ga_append_steps(append, room + 1u),
                   ga_append_prepare, append);
}

/* ---- claiming positions --------------------------------------------------------------------- */

/* Record the first refused position of each lane. */
GA_SIMT_SLOW void ga_append_refuse(ga_append *append, uint32_t lanes, ga_appended claimed,
                                   ga_lanes counts)
{
    ga_tile tile = ga_tile_among(lanes);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t n = ga_lane_read(counts, own);
        uint64_t at = claimed.first + ga_lane_read(claimed.before, own);
        /* Relaxed: the CAS below retries. */
        uint64_t least = ga_load64_relaxed(&append->refused);
        while (n && at + n > claimed.room && at < least) {
            uint64_t found = ga_cas64_relaxed(&append->refused, least, at);
            least = found == least ? at : found;
        }
    }
}

/* Claim the next positions: `counts` for each lane, at most GA_APPEND_MAX, and 0 for a lane that
 * appends nothing. May wait for the host. */
GA_SIMT ga_appended ga_append_take(ga_append *append, ga_tile tile, ga_lanes counts)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t total = ga_lanes_sum(tile, counts);
    ga_lanes low = ga_lanes_all(0);
    ga_lanes high = ga_lanes_all(0);
    ga_appended claimed;
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#if GA_PLANTED(append_reserve_not_atomic)
        uint64_t first = ga_load64_relaxed(&append->tail);
        ga_clock_sleep(GA_APPEND_PLANTED_SLEEP);
        ga_store64_relaxed(&append->tail, first + total);
#else
        /* Relaxed: only hands out positions. */
        uint64_t first = ga_add64_relaxed(&append->tail, total);
#endif
        ga_lane_write(&low, own, (uint32_t)first);
        ga_lane_write(&high, own, (uint32_t)(first >> 32));
    }
    uint64_t gate = ga_append_gate(tile, append);
    claimed.before = ga_lanes_prefix_sum(tile, counts);
    claimed.first = ga_append_broadcast64(tile, low, high, leader);
    uint64_t end = claimed.first + total;
    if (end > gate >> 1 && !(gate & GA_APPEND_CLOSED)) {
        gate = ga_append_await(append, ga_tile_members(tile), end);
    }
    claimed.room = gate >> 1;
    if (end > claimed.room) {
        ga_append_refuse(append, ga_tile_members(tile), claimed, counts);
    } else if (ga_append_is_low(claimed.first, end, claimed.room)) {
        ga_append_hint(append, ga_tile_members(tile), claimed.room);
    }
    return claimed;
}

#endif
