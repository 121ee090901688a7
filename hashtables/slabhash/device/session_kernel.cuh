/* SPDX-License-Identifier: MIT
 *
 * A kernel's use of a slab hash in device memory: a tile's session, one operation of the tile, and
 * one operation of each lane. Included by gpualloc/slabhash.cuh, which says how to use it.
 *
 * STRUCTURE  ga_slabhash_session_begin()   a tile begins a session with the table
 *            ga_slabhash_tile()         one operation, by the whole tile
 *            ga_slabhash_lanes()        one operation of each lane that asks, each of any kind
 *            ga_slabhash_session_end()     releases the slabs that the tile has claimed ahead
 *
 * CALLS      ga_slabhash_lanes
 *              ga_slabhash_lanes_fast           whole warps: tiles serve all lanes together
 *                ga_slabhash_growth_tend        tables that grow: do a part of the move first
 *                ga_slabhash_lanes_abreast      requests that are not served are left over
 *                ga_slabhash_lane_slow          tables that grow: one lane of each tile, then again
 *              ga_slabhash_lanes_slow           left-over requests, one after the other
 *                ga_slabhash_lane_slow          one lane's request, by its whole tile
 *                  ga_slabhash_tile_outlined
 *                    ga_slabhash_tile
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_SESSION_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_SESSION_KERNEL_CUH

#include "../table/many_tile.h"
#include "../table/use_tile.h"

/* Searches peek at one sector first. If more than 1 in 6 of a round's peeks miss, the warp's next
 * 31 rounds do not peek. The limit follows from an H200's rates for tables of 830 MiB and more: 39
 * G sectors a second and 32.5 G slabs. Over a link to another device, with 8.8 and 2.9 G, a peek is
 * worth it as long as fewer than 2 in 3 miss. */
enum {
    GA_SLABHASH_PEEK_MISS_DIV = 6,
    GA_SLABHASH_BLIND_ROUNDS = 31
};

/* ---- in programs with checks ----------------------------------------------------------------- */

#ifdef GA_SLABHASH_CHECKED
/* A tile begins to use the table; a conflict with other calls is counted in the word behind
 * `use`. */
static __device__ __forceinline__ void ga_slabhash_tile_begins(ga_slabhash_view table, ga_tile tile,
                                                               bool exclusive)
{
    GA_EACH_LANE(tile, table.use ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (ga_slabhash_use_conflicts(ga_slabhash_use_begin(table.use, exclusive), exclusive)) {
            ga_post_add64_relaxed(table.use + 1, 1); /* relaxed: read after the kernels */
        }
    }
    ga_tile_sync(tile);
}

static __device__ __forceinline__ void ga_slabhash_tile_ends(ga_slabhash_view table, ga_tile tile,
                                                             bool exclusive)
{
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, table.use ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_slabhash_use_end(table.use, exclusive);
    }
}
#else
#define ga_slabhash_tile_begins(table, tile, exclusive) ((void)0)
#define ga_slabhash_tile_ends(table, tile, exclusive)   ((void)0)
#endif

/* ---- in kernels ---------------------------------------------------------------------------- */

/* The part of a session that is the same for all tables. */
typedef struct ga_slabhash_session_fields {
    ga_slabhash_view table;
    ga_tile tile;
    ga_slab_claimed claimed;
    uint32_t blind; /* rounds of searches still to go without peeking (many_tile.h) */
} ga_slabhash_session_fields;

/* The state that a tile keeps between its operations. That for tables that grow in kernels is a
 * base class because an empty one takes no memory; an empty member would. */
typedef struct ga_slabhash_session : ga_slabhash_session_fields, ga_slabhash_growth_state {
} ga_slabhash_session;

