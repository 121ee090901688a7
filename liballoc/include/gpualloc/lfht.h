/* SPDX-License-Identifier: MIT
 *
 * The lock-free hash trie map (lfht-reclamation-2022): keys and values of 64 bits, or pointers, in
 * a map that grows and, in most variants, shrinks while any number of threads use it.
 * docs/lfht.md has the algorithms, the proof and the figures.
 *
 *     ga_lfht *map;
 *     ga_lfht_options options = {.options_size = sizeof options, .variant = GA_LFHT_FHPA};
 *     ga_lfht_open(&map, &options);
 *     ga_lfht_insert(map, key, value, NULL);
 *     ga_lfht_found found;
 *     ga_lfht_lookup(map, key, &found);     found.found, found.value
 *     ga_lfht_close(map);
 *
 * Every call answers a status, as in gpualloc.h: one that fails leaves the map as it was, for
 * every key, and a sentence in ga_error_text(). That a key is or is not there is no failure:
 * ga_lfht_found says it.
 *
 * Thread safety: every call may be made by any thread at any time, except that ga_lfht_close()
 * wants a map that no other thread is using. Calls on a map are linearizable, but for
 * ga_lfht_each() and ga_lfht_get_stats(). They are lock-free, as far as the heap that the nodes
 * come from is, and in FHP, FHPA and INLINE the C library's malloc, which a thread's first call,
 * a list that grows and a scan after threads have joined ask: a thread that is stopped for ever
 * elsewhere inside a call stops no other. None is async-signal-safe. Threads need not be
 * registered; what a thread keeps for a map goes when it ends, or, if it called from its last
 * destructors, when the map is closed.
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
    GA_LFHT_FHP,      /* the same, sequentially consistent, without membarriers */
    GA_LFHT_SNF,      /* never shrinks; what is removed is freed by ga_lfht_close() alone */
    GA_LFHT_FNF,      /* shrinks by freeze nodes (§3.5.1); frees nothing before it is closed */
    GA_LFHT_CNF,      /* shrinks by counters (§3.5.2); frees nothing before it is closed */
    GA_LFHT_HHL, /* never shrinks; hazard hash and level (§4.3.2): keys that are removed are freed,
                       * without a bound if threads stop */
    GA_LFHT_INLINE, /* keys and values in the buckets themselves, seven to a line of 128 bytes;
                       * shrinks; hazard pointers with asymmetric fences. Not in the thesis */
    GA_LFHT_VARIANT_COUNT
} ga_lfht_variant;

/* "FHPA", ...; "?" for values out of range. */
GA_API const char *ga_lfht_variant_text(ga_lfht_variant variant);

/* Keys that are equal have the same hash. Called at any time, by several threads at once; may not
 * call for the map. Keys may be pointers: what they point to must be readable until the map is
 * closed, since a thread may still be comparing with a key that another has removed. */
typedef uint64_t ga_lfht_hash(void *context, uint64_t key);
typedef bool ga_lfht_equal(void *context, uint64_t a, uint64_t b);

/* What a map is made with: fixed from then on. All zeros but `options_size` is a good choice. */
typedef struct ga_lfht_options {
    uint32_t options_size; /* sizeof(ga_lfht_options) */
    uint32_t flags;        /* GA_LFHT_* below */
    ga_lfht_variant variant;
    uint32_t chunk; /* a hash node has 2^chunk buckets, 1 to 8; 0: 4. INLINE's have up to so many;
                     * 0: 8 */
    uint32_t chain; /* leaves in a bucket before it is expanded, 1 to 16; 0: 4. In INLINE pairs, 1
                     * to 7; 0: 7 */
    uint32_t root;  /* the root has 2^root buckets, 1 to 24; 0: as `expected` says. The thesis: the
                     * same as chunk */
    uint32_t batch; /* removed nodes that a thread collects before it frees what it can, up to
                     * 2^24; 0: 4096. The thesis: 10,000 */
    ga_heap *heap;  /* of the nodes: on the host, and outlives the map; NULL: one that is opened as
                     * GPUALLOC_HOST says */
    ga_lfht_hash *hash;   /* NULL: one that spreads any keys, and gives different keys different
                           * hashes */
    ga_lfht_equal *equal; /* NULL: the same 64 bits */
    void *context;        /* for both */
    uint64_t expected;    /* about so many keys there will be: where `root` is 0 the root gets a
                           * bucket for 18 to 36 of them, INLINE's for 144 to 288, 2^14 to 2^24
                           * in all, so that calls go through few nodes. The root is 8 bytes a
                           * bucket and stays while the map is open. 0: not known, 2^14 */
} ga_lfht_options;

