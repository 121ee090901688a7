/* SPDX-License-Identifier: MIT
 *
 * A table of host threads, and the interface between its files. hash_tile.h is compiled for each
 * kind of table (ops.c, and again for AVX2 in ops_avx2.c) behind a table of functions,
 * slabhash_ops.
 *
 *     slabhash.c  open, close, checks      single.c  one operation      batch.c  batches
 *     whole.c     work on the whole table  file.c    save, load         grow.c   tables that grow
 */
#ifndef GPUALLOC_SLABHASH_HOST_TABLE_H
#define GPUALLOC_SLABHASH_HOST_TABLE_H

#include "../table/grow_tile.h"
#include "../table/use_tile.h"

#include "../../../liballoc/backends/slab/host/host.h"

#include <gpualloc/reclaim.h>

#include <pthread.h>
#include <string.h>

/* On the host one thread is a whole tile; the width only sets how loops over lanes are written. */
#define SLABHASH_TILE ga_tile_of(8)

typedef struct slabhash_range {
    uint64_t first, end; /* operations of a batch; or buckets */
} slabhash_range;

enum {
    SLABHASH_ALIGN = 128 /* bytes: two cache lines, because processors prefetch the second */
};

/* A version of a table that grows: an array of buckets with its chains (grow.c). The table
 * migrates from one version to the next. */
typedef struct slabhash_version {
    ga_slabhash *table;             /* set once, like the view */
    ga_slabhash_view view;          /* a complete table of fixed size */
    struct slabhash_version *next;  /* N: the version to which this one migrates, or NULL; set
                                        * once */
    struct slabhash_version *later; /* link of the list of retired versions; owned by the
                                        * thread that has taken it off the list */
    uint64_t bytes;                 /* size of the array */
    uint32_t wanted;                /* relaxed: number of chained slabs at which the next
                                        * version is made */
    /* Fields that many threads change, away from those that all read. */
    _Alignas(SLABHASH_ALIGN) uint64_t cursor; /* relaxed: runs of buckets handed out to migrating
                                               * threads */
    uint32_t opened;                          /* C: buckets that are open */
    uint32_t chained;                         /* relaxed: chained slabs */
    uint32_t users;                           /* U: references: the table's, and one a visit
                                               * (ga_slabhash_stay) */
} slabhash_version;

/* The versions on which a call works. They are not freed before it unpins. */
typedef struct slabhash_pin {
    slabhash_version *now, *next; /* `next` is NULL while nothing migrates */
    ga_hazards *mine;
    ga_slabhash_shift shift;
} slabhash_pin;

static inline void slabhash_note_opened(const slabhash_pin *pin, uint32_t count)
{
    if (count) {
        /* C: acq_rel. Pairs with itself: the thread that counts the last bucket sees all buckets
         * open. */
        __atomic_fetch_add(&pin->next->opened, count, __ATOMIC_ACQ_REL);
    }
}

/* The algorithm for one kind of table. Kinds that do not grow have all functions but the last
 * two. Kinds that grow have search, insert, erase, run, find_all, remove_all, batch, each, open
 * and sample. */
typedef struct slabhash_ops {
    /* SEARCH, INSERT and DELETE with as few instructions as possible, so that the processor can
     * start the next call while this one waits for its slab. The table is open. */
    ga_status (*search)(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);
    ga_status (*insert)(ga_slabhash *table, uint64_t key, uint64_t value, ga_slabhash_found *was);
    ga_status (*erase)(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);
    ga_slabhash_answer (*run)(const ga_slabhash *table, const ga_slabhash_operation *operation);
    uint64_t (*find_all)(const ga_slabhash *table, uint64_t key, uint64_t *values, uint64_t room);
    /* False if a slab is needed; `count` has gone up by the pairs that were deleted before. */
    bool (*remove_all)(const ga_slabhash *table, uint64_t key, uint64_t *count);
    /* Carries out the range up to the first operation that is FULL, and returns where it
     * stopped. `counts` has an element for each result, and they go up. */
    uint64_t (*batch)(const ga_slabhash *table, const ga_slabhash_batch *batch,
                      slabhash_range range, uint64_t *counts);
    void (*count)(const ga_slabhash *table, ga_slabhash_census *census);
    bool (*each)(const ga_slabhash *table, ga_slabhash_visit *visit, void *context);
    void (*copy)(const ga_slabhash *table, void *keys, void *values, uint64_t room,
                 uint64_t *count);
    void (*flush)(const ga_slabhash *table);
    /* open: migrates some buckets of the next version; false if a slab is needed. sample: counts
     * every `step`th bucket of a range of one version. */
    bool (*open)(const slabhash_pin *pin, slabhash_range range);
    void (*sample)(const slabhash_version *version, slabhash_range range, uint32_t step,
                   ga_slabhash_census *census);
} slabhash_ops;

/* By kind. Elements of the AVX2 table are NULL if the compiler cannot build them. */
extern const slabhash_ops *const ga_slabhash_ops[GA_SLABHASH_KINDS];
extern const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS];

