/* SPDX-License-Identifier: MIT
 *
 * Before a product: is the input valid, how many multiplications does it take, how large will it
 * be, and which rows are large. Part of device_code.cu.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_PLAN_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_PLAN_KERNEL_CUH

#include "../order_tile.h"
#include "row_tile.cuh"
#include "work.h"

#include <math.h>

#define GA_SPGEMM_ROW_LANES 8u /* that look at one row together */

/* ---- valid? ---------------------------------------------------------------------------------- */

/* True if the entries of the row are valid; its offsets are. By all lanes of a tile. */
GA_SIMT bool ga_spgemm_is_row(ga_tile tile, const ga_csr *m, uint64_t begin, uint64_t end)
{
    bool valid = true;
    for (uint64_t at = begin; at < end; at += ga_tile_size(tile)) {
        GA_EACH_LANE(tile, ga_spgemm_lanes(tile, end - at), own)
        {
            uint32_t column = m->indices[at + own];
            bool rises = at + own == begin || m->indices[at + own - 1u] < column;
            valid = valid && rises && column < m->columns;
        }
    }
    return valid;
}

/* Rows of `m`, each by a tile. `is_b` for the message. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_check_kernel(const __grid_constant__ ga_csr m, ga_spgemm_totals *totals,
                           uint32_t is_b)
{
    ga_tile tile = ga_tile_of(GA_SPGEMM_ROW_LANES);
    uint64_t tiles = (uint64_t)gridDim.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES);
    uint64_t row = (uint64_t)blockIdx.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES) +
                   threadIdx.x / GA_SPGEMM_ROW_LANES;
    uint64_t last = m.offsets[m.rows];
    for (; row < m.rows; row += tiles) {
        uint64_t begin = m.offsets[row], end = m.offsets[row + 1u];
        bool valid = begin <= end && end <= last && (row || !begin);
        if (!valid || !ga_spgemm_is_row(tile, &m, begin, end)) {
            atomicMin((unsigned long long *)&totals->bad_row, row << 1 | is_b);
        }
    }
}

/* ---- upper bounds ---------------------------------------------------------------------------- */

/* The multiplications that a row takes (vmm-spgemm-2023, Listing 2.2), in all lanes. */
GA_SIMT uint64_t ga_spgemm_upper(ga_tile tile, const ga_csr *a, const ga_csr *b, uint64_t row)
{
    uint64_t upper = 0;
    uint64_t end = a->offsets[row + 1u];
    for (uint64_t at = a->offsets[row] + tile.lane; at < end; at += GA_SPGEMM_AHEAD * tile.width) {
        uint32_t k[GA_SPGEMM_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < GA_SPGEMM_AHEAD; i++) {
            uint64_t own = at + i * tile.width;
            k[i] = a->indices[own < end ? own : at];
        }
#pragma unroll
        for (uint32_t i = 0; i < GA_SPGEMM_AHEAD; i++) {
            uint64_t length = b->offsets[k[i] + 1u] - b->offsets[k[i]];
            upper += at + i * tile.width < end ? length : 0;
        }
    }
    for (uint32_t step = 1; step < tile.width; step *= 2u) {
        upper += __shfl_xor_sync(tile.mask, upper, (int)step);
    }
    return upper;
}

extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_bound_kernel(const __grid_constant__ ga_spgemm_work work)
{
    ga_tile tile = ga_tile_of(GA_SPGEMM_ROW_LANES);
    uint64_t tiles = (uint64_t)gridDim.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES);
    uint64_t row = (uint64_t)blockIdx.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES) +
                   threadIdx.x / GA_SPGEMM_ROW_LANES;
    uint64_t sum = 0, most = 0;
    if (work.totals->bad_row != ~(uint64_t)0) {
        return;
    }
    for (; row < work.a.rows; row += tiles) {
        uint64_t upper = ga_spgemm_upper(tile, &work.a, &work.b, row);
        if (tile.lane == 0) {
            work.uppers[row] = upper < 0xffffffffu ? (uint32_t)upper : 0xffffffffu;
        }
        sum += upper;
        most = upper > most ? upper : most;
    }
    if (tile.lane == 0 && sum) {
        atomicAdd((unsigned long long *)&work.totals->multiplications, sum);
        atomicMax((unsigned long long *)&work.totals->upper_most, most);
    }
}

/* ---- estimate -------------------------------------------------------------------------------- */

#define GA_SPGEMM_COUNTERS 8192u /* bits for a row of the sample */

