/* SPDX-License-Identifier: MIT
 *
 * The lock-free hash trie map (lfht-reclamation-2022): keys and values of 64 bits, or pointers, in
 * a map that grows and, in most variants, shrinks while any number of threads use it.
 * docs/internals/lfht.md has the algorithms, docs/sources.md the thesis.
 *
 *     ga_lfht *map;
 *     ga_lfht_options options = {.options_size = sizeof options, .variant = GA_LFHT_FHPA};
 *     ga_lfht_open(&map, &options);
 *     ga_lfht_insert(map, key, value, NULL);
 *     ga_lfht_found found;
 *     ga_lfht_lookup(map, key, &found);     found.found, found.value
 *     ga_lfht_close(map);
 *
 * Every call returns a status, as in gpualloc.h. A call that fails leaves the map unchanged for
 * every key, and an error message in ga_error_text(). An absent or present key is not a failure;
 * ga_lfht_found reports it.
 *
 * Thread safety: any thread may make any call at any time, except that ga_lfht_close() and
 * ga_lfht_build() need a map that no other thread is using. Calls are linearizable, except
 * ga_lfht_each() and ga_lfht_get_stats(). They are lock-free if the heap of the nodes is, and, in
 * FHP, FHPA and INLINE, if the C library's malloc is: a thread's first call, a retire list that
 * grows and a scan after threads have joined allocate from it. Elsewhere a thread that is stopped
 * forever inside a call stops no other thread. No call is async-signal-safe. Threads need not be
 * registered. The record of a thread is freed when the thread ends, or, if its last destructors
 * made a call, when the map is closed.
 *
 * Compiles alone as C11, C++17 and under nvcc (host code).
 */
#ifndef GPUALLOC_LFHT_H
#define GPUALLOC_LFHT_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ga_lfht ga_lfht;

/* The variants of the thesis (§5), and one more. All have the same calls. */
typedef enum ga_lfht_variant {
    GA_LFHT_FHPA = 0, /* shrinks by freeze nodes; hazard pointers with asymmetric fences */
    GA_LFHT_FHP,      /* like FHPA, with seq_cst fences instead of membarriers */
    GA_LFHT_SNF,      /* never shrinks; frees nothing before it is closed */
    GA_LFHT_FNF,      /* shrinks by freeze nodes (§3.5.1); frees nothing before it is closed */
    GA_LFHT_CNF,      /* shrinks by counters (§3.5.2); frees nothing before it is closed */
    GA_LFHT_HHL, /* never shrinks; frees removed keys by hazard hash and level (§4.3.2); no bound on
                  * unfreed ones if threads stop */
    GA_LFHT_INLINE, /* keys and values in the buckets themselves, seven in a line of 128 bytes;
                     * shrinks; hazard pointers with asymmetric fences. Not in the thesis */
    GA_LFHT_VARIANT_COUNT
} ga_lfht_variant;

/* "FHPA", ...; "?" for values out of range. */
GA_API const char *ga_lfht_variant_text(ga_lfht_variant variant);

/* The caller's hash and equality. Keys that are equal must have the same hash. Both functions are
 * called at any time, by several threads at once, and must not call into the map.
 *
 * A hash should spread the keys over all 64 bits, because the map uses them from the highest down:
 * first `root` bits, then `chunk` bits a level. With an identity hash of small numbers all keys go
 * to bucket 0 of every level, down to the lowest bits. Keys of one hash are searched one by one.
 *
 * If keys are pointers, as to strings, their targets must stay readable until the map is closed,
 * because a thread may still compare with a key that another thread has removed. Where they are to
 * be freed before, take a hash of the string as the key, and let the value point to a record that
 * has the string: examples/cache.c.
 *
 * The map does not know whether values are pointers. A thread that looks one up needs
 * gpualloc/reclaim.h to use it while others may remove the key and free it: examples/cache.c. */
typedef uint64_t ga_lfht_hash(void *context, uint64_t key);
typedef bool ga_lfht_equal(void *context, uint64_t a, uint64_t b);

/* The options of a map, fixed when it is opened. All zeros except `options_size` is a good
 * choice. */
