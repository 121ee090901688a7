/* SPDX-License-Identifier: MIT
 *
 * What the trial's warp does: it grows step by step, and reads what has been written there. The
 * same source on the GPU and on the CPU.
 */
#ifndef GPUALLOC_ARENA_GROWTH_PROBE_TILE_H
#define GPUALLOC_ARENA_GROWTH_PROBE_TILE_H

#include "growth.h"
#include "growth_probe.h"

GA_SIMT uint32_t *ga_growth_probe_word(const ga_growth_probe *probe, uint32_t step, uint32_t lane)
{
    return (uint32_t *)(probe->base + step * probe->step_bytes) + lane;
}

GA_SIMT void ga_growth_probe_prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    const ga_growth_probe *probe = (const ga_growth_probe *)context;
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint32_t step = from; step < to; step++) {
            *ga_growth_probe_word(probe, step, own) = ga_growth_probe_mark(step, own);
        }
    }
}

/* How many of a step's words are as they were written. */
GA_SIMT uint32_t ga_growth_probe_look(ga_tile tile, const ga_growth_probe *probe, uint32_t step)
{
    ga_lanes right = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t word = *ga_growth_probe_word(probe, step, own);
        ga_lane_write(&right, own, word == ga_growth_probe_mark(step, own) ? 1u : 0u);
    }
    return ga_lanes_sum(tile, right);
}

GA_SIMT void ga_growth_probe_run(ga_tile tile, ga_growth_probe *probe)
{
    uint32_t right = 0;
    uint32_t found = GA_GROWTH_GRANTED;
    for (uint32_t step = 0; step < GA_GROWTH_PROBE_STEPS && found == GA_GROWTH_GRANTED; step++) {
        found = ga_growth_await(tile, &probe->growth, step + 1u, ga_growth_probe_prepare, probe);
        if (found == GA_GROWTH_GRANTED) {
            right += ga_growth_probe_look(tile, probe, step);
        }
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        probe->found = found;
        probe->right = right;
    }
}

#endif
