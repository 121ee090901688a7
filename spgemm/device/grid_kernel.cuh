/* SPDX-License-Identifier: MIT
 *
 * All rounds of GA_SPGEMM_DYNAMIC in one cooperative launch (vmm-spgemm-2023, §6.2). Part of
 * device_code.cu.
 *
 * STRUCTURE  Two barriers a round. Before the first, block 0 waits for the memory of the round, and
 *            hands out tickets from 0 again; between them, the blocks merge the pieces.
 *
 * INVARIANT  All blocks agree on the round: they compute it from the number of listed rows, which
 *            changes only between the two barriers, and each reads it behind the second one.
 *
 * ORDER      GB of grid_tile.h; AG of append.h orders the memory of a round before the barrier.
 *
 * PROGRESS   As grid_tile.h. If there is no memory, block 0 says so before the barrier, and all
 *            blocks end behind it.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_GRID_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_GRID_KERNEL_CUH

#include "../grid_tile.h"
#include "dynamic_kernel.cuh"

/* Barrier number `number`, from 1. By all threads. */
GA_SIMT void ga_spgemm_meet_all(ga_spgemm_grid *grid, uint64_t number)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        ga_spgemm_meet(&grid->arrived, gridDim.x, number);
        __threadfence();
    }
    __syncthreads();
}

/* Wait for the memory of a round, and of the list for the next one. For a warp. */
GA_SIMT void ga_spgemm_await_round(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                   ga_append *rows)
{
    uint64_t pieces = round->first + round->active, listed = pieces - round->all;
    uint64_t backed = 0;
    bool has_room =
        ga_spgemm_await_both(work, round->first * round->size, pieces * round->size, &backed);
    if (has_room && !ga_spgemm_await(rows, listed, listed + round->active, &backed) &&
        ga_warp_lane() == 0) {
        ga_store_relaxed(&work->totals->stop, GA_SPGEMM_STOP_ROWS); /* relaxed: a barrier follows */
    }
}

/* What block 0 does before a round. */
GA_SIMT void ga_spgemm_begin_round(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                   ga_append *rows)
{
    if (blockIdx.x == 0 && threadIdx.x < 32u) {
        ga_spgemm_await_round(work, round, rows);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        round->starts[round->number] = round->first;
        ga_store64_relaxed(&work->totals->tickets, 0); /* relaxed: a barrier follows */
    }
}

/* The results, behind the last round. By one lane. */
GA_SIMT void ga_spgemm_end_rounds(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                  ga_append *rows, ga_spgemm_grid *grid)
{
    uint64_t entries = round->first * round->size;
    grid->first = round->first;
    grid->number = round->number;
    /* relaxed: the host reads them after the kernel */
    ga_store64_relaxed(&work->indices_state->tail, entries);
    ga_store64_relaxed(&work->values_state->tail, entries);
    ga_store64_relaxed(&rows->tail, round->first - round->all);
}

#define GA_SPGEMM_DEFINE_ROUNDS(type)                                                              \
    extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK) ga_spgemm_rounds_kernel_##type(  \
        const __grid_constant__ ga_spgemm_work work, ga_spgemm_round round, ga_spgemm_grid *grid,  \
        ga_append *rows)                                                                           \
    {                                                                                              \
        uint64_t barriers = 0;                                                                     \
        while (round.active) {                                                                     \
            ga_spgemm_begin_round(&work, &round, rows);                                            \
            ga_spgemm_meet_all(grid, ++barriers);                                                  \
            if (ga_load_relaxed(&work.totals->stop)) { /* relaxed: behind the barrier */           \
                return;                                                                            \
            }                                                                                      \
            ga_spgemm_fill_round_##type(&work, &round);                                            \
            ga_spgemm_meet_all(grid, ++barriers);                                                  \
            /* relaxed: behind the barrier */                                                      \
            ga_spgemm_next_round(&round, ga_load64_relaxed(&work.totals->listed));                 \
        }                                                                                          \
        if (blockIdx.x == 0 && threadIdx.x == 0) {                                                 \
            ga_spgemm_end_rounds(&work, &round, rows, grid);                                       \
        }                                                                                          \
    }

GA_SPGEMM_DEFINE_ROUNDS(f64)
GA_SPGEMM_DEFINE_ROUNDS(f32)

#endif
