/* SPDX-License-Identifier: MIT
 *
 * The slab hash (slab-hash-2018): a hash table of 128-byte slabs with concurrent inserts, searches
 * and deletes; sets and maps of 32-bit keys, and maps of 64-bit keys. This header has the table for
 * host threads; gpualloc/slabhash.cuh has the same operations for kernels.
 * docs/internals/slabhash.md has the algorithms, the argument why they are correct, and the
 * limitations, docs/sources.md the publication.
 *
 *     ga_slabhash *table;
 *     ga_slabhash_options options = {.options_size = sizeof options,
 *                                    .mode = GA_SLABHASH_MAP32, .buckets = 100000};
 *     ga_slabhash_open(&table, &options);
 *     ga_slabhash_insert(table, key, value, NULL);
 *     ga_slabhash_found found;
 *     ga_slabhash_search(table, key, &found);     found.found, found.value
 *     ga_slabhash_close(table);
 *
 * Every call returns a status, as in gpualloc.h. A call that fails leaves a message in
 * ga_error_text() and the table unchanged, except that a batch reports how many operations were
 * carried out. An absent key is not an error.
 *
 * Reserved: the keys 0xffffffff and 0xfffffffe in the 32-bit modes; the key and the value of 64 set
 * bits in the 64-bit mode; more in tables that grow: see GA_SLABHASH_GROW. They are refused with
 * GA_ERR_ARGUMENT. All other keys and values are valid.
 *
 * Thread safety: any thread may make any call at any time, with these exceptions.
 * ga_slabhash_flush() of a table that does not grow, _clear(), _load() and _close() are exclusive:
 * no other thread may use the table. No thread may change it during _save(). In tables of unique
 * keys all other calls on one key are linearizable; for multimaps see ga_slabhash_search(). Writes
 * of a thread before it inserts a pair happen before reads of a thread after it found the pair.
 * Calls are lock-free, but for a call that needs a slab when none is free, or that starts the
 * migration of a table that grows: it allocates from the heap, one thread at a time. No call is
 * async-signal-safe.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_SLABHASH_H
#define GPUALLOC_SLABHASH_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ga_slabhash ga_slabhash;

/* Contents of a slab of 128 bytes, beside 32 end bits and the link to the next slab. */
typedef enum ga_slabhash_mode {
    GA_SLABHASH_SET32 = 0, /* 30 keys of 32 bits */
    GA_SLABHASH_MAP32,     /* 15 pairs of 32-bit keys and values */
    GA_SLABHASH_MAP64,     /* 7 pairs of 64-bit keys and values */
    GA_SLABHASH_MODE_COUNT
} ga_slabhash_mode;

/* "set32", ...; "?" for values out of range. */
GA_API const char *ga_slabhash_mode_text(ga_slabhash_mode mode);

enum {
    GA_SLABHASH_MULTI = 1, /* a key may occur several times: a multiset or multimap */
    /* The table has as many buckets as its keys need: it doubles them when it is full, and
     * halves them when it is nearly empty. Its pairs then migrate to another array, a few with
     * each call that changes the table. Until all have migrated both arrays exist: up to three
     * times the older one's memory. Path 1, on the host; keys below 2^31 - 2 in the 32-bit
     * modes; in the 64-bit mode keys below 2^64 - 2 and values below 2^63 - 3. Any call may
     * return GA_ERR_MEMORY when its thread uses the table for the first time. Tables in device
     * memory grow in another way: gpualloc/slabhash.cuh. */
    GA_SLABHASH_GROW = 2,
    /* Detects and refuses misuse: calls for a closed table, by any thread at any time (its
     * record is never reused); exclusive calls during other calls, and calls during exclusive
     * ones. All calls count in one word, which makes them slower. */
    GA_SLABHASH_CHECK = 4,
    /* Device memory only: the table grows and shrinks while kernels run, as they insert and
     * delete. Path 1; keys and values as with GA_SLABHASH_GROW: gpualloc/slabhash.cuh. */
    GA_SLABHASH_GROW_IN_KERNELS = 8
};

