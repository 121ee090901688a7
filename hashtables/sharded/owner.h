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

/* The rank comes from the lower half of the hash, and the part from the upper one, as the bucket of
 * the shard's table does: if it came from there, too, a shard would use some of its buckets only.
 * Each half depends on all bits of the key. */
GA_SIMT uint32_t ga_sharded_owner(const ga_sharded_division *division, uint64_t hash)
{
    return ga_bits_high32((uint32_t)hash, division->ranks);
}

GA_SIMT uint32_t ga_sharded_bin(const ga_sharded_division *division, uint64_t key)
{
    uint64_t hash = ga_slabhash_hash_of(division->a, division->b, key);
    uint32_t part = ga_bits_high32((uint32_t)(hash >> 32), 1u << division->parts_log);
    return (ga_sharded_owner(division, hash) << division->parts_log) + part;
}

#endif
