/* SPDX-License-Identifier: MIT
 *
 * The slab hash in device memory: what gpualloc/slabhash.h has, for kernels, and for batches of
 * arrays in device memory. docs/slabhash.md.
 *
 *     ga_slabhash_device table;
 *     ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32,
 *                                    .buckets = 1 << 20, .path = 4};
 *     ga_slabhash_device_open(&table, &options, 0, stream);
 *     ga_slabhash_device_run(&table, &batch, counts, stream);      arrays of the device's
 *     my_kernel<<<grid, 128, 0, stream>>>(table.view, ...);
 *     ga_slabhash_device_close(&table);
 *
 * In a kernel, 8 lanes are a tile that works on a slab together. Each lane brings an operation of
 * its own, whichever; the tile serves one lane after the other (slab-hash-2018, §IV-A):
 *
 *     ga_slabhash_turn turn = ga_slabhash_turn_begin(view);
 *     ga_slabhash_answer a = ga_slabhash_lanes<kind>(&turn, asks, op, key, value);
 *     ga_slabhash_turn_end(&turn);
 *
 * Operations of all kernels and streams may run beside each other, but for those that say that
 * they are alone. In tables of unique keys those on one key are linearizable. Values are data:
 * what a kernel wrote before it put a pair in is not promised to be seen by who finds it within
 * the same launch.
 *
 * The slabs come from a slab heap of 128-byte units for kernels. Where that cannot grow under
 * kernels it grows between calls of ga_slabhash_device_run(); what found it full has the result
 * GA_SLABHASH_FULL.
 *
 * With GA_SLABHASH_GROW there are as many buckets as the batches of ga_slabhash_device_run() need,
 * and ga_slabhash_device_reserve() makes room for what kernels put in by themselves. Both may give
 * the table another array, which is in table.view: views from before are no longer good, and no
 * kernel may be using one meanwhile. Such batches go on one stream, or wait for each other. All kinds
 * of tables grow so, with any path and all keys.
 *
 * With GA_SLABHASH_GROW_IN_KERNELS a table grows while kernels run, by what they put in: path 1,
 * keys below 2^31 - 2 in the 32-bit modes, in the 64-bit mode keys below 2^64 - 2 and values below
 * 2^63 - 3. Views stay good. `kind` in kernels is GA_SLABHASH_KIND(mode, multi) |
 * GA_SLABHASH_GROWING. Older arrays, together smaller than the
 * newest, stay until a call that is alone with the table: flush, clear, _reserve(), _close(). Where
 * the device cannot get memory under kernels, or has no more, inserts chain slabs, and the table
 * grows in a later kernel. A program that has such tables defines GA_SLABHASH_GROWING_KINDS before it
 * includes this, in all that uses them: it takes as long again to compile. Arrays come from a kernel
 * heap of all sizes of the table's own: "slab/vmm", or what the program defines GA_SLABHASH_ARRAYS as.
 *
 * A program with a hash of its own defines GA_SLABHASH_HASH(table, key), 64 bits, the upper ones
 * of which choose the bucket; one with a way of its own to apply GA_SLABHASH_FUNCTION(there,
 * given), for `how` = GA_SLABHASH_HOW_COUNT; both before it includes this, the same wherever the
 * table is used.
 *
 * With GA_SLABHASH_CHECKED defined before it is included, wherever the table is used, turns of
 * tiles beside a flush or clear are noticed, for which a tile's turn takes two atomics more:
 * ga_slabhash_device_count(), _retrieve() and _close() answer GA_ERR_ARGUMENT once they have seen
 * it.
 *
 * A program whose tables are all of one kind, and do not grow in kernels, may define
 * GA_SLABHASH_ONLY_KIND as that before it includes this, and takes a part of the time to compile.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17. Host functions: one
 * thread at a time for a table.
 */
#ifndef GPUALLOC_SLABHASH_CUH
#define GPUALLOC_SLABHASH_CUH

#include <gpualloc/backend.h>
#include <gpualloc/slabhash.h>

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

#include "device/kinds.h"
#include "slabhash/many_tile.h"
#include "slabhash/use_tile.h"

#ifndef GA_SLABHASH_HASH
#define GA_SLABHASH_HASH(table, key) ga_slabhash_seeded(table, key)
#endif

#ifdef GA_SLABHASH_GROWING_KINDS
#include "slabhash/grow_turn_tile.h"
#ifndef GA_SLABHASH_ARRAYS
#define GA_SLABHASH_ARRAYS "slab/vmm"
#endif
#endif

/* A tile's lanes: 8 load 16 bytes each. */
#define GA_SLABHASH_TILE 8u

/* ---- in programs with checks ----------------------------------------------------------------- */

