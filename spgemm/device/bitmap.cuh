/* SPDX-License-Identifier: MIT
 *
 * The columns of a large row of C as a bitmap, which all threads of a block use. Part of
 * device_code.cu.
 *
 * STRUCTURE  First each column of the row is marked by a bit. Then the block counts the bits: the
 *            rank of a column, the number of lower ones, is the place of its entry in the sorted
 *            row. So nothing is hashed or sorted, the length of the row is known before any value
 *            has been loaded, and the sums are added where they belong in C. Bits are cut into
 *            groups of four words, which one load takes, with the rank of each group; and into at
 *            most GA_SPGEMM_CHUNKS chunks, so that those without a column are skipped.
 *
 * INVARIANT  Between rows all bits are 0. A chunk that has a bit has its bit in `used`.
 *
 * ORDER      Bits are marked by relaxed atomics; __syncthreads() is between marking and reading
 *            them, and between adding to values and whatever follows.
 *
 * PROGRESS   Nothing waits but the block for its threads.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_BITMAP_CUH
#define GPUALLOC_SPGEMM_DEVICE_BITMAP_CUH

#include "work.h"

#include "simt/simt.h"

#define GA_SPGEMM_WARPS    (GA_SPGEMM_BLOCK / 32u)
#define GA_SPGEMM_SEGMENTS 64u /* parts of a bitmap that warps count */

/* Columns from `low` on. In shared memory, but for the arrays of a wide row. */
typedef struct ga_spgemm_bitmap {
    uint32_t *bits, *ranks; /* of columns; of groups */
    uint32_t low;           /* a multiple of GA_SPGEMM_GROUP */
    uint32_t high;          /* columns from here on do not belong to it */
    uint32_t chunk_log;     /* columns of a chunk, their logarithm */
    bool is_wide;           /* the arrays are in device memory */
    bool is_ranked;         /* the ranks are known */
    uint32_t used[GA_SPGEMM_CHUNKS / 32u];
} ga_spgemm_bitmap;

/* Mark a column, or return its rank once ranks are known. By one lane. */
GA_SIMT uint32_t ga_spgemm_mark_or_rank(ga_spgemm_bitmap *bitmap, uint32_t column)
{
    uint32_t at = column - bitmap->low, word = at / 32u, bit = 1u << at % 32u;
    if (bitmap->is_ranked) {
        uint4 group = *(const uint4 *)(bitmap->bits + (word & ~3u));
        uint32_t rank = bitmap->ranks[at / GA_SPGEMM_GROUP], i = word & 3u;
        uint32_t own = i == 0 ? group.x : i == 1u ? group.y : i == 2u ? group.z : group.w;
        rank += i > 0 ? ga_bits_count(group.x) : 0;
        rank += i > 1u ? ga_bits_count(group.y) : 0;
        rank += i > 2u ? ga_bits_count(group.z) : 0;
        return rank + ga_bits_count(own & (bit - 1u));
    }
    /* A bit in device memory is not loaded before, because that takes as long as to set it. */
    if (bitmap->is_wide || !(*(volatile uint32_t *)(bitmap->bits + word) & bit)) {
        atomicOr(bitmap->bits + word, bit);
    }
    uint32_t chunk = at >> bitmap->chunk_log, chunk_bit = 1u << chunk % 32u;
    if (!(*(volatile uint32_t *)(bitmap->used + chunk / 32u) & chunk_bit)) {
        atomicOr(bitmap->used + chunk / 32u, chunk_bit);
    }
    return 0;
}

/* The columns of a row of C: from `low` to below `high`. */
typedef struct ga_spgemm_span {
    uint32_t low, high;
} ga_spgemm_span;

/* The span of a row, in all lanes of a tile. A lane looks at each `stride`-th row of B that the row
 * takes, from number `first` on, which differs in each lane. It ends early if its own span has more
 * than `most` columns. */
