/* SPDX-License-Identifier: MIT
 *
 * A table of host threads, and what its files share: hash_tile.h compiled for each kind of table
 * (ops.c, and once more for AVX2), behind a table of functions.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_H
#define GPUALLOC_SLABHASH_TABLE_H

#include "grow_tile.h"
#include "use_tile.h"

#include "../../liballoc/slab/host.h"

#include <gpualloc/reclaim.h>

#include <pthread.h>
#include <string.h>

/* One thread is a tile; the width only says how loops over lanes are written. */
#define SLABHASH_TILE ga_tile_of(8)

typedef struct slabhash_range {
    uint64_t first, end; /* of a batch's operations */
} slabhash_range;

enum {
    SLABHASH_APART = 128 /* bytes: two lines, which processors fetch together */
};

/* Of a table that grows: an array of buckets and their chains (grow.c). */
typedef struct slabhash_version {
    ga_slabhash *table;             /* set once, as is the view */
    ga_slabhash_view view;          /* all there is of tables that do not grow */
    struct slabhash_version *next;  /* N: where it moves, or NULL; set once */
    struct slabhash_version *later; /* on the list of retired ones; whose that is */
    uint64_t bytes;                 /* of the array */
    uint32_t wanted;                /* relaxed: with so many slabs behind buckets it moves on */
    /* What many change, apart from what all read. */
    _Alignas(SLABHASH_APART) uint64_t cursor; /* relaxed: runs of buckets handed out */
    uint32_t opened;                          /* C: buckets */
    uint32_t chained;                         /* relaxed: slabs behind buckets */
    uint32_t users;                           /* U: the table, and rounds over it */
} slabhash_version;

/* The generations that a call works on; they stay until it lets go. */
typedef struct slabhash_pin {
    slabhash_version *now, *next; /* `next` may be NULL */
    ga_hazards *mine;
    ga_slabhash_shift shift;
} slabhash_pin;

static inline void slabhash_note_opened(const slabhash_pin *pin, uint32_t count)
{
    if (count) {
        /* C: acq_rel. Pairs with itself: who counts the last has what the others opened. */
        __atomic_fetch_add(&pin->next->opened, count, __ATOMIC_ACQ_REL);
    }
}

/* The algorithm for one kind of table. Those that do not grow have all but the last two, the others
 * search, insert, erase, run, find_all, remove_all, batch, each and these. */
typedef struct slabhash_ops {
    /* SEARCH, INSERT and DELETE alone, as few instructions as can be: so that the processor begins
     * with the next call while this one waits for its slab. The table is open. */
    ga_status (*search)(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);
    ga_status (*insert)(ga_slabhash *table, uint64_t key, uint64_t value, ga_slabhash_found *was);
    ga_status (*erase)(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);
    ga_slabhash_answer (*run)(const ga_slabhash *table, const ga_slabhash_change_to *to);
    uint64_t (*find_all)(const ga_slabhash *table, uint64_t key, uint64_t *values, uint64_t room);
    /* False where a slab is wanted; `count` goes up by what was taken out all the same. */
    bool (*remove_all)(const ga_slabhash *table, uint64_t key, uint64_t *count);
    /* Up to the first that is FULL, or all: how far it came. `counts` of results go up. */
    uint64_t (*batch)(const ga_slabhash *table, const ga_slabhash_batch *batch,
                      slabhash_range range, uint64_t *counts);
    void (*count)(const ga_slabhash *table, ga_slabhash_census *census);
    bool (*each)(const ga_slabhash *table, ga_slabhash_visit *visit, void *context);
    void (*copy)(const ga_slabhash *table, void *keys, void *values, uint64_t room,
                 uint64_t *count);
    void (*flush)(const ga_slabhash *table);
    /* Open some buckets of the newer generation: false where a slab is wanted. And what there is in
     * some buckets of one generation, `step` apart. */
    bool (*open)(const slabhash_pin *pin, slabhash_range range);
    void (*sample)(const slabhash_version *version, slabhash_range range, uint32_t step,
                   ga_slabhash_census *census);
} slabhash_ops;

/* Of each kind; those for AVX2 are NULL where the compiler has none. */
extern const slabhash_ops *const ga_slabhash_ops[GA_SLABHASH_KINDS];
extern const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS];

