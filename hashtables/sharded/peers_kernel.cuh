/* SPDX-License-Identifier: MIT
 *
 * A kernel's use of the shards of all ranks, in the memory of their own devices: a tile's session,
 * and one operation of each lane. Included by gpualloc/slabhash_peers.cuh, which says how to use
 * it.
 *
 * STRUCTURE  The view of all shards has a ga_slabhash_view of each, as this device uses it: buckets
 *            and slabs are the owner's, the record of the slab heap is a copy in own memory
 *            (peers_host.cuh). Each lane takes the view of its key's owner. Then the lanes are
 *            served as in session_kernel.cuh, where tables that grow also have an array of its own
 *            for each lane; left-over requests by the whole tile, with one shard at a time.
 *
 * INVARIANT  What decides in which way lanes are served is equal in all views: the kind, whether
 *            the tables are ordered, and whether they exceed the cache. Addresses, the number of
 *            buckets, the path and its stride may differ.
 *
 * ORDER      As in list_tile.h and slots.h, with the system as the scope (GA_SIMT_PEERS). Slots of
 *            64-bit keys are filled in two steps (GA_SLABHASH_STEPWISE), because 128-bit atomics
 *            between devices are not documented.
 */
#ifndef GPUALLOC_SHARDED_PEERS_KERNEL_CUH
#define GPUALLOC_SHARDED_PEERS_KERNEL_CUH

#include "../slabhash/device/session_kernel.cuh"
#include "owner.h"

/* The shards of all ranks, passed to kernels by value. */
typedef struct ga_slabhash_peers_view {
    const ga_slabhash_view *shards; /* one of each rank, in the memory of this rank's device */
    ga_sharded_division division;   /* of keys among ranks */
    uint32_t rank, kind;
    uint32_t may_change; /* not 0: the devices have atomics on each other's memory */
} ga_slabhash_peers_view;

/* A tile's session: as ga_slabhash_session, with a table for each rank. `own.table` is the shard of
 * rank `at`, to whose heap the claimed slabs belong. */
typedef struct ga_slabhash_peers_session {
    ga_slabhash_session own;
    ga_slabhash_peers_view peers;
    uint32_t at;
} ga_slabhash_peers_session;

static __device__ __forceinline__ uint32_t
ga_slabhash_peers_owner(const ga_slabhash_peers_view &peers, uint64_t key)
{
    const ga_sharded_division *division = &peers.division;
    return ga_sharded_owner(division, ga_slabhash_hash_of(division->a, division->b, key));
}

static __device__ __forceinline__ ga_slabhash_peers_session
ga_slabhash_peers_begin(ga_slabhash_peers_view peers)
{
    ga_slabhash_peers_session session;
    session.peers = peers;
    session.at = peers.rank;
    session.own = ga_slabhash_session_begin(peers.shards[peers.rank]);
    for (uint32_t i = 0; i < peers.division.ranks; i++) {
        if (i != peers.rank) {
            ga_slabhash_tile_begins(peers.shards[i], session.own.tile, false);
        }
    }
    return session;
}

/* The session goes on with the shard of another rank, and releases the slabs that it has claimed of
 * the last one's heap. */
static __device__ __forceinline__ void ga_slabhash_peers_move_to(ga_slabhash_peers_session *session,
                                                                 uint32_t rank)
{
    ga_slabhash_session *own = &session->own;
    if (session->at == rank) {
        return;
    }
    ga_slabhash_claim_end(own->table, own->tile, &own->claimed);
    own->table = session->peers.shards[rank];
    session->at = rank;
}

static __device__ __forceinline__ void ga_slabhash_peers_end(ga_slabhash_peers_session *session)
{
    const ga_slabhash_peers_view &peers = session->peers;
    ga_slabhash_peers_move_to(session, peers.rank);
    for (uint32_t i = 0; i < peers.division.ranks; i++) {
        if (i != peers.rank) {
            ga_slabhash_tile_ends(peers.shards[i], session->own.tile, false);
        }
    }
    ga_slabhash_session_end(&session->own);
}

template <uint32_t kind, uint32_t fixed, bool whole>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_peers_lanes(ga_slabhash_peers_session *session, bool asks, uint32_t op, uint64_t key,
                        uint64_t value, uint32_t how)
{
    constexpr uint32_t stepwise = kind | GA_SLABHASH_STEPWISE;
    const ga_slabhash_peers_view &peers = session->peers;
    op = fixed < GA_SLABHASH_OP_COUNT ? fixed : op;
    bool allowed = peers.kind == GA_SLABHASH_KIND_OF_TABLE(kind) &&
                   ga_slabhash_supports(kind, op) && ga_slabhash_allowed(kind, op, key, value) &&
                   (op == GA_SLABHASH_SEARCH || peers.may_change);
    ga_slabhash_answer mine =
        ga_slabhash_answer_of(allowed ? GA_SLABHASH_ABSENT : GA_SLABHASH_REFUSED, 0);
    bool left = asks && allowed;
    uint32_t owner = ga_slabhash_peers_owner(peers, key);
    if (whole || ga_warp_is_whole(ga_warp_present())) {
        ga_slabhash_session each = session->own;
        each.table = peers.shards[owner];
        ga_slabhash_lanes_fast<stepwise, fixed>(&each, &left, op, key, value, how, &mine);
        session->own.blind = each.blind;
    }
    uint32_t asking = ga_lanes_nonzero(session->own.tile, left ? 1u : 0u);
    GA_SHARE(session->own.tile, asking, lane)
    {
        ga_slabhash_peers_move_to(session, ga_lanes_get(session->own.tile, owner, lane));
        ga_slabhash_lane_slow<stepwise, fixed>(&session->own, lane, op, key, value, how, &mine);
    }
    return mine;
}

#endif
