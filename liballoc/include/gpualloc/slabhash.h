/* SPDX-License-Identifier: MIT
 *
 * The slab hash (slab-hash-2018): a hash table of 128-byte slabs, which takes inserts, searches and
 * deletes at once, in sets and maps of 32-bit and maps of 64-bit keys. This is the table of host
 * threads; gpualloc/slabhash.cuh has the same operations for kernels. docs/slabhash.md has the
 * algorithms, the argument why they are right, and what is missing.
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
 * Every call answers a status, as in gpualloc.h: one that fails leaves a sentence in
 * ga_error_text(), and the table as it was, but for batches, which say how far they came. That a
 * key is or is not there is no failure.
 *
 * Reserved: the keys 0xffffffff and 0xfffffffe in the 32-bit modes; the key and the value of 64 set
 * bits in the 64-bit mode; more in tables that grow: see GA_SLABHASH_GROW. GA_ERR_ARGUMENT says so.
 * All other keys and values can be used.
 *
 * Thread safety: any thread may make any call at any time, except that ga_slabhash_flush() of a
 * table that does not grow, _clear(), _load() and _close() want a table that no other thread is
 * using, and _save() one that no other changes. In tables of unique keys all other calls on one key
 * are linearizable; in multimaps see ga_slabhash_search(). What a thread did before it put a pair
 * in happens before what another does that has found it. Calls are lock-free, but for a call that
 * needs a slab where there is none free, or begins to move a table that grows: that takes more from
 * the heap, one thread at a time. None is async-signal-safe.
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

/* What a slab of 128 bytes holds, beside a mark and the address of the next. */
typedef enum ga_slabhash_mode {
    GA_SLABHASH_SET32 = 0, /* 30 keys of 32 bits */
    GA_SLABHASH_MAP32,     /* 15 pairs of 32-bit keys and values */
    GA_SLABHASH_MAP64,     /* 7 pairs of 64-bit keys and values */
    GA_SLABHASH_MODE_COUNT
} ga_slabhash_mode;

/* "set32", ...; "?" for values out of range. */
GA_API const char *ga_slabhash_mode_text(ga_slabhash_mode mode);

enum {
    GA_SLABHASH_MULTI = 1, /* a key may be there several times: a multiset or multimap */
    /* The table has as many buckets as its keys need: twice as many when it is full, half when it
     * is nearly empty. Each time its pairs move to another array, a few with each call that changes
     * the table; until all have, there are both: up to three times the older one's memory. Path 1,
     * on the host; keys below 2^31 - 2 in the 32-bit modes; in the 64-bit mode keys below 2^64 - 2,
     * and values below 2^63 - 3. Every call may answer GA_ERR_MEMORY the first time that its
     * thread uses the table. Tables in device memory grow in another way: gpualloc/slabhash.cuh. */
    GA_SLABHASH_GROW = 2,
    /* Mistakes are looked for, and refused: a call for the table once it is closed, by any thread and
     * at any time, for which its record is never used again; a call that wants the table alone
     * beside others, and others beside such a one. All calls count in one word, so that they are
     * slower. */
    GA_SLABHASH_CHECK = 4,
    /* In device memory: the table grows while kernels run, by what they put in, and shrinks by what
     * they take out; path 1, and keys and values as with GA_SLABHASH_GROW: gpualloc/slabhash.cuh. */
    GA_SLABHASH_GROW_IN_KERNELS = 8
};

/* Keys that are equal have the same hash; its upper bits choose the bucket. Called at any time, by
 * several threads at once; may not call for the table. */
typedef uint64_t ga_slabhash_hash(void *context, uint64_t key);