GA_SIMT ga_spgemm_span ga_spgemm_span_of(const ga_spgemm_work *work, uint64_t row, uint32_t first,
                                         uint32_t stride, ga_tile tile, uint32_t most)
{
    ga_spgemm_span span = {0xffffffffu, 0};
    uint64_t at = work->a.offsets[row] + first, last = work->a.offsets[row + 1u];
    for (; at < last && (span.low > span.high || span.high - span.low <= most);
         at += GA_SPGEMM_AHEAD * stride) {
        uint64_t begin[GA_SPGEMM_AHEAD], end[GA_SPGEMM_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < GA_SPGEMM_AHEAD; i++) {
            uint64_t own = at + i * stride;
            uint32_t k = work->a.indices[own < last ? own : at]; /* one twice does no harm */
            begin[i] = work->b.offsets[k];
            end[i] = work->b.offsets[k + 1u];
        }
#pragma unroll
        for (uint32_t i = 0; i < GA_SPGEMM_AHEAD; i++) {
            if (begin[i] < end[i]) {
                uint32_t low = work->b.indices[begin[i]], high = work->b.indices[end[i] - 1u] + 1u;
                span.low = low < span.low ? low : span.low;
                span.high = high > span.high ? high : span.high;
            }
        }
    }
    for (uint32_t step = 1; step < tile.width; step *= 2u) {
        uint32_t low = __shfl_xor_sync(tile.mask, span.low, (int)step);
        uint32_t high = __shfl_xor_sync(tile.mask, span.high, (int)step);
        span.low = low < span.low ? low : span.low;
        span.high = high > span.high ? high : span.high;
    }
    return span;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Number of chunks. */
GA_SIMT uint32_t ga_spgemm_chunks(const ga_spgemm_bitmap *bitmap)
{
    return ((bitmap->high - 1u - bitmap->low) >> bitmap->chunk_log) + 1u;
}

/* The first chunk from `chunk` on that has a column; `end` if none below that has. */
GA_SIMT uint32_t ga_spgemm_next_chunk(const ga_spgemm_bitmap *bitmap, uint32_t chunk, uint32_t end)
{
    while (chunk < end) {
        uint32_t used = bitmap->used[chunk / 32u] & ~ga_bits_below(chunk % 32u);
        if (used) {
            chunk = chunk / 32u * 32u + ga_bits_lowest(used);
            return chunk < end ? chunk : end;
        }
        chunk = (chunk | 31u) + 1u;
    }
    return end;
}

/* A warp's groups of a chunk: one in each lane. */
typedef struct ga_spgemm_groups {
    uint32_t own, end;
} ga_spgemm_groups;

GA_SIMT ga_spgemm_groups ga_spgemm_groups_of(const ga_spgemm_bitmap *bitmap, uint32_t chunk)
{
    uint32_t count = (1u << bitmap->chunk_log) / GA_SPGEMM_GROUP, first = chunk * count;
    ga_spgemm_groups groups = {first + ga_warp_lane(), first + count};
    return groups;
}

GA_SIMT uint4 *ga_spgemm_group_bits(const ga_spgemm_bitmap *bitmap, uint32_t group)
{
    return (uint4 *)bitmap->bits + group;
}

GA_SIMT uint32_t ga_spgemm_count_group(uint4 bits)
{
    return ga_bits_count(bits.x) + ga_bits_count(bits.y) + ga_bits_count(bits.z) +
           ga_bits_count(bits.w);
}

/* Store the columns of a word, the first of which is `low`. Returns where the next ones belong. */
GA_SIMT uint32_t *ga_spgemm_store_word(uint32_t bits, uint32_t low, uint32_t *columns)
{
    for (; bits; bits &= bits - 1u) {
        *columns++ = low + ga_bits_lowest(bits);
    }
    return columns;
}

/* The chunks of a segment: the segments have as many each, in order. */
typedef struct ga_spgemm_segment {
    uint32_t first, end;
} ga_spgemm_segment;

GA_SIMT ga_spgemm_segment ga_spgemm_segment_of(const ga_spgemm_bitmap *bitmap, uint32_t number)
{
    uint32_t chunks = ga_spgemm_chunks(bitmap);
    uint32_t each = (chunks + GA_SPGEMM_SEGMENTS - 1u) / GA_SPGEMM_SEGMENTS;
    uint32_t first = number * each, end = first + each;
    ga_spgemm_segment segment = {first, end < chunks ? end : chunks};
    return segment;
}

/* Number of columns of a segment. By a warp. */
GA_SIMT uint32_t ga_spgemm_count_segment(const ga_spgemm_bitmap *bitmap, uint32_t number)
{
    ga_spgemm_segment segment = ga_spgemm_segment_of(bitmap, number);
    uint32_t count = 0;
    uint32_t chunk = ga_spgemm_next_chunk(bitmap, segment.first, segment.end);
    while (chunk < segment.end) {
        ga_spgemm_groups groups = ga_spgemm_groups_of(bitmap, chunk);
        for (; groups.own < groups.end; groups.own += 32u) {
            count += ga_spgemm_count_group(*ga_spgemm_group_bits(bitmap, groups.own));
        }
        chunk = ga_spgemm_next_chunk(bitmap, chunk + 1u, segment.end);
    }
    return ga_lanes_sum(ga_tile_of(32), count);
}

/* Set the ranks of a segment's groups, and store its columns; `rank` is that of its first column.
 * By a warp. */
GA_SIMT void ga_spgemm_rank_segment(ga_spgemm_bitmap *bitmap, uint32_t number, uint32_t rank,
                                    uint32_t *columns)
{
    ga_tile tile = ga_tile_of(32);
    ga_spgemm_segment segment = ga_spgemm_segment_of(bitmap, number);
    uint32_t chunk = ga_spgemm_next_chunk(bitmap, segment.first, segment.end);
    while (chunk < segment.end) {
        ga_spgemm_groups groups = ga_spgemm_groups_of(bitmap, chunk);
        for (; groups.own < groups.end; groups.own += 32u) {
            uint4 bits = *ga_spgemm_group_bits(bitmap, groups.own);
            uint32_t count = ga_spgemm_count_group(bits);
            uint32_t own = rank + ga_lanes_prefix_sum(tile, count);
            uint32_t low = bitmap->low + groups.own * GA_SPGEMM_GROUP, *to = columns + own;
            bitmap->ranks[groups.own] = own;
            rank += ga_lanes_sum(tile, count);
            to = ga_spgemm_store_word(bits.x, low, to);
            to = ga_spgemm_store_word(bits.y, low + 32u, to);
            to = ga_spgemm_store_word(bits.z, low + 64u, to);
            ga_spgemm_store_word(bits.w, low + 96u, to);
        }
        chunk = ga_spgemm_next_chunk(bitmap, chunk + 1u, segment.end);
    }
}

/* Clear the bits of a segment. By a warp. */
GA_SIMT void ga_spgemm_clear_segment(ga_spgemm_bitmap *bitmap, uint32_t number)
{
    ga_spgemm_segment segment = ga_spgemm_segment_of(bitmap, number);
    uint32_t chunk = ga_spgemm_next_chunk(bitmap, segment.first, segment.end);
    while (chunk < segment.end) {
        ga_spgemm_groups groups = ga_spgemm_groups_of(bitmap, chunk);
        for (; groups.own < groups.end; groups.own += 32u) {
            *ga_spgemm_group_bits(bitmap, groups.own) = make_uint4(0, 0, 0, 0);
        }
        chunk = ga_spgemm_next_chunk(bitmap, chunk + 1u, segment.end);
    }
}

/* ---- by all threads of a block --------------------------------------------------------------- */

/* Begin a bitmap for the columns from `low` to below `high`. */
GA_SIMT void ga_spgemm_open_bitmap(ga_spgemm_bitmap *bitmap, uint32_t low, uint32_t high,
                                   uint32_t chunk_log)
{
    bitmap->low = low / GA_SPGEMM_GROUP * GA_SPGEMM_GROUP; /* all threads store one value */
    bitmap->high = high;
    bitmap->chunk_log = chunk_log;
    bitmap->is_ranked = false;
    __syncthreads();
}

/* Clear all bits. */
GA_SIMT void ga_spgemm_clear_bitmap(ga_spgemm_bitmap *bitmap)
{
    for (uint32_t i = threadIdx.x / 32u; i < GA_SPGEMM_SEGMENTS; i += GA_SPGEMM_WARPS) {
        ga_spgemm_clear_segment(bitmap, i);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < GA_SPGEMM_CHUNKS / 32u; i += GA_SPGEMM_BLOCK) {
        bitmap->used[i] = 0;
    }
    __syncthreads();
}

#endif
