/* SPDX-License-Identifier: MIT
 *
 * The record of a sharded table on one rank.
 *
 *   ga_slabhash_sharded_run -> for each piece of the batch
 *     guess         sorts into bins of one size, which distinct     caller's stream
 *                   keys most likely do not exceed; if it succeeds,
 *                   count and sort are done
 *     count         requests of each bin; with skewed keys also     caller's stream
 *                   finds keys that repeat
 *     agree         all ranks: same form, no failure, steps; and    exchange stream
 *                   the counts of requests for each other
 *     sort          requests by bin, while the ranks agree          caller's stream
 *     for each step
 *       requests    to owners, and those of others here             exchange stream
 *       serve       own requests; and, once they are here, others'  caller's stream
 *       answers     back                                            exchange stream
 *     agree         has a shard failed?                             exchange stream
 *     gather        answers into the order of the requests          caller's stream
 *
 * STRUCTURE  A slice is a range of parts, the same of each shard. A step is a slice, or a round of
 *            one: if a rank has more than `pair_most` requests for another one, as with skewed
 *            keys, they take several rounds, and the memory for requests of others stays bounded.
 *            Each message of a step is in the order of parts, and the shard serves them side by
 *            side. So all of them use the same few parts at a time, whose buckets stay in the
 *            cache. A message has a multiple of GA_SHARDED_PAD requests and begins at such an
 *            index, because NCCL is slower with arrays that are not aligned to 16 bytes. The last
 *            requests are then for a reserved key, which shards refuse.
 *
 * ORDER      On the exchange stream of each rank: requests of steps 0, 1 and 2, answers of 0 with
 *            requests of 3, answers of 1 with requests of 4, ... as one group of messages each. All
 *            ranks have agreed on the number of rounds of each slice, so that messages match. Marks
 *            (events) order the streams: `got` step, `done` step.
 *
 * COPIES     If all ranks reach the memory for requests of others (`is_shared`), a group is copies:
 *            each rank puts its requests into it, and fetches its answers. A meeting of all ranks
 *            on their exchange streams stands before the group of step t, which has the answers of
 *            t and the requests of t + 3: behind the meeting all shards have done step t, and all
 *            copies of the group before are there (`met`, and `got` of step t + 2). The first three
 *            groups, which have requests alone, have a meeting behind them instead, because the
 *            agreement stands before them. All ranks begin a group at the same time, so that no two
 *            of them copy to a third one at once.
 *
 *              shard            serve t-1 |met| serve t             |met| serve t+1
 *              exchange stream  t-2: ...  |t-1| t-1: answers,       | t | t: answers,
 *                                         |   | requests of t+2     |   | requests of t+3
 *
 *            Requests of step t + 3 are copied to the buffer of step t - 1. The host enqueues these
 *            copies after it has seen the meeting behind that step: an aborted meeting lets the
 *            work behind it begin, and copies must not overwrite what the shard of a slow rank
 *            still reads. The requests of t + 1 are there before t has been served, so the shard
 *            does not wait for copies.
 *
 * INVARIANT  The shard is given requests of others after they have arrived: the host waits for that
 *            on the stream of arrivals. So an exchange that is aborted leaves no work that
 *            would serve the contents of a buffer once more.
 *            The buffer of a step is used again four steps later. Its new requests are in the group
 *            behind that of its answers: so all shards have done the step, and its answers have
 *            been fetched, before they are overwritten.
 */
#ifndef GPUALLOC_SHARDED_SHARDED_H
#define GPUALLOC_SHARDED_SHARDED_H

#include "work.h"

#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

enum {
    GA_SHARDED_PARTS_LOG = 7,  /* at most; fewer with many ranks */
    GA_SHARDED_SLICES_LOG = 3, /* at most */
    GA_SHARDED_SLICES = 1 << GA_SHARDED_SLICES_LOG,
    GA_SHARDED_BUFFERS = 4,
    GA_SHARDED_TOGETHER = 8, /* messages that a shard serves side by side, at most */
    GA_SHARDED_KERNELS = 9,
    GA_SHARDED_PAD = 32,             /* requests */
    GA_SHARDED_GUESS_MOST = 1 << 30, /* requests; indices have 32 bits */
    GA_SHARDED_FEW = 8,      /* ranks, whose counts for each other are words of an agreement: */
    GA_SHARDED_MATRIX = 4096 /* of that many at most */
};

