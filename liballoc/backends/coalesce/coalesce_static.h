/* SPDX-License-Identifier: MIT
 *
 * Static coalescing, for CPU and GPU (warp-coalescing-gpumpi-2022, §3.1): a team whose members are
 * known to call together, each for equally many bytes, gets one superblock. One member claims it
 * and passes its address to the others, and each member computes its payload from its rank.
 *
 *     with headers       | n . | head payload | head payload | ...      head: where the counter is
 *     bare, by map       | n . | payload | payload | ...                the map has each payload
 *     bare, by note      | payload | payload | ...                      the parent has the counter
 *
 * STRUCTURE  coalesce_count.h: `n` payloads are live; each one that is freed counts down.
 * INVARIANT  A member that cannot have its payload has counted down for it. All members of a team
 *            get a block, or none does, so that a test of the result against NULL does not part
 *            them before their next call. Members without a payload make dynamic requests, and if
 *            one of these fails, all members free theirs.
 * ORDER      CC1 (coalesce_count.h). The counter is written before another member gets the
 *            superblock's address; the shuffle or barrier that passes the address orders that.
 * PROGRESS   One call of the parent for the team.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_STATIC_H
#define GPUALLOC_COALESCE_COALESCE_STATIC_H

#include "coalesce_tile.h"

typedef enum ga_static_kind {
    GA_STATIC_HEADERS = 0,
    GA_STATIC_MAPPED,
    GA_STATIC_NOTED
} ga_static_kind;

/* Equal in all members. */
typedef struct ga_static_plan {
    uint64_t stride; /* bytes from one payload to the next; 0: the request cannot be coalesced */
    uint32_t before; /* bytes from the superblock to the first payload */
    ga_static_kind kind;
} ga_static_plan;

/* Without headers if the caller asks for it (`bare`) and the heap can find such superblocks. Heaps
 * without headers have no others. */
GA_SIMT ga_static_kind ga_static_kind_of(ga_coalesce_view view, bool bare)
{
    if (view.form == GA_COALESCE_HEADERLESS || (bare && view.bare == GA_COALESCE_BY_NOTE)) {
        return GA_STATIC_NOTED;
    }
    return bare && view.bare == GA_COALESCE_BY_MAP ? GA_STATIC_MAPPED : GA_STATIC_HEADERS;
}

/* Payloads are aligned to 16 if they have headers, or if all payloads of the heap are; otherwise
 * they are packed: aligned to 8 or, if `size` is not a multiple of 8, to 4. */
GA_SIMT ga_static_plan ga_static_plan_of(ga_coalesce_view view, bool bare, uint64_t size)
{
    ga_static_plan plan;
    plan.kind = ga_static_kind_of(view, bare);
    bool sixteen = plan.kind == GA_STATIC_HEADERS || view.form >= GA_COALESCE_SIXTEEN;
    uint64_t align = sixteen ? 16u : size & 7u ? 4u : 8u;
    uint64_t bytes = size + (size ? 0 : 1u) + (plan.kind == GA_STATIC_HEADERS ? 8u : 0);
    bool none = view.single || size > GA_COUNT_STRIDE_MAX - 32u;
    plan.stride = none ? 0 : (bytes + align - 1u) & ~(align - 1u);
    plan.before = plan.kind == GA_STATIC_NOTED ? 0 : GA_COALESCE_ALIGN;
    return plan;
}

/* The word that counts the superblock's live payloads. By one lane. */
GA_SIMT uint32_t *ga_static_counter(ga_coalesce_view view, ga_static_plan plan, char *block)
{
    return plan.kind == GA_STATIC_NOTED ? ga_parent_note(view.parent, block) : (uint32_t *)block;
}

/* Claim a superblock for a team of `n`, by one member, with all lanes of its tile; NULL if the
 * parent has none. */
GA_SIMT char *ga_static_begin(ga_coalesce_view view, ga_tile tile, ga_static_plan plan, uint32_t n)
{
    char *block =
        plan.stride ? ga_parent_claim(view.parent, tile, plan.before + n * plan.stride) : NULL;
    if (block) {
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            if (plan.kind != GA_STATIC_NOTED) {
                ga_coalesce_clear_note(view, block);
            }
            ga_count_init(ga_static_counter(view, plan, block), n, (uint32_t)(plan.stride / 4u));
        }
        ga_tile_sync(tile);
    }
    return block;
}

/* The payload of member number `rank`. Each lane for itself. NULL: the map is full, and the member
 * has no payload in the superblock. */
GA_SIMT char *ga_static_place(ga_coalesce_view view, ga_static_plan plan, char *block,
                              uint32_t rank)
{
    char *payload = block + plan.before + rank * plan.stride;
    if (plan.kind == GA_STATIC_HEADERS) {
        ga_segment_write(payload, 8u, GA_SEGMENT_STATIC | (uint64_t)block);
    } else if (plan.kind == GA_STATIC_MAPPED &&
               !ga_map_insert(&view.heap->map, (uint64_t)payload, (uint64_t)block)) {
        if (ga_count_down_by((uint32_t *)block, 1)) {
            ga_parent_release_lone(view.parent, block);
        }
        return NULL;
    }
    return payload;
}

/* A team that is a tile: payloads in one superblock. 0 for lanes that have none: there is no
 * superblock, or no room in the map. */
GA_SIMT ga_wide ga_static_claim_fast(ga_coalesce_view view, ga_tile tile, bool bare, uint64_t size)
{
    ga_static_plan plan = ga_static_plan_of(view, bare, size);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_wide payloads = ga_wide_all(0);
    char *block = ga_static_begin(view, tile, plan, ga_tile_size(tile));
    if (block) {
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            char *payload = ga_static_place(view, plan, block, ga_lane_read(ranks, own));
            ga_wide_write(&payloads, own, (uint64_t)payload);
        }
        ga_tile_sync(tile);
    }
    return payloads;
}

/* The lanes that have no payload. */
GA_SIMT uint32_t ga_static_unserved(ga_tile tile, ga_wide payloads)
{
    return ga_tile_lanes(tile) & ~ga_wide_nonzero(tile, payloads);
}

/* The lanes without a payload make dynamic requests. If one fails, all payloads are freed, and all
 * lanes get 0. */
GA_SIMT ga_wide ga_static_claim_slow(ga_coalesce_view view, ga_tile tile, ga_wide payloads,
                                     uint64_t size)
{
    uint32_t unserved = ga_static_unserved(tile, payloads);
    ga_wide others = ga_coalesce_claim(view, tile, unserved, ga_wide_all(size));
    GA_EACH_LANE(tile, unserved, own)
    {
        ga_wide_write(&payloads, own, ga_wide_read(others, own));
    }
    if (ga_static_unserved(tile, payloads)) {
        ga_coalesce_free_lanes(view, tile, ga_tile_lanes(tile), payloads);
        payloads = ga_wide_all(0);
    }
    return payloads;
}

/* `size` bytes for each lane of a tile; 0 for all of them if one gets none. */
GA_SIMT ga_wide ga_static_claim(ga_coalesce_view view, ga_tile tile, bool bare, uint64_t size)
{
    ga_wide payloads = ga_static_claim_fast(view, tile, bare, size);
    return ga_static_unserved(tile, payloads) ? ga_static_claim_slow(view, tile, payloads, size)
                                              : payloads;
}

#endif
