/* SPDX-License-Identifier: MIT
 *
 * What a kernel has of a slab hash in device memory: a tile's turn, one operation of the tile's, and one
 * operation of each lane's. For gpualloc/slabhash.cuh, which includes it and says how to use it.
 *
 * STRUCTURE  ga_slabhash_turn_begin()   a tile begins to use the table
 *            ga_slabhash_tile()         one operation, by the whole tile
 *            ga_slabhash_lanes()        one of each lane that asks, whichever
 *            ga_slabhash_turn_end()     what the tile has claimed goes back
 */
#ifndef GPUALLOC_SLABHASH_TURN_KERNEL_CUH
#define GPUALLOC_SLABHASH_TURN_KERNEL_CUH

#include "many_tile.h"
#include "use_tile.h"

#ifdef GA_SLABHASH_GROWING_KINDS
#include "grow_turn_tile.h"
#endif

/* One in so many searches may peek in vain, or the warp's next rounds, so many, do without. By what an
 * H200 does from 830 MiB, 39 G sectors a second and 32.5 G slabs, it is one in six. */
enum {
    GA_SLABHASH_PEEKS_AMONG = 6,
    GA_SLABHASH_BLIND = 31
};

/* ---- in programs with checks ----------------------------------------------------------------- */

#ifdef GA_SLABHASH_CHECKED
/* A tile begins to use the table; whether it may is noted behind the word. */
static __device__ __forceinline__ void ga_slabhash_tile_begins(ga_slabhash_view table, ga_tile tile,
                                                               bool alone)
{
    GA_EACH_LANE(tile, table.use ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (ga_slabhash_use_conflicts(ga_slabhash_use_begin(table.use, alone), alone)) {
            ga_post_add64_relaxed(table.use + 1, 1); /* relaxed: read after the kernels */
        }
    }
    ga_tile_sync(tile);
}

static __device__ __forceinline__ void ga_slabhash_tile_ends(ga_slabhash_view table, ga_tile tile,
                                                             bool alone)
{
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, table.use ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_slabhash_use_end(table.use, alone);
    }
}
#else
#define ga_slabhash_tile_begins(table, tile, alone) ((void)0)
#define ga_slabhash_tile_ends(table, tile, alone)   ((void)0)
#endif

/* ---- in kernels ---------------------------------------------------------------------------- */

/* What a tile keeps between its operations; in registers. All 8 lanes of a tile are there and call
 * together: blocks are whole tiles, of one dimension. End it, or the slabs that it has claimed
 * ahead stay taken, and of a table that grows in kernels all arrays from then on. */
typedef struct ga_slabhash_turn {
    ga_slabhash_view table;
    ga_tile tile;
    ga_slab_claimed claimed;
    uint32_t blind; /* rounds of searches that do not peek, still (many_tile.h) */
#ifdef GA_SLABHASH_GROWING_KINDS
    ga_slabhash_stand stand; /* of a table that grows */
#endif
} ga_slabhash_turn;

/* Of the grid's. */
static __device__ __forceinline__ uint32_t ga_slabhash_tile_number(void)
{
    return (blockIdx.x * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE;
}

/* A turn of a table that grows begins: what its tile, which has that number, knows of that. */
static __device__ __forceinline__ void ga_slabhash_turn_stands(ga_slabhash_turn *turn,
                                                               uint32_t number)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    turn->stand = ga_slabhash_stand{};
    if (turn->table.growing) {
        ga_slabhash_stand_begin(turn->table.growing, turn->tile, &turn->stand, number);
    }
#else
    (void)turn;
    (void)number;
#endif
}

static __device__ __forceinline__ ga_slabhash_turn ga_slabhash_turn_begin(ga_slabhash_view table)
{
    ga_slabhash_turn turn;
    uint32_t number = ga_slabhash_tile_number();
    turn.table = table;
    turn.tile = ga_tile_of(GA_SLABHASH_TILE);
    turn.claimed = ga_slabhash_claim_begin(number);
    turn.blind = 0;
    ga_slabhash_tile_begins(table, turn.tile, false);
    ga_slabhash_turn_stands(&turn, number);
    return turn;
}

/* The same in kernels for one kind: it is known here whether a table of that grows. */
template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_turn ga_slabhash_turn_of(ga_slabhash_view table)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    table.growing = GA_SLABHASH_IS_GROWING(kind) ? table.growing : NULL;
#endif
    return ga_slabhash_turn_begin(table);
}

