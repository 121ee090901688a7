/* SPDX-License-Identifier: MIT
 *
 * The kernel that tries out growth on a device; part of device_code.cu.
 */
#ifndef GPUALLOC_ARENA_GROWTH_SERVICE_CUH
#define GPUALLOC_ARENA_GROWTH_SERVICE_CUH

#include "growth.h"
#include "growth_probe.h"

GA_SIMT uint32_t *ga_growth_probe_word(const ga_growth_probe *probe, uint32_t step, uint32_t lane)
{
    return (uint32_t *)(probe->base + step * probe->step_bytes) + lane;
}

GA_SIMT void ga_growth_probe_prepare(ga_tile tile, void *context, uint32_t step)
{
    const ga_growth_probe *probe = (const ga_growth_probe *)context;
    *ga_growth_probe_word(probe, step, tile.lane) = ga_growth_probe_mark(step, tile.lane);
}

/* One warp: grow step by step, and read what has been written there. */
extern "C" __global__ void ga_growth_probe_kernel(ga_growth_probe *probe)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t right = 0;
    uint32_t found = GA_GROWTH_GRANTED;
    for (uint32_t step = 0; step < GA_GROWTH_PROBE_STEPS && found == GA_GROWTH_GRANTED; step++) {
        found = ga_growth_await(tile, &probe->growth, step + 1u, ga_growth_probe_prepare, probe);
        if (found == GA_GROWTH_GRANTED) {
            uint32_t word = *ga_growth_probe_word(probe, step, tile.lane);
            right += ga_lanes_sum(tile, word == ga_growth_probe_mark(step, tile.lane) ? 1u : 0u);
        }
    }
    if (tile.lane == 0) {
        probe->found = found;
        probe->right = right;
    }
}

#endif
