/* SPDX-License-Identifier: MIT
 *
 * A slab hash over several GPUs or processes. Each rank has a table of its own, its shard, with the
 * keys whose owner it is; a hash names the owner. All ranks pass batches together,
 * each with requests of its own, for any keys: the requests travel to the owners, and the answers
 * come back in the order of the requests. docs/internals/slabhash-sharded.md.
 *
 * Most programs open one with gpualloc/slabhash_nccl.cuh (tables in device memory, over NCCL) or
 * gpualloc/slabhash_mpi.h (tables of host threads, over MPI). This header has the calls for
 * both, and the functions that another transport or table must provide.
 *
 *     ga_slabhash_sharded *table;
 *     ga_slabhash_nccl_open(&table, &options, comm, stream);               on each rank
 *     ga_slabhash_sharded_run(table, &batch, counts, stream);              on each rank
 *     ga_slabhash_sharded_close(table);                                    on each rank
 *
 * Collective calls: all ranks make them, in the same order, with the same operation. Counts differ
 * as they like, and may be 0; so does what a rank wants to know. If ranks disagree on the operation
 * of a batch, the call fails on all of them with GA_ERR_ARGUMENT, and nothing is done. If a rank
 * does not arrive within the time limit, or its process is gone, the call fails on the others with
 * GA_ERR_DEVICE; so does each later collective call. The shard of each rank stays readable through
 * its own calls. A batch that failed so may have been carried out in part.
 *
 * Operations on one key are linearizable, as those of a shard are. Each operation of a batch is
 * carried out once.
 *
 * Thread safety: one thread of a rank at a time for a table.
 */
#ifndef GPUALLOC_SLABHASH_SHARDED_H
#define GPUALLOC_SLABHASH_SHARDED_H

#include <gpualloc/slabhash.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ga_slabhash_sharded ga_slabhash_sharded;

enum {
    GA_SHARDED_RANKS = 1024 /* at most */
};

typedef struct ga_shared {
    void *block;     /* NULL: none on this rank */
    bool is_reached; /* by all ranks, each of which has one; otherwise it is for messages */
} ga_shared;

/* How ranks exchange messages. The calls are collective, and in the same order on all ranks.
 * `stream` is a CUstream, or NULL for memory of the host, where calls complete before they return.
 * Messages, agreements, copies and meetings have one stream, on which they are in order; wait()
 * gets others, too. A call that fails leaves a message in ga_error_text(), and ends the use of the
 * exchange. */
typedef struct ga_exchange {
    uint32_t exchange_size; /* sizeof(ga_exchange) */
    uint32_t reserved;      /* 0 */
    void *context;
    uint32_t rank, ranks;
    int device; /* whose memory is exchanged; -1: memory of the host */
    /* Messages between begin() and end() may pass each other. From one rank to another, messages
     * are received in the order in which they were sent. Sizes in bytes, above 0. */
    ga_status (*begin)(void *context);
    ga_status (*send)(void *context, const void *from, uint64_t bytes, uint32_t to, void *stream);
    ga_status (*receive)(void *context, void *to, uint64_t bytes, uint32_t from, void *stream);
    ga_status (*end)(void *context, void *stream);
    /* Replaces each of the values, of all ranks, by the largest. The array is in the memory that is
     * exchanged. Values are below 2^63, because MPICH compares larger ones as negative. */
    ga_status (*largest)(void *context, uint64_t *values, uint32_t count, void *stream);
    /* Waits for the work on `stream`.
     *
     * GA_ERR_DEVICE  it failed, or other ranks did not do their part in time: it is then aborted */
    ga_status (*wait)(void *context, void *stream);
    /* Ends the exchange: no work on a stream waits for other ranks any more, no message arrives,
     * and later calls fail. NULL if that cannot be done: after a failure the memory for messages is
     * then kept for good, and the caller's arrays may stay in use. */
    void (*abort)(void *context);
    /* Memory in which all requests and answers will be, until deregister_memory(). Both may be
     * NULL. */
    void (*register_memory)(void *context, void *block, uint64_t bytes);
    void (*deregister_memory)(void *context, void *block);
    /* Memory that all ranks reach, of as many bytes on each. `word` is one in the memory that is
     * exchanged. Collective, once; waits for work on `stream`. unshare() frees the block, and is
     * not collective: when this rank calls it, no copy of its own is on its way. */
    ga_status (*share)(void *context, ga_shared *out, uint64_t bytes, uint64_t *word, void *stream);
    void (*unshare)(void *context, void *block);
    /* The work of all ranks on their streams before it is done before the work after it. */
    ga_status (*meet)(void *context, void *stream);
    /* Copies to, and from, the place in another rank's block that `at` is in the own one. The other
     * rank takes no part: meet() orders its work and the copies. These five may be NULL together,
     * and are not called for ranks without such memory. */
    ga_status (*put)(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                     void *stream);
    ga_status (*fetch)(void *context, void *to, const void *at, uint64_t bytes, uint32_t from,
                       void *stream);
    /* Before and after a call of the shard, which may wait for all work on the device, and so for
     * other ranks: ends the exchange if the call takes longer than a wait may. May be NULL. */
    void (*guard)(void *context, bool begins);
    void (*close)(void *context);
} ga_exchange;

