/* SPDX-License-Identifier: MIT
 *
 * The kernel's half of the trial: a warp that grows memory step by step, and reads back its own
 * writes. One source for the GPU and the CPU.
 */
#ifndef GPUALLOC_GROWTH_GROWTH_PROBE_TILE_H
#define GPUALLOC_GROWTH_GROWTH_PROBE_TILE_H

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

/* Number of the step's words that read as they were written. */
GA_SIMT uint32_t ga_growth_probe_check(ga_tile tile, const ga_growth_probe *probe, uint32_t step)
{
    ga_lanes correct_words = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t word = *ga_growth_probe_word(probe, step, own);
        ga_lane_write(&correct_words, own, word == ga_growth_probe_mark(step, own) ? 1u : 0u);
    }
    return ga_lanes_sum(tile, correct_words);
}

GA_SIMT void ga_growth_probe_run(ga_tile tile, ga_growth_probe *probe)
{
    uint32_t correct_words = 0;
    uint32_t state = GA_GROWTH_GRANTED;
    for (uint32_t step = 0; step < GA_GROWTH_PROBE_STEPS && state == GA_GROWTH_GRANTED; step++) {
        state = ga_growth_await(tile, &probe->growth, step + 1u, ga_growth_probe_prepare, probe);
        if (state == GA_GROWTH_GRANTED) {
            correct_words += ga_growth_probe_check(tile, probe, step);
        }
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        probe->state = state;
        probe->correct_words = correct_words;
    }
}

#endif