/* The table's own hash is (a k + b) mod 2^61 - 1, mixed, with a and b made of the seed. Where the seed
 * is 0, each table draws one from the kernel (getrandom(2), or /dev/urandom where a sandbox refuses
 * that; never blocks, never fails). Keys that were chosen without knowledge of the seed then collide
 * as random keys do: any two share a bucket with a probability of about 1 / `buckets`. Keys of 64
 * bits that differ by a multiple of 2^61 - 1 always share one; at most nine do.
 *
 * The hash is no cryptographic one. It does not resist an attacker who learns the seed, the plan, or
 * the order of pairs in ga_slabhash_each(), ga_slabhash_retrieve() or a saved file, from which a and b
 * can be computed; nor one who can measure exactly how long single calls take, and adapts the keys.
 * Such an attacker can compute any number of keys of one bucket, and each call for them takes time in
 * proportion to their number. Keep all of this from those who choose the keys, or give the table a
 * hash of your own, for example SipHash with a secret key.
 *
 * With a fixed seed, and calls from one thread, a table has the same layout in each run. Set one for
 * benchmarks and tests only. ga_slabhash_stats and ga_slabhash_plan have the seed that was drawn, so
 * that a run can be repeated. A table keeps its seed when it grows or is cleared. Files hold pairs
 * and no seed: a table that loads one places the pairs by its own hash. */

/* What a table is made with: fixed from then on. */
typedef struct ga_slabhash_options {
    uint32_t options_size; /* sizeof(ga_slabhash_options) */
    uint32_t flags;        /* GA_SLABHASH_MULTI, _GROW, _CHECK, or 0 */
    ga_slabhash_mode mode;
    uint32_t buckets; /* of one slab each, 1 to 2^31; 0: 1024. Keys are placed best where these have
                       * room for 1.2 to 1.5 times as many; more than that chain slabs behind them.
                       * With GA_SLABHASH_GROW how many there are at first, and at least; 0: 16 */
    uint32_t path;    /* bucket slabs that a key may stand in before slabs are chained, 1 to 16, and
                       * no more than `buckets`; 0: 1, the paper's. 4 to 6 fill slabs better */
    uint32_t reserved; /* 0 */
    uint64_t seed;     /* of the hash; 0: one is drawn for each table, see above */
    uint64_t limit;    /* bytes of chained slabs, at most 64 GiB; 0: 16 GiB. Whole MiB. With
                        * GA_SLABHASH_GROW of each array's: what moves may have as many more. A
                        * thread that puts pairs in holds up to 32 slabs ahead during its call:
                        * another may find no slab when as few are left */
    ga_heap *heap;     /* where slabs come from: on the host, and outlives the table; NULL: one that
                        * is opened as `vmm` */
    ga_slabhash_hash *hash; /* the caller's own; NULL: the seeded one */
    void *context;          /* for it */
} ga_slabhash_options;

/* Make a table, empty; the caller closes it. NULL for `options` is a set32 of 1024 buckets.
 *
 * GA_ERR_ARGUMENT  an option out of range; the sentence names it
 * GA_ERR_PLACE     the heap is not on the host
 * GA_ERR_MEMORY    no memory for the buckets or the table's record; also where the buckets take
 *                  more than the process can have: available memory and swap, within its cgroups
 *                  and limits. They are filled at once */
GA_API ga_status ga_slabhash_open(ga_slabhash **out, const ga_slabhash_options *options);

/* The numbers that a table of these options is made of, for one in other memory than the host's:
 * gpualloc/slabhash.cuh. `heap`, `limit`, `hash` and `context` are not looked at. Where
 * the seed is 0 each plan has another one: tables that are to have the same layout share a plan, or
 * its seed. Any thread may call.
 *
 * GA_ERR_ARGUMENT     another option out of range; a pointer is NULL
 * GA_ERR_UNSUPPORTED  GA_SLABHASH_GROW, which is of tables in the host's memory */
typedef struct ga_slabhash_plan {
    uint32_t kind; /* mode, and 4 for a multimap */
    uint32_t buckets, path;
    uint32_t apart; /* the most that two bucket slabs of a path are apart */
    uint64_t a, b;  /* of the hash: 8 a, and b */
    uint64_t bytes; /* of the bucket slabs; empty ones have all bits set */
    uint64_t seed;  /* of the hash: the option, or the seed that was drawn for this plan */
} ga_slabhash_plan;