/* A hash of the caller's own. Equal keys must have equal hashes; the upper bits choose the
 * bucket, so an identity hash of small numbers puts all keys into one. Called at any time, by
 * several threads at once; it may not call for the table. */
typedef uint64_t ga_slabhash_hash(void *context, uint64_t key);

/* The table's own hash is (a k + b) mod 2^61 - 1, mixed; a and b are derived from the seed. If the
 * seed is 0, each table draws one from the kernel (getrandom(2), or /dev/urandom where a sandbox
 * refuses that; never blocks, never fails). Keys that were chosen without knowledge of the seed
 * then collide as random keys do: any two share a bucket with a probability of about 1 / `buckets`.
 * 64-bit keys that differ by a multiple of 2^61 - 1 always share one; at most nine do.
 *
 * The hash is not cryptographic. It does not resist an attacker who learns the seed, the plan, or
 * the order of pairs in ga_slabhash_each(), ga_slabhash_retrieve() or a saved file, because a and b
 * can be computed from these. Nor does it resist one who measures exactly how long single calls
 * take and adapts the keys. Such an attacker can compute any number of keys of one bucket, and the
 * time of each call for them is proportional to their number. Keep all of this from an untrusted
 * source of keys, or give the table a hash of your own, for example SipHash with a secret key.
 *
 * With a fixed seed, and calls from one thread, a table has the same layout in each run. Set a seed
 * for benchmarks and tests only. ga_slabhash_stats and ga_slabhash_plan have the seed that was
 * drawn, so that a run can be repeated. A table keeps its seed when it grows or is cleared. Files
 * hold pairs and no seed: a table that loads one places the pairs by its own hash. */

/* Options of a table, fixed once it is open. */
typedef struct ga_slabhash_options {
    uint32_t options_size; /* sizeof(ga_slabhash_options) */
    uint32_t flags;        /* GA_SLABHASH_MULTI, _GROW, _CHECK, or 0 */
    ga_slabhash_mode mode;
    uint32_t buckets;  /* number of buckets, of one slab each: 1 to 2^31; 0: 1024. Best with room
                       * for 1.2 to 1.5 times as many keys as expected; more keys are chained in
                       * overflow slabs. With GA_SLABHASH_GROW the initial and fewest number; 0:
                       * 16 */
    uint32_t path;     /* buckets whose slabs may hold a key before overflow slabs are chained: 1
                       * to 16, at most `buckets`; 0: 1, as in the paper. 4 to 6 fill slabs
                       * better */
    uint32_t reserved; /* 0 */
    uint64_t seed;     /* of the hash; 0: each table draws one, see above */
    uint64_t limit;    /* bytes of overflow slabs, in whole MiB, at most 64 GiB; 0: 16 GiB. With
                        * GA_SLABHASH_GROW of each array: during a migration there may be twice
                        * as many. During a call that inserts a thread claims up to 32 slabs
                        * ahead, so that another thread may find none when as few are left */
    ga_heap *heap;     /* source of slabs: a host heap that outlives the table; NULL: one is
                        * opened as `vmm` */
    ga_slabhash_hash *hash; /* NULL: the table's own hash */
    void *context;          /* passed to it */
} ga_slabhash_options;

/* Opens an empty table; the caller closes it. NULL for `options` is a set32 of 1024 buckets.
 *
 * GA_ERR_ARGUMENT  an option is out of range; the message names it
 * GA_ERR_PLACE     the heap is not on the host
 * GA_ERR_MEMORY    no memory for the table. All buckets are written at once, so this includes
 *                  buckets that exceed the memory and swap available to the process, within its
 *                  cgroups and limits */
GA_API ga_status ga_slabhash_open(ga_slabhash **out, const ga_slabhash_options *options);

/* The numbers that describe a table of these options, to build one in other memory than the host's:
 * gpualloc/slabhash.cuh. `heap`, `limit`, `hash` and `context` are ignored. If the seed is 0 each
 * plan draws another one: tables that need the same layout share a plan, or its seed. Any thread
 * may call.
 *
 * GA_ERR_ARGUMENT     another option is out of range; a pointer is NULL
 * GA_ERR_UNSUPPORTED  GA_SLABHASH_GROW: a plan is of a table that does not grow */
