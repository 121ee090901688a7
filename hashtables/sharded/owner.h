/* SPDX-License-Identifier: MIT
 *
 * The rank that owns a key, and the bin of a request. For the host and for kernels.
 */
#ifndef GPUALLOC_SHARDED_OWNER_H
#define GPUALLOC_SHARDED_OWNER_H

#include "../slabhash/table/hash.h"

/* Requests are sorted into bins: one for each owner and each part of its shard, owner by owner. A
 * part is a range of buckets, and there are 2^parts_log. */
typedef struct ga_sharded_division {
    uint64_t a, b; /* of the shards' hash */
    uint32_t ranks, parts_log;
} ga_sharded_division;

/* The rank whose range has the hash, which is mixed again: the buckets of a shard follow from its
 * upper bits, and some would stay empty if these named the owner, too. */
GA_SIMT uint32_t ga_sharded_owner(const ga_sharded_division *division, uint64_t hash)
{
    uint64_t mixed = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)ga_bits_high(mixed ^ mixed >> 29, division->ranks);
}

GA_SIMT uint32_t ga_sharded_bin(const ga_sharded_division *division, uint64_t key)
{
    uint64_t hash = ga_slabhash_hash_of(division->a, division->b, key);
    uint32_t part = division->parts_log ? (uint32_t)(hash >> (64u - division->parts_log)) : 0;
    return (ga_sharded_owner(division, hash) << division->parts_log) + part;
}

#endif