/* Number of the tile in the grid. */
static __device__ __forceinline__ uint32_t ga_slabhash_tile_number(void)
{
    uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
    return (block * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE;
}

static __device__ __forceinline__ ga_slabhash_session
ga_slabhash_session_begin(ga_slabhash_view table)
{
    ga_slabhash_session session;
    uint32_t number = ga_slabhash_tile_number();
    session.table = table;
    session.tile = ga_tile_of(GA_SLABHASH_TILE);
    session.claimed = ga_slabhash_claim_begin(number);
    session.blind = 0;
    ga_slabhash_tile_begins(table, session.tile, false);
    ga_slabhash_growth_begin(table, session.tile, &session, number);
    return session;
}

/* ga_slabhash_session_begin() in kernels for one kind, where the compiler knows whether its tables
 * grow. */
template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_session ga_slabhash_session_of(ga_slabhash_view table)
{
    return ga_slabhash_session_begin(ga_slabhash_growth_in_kernel(kind, table));
}

static __device__ __forceinline__ void ga_slabhash_session_end(ga_slabhash_session *session)
{
    ga_slabhash_claim_end(session->table, session->tile, &session->claimed);
    ga_slabhash_growth_end(session->table, session->tile, session, ga_slabhash_tile_number());
    ga_slabhash_tile_ends(session->table, session->tile, false);
}

/* `kind` may have the flag GA_SLABHASH_STEPWISE. */
template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_answer ga_slabhash_tile(ga_slabhash_session *session,
                                                                      uint32_t op, uint64_t key,
                                                                      uint64_t value, uint32_t how)
{
    ga_slabhash_operation to;
    if (session->table.kind != GA_SLABHASH_KIND_OF_TABLE(kind)) {
        return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
    }
    to.key = key;
    to.value = value;
    to.op = op;
    to.how = how;
    to.function = NULL;
    to.context = NULL;
    if (GA_SLABHASH_IS_GROWING(kind)) {
        return ga_slabhash_growth_do(kind, session->table, session->tile, &session->claimed,
                                     session, GA_SLABHASH_HASH(session->table, key), to);
    }
    return ga_slabhash_do(kind, session->table, session->tile, &session->claimed,
                          GA_SLABHASH_HASH(session->table, key), to);
}

/* The part of a session that operations change, in tables that do not grow, and in tables that
 * do. */
template <bool grows> struct ga_slabhash_saved {
    ga_slab_claimed claimed;
};

static __device__ __forceinline__ void ga_slabhash_save_session(ga_slabhash_saved<false> *saved,
                                                                const ga_slabhash_session *session)
{
    saved->claimed = session->claimed;
}

static __device__ __forceinline__ void
ga_slabhash_restore_session(ga_slabhash_session *session, const ga_slabhash_saved<false> *saved)
{
    session->claimed = saved->claimed;
}

template <> struct ga_slabhash_saved<true> {
    ga_slab_claimed claimed;
    ga_slabhash_growth_state growth;
};

static __device__ __forceinline__ void ga_slabhash_save_session(ga_slabhash_saved<true> *saved,
                                                                const ga_slabhash_session *session)
{
    saved->claimed = session->claimed;
    saved->growth = *session;
}

static __device__ __forceinline__ void
ga_slabhash_restore_session(ga_slabhash_session *session, const ga_slabhash_saved<true> *saved)
{
    session->claimed = saved->claimed;
    static_cast<ga_slabhash_growth_state &>(*session) = saved->growth;
}

/* ga_slabhash_tile() out of line, so that callers need no registers for it. */
template <uint32_t kind> struct ga_slabhash_outlined {
    ga_slabhash_answer answer;
    ga_slabhash_saved<GA_SLABHASH_IS_GROWING(kind)> saved;
};

template <uint32_t kind>
static __device__ __noinline__ ga_slabhash_outlined<kind>
ga_slabhash_tile_outlined(ga_slabhash_view table,
                          ga_slabhash_saved<GA_SLABHASH_IS_GROWING(kind)> saved, uint32_t op,
                          uint64_t key, uint64_t value, uint32_t how)
{
    ga_slabhash_outlined<kind> done;
    ga_slabhash_session session;
    session.table = table;
    session.tile = ga_tile_of(GA_SLABHASH_TILE);
    ga_slabhash_restore_session(&session, &saved);
    done.answer = ga_slabhash_tile<kind>(&session, op, key, value, how);
    ga_slabhash_save_session(&done.saved, &session);
    return done;
}

/* True if a kernel for `fixed` may apply a function, so that `how` matters. */
GA_SIMT bool ga_slabhash_may_apply(uint32_t kind, uint32_t fixed)
{
    return ga_slabhash_supports(kind, GA_SLABHASH_APPLY) &&
           (fixed == GA_SLABHASH_APPLY || fixed >= GA_SLABHASH_OP_COUNT);
}

/* After a round of searches: if too many peeks missed, the next rounds do not peek. All lanes of
 * the warp call; the result is equal in all. */
static __device__ __forceinline__ void ga_slabhash_update_blind(ga_slabhash_session *session,
                                                                bool asked, bool in_vain)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t misses = ga_bits_count(ga_lanes_nonzero(warp, in_vain ? 1u : 0u));
    uint32_t all = ga_bits_count(ga_lanes_nonzero(warp, asked ? 1u : 0u));
    bool too_many = session->table.exceeds_l2 == GA_SLABHASH_BEHIND_LINK
                        ? misses * 3u > all * 2u
                        : misses * GA_SLABHASH_PEEK_MISS_DIV > all;
    session->blind = session->blind ? session->blind - 1u
                     : too_many     ? (uint32_t)GA_SLABHASH_BLIND_ROUNDS
                                    : 0;
}

