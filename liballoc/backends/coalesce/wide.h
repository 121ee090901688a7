/* SPDX-License-Identifier: MIT
 *
 * 64 bits for each lane of a tile, mostly pointers: two rows of 32-bit words. On the GPU they are a
 * pair of registers.
 */
#ifndef GPUALLOC_COALESCE_WIDE_H
#define GPUALLOC_COALESCE_WIDE_H

#include "../../simt/simt.h"

typedef struct ga_wide {
    ga_lanes low;
    ga_lanes high;
} ga_wide;

/* Each lane gets `value`. */
GA_SIMT ga_wide ga_wide_all(uint64_t value)
{
    ga_wide wide;
    wide.low = ga_lanes_all((uint32_t)value);
    wide.high = ga_lanes_all((uint32_t)(value >> 32));
    return wide;
}

/* For one lane, inside GA_EACH_LANE. */
GA_SIMT uint64_t ga_wide_read(ga_wide wide, uint32_t lane)
{
    return (uint64_t)ga_lane_read(wide.high, lane) << 32 | ga_lane_read(wide.low, lane);
}

GA_SIMT void ga_wide_write(ga_wide *wide, uint32_t lane, uint64_t value)
{
    ga_lane_write(&wide->low, lane, (uint32_t)value);
    ga_lane_write(&wide->high, lane, (uint32_t)(value >> 32));
}

/* The value of lane number `lane`, for all lanes. */
GA_SIMT uint64_t ga_wide_get(ga_tile tile, ga_wide wide, uint32_t lane)
{
    return (uint64_t)ga_lanes_get(tile, wide.high, lane) << 32 | ga_lanes_get(tile, wide.low, lane);
}

/* The mask of the lanes whose value is not 0. */
GA_SIMT uint32_t ga_wide_nonzero(ga_tile tile, ga_wide wide)
{
    return ga_lanes_nonzero(tile, wide.low | wide.high);
}

/* The mask of the lanes whose values are equal in both. */
GA_SIMT uint32_t ga_wide_same(ga_tile tile, ga_wide one, ga_wide other)
{
    uint32_t differ = ga_lanes_nonzero(tile, (one.low ^ other.low) | (one.high ^ other.high));
    return ga_tile_lanes(tile) & ~differ;
}

/* Each lane of the mask gets the value of the previous lane of the mask; the first, and lanes
 * outside it, get 0. */
GA_SIMT ga_wide ga_wide_previous(ga_tile tile, uint32_t among, ga_wide wide)
{
    ga_wide previous;
    previous.low = ga_lanes_previous(tile, among, wide.low);
    previous.high = ga_lanes_previous(tile, among, wide.high);
    return previous;
}

/* Each lane of the mask gets the mask of the lanes with an equal value, itself included; others
 * 0. */
GA_SIMT ga_lanes ga_wide_equal(ga_tile tile, uint32_t among, ga_wide wide)
{
    return ga_lanes_equal(tile, among, wide.low) & ga_lanes_equal(tile, among, wide.high);
}

#endif