GA_API ga_status ga_slabhash_plan_of(const ga_slabhash_options *options, ga_slabhash_plan *out);

/* Give all slabs back, and the table. Nobody may be using it. NULL is ignored.
 *
 * GA_ERR_ARGUMENT  the table is closed already; noticed as long as no other was opened since, or
 *                  with GA_SLABHASH_CHECK. With that also: others are in calls for it, and it
 *                  stays open; so do all calls that want the table alone, and those beside them */
GA_API ga_status ga_slabhash_close(ga_slabhash *table);

/* ---- one operation -------------------------------------------------------------------------- */

/* Whether the key was there when the call took effect, and its value if it was; sets have the
 * value 0. */
typedef struct ga_slabhash_found {
    bool found;
    uint64_t value; /* 0 where it was not */
} ga_slabhash_found;

/* Unique keys: put the pair in where the key is not there: insert-if-absent, and find-or-insert,
 * since `was` has the value that stays where it is. Multimaps: put the pair in, as one more; `was`
 * says nothing. Sets ignore `value`. `was` may be NULL, here and below, but for
 * ga_slabhash_search().
 *
 * GA_ERR_MEMORY    no slab to be had; here and in the other calls that put something in
 * GA_ERR_ARGUMENT  the table is NULL or closed; the key or value is reserved or too wide for the
 *                  mode; also below */
GA_API ga_status ga_slabhash_insert(ga_slabhash *table, uint64_t key, uint64_t value,
                                    ga_slabhash_found *was);

/* Unique keys: put the pair in, in the place of what is there.
 *
 * GA_ERR_UNSUPPORTED  in a multimap */
GA_API ga_status ga_slabhash_replace(ga_slabhash *table, uint64_t key, uint64_t value,
                                     ga_slabhash_found *was);

/* How insert-or-apply makes the new value of the one that is there and the one it was given; 32-bit
 * maps take the lower half of what comes. */
typedef enum ga_slabhash_how {
    GA_SLABHASH_ADD = 0,
    GA_SLABHASH_MIN,
    GA_SLABHASH_MAX,
    GA_SLABHASH_HOW_COUNT
} ga_slabhash_how;

/* The caller's own way. Called again where another thread has changed the value meanwhile; may not
 * call for the table. */
typedef uint64_t ga_slabhash_function(void *context, uint64_t there, uint64_t given);

/* Unique keys in maps: put the pair in, or where the key is there make its value a new one, at
 * once. `was` has the old one.
 *
 * GA_ERR_UNSUPPORTED  in a multimap or a set
 * GA_ERR_ARGUMENT     also: the new value would be the reserved one; `how` or `function` is none */
GA_API ga_status ga_slabhash_apply(ga_slabhash *table, uint64_t key, uint64_t value,
                                   ga_slabhash_how how, ga_slabhash_found *was);
GA_API ga_status ga_slabhash_apply_by(ga_slabhash *table, uint64_t key, uint64_t value,
                                      ga_slabhash_function *function, void *context,
                                      ga_slabhash_found *was);

/* Take the key out; in a multimap the first of its pairs along its path.
 *
 * GA_ERR_MEMORY    with GA_SLABHASH_GROW, while the table moves: no slab to be had for the pairs
 *                  that move with this one; also below. Nothing is done */
GA_API ga_status ga_slabhash_delete(ga_slabhash *table, uint64_t key, ga_slabhash_found *was);

/* Take out all pairs of the key that are there when the call begins, and stay until it comes to them.
 * `count`, how many, may be NULL; it is right whatever the call answers.
 *
 * GA_ERR_MEMORY    as above, but that some may have been taken out */
GA_API ga_status ga_slabhash_delete_all(ga_slabhash *table, uint64_t key, uint64_t *count);