/* Serve the lanes' operations as far as the tiles of a whole warp can together. `asks` stays set
 * for lanes whose operation is left over. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ ga_slabhash_answer ga_slabhash_lanes_abreast(
    ga_slabhash_session *session, bool *asks, uint32_t op, uint64_t key, uint64_t value)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE);
    ga_slabhash_requests many = {};
    ga_slabhash_view table = session->table;
    bool served = *asks && ga_slabhash_is_served(kind, fixed < GA_SLABHASH_OP_COUNT ? fixed : op);
    uint64_t hash = GA_SLABHASH_HASH(session->table, key);
    if (GA_SLABHASH_IS_GROWING(kind)) {
        table = ga_slabhash_growth_array_for_lane(kind, session->table, session,
                                                  fixed < GA_SLABHASH_OP_COUNT ? fixed : op, hash);
        served = served && table.rows;
        ga_tile_sync(tile); /* each lane's acquire holds for all lanes */
    }
    many.key = (uint32_t)key;
    many.key_high = (uint32_t)(key >> 32);
    many.value = (uint32_t)value;
    many.value_high = (uint32_t)(value >> 32);
    many.op = op;
    many.result = GA_SLABHASH_DEFERRED;
    ga_slabhash_requests_begin(table, ga_slabhash_is_ordered(table), &many, tile.lane, hash);
    uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
    many.no_peek = session->blind != 0;
    (void)ga_slabhash_serve_many(kind, fixed, table, tile, asking, &many);
    if (ga_slabhash_peeks(kind, fixed, table)) {
        ga_slabhash_update_blind(session, served, many.peek_missed >> tile.lane & 1u);
    }
    *asks = *asks && many.result >= GA_SLABHASH_DEFERRED;
    return ga_slabhash_answer_of(many.result, many.was | (uint64_t)many.was_high << 32);
}

