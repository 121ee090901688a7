/* SPDX-License-Identifier: MIT
 *
 * Closes the gaps between rows that were stored at their upper bounds. Part of device_code.cu.
 *
 * STRUCTURE  Blocks take the pieces of the rows in their order. A block loads up to
 *            GA_SPGEMM_CHUNK entries of a piece into shared memory, and stores them at their final
 *            position.
 *
 * INVARIANT  No entry moves up. So the positions to which a block moves its entries were, before,
 *            those of its own rows and of earlier ones.
 *
 * ORDER      GF: a block stores its length or end, by which later blocks find their positions, when
 *            it has loaded all of its entries. A fence before that store, and one after the loads
 *            that find a position, order the loads of a block before the stores of later ones. So a
 *            block that knows its position may overwrite the entries of earlier blocks.
 *
 * PROGRESS   As order_tile.h.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_GAPS_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_GAPS_KERNEL_CUH

#include "../order_tile.h"
#include "rows_kernel.cuh"

#define GA_SPGEMM_CHUNK 2048u

/* Shared memory of a block. */
typedef struct ga_spgemm_gaps {
    uint64_t piece, position;
    uint64_t from[GA_SPGEMM_ROWS_MAX];    /* where the rows begin */
    uint64_t to[GA_SPGEMM_ROWS_MAX + 1u]; /* where they will begin, from the piece's beginning */
    uint64_t values[GA_SPGEMM_CHUNK];     /* 4 or 8 bytes each */
    uint32_t indices[GA_SPGEMM_CHUNK];
} ga_spgemm_gaps;

/* Find where the rows of a piece begin, and will begin. By one thread. */
GA_SIMT void ga_spgemm_find_rows(const ga_spgemm_work *work, ga_spgemm_gaps *gaps, uint64_t row,
                                 uint32_t rows)
{
    uint64_t from = ga_spgemm_known(work, gaps->piece), to = 0;
    for (uint32_t i = 0; i < rows; i++) {
        gaps->from[i] = from;
        gaps->to[i] = to;
        from += work->uppers[row + i];
        to += work->offsets[row + i + 1u]; /* the number of entries */
    }
    gaps->to[rows] = to;
}

/* Load the entries from `at` to `end` of the piece, or store them. */
GA_SIMT void ga_spgemm_move(const ga_spgemm_work *work, ga_spgemm_gaps *gaps, uint32_t rows,
                            uint64_t at, uint64_t end, bool loads)
{
    uint64_t *values64 = (uint64_t *)work->values;
    uint32_t *values32 = (uint32_t *)work->values;
    bool is_wide = work->a.type == GA_FLOAT64;
    uint32_t row = 0;
    for (uint64_t entry = at + threadIdx.x; entry < end; entry += GA_SPGEMM_BLOCK) {
        uint32_t slot = (uint32_t)(entry - at);
        while (row + 1u < rows && entry >= gaps->to[row + 1u]) {
            row++;
        }
        uint64_t from = gaps->from[row] + (entry - gaps->to[row]), to = gaps->position + entry;
        if (loads) {
            gaps->indices[slot] = work->indices[from];
            gaps->values[slot] = is_wide ? values64[from] : values32[from];
        } else {
            work->indices[to] = gaps->indices[slot];
            if (is_wide) {
                values64[to] = gaps->values[slot];
            } else {
                values32[to] = (uint32_t)gaps->values[slot];
            }
        }
    }
    __syncthreads();
}

/* Find the position of the piece, by `ends`; first store its length if `length` is not 0. */
GA_SIMT void ga_spgemm_find_position(ga_spgemm_gaps *gaps, uint64_t *ends, uint32_t length)
{
    __threadfence(); /* GF */
    __syncthreads();
    if (threadIdx.x < 32u) {
        gaps->position = length ? ga_order_position(ga_tile_of(32), ends, gaps->piece, length)
                                : ga_order_before(ga_tile_of(32), ends, gaps->piece);
    }
    __threadfence(); /* GF */
    __syncthreads();
}

/* Move the entries of a piece. */
GA_SIMT void ga_spgemm_move_piece(const ga_spgemm_work *work, ga_spgemm_gaps *gaps, uint64_t *ends,
                                  uint32_t rows)
{
    uint64_t count = gaps->to[rows];
    if (count && count <= GA_SPGEMM_CHUNK) {
        ga_spgemm_move(work, gaps, rows, 0, count, true);
        ga_spgemm_find_position(gaps, ends, (uint32_t)count);
        ga_spgemm_move(work, gaps, rows, 0, count, false);
        return;
    }
    ga_spgemm_find_position(gaps, ends, 0);
    for (uint64_t at = 0; at < count; at += GA_SPGEMM_CHUNK) {
        uint64_t end = count - at < GA_SPGEMM_CHUNK ? count : at + GA_SPGEMM_CHUNK;
        ga_spgemm_move(work, gaps, rows, at, end, true);
        ga_spgemm_move(work, gaps, rows, at, end, false);
    }
    __threadfence(); /* GF */
    __syncthreads();
    if (threadIdx.x < 32u) {
        ga_order_store(ga_tile_of(32), ends, gaps->piece, GA_ORDER_END | (gaps->position + count));
    }
}

/* `ends` has a zeroed word for each piece. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_gaps_kernel(const __grid_constant__ ga_spgemm_work work, uint64_t *ends)
{
    __shared__ ga_spgemm_gaps gaps;
    uint32_t each = GA_SPGEMM_BLOCK / work.width;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            gaps.piece = atomicAdd((unsigned long long *)&work.totals->tickets, 1ull);
        }
        __syncthreads();
        if (gaps.piece >= work.piece_count) {
            return;
        }
        uint64_t row = work.pieces ? work.pieces[gaps.piece].row : gaps.piece * each;
        uint64_t left = work.a.rows - row;
        uint32_t rows = work.pieces ? work.pieces[gaps.piece].count : each;
        rows = !rows ? 1u : rows < left ? rows : (uint32_t)left; /* one window is a row */
        if (threadIdx.x == 0) {
            ga_spgemm_find_rows(&work, &gaps, row, rows);
        }
        __syncthreads();
        ga_spgemm_move_piece(&work, &gaps, ends, rows);
        for (uint32_t i = threadIdx.x; i < rows; i += GA_SPGEMM_BLOCK) {
            work.offsets[row + i + 1u] = gaps.position + gaps.to[i + 1u];
        }
    }
}

#endif
