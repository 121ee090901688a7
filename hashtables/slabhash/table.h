/* SPDX-License-Identifier: MIT
 *
 * A table of host threads, and what its files share: hash_tile.h compiled for each kind of table
 * (ops.c, and once more for AVX2), behind a table of functions.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_H
#define GPUALLOC_SLABHASH_TABLE_H

#include "hash_tile.h"

#include "../../liballoc/slab/host.h"

#include <pthread.h>

/* One thread is a tile; the width only says how loops over lanes are written. */
#define SLABHASH_TILE ga_tile_of(8)

typedef struct slabhash_range {
    uint64_t first, end; /* of a batch's operations */
} slabhash_range;

/* The algorithm for one kind of table. */
typedef struct slabhash_ops {
    ga_slabhash_answer (*run)(const ga_slabhash *table, const ga_slabhash_change_to *to);
    uint64_t (*find_all)(const ga_slabhash *table, uint64_t key, uint64_t *values, uint64_t room);
    uint64_t (*remove_all)(const ga_slabhash *table, uint64_t key);
    /* Up to the first that is FULL, or all: how far it came. `counts` of results go up. */
    uint64_t (*batch)(const ga_slabhash *table, const ga_slabhash_batch *batch,
                      slabhash_range range, uint64_t *counts);
    void (*count)(const ga_slabhash *table, ga_slabhash_census *census);
    bool (*each)(const ga_slabhash *table, ga_slabhash_visit *visit, void *context);
    void (*copy)(const ga_slabhash *table, void *keys, void *values, uint64_t room,
                 uint64_t *count);
    void (*flush)(const ga_slabhash *table);
} slabhash_ops;

/* Of each kind; those for AVX2 are NULL where the compiler has none. */
extern const slabhash_ops *const ga_slabhash_ops[GA_SLABHASH_KINDS];
extern const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS];

struct ga_slabhash {
    /* Set once. */
    ga_slabhash_view view;
    const slabhash_ops *ops;
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;
    ga_heap *heap;
    bool own_heap;
    uint32_t kind;
    uint32_t open; /* relaxed: 0 once it was closed */
    /* Guarded by `grow`, but for what slab/host.h says. */
    ga_slab_host slabs;
    pthread_mutex_t grow;
    ga_slabhash *next_closed; /* guarded by the list's lock */
};

static inline uint64_t slabhash_hash_of(const ga_slabhash *table, uint64_t key)
{
    return table->hash ? table->hash(table->context, key) : ga_slabhash_seeded(table->view, key);
}

/* More slabs, where a call found none. GA_ERR_MEMORY: there are no more to be had. */
ga_status ga_slabhash_grow(ga_slabhash *table, uint32_t seen);

/* How many super blocks there are: what a call has seen, when it asks for more. */
static inline uint32_t slabhash_supers(const ga_slabhash *table)
{
    return ga_slab_host_supers(&table->slabs);
}

/* GA_ERR_ARGUMENT where it is NULL or closed. */
ga_status ga_slabhash_check(const ga_slabhash *table);

#endif