static __device__ __forceinline__ void ga_slabhash_turn_end(ga_slabhash_turn *turn)
{
    ga_slabhash_claim_end(turn->table, turn->tile, &turn->claimed);
#ifdef GA_SLABHASH_GROWING_KINDS
    if (turn->table.growing) {
        uint32_t number = ga_slabhash_tile_number();
        if (number % GA_SLABHASH_SELDOM == 0) {
            ga_slabhash_tidy_up(turn->table.growing, turn->stand.clock,
                                number % GA_SLABHASH_RARELY == GA_SLABHASH_RARELY / 2u);
        } else {
            ga_slabhash_stand_end(turn->table.growing, turn->tile, &turn->stand);
        }
    }
#endif
    ga_slabhash_tile_ends(turn->table, turn->tile, false);
}

/* One operation by the whole tile: the same in each of its lanes. `kind` is GA_SLABHASH_KIND(mode,
 * multi), and the table's, with or without GA_SLABHASH_STEPWISE: for one of another kind, and keys
 * and values too wide for it, the answer is GA_SLABHASH_REFUSED. `op` and `how` as in
 * ga_slabhash_batch. Answers the result and what was there. */
template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_tile(ga_slabhash_turn *turn, uint32_t op, uint64_t key, uint64_t value,
                 uint32_t how = GA_SLABHASH_ADD)
{
    ga_slabhash_operation to;
    if (turn->table.kind != GA_SLABHASH_KIND_OF_TABLE(kind)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    to.key = key;
    to.value = value;
    to.op = op;
    to.how = how;
    to.function = NULL;
    to.context = NULL;
#ifdef GA_SLABHASH_GROWING_KINDS
    if (GA_SLABHASH_IS_GROWING(kind)) {
        return ga_slabhash_do_standing(kind, turn->table, turn->table.growing, turn->tile,
                                       &turn->claimed, &turn->stand,
                                       GA_SLABHASH_HASH(turn->table, key), to);
    }
#endif
    return ga_slabhash_do(kind, turn->table, turn->tile, &turn->claimed,
                          GA_SLABHASH_HASH(turn->table, key), to);
}

/* What changes in a turn, in tables that do not grow; and in those that do. */
template <bool grows> struct ga_slabhash_kept {
    ga_slab_claimed claimed;
};

static __device__ __forceinline__ void ga_slabhash_keep(ga_slabhash_kept<false> *kept,
                                                        const ga_slabhash_turn *turn)
{
    kept->claimed = turn->claimed;
}

static __device__ __forceinline__ void ga_slabhash_go_on(ga_slabhash_turn *turn,
                                                         const ga_slabhash_kept<false> *kept)
{
    turn->claimed = kept->claimed;
}

#ifdef GA_SLABHASH_GROWING_KINDS
template <> struct ga_slabhash_kept<true> {
    ga_slab_claimed claimed;
    ga_slabhash_stand stand;
};

static __device__ __forceinline__ void ga_slabhash_keep(ga_slabhash_kept<true> *kept,
                                                        const ga_slabhash_turn *turn)
{
    kept->claimed = turn->claimed;
    kept->stand = turn->stand;
}

static __device__ __forceinline__ void ga_slabhash_go_on(ga_slabhash_turn *turn,
                                                         const ga_slabhash_kept<true> *kept)
{
    turn->claimed = kept->claimed;
    turn->stand = kept->stand;
}
#endif

/* The same as a function of its own, so that its registers are not its callers'. */
template <uint32_t kind> struct ga_slabhash_alone {
    ga_slabhash_answer answer;
    ga_slabhash_kept<GA_SLABHASH_IS_GROWING(kind)> kept;
};

template <uint32_t kind>
static __device__ __noinline__ ga_slabhash_alone<kind>
ga_slabhash_tile_alone(ga_slabhash_view table, ga_slabhash_kept<GA_SLABHASH_IS_GROWING(kind)> kept,
                       uint32_t op, uint64_t key, uint64_t value, uint32_t how)
{
    ga_slabhash_alone<kind> alone;
    ga_slabhash_turn turn;
    turn.table = table;
    turn.tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_go_on(&turn, &kept);
    alone.answer = ga_slabhash_tile<kind>(&turn, op, key, value, how);
    ga_slabhash_keep(&alone.kept, &turn);
    return alone;
}

#ifdef GA_SLABHASH_GROWING_KINDS
/* ga_slabhash_tend_lanes() as such a function. */
template <uint32_t kind>
static __device__ __noinline__ ga_slabhash_kept<true>
ga_slabhash_tend_alone(ga_slabhash_view table, ga_slabhash_kept<true> kept, uint32_t changing,
                       uint64_t hash)
{
    ga_slabhash_tend_lanes(kind, table, table.growing, ga_tile_abreast(GA_SLABHASH_TILE),
                           &kept.claimed, &kept.stand, changing, (uint32_t)hash,
                           (uint32_t)(hash >> 32));
    return kept;
}
#endif

/* In tables that grow, before the lanes that ask are served together. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_lanes_tend(ga_slabhash_turn *turn, bool asks,
                                                              uint32_t op, uint64_t key)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (GA_SLABHASH_IS_GROWING(kind) && ga_slabhash_may_change(fixed)) {
        uint32_t changing =
            ga_lanes_nonzero(turn->tile, asks && op != GA_SLABHASH_SEARCH ? 1u : 0u);
        bool tends = turn->stand.next_rows || ga_slabhash_stand_is_due(&turn->stand);
        if (ga_lanes_any(ga_tile_of(32), tends ? 1u : 0u)) {
            ga_slabhash_kept<true> kept;
            kept.claimed = turn->claimed;
            kept.stand = turn->stand;
            kept = ga_slabhash_tend_alone<kind>(turn->table, kept, changing,
                                                GA_SLABHASH_HASH(turn->table, key));
            turn->claimed = kept.claimed;
            turn->stand = kept.stand;
        } else {
            ga_slabhash_stand_changes(&turn->stand, changing != 0);
            (void)ga_slabhash_stand_counts(&turn->stand);
        }
        ga_tile_sync(ga_tile_of(32)); /* from here on its tiles go abreast */
    } else if (GA_SLABHASH_IS_GROWING(kind)) {
        ga_slabhash_tend_searches(turn->table.growing, ga_tile_abreast(GA_SLABHASH_TILE),
                                  &turn->stand);
    }