struct ga_slabhash {
    /* Set once, up to `kind`. */
    ga_slabhash_view view;
    const slabhash_ops *ops;
    uint64_t seed;
    ga_slabhash_hash *hash; /* the caller's; NULL: the seeded one */
    void *context;
    ga_heap *heap;
    bool own_heap;
    uint32_t kind;
    uint32_t open; /* relaxed: 0 once the table was closed */
    /* GA_SLABHASH_CHECK: counts calls in progress (use_tile.h); away from fields that all
     * threads read. */
    bool checked;
    slabhash_ops checked_ops; /* set once: `search`, `insert`, `erase` are the slow ones, because
                               * the fast ones do not count in `use` */
    _Alignas(SLABHASH_ALIGN) uint64_t use;
    /* Tables that grow (grow.c). */
    _Alignas(SLABHASH_ALIGN) uint32_t least; /* fewest buckets; set once */
    ga_domain *domain;                       /* set once: hazard pointers that protect versions */
    slabhash_version *now;                   /* W: the current version, with which calls begin */
    slabhash_version *retired; /* R: list of versions that no call can find any more, though
                                   * some may still be in them */
    uint64_t arrays;           /* relaxed: bytes of all versions' arrays */
    pthread_mutex_t beginning; /* trylock only: held by the thread that makes the next version */
    /* Guarded by `grow`, but see slab/host.h for exceptions. */
    ga_slab_host slabs;
    pthread_mutex_t grow;
    ga_slabhash *next_closed; /* guarded by the lock of the list of closed tables */
};

static inline uint64_t slabhash_hash_of(const ga_slabhash *table, uint64_t key)
{
    return table->hash ? table->hash(table->context, key) : ga_slabhash_seeded(table->view, key);
}

/* Allocates an array of empty buckets from the table's heap. If the table opened that heap
 * itself it requests huge pages: with small ones most searches would miss the TLB. */
ga_status ga_slabhash_make_rows(ga_slabhash *table, uint64_t bytes, uint32_t **rows);

/* Adds slabs, for a call that found none. `seen` is slabhash_room() before the call.
 * GA_ERR_MEMORY: the limit is reached, or the heap is full. */
ga_status ga_slabhash_grow(ga_slabhash *table, uint32_t seen);

/* How many times slabs were added: tells a call whether another thread has just done so. */
static inline uint32_t slabhash_room(const ga_slabhash *table)
{
    return ga_slab_host_room(&table->slabs);
}

/* ---- tables that grow (grow.c) --------------------------------------------------------------- */

static inline bool slabhash_grows(const ga_slabhash *table)
{
    return GA_SLABHASH_IS_GROWING(table->kind);
}

/* Makes a table's first version and the rest that a growing table needs. Below: frees all of it. */
ga_status ga_slabhash_versions_begin(ga_slabhash *table);
void ga_slabhash_versions_end(ga_slabhash *table);

/* Makes the calling thread a member of the domain; needed once before the calls below. */
ga_status ga_slabhash_enroll(ga_slabhash *table);

/* Pins do not nest: a thread's second pin replaces its first. */
slabhash_pin ga_slabhash_pin(const ga_slabhash *table);
void ga_slabhash_unpin(const slabhash_pin *pin);

/* A pin for a visit of the whole table, during which the visitor may call for the table. Such
 * pins nest. */
slabhash_pin ga_slabhash_stay(const ga_slabhash *table);
void ga_slabhash_leave(const slabhash_pin *pin);

/* Called after each operation but SEARCH, while pinned: migrates some buckets if the table
 * migrates, finishes the migration, or starts one. `chained`: the operation chained a slab;
 * `emptied`: it deleted a pair. */
void ga_slabhash_tend(const slabhash_pin *pin, uint64_t hash, bool opened, bool chained,
                      bool emptied);

/* Finishes the current migration; with `begin` migrates to as many buckets, or half.
 * GA_ERR_MEMORY */
ga_status ga_slabhash_settle(ga_slabhash *table, bool begin);

/* Deletes all pairs. Exclusive. */
void ga_slabhash_versions_clear(ga_slabhash *table);

/* SEARCH, INSERT and DELETE of any key in any table, fully checked. The slow paths of the public
 * calls and of slabhash_ops. */
ga_status ga_slabhash_search_slow(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);
ga_status ga_slabhash_insert_slow(ga_slabhash *table, uint64_t key, uint64_t value,
                                  ga_slabhash_found *was);
ga_status ga_slabhash_delete_slow(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);

/* GA_ERR_ARGUMENT if the table is NULL or closed. */
ga_status ga_slabhash_check(const ga_slabhash *table);

/* A call enters a table after its arguments are checked, and exits at its end. `exclusive`: the
 * name of an exclusive call; NULL for others, whose thread is enrolled. GA_ERR_ARGUMENT if the
 * table is checked and an overlapping call forbids this one; GA_ERR_MEMORY as
 * ga_slabhash_enroll(). A call that could not enter does not exit. */
ga_status ga_slabhash_enter(ga_slabhash *table, const char *exclusive);
void ga_slabhash_exit(ga_slabhash *table, const char *exclusive);

#endif