/* An estimate of the entries of a row of C by linear counting (Whang, Vander-Zanden and Taylor, A
 * Linear-time Probabilistic Counting Algorithm, 1990): each column sets the bit of its hash, and
 * the share of bits that stay 0 tells how many different columns there were. Cohen's estimator
 * (1997) needs 128 hashes of each column for an error of 9 %; this needs one for 1 %. For a warp;
 * the bits are 0. */
GA_SIMT float ga_spgemm_estimate(const ga_csr *a, const ga_csr *b, uint64_t row, uint32_t *bits)
{
    uint32_t lane = ga_warp_lane(), set = 0;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1u]; entry++) {
        uint32_t k = a->indices[entry];
        for (uint64_t at = b->offsets[k] + lane; at < b->offsets[k + 1u]; at += 32u) {
            uint32_t bit = ga_bits_mix(b->indices[at]) % GA_SPGEMM_COUNTERS;
            atomicOr(bits + bit / 32u, 1u << bit % 32u);
        }
    }
    __syncwarp(GA_ALL_BITS);
    for (uint32_t i = lane; i < GA_SPGEMM_COUNTERS / 32u; i += 32u) {
        set += ga_bits_count(bits[i]);
        bits[i] = 0;
    }
    set = ga_lanes_sum(ga_tile_of(32), set);
    return -(float)GA_SPGEMM_COUNTERS * log1pf(-(float)set / (GA_SPGEMM_COUNTERS + 1.0f));
}

/* A warp for each row of the sample. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_estimate_kernel(const __grid_constant__ ga_spgemm_work work)
{
    __shared__ uint32_t bits[GA_SPGEMM_BLOCK / 32u][GA_SPGEMM_COUNTERS / 32u];
    uint64_t sample = blockIdx.x * (GA_SPGEMM_BLOCK / 32u) + threadIdx.x / 32u;
    for (uint32_t i = threadIdx.x; i < GA_SPGEMM_COUNTERS / 4u; i += GA_SPGEMM_BLOCK) {
        ((uint32_t *)bits)[i] = 0; /* of all warps */
    }
    __syncthreads();
    if (work.totals->bad_row != ~(uint64_t)0 || sample >= GA_SPGEMM_SAMPLE) {
        return;
    }
    uint64_t row = work.a.rows <= GA_SPGEMM_SAMPLE
                       ? sample
                       : (uint64_t)((double)work.a.rows / GA_SPGEMM_SAMPLE * (double)sample);
    if (row >= work.a.rows) {
        return;
    }
    uint32_t upper = work.uppers[row];
    if (upper && upper < 1u << GA_SPGEMM_SAMPLE_LOG) {
        float entries = ga_spgemm_estimate(&work.a, &work.b, row, bits[threadIdx.x / 32u]);
        if (ga_warp_lane() == 0) {
            uint32_t rounded = (uint32_t)(entries + 0.5f);
            rounded = rounded < upper ? rounded : upper;
            atomicAdd((unsigned long long *)&work.totals->sample_multiplications, upper);
            atomicAdd((unsigned long long *)&work.totals->sample_entries, rounded);
            atomicAdd(&work.totals->sample_sizes[(uint32_t)ceilf(2.0f * log2f((float)rounded))],
                      1u);
            atomicMax(&work.totals->sample_most[31u - ga_bits_leading(upper)], rounded);
        }
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Whether a row of so many multiplications fits, as far as is known. */
GA_SIMT bool ga_spgemm_fits(ga_spgemm_fit fit, uint32_t upper)
{
    return upper <= fit.upper || ((fit.sizes >> (31u - ga_bits_leading(upper))) & 1u);
}

/* Chooses how large rows are computed: in a hash table, those that fit, unless their columns are
 * close together. Each row by a tile. Bitmaps of `most` columns are not wide; a row is worth a
 * bitmap if it has at most `spread` columns for a multiplication. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_span_kernel(const __grid_constant__ ga_spgemm_work work, uint32_t most, float spread)
{
    ga_tile tile = ga_tile_of(GA_SPGEMM_ROW_LANES);
    uint64_t tiles = (uint64_t)gridDim.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES);
    uint64_t row = (uint64_t)blockIdx.x * (GA_SPGEMM_BLOCK / GA_SPGEMM_ROW_LANES) +
                   threadIdx.x / GA_SPGEMM_ROW_LANES;
    for (; row < work.a.rows; row += tiles) {
        uint32_t upper = work.uppers[row];
        if (ga_spgemm_fits(work.tile_fit, upper)) {
            continue;
        }
        float close = spread * (float)upper; /* columns */
        bool fits = ga_spgemm_fits(work.block_fit, upper);
        float decides = fits && close > (float)most ? close : (float)most;
        ga_spgemm_span span = ga_spgemm_span_of(&work, row, tile.lane, GA_SPGEMM_ROW_LANES, tile,
                                                decides < 4e9f ? (uint32_t)decides : 0xffffffffu);
        uint32_t columns = span.high - span.low / GA_SPGEMM_GROUP * GA_SPGEMM_GROUP;
        bool is_close = (float)columns <= close;
        uint32_t kind = columns > most ? GA_SPGEMM_BY_WIDE : GA_SPGEMM_BY_NARROW;
        if (tile.lane == 0 && (is_close || !fits)) {
            atomicOr(work.kinds + row / 16u, kind << 2u * (row % 16u));
            if (columns <= most && columns > work.totals->span) {
                atomicMax(&work.totals->span, columns);
            }
        }
    }
}