#ifdef GA_SLABHASH_CHECKED
/* A tile begins to use the table; whether it may is noted behind the word. */
static __device__ __forceinline__ void ga_slabhash_tile_begins(ga_slabhash_view table, ga_tile tile,
                                                               bool alone)
{
    GA_EACH_LANE(tile, table.use ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (ga_slabhash_use_meets(ga_slabhash_use_begin(table.use, alone), alone)) {
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
 * ahead stay taken. */
typedef struct ga_slabhash_turn {
    ga_slabhash_view table;
    ga_tile tile;
    ga_slab_claimed claimed;
#ifdef GA_SLABHASH_GROWING_KINDS
    ga_slabhash_stand stand; /* of a table that grows */
#endif
} ga_slabhash_turn;

/* A turn of a table that grows begins: what its tile knows of that. */
static __device__ __forceinline__ void ga_slabhash_turn_stands(ga_slabhash_turn *turn)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    turn->stand = ga_slabhash_stand{};
    if (turn->table.growing) {
        ga_slabhash_stand_read(turn->table.growing, turn->tile, &turn->stand);
    }
#else
    (void)turn;
#endif
}

static __device__ __forceinline__ ga_slabhash_turn ga_slabhash_turn_begin(ga_slabhash_view table)
{
    ga_slabhash_turn turn;
    turn.table = table;
    turn.tile = ga_tile_of(GA_SLABHASH_TILE);
    turn.claimed =
        ga_slabhash_claim_begin((blockIdx.x * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE);
    ga_slabhash_tile_begins(table, turn.tile, false);
    ga_slabhash_turn_stands(&turn);
    return turn;
}

static __device__ __forceinline__ void ga_slabhash_turn_end(ga_slabhash_turn *turn)
{
    ga_slabhash_claim_end(turn->table, turn->tile, &turn->claimed);
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
    ga_slabhash_change_to to;
    if (turn->table.kind != GA_SLABHASH_KIND_OF_TABLE(kind)) {
        return ga_slabhash_say(GA_SLABHASH_REFUSED, 0);
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
        bool tends = turn->stand.next_rows || turn->stand.requests == 1u;
        if (ga_lanes_any(ga_tile_of(32), tends ? 1u : 0u)) {
            ga_slabhash_kept<true> kept;
            kept.claimed = turn->claimed;
            kept.stand = turn->stand;
            kept = ga_slabhash_tend_alone<kind>(turn->table, kept, changing,
                                                GA_SLABHASH_HASH(turn->table, key));
            turn->claimed = kept.claimed;
            turn->stand = kept.stand;
        } else {
            turn->stand.requests--;
        }
        ga_tile_sync(ga_tile_of(32)); /* from here on its tiles go abreast */
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
    return ga_slabhash_has(kind, GA_SLABHASH_APPLY) &&
           (fixed == GA_SLABHASH_APPLY || fixed >= GA_SLABHASH_OP_COUNT);
}

/* The lanes' operations as far as the tiles of a whole warp serve them together: `asks` is left set
 * where one is still to be done. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_abreast(ga_slabhash_turn *turn, bool *asks, uint32_t op, uint64_t key, uint64_t value)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE);
    ga_slabhash_many many = {};
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
    many.result = GA_SLABHASH_LATER;
    ga_slabhash_many_begin(table, &many, tile.lane, hash);
    uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
    (void)ga_slabhash_serve_many(kind, fixed, table, tile, asking, &many);
    *asks = *asks && many.result == GA_SLABHASH_LATER;
    return ga_slabhash_say(many.result, many.was | (uint64_t)many.was_high << 32);
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
                   ga_slabhash_has(kind, op) && ga_slabhash_allowed(kind, op, key, value);
    ga_slabhash_answer mine =
        ga_slabhash_say(allowed ? GA_SLABHASH_ABSENT : GA_SLABHASH_REFUSED, 0);
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

/* ---- the kernels of the calls below ---------------------------------------------------------- */

enum {
    GA_SLABHASH_BLOCK = 128,               /* threads */
    GA_SLABHASH_BLOCKS = 16,               /* of a launch, for each multiprocessor, at most */
    GA_SLABHASH_RESIDENT = 8,              /* on one at once, where lanes go on by themselves */
    GA_SLABHASH_ANY = GA_SLABHASH_OP_COUNT /* operation of a kernel: what the batch says */
};

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tile(void)
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE;
}

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tiles(void)
{
    return (uint64_t)gridDim.x * (blockDim.x / GA_SLABHASH_TILE);
}

/* A key or a value as it stands in an array. */
template <uint32_t kind, uint32_t mode = GA_SLABHASH_MODE(kind)> struct ga_slabhash_word {
    typedef uint32_t type;
};
template <uint32_t kind> struct ga_slabhash_word<kind, GA_SLABHASH_MAP64> {
    typedef uint64_t type;
};

template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_of(const void *array, uint64_t i)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ((const uint64_t *)array)[i]
                                                       : ((const uint32_t *)array)[i];
}

/* What the arrays of a batch have for a request: `op` as it stands there. */
template <uint32_t kind> struct ga_slabhash_request {
    typename ga_slabhash_word<kind>::type key, value;
    uint32_t op;
};

/* Loaded, and nothing made of it, so that nobody waits for it yet. Where there is no array another
 * stands in, and behind the last request that one: there is no branch. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_fetch(const ga_slabhash_batch &batch, uint64_t i,
                                                         ga_slabhash_request<kind> *request)
{
    typedef typename ga_slabhash_word<kind>::type word;
    i = i < batch.count ? i : batch.count - 1u;
    request->key = ((const word *)batch.keys)[i];
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32 && ga_slabhash_may_put(fixed)) {
        request->value = ((const word *)(batch.values ? batch.values : batch.keys))[i];
    }
    if (fixed == GA_SLABHASH_ANY) {
        request->op = (batch.ops ? batch.ops : (const uint8_t *)batch.keys)[i];
    }
}

/* The operation of a request that was fetched: none where its value is missing. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ uint32_t
ga_slabhash_op_of(const ga_slabhash_batch &batch, const ga_slabhash_request<kind> &request)
{
    if (fixed != GA_SLABHASH_ANY) {
        return fixed;
    }
    uint32_t op = batch.ops ? request.op : (uint32_t)batch.op;
    bool misses = !batch.values && GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32;
    return misses && ga_slabhash_puts(op) ? (uint32_t)GA_SLABHASH_OP_COUNT : op;
}

/* How often each result came to each thread of the block, and how many places it filled: in shared
 * memory, since registers are few. */
typedef struct ga_slabhash_counted {
    uint32_t of[GA_SLABHASH_REFUSED + 1][GA_SLABHASH_BLOCK];
    uint32_t placed[GA_SLABHASH_BLOCK];
} ga_slabhash_counted;

/* Write the answer to the operation down; `tally` may be NULL. */
template <uint32_t kind>
static __device__ __forceinline__ void
ga_slabhash_answers(const ga_slabhash_batch &batch, uint64_t i, uint32_t op,
                    ga_slabhash_answer answer, ga_slabhash_counted *tally)
{
    if (batch.results) {
        batch.results[i] = (uint8_t)answer.result;
    }
    if (batch.found) {
        ga_slabhash_write(kind, batch.found, i, answer.value);
    }
    if (tally) {
        tally->of[answer.result][threadIdx.x]++;
    }
    if (tally && ga_slabhash_puts(op) && answer.result == GA_SLABHASH_ABSENT) {
        tally->placed[threadIdx.x]++;
    }
}

static __device__ __forceinline__ void ga_slabhash_begin_counts(ga_slabhash_counted *tally)
{
    if (!tally) {
        return;
    }
    for (uint32_t result = 0; result <= GA_SLABHASH_REFUSED; result++) {
        tally->of[result][threadIdx.x] = 0;
    }
    tally->placed[threadIdx.x] = 0;
}

/* The warp adds them up; `counts` may be NULL. */
static __device__ __forceinline__ void ga_slabhash_add_counts(const ga_slabhash_counted *tally,
                                                              uint64_t *counts)
{
    ga_tile warp = ga_tile_of(32);
    for (uint32_t result = 0; counts && result <= GA_SLABHASH_REFUSED; result++) {
        uint32_t n = ga_lanes_sum(warp, tally->of[result][threadIdx.x]);
        if (n && warp.lane == 0) {
            ga_post_add64_relaxed(counts + result, n); /* relaxed: read after the kernel */
        }
    }
}

/* What the host is told without being waited for: in its own memory, which kernels write. All
 * relaxed: figures, of which late ones do no harm. */
typedef struct ga_slabhash_news {
    uint64_t placed; /* above: requests asked before some batch; below: places filled by then */
    uint32_t full;   /* not 0: something found no slab */
    uint32_t read;   /* by a copy: places filled */
} ga_slabhash_news;

/* For a batch's kernel: where it tells what. */
typedef struct ga_slabhash_teller {
    ga_slabhash_news *news;
    uint32_t *placed; /* of the device's: places filled by batches; NULL: not counted */
    uint32_t asked;   /* requests before this batch */
} ga_slabhash_teller;

static __device__ __forceinline__ void ga_slabhash_tell_placed(ga_slabhash_teller teller)
{
    if (teller.placed && blockIdx.x == 0 && threadIdx.x == 0) {
        uint64_t placed = ga_load_relaxed(teller.placed); /* relaxed: see ga_slabhash_news */
        ga_store64_relaxed_system(&teller.news->placed, (uint64_t)teller.asked << 32 | placed);
    }
}

/* The warp's share: places that it has filled, and whether it found no slab. */
static __device__ __forceinline__ void ga_slabhash_tell_more(ga_slabhash_teller teller,
                                                             uint32_t placed, uint32_t full)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t sum = teller.placed ? ga_lanes_sum(warp, placed) : 0;
    bool lacks = ga_lanes_any(warp, full);
    if (sum && warp.lane == 0) {
        ga_post_add_relaxed(teller.placed, sum); /* relaxed: see ga_slabhash_news */
    }
    if (lacks && warp.lane == 0) {
        ga_store_relaxed_system(&teller.news->full, 1u); /* relaxed: see there */
    }
}

/* Tables without an order: warps serve 32 requests of the batch, and the next 32. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_batch_abreast(ga_slabhash_turn *turn,
                                                                 const ga_slabhash_batch *batch,
                                                                 ga_slabhash_counted *tally)
{
    ga_tile warp = ga_tile_of(32);
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t first = thread - warp.lane; first < batch->count; first += step) {
        uint64_t i = first + warp.lane;
        bool asks = i < batch->count;
        ga_slabhash_request<kind> request = {};
        ga_slabhash_fetch<kind, fixed>(*batch, i, &request);
        uint32_t op = ga_slabhash_op_of<kind, fixed>(*batch, request);
        uint64_t value = batch->values ? request.value : 0;
        ga_tile_sync(warp); /* its tiles go on abreast */
        ga_slabhash_answer answer = ga_slabhash_lanes<kind, fixed, true>(
            turn, asks, op, request.key, value, (uint32_t)batch->how);
        if (asks) {
            ga_slabhash_answers<kind>(*batch, i, op, answer, tally);
        }
    }
    ga_tile_sync(warp);
}

/* The same as a function of its own, for kinds of which most tables have an order. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ void ga_slabhash_batch_apart(ga_slabhash_turn *turn,
                                                            const ga_slabhash_batch *batch,
                                                            ga_slabhash_counted *tally)
{
    ga_slabhash_batch_abreast<kind, fixed>(turn, batch, tally);
}

/* The requests whose numbers the lanes have left, `count` of each, one by one. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ void
ga_slabhash_batch_left(ga_slabhash_turn *turn, const ga_slabhash_batch *batch, const uint64_t *left,
                       uint32_t count, ga_slabhash_counted *tally)
{
    ga_tile warp = ga_tile_of(32);
    while (ga_lanes_any(warp, count)) {
        bool asks = count != 0;
        count -= asks ? 1u : 0u;
        uint64_t i = asks ? left[count * GA_SLABHASH_BLOCK] : 0;
        ga_slabhash_request<kind> request = {};
        ga_slabhash_answer mine = {};
        ga_slabhash_fetch<kind, fixed>(*batch, i, &request);
        uint32_t op = ga_slabhash_op_of<kind, fixed>(*batch, request);
        uint64_t value = batch->values ? request.value : 0;
        ga_slabhash_in_turn<kind, fixed>(turn, asks, op, request.key, value, (uint32_t)batch->how,
                                         &mine);
        ga_tile_sync(warp);
        if (asks) {
            ga_slabhash_answers<kind>(*batch, i, op, mine, tally);
        }
    }
}

enum {
    GA_SLABHASH_LEFT = 4 /* requests that a lane leaves for later before it waits for the others */
};

/* A lane's requests `next`, `next` + step and so on, in an ordered table: it begins with one as soon
 * as it has the answer to the one before, whatever the other lanes are at. Until none is left, or
 * so many are for later; answers the next. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ uint64_t ga_slabhash_batch_some(ga_slabhash_view table,
                                                                  const ga_slabhash_batch &batch,
                                                                  uint64_t next, uint64_t *left,
                                                                  uint32_t *left_count,
                                                                  ga_slabhash_counted *tally)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE);
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    ga_slabhash_request<kind> request = {}; /* the next: fetched while the one before is served */
    ga_slabhash_many many = {};
    bool asks = false;
    ga_slabhash_fetch<kind, fixed>(batch, next, &request);
    for (;;) {
        bool begins = !asks && next < batch.count && *left_count < GA_SLABHASH_LEFT;
        bool served = asks;
        if (!ga_lanes_any(tile, asks || begins ? 1u : 0u)) {
            return next;
        }
        if (begins) {
            uint64_t key = request.key;
            uint64_t value = batch.values ? request.value : 0;
            uint32_t op = ga_slabhash_op_of<kind, fixed>(batch, request);
            bool allowed = ga_slabhash_has(kind, op) && ga_slabhash_allowed(kind, op, key, value);
            asks = true;
            served = allowed && ga_slabhash_is_served(kind, op);
            many.key = (uint32_t)key;
            many.key_high = (uint32_t)(key >> 32);
            many.value = (uint32_t)value;
            many.value_high = (uint32_t)(value >> 32);
            many.op = op;
            many.result = allowed ? (uint32_t)GA_SLABHASH_LATER : (uint32_t)GA_SLABHASH_REFUSED;
            many.was = many.was_high = 0;
            ga_slabhash_many_begin(table, &many, tile.lane, GA_SLABHASH_HASH(table, key));
            next += step;
        }
        uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
        if (begins) { /* behind the vote, so that it is loaded to where it stays */
            ga_slabhash_fetch<kind, fixed>(batch, next, &request);
        }
        uint32_t failed;
        uint32_t on = ga_slabhash_serve_step(kind, fixed, table, tile, asking, &many, &failed);
        if (asks && !((on | failed) >> tile.lane & 1u)) {
            asks = false;
            if (many.result == GA_SLABHASH_LATER) {
                left[(*left_count)++ * GA_SLABHASH_BLOCK] = next - step;
            } else {
                uint64_t was = many.was | (uint64_t)many.was_high << 32;
                uint32_t op = fixed < GA_SLABHASH_OP_COUNT ? fixed : many.op;
                ga_slabhash_answers<kind>(batch, next - step, op, ga_slabhash_say(many.result, was),
                                          tally);
            }
        }
    }
}

