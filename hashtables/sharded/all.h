/* SPDX-License-Identifier: MIT
 *
 * One call for all pairs of keys on this rank: all.c prepares each piece, and all_rounds.c
 * exchanges and serves it.
 */
#ifndef GPUALLOC_SHARDED_ALL_H
#define GPUALLOC_SHARDED_ALL_H

#include "sharded.h"

/* One call on this rank. */
typedef struct ga_sharded_all_job {
    ga_slabhash_sharded *table;
    const ga_slabhash_all *all;
    bool removes;
    bool brings_counts, brings_firsts, brings_values; /* to some rank */
    uint64_t done;                                    /* keys of earlier pieces */
    uint64_t count;                                   /* keys of this piece */
    uint64_t most;          /* keys of a piece; fewer than the table's if there was no memory */
    uint64_t found;         /* pairs of own keys so far */
    uint64_t most_for_pair; /* keys of a rank for another one */
    uint64_t step;          /* keys for a pair in a round, at most */
    uint64_t full;          /* not 0: a delete found no slab in some shard */
    ga_status local;        /* of the shard: the exchange goes on, so that no other rank waits */
} ga_sharded_all_job;

/* Room for values. */
static inline uint64_t ga_sharded_all_left(const ga_sharded_all_job *j)
{
    return !j->removes && j->found < j->all->room ? j->all->room - j->found : 0;
}

static inline void *ga_sharded_all_key(const ga_sharded_all_job *j, void *keys, uint64_t index)
{
    return (char *)keys + index * j->table->width;
}

/* Keys of all parts: of this rank for that one, with own_counts; of that one for this rank, with
 * other_counts. */
static inline uint64_t ga_sharded_all_keys(const ga_sharded_all_job *j, const uint32_t *counts,
                                           uint32_t rank)
{
    uint32_t parts = 1u << j->table->division.parts_log;
    uint64_t sum = 0;
    for (uint32_t part = 0; part < parts; part++) {
        sum += counts[rank * parts + part];
    }
    return sum;
}

/* all_rounds.c: all rounds of a piece whose keys are sorted. */
ga_status ga_sharded_all_rounds(ga_sharded_all_job *j);

#endif