typedef struct ga_slabhash_plan {
    uint32_t kind; /* mode, and 4 for a multimap */
    uint32_t buckets, path;
    uint32_t stride_max; /* largest distance of two consecutive buckets of a path */
    uint64_t a, b;       /* of the hash: 8 a, and b */
    uint64_t bytes;      /* size of the buckets' slabs; empty ones have all bits set */
    uint64_t seed;       /* of the hash: the option, or the seed that was drawn for this plan */
} ga_slabhash_plan;

GA_API ga_status ga_slabhash_plan_of(const ga_slabhash_options *options, ga_slabhash_plan *out);

/* Closes the table and frees all its memory. No thread may be using it. NULL is ignored.
 *
 * GA_ERR_ARGUMENT  the table is already closed: detected until another table is opened, and always
 *                  with GA_SLABHASH_CHECK. With that flag also: another call is in progress; the
 *                  table stays open. Other exclusive calls, and calls during them, fail likewise */
GA_API ga_status ga_slabhash_close(ga_slabhash *table);

/* ---- one operation -------------------------------------------------------------------------- */

/* Whether the key was in the table when the call took effect, and its value. The value is 0 in
 * sets. */
typedef struct ga_slabhash_found {
    bool found;
    uint64_t value; /* 0 if `found` is false */
} ga_slabhash_found;

/* Inserts the pair. Unique keys: only if the key is absent; `was` then has the value that stays
 * (insert-if-absent, find-or-insert). Multimaps: always, as one more pair; `was` is meaningless.
 * Sets ignore `value`. `was` may be NULL, here and below, except for ga_slabhash_search().
 *
 * GA_ERR_MEMORY    no slab is available; likewise in other calls that insert
 * GA_ERR_ARGUMENT  the table is NULL or closed; the key or value is reserved or too wide for the
 *                  mode; likewise below */
GA_API ga_status ga_slabhash_insert(ga_slabhash *table, uint64_t key, uint64_t value,
                                    ga_slabhash_found *was);

/* Unique keys: inserts the pair, or replaces the value of the key.
 *
 * GA_ERR_UNSUPPORTED  in a multimap */
GA_API ga_status ga_slabhash_replace(ga_slabhash *table, uint64_t key, uint64_t value,
                                     ga_slabhash_found *was);

/* How insert-or-apply combines the existing and the given value. 32-bit maps keep the lower half
 * of the result. */
typedef enum ga_slabhash_how {
    GA_SLABHASH_ADD = 0,
    GA_SLABHASH_MIN,
    GA_SLABHASH_MAX,
    GA_SLABHASH_HOW_COUNT
} ga_slabhash_how;

/* The caller's own combination. Called again if another thread has changed the value during the
 * call; it may not call for the table. */
typedef uint64_t ga_slabhash_function(void *context, uint64_t there, uint64_t given);

/* Unique keys in maps: inserts the pair, or atomically replaces the key's value by the combination
 * of both values. `was` has the old value.
 *
 * GA_ERR_UNSUPPORTED  in a multimap or a set
 * GA_ERR_ARGUMENT     also: the new value would be the reserved one; `how` or `function` is invalid
 */
GA_API ga_status ga_slabhash_apply(ga_slabhash *table, uint64_t key, uint64_t value,
                                   ga_slabhash_how how, ga_slabhash_found *was);
GA_API ga_status ga_slabhash_apply_by(ga_slabhash *table, uint64_t key, uint64_t value,
                                      ga_slabhash_function *function, void *context,
                                      ga_slabhash_found *was);

/* Deletes the key; in a multimap the first of its pairs along its path.
 *
 * GA_ERR_MEMORY    with GA_SLABHASH_GROW, during a migration: no slab is available for the pairs
 *                  that must migrate with this one; likewise below. Nothing is done */
GA_API ga_status ga_slabhash_delete(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);

/* Deletes all pairs of the key that are in the table when the call begins and still are when it
 * reaches them. `count` is the number deleted, whatever the status; may be NULL.
 *
 * GA_ERR_MEMORY    as above, but some pairs may have been deleted */
