/* SPDX-License-Identifier: MIT
 *
 * The calls from the code of all device tables into the code of tables that grow while kernels run.
 * gpualloc/slabhash.cuh includes this file first if GA_SLABHASH_GROWING_KINDS is defined. Else it
 * includes no_hooks.cuh, which defines these names for programs without such tables.
 * docs/internals/slabhash-growth.md.
 *
 *     GA_SLABHASH_GROWTH_VIEW_FIELDS   of a view: the record of the table
 *     ga_slabhash_growth_state         of a session: its snapshot
 *     GA_SLABHASH_EACH_GROWING_KIND    the kernels of a kind
 *
 *     ga_slabhash_growth_in_kernel     a session begins
 *       growth_begin, growth_end
 *     ga_slabhash_growth_do            one operation of a tile
 *       growth_remove_all, find_all
 *     ga_slabhash_growth_tend          before the lanes of a warp are served together
 *       growth_array_for_lane          the array that has a lane's key
 *
 *     ga_slabhash_growth_open, _close  the host's calls: grow_host.cuh
 *       growth_set_array, _replace, _clear, _catch_up
 *       growth_before_batch, _after_batch, _load
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_HOOKS_CUH
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_HOOKS_CUH

/* NULL: the table does not grow in kernels. */
#define GA_SLABHASH_GROWTH_VIEW_FIELDS struct ga_slabhash_growing *growing;

#include "../table/many_tile.h"
#include "resize_tile.h"

typedef ga_slabhash_snapshot ga_slabhash_growth_state;

/* CALL(kind) for the kind of a table that grows in kernels. */
#define GA_SLABHASH_EACH_GROWING_KIND(of, CALL)                                                    \
    switch ((of) & ~GA_SLABHASH_GROWING) {                                                         \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, false):                                               \
        CALL(8u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false):                                               \
        CALL(9u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false):                                               \
        CALL(10u);                                                                                 \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, true):                                                \
        CALL(12u);                                                                                 \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true):                                                \
        CALL(13u);                                                                                 \
        break;                                                                                     \
    default:                                                                                       \
        CALL(14u);                                                                                 \
        break;                                                                                     \
    }

/* ---- sessions -------------------------------------------------------------------------------- */

/* The view for a kernel that serves one kind. The compiler then knows whether its tables grow. */
static __device__ __forceinline__ ga_slabhash_view
ga_slabhash_growth_in_kernel(uint32_t kind, ga_slabhash_view table)
{
    table.growing = GA_SLABHASH_IS_GROWING(kind) ? table.growing : NULL;
    return table;
}

/* The tile with that number in the grid takes its first snapshot. */
static __device__ __forceinline__ void ga_slabhash_growth_begin(ga_slabhash_view table,
                                                                ga_tile tile,
                                                                ga_slabhash_growth_state *state,
                                                                uint32_t number)
{
    *state = ga_slabhash_growth_state{};
    if (table.growing) {
        ga_slabhash_snapshot_begin(table.growing, tile, state, number);
    }
}

static __device__ __forceinline__ void ga_slabhash_growth_end(ga_slabhash_view table, ga_tile tile,
                                                              const ga_slabhash_growth_state *state,
                                                              uint32_t number)
{
    if (!table.growing) {
        return;
    }
    if (number % GA_SLABHASH_WORKING_SESSIONS == 0) {
        ga_slabhash_end_session(table.growing, state->clock,
                                number % GA_SLABHASH_SHRINKING_SESSIONS ==
                                    GA_SLABHASH_SHRINKING_SESSIONS / 2u);
    } else {
        ga_slabhash_snapshot_end(table.growing, tile, state);
    }
}

/* ---- operations of a tile -------------------------------------------------------------------- */

static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_growth_do(uint32_t kind, ga_slabhash_view table, ga_tile tile, ga_slab_claimed *claimed,
                      ga_slabhash_growth_state *state, uint64_t hash, ga_slabhash_operation to)
{
    return ga_slabhash_do_from_snapshot(kind, table, table.growing, tile, claimed, state, hash, to);
}