/* Blocks on a multiprocessor, which the registers are for. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_resident {
    static constexpr int blocks =
        fixed == GA_SLABHASH_SEARCH || !(GA_SLABHASH_IS_MULTI(kind) || GA_SLABHASH_IS_GROWING(kind))
            ? GA_SLABHASH_RESIDENT
            : 6;
};

/* `alone`: lanes go through requests of their own where the table has an order. */
template <uint32_t kind, uint32_t fixed, bool alone = true>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK,
                                         (ga_slabhash_resident<kind, fixed>::blocks))
    ga_slabhash_batch_kernel(ga_slabhash_view table,
                             const __grid_constant__ ga_slabhash_batch batch, uint64_t *counts,
                             ga_slabhash_teller teller)
{
    __shared__ uint64_t left[GA_SLABHASH_LEFT * GA_SLABHASH_BLOCK];
    __shared__ ga_slabhash_counted tallies;
    ga_slabhash_counted *tally = counts || fixed != GA_SLABHASH_SEARCH ? &tallies : NULL;
    ga_slabhash_tell_placed(teller);
    ga_slabhash_turn turn = ga_slabhash_turn_begin(table);
    ga_slabhash_begin_counts(tally);
    if (!alone || !ga_slabhash_may_be_near(kind)) {
        ga_slabhash_batch_abreast<kind, fixed>(&turn, &batch, tally);
    } else if (ga_slabhash_is_ordered(table)) {
        uint64_t next = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
        do {
            uint32_t count = 0;
            next = ga_slabhash_batch_some<kind, fixed>(table, batch, next, left + threadIdx.x,
                                                       &count, tally);
            ga_slabhash_batch_left<kind, fixed>(&turn, &batch, left + threadIdx.x, count, tally);
        } while (ga_lanes_any(ga_tile_of(32), next < batch.count ? 1u : 0u));
    } else {
        ga_slabhash_batch_apart<kind, fixed>(&turn, &batch, tally);
    }
    if (fixed != GA_SLABHASH_SEARCH) {
        ga_slabhash_tell_more(teller, tally->placed[threadIdx.x],
                              tally->of[GA_SLABHASH_FULL][threadIdx.x]);
    }
    ga_slabhash_add_counts(tally, counts);
    ga_slabhash_turn_end(&turn);
}

/* A key of which all pairs are wanted, and where they are in a table that does not grow. */
typedef struct ga_slabhash_sought {
    uint64_t key, hash;
    ga_slabhash_walk walk;
} ga_slabhash_sought;

/* DELETEALL of one key by the whole tile; how many. Where a table that grows has no slab for the
 * pairs that move with these, some may be left. */
template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_tile_removes(ga_slabhash_turn *turn,
                                                                    ga_slabhash_sought sought)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (GA_SLABHASH_IS_GROWING(kind)) {
        uint64_t count = 0;
        if (ga_slabhash_allowed(kind, GA_SLABHASH_DELETE, sought.key, 0)) {
            (void)ga_slabhash_remove_standing(kind, turn->table, turn->table.growing, turn->tile,
                                              &turn->claimed, &turn->stand, sought.hash, sought.key,
                                              &count);
        }
        return count;
    }
#endif
    return ga_slabhash_remove_all(kind, turn->table, turn->tile, sought.walk, sought.key);
}

/* SEARCHALL of one key by the whole tile, as ga_slabhash_find_all(). */
template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_tile_finds(ga_slabhash_turn *turn,
                                                                  ga_slabhash_sought sought,
                                                                  uint64_t *values, uint64_t room)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (GA_SLABHASH_IS_GROWING(kind)) {
        return ga_slabhash_find_all_standing(kind, turn->table, turn->table.growing, turn->tile,
                                             &turn->stand, sought.hash, sought.key, values, room);
    }
#endif
    return ga_slabhash_find_all(kind, turn->table, turn->tile, sought.walk, sought.key, values,
                                room);
}

/* SEARCHALL or DELETEALL: a tile for each key. A search counts first, and then writes what there is
 * room for among the places that it was given. */
template <uint32_t kind, bool removes>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK)
    ga_slabhash_all_kernel(ga_slabhash_view table, ga_slabhash_all all, uint64_t *totals)
{
    ga_slabhash_turn turn = ga_slabhash_turn_begin(table);
    ga_tile tile = turn.tile;
    uint64_t refused = 0;
    for (uint64_t i = ga_slabhash_grid_tile(); i < all.count; i += ga_slabhash_grid_tiles()) {
        uint64_t key = ga_slabhash_of<kind>(all.keys, i), first = 0;
        ga_slabhash_sought sought;
        sought.key = key;
        sought.hash = GA_SLABHASH_HASH(table, key);
        sought.walk = ga_slabhash_walk_path(table, sought.hash);
        uint64_t count = removes ? ga_slabhash_tile_removes<kind>(&turn, sought)
                                 : ga_slabhash_tile_finds<kind>(&turn, sought, NULL, 0);
        refused += ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0) ? 0 : 1;
        if (count) {
            first = ga_slabhash_reserve(tile, totals, (uint32_t)count);
        }
        if (!removes && count && first < all.room) {
            uint64_t room = all.room - first < count ? all.room - first : count;
            uint64_t wrote = ga_slabhash_tile_finds<kind>(&turn, sought, all.values + first, room);
            count = wrote < count ? wrote : count;
        }
        if (tile.lane == 0 && all.counts) {
            all.counts[i] = count;
        }
        if (tile.lane == 0 && all.firsts && !removes) {
            all.firsts[i] = first;
        }
    }
    if (tile.lane == 0 && refused) {
        ga_post_add64_relaxed(totals + 1, refused); /* relaxed: read after the kernel */
    }
    ga_slabhash_turn_end(&turn);
}

/* What is done with each bucket. */
enum ga_slabhash_task {
    GA_SLABHASH_COUNT_ALL = 0,
    GA_SLABHASH_COPY_ALL,
    GA_SLABHASH_FLUSH_ALL,
    GA_SLABHASH_CLEAR_ALL
};

typedef struct ga_slabhash_whole {
    ga_slabhash_census *census; /* of the device's, for COUNT_ALL */
    void *keys, *values;        /* for COPY_ALL, and the two below */
    uint64_t room;
    uint64_t *cursor; /* of the device's */
} ga_slabhash_whole;

/* What the block's tiles have counted, the same in all lanes of a tile: the block adds it up, since
 * all blocks add to the same four words. */
static __device__ __forceinline__ void ga_slabhash_add_up(ga_slabhash_census census,
                                                          ga_slabhash_census *all)
{
    __shared__ unsigned long long sums[4];
    const uint64_t counts[4] = {census.live, census.deleted, census.chained, census.marked};
    uint64_t *to[4] = {&all->live, &all->deleted, &all->chained, &all->marked};
    if (threadIdx.x < 4) {
        sums[threadIdx.x] = 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++) {
        if (threadIdx.x % GA_SLABHASH_TILE == i && counts[i]) {
            atomicAdd(sums + i, (unsigned long long)counts[i]);
        }
    }
    __syncthreads();
    for (uint32_t i = 0; i < 4; i++) {
        if (threadIdx.x == i && sums[i]) {
            ga_post_add64_relaxed(to[i], sums[i]); /* relaxed: read after the kernel */
        }
    }
}

template <uint32_t kind, uint32_t task>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK)
    ga_slabhash_whole_kernel(ga_slabhash_view table, ga_slabhash_whole whole)
{
    ga_tile tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_census census = {};
    if (task == GA_SLABHASH_FLUSH_ALL || task == GA_SLABHASH_CLEAR_ALL) {
        ga_slabhash_tile_begins(table, tile, true);
    }
    for (uint64_t bucket = ga_slabhash_grid_tile(); bucket < table.buckets;
         bucket += ga_slabhash_grid_tiles()) {
        if (task == GA_SLABHASH_COUNT_ALL) {
            ga_slabhash_count(kind, table, tile, (uint32_t)bucket, &census);
        } else if (task == GA_SLABHASH_COPY_ALL) {
            ga_slabhash_copy(kind, table, tile, (uint32_t)bucket, whole.keys, whole.values,
                             whole.room, whole.cursor);
        } else if (task == GA_SLABHASH_FLUSH_ALL) {
            ga_slabhash_flush_bucket(kind, table, tile, (uint32_t)bucket);
        } else {
            ga_slabhash_clear_bucket(table, tile, (uint32_t)bucket);
        }
    }
    if (task == GA_SLABHASH_FLUSH_ALL || task == GA_SLABHASH_CLEAR_ALL) {
        ga_slabhash_tile_ends(table, tile, true);
    }
    if (task == GA_SLABHASH_COUNT_ALL) {
        ga_slabhash_add_up(census, whole.census);
    }
}

#include "slabhash/move_kernel.cuh"

/* ---- the host's side ------------------------------------------------------------------------- */

/* A table in device memory. `view` goes to kernels by value, the rest is the functions'. */
typedef struct ga_slabhash_device {
    ga_slabhash_view view;
    ga_heap *buckets; /* where the table's own memory comes from */
    ga_heap *arrays;  /* and the bucket slabs: the same, or a heap that kernels ask, too */
    ga_heap *slabs;   /* and the others */
    bool own_slabs;
    bool emptied;      /* the buckets, so that they hold slabs of the heap's and nothing else */
    uint64_t *scratch; /* of the device's: a census, or a cursor */
    uint64_t *loaded;  /* behind it: results of a load, in the middle of which a table may grow */
    int device;
    int grid;       /* blocks that fill the device */
    uint64_t cache; /* bytes of its L2 cache */
    bool grows;
    bool streamed;          /* `arrays` has the order of streams */
    uint32_t least;         /* buckets, where it grows */
    uint64_t taken;         /* where it grows: places that were taken when it was last counted, */
    uint32_t counted;       /* and what `placed` was then */
    uint32_t asked;         /* requests that may have filled places, since it was opened */
    uint64_t since;         /* the same, since it was last counted */
    uint32_t unseen;        /* the same, since the heap of slabs was asked whether it is to grow */
    uint32_t *placed;       /* of the device's; see ga_slabhash_teller */
    ga_slabhash_news *news; /* of the host's */
} ga_slabhash_device;

static inline ga_status ga_slabhash_cuda(const char *what, cudaError_t error)
{
    return error == cudaSuccess
               ? GA_OK
               : ga_fail(error == cudaErrorMemoryAllocation ? GA_ERR_MEMORY : GA_ERR_DEVICE,
                         "slabhash: cannot %s: %s: expected it to succeed", what,
                         cudaGetErrorString(error));
}

