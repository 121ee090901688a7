/* SPDX-License-Identifier: MIT
 *
 * Warp-cooperative work sharing (slab-hash-2018, §IV-A): lanes have requests, and the whole tile
 * serves one after the other, each with all its lanes.
 *
 *     GA_SHARE(tile, asking, lane) {
 *         uint32_t key = ga_lanes_get(tile, keys, lane);
 *         ... the tile works on it ...
 *         ga_share_answer(tile, &answers, lane, value);
 *     }
 *
 * `asking` is the mask of the lanes with a request. `lane` is the lane that is served, from the
 * lowest to the highest. On the CPU the lanes are a batch.
 */
#ifndef GPUALLOC_SIMT_SHARE_H
#define GPUALLOC_SIMT_SHARE_H

#include "row.h"

#define GA_SHARE(tile, asking, lane)                                                               \
    for (uint32_t queue_ = (asking), lane = 0; queue_ && (lane = ga_bits_lowest(queue_), true);    \
         queue_ &= queue_ - 1u)

/* Give `value` to the lane; the others keep their values. */
GA_SIMT void ga_share_answer(ga_tile tile, ga_lanes *answers, uint32_t lane, uint32_t value)
{
    GA_EACH_LANE(tile, 1u << lane, own)
    {
        ga_lane_write(answers, own, value);
    }
}

#endif