/* Slow path: one lane's operation, by its whole tile; that lane gets the result. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_lane_slow(ga_slabhash_session *session, uint32_t lane, uint32_t op, uint64_t key,
                      uint64_t value, uint32_t how, ga_slabhash_answer *answer)
{
    ga_tile tile = session->tile;
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
    ga_slabhash_saved<GA_SLABHASH_IS_GROWING(kind)> saved;
    ga_slabhash_save_session(&saved, session);
    ga_slabhash_outlined<kind> done =
        ga_slabhash_tile_outlined<kind>(session->table, saved, its_op, its_key, its_value, its_how);
    ga_slabhash_restore_session(session, &done.saved);
    GA_EACH_LANE(tile, 1u << lane, own)
    {
        (void)own;
        *answer = done.answer;
    }
}

/* True if ga_slabhash_lanes_fast() serves all requests of whole warps, and leaves none over. */
GA_SIMT bool ga_slabhash_fast_serves_all(uint32_t kind, uint32_t fixed)
{
    return GA_SLABHASH_IS_GROWING(kind) && ga_slabhash_may_change(fixed);
}

/* Fast path: the operations of all lanes of a warp. In a table that does not grow, requests that
 * are left over are the caller's to do. In a table that grows many requests often contend for one
 * slot of few buckets; there each tile serves one lane alone, and the rest is served together
 * again. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_lanes_fast(ga_slabhash_session *session, bool *left, uint32_t op, uint64_t key,
                       uint64_t value, uint32_t how, ga_slabhash_answer *mine)
{
    ga_tile warp = ga_tile_of(32);
    do {
        bool asked = *left;
        ga_slabhash_growth_tend<kind, fixed>(session->table, session->tile, &session->claimed,
                                             session, *left, op, key);
        ga_slabhash_answer answer =
            ga_slabhash_lanes_abreast<kind, fixed>(session, left, op, key, value);
        *mine = asked ? answer : *mine;
        if (!ga_slabhash_fast_serves_all(kind, fixed)) {
            return;
        }
        uint32_t asking = ga_lanes_nonzero(session->tile, *left ? 1u : 0u);
        if (asking) {
            uint32_t lane = ga_bits_lowest(asking);
            ga_slabhash_lane_slow<kind, fixed>(session, lane, op, key, value, how, mine);
            *left = *left && session->tile.lane != lane;
        }
        ga_tile_sync(warp); /* the warp's tiles work abreast again */
    } while (ga_lanes_any(warp, *left ? 1u : 0u));
}

/* Slow path: the operations of the lanes that are `left`, one after the other, each by its whole
 * tile. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_lanes_slow(ga_slabhash_session *session, bool left, uint32_t op, uint64_t key,
                       uint64_t value, uint32_t how, ga_slabhash_answer *mine)
{
    uint32_t asking = ga_lanes_nonzero(session->tile, left ? 1u : 0u);
    GA_SHARE(session->tile, asking, lane)
    {
        ga_slabhash_lane_slow<kind, fixed>(session, lane, op, key, value, how, mine);
    }
}

/* Requests of whole warps are served together, except those that are left over. */
template <uint32_t kind, uint32_t fixed, bool whole>
static __device__ __forceinline__ ga_slabhash_answer ga_slabhash_lanes(ga_slabhash_session *session,
                                                                       bool asks, uint32_t op,
                                                                       uint64_t key, uint64_t value,
                                                                       uint32_t how)
{
    op = fixed < GA_SLABHASH_OP_COUNT ? fixed : op;
    bool allowed = session->table.kind == GA_SLABHASH_KIND_OF_TABLE(kind) &&
                   ga_slabhash_supports(kind, op) && ga_slabhash_allowed(kind, op, key, value);
    ga_slabhash_answer mine =
        ga_slabhash_answer_of(allowed ? GA_SLABHASH_ABSENT : GA_SLABHASH_REFUSED, 0);
    bool left = asks && allowed;
    if (whole || ga_warp_is_whole(ga_warp_present())) {
        ga_slabhash_lanes_fast<kind, fixed>(session, &left, op, key, value, how, &mine);
        if (ga_slabhash_fast_serves_all(kind, fixed)) {
            return mine;
        }
    }
    ga_slabhash_lanes_slow<kind, fixed>(session, left, op, key, value, how, &mine);
    return mine;
}

#endif