/* What a call does is done on the table's device; behind it the caller's is current again. */
struct ga_slabhash_device_scope {
    int before;
    ga_status status;
    explicit ga_slabhash_device_scope(int device) : before(-1)
    {
        status = ga_slabhash_cuda("ask for the current device", cudaGetDevice(&before));
        status = status || before == device
                     ? status
                     : ga_slabhash_cuda("make the table's device the current one",
                                        cudaSetDevice(device));
    }
    ~ga_slabhash_device_scope()
    {
        if (before >= 0) {
            (void)cudaSetDevice(before);
        }
    }
    ga_slabhash_device_scope(const ga_slabhash_device_scope &) = delete;
    ga_slabhash_device_scope &operator=(const ga_slabhash_device_scope &) = delete;
};

static inline ga_status ga_slabhash_device_check(const ga_slabhash_device *table)
{
    return table && table->view.rows
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: expected one that is open",
                         table ? "a table that is closed" : "no table");
}

/* In programs with checks: two words, zero, for what ga_slabhash_view says of them. */
static inline ga_status ga_slabhash_device_watch(ga_slabhash_device *table, cudaStream_t stream)
{
#ifdef GA_SLABHASH_CHECKED
    void *use = NULL;
    ga_status status = ga_alloc(table->buckets, 2 * sizeof(uint64_t), 0, &use);
    table->view.use = (uint64_t *)use;
    return status ? status
                  : ga_slabhash_cuda("begin to watch the table",
                                     cudaMemsetAsync(use, 0, 2 * sizeof(uint64_t), stream));
#else
    (void)table;
    (void)stream;
    return GA_OK;
#endif
}

/* What was noticed up to now, by kernels that have ended; once. */
static inline ga_status ga_slabhash_device_met(ga_slabhash_device *table)
{
#ifdef GA_SLABHASH_CHECKED
    uint64_t met = 0;
    if (!table->view.use) {
        return GA_OK;
    }
    ga_status status =
        ga_slabhash_cuda("see who used the table",
                         cudaMemcpy(&met, table->view.use + 1, sizeof met, cudaMemcpyDeviceToHost));
    if (status == GA_OK && met) {
        status = ga_slabhash_cuda("forget who used the table",
                                  cudaMemset(table->view.use + 1, 0, sizeof met));
    }
    return status || !met
               ? status
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: %llu turns of tiles beside a flush or clear: expected one "
                         "stream, or one after the other",
                         (unsigned long long)met);
#else
    (void)table;
    return GA_OK;
#endif
}

static inline int ga_slabhash_device_grid(const ga_slabhash_device *table, uint64_t tiles)
{
    uint64_t blocks = (tiles * GA_SLABHASH_TILE + GA_SLABHASH_BLOCK - 1) / GA_SLABHASH_BLOCK;
    return blocks < (uint64_t)table->grid ? (int)blocks : table->grid;
}

/* Functions that launch kernels are templates, so that those, many and slow to compile, are
 * compiled where they are called and not wherever this is included. */
#define GA_SLABHASH_WHERE_CALLED template <typename unused = void>

enum {
    GA_SLABHASH_DEVICE_BUCKETS = 16384, /* at first, in tables that grow */
    GA_SLABHASH_FULL_AT = 75,           /* of 100 places: then they grow, */
    GA_SLABHASH_FILL_TO = 60,           /* so far that these are taken, */
    GA_SLABHASH_FILL_LESS = 52,         /* or these, where it was a small part that was too much */
    GA_SLABHASH_SEEN_EACH = 1 << 20     /* requests, and the heap of slabs is asked */
};

/* CALL(kind) for the table's, of those that do not grow in kernels. */
#ifdef GA_SLABHASH_ONLY_KIND
#define GA_SLABHASH_EACH_FIXED_KIND(of, CALL) CALL(GA_SLABHASH_ONLY_KIND);
#else
#define GA_SLABHASH_EACH_FIXED_KIND(of, CALL)                                                      \
    switch (of) {                                                                                  \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, false):                                               \
        CALL(0u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false):                                               \
        CALL(1u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false):                                               \
        CALL(2u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, true):                                                \
        CALL(4u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true):                                                \
        CALL(5u);                                                                                  \
        break;                                                                                     \
    default:                                                                                       \
        CALL(6u);                                                                                  \
        break;                                                                                     \
    }
#endif

#ifdef GA_SLABHASH_GROWING_KINDS
#include "slabhash/grow_kernel.cuh"
#define GA_SLABHASH_EACH_KIND(of, CALL)                                                            \
    if (GA_SLABHASH_IS_GROWING(of)) {                                                              \
        GA_SLABHASH_EACH_GROWING_KIND(of, CALL)                                                    \
    } else {                                                                                       \
        GA_SLABHASH_EACH_FIXED_KIND(of, CALL)                                                      \
    }
#else
#define GA_SLABHASH_EACH_KIND(of, CALL) GA_SLABHASH_EACH_FIXED_KIND(of, CALL)
#endif

template <uint32_t task>
static inline ga_status ga_slabhash_device_whole(ga_slabhash_device *table,
                                                 const ga_slabhash_whole *whole,
                                                 cudaStream_t stream)
{
    ga_slabhash_device_scope scope(table->device);
    if (scope.status != GA_OK) {
        return scope.status;
    }
    int grid = ga_slabhash_device_grid(table, table->view.buckets);
#define GA_SLABHASH_WHOLE_CALL(kind)                                                               \
    ga_slabhash_whole_kernel<kind, task>                                                           \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *whole)
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_WHOLE_CALL)
#undef GA_SLABHASH_WHOLE_CALL
    return ga_slabhash_cuda("launch a kernel for all buckets", cudaGetLastError());
}

/* Memory for an array, for what is on `stream` from now on. */
static inline ga_status ga_slabhash_device_take(ga_slabhash_device *table, uint64_t bytes,
                                                void **rows, cudaStream_t stream)
{
    return table->streamed ? ga_alloc_on(table->arrays, bytes, 0, (ga_stream)stream, rows)
                           : ga_alloc(table->arrays, bytes, 0, rows);
}

/* An array goes back, after what is on `stream`: for which this waits where its heap does not. */
static inline ga_status ga_slabhash_device_give(ga_slabhash_device *table, void *rows,
                                                cudaStream_t stream)
{
    if (table->streamed) {
        return ga_free_on(table->arrays, rows, (ga_stream)stream);
    }
    ga_status status =
        ga_slabhash_cuda("wait to give an array back", cudaStreamSynchronize(stream));
    ga_free(table->arrays, rows);
    return status;
}

/* Give an array's slabs, unless it is `bare` and has none, and the array back; nobody uses it. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop(ga_slabhash_device *table, ga_slabhash_view view,
                                                bool bare, cudaStream_t stream)
{
    ga_slabhash_device gone = *table;
    ga_slabhash_whole whole = {};
    gone.view = view;
    ga_status status =
        bare ? GA_OK : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(&gone, &whole, stream);
    ga_status given = ga_slabhash_device_give(table, view.rows, stream);
    return status ? status : given;
}

#ifdef GA_SLABHASH_GROWING_KINDS
#include "slabhash/grow_host.cuh"
#else
/* What only tables that grow in kernels need. */
#define ga_slabhash_device_catch_up(table, stream) GA_OK
#endif

/* Alone: all arrays and their slabs go back, and what says which there are. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop_all(ga_slabhash_device *table)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (table->view.growing) {
        ga_slabhash_growing record;
        ga_status status = ga_slabhash_device_record(table, &record, 0);
        status = status ? status : ga_slabhash_device_drop_stages(table, &record, NULL, 0);
        ga_free(table->buckets, table->view.growing);
        return status;
    }
#endif
    ga_status status = ga_slabhash_device_drop(table, table->view, false, 0);
    return status ? status : ga_slabhash_cuda("give slabs back", cudaStreamSynchronize(0));
}

/* Give everything back, the slabs to their heap, for which all buckets are cleared. No kernel may
 * be using the table: it waits for the device. Once more does nothing. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_close(ga_slabhash_device *table)
{
    ga_status status = GA_OK;
    if (table && table->buckets) {
        ga_slabhash_device_scope scope(table->device);
        status = scope.status ? scope.status
                              : ga_slabhash_cuda("wait for the device", cudaDeviceSynchronize());
        if (status == GA_OK && table->emptied) {
            status = ga_slabhash_device_drop_all(table);
        }
        status = status ? status : ga_slabhash_device_met(table);
#ifdef GA_SLABHASH_CHECKED
        ga_free(table->buckets, table->view.use);
#endif
        ga_free(table->buckets, table->scratch);
        if (table->news) {
            (void)cudaFreeHost(table->news);
        }
        if (table->arrays != table->buckets) {
            ga_heap_close(table->arrays);
        }
        ga_heap_close(table->buckets);
    }
    if (table && table->own_slabs) {
        ga_heap_close(table->slabs);
    }
    if (table) {
        *table = ga_slabhash_device{};
    }
    return status;
}

/* The heap of slabs as kernels have it; between launches it grows here where it cannot under them.
 * */
static inline ga_status ga_slabhash_device_view(ga_slabhash_device *table)
{
    ga_kernel_heap heap = {};
    ga_status status = ga_heap_kernel_view(table->slabs, &heap);
    if (status == GA_OK &&
        (heap.kind != GA_KERNEL_KIND_SLAB ||
         GA_SLAB_WORDS_UNIT(heap.words) != sizeof(uint32_t) * GA_SLABHASH_WORDS)) {
        status =
            ga_fail(GA_ERR_ARGUMENT,
                    "slabhash: slabs from \"%s\": expected a slab heap of unit=128 for kernels",
                    ga_heap_spec(table->slabs));
    }
    if (status == GA_OK && GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_CHECK) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: slabs from \"%s\", with check=full: expected a heap without, "
                         "since slabs are freed as they are, not filled as it wants them",
                         ga_heap_spec(table->slabs));
    }
    if (status == GA_OK) {
        table->view.heap = (ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP];
    }
    return status;
}

