/* SPDX-License-Identifier: MIT
 *
 * The next entries of a row of C = A B in the order of their columns: the rows of B that A's row
 * names are merged. merge_of_tile.h has the merge for each type of values.
 *
 * STRUCTURE  Each lane has an entry (i, k) of A's row i and a position in row k of B. In a step the
 *            tile finds the least column at these positions, adds up the products of the lanes that
 *            have it, stores both, and these lanes go on. A row of A with more entries than lanes
 *            is merged in groups: each group merges its rows of B with the list of the groups
 *            before. The lists are in the place of the result and in a spare one, by turns, so that
 *            the last one is the result.
 *
 * INVARIANT  Columns ascend, also from call to call: a call begins at the cursor, where the last
 *            one ended. No list is longer than the room, so a group that has more drops only
 *            columns behind the result; they are found again from the next cursor on.
 *
 * ORDER      ga_tile_sync() orders the lanes of a tile between two groups.
 *
 * PROGRESS   Nothing waits. A group costs one binary search for each lane, and at most as many
 *            steps as the room has entries. Positions kept in memory would save the searches, but
 *            long rows of A would need that memory.
 *
 * All tiles of a warp call together (ga_tile_abreast()); a tile without a row has no entries of A.
 */
#ifndef GPUALLOC_SPGEMM_MERGE_TILE_H
#define GPUALLOC_SPGEMM_MERGE_TILE_H

#include "csr_tile.h"
#include "round_tile.h"

/* The positions of a group. */
typedef struct ga_merge_heads {
    ga_lanes begin_low, begin_high; /* the first entry of the row of B from the cursor on */
    ga_lanes length;                /* entries from there on */
    ga_lanes done;                  /* of these */
    ga_lanes column;                /* of the entry behind those, or GA_SPGEMM_EMPTY */
} ga_merge_heads;

/* The position of a lane. By one lane. */
GA_SIMT uint64_t ga_merge_position(const ga_merge_heads *heads, uint32_t lane)
{
    uint64_t begin = (uint64_t)ga_lane_read(heads->begin_high, lane) << 32 |
                     ga_lane_read(heads->begin_low, lane);
    return begin + ga_lane_read(heads->done, lane);
}

/* The rows of B for the entries of A from `at` on, from the cursor on. */
GA_SIMT ga_merge_heads ga_merge_load(ga_tile tile, const ga_csr *a, const ga_csr *b, uint64_t at,
                                     uint64_t end, uint32_t cursor)
{
    ga_merge_heads heads;
    heads.begin_low = heads.begin_high = heads.length = heads.done = ga_lanes_all(0);
    heads.column = ga_lanes_all(GA_SPGEMM_EMPTY);
    GA_EACH_LANE(tile, ga_spgemm_lanes(tile, at < end ? end - at : 0), own)
    {
        uint32_t k = a->indices[at + own];
        uint64_t begin = b->offsets[k], last = b->offsets[k + 1ull];
        begin = cursor ? ga_spgemm_find(b, begin, last, cursor) : begin;
        ga_lane_write(&heads.begin_low, own, (uint32_t)begin);
        ga_lane_write(&heads.begin_high, own, (uint32_t)(begin >> 32));
        ga_lane_write(&heads.length, own, (uint32_t)(last - begin));
        ga_lane_write(&heads.column, own, begin < last ? b->indices[begin] : GA_SPGEMM_EMPTY);
    }
    return heads;
}

/* The lanes that have the column. */
GA_SIMT uint32_t ga_merge_matching(ga_tile tile, const ga_merge_heads *heads, uint32_t column)
{
    return ga_lanes_nonzero(tile, (ga_lanes)(heads->column == ga_lanes_all(column)));
}

/* These lanes go on to the next entry of their rows. */
GA_SIMT void ga_merge_advance(ga_tile tile, const ga_csr *b, ga_merge_heads *heads, uint32_t lanes)
{
    GA_EACH_LANE(tile, lanes, own)
    {
        uint32_t done = ga_lane_read(heads->done, own) + 1u;
        bool is_last = done == ga_lane_read(heads->length, own);
        ga_lane_write(&heads->done, own, done);
        uint32_t column = is_last ? GA_SPGEMM_EMPTY : b->indices[ga_merge_position(heads, own)];
        ga_lane_write(&heads->column, own, column);
    }
}

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "merge_of_tile.h"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "merge_of_tile.h"

#endif