/* Number of pieces of the rows from `row` to `end`, which are stored at `pieces` unless that is
 * NULL. *wide is the number of wide rows before, and afterwards with these. By one lane. */
GA_SIMT uint32_t ga_spgemm_cut(const ga_spgemm_work *work, uint64_t row, uint64_t end,
                               ga_spgemm_piece *pieces, uint32_t *wide)
{
    uint32_t count = 0;
    while (row < end) {
        uint64_t first = row;
        while (row < end && ga_spgemm_fits(work->tile_fit, work->uppers[row])) {
            row++;
        }
        if (row > first) {
            if (pieces) {
                pieces[count] = ga_spgemm_piece{first, (uint32_t)(row - first), 0};
            }
            count++;
        }
        if (row < end) {
            uint32_t kind = (work->kinds[row / 16u] >> 2u * (row % 16u)) & 3u;
            *wide += kind == GA_SPGEMM_BY_WIDE;
            if (pieces) {
                uint32_t bitmap = kind == GA_SPGEMM_BY_WIDE     ? *wide
                                  : kind == GA_SPGEMM_BY_NARROW ? GA_SPGEMM_NARROW
                                                                : GA_SPGEMM_HASHED;
                pieces[count] = ga_spgemm_piece{row, 0, bitmap};
            }
            if (!work->pieces) {
                uint32_t upper = work->uppers[row], size = 31u - ga_bits_leading(upper);
                atomicAdd(&work->totals->large[size], 1u);
                atomicAdd((unsigned long long *)&work->totals->large_multiplications[size], upper);
            }
            count++;
            row++;
        }
    }
    return count;
}

/* Cuts all rows into pieces: each lane those of a block. Without `pieces` it counts them. `order`
 * has two words for each warp: of the pieces, and of the wide rows. */
extern "C" __global__ void __launch_bounds__(GA_SPGEMM_BLOCK)
    ga_spgemm_cut_kernel(const __grid_constant__ ga_spgemm_work work)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t each = GA_SPGEMM_BLOCK / work.width;
    uint64_t bundles = (work.a.rows + each - 1u) / each, warps = (bundles + 31u) / 32u;
    for (;;) {
        uint64_t ticket = 0;
        if (tile.lane == 0) {
            ticket = atomicAdd((unsigned long long *)&work.totals->tickets, 1ull);
        }
        ticket = __shfl_sync(GA_ALL_BITS, ticket, 0);
        if (ticket >= warps) {
            return;
        }
        uint64_t first = (ticket * 32u + tile.lane) * each, end = first + each;
        end = end < work.a.rows ? end : work.a.rows;
        uint32_t wide = 0, count = ga_spgemm_cut(&work, first, end, NULL, &wide);
        uint32_t before = ga_lanes_prefix_sum(tile, count), all = ga_lanes_sum(tile, count);
        uint32_t wide_before = ga_lanes_prefix_sum(tile, wide);
        uint32_t wide_all = ga_lanes_sum(tile, wide);
        uint64_t at = ga_order_position(tile, work.order, ticket, all);
        uint64_t wide_at = ga_order_position(tile, work.order + warps, ticket, wide_all);
        if (work.pieces) {
            wide = (uint32_t)wide_at + wide_before;
            ga_spgemm_cut(&work, first, end, work.pieces + at + before, &wide);
        }
        if (ticket + 1u == warps && tile.lane == 0) {
            work.totals->pieces = at + all;
            work.totals->wide = wide_at + wide_all;
        }
    }
}

#endif