/* The same where something found no slab since, or much was asked since it was last done: to ask
 * the heap takes longer than a small batch. */
static inline ga_status ga_slabhash_device_see(ga_slabhash_device *table)
{
    /* relaxed: see ga_slabhash_news. Who has seen FULL has waited for the kernel. */
    bool full = __atomic_load_n(&table->news->full, __ATOMIC_RELAXED) != 0;
    if (!full && table->unseen < GA_SLABHASH_SEEN_EACH) {
        return GA_OK;
    }
    table->unseen = 0;
    table->news->full = 0;
    return ga_slabhash_device_view(table);
}

/* Whether the keys stand in their order, for kernels after what is on `stream` (near_tile.h). */
static inline ga_status ga_slabhash_device_order(ga_slabhash_device *table, bool ordered,
                                                 cudaStream_t stream)
{
    return ga_slabhash_cuda("say in what order keys stand",
                            cudaMemsetAsync((uint32_t *)table->view.ordered, ordered ? 0xff : 0,
                                            sizeof *table->view.ordered, stream));
}

/* An array of so many buckets for the view, empty after what is on `stream`; keys are to stand in
 * their order, but in tables that grow in kernels. */
static inline ga_status ga_slabhash_device_rows(ga_slabhash_device *table, uint32_t buckets,
                                                ga_slabhash_view *view, cudaStream_t stream)
{
    uint64_t bytes = (uint64_t)buckets * GA_SLABHASH_WORDS * sizeof(uint32_t);
    void *rows = NULL;
    bool ordered = !GA_SLABHASH_IS_GROWING(table->view.kind);
    ga_status status = ga_slabhash_device_take(table, bytes + sizeof *view->ordered, &rows, stream);
    if (status == GA_ERR_SIZE) { /* more than the heap may ever have */
        status = ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %u buckets: %s", buckets,
                         ga_error_text());
    }
    if (status != GA_OK) {
        return status;
    }
    view->rows = (uint32_t *)rows;
    view->ordered = ordered ? view->rows + bytes / sizeof *view->rows : NULL;
    view->buckets = buckets;
    view->apart = buckets / view->path;
    view->far = bytes > 4u * table->cache ? 1u : 0u;
    status = ga_slabhash_cuda("empty the buckets",
                              cudaMemsetAsync(rows, 0xff, bytes + sizeof *view->ordered, stream));
    if (status != GA_OK) {
        (void)ga_slabhash_device_give(table, rows, stream);
        view->rows = NULL;
    }
    return status;
}

/* What the device has, that decides how the table is used. */
static inline ga_status ga_slabhash_device_measure(ga_slabhash_device *table)
{
    int processors = 0, cache = 0;
    ga_status status = ga_slabhash_cuda(
        "ask for the multiprocessors",
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, table->device));
    table->grid = processors * GA_SLABHASH_BLOCKS;
    status = status ? status
                    : ga_slabhash_cuda(
                          "ask for the size of the L2 cache",
                          cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, table->device));
    table->cache = (uint64_t)cache;
    return status;
}

/* A table that grows in kernels begins, with no array yet. */
static inline ga_status ga_slabhash_device_begin_turns(ga_slabhash_device *table,
                                                       const ga_slabhash_plan *plan)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    void *record = NULL;
    if (plan->path > 1) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "slabhash: path=%u of a table that grows in kernels: expected 1, or 0",
                       plan->path);
    }
    ga_status status =
        ga_heap_open(&table->arrays, GA_PLACE_KERNEL, table->device, GA_SLABHASH_ARRAYS);
    if (status != GA_OK) {
        table->arrays = table->buckets;
        return status;
    }
    status = ga_alloc(table->buckets, sizeof(ga_slabhash_growing), 0, &record);
    table->view.growing = (ga_slabhash_growing *)record;
    table->view.kind = plan->kind | GA_SLABHASH_GROWING;
    table->view.most = UINT32_MAX; /* of chained slabs: the heap's affair */
    return status;
#else
    (void)table;
    return ga_fail(GA_ERR_UNSUPPORTED,
                   "slabhash: GA_SLABHASH_GROW_IN_KERNELS, with path=%u: expected a program that "
                   "defines GA_SLABHASH_GROWING_KINDS before it includes gpualloc/slabhash.cuh",
                   plan->path);
#endif
}

/* Memory of the host's that kernels write. */
static inline ga_status ga_slabhash_device_listen(ga_slabhash_device *table)
{
    void *news = NULL;
    ga_status status = ga_slabhash_cuda(
        "get memory of the host's that kernels can write",
        cudaHostAlloc(&news, sizeof *table->news, cudaHostAllocMapped | cudaHostAllocPortable));
    if (status == GA_OK) {
        table->news = (ga_slabhash_news *)news;
        *table->news = ga_slabhash_news{};
    }
    return status;
}

/* A table that grows between calls begins: its batches are counted, and arrays come and go in the
 * order of streams where the device has that. */
static inline ga_status ga_slabhash_device_begin_calls(ga_slabhash_device *table,
                                                       cudaStream_t stream)
{
    ga_heap *arrays = NULL;
    if (ga_heap_open(&arrays, GA_PLACE_DEVICE, table->device, "async:release=64M") == GA_OK) {
        table->arrays = arrays;
        table->streamed = true;
    }
    table->placed = (uint32_t *)(void *)(table->loaded + GA_SLABHASH_REFUSED + 1);
    return ga_slabhash_cuda("begin to count what is put in",
                            cudaMemsetAsync(table->placed, 0, sizeof *table->placed, stream));
}

/* Alone: kernels find the array that `view` has, and it is all there is. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_adopt(ga_slabhash_device *table, ga_slabhash_view view,
                                                 cudaStream_t stream)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (table->view.growing) {
        return ga_slabhash_device_begin_at(table, view, stream);
    }
#endif
    (void)stream;
    table->view = view;
    return GA_OK;
}

GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_set_up(ga_slabhash_device *table,
                                                  const ga_slabhash_options *options,
                                                  cudaStream_t stream)
{
    ga_slabhash_options fixed = *options;
    ga_slabhash_plan plan;
    bool turns = false;
    if (options->options_size == sizeof *options) { /* else the plan says what is wrong */
        uint32_t grows = GA_SLABHASH_GROW | GA_SLABHASH_GROW_IN_KERNELS;
        turns = options->flags & GA_SLABHASH_GROW_IN_KERNELS;
        table->grows = options->flags & grows;
        fixed.flags &= ~grows;
        if (table->grows && !options->buckets) {
            fixed.buckets = GA_SLABHASH_DEVICE_BUCKETS;
        }
    }
    ga_status status = ga_slabhash_plan_of(&fixed, &plan);
    void *scratch = NULL;
#ifdef GA_SLABHASH_ONLY_KIND
    if (status == GA_OK && plan.kind != (uint32_t)GA_SLABHASH_ONLY_KIND) {
        status =
            ga_fail(GA_ERR_UNSUPPORTED,
                    "slabhash: a table of kind %u: expected %u, which is GA_SLABHASH_ONLY_KIND",
                    plan.kind, (uint32_t)GA_SLABHASH_ONLY_KIND);
    }
#endif
    if (status == GA_OK && !table->slabs) {
        table->own_slabs = true;
        status = ga_heap_open(&table->slabs, GA_PLACE_KERNEL, table->device, "slab:unit=128/vmm");
        table->own_slabs = status == GA_OK;
    }
    status = status ? status : ga_slabhash_device_view(table);
    status =
        status ? status : ga_heap_open(&table->buckets, GA_PLACE_DEVICE, table->device, "cuda");
    table->arrays = table->buckets;
    size_t results = (GA_SLABHASH_REFUSED + 1) * sizeof(uint64_t);
    status = status ? status
                    : ga_alloc(table->buckets,
                               sizeof(ga_slabhash_census) + results + sizeof *table->placed, 0,
                               &scratch);
    table->scratch = (uint64_t *)scratch;
    status = status ? status : ga_slabhash_device_listen(table);
    status = status ? status : ga_slabhash_device_measure(table);
    status = status ? status : ga_slabhash_device_watch(table, stream);
    if (status != GA_OK) {
        return status;
    }
    table->loaded = table->scratch + sizeof(ga_slabhash_census) / sizeof(uint64_t);
    if (table->grows && !turns) {
        status = ga_slabhash_device_begin_calls(table, stream);
    }
    table->least = plan.buckets;
    table->view.path = plan.path;
    table->view.kind = plan.kind;
    table->view.a = plan.a;
    table->view.b = plan.b;
    status = status || !turns ? status : ga_slabhash_device_begin_turns(table, &plan);
    ga_slabhash_view view = table->view;
    status = status ? status : ga_slabhash_device_rows(table, plan.buckets, &view, stream);
    status = status ? status : ga_slabhash_device_adopt(table, view, stream);
    table->emptied = status == GA_OK;
    return status;
}

/* Make a table on `device`, whichever is the current one, empty for what is put on `stream`, one of
 * that device's, after the call. The options are those of ga_slabhash_open(), but: `heap` is a slab
 * heap of unit=128 for kernels, without check=full, which outlives the table; or NULL for one that
 * is opened as slab:unit=128/vmm; `limit` is that heap's affair; there is no `hash`. With
 * GA_SLABHASH_GROW or _GROW_IN_KERNELS `buckets` is how many there are at least, 0: 16384, and the
 * rest is as without.
 *
 * GA_ERR_ARGUMENT  an option out of range, or no such heap, or one of another device
 * GA_ERR_UNSUPPORTED  _GROW_IN_KERNELS with a path, or without GA_SLABHASH_GROWING_KINDS; or another
 *                     kind than GA_SLABHASH_ONLY_KIND, where that is defined
 * GA_ERR_PLACE, GA_ERR_DEVICE, GA_ERR_MEMORY  as ga_heap_open() and ga_alloc() */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_open(ga_slabhash_device *table,
                                                const ga_slabhash_options *options, int device,
                                                cudaStream_t stream)
{
    if (!table || !options) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                       table ? "options" : "place for the table");
    }
    *table = ga_slabhash_device{};
    table->device = device;
    if (options->options_size == sizeof *options) {
        if (options->heap && ga_heap_device(options->heap) != device) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "slabhash: slabs from \"%s\" of device %d for a table of device %d: "
                           "expected a heap of the same device",
                           ga_heap_spec(options->heap), ga_heap_device(options->heap), device);
        }
        table->slabs = options->heap;
        if (options->hash) {
            return ga_fail(GA_ERR_ARGUMENT,
                           "slabhash: a hash of the host's for a table of device "
                           "%d: expected NULL, and GA_SLABHASH_HASH",
                           device);
        }
    }
    ga_slabhash_device_scope scope(device);
    ga_status status =
        scope.status ? scope.status : ga_slabhash_device_set_up(table, options, stream);
    if (status != GA_OK) {
        ga_slabhash_device_close(table);
    }
    return status;
}