#else
    (void)turn;
    (void)asks;
    (void)op;
    (void)key;
#endif
}

/* Whether the operation of a kernel for `fixed` may be to apply, so that `how` counts. */
GA_SIMT bool ga_slabhash_may_apply(uint32_t kind, uint32_t fixed)
{
    return ga_slabhash_supports(kind, GA_SLABHASH_APPLY) &&
           (fixed == GA_SLABHASH_APPLY || fixed >= GA_SLABHASH_OP_COUNT);
}

/* After a round of searches: where more than one of so many has peeked in vain, the next do not. All
 * lanes of the warp call; what becomes of it is the same in all. */
static __device__ __forceinline__ void ga_slabhash_learn(ga_slabhash_turn *turn, bool asked,
                                                         bool in_vain)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t vain = ga_bits_count(ga_lanes_nonzero(warp, in_vain ? 1u : 0u));
    uint32_t all = ga_bits_count(ga_lanes_nonzero(warp, asked ? 1u : 0u));
    turn->blind = turn->blind                            ? turn->blind - 1u
                  : vain * GA_SLABHASH_PEEKS_AMONG > all ? (uint32_t)GA_SLABHASH_BLIND
                                                         : 0;
}

/* The lanes' operations as far as the tiles of a whole warp serve them together: `asks` is left set
 * where one is still to be done. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_abreast(ga_slabhash_turn *turn, bool *asks, uint32_t op, uint64_t key, uint64_t value)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE);
    ga_slabhash_requests many = {};
    ga_slabhash_view table = turn->table;
    bool served = *asks && ga_slabhash_is_served(kind, fixed < GA_SLABHASH_OP_COUNT ? fixed : op);
    uint64_t hash = GA_SLABHASH_HASH(turn->table, key);
#ifdef GA_SLABHASH_GROWING_KINDS
    if (GA_SLABHASH_IS_GROWING(kind)) {
        ga_slabhash_shift shift =
            ga_slabhash_shift_of(turn->table, turn->table.growing, &turn->stand);
        table = ga_slabhash_for_lane(kind, shift, fixed < GA_SLABHASH_OP_COUNT ? fixed : op, hash);
        served = served && table.rows;
        ga_tile_sync(tile); /* what a lane acquired all have */
    }
#endif
    many.key = (uint32_t)key;
    many.key_high = (uint32_t)(key >> 32);
    many.value = (uint32_t)value;
    many.value_high = (uint32_t)(value >> 32);
    many.op = op;
    many.result = GA_SLABHASH_DEFERRED;
    ga_slabhash_requests_begin(table, ga_slabhash_is_ordered(table), &many, tile.lane, hash);
    uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
    many.no_peek = turn->blind != 0;
    (void)ga_slabhash_serve_many(kind, fixed, table, tile, asking, &many);
    if (ga_slabhash_peeks(kind, fixed, table)) {
        ga_slabhash_learn(turn, served, many.peek_missed >> tile.lane & 1u);
    }
    *asks = *asks && many.result >= GA_SLABHASH_DEFERRED;
    return ga_slabhash_answer_of(many.result, many.was | (uint64_t)many.was_high << 32);
}

