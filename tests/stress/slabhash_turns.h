/* SPDX-License-Identifier: MIT
 *
 * What the files of stress-slabhash-turns share: a table that grows by itself (grow_turn_tile.h), its
 * memory, which the tests give and take, and threads as the tiles of kernels, each of which has a
 * stand that becomes as old as it likes.
 */
#ifndef GPUALLOC_TESTS_STRESS_SLABHASH_TURNS_H
#define GPUALLOC_TESTS_STRESS_SLABHASH_TURNS_H

#include "../../hashtables/slabhash/grow_turn_tile.h"
#include "../../hashtables/slabhash/table.h"
#include "stress.h"

#include "support/random.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    THREADS_MOST = 4,
    KEYS_MOST = 4 /* of a history */
};

/* What a tile keeps. */
typedef struct turns_tile {
    ga_slab_claimed claimed;
    ga_slabhash_snapshot stand;
    bool stands;
} turns_tile;

typedef struct turns_world {
    ga_heap *heap;
    ga_slabhash *table; /* for its slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    uint32_t kind;
    uint64_t random;
    uint64_t threads;
    bool lanes;              /* operations are those of lanes where they can be */
    uint32_t refuses;        /* of so many arrays one does not come; 0: all come */
    uint64_t tables, stages; /* of the program, and what else it has seen: */
    uint64_t histories;
    uint64_t shrunk, compacted; /* by themselves */
} turns_world;

extern turns_world turns;

/* A table that grows, of one stage. The hash is a user's, or NULL. */
void turns_open(uint32_t mode, bool multi, uint32_t buckets, ga_slabhash_hash *hash);
void turns_close(void);

/* Alone: end what is under way, and begin again with one stage. */
void turns_settle(void);
void turns_free_stage(ga_slabhash_version *stage);

/* A thread becomes a tile, with a stand; what it has claimed ahead goes back, and its stand becomes
 * older; it is none any more. */
turns_tile turns_begin(uint64_t number);
void turns_rest(turns_tile *t);
void turns_end(turns_tile *t);

/* Have the table move on, to as many buckets, more or fewer, whatever is in it. */
void turns_move_on(turns_tile *t, uint64_t random);

/* One operation as a kernel does it, which may find no slab. */
ga_slabhash_answer turns_perform(turns_tile *t, ga_slabhash_operation to);

/* One operation, again where there was no slab; by a lane where these are to be. */
ga_slabhash_answer turns_do(turns_tile *t, uint32_t op, uint64_t key, uint64_t value);
uint64_t turns_delete_each(turns_tile *t, uint64_t key);
uint64_t turns_find_all(turns_tile *t, uint64_t key, uint64_t *values, uint64_t room);

/* What the program does in turn. */
void turns_histories(void);
void turns_volumes(void);

#endif