/* What there is, as of the end of what is on `stream`, for which it waits.
 *
 * GA_ERR_ARGUMENT  no table, or `census` is NULL
 * GA_ERR_MEMORY    a table that grows in kernels, and found no slab in the middle of it */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_count(ga_slabhash_device *table,
                                                 ga_slabhash_census *census, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !census) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for a census: expected a pointer");
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    whole.census = (ga_slabhash_census *)table->scratch;
    status = ga_slabhash_device_catch_up(table, stream);
    status = status ? status
                    : ga_slabhash_cuda("begin a count",
                                       cudaMemsetAsync(whole.census, 0, sizeof *census, stream));
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_COUNT_ALL>(table, &whole, stream);
    status = status ? status
                    : ga_slabhash_cuda("read a count",
                                       cudaMemcpyAsync(census, whole.census, sizeof *census,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status : ga_slabhash_cuda("wait for a count", cudaStreamSynchronize(stream));
    return status ? status : ga_slabhash_device_met(table);
}

/* All pairs, into arrays of the device's with `room`, either of which may be NULL; waits.
 *
 * GA_ERR_ARGUMENT  no table, or `count` is NULL
 * GA_ERR_MEMORY    as above */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_retrieve(ga_slabhash_device *table, void *keys,
                                                    void *values, uint64_t room, uint64_t *count,
                                                    cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !count) {
        status =
            ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for their number: expected a pointer");
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    whole.keys = keys;
    whole.values = values;
    whole.room = room;
    whole.cursor = table->scratch;
    status = ga_slabhash_device_catch_up(table, stream);
    status = status
                 ? status
                 : ga_slabhash_cuda("begin to retrieve",
                                    cudaMemsetAsync(whole.cursor, 0, sizeof *whole.cursor, stream));
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_COPY_ALL>(table, &whole, stream);
    status = status ? status
                    : ga_slabhash_cuda("read how many were retrieved",
                                       cudaMemcpyAsync(count, whole.cursor, sizeof *count,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status
                    : ga_slabhash_cuda("wait for what is retrieved", cudaStreamSynchronize(stream));
    return status ? status : ga_slabhash_device_met(table);
}

/* ---- growth --------------------------------------------------------------------------------- */

/* Launch the move to another array, and wait for it. `left`: pairs for which there was no slab. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_move(ga_slabhash_device *table, ga_slabhash_view to,
                                                uint64_t *left, cudaStream_t stream)
{
    int grid = ga_slabhash_device_grid(table, table->view.buckets);
    ga_status status = ga_slabhash_cuda(
        "begin to move", cudaMemsetAsync(table->scratch, 0, sizeof *table->scratch, stream));
    if (status != GA_OK) {
        return status;
    }
#define GA_SLABHASH_MOVE_CALL(kind)                                                                \
    ga_slabhash_move_kernel<kind>                                                                  \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, to, table->scratch)
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_MOVE_CALL)
#undef GA_SLABHASH_MOVE_CALL
    status = ga_slabhash_cuda("launch a move", cudaGetLastError());
    status = status ? status
                    : ga_slabhash_cuda("read what a move left",
                                       cudaMemcpyAsync(left, table->scratch, sizeof *left,
                                                       cudaMemcpyDeviceToHost, stream));
    return status ? status : ga_slabhash_cuda("wait for a move", cudaStreamSynchronize(stream));
}

/* Alone: the table has the array of `to` from now on, and those before, `from` the last, go. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_replace(ga_slabhash_device *table, ga_slabhash_view from,
                                                   ga_slabhash_view to, bool bare,
                                                   cudaStream_t stream)
{
#ifdef GA_SLABHASH_GROWING_KINDS
    if (table->view.growing) {
        ga_slabhash_growing record;
        ga_status status = ga_slabhash_device_record(table, &record, stream);
        status = status ? status : ga_slabhash_device_begin_at(table, to, stream);
        return status ? status : ga_slabhash_device_drop_stages(table, &record, NULL, stream);
    }
#endif
    ga_status status = ga_slabhash_device_adopt(table, to, stream);
    return status ? status : ga_slabhash_device_drop(table, from, bare, stream);
}

/* Move to so many buckets, without what was deleted; `bare`: no slabs are chained. The table is as
 * it was where that fails. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_resize(ga_slabhash_device *table, uint32_t buckets,
                                                  bool bare, cudaStream_t stream)
{
    uint64_t left = 0;
    ga_status status = ga_slabhash_device_see(table);
    ga_slabhash_view from = table->view, to = table->view;
    status = status ? status : ga_slabhash_device_rows(table, buckets, &to, stream);
    if (status != GA_OK) {
        return status;
    }
    to.kind &= ~GA_SLABHASH_GROWING; /* not while this goes on */
    status = ga_slabhash_device_move(table, to, &left, stream);
    if (status == GA_OK && left) {
        status = ga_fail(GA_ERR_MEMORY,
                         "slabhash: no slabs for %llu pairs that move to %u buckets: expected a "
                         "heap with more",
                         (unsigned long long)left, buckets);
    }
    if (status != GA_OK) {
        (void)ga_slabhash_device_drop(table, to, false, stream);
        return status;
    }
    to.kind = from.kind;
    return ga_slabhash_device_replace(table, from, to, bare, stream);
}

/* How many buckets the pairs want, of which `fill` of 100 places are to be taken. */
static inline uint32_t ga_slabhash_device_buckets(const ga_slabhash_device *table, uint64_t pairs,
                                                  uint32_t fill)
{
    uint64_t places = ga_slabhash_places_of(table->view.kind);
    uint64_t buckets = pairs / places * 100u / fill + 1u;
    buckets = buckets > table->least ? buckets : table->least;
    return buckets < (UINT64_C(1) << 31) ? (uint32_t)buckets : UINT32_C(1) << 31;
}

/* The most places that can be taken, kernels' own apart: what was counted, what batches have filled
 * since, as far as it is known, and what was asked after that. */
static inline uint64_t ga_slabhash_device_most(const ga_slabhash_device *table)
{
    if (!table->placed) {
        return table->taken;
    }
    uint64_t news =
        __atomic_load_n(&table->news->placed, __ATOMIC_RELAXED); /* relaxed: see there */
    uint32_t asked = table->asked - (uint32_t)(news >> 32);
    return table->taken + ((uint32_t)news - table->counted) + asked;
}

/* How many pairs more there may be before the buckets are too full. */
static inline uint64_t ga_slabhash_device_spare(const ga_slabhash_device *table)
{
    uint64_t places = ga_slabhash_places_of(table->view.kind);
    uint64_t most = (uint64_t)table->view.buckets * places * GA_SLABHASH_FULL_AT / 100u;
    uint64_t taken = ga_slabhash_device_most(table);
    /* Its numbers are of 32 bits. */
    return most > taken && table->since < UINT64_C(1) << 31 ? most - taken : 0;
}

/* Count anew what is taken; waits. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_recount(ga_slabhash_device *table,
                                                   ga_slabhash_census *census, cudaStream_t stream)
{
    ga_status status = GA_OK;
    if (table->placed) {
        status = ga_slabhash_cuda("read how many were put in",
                                  cudaMemcpyAsync(&table->news->read, table->placed,
                                                  sizeof *table->placed, cudaMemcpyDeviceToHost,
                                                  stream));
    }
    status = status ? status : ga_slabhash_device_count(table, census, stream);
    if (status == GA_OK) {
        table->taken = census->live + census->deleted;
        table->counted = table->news->read;
        table->since = 0;
        table->news->placed = (uint64_t)table->asked << 32 | table->news->read;
    }
    return status;
}

/* Have room for `more` pairs beside the live ones of a count. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_widen(ga_slabhash_device *table,
                                                 const ga_slabhash_census *census, uint64_t more,
                                                 cudaStream_t stream)
{
    if (more <= ga_slabhash_device_spare(table)) {
        return GA_OK;
    }
    bool small = more < census->live; /* and others like it will come */
    uint32_t buckets = ga_slabhash_device_buckets(
        table, census->live + more, small ? GA_SLABHASH_FILL_LESS : GA_SLABHASH_FILL_TO);
    ga_status status = ga_slabhash_device_resize(table, buckets, census->chained == 0, stream);
    table->taken = status ? table->taken : census->live;
    return status;
}

/* Room for `pairs` in all, in a table that grows, for kernels that put them in by themselves. It
 * waits, and the view is another one where there was not enough.
 *
 * GA_ERR_MEMORY       no memory for the buckets, or a slab; the table is as it was
 * GA_ERR_UNSUPPORTED  a table without GA_SLABHASH_GROW */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_reserve(ga_slabhash_device *table, uint64_t pairs,
                                                   cudaStream_t stream)
{
    ga_slabhash_census census = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && !table->grows) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: room for %llu pairs in a table of %u buckets for good: "
                         "expected one with GA_SLABHASH_GROW",
                         (unsigned long long)pairs, table->view.buckets);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status ? scope.status : ga_slabhash_device_recount(table, &census, stream);
    uint64_t more = pairs > census.live ? pairs - census.live : 0;
    return status ? status : ga_slabhash_device_widen(table, &census, more, stream);
}

