/* SPDX-License-Identifier: MIT
 *
 * One call of ga_slabhash_sharded_run() on this rank: run.c prepares each piece, and steps.c
 * exchanges and serves it.
 */
#ifndef GPUALLOC_SHARDED_JOB_H
#define GPUALLOC_SHARDED_JOB_H

#include "sharded.h"

typedef struct ga_sharded_job {
    ga_slabhash_sharded *table;
    const ga_slabhash_batch *batch;
    uint64_t done;  /* requests of earlier pieces */
    uint64_t count; /* requests of this piece */
    uint64_t most;  /* requests of a piece; fewer than the table's if there was no memory */
    uint64_t totals[GA_SHARDED_RESULTS];
    uint64_t full; /* not 0: a shard had no slab for a request of some rank */
    void *stream;
    ga_slabhash_op op; /* of all ranks: this one's may have no requests, and another operation */
    ga_slabhash_how how;
    bool has_values, has_ops, brings_results, brings_found;
    bool combines; /* requests of this rank whose keys repeat */
    uint32_t slices, rounds[GA_SHARDED_SLICES];
    ga_status local; /* of the shard: the exchange goes on, so that no other rank waits */
} ga_sharded_job;

/* The size of a message. */
static inline uint64_t ga_sharded_padded(uint64_t requests)
{
    return (requests + GA_SHARDED_PAD - 1) / GA_SHARDED_PAD * GA_SHARDED_PAD;
}

static inline char *ga_sharded_element(void *array, uint64_t index, uint32_t width)
{
    return array ? (char *)array + index * width : NULL;
}

/* Whether anything travels back. */
static inline bool ga_sharded_brings_answers(const ga_sharded_job *job)
{
    return job->brings_results || job->brings_found;
}

/* steps.c: all steps of a piece whose requests are sorted. */
ga_status ga_sharded_run_steps(ga_sharded_job *job);

#endif
