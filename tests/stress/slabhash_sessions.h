/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of stress-slabhash-sessions: a table that grows by itself (resize_tile.h),
 * its memory, which the tests allocate and free, and threads as the tiles of kernels, each with a
 * snapshot of any age.
 */
#ifndef GPUALLOC_TESTS_STRESS_SLABHASH_SESSIONS_H
#define GPUALLOC_TESTS_STRESS_SLABHASH_SESSIONS_H

#include "../../hashtables/slabhash/host/table.h"
#include "../../hashtables/slabhash/kernel_growth/resize_tile.h"
#include "stress.h"

#include "support/random.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    THREADS_MAX = 4,
    KEYS_MAX = 4 /* of a history */
};

/* The state that a tile keeps. */
typedef struct sessions_tile {
    ga_slab_claimed claimed;
    ga_slabhash_snapshot stand;
    bool stands;
} sessions_tile;

typedef struct sessions_world {
    ga_heap *heap;
    ga_slabhash *table; /* owns the slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    uint32_t kind;
    uint64_t random;
    uint64_t threads;
    bool lanes;              /* operations are those of lanes where they can be */
    uint32_t refuses;        /* one in `refuses` arrays cannot be allocated; 0: all can */
    uint64_t tables, stages; /* figures of the program, and which events it has seen: */
    uint64_t histories;
    uint64_t shrunk, compacted; /* by themselves */
} sessions_world;

extern sessions_world sessions;

/* Open a table that grows, with one version. The hash is a user's, or NULL. */
void sessions_open(uint32_t mode, bool multi, uint32_t buckets, ga_slabhash_hash *hash);
void sessions_close(void);

/* Exclusive: complete a migration under way, and begin again with one version. */
void sessions_settle(void);
void sessions_free_stage(ga_slabhash_version *stage);

/* Turn a thread into a tile with a snapshot; free the slabs that it has claimed ahead and let the
 * snapshot age; end the tile. */
sessions_tile sessions_begin(uint64_t number);
void sessions_rest(sessions_tile *t);
void sessions_end(sessions_tile *t);

/* Make the table migrate to more, fewer or the same number of buckets, regardless of its
 * contents. */
void sessions_move_on(sessions_tile *t, uint64_t random);

/* Do one operation as a kernel does it; it may find no slab. */
ga_slabhash_answer sessions_perform(sessions_tile *t, ga_slabhash_operation to);

/* Do one operation, and retry it if there was no slab; served by a lane in tables for that. */
ga_slabhash_answer sessions_do(sessions_tile *t, uint32_t op, uint64_t key, uint64_t value);
uint64_t sessions_delete_each(sessions_tile *t, uint64_t key);
uint64_t sessions_find_all(sessions_tile *t, uint64_t key, uint64_t *values, uint64_t room);

/* The two parts of the program, which alternate. */
void sessions_histories(void);
void sessions_volumes(void);

#endif