GA_API ga_status ga_slabhash_delete_all(ga_slabhash *table, uint64_t key, uint64_t *count);

/* Searches for the key; in a multimap for the first of its pairs along its path. In a multimap the
 * key may be missed while other threads insert and delete pairs of it; a pair that stays is found.
 *
 * GA_ERR_ARGUMENT  also: `found` is NULL */
GA_API ga_status ga_slabhash_search(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);

/* All values of the key: `count` is their number, and the first `room` of them are stored in
 * `values`, which may be NULL if `room` is 0. */
GA_API ga_status ga_slabhash_search_all(ga_slabhash *table, uint64_t key, uint64_t *values,
                                        uint64_t room, uint64_t *count);

/* ---- batches -------------------------------------------------------------------------------- */

typedef enum ga_slabhash_op {
    GA_SLABHASH_SEARCH = 0,
    GA_SLABHASH_INSERT,
    GA_SLABHASH_REPLACE,
    GA_SLABHASH_DELETE,
    GA_SLABHASH_APPLY, /* with the batch's `how` */
    GA_SLABHASH_OP_COUNT
} ga_slabhash_op;

typedef enum ga_slabhash_result {
    GA_SLABHASH_ABSENT = 0, /* the key was absent; multimaps return this for every insert */
    GA_SLABHASH_FOUND,      /* the key was found */
    GA_SLABHASH_FULL,       /* nothing done: no slab is available */
    GA_SLABHASH_REFUSED     /* nothing done: a reserved key or value, or no such operation */
} ga_slabhash_result;

/* Arrays of keys and values are of uint32_t in the 32-bit modes, of uint64_t in the 64-bit mode. */
typedef struct ga_slabhash_batch {
    uint64_t count;
    const void *keys;
    const void *values;  /* for operations that insert or change pairs of maps; else NULL */
    const uint8_t *ops;  /* ga_slabhash_op of each; NULL: all are `op` */
    uint8_t *results;    /* ga_slabhash_result of each; may be NULL */
    void *found;         /* value that each key had, or 0; may be NULL */
    ga_slabhash_op op;   /* if `ops` is NULL */
    ga_slabhash_how how; /* for GA_SLABHASH_APPLY */
} ga_slabhash_batch;

/* Carries out all operations of the batch, in no order; slabs are prefetched. `done` is the number
 * carried out, and may be NULL; the results of the others say why not. Several threads may run
 * batches at once.
 *
 * GA_ERR_MEMORY    some were not carried out, because no slab was available
 * GA_ERR_ARGUMENT  some were refused; or an array is missing, and nothing was done */
GA_API ga_status ga_slabhash_run(ga_slabhash *table, const ga_slabhash_batch *batch,
                                 uint64_t *done);

/* SEARCHALL or DELETEALL of many keys; arrays of keys as in a batch. */
typedef struct ga_slabhash_all {
    uint64_t count;
    const void *keys;
    uint64_t *counts; /* number of pairs of each key; may be NULL */
    uint64_t *firsts; /* searches: index in `values` of each key's first value; may be NULL */
    uint64_t *values; /* searches: the first `room` values found; may be NULL if `room` is 0 */
    uint64_t room;
} ga_slabhash_all;

/* For each key the work of ga_slabhash_search_all() or ga_slabhash_delete_all(). The values of a
 * key are contiguous. `total` is the number of pairs found or deleted, of all keys, and may be
 * NULL; a search with `room` 0 only counts. Slabs are prefetched. Reserved keys have no pairs.
 *
 * GA_ERR_MEMORY    deletes with GA_SLABHASH_GROW: no slab was available for some keys, as in
 *                  ga_slabhash_delete(); all others are carried out
 * GA_ERR_ARGUMENT  some keys were refused; or an array is missing, and nothing was done */
GA_API ga_status ga_slabhash_run_search_all(ga_slabhash *table, const ga_slabhash_all *all,
                                            uint64_t *total);
GA_API ga_status ga_slabhash_run_delete_all(ga_slabhash *table, const ga_slabhash_all *all,
                                            uint64_t *total);

