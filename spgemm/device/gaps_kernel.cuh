/* SPDX-License-Identifier: MIT
 *
 * Closes the gaps between rows that were stored at their upper bounds. Part of device_code.cu.
 *
 * STRUCTURE  Blocks take the pieces of the rows in their order. The numbers of entries are known,
 *            so a block finds the final position of its piece at once. It loads up to
 *            GA_SPGEMM_CHUNK entries into shared memory, and stores them there.
 *
 * INVARIANT  No entry moves up. So the positions to which a block moves its entries were, before,
 *            those of its own rows and of earlier pieces.
 *
 * ORDER      GL (loaded): a block sets the flag of its piece when it has loaded all entries. It
 *            stores where an earlier piece was only after that piece's flag.
 *
 * PROGRESS   A block waits only for earlier pieces, whose blocks began before.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_GAPS_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_GAPS_KERNEL_CUH

#include "../order_tile.h"
#include "scan_kernel.cuh"

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
    bool is_double = work->a.type == GA_FLOAT64;
    uint32_t row = 0;
    for (uint64_t entry = at + threadIdx.x; entry < end; entry += GA_SPGEMM_BLOCK) {
        uint32_t slot = (uint32_t)(entry - at);
        while (row + 1u < rows && entry >= gaps->to[row + 1u]) {
            row++;
        }
        uint64_t from = gaps->from[row] + (entry - gaps->to[row]), to = gaps->position + entry;
        if (loads) {
            gaps->indices[slot] = work->indices[from];
            gaps->values[slot] = is_double ? values64[from] : values32[from];
        } else {
            work->indices[to] = gaps->indices[slot];
            if (is_double) {
                values64[to] = gaps->values[slot];
            } else {
                values32[to] = (uint32_t)gaps->values[slot];
            }
        }
    }
    __syncthreads();
}

/* The piece in which a position was when each row had its upper bound. */
GA_SIMT uint64_t ga_spgemm_piece_at(const ga_spgemm_work *work, uint64_t position)
{
    uint64_t first = 0, last = work->piece_count - 1u;
    while (first < last) {
        uint64_t middle = first + (last - first) / 2u;
        if (ga_spgemm_known(work, middle + 1u) > position) {
            last = middle;
        } else {
            first = middle + 1u;
        }
    }
    return first;
}

/* Wait until the earlier pieces that were where this one goes have been loaded. */
GA_SIMT void ga_spgemm_await_loaded(const ga_spgemm_work *work, const ga_spgemm_gaps *gaps,
                                    const uint32_t *loaded, uint64_t count)
{
    uint64_t piece = ga_spgemm_piece_at(work, gaps->position) + threadIdx.x;
    uint64_t last = ga_spgemm_piece_at(work, gaps->position + count - 1u);
    for (; piece <= last && piece < gaps->piece; piece += GA_SPGEMM_BLOCK) {
        while (!ga_load_acquire(loaded + piece)) { /* XL2: acquire. Pairs with XL1. */
            ga_clock_sleep(100);
        }
    }
    __syncthreads();
}

/* All entries of the piece have been loaded by this block. */
GA_SIMT void ga_spgemm_set_loaded(const ga_spgemm_gaps *gaps, uint32_t *loaded)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        ga_store_release(loaded + gaps->piece, 1u); /* XL1: release. Pairs with XL2. */
    }
}

/* Move the entries of a piece. */
GA_SIMT void ga_spgemm_move_piece(const ga_spgemm_work *work, ga_spgemm_gaps *gaps, uint64_t *ends,
                                  uint32_t *loaded, uint32_t rows)
{
    uint64_t count = gaps->to[rows];
    if (threadIdx.x < 32u) {
        gaps->position = ga_order_position(ga_tile_of(32), ends, gaps->piece, (uint32_t)count);
    }
    __syncthreads();
    for (uint64_t at = 0; at < count; at += GA_SPGEMM_CHUNK) {
        uint64_t end = count - at < GA_SPGEMM_CHUNK ? count : at + GA_SPGEMM_CHUNK;
        ga_spgemm_move(work, gaps, rows, at, end, true);
        if (end == count) {
            ga_spgemm_set_loaded(gaps, loaded);
        }
        if (at == 0) {
            ga_spgemm_await_loaded(work, gaps, loaded, count);
        }
        ga_spgemm_move(work, gaps, rows, at, end, false);
    }
    if (!count) {
        ga_spgemm_set_loaded(gaps, loaded);
    }
}

/* `ends` and `loaded` have a zeroed word for each piece. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_gaps_kernel(const __grid_constant__ ga_spgemm_work work, uint64_t *ends,
                          uint32_t *loaded)
{
    __shared__ ga_spgemm_gaps gaps;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            gaps.piece = atomicAdd((unsigned long long *)&work.totals->tickets, 1ull);
        }
        __syncthreads();
        if (gaps.piece >= work.piece_count) {
            return;
        }
        uint64_t row;
        uint32_t rows = ga_spgemm_rows_of(&work, gaps.piece, &row);
        if (threadIdx.x == 0) {
            ga_spgemm_find_rows(&work, &gaps, row, rows);
        }
        __syncthreads();
        ga_spgemm_move_piece(&work, &gaps, ends, loaded, rows);
        for (uint32_t i = threadIdx.x; i < rows; i += GA_SPGEMM_BLOCK) {
            work.offsets[row + i + 1u] = gaps.position + gaps.to[i + 1u];
        }
    }
}

#endif