enum {
    GA_LFHT_COUNT = 1,  /* count what ga_lfht_stats lists, not `size` alone */
    GA_LFHT_SHRINK = 2, /* hash nodes that have become empty must go: refuses the variants in which
                         * they stay. HHL cannot: a pair protects no hash node */
    GA_LFHT_CHECK = 4   /* calls for the map once it is closed are refused, by any thread and at any
                         * later time: its record, of 8 KiB, is kept until the process ends */
};

/* Make a map, empty; the caller closes it. NULL for `options` is all zeros.
 *
 * GA_ERR_ARGUMENT  an option out of range; the sentence names it
 * GA_ERR_PLACE     the heap is not on the host
 * GA_ERR_SPEC, GA_ERR_LIBRARY, ...  no heap was given, and GPUALLOC_HOST's does not open
 * GA_ERR_MEMORY    no memory for the root or the map's record; or an address so high that no room
 *                  is left in it for tags */
GA_API ga_status ga_lfht_open(ga_lfht **out, const ga_lfht_options *options);

/* Free every node, then the map. Nobody may be using it. NULL is ignored.
 *
 * GA_ERR_MEMORY    no memory to finish what a thread that ended inside a call has begun
 * GA_ERR_ARGUMENT  a thread is inside a call: see ga_domain_close(). The map stays open. */
GA_API ga_status ga_lfht_close(ga_lfht *map);

/* Whether the key was there when the call took effect, and its value if it was. */
typedef struct ga_lfht_found {
    bool found;
    uint64_t value; /* 0 where it was not */
} ga_lfht_found;

/* Put `value` in where the key is not there. `was->found` says that it is, with the value that
 * stays. `was` may be NULL, here and below, but for ga_lfht_lookup().
 *
 * GA_ERR_MEMORY    no memory for a node; here, in the other calls that put something in, and in
 *                  any call of FHP and FHPA for the record of what is removed, or of the thread. In
 *                  INLINE a removal, too, may need nodes, where one that has grown or shrunk is
 *                  half copied; a lookup only the record of the thread
 * GA_ERR_ARGUMENT  the map is NULL, or closed and opened with GA_LFHT_CHECK; also below */
GA_API ga_status ga_lfht_insert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* Put `value` in, in the place of what is there. */
GA_API ga_status ga_lfht_upsert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* The same, only where the key is there. */
GA_API ga_status ga_lfht_replace(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was);

/* The same, only where its value is `expected`: it was replaced when `was->found` and `was->value`
 * is `expected`. */
GA_API ga_status ga_lfht_compare_replace(ga_lfht *map, uint64_t key, uint64_t expected,
                                         uint64_t value, ga_lfht_found *was);

/* Take the key out. */
GA_API ga_status ga_lfht_remove(ga_lfht *map, uint64_t key, ga_lfht_found *was);

/* GA_ERR_ARGUMENT  `found` is NULL */
GA_API ga_status ga_lfht_lookup(ga_lfht *map, uint64_t key, ga_lfht_found *found);

/* ga_lfht_lookup() of n keys, in any order: found[i] is the answer for keys[i]. Several are on
 * their way at once, so that what one waits for from memory comes while others go on: batches of
 * some dozens and more, in maps larger than the caches, take a fraction of the time.
 *
 * GA_ERR_MEMORY    as in a lookup; `found` may have been written in part
 * GA_ERR_ARGUMENT  an array is NULL and n is not 0 */
GA_API ga_status ga_lfht_lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n,
                                      ga_lfht_found *found);