/* One lane's operation, by its tile; the lane has the answer. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_lane_alone(ga_slabhash_turn *turn, uint32_t lane, uint32_t op, uint64_t key,
                       uint64_t value, uint32_t how, ga_slabhash_answer *answer)
{
    ga_tile tile = turn->tile;
    uint64_t its_key = ga_lanes_get(tile, (uint32_t)key, lane);
    uint64_t its_value = 0;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        its_key |= (uint64_t)ga_lanes_get(tile, (uint32_t)(key >> 32), lane) << 32;
        its_value = (uint64_t)ga_lanes_get(tile, (uint32_t)(value >> 32), lane) << 32;
    }
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32) {
        its_value |= ga_lanes_get(tile, (uint32_t)value, lane);
    }
    uint32_t its_op = fixed < GA_SLABHASH_OP_COUNT ? fixed : ga_lanes_get(tile, op, lane);
    uint32_t its_how = ga_slabhash_may_apply(kind, fixed) ? ga_lanes_get(tile, how, lane) : how;
    ga_slabhash_kept<GA_SLABHASH_IS_GROWING(kind)> kept;
    ga_slabhash_keep(&kept, turn);
    ga_slabhash_alone<kind> alone =
        ga_slabhash_tile_alone<kind>(turn->table, kept, its_op, its_key, its_value, its_how);
    ga_slabhash_go_on(turn, &alone.kept);
    GA_EACH_LANE(tile, 1u << lane, own)
    {
        (void)own;
        *answer = alone.answer;
    }
}

/* Whether what whole warps ask is done to the end by what follows. */
GA_SIMT bool ga_slabhash_leaves_none(uint32_t kind, uint32_t fixed)
{
    return GA_SLABHASH_IS_GROWING(kind) && ga_slabhash_may_change(fixed);
}

/* The operations of all lanes of a warp. What is left over in a table that does not grow is for the
 * caller. In one that grows it is often that many want the same place of few buckets: there each tile
 * serves one lane alone, and what is left is served together again. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_lanes_together(ga_slabhash_turn *turn, bool *left, uint32_t op, uint64_t key,
                           uint64_t value, uint32_t how, ga_slabhash_answer *mine)
{
    ga_tile warp = ga_tile_of(32);
    do {
        bool asked = *left;
        ga_slabhash_lanes_tend<kind, fixed>(turn, *left, op, key);
        ga_slabhash_answer answer = ga_slabhash_abreast<kind, fixed>(turn, left, op, key, value);
        *mine = asked ? answer : *mine;
        if (!ga_slabhash_leaves_none(kind, fixed)) {
            return;
        }
        uint32_t asking = ga_lanes_nonzero(turn->tile, *left ? 1u : 0u);
        if (asking) {
            uint32_t lane = ga_bits_lowest(asking);
            ga_slabhash_lane_alone<kind, fixed>(turn, lane, op, key, value, how, mine);
            *left = *left && turn->tile.lane != lane;
        }
        ga_tile_sync(warp); /* its tiles go on abreast */
    } while (ga_lanes_any(warp, *left ? 1u : 0u));
}

/* The operations of the lanes that are `left`, one after the other, each by its whole tile. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_in_turn(ga_slabhash_turn *turn, bool left, uint32_t op, uint64_t key, uint64_t value,
                    uint32_t how, ga_slabhash_answer *mine)
{
    uint32_t asking = ga_lanes_nonzero(turn->tile, left ? 1u : 0u);
    GA_SHARE(turn->tile, asking, lane)
    {
        ga_slabhash_lane_alone<kind, fixed>(turn, lane, op, key, value, how, mine);
    }
}

/* One operation for each lane that `asks`, whichever in each: others only help. Where all lanes
 * have the same operation it is given as `fixed`, which takes fewer registers; where all tiles of
 * every warp call together `whole` spares the question. What whole warps ask is served together,
 * but for what is left over. */
template <uint32_t kind, uint32_t fixed = GA_SLABHASH_OP_COUNT, bool whole = false>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_lanes(ga_slabhash_turn *turn, bool asks, uint32_t op, uint64_t key, uint64_t value,
                  uint32_t how = GA_SLABHASH_ADD)
{
    op = fixed < GA_SLABHASH_OP_COUNT ? fixed : op;
    bool allowed = turn->table.kind == GA_SLABHASH_KIND_OF_TABLE(kind) &&
                   ga_slabhash_supports(kind, op) && ga_slabhash_allowed(kind, op, key, value);
    ga_slabhash_answer mine =
        ga_slabhash_answer_of(allowed ? GA_SLABHASH_ABSENT : GA_SLABHASH_REFUSED, 0);
    bool left = asks && allowed;
    if (whole || ga_warp_is_whole(ga_warp_present())) {
        ga_slabhash_lanes_together<kind, fixed>(turn, &left, op, key, value, how, &mine);
        if (ga_slabhash_leaves_none(kind, fixed)) {
            return mine;
        }
    }
    ga_slabhash_in_turn<kind, fixed>(turn, left, op, key, value, how, &mine);
    return mine;
}

#endif