/* The table of a rank, as the calls of gpualloc/slabhash.h and slabhash.cuh. Arrays are in the
 * memory that is exchanged; work is enqueued on `stream`. */
typedef struct ga_shard {
    uint32_t shard_size; /* sizeof(ga_shard) */
    uint32_t reserved;   /* 0 */
    void *table;
    ga_status failed; /* not GA_OK: the rank could not open its table, which is NULL */
    ga_slabhash_mode mode;
    bool is_multi;
    uint64_t a, b;  /* of the hash of all shards: ga_slabhash_plan */
    uint64_t bytes; /* of the buckets, the same on all ranks: requests are sorted more finely for
                     * large tables. 0: as for small ones */
    /* Carries out `count` batches, each of which is in the order of buckets, roughly. They also
     * have requests for the reserved key of all bits set, with any value and operation: these are
     * REFUSED, which is no failure of the call, nor are requests without a slab, which are FULL.
     * `counts` as of ga_slabhash_device_run(); of its numbers only that of FULL is read, and
     * whether it is 0. */
    ga_status (*run)(void *table, const ga_slabhash_batch *batches, uint32_t count,
                     uint64_t *counts, void *stream);
    /* Searches for all pairs of keys, or deletes them. `totals` as of ga_slabhash_device_run_all();
     * the second number is not read. Refused keys are no failure; GA_ERR_MEMORY is that a delete
     * found no slab for some keys. May be NULL, likewise `retrieve`: these calls are then
     * unsupported. */
    ga_status (*run_all)(void *table, const ga_slabhash_all *all, bool removes, uint64_t *totals,
                         void *stream);
    ga_status (*retrieve)(void *table, void *keys, void *values, uint64_t room, uint64_t *count,
                          void *stream);                           /* waits */
    ga_status (*size)(void *table, uint64_t *pairs, void *stream); /* waits */
    ga_status (*clear)(void *table, void *stream);
    ga_status (*save)(void *table, const char *path, void *stream);
    ga_status (*close)(void *table);
} ga_shard;

/* Of all ranks alike. */
typedef struct ga_sharded_options {
    uint32_t options_size; /* sizeof(ga_sharded_options) */
    uint32_t reserved;     /* 0 */
    uint64_t piece; /* requests of a rank that are exchanged at once, at most; 0: 2^28 if the memory
                     * for them is at most a sixteenth of what is free on each rank's device when
                     * the table is opened, else 2^27, and 2^20 on the host. Searches of more than
                     * 2^27 requests of a rank are faster with 2^28. A rank that names a number
                     * needs the others to name it, too. Memory for requests of others is taken at
                     * the opening: with MAP32 up to 9 bytes for each request of a piece, with MAP64
                     * 16, with up to 128 ranks; more with more. Memory for own requests grows with
                     * the batches, up to the piece: with MAP32 about 17 bytes each, with MAP64 29,
                     * and for up to 2^24 requests more. If there is less memory, a batch has more
                     * pieces, down to a sixteenth of `piece`. The first search-all or delete-all
                     * takes 16 bytes more each, and the first search for values as much again for
                     * those of others, for which there must be memory. Below 2^31 */
} ga_sharded_options;

/* The seed of all shards: that of rank 0, which draws one if `seed` is 0. Collective. Tables are
 * opened with it, before ga_slabhash_sharded_open().
 *
 * GA_ERR_DEVICE  the exchange failed */
GA_API ga_status ga_sharded_seed(const ga_exchange *exchange, uint64_t *seed);