typedef struct ga_lfht_options {
    uint32_t options_size; /* sizeof(ga_lfht_options) */
    uint32_t flags;        /* GA_LFHT_* below */
    ga_lfht_variant variant;
    uint32_t chunk; /* a hash node has 2^chunk buckets, 1 to 8; 0: 4. INLINE: at most 2^chunk lines;
                     * 0: 8 */
    uint32_t chain; /* leaves in a bucket before it is expanded, 1 to 16; 0: 4. INLINE: pairs in a
                     * line, 1 to 7; 0: 7 */
    uint32_t root;  /* the root has 2^root buckets, 1 to 24; 0: from `expected`. The thesis: equal
                     * to chunk */
    uint32_t batch; /* removed nodes that a thread collects before it frees those that it can, up to
                     * 2^24; 0: 4096. The thesis: 10,000 */
    ga_heap *heap;  /* the heap of the nodes, on the host; must outlive the map. NULL: the map opens
                     * one by GPUALLOC_HOST */
    ga_lfht_hash *hash;   /* NULL: a bijection that spreads any keys */
    ga_lfht_equal *equal; /* NULL: compare the 64 bits */
    void *context;        /* passed to both */
    uint64_t expected;    /* expected number of keys. Sizes the root if `root` is 0: one bucket for
                           * 18 to 36 keys (INLINE: 144 to 288), 2^14 to 2^24 buckets, so that calls
                           * pass few nodes. The root takes 8 bytes a bucket until the map is
                           * closed. 0: unknown, 2^14 buckets */
} ga_lfht_options;

enum {
    GA_LFHT_COUNT = 1,  /* count everything in ga_lfht_stats, not only `size` */
    GA_LFHT_SHRINK = 2, /* require that empty hash nodes are removed: open fails for SNF and HHL,
                         * which never shrink */
    GA_LFHT_CHECK = 4   /* reject calls on a closed map, by any thread at any later time: its
                         * record, of 8 KiB, is kept until the process ends */
};

/* Open an empty map; the caller closes it. NULL for `options` is all zeros.
 *
 * GA_ERR_ARGUMENT  an option is out of range; the message names it
 * GA_ERR_PLACE     the heap is not on the host
 * GA_ERR_SPEC, GA_ERR_LIBRARY, ...  no heap was given, and GPUALLOC_HOST's does not open
 * GA_ERR_MEMORY    no memory for the root or the map's record; or the heap returned an address
 *                  so high that it has no room for tags */
GA_API ga_status ga_lfht_open(ga_lfht **out, const ga_lfht_options *options);

/* Free every node, then the map. No thread may be using it. NULL is ignored.
 *
 * GA_ERR_MEMORY    no memory to finish the operation of a thread that ended inside a call
 * GA_ERR_ARGUMENT  a thread is inside a call: see ga_domain_close(). The map stays open. */
GA_API ga_status ga_lfht_close(ga_lfht *map);

/* The result of a call: whether the key was present when the call took effect, and its value
 * then. */
typedef struct ga_lfht_found {
    bool found;
    uint64_t value; /* 0 if it was absent */
} ga_lfht_found;

/* Insert the key with `value` if it is absent. If it is present, `was` reports its value, which
 * stays. `was` may be NULL, here and below, except in ga_lfht_lookup().
 *
 * GA_ERR_MEMORY    out of memory. Inserting calls allocate a node. FHP, FHPA: every call may
 *                  allocate the retire list or, once per thread, its record. INLINE: a removal may
 *                  also allocate nodes, to finish a resize; a lookup only the thread's record
 * GA_ERR_ARGUMENT  the map is NULL, or closed and opened with GA_LFHT_CHECK; also below */
GA_API ga_status ga_lfht_insert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* Insert the key with `value`, or replace its value. */
GA_API ga_status ga_lfht_upsert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* Replace the key's value if the key is present. */
GA_API ga_status ga_lfht_replace(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* Replace the key's value if it is `expected`. It was replaced if `was->found` is true and
 * `was->value` equals `expected`. A new value that depends on the old one, such as a count, takes a
 * loop:
 *
 *     bool done = false;
 *     ga_lfht_lookup(map, key, &was);
 *     while (!done) {
 *         uint64_t old = was.value;
 *         if (was.found) {
 *             ga_lfht_compare_replace(map, key, old, old + 1, &was);
 *             done = was.found && was.value == old;
 *         } else {
 *             ga_lfht_insert(map, key, 1, &was);
 *             done = !was.found;
 *         }
 *     } */
GA_API ga_status ga_lfht_compare_replace(ga_lfht *map, uint64_t key, uint64_t expected,
                                         uint64_t value, ga_lfht_found *was);

/* Remove the key. */
GA_API ga_status ga_lfht_remove(ga_lfht *map, uint64_t key, ga_lfht_found *was);

/* Look the key up.
 *
 * GA_ERR_ARGUMENT  `found` is NULL */
GA_API ga_status ga_lfht_lookup(ga_lfht *map, uint64_t key, ga_lfht_found *found);

/* ga_lfht_lookup() of n keys, in any order: found[i] is the answer for keys[i]. Several are on
 * their way at once, so that their memory accesses overlap: in maps larger than the caches, batches
 * of some dozens of keys and more take a fraction of the time.
 *
 * GA_ERR_MEMORY    as in a lookup; `found` may have been written in part
 * GA_ERR_ARGUMENT  an array is NULL and n is not 0 */
GA_API ga_status ga_lfht_lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n,
                                      ga_lfht_found *found);