/* The part of a batch from request `first` on. */
static inline ga_slabhash_batch ga_slabhash_batch_from(const ga_slabhash_batch *batch,
                                                       uint32_t kind, uint64_t first)
{
    size_t width =
        GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? sizeof(uint64_t) : sizeof(uint32_t);
    ga_slabhash_batch part = *batch;
    part.count -= first;
    part.keys = (const char *)batch->keys + first * width;
    part.values = batch->values ? (const char *)batch->values + first * width : NULL;
    part.ops = batch->ops ? batch->ops + first : NULL;
    part.results = batch->results ? batch->results + first : NULL;
    part.found = batch->found ? (char *)batch->found + first * width : NULL;
    return part;
}

/* Blocks of a batch. Lanes that go through requests of their own are no more than there is room for
 * at once, so that each has as many as the others. */
static inline int ga_slabhash_device_batch_grid(const ga_slabhash_device *table,
                                                const ga_slabhash_batch *batch)
{
    uint64_t tiles = batch->count / GA_SLABHASH_TILE + (batch->count % GA_SLABHASH_TILE ? 1 : 0);
    int grid = ga_slabhash_device_grid(table, tiles < UINT32_MAX ? tiles : UINT32_MAX);
    int resident = table->grid / GA_SLABHASH_BLOCKS * GA_SLABHASH_RESIDENT;
    bool searches = !batch->ops && batch->op == GA_SLABHASH_SEARCH;
    bool alone = table->view.ordered && !GA_SLABHASH_IS_MULTI(table->view.kind) &&
                 !(searches && table->view.far);
    return alone && resident < grid ? resident : grid;
}

/* The batch's kernel; everything is checked. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_launch(ga_slabhash_device *table,
                                                  const ga_slabhash_batch *batch, uint64_t *counts,
                                                  cudaStream_t stream)
{
    bool fills = batch->ops || (batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE);
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status;
    if (status == GA_OK && fills) {
        status = ga_slabhash_device_see(table);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_teller teller = {};
    teller.news = table->news;
    teller.placed = fills ? table->placed : NULL;
    teller.asked = table->asked;
    table->asked += fills ? (uint32_t)batch->count : 0;
    table->since += fills ? batch->count : 0;
    table->unseen += fills ? (uint32_t)std::min<uint64_t>(batch->count, GA_SLABHASH_SEEN_EACH) : 0;
    int grid = ga_slabhash_device_batch_grid(table, batch);
/* Searches of tables that are far are faster as tiles' that read whole slabs. */
#define GA_SLABHASH_IS_UNIQUE(kind) (!GA_SLABHASH_IS_MULTI(kind) && !GA_SLABHASH_IS_GROWING(kind))
#define GA_SLABHASH_SEARCH_CALL(kind)                                                              \
    if (table->view.far) {                                                                         \
        ga_slabhash_batch_kernel<kind, GA_SLABHASH_SEARCH, false>                                  \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller);         \
    } else {                                                                                       \
        ga_slabhash_batch_kernel<kind, GA_SLABHASH_SEARCH, GA_SLABHASH_IS_UNIQUE(kind)>            \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller);         \
    }
#define GA_SLABHASH_INSERT_CALL(kind)                                                              \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>                                             \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller)
#define GA_SLABHASH_ANY_CALL(kind)                                                                 \
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_ANY>                                                \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *batch, counts, teller)
    if (!batch->ops && batch->op == GA_SLABHASH_SEARCH) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_SEARCH_CALL)
    } else if (!batch->ops && batch->op == GA_SLABHASH_INSERT) {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_INSERT_CALL)
    } else {
        GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_ANY_CALL)
    }
#undef GA_SLABHASH_SEARCH_CALL
#undef GA_SLABHASH_IS_UNIQUE
#undef GA_SLABHASH_INSERT_CALL
#undef GA_SLABHASH_ANY_CALL
    return ga_slabhash_cuda("launch a batch", cudaGetLastError());
}

/* The batch in parts, each in a table that has room for what the part may put in, as far as memory
 * goes. What a part has put in says how much of the next is new, and a part is at most 16 times
 * what went before: so a batch of few keys, each many times, does not make a large table. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_growing(ga_slabhash_device *table,
                                                       const ga_slabhash_batch *batch,
                                                       uint64_t *counts, cudaStream_t stream)
{
    const uint64_t least = UINT64_C(1) << 22, largest = UINT64_C(1) << 31;
    bool puts = batch->ops || (batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE);
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status;
    ga_slabhash_census census = {};
    uint64_t done = 0, last = 0, before = 0;
    while (status == GA_OK && done < batch->count) {
        ga_slabhash_batch part = ga_slabhash_batch_from(batch, table->view.kind, done);
        part.count = std::min<uint64_t>(part.count, largest);
        if (puts && part.count > ga_slabhash_device_spare(table)) {
            uint64_t most = done > least / 16u ? 16u * done : least;
            part.count = part.count < most ? part.count : most;
            status = ga_slabhash_device_recount(table, &census, stream);
            double fresh = last ? (double)(table->taken - before) / (double)last : 1.0;
            uint64_t more = (uint64_t)((double)part.count * (fresh < 1.0 ? fresh : 1.0)) + 1u;
            status = status ? status : ga_slabhash_device_widen(table, &census, more, stream);
            /* Without memory chains become longer, and what finds no slab is FULL. */
            status = status == GA_ERR_MEMORY ? GA_OK : status;
            before = table->taken;
            last = part.count;
        }
        status = status ? status : ga_slabhash_device_launch(table, &part, counts, stream);
        done += part.count;
    }
    return status;
}

#ifdef GA_SLABHASH_GROWING_KINDS
/* The batch, in a table that grows by what it puts in; and what is left of a move behind it. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_turns(ga_slabhash_device *table,
                                                     const ga_slabhash_batch *batch,
                                                     uint64_t *counts, cudaStream_t stream)
{
    ga_kernel_heap arrays =
        {}; /* asked for, so that the heap grows where it cannot under kernels */
    ga_slabhash_device_scope scope(table->device);
    ga_status status = scope.status ? scope.status : ga_heap_kernel_view(table->arrays, &arrays);
    bool puts = batch->ops || batch->op != GA_SLABHASH_SEARCH;
    status = status ? status : ga_slabhash_device_launch(table, batch, counts, stream);
    return status || !puts ? status : ga_slabhash_device_settle(table, stream);
}
#endif

/* FLUSH and clear, as ga_slabhash_flush() and ga_slabhash_clear(): alone, after what is on
 * `stream`. After a flush and until a clear, lanes do not look at 32 bytes first (near_tile.h):
 * whatever is asked reads whole slabs. A flush of a table that grows waits, and moves it to as many
 * buckets as its pairs want, where there is memory for them: there lanes look so again. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_flush(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_slabhash_census census = {};
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && table->grows) {
        ga_slabhash_device_scope scope(table->device);
        status = scope.status ? scope.status : ga_slabhash_device_recount(table, &census, stream);
        uint32_t buckets = ga_slabhash_device_buckets(table, census.live, GA_SLABHASH_FILL_TO);
        status = status ? status
                        : ga_slabhash_device_resize(table, buckets, census.chained == 0, stream);
        table->taken = census.live;
        if (status != GA_ERR_MEMORY) {
            return status;
        }
        status = GA_OK;
    }
    if (status == GA_OK && table->view.ordered) {
        status = ga_slabhash_device_order(table, false, stream);
    }
    return status ? status : ga_slabhash_device_whole<GA_SLABHASH_FLUSH_ALL>(table, &whole, stream);
}

GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_clear(ga_slabhash_device *table, cudaStream_t stream)
{
    ga_slabhash_whole whole = {};
    ga_status status = ga_slabhash_device_check(table);
#ifdef GA_SLABHASH_GROWING_KINDS
    if (status == GA_OK && table->view.growing) {
        table->taken = 0;
        return ga_slabhash_device_clear_stages(table, stream);
    }
#endif
    status =
        status ? status : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(table, &whole, stream);
    table->taken = status ? table->taken : 0;
    return status ? status : ga_slabhash_device_order(table, true, stream);
}

/* All operations of the batch, in no order, after the work that is on `stream`. Its arrays, and
 * `counts`, are of the device's memory. `counts`, NULL or four numbers for the results ABSENT,
 * FOUND, FULL and REFUSED, go up: so many went in as the first two say, and those that are FULL
 * may be tried again. Waits for nothing, but where the heap, or the table, has to grow. The host
 * does not look at `ops`: those that put pairs into a map without `values` are REFUSED.
 *
 * GA_ERR_ARGUMENT  no table, batch or keys; no values where `op` puts pairs into a map; `op` or
 *                  `how` is none: GA_SLABHASH_HOW_COUNT is one where there is GA_SLABHASH_FUNCTION
 * GA_ERR_DEVICE    the launch failed */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run(ga_slabhash_device *table,
                                               const ga_slabhash_batch *batch, uint64_t *counts,
                                               cudaStream_t stream)
{
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && (!batch || (unsigned)batch->op >= GA_SLABHASH_OP_COUNT)) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: expected a batch of operation 0 to %d",
                         batch ? "no such operation" : "no batch", GA_SLABHASH_OP_COUNT - 1);
    }
    if (status == GA_OK && (unsigned)batch->how >= GA_SLABHASH_HOWS) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: how=%d: expected 0 to %d", (int)batch->how,
                         GA_SLABHASH_HOWS - 1);
    }
    if (status != GA_OK || !batch->count) {
        return status;
    }
    bool puts = !batch->ops && batch->op != GA_SLABHASH_SEARCH && batch->op != GA_SLABHASH_DELETE;
    if (!batch->keys ||
        (!batch->values && puts && GA_SLABHASH_MODE(table->view.kind) != GA_SLABHASH_SET32)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without %s: expected an array",
                       (unsigned long long)batch->count, batch->keys ? "values" : "keys");
    }
#ifdef GA_SLABHASH_GROWING_KINDS
    if (table->view.growing) {
        return ga_slabhash_device_run_turns(table, batch, counts, stream);
    }
#endif
    return table->grows ? ga_slabhash_device_run_growing(table, batch, counts, stream)
                        : ga_slabhash_device_launch(table, batch, counts, stream);
}