/* ga_lfht_insert() of n keys with their values; was[i] is the answer for keys[i]. Each is an
 * insertion of its own, at its own moment during the call. `was` and `done` may be NULL.
 *
 * GA_ERR_MEMORY    no memory for one of them: *done says how many, from the first, were put in or
 *                  found there, with their answers in `was`; none behind these was put in. n where
 *                  the call succeeds
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

/* A call that is one of many. */
typedef struct ga_lfht_call {
    uint32_t op; /* a ga_lfht_op */
    uint64_t key;
    uint64_t value;    /* of what puts one in */
    uint64_t expected; /* of GA_LFHT_COMPARE_REPLACE */
    ga_lfht_found was; /* the answer */
} ga_lfht_call;

/* n calls of any kind, one after the other in the order of the array: each at its own moment during
 * the call, as if made by itself. What the next ones wait for from memory comes while others are
 * made: batches of some dozens and more, in maps larger than the caches, take a fraction of the
 * time. Other threads' calls come in between. `done` may be NULL.
 *
 * GA_ERR_MEMORY    as in the call that failed: *done says how many were made, with their answers;
 *                  none behind these was. n where all were
 * GA_ERR_ARGUMENT  the array is NULL and n is not 0; an `op` that is none: *done is 0, and none was
 *                  made */
GA_API ga_status ga_lfht_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done);

/* Put n keys and values into a map that is empty and that no other thread is using: all or none. Of
 * equal keys the first goes in. Its nodes are made as insertions would have left them, without the
 * steps in between. Needs 48 bytes for each key meanwhile, from the C library.
 *
 * GA_ERR_MEMORY    no memory for a node, or to sort the keys: the map is empty
 * GA_ERR_ARGUMENT  there are keys in the map; or an array is NULL and n is not 0 */
GA_API ga_status ga_lfht_build(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                               size_t n);

/* Call `visit` for each key and value, while others may change the map: what is there all the time
 * is seen once, by buckets in the order of the hashes and in any within one; what comes or goes
 * meanwhile may be seen or not, and a key that goes and comes again may be seen twice. `visit` may
 * call for the map. It ends the round by answering false.
 *
 * GA_ERR_MEMORY    no memory to remember a bucket's leaves
 * GA_ERR_ARGUMENT  `visit` is NULL */
typedef bool ga_lfht_visit(void *context, uint64_t key, uint64_t value);
GA_API ga_status ga_lfht_each(ga_lfht *map, ga_lfht_visit *visit, void *context);

/* About how many keys there are: right when no thread is inside a call. 0 for NULL. */
GA_API uint64_t ga_lfht_size(const ga_lfht *map);

/* Free what the calling thread, and threads that have ended, have removed, as far as no other is
 * using it; see ga_domain_drain(). Nothing where the variant frees nothing. */
GA_API ga_status ga_lfht_drain(ga_lfht *map);

/* Counts since the map was opened, each right for some recent moment. `retries`, `lookups`, `hops`
 * and `depth` are 0 without GA_LFHT_COUNT. */
typedef struct ga_lfht_stats {
    uint64_t size;         /* keys */
    uint64_t expansions;   /* hash nodes that took over a chain; in INLINE all that were put in */
    uint64_t compressions; /* hash nodes that were taken out */
    uint64_t aborted;      /* compressions that were cancelled */
    uint64_t retries;      /* times that a call went back to the bucket or to the root */
    uint64_t lookups;      /* calls of ga_lfht_lookup() */
    uint64_t hops;         /* nodes they went through, the root included: hops / lookups is the mean
                            * path length */
    uint64_t depth;        /* the deepest level that a lookup came to; the root's is 0 */
    uint64_t retired;      /* nodes that were taken out, */
    uint64_t freed;        /* and freed */
    uint64_t bound;        /* the most that retired - freed can be; see ga_domain_stats. 0: none */
} ga_lfht_stats;

/* All zeros for NULL. */
GA_API void ga_lfht_get_stats(const ga_lfht *map, ga_lfht_stats *out);

#ifdef __cplusplus
}
#endif
#endif