/* Look for the key; in a multimap the first of its pairs along its path. There it may be missed
 * where others put pairs of this key in and take pairs of it out meanwhile; a pair that stays is
 * found.
 *
 * GA_ERR_ARGUMENT  also: `found` is NULL */
GA_API ga_status ga_slabhash_search(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);

/* All values of the key: `count`, how many, and the first `room` of them in `values`, which may be
 * NULL where `room` is 0. */
GA_API ga_status ga_slabhash_search_all(ga_slabhash *table, uint64_t key, uint64_t *values,
                                        uint64_t room, uint64_t *count);

/* ---- batches -------------------------------------------------------------------------------- */

typedef enum ga_slabhash_op {
    GA_SLABHASH_SEARCH = 0,
    GA_SLABHASH_INSERT,
    GA_SLABHASH_REPLACE,
    GA_SLABHASH_DELETE,
    GA_SLABHASH_APPLY, /* as the batch's `how` says */
    GA_SLABHASH_OP_COUNT
} ga_slabhash_op;

typedef enum ga_slabhash_result {
    GA_SLABHASH_ABSENT = 0, /* the key was not there; in a multimap an insert always answers this */
    GA_SLABHASH_FOUND,      /* it was */
    GA_SLABHASH_FULL,       /* nothing done: no slab to be had */
    GA_SLABHASH_REFUSED     /* nothing done: a reserved key or value, or no such operation */
} ga_slabhash_result;

/* Keys and values stand in arrays of uint32_t in the 32-bit modes, of uint64_t in the other. */
typedef struct ga_slabhash_batch {
    uint64_t count;
    const void *keys;
    const void *values;  /* for what puts pairs into maps; else NULL */
    const uint8_t *ops;  /* ga_slabhash_op of each; NULL: all are `op` */
    uint8_t *results;    /* ga_slabhash_result of each; may be NULL */
    void *found;         /* the values that were there, 0 where none was; may be NULL */
    ga_slabhash_op op;   /* where `ops` is NULL */
    ga_slabhash_how how; /* of GA_SLABHASH_APPLY */
} ga_slabhash_batch;

/* All operations of the batch, in no order; slabs are fetched ahead. `done`, how many were carried
 * out, may be NULL; the others' results say why not. Several threads may each run a batch.
 *
 * GA_ERR_MEMORY    some were not carried out, since there was no slab
 * GA_ERR_ARGUMENT  some were refused; or, and nothing was done, an array is missing */
GA_API ga_status ga_slabhash_run(ga_slabhash *table, const ga_slabhash_batch *batch,
                                 uint64_t *done);

/* SEARCHALL and DELETEALL of many keys, which stand in an array as those of a batch. */
typedef struct ga_slabhash_all {
    uint64_t count;
    const void *keys;
    uint64_t *counts; /* how many pairs each key has; may be NULL */
    uint64_t *firsts; /* searches: where in `values` those of each key begin; may be NULL */
    uint64_t *values; /* searches: the first `room` of all that are found; may be NULL with 0 */
    uint64_t room;
} ga_slabhash_all;

/* For each key what ga_slabhash_search_all() and ga_slabhash_delete_all() do; the values of a key
 * stand together. `total`, how many pairs there were or were taken out of all keys, may be NULL; a
 * search finds out with a `room` of 0 how much it wants. Slabs are fetched ahead. Keys that are
 * reserved have no pairs.
 *
 * GA_ERR_MEMORY    deletes with GA_SLABHASH_GROW: for some keys there was no slab to be had, as in
 *                  ga_slabhash_delete(); all others are carried out
 * GA_ERR_ARGUMENT  some keys were refused; or, and nothing was done, an array is missing */
GA_API ga_status ga_slabhash_run_search_all(ga_slabhash *table, const ga_slabhash_all *all,
                                            uint64_t *total);