/* Opens the sharded table. Collective. It then owns `exchange` and `shard`: whether it succeeds or
 * fails, it closes both in the end. NULL for `options` are the defaults. A rank that could not open
 * its table calls with `shard->failed`, right after the call that failed: so all ranks learn of it,
 * and it gets that call's status and message.
 *
 * GA_ERR_ARGUMENT  an option is out of range, or differs among ranks; more than GA_SHARDED_RANKS
 * GA_ERR_MEMORY    no memory on some rank
 * GA_ERR_DEVICE    the exchange failed */
GA_API ga_status ga_slabhash_sharded_open(ga_slabhash_sharded **out, const ga_exchange *exchange,
                                          const ga_shard *shard, const ga_sharded_options *options);

/* Opens a sharded table whose shards are tables of host threads, for an exchange of the host's
 * memory. `options` as for ga_slabhash_open(), equal on all ranks; `buckets` is the number of all
 * shards together.
 *
 * Errors also as of ga_slabhash_open() */
GA_API ga_status ga_slabhash_sharded_open_host(ga_slabhash_sharded **out,
                                               const ga_exchange *exchange,
                                               const ga_slabhash_options *options,
                                               const ga_sharded_options *sharded);

/* Closes the shard of this rank; no other rank is needed. NULL is ignored. */
GA_API ga_status ga_slabhash_sharded_close(ga_slabhash_sharded *table);

/* Carries out the batches of all ranks, in no order, after the work on `stream`, and waits. `batch`
 * as for ga_slabhash_run(); its arrays are in the memory that is exchanged. Either all ranks pass
 * `ops`, and for maps `values` with them, or none does. `counts` is NULL, or has four numbers in
 * memory of the host, which are set to the numbers of ABSENT, FOUND, FULL and REFUSED among the
 * requests of this rank. Collective.
 *
 * If the keys of a batch are skewed, of requests for one key among some thousand neighbours one
 * travels for all: of searches; of deletes, and of inserts of 32-bit keys without `found`, into
 * tables of unique keys.
 *
 * Results travel only if a rank passes `results` or `counts`, and old values only if one passes
 * `found`, so a batch without them is faster. If a shard has no slab for a request, its result is
 * GA_SLABHASH_FULL, all others are carried out, and the call fails on all ranks with
 * GA_ERR_MEMORY. If it fails otherwise, the pieces before the one that failed were carried out, and
 * `counts` has their results; in the results of that piece FULL says nothing. The stream must not
 * be captured.
 *
 * GA_ERR_ARGUMENT     the batch has no keys, or no values and the operation needs them, or differs
 *                     from that of another rank; nothing is done
 * GA_ERR_MEMORY       no memory for the exchange on some rank, and nothing is done; or for slabs in
 *                     some shard, and requests are FULL
 * GA_ERR_DEVICE       see above
 * GA_ERR_UNSUPPORTED  the operation is none of this kind of table; nothing is done */
GA_API ga_status ga_slabhash_sharded_run(ga_slabhash_sharded *table, const ga_slabhash_batch *batch,
                                         uint64_t *counts, void *stream);

/* ga_slabhash_run_search_all() and ga_slabhash_run_delete_all() for the keys of all ranks, after
 * the work on `stream`; they wait. Each rank passes keys of its own; all arrays are in the memory
 * that is exchanged. Counts and firsts are in the order of the keys. The values of a key are
 * contiguous; different keys are in no order. `total` is set to the number of pairs of this rank's
 * keys; it is in memory of the host, and may be NULL. The first `room` values are stored: a key
 * whose first value is at `room` or behind has none there, and one that reaches beyond has some. If
 * all ranks pass `room` 0, no values travel. Reserved keys have no pairs; unlike those of a table
 * of one rank, they do not make the call fail. Collective.
 *
 * A key that is passed more than once, by one rank or several, is searched for each time. Of
 * deletes of one key, each pair is counted by one.
 *
 * Values travel in pieces. If a key has more values than a piece, all ranks take memory for all of
 * them, but no more than the rank that asks has room for. If a call fails after a part of its work,
 * `total` is the number of pairs found so far, and keys may have been deleted. The stream must not
 * be captured. ga_slabhash_sharded_report() has the figures of these calls, too.
 *
 * GA_ERR_ARGUMENT     no keys; room without values; another rank makes another call; nothing is
 *                     done
 * GA_ERR_MEMORY       no memory for the exchange on some rank; deletes from host tables with
 *                     GA_SLABHASH_GROW: no slab for some keys, whose pairs may remain, and all
 *                     others are carried out
 * GA_ERR_DEVICE       see above
 * GA_ERR_UNSUPPORTED  the shard of some rank cannot do it; nothing is done */