/* ga_slabhash_run_search_all() and ga_slabhash_run_delete_all() over arrays of the device's, after
 * what is on `stream`; waits for nothing. The values of a key stand together, those of different
 * keys in no order; while others change the table fewer may have been written than `counts` says at
 * first, and it says how many. `totals`, two numbers of the device's, which begin as 0: how many
 * pairs there were, and how many keys were refused.
 *
 * GA_ERR_ARGUMENT  no table, batch, keys or totals; room without values
 * GA_ERR_DEVICE    the launch failed */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_run_all(ga_slabhash_device *table,
                                                   const ga_slabhash_all *all, bool removes,
                                                   uint64_t *totals, cudaStream_t stream)
{
    ga_status status = ga_slabhash_device_check(table);
    if (status == GA_OK && (!all || !totals)) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                         all ? "place for totals" : "batch");
    }
    if (status != GA_OK || !all->count) {
        return status;
    }
    if (!all->keys || (all->room && !all->values)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without %s: expected an array",
                       (unsigned long long)all->count, all->keys ? "values" : "keys");
    }
    ga_slabhash_device_scope scope(table->device);
    if (scope.status != GA_OK) {
        return scope.status;
    }
    int grid = ga_slabhash_device_grid(table, all->count < UINT32_MAX ? all->count : UINT32_MAX);
#define GA_SLABHASH_ALL_CALL(kind)                                                                 \
    if (removes) {                                                                                 \
        ga_slabhash_all_kernel<kind, true>                                                         \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *all, totals);                   \
    } else {                                                                                       \
        ga_slabhash_all_kernel<kind, false>                                                        \
            <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *all, totals);                   \
    }
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_ALL_CALL)
#undef GA_SLABHASH_ALL_CALL
    return ga_slabhash_cuda("launch a batch for all pairs of keys", cudaGetLastError());
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Pairs on their way between the device and the host: `count` of each array, on both sides; a set
 * has no values. */
typedef struct ga_slabhash_device_pairs {
    uint64_t count;
    size_t width;        /* bytes of a key, and of a value */
    void *keys, *values; /* of the device's */
    uint8_t *there;      /* of the host's: the keys, the values behind them */
    ga_heap *heap;
} ga_slabhash_device_pairs;

static inline void ga_slabhash_device_pairs_free(ga_slabhash_device_pairs *pairs)
{
    ga_free(pairs->heap, pairs->keys);
    ga_free(pairs->heap, pairs->values);
    free(pairs->there);
}

static inline ga_status ga_slabhash_device_pairs_make(ga_slabhash_device_pairs *pairs,
                                                      const ga_slabhash_device *table,
                                                      uint64_t count)
{
    uint32_t mode = GA_SLABHASH_MODE(table->view.kind);
    *pairs = ga_slabhash_device_pairs{};
    pairs->count = count;
    pairs->width = mode == GA_SLABHASH_MAP64 ? 8 : 4;
    pairs->heap = table->buckets;
    size_t bytes = count * pairs->width;
    ga_status status = GA_OK;
    if (count) {
        status = ga_alloc(pairs->heap, bytes, 0, &pairs->keys);
        status = status || mode == GA_SLABHASH_SET32
                     ? status
                     : ga_alloc(pairs->heap, bytes, 0, &pairs->values);
        pairs->there = (uint8_t *)malloc(2 * bytes);
    }
    return status || !count || pairs->there
               ? status
               : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %llu pairs on the host",
                         (unsigned long long)count);
}

static inline void *ga_slabhash_device_pairs_values(const ga_slabhash_device_pairs *pairs)
{
    return pairs->values ? pairs->there + pairs->count * pairs->width : NULL;
}

/* From the device to the host, or the other way; waits. */
static inline ga_status ga_slabhash_device_pairs_copy(const ga_slabhash_device_pairs *pairs,
                                                      bool to_host, cudaStream_t stream)
{
    size_t bytes = pairs->count * pairs->width;
    void *values = ga_slabhash_device_pairs_values(pairs);
    cudaMemcpyKind kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    cudaError_t error = cudaSuccess;
    if (pairs->count) {
        error = cudaMemcpyAsync(to_host ? pairs->there : pairs->keys,
                                to_host ? pairs->keys : pairs->there, bytes, kind, stream);
    }
    if (error == cudaSuccess && values) {
        error = cudaMemcpyAsync(to_host ? values : pairs->values, to_host ? pairs->values : values,
                                bytes, kind, stream);
    }
    error = error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
    return ga_slabhash_cuda("copy pairs", error);
}

/* A table of the host's for as many pairs of the same kind: it knows files. */
static inline ga_status ga_slabhash_device_twin(ga_slabhash **out, const ga_slabhash_device *table,
                                                uint64_t pairs)
{
    ga_slabhash_options options = {};
    uint64_t buckets = pairs / 5 + 1;
    options.options_size = sizeof options;
    options.mode = (ga_slabhash_mode)GA_SLABHASH_MODE(table->view.kind);
    options.flags = GA_SLABHASH_IS_MULTI(table->view.kind) ? GA_SLABHASH_MULTI : 0;
    options.buckets = buckets < UINT32_C(1) << 31 ? (uint32_t)buckets : UINT32_C(1) << 31;
    return ga_slabhash_open(out, &options);
}

/* Write all pairs to a file, as ga_slabhash_save(): tables of the host can read it, and the other
 * way. As of the end of what is on `stream`, for which it waits. No kernel may change the table
 * meanwhile. Takes memory for all pairs, on the device once and on the host twice.
 *
 * GA_ERR_IO, GA_ERR_ARGUMENT  as ga_slabhash_save()
 * GA_ERR_MEMORY               no memory for the pairs; the file is as it was */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_save(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream)
{
    ga_slabhash_device_pairs pairs = {};
    ga_slabhash *twin = NULL;
    uint64_t count = 0;
    ga_status status = ga_slabhash_device_retrieve(table, NULL, NULL, 0, &count, stream);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = ga_slabhash_device_pairs_make(&pairs, table, count);
    status = status ? status
                    : ga_slabhash_device_retrieve(table, pairs.keys, pairs.values, count, &count,
                                                  stream);
    if (status == GA_OK && count != pairs.count) {
        status = ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: %llu pairs to be saved became %llu meanwhile: expected a table "
                         "that nobody changes",
                         (unsigned long long)pairs.count, (unsigned long long)count);
    }
    status = status ? status : ga_slabhash_device_pairs_copy(&pairs, true, stream);
    status = status ? status : ga_slabhash_device_twin(&twin, table, count);
    if (status == GA_OK && count) {
        ga_slabhash_batch batch = {};
        batch.count = count;
        batch.keys = pairs.there;
        batch.values = ga_slabhash_device_pairs_values(&pairs);
        batch.op = GA_SLABHASH_INSERT;
        status = ga_slabhash_run(twin, &batch, NULL);
    }
    status = status ? status : ga_slabhash_save(twin, path);
    ga_slabhash_close(twin);
    ga_slabhash_device_pairs_free(&pairs);
    return status;
}

/* Bytes of a file, or 0 where it cannot be told. */
static inline uint64_t ga_slabhash_device_file_bytes(const char *path)
{
    FILE *file = path ? fopen(path, "rb") : NULL;
    long bytes = file && !fseek(file, 0, SEEK_END) ? ftell(file) : 0;
    if (file) {
        fclose(file);
    }
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Put the pairs in: in place of what is there, or in a multimap as more of them. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_put_in(ga_slabhash_device *table,
                                                  const ga_slabhash_device_pairs *pairs,
                                                  cudaStream_t stream)
{
    uint64_t counts[GA_SLABHASH_REFUSED + 1] = {};
    ga_slabhash_batch batch = {};
    batch.count = pairs->count;
    batch.keys = pairs->keys;
    batch.values = pairs->values;
    batch.op = GA_SLABHASH_IS_MULTI(table->view.kind) ? GA_SLABHASH_INSERT : GA_SLABHASH_REPLACE;
    ga_status status =
        ga_slabhash_cuda("begin to load", cudaMemsetAsync(table->loaded, 0, sizeof counts, stream));
    status = status ? status : ga_slabhash_device_run(table, &batch, table->loaded, stream);
    status = status ? status
                    : ga_slabhash_cuda("read how many were loaded",
                                       cudaMemcpyAsync(counts, table->loaded, sizeof counts,
                                                       cudaMemcpyDeviceToHost, stream));
    status = status ? status : ga_slabhash_cuda("wait for a load", cudaStreamSynchronize(stream));
    uint64_t went = counts[GA_SLABHASH_ABSENT] + counts[GA_SLABHASH_FOUND];
    return status || went == pairs->count
               ? status
               : ga_fail(GA_ERR_MEMORY,
                         "slabhash: %llu of %llu pairs were loaded: expected slabs for all",
                         (unsigned long long)went, (unsigned long long)pairs->count);
}

/* Put the pairs of such a file in, as ga_slabhash_load(), after what is on `stream`; waits. It is
 * looked through before the first pair is put in. Takes memory as ga_slabhash_device_save().
 *
 * GA_ERR_IO, GA_ERR_ARGUMENT  as ga_slabhash_load()
 * GA_ERR_MEMORY               no memory for the pairs; or not all went in */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_load(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream)
{
    ga_slabhash_device_pairs pairs = {};
    ga_slabhash *twin = NULL;
    uint64_t count = 0;
    ga_status status = ga_slabhash_device_check(table);
    if (status != GA_OK) {
        return status;
    }
    ga_slabhash_device_scope scope(table->device);
    status = scope.status
                 ? scope.status
                 : ga_slabhash_device_twin(&twin, table, ga_slabhash_device_file_bytes(path) / 4);
    status = status ? status : ga_slabhash_load(twin, path);
    status = status ? status : ga_slabhash_size(twin, &count);
    if (status == GA_OK) {
        status = ga_slabhash_device_pairs_make(&pairs, table, count);
        status = status || !count
                     ? status
                     : ga_slabhash_retrieve(twin, pairs.there,
                                            ga_slabhash_device_pairs_values(&pairs), count, &count);
        status = status ? status : ga_slabhash_device_pairs_copy(&pairs, false, stream);
        status = status || !count ? status : ga_slabhash_device_put_in(table, &pairs, stream);
        ga_slabhash_device_pairs_free(&pairs);
    }
    ga_slabhash_close(twin);
    return status;
}

#endif
