/* SPDX-License-Identifier: MIT
 *
 * Numbers of 64 bits that requests for all pairs of a key get as answers. Written once for a team
 * of threads, like sort_team.h.
 *
 *   ga_sharded_order_team  numbers in the order of sorted requests, into the order of the requests
 *   ga_sharded_move_team   numbers, each plus the same one, to another array or in place
 */
#ifndef GPUALLOC_SHARDED_ALL_TEAM_H
#define GPUALLOC_SHARDED_ALL_TEAM_H

#include "sort_team.h"

/* For the requests `first` to `first + n - 1`, which were sorted together. All threads of the team
 * call. */
GA_SIMT void ga_sharded_order_team(const ga_sharded_order *order, uint64_t first, uint32_t n,
                                   ga_sharded_room *room)
{
    uint64_t block = first / GA_SHARDED_SORT_MOST(order->is_wide);
    ga_sharded_find_bins_team(order->extents + block * (order->bins + 1u), order->bins, room);
    GA_TEAM_EACH(i, n)
    {
        uint32_t index = order->indices[first + i];
        uint32_t place = room->to[room->bin_of[index]] + index;
        order->to[first + i] = order->from[place];
    }
    GA_TEAM_BARRIER();
}

/* The numbers `first` to `first + n - 1`. */
GA_SIMT void ga_sharded_move_team(const ga_sharded_move *move, uint64_t first, uint32_t n)
{
    GA_TEAM_EACH(i, n)
    {
        move->to[first + i] = move->from[first + i] + move->add;
    }
}

#endif