/* Words on which the ranks agree: the largest of each. */
enum {
    GA_SHARDED_STATUS,   /* not 0: the rank cannot go on */
    GA_SHARDED_FORM,     /* of the batch: see form_of(); 0 without requests */
    GA_SHARDED_NOT_FORM, /* its complement, likewise, so that a difference shows */
    GA_SHARDED_RESULTS_WANTED,
    GA_SHARDED_FOUND_WANTED,
    GA_SHARDED_FULL,      /* at the end: requests of the piece that found no slab in a shard */
    GA_SHARDED_MORE,      /* another piece follows */
    GA_SHARDED_LARGEST,   /* the piece; at the opening the complement of the smallest one */
    GA_SHARDED_NOT_ALL,   /* a rank passes a batch of ga_slabhash_sharded_run() */
    GA_SHARDED_FOR_PAIRS, /* for each slice: most requests of a rank for another one */
    GA_SHARDED_WORDS = GA_SHARDED_FOR_PAIRS + GA_SHARDED_SLICES
};

/* The complement of a word, below 2^63. */
static inline uint64_t ga_sharded_not(uint64_t word)
{
    return ~word & INT64_MAX;
}

typedef enum ga_sharded_mark {
    GA_SHARDED_SORTED,
    GA_SHARDED_SERVED, /* all requests of a piece */
    GA_SHARDED_ANSWERED,
    GA_SHARDED_AGREED,
    GA_SHARDED_MET,
    GA_SHARDED_GOT,                                        /* for each buffer */
    GA_SHARDED_DONE = GA_SHARDED_GOT + GA_SHARDED_BUFFERS, /* for each buffer */
    GA_SHARDED_MARKS = GA_SHARDED_DONE + GA_SHARDED_BUFFERS
} ga_sharded_mark;

/* Requests and answers, in the order of keys. */
typedef struct ga_sharded_arrays {
    void *keys, *values, *found;
    uint8_t *results, *ops;
} ga_sharded_arrays;

/* For all pairs of keys (all.c): taken when they are first asked for. Numbers of each rank are
 * indexed by the rank, those of other ranks alone by ga_sharded_other(). */
typedef struct ga_sharded_all {
    void *block;                         /* which grows: */
    uint64_t room;                       /* own requests */
    uint64_t *counts;                    /* of own requests, in the order of `sorted` */
    uint64_t *firsts;                    /* likewise */
    uint64_t *counts_here, *firsts_here; /* of requests of others */
    uint64_t *totals_here;               /* for each rank two, of its requests here */
    uint64_t *totals;                    /* of own requests at each rank */
    uint64_t *left, *lefts;              /* room for values: of this rank; of each other one */
    void *values_block;                  /* which grows: */
    uint64_t values_room;                /* for each other rank; all ranks have the same */
    uint64_t *values_here, *values;      /* for requests of others; for own ones */
} ga_sharded_all;

/* On the host. Of devices it is pinned memory, because a copy to other memory waits for the stream,
 * and so for other ranks, without a time limit. */
typedef struct ga_sharded_copies {
    uint64_t agreed[GA_SHARDED_WORDS];
    uint64_t matrix[GA_SHARDED_MATRIX]; /* counts of each rank for each bin; with more than
                                         * GA_SHARDED_FEW ranks they are messages */
    uint64_t totals[GA_SHARDED_RESULTS];
    uint32_t own_counts[GA_SHARDED_BINS];
    uint32_t other_counts[GA_SHARDED_BINS];
    uint32_t own_pads[GA_SHARDED_BINS];   /* among own_counts, if bins were guessed; else 0 */
    uint32_t other_pads[GA_SHARDED_BINS]; /* likewise; 0 with more than GA_SHARDED_FEW ranks */
    uint32_t ends[GA_SHARDED_BINS];       /* behind each bin's last request, after a guess */
    uint32_t begins[GA_SHARDED_BINS];     /* of each bin */
    uint64_t all_totals_here[2 * GA_SHARDED_RANKS];
    uint64_t all_totals[GA_SHARDED_RANKS];
    uint64_t left, lefts[GA_SHARDED_RANKS];
} ga_sharded_copies;

typedef struct ga_sharded_engine ga_sharded_engine;