GA_API ga_status ga_slabhash_run_delete_all(ga_slabhash *table, const ga_slabhash_all *all,
                                            uint64_t *total);

/* ---- the whole table ------------------------------------------------------------------------ */

/* How many pairs there are; and what they stand in. Each goes through all slabs. Right when no
 * thread changes the table. */
typedef struct ga_slabhash_stats {
    uint64_t size;    /* pairs */
    uint64_t deleted; /* places of deleted pairs that wait for a flush */
    uint64_t slabs;   /* in use: buckets and those chained to them */
    uint64_t chained; /* of these */
    uint64_t marked;  /* buckets that were full once and send searches on */
    uint64_t buckets; /* of both arrays where the table moves and cannot go on for want of memory */
    uint64_t bytes_held; /* taken from the heap, used or not */
    double utilisation;  /* bytes of the pairs / bytes of the slabs in use (§III-C) */
    uint64_t seed;       /* of the hash: the option, or the seed that was drawn for this table */
} ga_slabhash_stats;

GA_API ga_status ga_slabhash_get_stats(ga_slabhash *table, ga_slabhash_stats *out);
GA_API ga_status ga_slabhash_size(ga_slabhash *table, uint64_t *size);

/* Call `visit` for each pair, while others may change the table: what is there all the time is seen
 * once; what comes or goes meanwhile may be seen or not, or twice. `visit` may call for the table,
 * but for the calls that want it alone. It ends the round by answering false. */
typedef bool ga_slabhash_visit(void *context, uint64_t key, uint64_t value);
GA_API ga_status ga_slabhash_each(ga_slabhash *table, ga_slabhash_visit *visit, void *context);

/* All pairs: `count`, how many, and the first `room` of them in the arrays, each of which may be
 * NULL. Like ga_slabhash_each(): also a pair that comes and goes may be retrieved twice. */
GA_API ga_status ga_slabhash_retrieve(ga_slabhash *table, void *keys, void *values, uint64_t room,
                                      uint64_t *count);

/* Make places of deleted pairs free again, move pairs to the front of their chains, and free the
 * slabs that are left over. Alone; with GA_SLABHASH_GROW the same as ga_slabhash_compact(). */
GA_API ga_status ga_slabhash_flush(ga_slabhash *table);

/* The same beside other calls, in a table with GA_SLABHASH_GROW: its pairs move to a new array of
 * as many buckets, or half where these have room, and the older one is freed with its slabs once no
 * call is in it any more.
 *
 * GA_ERR_MEMORY       no memory for the array, or a slab; the table is whole, and goes on moving
 *                     with later calls
 * GA_ERR_UNSUPPORTED  a table without GA_SLABHASH_GROW */
GA_API ga_status ga_slabhash_compact(ga_slabhash *table);

/* Take everything out, and free all chained slabs. Alone. */
GA_API ga_status ga_slabhash_clear(ga_slabhash *table);

/* Write all pairs to a file, in place of what it was; and put the pairs of such a file in, as
 * ga_slabhash_replace() does, or in a multimap ga_slabhash_insert(). A file serves tables of the
 * same mode and, but for GA_SLABHASH_GROW, flags, whatever their buckets and hash. It is looked
 * through before the first pair is put in. A new one is written beside the old one, in the same
 * directory, and takes its place, and its permissions, once it is whole: a save that fails leaves
 * the old one as it was.
 *
 * GA_ERR_IO        the file cannot be read or written; is truncated, longer than it says, or
 *                  corrupt; saving: there is something that is no regular file, or a link to
 *                  nothing
 * GA_ERR_ARGUMENT  it is of another mode; the path is NULL; loading: a pair that a table that grows
 *                  cannot have
 * GA_ERR_MEMORY    loading: not all pairs went in */
GA_API ga_status ga_slabhash_save(ga_slabhash *table, const char *path);
GA_API ga_status ga_slabhash_load(ga_slabhash *table, const char *path);

#ifdef __cplusplus
}
#endif
#endif