struct ga_slabhash {
    /* Set once. */
    ga_slabhash_view view;
    const slabhash_ops *ops;
    uint64_t seed;
    ga_slabhash_hash *hash; /* NULL: the seeded one */
    void *context;
    ga_heap *heap;
    bool own_heap;
    uint32_t kind;
    uint32_t open; /* relaxed: 0 once it was closed */
    /* GA_SLABHASH_CHECK: who is in a call (use_tile.h), apart from what all read. */
    bool checked;
    slabhash_ops checked_ops; /* set once: without the short ways, which do not look at `use` */
    _Alignas(SLABHASH_APART) uint64_t use;
    /* Of tables that grow (grow.c). */
    _Alignas(SLABHASH_APART) uint32_t least; /* buckets; set once */
    ga_domain *domain;                       /* set once: where generations are protected */
    slabhash_version *now;                   /* W: what calls begin with */
    slabhash_version *retired; /* R: those that no call finds any more, but one may have found */
    uint64_t arrays;           /* relaxed: bytes of all generations' buckets */
    pthread_mutex_t beginning; /* tried alone: who makes the next generation */
    /* Guarded by `grow`, but for what slab/host.h says. */
    ga_slab_host slabs;
    pthread_mutex_t grow;
    ga_slabhash *next_closed; /* guarded by the list's lock */
};

static inline uint64_t slabhash_hash_of(const ga_slabhash *table, uint64_t key)
{
    return table->hash ? table->hash(table->context, key) : ga_slabhash_seeded(table->view, key);
}

/* An array of buckets, all empty; it is freed to the table's heap. Where the table has opened that
 * for itself it asks for huge pages: else each search waits for an address to be translated. */
ga_status ga_slabhash_make_rows(ga_slabhash *table, uint64_t bytes, uint32_t **rows);

/* More slabs, where a call found none. GA_ERR_MEMORY: there are no more to be had. */
ga_status ga_slabhash_grow(ga_slabhash *table, uint32_t seen);

/* How often room has come: what a call has seen, when it asks for more. */
static inline uint32_t slabhash_room(const ga_slabhash *table)
{
    return ga_slab_host_room(&table->slabs);
}

/* ---- tables that grow (grow.c) --------------------------------------------------------------- */

static inline bool slabhash_grows(const ga_slabhash *table)
{
    return GA_SLABHASH_IS_GROWING(table->kind);
}

/* The first generation of a table, and what else it needs. And all that goes at its end. */
ga_status ga_slabhash_versions_begin(ga_slabhash *table);
void ga_slabhash_versions_end(ga_slabhash *table);

/* The calling thread may pin: once before any of the calls below. */
ga_status ga_slabhash_enroll(ga_slabhash *table);

/* Pins nest not: two are one. */
slabhash_pin ga_slabhash_pin(const ga_slabhash *table);
void ga_slabhash_unpin(const slabhash_pin *pin);

/* A pin of a round over the table, in which calls are made for it; they may be several. */
slabhash_pin ga_slabhash_stay(const ga_slabhash *table);
void ga_slabhash_leave(const slabhash_pin *pin);

/* After each operation that is no search, pinned: open some buckets where the table moves, see
 * whether it has moved, or whether it should. `chained`: a slab was; `emptied`: a pair was taken
 * out. */
void ga_slabhash_tend(const slabhash_pin *pin, uint64_t hash, bool opened, bool chained,
                      bool emptied);

/* Move the table, to as many buckets or half, until it has. GA_ERR_MEMORY */
ga_status ga_slabhash_settle(ga_slabhash *table, bool begin);

/* Alone: take everything out. */
void ga_slabhash_versions_clear(ga_slabhash *table);

/* SEARCH, INSERT and DELETE of any key in any table, with all that is to be checked; and where an
 * open table has them for its own. */
ga_status ga_slabhash_look_for(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);
ga_status ga_slabhash_put_in(ga_slabhash *table, uint64_t key, uint64_t value,
                             ga_slabhash_found *was);
ga_status ga_slabhash_take_out(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);

/* GA_ERR_ARGUMENT where it is NULL or closed. */
ga_status ga_slabhash_check(const ga_slabhash *table);

/* A call begins, and ends, after what else there is to check; its thread is enrolled unless it is
 * alone. `alone`: what it is called, where it
 * wants the table alone; else NULL. GA_ERR_ARGUMENT where the table is checked and others are in
 * calls that may not be beside this one, GA_ERR_MEMORY as above; then it does not end. */
ga_status ga_slabhash_enter(ga_slabhash *table, const char *alone);
void ga_slabhash_exit(ga_slabhash *table, const char *alone);

#endif