struct ga_slabhash_sharded {
    ga_exchange exchange;
    ga_shard shard;
    ga_sharded_division division;
    const ga_sharded_engine *engine;
    void *exchange_stream; /* these four are engine_device.c's; NULL on the host */
    void *arrivals;        /* a stream that follows marks, for which the host waits */
    void *marks[GA_SHARDED_MARKS];
    void *kernels[GA_SHARDED_KERNELS];
    void *room; /* engine_host.c's: a team's; NULL on a device */
    unsigned multiprocessors;
    uint64_t memory;      /* bytes of the device's that were free at the opening; 0 on the host */
    uint64_t piece;       /* until the ranks have agreed, that of the options */
    uint64_t pair_most;   /* requests of a step for another rank, at most */
    uint64_t slice_least; /* of the engine; tests change it, on all ranks alike */
    uint64_t guess_least; /* likewise, on each rank */
    uint32_t guess_misses, guess_skips; /* wrong guesses in a row; pieces that do not guess */
    uint32_t width;                     /* bytes of a key, and of a value */
    bool is_broken;                     /* the exchange failed */
    bool is_fixed_exchanges, is_shared; /* `fixed` is memory of the exchange; all ranks reach it */

    /* In the memory that is exchanged. */
    uint64_t *words;                                /* a block: GA_SHARDED_WORDS, */
    uint64_t *matrix;                               /* those of host->matrix, */
    uint64_t *totals;                               /* GA_SHARDED_RESULTS of own requests, */
    uint64_t *served;                               /* and of requests that the shard served */
    void *fixed;                                    /* a block: */
    uint32_t *counts;                               /* of each bin: own requests */
    uint32_t *cursors;                              /* of each bin */
    uint32_t *counts_of_others;                     /* for each rank and part of this shard */
    ga_sharded_arrays received[GA_SHARDED_BUFFERS]; /* requests of others */
    void *own;                                      /* a block, which grows: */
    uint64_t own_room;                              /* requests */
    uint64_t capped_at;      /* requests of a piece, since memory for more was refused; 0: no cap */
    uint32_t capped_batches; /* for how many batches now */
    ga_sharded_arrays sorted;
    uint16_t *indices;
    ga_sharded_extent *extents;
    ga_sharded_all all;

    ga_sharded_copies *host;
    ga_sharded_report report;
};

/* Work on the memory that is exchanged. On a device, calls are between enter() and leave(), and
 * work is on `stream`. */
struct ga_sharded_engine {
    uint64_t slice_least; /* requests of a slice, below which it costs more than it saves */
    uint64_t guess_least; /* requests of a bin, from which on its size is guessed; 0: never */
    ga_status (*open)(ga_slabhash_sharded *table);
    void (*close)(ga_slabhash_sharded *table);
    ga_status (*enter)(ga_slabhash_sharded *table, void *scope);
    void (*leave)(void *scope);
    ga_status (*allocate)(ga_slabhash_sharded *table, void **block, uint64_t bytes);
    void (*free_block)(ga_slabhash_sharded *table, void *block);
    ga_status (*allocate_host)(ga_slabhash_sharded *table, void **block, uint64_t bytes);
    void (*free_host)(ga_slabhash_sharded *table, void *block);
    ga_status (*fill)(ga_slabhash_sharded *table, void *at, int byte, uint64_t bytes, void *stream);
    ga_status (*put)(ga_slabhash_sharded *table, void *at, const void *from, uint64_t bytes,
                     void *stream); /* from allocate_host() */
    ga_status (*get)(ga_slabhash_sharded *table, void *to, const void *at, uint64_t bytes,
                     void *stream); /* to allocate_host() */
    ga_status (*wait)(ga_slabhash_sharded *table, void *stream);
    ga_status (*count)(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream);
    ga_status (*combine)(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream);
    ga_status (*pad)(ga_slabhash_sharded *table, ga_sharded_pad *pad, void *stream);
    ga_status (*sort)(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream);
    ga_status (*gather)(ga_slabhash_sharded *table, ga_sharded_gather *gather, void *stream);
    ga_status (*order)(ga_slabhash_sharded *table, ga_sharded_order *order, void *stream);
    ga_status (*move)(ga_slabhash_sharded *table, ga_sharded_move *move, void *stream);
    ga_status (*mark)(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream);
    ga_status (*follow)(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream);
};