/* ---- the whole table ------------------------------------------------------------------------ */

/* Statistics, and the number of pairs alone. Each reads all slabs. Exact if no thread changes
 * the table. */
typedef struct ga_slabhash_stats {
    uint64_t size;       /* pairs */
    uint64_t deleted;    /* slots of deleted pairs that a flush makes usable again */
    uint64_t slabs;      /* in use: buckets and overflow slabs */
    uint64_t chained;    /* of these, overflow slabs */
    uint64_t overflowed; /* buckets that have overflowed, so that searches go on behind them */
    uint64_t buckets;    /* of both arrays, if a migration cannot finish for lack of memory */
    uint64_t bytes_held; /* taken from the heap, used or not */
    double utilisation;  /* bytes of the pairs / bytes of the slabs in use (§III-C) */
    uint64_t seed;       /* of the hash: the option, or the seed that was drawn for this table */
} ga_slabhash_stats;

GA_API ga_status ga_slabhash_get_stats(ga_slabhash *table, ga_slabhash_stats *out);
GA_API ga_status ga_slabhash_size(ga_slabhash *table, uint64_t *size);

/* Calls `visit` for each pair, while other threads may change the table. A pair that is there
 * all the time is visited once; a pair that is inserted or deleted during the call may be
 * visited or not, or twice. `visit` may call for the table, except for exclusive calls, and ends
 * the round by returning false. */
typedef bool ga_slabhash_visit(void *context, uint64_t key, uint64_t value);
GA_API ga_status ga_slabhash_each(ga_slabhash *table, ga_slabhash_visit *visit, void *context);

/* All pairs: `count` is their number, and the first `room` of them are stored in the arrays,
 * each of which may be NULL. Like ga_slabhash_each(): a pair that is deleted and inserted during
 * the call may be retrieved twice. */
GA_API ga_status ga_slabhash_retrieve(ga_slabhash *table, void *keys, void *values, uint64_t room,
                                      uint64_t *count);

/* Makes the slots of deleted pairs usable again, moves pairs to the front of their chains, and
 * frees the slabs that become empty. Exclusive; with GA_SLABHASH_GROW the same as
 * ga_slabhash_compact(). */
GA_API ga_status ga_slabhash_flush(ga_slabhash *table);

/* Like ga_slabhash_flush(), but concurrent with other calls, for tables with GA_SLABHASH_GROW. The
 * pairs migrate to a new array of as many buckets, or half if these have room. The older array is
 * freed with its slabs once no call uses it.
 *
 * GA_ERR_MEMORY       no memory for the array, or no slab; the table is intact, and later calls go
 *                     on with the migration
 * GA_ERR_UNSUPPORTED  a table without GA_SLABHASH_GROW */
GA_API ga_status ga_slabhash_compact(ga_slabhash *table);

/* Deletes all pairs and frees all overflow slabs. Exclusive. */
GA_API ga_status ga_slabhash_clear(ga_slabhash *table);

/* _save writes all pairs to a file, replacing an existing one. _load inserts the pairs of such a
 * file, like ga_slabhash_replace(), or in a multimap ga_slabhash_insert(). A file fits tables of
 * the same mode that have GA_SLABHASH_MULTI alike; other options may differ. _load checks the whole
 * file before the first pair is inserted. _save writes a new file in the same directory and renames
 * it when it is complete, with the old one's permissions: a save that fails leaves the old file as
 * it was.
 *
 * GA_ERR_IO        the file cannot be read or written; it is truncated, longer than its head says,
 *                  or corrupt; saving: the path names something else than a regular file, or a link
 *                  to nothing
 * GA_ERR_ARGUMENT  the file is of another mode or multiplicity; the path is NULL; loading: a pair
 *                  that a table that grows cannot hold
 * GA_ERR_MEMORY    loading: not all pairs were inserted */
GA_API ga_status ga_slabhash_save(ga_slabhash *table, const char *path);
GA_API ga_status ga_slabhash_load(ga_slabhash *table, const char *path);

#ifdef __cplusplus
}
#endif
#endif
