/* SPDX-License-Identifier: MIT
 *
 * Parameters of the kernels that sort requests into bins and bring the answers back, and of the
 * same functions for the host.
 */
#ifndef GPUALLOC_SHARDED_WORK_H
#define GPUALLOC_SHARDED_WORK_H

#include "owner.h"

enum {
    GA_SHARDED_BINS = 1024, /* at most */
    GA_SHARDED_THREADS = 512,
    GA_SHARDED_SORT_BYTES = 32768, /* of keys that a block sorts at once */
    GA_SHARDED_SLOTS = 16384,      /* of a block that finds keys that repeat */
    GA_SHARDED_RESULTS = 4,        /* ABSENT, FOUND, FULL, REFUSED */
    GA_SHARDED_REPEATS = 0x8000    /* bit of an index: the request repeats another one's key */
};

/* Requests of one bin that a block has sorted together: they are at `begin` among those of the
 * block, and from `begin + to` on in the output, modulo 2^32. */
typedef struct ga_sharded_extent {
    uint32_t begin, to;
} ga_sharded_extent;

/* Keys and values have 4 bytes, or 8 if `is_wide`. */
typedef struct ga_sharded_sort {
    ga_sharded_division division;
    uint64_t count;
    const void *keys, *values; /* in the order of the requests; no values: NULL */
    const uint8_t *ops;        /* likewise; one operation for all: NULL */
    void *keys_to, *values_to; /* sorted by bin */
    uint8_t *ops_to;
    uint32_t *cursors;          /* for each bin the index behind its last request so far */
    uint16_t *indices;          /* of each request among those of its block that are sorted */
    ga_sharded_extent *extents; /* of each block one for each bin, and the end of the last one */
    uint32_t is_wide;
    uint32_t combines; /* not 0: `indices` is as ga_sharded_combine_team() leaves it */
    uint32_t capacity; /* 0: bins were counted. Else the room of each bin. A block whose requests do
                        * not fit writes them behind the last bin, where there is room for those of
                        * one block. The cursor counts them all the same, so that a cursor beyond
                        * its bin shows it. */
} ga_sharded_sort;

/* The end of each bin is filled with the key of all bits set, which is reserved. */
typedef struct ga_sharded_pad {
    const uint32_t *cursors; /* counted bins: where each begins; else the end of its requests */
    const uint32_t *counts;  /* counted bins: the requests of each */
    void *keys_to;
    uint32_t bins;
    uint32_t to;       /* counted bins: pads reach up to a multiple of it */
    uint32_t capacity; /* that of the sort: pads reach up to the end of the bin */
    uint32_t is_wide;
} ga_sharded_pad;

/* The answer to a request for the same key as another one of its block, which travelled for both:
 * as if it were carried out right after that one. */
typedef enum ga_sharded_repeat {
    GA_SHARDED_REPEAT_SAME,    /* searches */
    GA_SHARDED_REPEAT_INSERTS, /* found, if the other one has inserted the key */
    GA_SHARDED_REPEAT_DELETES  /* absent */
} ga_sharded_repeat;

/* Answers, in the order of `keys_to`, are brought into the order of the requests. Each array may be
 * NULL, and then so is the other. */
typedef struct ga_sharded_gather {
    uint64_t count;
    const uint16_t *indices;
    const ga_sharded_extent *extents;
    const uint8_t *results_from;
    const void *found_from;
    uint8_t *results;
    void *found;
    uint64_t *totals; /* GA_SHARDED_RESULTS numbers, which go up; NULL without `results_from` */
    uint32_t bins, is_wide;
    uint32_t repeat; /* ga_sharded_repeat */
} ga_sharded_gather;

/* Numbers in the order of `keys_to` are brought into the order of the requests. */
typedef struct ga_sharded_order {
    uint64_t count;
    const uint16_t *indices;
    const ga_sharded_extent *extents;
    const uint64_t *from;
    uint64_t *to;
    uint32_t bins, is_wide; /* of the keys */
} ga_sharded_order;

/* Numbers, each plus `add`; `from` and `to` may be the same. */
typedef struct ga_sharded_move {
    const uint64_t *from;
    uint64_t *to;
    uint64_t count, add;
} ga_sharded_move;

#endif