extern const ga_sharded_engine ga_sharded_host, ga_sharded_device;

/* The parts of a slice. */
static inline uint32_t ga_sharded_first_part(const ga_slabhash_sharded *table, uint32_t slice,
                                             uint32_t slices)
{
    return (slice << table->division.parts_log) / slices;
}

/* The index of another rank among those of which this one is none. */
static inline uint32_t ga_sharded_other(const ga_slabhash_sharded *table, uint32_t rank)
{
    return rank - (rank > table->exchange.rank);
}

/* Room of each bin for `count` requests in all: their average, and 5 standard deviations, which
 * distinct keys most likely do not exceed. 0: they are counted instead. */
static inline uint32_t ga_sharded_capacity(const ga_slabhash_sharded *table, uint64_t count)
{
    uint64_t mean = count / ((uint64_t)table->division.ranks << table->division.parts_log);
    uint64_t root = 0;
    if (!table->guess_least || mean < table->guess_least || count > GA_SHARDED_GUESS_MOST ||
        table->division.ranks > GA_SHARDED_FEW) {
        return 0;
    }
    for (uint64_t bit = UINT64_C(1) << 15; bit; bit /= 2) {
        root += (root + bit) * (root + bit) <= mean ? bit : 0;
    }
    return (uint32_t)((mean + 5 * (root + 1)) / GA_SHARDED_PAD + 1) * GA_SHARDED_PAD;
}

static inline uint64_t ga_sharded_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* memory.c: elements that the sort of so many own requests, or of fewer, may need. */
uint64_t ga_sharded_room_for(const ga_slabhash_sharded *table, uint64_t count);

/* memory.c: the piece of a table whose options name none; and sets the piece. */
uint64_t ga_sharded_default_piece(const ga_slabhash_sharded *table);
void ga_sharded_set_piece(ga_slabhash_sharded *table, uint64_t piece);

/* memory.c: takes memory for words and the copies on the host; for requests of others, which is
 * collective. */
ga_status ga_sharded_reserve_words(ga_slabhash_sharded *table);
ga_status ga_sharded_reserve_fixed(ga_slabhash_sharded *table);
void ga_sharded_free(ga_slabhash_sharded *table); /* all of it */

/* memory.c: takes memory for `*count` own requests, with `all` also for the answers of searches for
 * all pairs of keys. If memory is refused, halves `*count`, down to a piece divided by
 * GA_SHARDED_LEAST_SHARE, so that the batch has more pieces. A refusal takes the driver
 * milliseconds, so the next GA_SHARDED_CAPPED_BATCHES batches do not ask for more. */
#define GA_SHARDED_LEAST_SHARE    16u
#define GA_SHARDED_CAPPED_BATCHES 64u
ga_status ga_sharded_reserve(ga_slabhash_sharded *table, bool all, uint64_t *count);

/* memory.c: for `room` values of a pair of ranks; 0 frees it. */
ga_status ga_sharded_reserve_values(ga_slabhash_sharded *table, uint64_t room);

/* agree.c: replaces table->host->agreed by the largest of all ranks, and waits. With `counts`, also
 * the requests of each rank for this one's parts. A failure of the exchange breaks the table. */
ga_status ga_sharded_agree(ga_slabhash_sharded *table, bool counts);
/* Its two halves, between which there may be work on other streams. */
ga_status ga_sharded_begin_agreement(ga_slabhash_sharded *table, bool counts);
ga_status ga_sharded_end_agreement(ga_slabhash_sharded *table, bool counts);
/* Enqueues the same behind the other work on the exchange stream. */
ga_status ga_sharded_agree_later(ga_slabhash_sharded *table);
ga_status ga_sharded_break(ga_slabhash_sharded *table, ga_status status);
ga_status ga_sharded_check(const ga_slabhash_sharded *table);

/* After an agreement: `status` if it is a failure of this rank, else a failure of another one. */
ga_status ga_sharded_agreed(const ga_slabhash_sharded *table, ga_status status);
/* For a call that has no batch. */
ga_status ga_sharded_agree_status(ga_slabhash_sharded *table, ga_status status);

/* Around a call of the shard while messages may be under way. */
static inline void ga_sharded_guard(const ga_slabhash_sharded *table, bool begins)
{
    if (table->exchange.guard) {
        table->exchange.guard(table->exchange.context, begins);
    }
}

#endif