/* DELETEALL. If there is no slab for the pairs that migrate with the key's, some may remain. */
static __device__ __forceinline__ uint64_t ga_slabhash_growth_remove_all(
    uint32_t kind, ga_slabhash_view table, ga_tile tile, ga_slab_claimed *claimed,
    ga_slabhash_growth_state *state, uint64_t hash, uint64_t key)
{
    uint64_t count = 0;
    if (ga_slabhash_allowed(kind, GA_SLABHASH_DELETE, key, 0)) {
        (void)ga_slabhash_remove_from_snapshot(kind, table, table.growing, tile, claimed, state,
                                               hash, key, &count);
    }
    return count;
}

static __device__ __forceinline__ uint64_t ga_slabhash_growth_find_all(
    uint32_t kind, ga_slabhash_view table, ga_tile tile, ga_slabhash_growth_state *state,
    uint64_t hash, uint64_t key, uint64_t *values, uint64_t room)
{
    return ga_slabhash_find_all_from_snapshot(kind, table, table.growing, tile, state, hash, key,
                                              values, room);
}

/* ---- lanes that are served together ---------------------------------------------------------- */

/* The part of a session that ga_slabhash_tend_lanes() changes. */
typedef struct ga_slabhash_growth_tended {
    ga_slab_claimed claimed;
    ga_slabhash_growth_state state;
} ga_slabhash_growth_tended;

/* ga_slabhash_tend_lanes() out of line. */
template <uint32_t kind>
static __device__ __noinline__ ga_slabhash_growth_tended ga_slabhash_growth_tend_slow(
    ga_slabhash_view table, ga_slabhash_growth_tended tended, uint32_t changing, uint64_t hash)
{
    ga_slabhash_tend_lanes(kind, table, table.growing, ga_tile_abreast(GA_SLABHASH_TILE),
                           &tended.claimed, &tended.state, changing, (uint32_t)hash,
                           (uint32_t)(hash >> 32));
    return tended;
}

/* In tables that grow, before the lanes that ask are served together. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_growth_tend(ga_slabhash_view table, ga_tile tile, ga_slab_claimed *claimed,
                        ga_slabhash_growth_state *state, bool asks, uint32_t op, uint64_t key)
{
    if (GA_SLABHASH_IS_GROWING(kind) && ga_slabhash_may_change(fixed)) {
        uint32_t changing = ga_lanes_nonzero(tile, asks && op != GA_SLABHASH_SEARCH ? 1u : 0u);
        bool tends = state->next_rows || ga_slabhash_snapshot_is_due(state);
        if (ga_lanes_any(ga_tile_of(32), tends ? 1u : 0u)) {
            ga_slabhash_growth_tended tended;
            tended.claimed = *claimed;
            tended.state = *state;
            tended = ga_slabhash_growth_tend_slow<kind>(table, tended, changing,
                                                        GA_SLABHASH_HASH(table, key));
            *claimed = tended.claimed;
            *state = tended.state;
        } else {
            ga_slabhash_snapshot_note_change(state, changing != 0);
            (void)ga_slabhash_snapshot_count_request(state);
        }
        ga_tile_sync(ga_tile_of(32)); /* from here on the warp's tiles work abreast */
    } else if (GA_SLABHASH_IS_GROWING(kind)) {
        ga_slabhash_tend_searches(table.growing, ga_tile_abreast(GA_SLABHASH_TILE), state);
    }
}

/* The array in which a lane's request is served. No rows: it is left over. The tile synchronises
 * after this. */
static __device__ __forceinline__ ga_slabhash_view
ga_slabhash_growth_array_for_lane(uint32_t kind, ga_slabhash_view table,
                                  const ga_slabhash_growth_state *state, uint32_t op, uint64_t hash)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(table, table.growing, state);
    return ga_slabhash_for_lane(kind, shift, op, hash);
}

#include "grow_host.cuh"

#endif