GA_API ga_status ga_slabhash_sharded_search_all(ga_slabhash_sharded *table,
                                                const ga_slabhash_all *all, uint64_t *total,
                                                void *stream);
GA_API ga_status ga_slabhash_sharded_delete_all(ga_slabhash_sharded *table,
                                                const ga_slabhash_all *all, uint64_t *total,
                                                void *stream);

/* The pairs of this rank's shard, as of ga_slabhash_retrieve() or ga_slabhash_device_retrieve().
 * All ranks together get all pairs, each once. `count` is in memory of the host. Waits. No other
 * rank is needed, and the call works after a failure of the exchange.
 *
 * GA_ERR_ARGUMENT     no table, or no place for the count
 * GA_ERR_UNSUPPORTED  the shard cannot do it */
GA_API ga_status ga_slabhash_sharded_retrieve(ga_slabhash_sharded *table, void *keys, void *values,
                                              uint64_t room, uint64_t *count, void *stream);

/* Pairs in all shards. Collective. */
GA_API ga_status ga_slabhash_sharded_size(ga_slabhash_sharded *table, uint64_t *pairs,
                                          void *stream);

/* Deletes all pairs, on `stream`. Collective. */
GA_API ga_status ga_slabhash_sharded_clear(ga_slabhash_sharded *table, void *stream);

/* _save writes a file for each rank, "PATH.RANK-of-RANKS", and _load inserts the pairs of such
 * files, whatever their number. Collective; the ranks see the same files.
 *
 * GA_ERR_IO        a file of the set is missing, or ga_slabhash_save() and _load() refuse it
 * GA_ERR_ARGUMENT  the files are of another mode
 * GA_ERR_MEMORY    not all pairs were inserted */
GA_API ga_status ga_slabhash_sharded_save(ga_slabhash_sharded *table, const char *path,
                                          void *stream);
GA_API ga_status ga_slabhash_sharded_load(ga_slabhash_sharded *table, const char *path,
                                          void *stream);

/* The rank that owns the key; and the table of this rank, as passed to _open(). No other rank is
 * needed. */
GA_API uint32_t ga_slabhash_sharded_owner(const ga_slabhash_sharded *table, uint64_t key);
GA_API void *ga_slabhash_sharded_table(const ga_slabhash_sharded *table);

/* The number of ranks, and in `rank`, which may be NULL, this one. No other rank is needed. */
GA_API uint32_t ga_slabhash_sharded_ranks(const ga_slabhash_sharded *table, uint32_t *rank);

/* The device whose memory is exchanged; -1: memory of the host. */
GA_API int ga_slabhash_sharded_device(const ga_slabhash_sharded *table);

/* A number that no other process has, below 2^63. */
GA_API uint64_t ga_slabhash_sharded_process(void);

/* Each rank passes a record of `bytes` bytes, a multiple of 4 and the same on all ranks, and gets
 * those of all ranks, in their order: `all` has room for them. `one_process`: whether all ranks are
 * threads of one process. A rank that has failed passes its status, so that the call fails on all;
 * that rank gets its own message. For gpualloc/slabhash_peers.cuh. Collective.
 *
 * GA_ERR_ARGUMENT  another size of records
 * GA_ERR_DEVICE    the exchange failed */
GA_API ga_status ga_slabhash_sharded_share(ga_slabhash_sharded *table, ga_status failed,
                                           const void *own, void *all, uint32_t bytes,
                                           bool *one_process);

/* Figures of the last batch on this rank. */
typedef struct ga_sharded_report {
    uint64_t requests; /* of this rank */
    uint64_t served;   /* of all ranks, by this rank's shard: with skewed keys, many more */
    uint64_t sent;     /* bytes to other ranks, answers included */
    uint64_t received; /* and from them */
    uint32_t pieces;   /* of the batch */
    uint32_t steps;    /* exchanges; above 8 for each piece because of skewed keys; of all pairs of
                        * keys also above 1 because of many values */
} ga_sharded_report;

GA_API void ga_slabhash_sharded_report(const ga_slabhash_sharded *table, ga_sharded_report *out);

#ifdef __cplusplus
}
#endif
#endif
