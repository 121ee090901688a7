/* SPDX-License-Identifier: MIT
 *
 * A table that grows by itself, of pairs of 32 bits, and one thread acts as several tiles of
 * kernels, so that the test decides each step: tests of the life of arrays of buckets.
 */
#ifndef GPUALLOC_TESTS_UNIT_SLABHASH_TILES_H
#define GPUALLOC_TESTS_UNIT_SLABHASH_TILES_H

#include "../../hashtables/slabhash/host/table.h"
#include "../../hashtables/slabhash/kernel_growth/resize_tile.h"

#include "support/expect.h"

#include <stdbool.h>
#include <stdint.h>

#define TILES_KIND ((uint32_t)GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING)

typedef struct tiles_subject {
    ga_slabhash *table; /* owns the slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    uint32_t held; /* arrays */
    bool refuses;  /* memory for another */
} tiles_subject;

typedef struct tiles_tile {
    ga_slab_claimed claimed;
    ga_slabhash_snapshot stand;
} tiles_tile;

extern tiles_subject tiles;

/* Open a table of `buckets` buckets, which only the test migrates; close it. */
void tiles_open(uint32_t buckets, ga_slabhash_hash *hash);
void tiles_close(void);

/* A hash that puts all keys into one bucket. */
uint64_t tiles_same(void *context, uint64_t key);

/* A tile begins, with a snapshot, and ends. */
tiles_tile tiles_begin(uint32_t number);
void tiles_end(tiles_tile *t);

/* Operations of a tile, with slabs if needed: one operation; insert absent keys, with consecutive
 * values; expect them. */
ga_slabhash_answer tiles_do(tiles_tile *t, uint32_t op, uint64_t key, uint64_t value);
void tiles_put(tiles_tile *t, uint64_t first, uint64_t end_);
void tiles_expect(tiles_tile *t, uint64_t first, uint64_t end_);

/* Make another array, of `buckets` buckets, or `times` the buckets; no pair has been migrated to
 * it. */
void tiles_make_of(tiles_tile *t, uint32_t buckets);
void tiles_make(tiles_tile *t, uint32_t times);

/* All buckets of it but the last `less` groups'. */
void tiles_move(tiles_tile *t, uint32_t less);

/* Both. */
void tiles_move_on(tiles_tile *t, uint32_t times);
void tiles_move_to(tiles_tile *t, uint32_t buckets);

/* From now on the table may shrink to at least `least` buckets, or be compacted. */
void tiles_let_go(uint32_t least);

/* A step of giving back; false where there is nothing to be done. */
bool tiles_give_some(void);

/* Claimed units of slabs, without those that the tile has claimed ahead, which it frees. */
uint64_t tiles_taken(tiles_tile *t);

#endif