/* ga_lfht_insert() of n keys with their values; was[i] is the answer for keys[i]. Each insertion
 * takes effect by itself, at its own moment during the call. `was` and `done` may be NULL.
 *
 * GA_ERR_MEMORY    no memory for one of them. *done is the number, from the first on, that were
 *                  inserted or found present, with their answers in `was`; none behind these was
 *                  inserted. *done is n if the call succeeds
 * GA_ERR_ARGUMENT  an array is NULL and n is not 0; *done is 0 */
GA_API ga_status ga_lfht_insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                                      size_t n, ga_lfht_found *was, size_t *done);

typedef enum ga_lfht_op {
    GA_LFHT_LOOKUP = 0,
    GA_LFHT_INSERT,
    GA_LFHT_UPSERT,
    GA_LFHT_REPLACE,
    GA_LFHT_COMPARE_REPLACE,
    GA_LFHT_REMOVE
} ga_lfht_op;

/* One call of a batch. */
typedef struct ga_lfht_call {
    uint32_t op; /* a ga_lfht_op */
    uint64_t key;
    uint64_t value;    /* in operations that write a value */
    uint64_t expected; /* in GA_LFHT_COMPARE_REPLACE */
    ga_lfht_found was; /* the answer */
} ga_lfht_call;

/* n calls of any kind, one after the other in the order of the array. Each takes effect by itself,
 * at its own moment during the call, and calls of other threads may come in between. The memory
 * accesses of the next calls overlap with the current one: in maps larger than the caches, batches
 * of some dozens of calls and more take a fraction of the time. `done` may be NULL.
 *
 * GA_ERR_MEMORY    as in the call that failed. *done is the number of calls that were made, with
 *                  their answers; none behind these was made. *done is n if all were
 * GA_ERR_ARGUMENT  the array is NULL and n is not 0, or an `op` is invalid: *done is 0, and no
 *                  call was made */
GA_API ga_status ga_lfht_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done);

/* Build an empty map from n keys and values: all or none. No other thread may be using the map. Of
 * equal keys the first is inserted. The nodes are those that insertions would have left, made
 * without the steps in between. Allocates 48 bytes for each key from the C library, and frees them.
 *
 * GA_ERR_MEMORY    no memory for a node, or to sort the keys: the map is empty
 * GA_ERR_ARGUMENT  the map has keys; or an array is NULL and n is not 0 */
GA_API ga_status ga_lfht_build(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                               size_t n);

/* Call `visit` for each key and value, while other threads may change the map. A key that is
 * present all the time is seen once, buckets in the order of the hashes, in any order within a
 * bucket. A key that is inserted or removed during the call may be seen or not, and one that is
 * removed and inserted again may be seen twice. `visit` may call into the map. If it returns false,
 * the visit ends.
 *
 * GA_ERR_MEMORY    no memory to copy the leaves of a bucket
 * GA_ERR_ARGUMENT  `visit` is NULL */
typedef bool ga_lfht_visit(void *context, uint64_t key, uint64_t value);
GA_API ga_status ga_lfht_each(ga_lfht *map, ga_lfht_visit *visit, void *context);

/* The number of keys; exact when no thread is inside a call. 0 for NULL. */
GA_API uint64_t ga_lfht_size(const ga_lfht *map);

/* Free the nodes that the calling thread, and threads that have ended, have removed and that no
 * other thread is using; see ga_domain_drain(). Does nothing in variants that free nothing. */
GA_API ga_status ga_lfht_drain(ga_lfht *map);

/* Counts since the map was opened, each exact for some recent moment. `retries`, `lookups`, `hops`
 * and `depth` are 0 without GA_LFHT_COUNT. */
typedef struct ga_lfht_stats {
    uint64_t size;         /* keys */
    uint64_t expansions;   /* hash nodes that took over a chain; INLINE: nodes put into the map */
    uint64_t compressions; /* hash nodes that were taken out */
    uint64_t aborted;      /* compressions that were cancelled */
    uint64_t retries;      /* returns of a call to its bucket or to the root */
    uint64_t lookups;      /* lookups */
    uint64_t hops;         /* nodes that lookups visited, the root included: hops / lookups is the
                            * mean path length */
    uint64_t depth;        /* the deepest level that a lookup reached; 0 at the root */
    uint64_t retired;      /* removed nodes */
    uint64_t freed;        /* ... of these, freed */
    uint64_t bound;        /* the maximum of retired - freed; see ga_domain_stats. 0: no bound */
} ga_lfht_stats;

/* All zeros for NULL. */
GA_API void ga_lfht_get_stats(const ga_lfht *map, ga_lfht_stats *out);

#ifdef __cplusplus
}
#endif
#endif
