/* SPDX-License-Identifier: MIT
 *
 * Rounds of GA_SPGEMM_DYNAMIC, and the gathering of their pieces. Part of device_code.cu.
 *
 * STRUCTURE  A round is a launch, and round_tile.h has its pieces. A warp takes as many pieces as
 *            it has tiles, and each tile merges one of them (merge_tile.h). Shared memory has a
 *            list for each tile.
 *
 * ORDER      None within a round; launches order the rounds.
 *
 * PROGRESS   Nothing waits.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_DYNAMIC_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_DYNAMIC_KERNEL_CUH

#include "../merge_tile.h"
#include "../round_tile.h"
#include "rows_kernel.cuh"
#include "work.h"

/* A lane's piece of a round. */
typedef struct ga_spgemm_own_piece {
    uint64_t number, row;
    bool is_there;
} ga_spgemm_own_piece;

/* Take pieces, one for each of the `tiles` tiles of the warp. Returns false if there are none. */
GA_SIMT bool ga_spgemm_take_pieces(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                   uint32_t tiles, ga_spgemm_own_piece *piece)
{
    uint64_t ticket = 0;
    if (ga_warp_lane() == 0) {
        ticket = atomicAdd((unsigned long long *)&work->totals->tickets, 1ull);
    }
    uint64_t first = __shfl_sync(GA_ALL_BITS, ticket, 0) * tiles;
    uint64_t number = first + ga_warp_lane() / (32u / tiles);
    piece->is_there = number < round->active;
    piece->number = round->first + number;
    piece->row = piece->is_there ? ga_spgemm_row_of(round, piece->number) : 0;
    return first < round->active;
}

/* List the rows of these lanes for the next round. For a warp. */
GA_SIMT void ga_spgemm_list_rows(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                 uint64_t row, bool is_listed)
{
    uint32_t lanes = __ballot_sync(GA_ALL_BITS, is_listed);
    uint64_t before = 0;
    if (lanes && ga_warp_lane() == 0) {
        before = atomicAdd((unsigned long long *)&work->totals->listed, ga_bits_count(lanes));
    }
    before = __shfl_sync(GA_ALL_BITS, before, 0);
    if (is_listed) {
        before += ga_bits_count(lanes & ga_bits_below(ga_warp_lane()));
        round->rows[before] = (uint32_t)row;
    }
}

/* Store the progress of a row, and list it if it is not complete. By all lanes of the warp, of
 * which those with `stores` have a row. */
GA_SIMT void ga_spgemm_end_piece(const ga_spgemm_work *work, const ga_spgemm_round *round,
                                 uint64_t row, bool stores, ga_spgemm_progress merged)
{
    if (stores) {
        work->offsets[row + 1u] += merged.count;
        round->cursors[row] = merged.cursor;
    }
    ga_spgemm_list_rows(work, round, row, stores && merged.has_more);
}

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "dynamic_of_kernel.cuh"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "dynamic_of_kernel.cuh"

/* ---- gathering ------------------------------------------------------------------------------- */

/* Copy all pieces, of elements of 4 or 8 bytes, to their positions in another array. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_gather_kernel(const __grid_constant__ ga_spgemm_round round, const uint64_t *offsets,
                            const void *from, void *to, uint32_t element)
{
    uint32_t lane = threadIdx.x % GA_SPGEMM_GATHER_LANES;
    uint64_t tiles = (uint64_t)gridDim.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_GATHER_LANES);
    uint64_t piece = (uint64_t)blockIdx.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_GATHER_LANES) +
                     threadIdx.x / GA_SPGEMM_GATHER_LANES;
    for (; piece < round.first; piece += tiles) {
        ga_spgemm_copy copy = ga_spgemm_copy_of(&round, offsets, piece);
        for (uint32_t i = lane; i < copy.count; i += GA_SPGEMM_GATHER_LANES) {
            if (element == sizeof(uint64_t)) {
                ((uint64_t *)to)[copy.to + i] = ((const uint64_t *)from)[copy.from + i];
            } else {
                ((uint32_t *)to)[copy.to + i] = ((const uint32_t *)from)[copy.from + i];
            }
        }
    }
}

#endif
