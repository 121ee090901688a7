/* SPDX-License-Identifier: MIT
 *
 * A product on a device: what the host gives to the kernels, and what they return.
 *
 *     ga_spgemm_on_device         device.c: the phases
 *      |- check, bound, estimate  plan_kernel.cuh: are the matrices valid, and how large is C?
 *      |- configure               device.c: lanes and slots for a row
 *      |- cut                     plan_kernel.cuh: the pieces, if some rows are large
 *      |- rows                    rows_kernel.cuh: the product, once or twice
 *      |- dot                     dot.c, dot_kernel.cuh: the same by GA_SPGEMM_KERNEL_DOT
 *      '- rounds                  dynamic.c, dynamic_kernel.cuh: GA_SPGEMM_DYNAMIC
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_WORK_H
#define GPUALLOC_SPGEMM_DEVICE_WORK_H

#include "../order_tile.h"
#include "arena/append.h"

#include <gpualloc/matrix.h>

enum {
    GA_SPGEMM_BLOCK = 256,     /* threads of all kernels */
    GA_SPGEMM_SAMPLE = 1024,   /* rows, for the estimate */
    GA_SPGEMM_SAMPLE_LOG = 14, /* rows of 2^14 multiplications or more are no samples */
    GA_SPGEMM_SIZES = 32,
    GA_SPGEMM_GATHER_LANES = 8,               /* that copy a piece of a round */
    GA_SPGEMM_ROWS_MAX = GA_SPGEMM_BLOCK / 4, /* of a piece */
    GA_SPGEMM_DEFERRED = 32,                  /* pieces of a block that wait for their position */
    GA_SPGEMM_CHUNKS = 8192,                  /* of a bitmap, at most */
    GA_SPGEMM_CHUNK_LOG = 12, /* of the least columns of a chunk: a group for each lane */
    GA_SPGEMM_GROUP = 128     /* columns of a group of a bitmap, which has a rank */
};

#define GA_SPGEMM_AT_ONCE 4u /* entries of a deferred piece that a thread moves at once */
#define GA_SPGEMM_AHEAD   4u /* steps that a tile loads at once, because memory takes long */

/* How a large row is computed; two bits for each row. */
enum {
    GA_SPGEMM_BY_HASH,
    GA_SPGEMM_BY_NARROW, /* a bitmap in shared memory */
    GA_SPGEMM_BY_WIDE    /* a bitmap in device memory */
};

/* Why the kernels stopped. */
enum {
    GA_SPGEMM_STOP_NONE,
    GA_SPGEMM_STOP_INDICES, /* a vector cannot grow */
    GA_SPGEMM_STOP_VALUES,
    GA_SPGEMM_STOP_ROWS /* the list of rows cannot */
};

/* Results of the kernels, in device memory; zeroed before, except bad_row. */
typedef struct ga_spgemm_totals {
    uint64_t
        bad_row; /* twice the least row of A or B that is not valid, and 1 if it is of B; or all
                       * ones */
    uint64_t multiplications;
    uint64_t upper_most; /* of one row */
    /* Of the rows of the sample: multiplications, and estimated entries of C. */
    uint64_t sample_multiplications, sample_entries;
    uint32_t sample_sizes[GA_SPGEMM_SIZES]; /* the rows of at most 2^(i/2) entries, not of fewer */
    /* The most entries, estimated, of a row of the sample that takes 2^i to 2^(i+1) - 1
     * multiplications. */
    uint32_t sample_most[GA_SPGEMM_SIZES];
    ga_order_scan scan;    /* of the pieces, while C grows */
    uint64_t tickets;      /* handed out by the next kernel */
    uint64_t listed;       /* GA_SPGEMM_DYNAMIC: rows in the list of all rounds */
    uint64_t pieces, wide; /* of ga_spgemm_cut_kernel(): pieces, wide rows */
    /* Large rows of 2^i to 2^(i+1) - 1 multiplications, and the multiplications of all of them. */
    uint64_t large_multiplications[GA_SPGEMM_SIZES];
    uint32_t large[GA_SPGEMM_SIZES];
    uint32_t span; /* of the large rows that are not wide, the most */
    uint32_t stop;
} ga_spgemm_totals;

/* Rows that one block computes: `count` whole rows, or one large row. */
typedef struct ga_spgemm_piece {
    uint64_t row;
    uint32_t count; /* 0: a large row */
    /* How a large row is computed: GA_SPGEMM_HASHED, GA_SPGEMM_NARROW, or with a bitmap in device
     * memory: 1 and the number of such rows before. */
    uint32_t bitmap;
} ga_spgemm_piece;

#define GA_SPGEMM_HASHED 0u
#define GA_SPGEMM_NARROW 0xffffffffu

/* Rows that a table has room for. */
typedef struct ga_spgemm_fit {
    uint32_t upper; /* those of at most so many multiplications */
    uint32_t sizes; /* bit i: those of 2^i to 2^(i+1) - 1, as far as the sample shows */
} ga_spgemm_fit;

/* Bitmaps in device memory (bitmap.cuh), for rows whose columns are too far apart for one in shared
 * memory. Each block has one; or, if they are fewer, blocks use them in turn. */
typedef struct ga_spgemm_buffers {
    char *first;
    uint64_t bytes, words; /* of each, and of its bits */
    uint32_t chunk_log;
    uint32_t count;
    uint32_t *turns; /* of each: how often it has been used */
} ga_spgemm_buffers;

/* Memory for deferred pieces: a ring for each block (deferred_of_kernel.cuh). */
typedef struct ga_spgemm_store {
    char *first;
    uint64_t bytes;    /* of a ring */
    uint32_t capacity; /* entries of a ring; 0: no piece is deferred */
} ga_spgemm_store;

/* GA_SPGEMM_COOPERATIVE: the launch's memory, zeroed before. */
typedef struct ga_spgemm_grid {
    uint64_t arrived;       /* blocks at barriers, in all */
    uint64_t first, number; /* of the round behind the last one */
} ga_spgemm_grid;

/* A parameter of all kernels. */
typedef struct ga_spgemm_work {
    ga_csr a, b;
    ga_spgemm_totals *totals;
    uint32_t *uppers; /* of each row: the multiplications that it takes, at most 2^32 - 1 */

    /* Lanes for a row: 4, 8, 16 or 32; 1 for GA_SPGEMM_KERNEL_DOT in rounds, else GA_SPGEMM_BLOCK,
     * so that a piece is one row. */
    uint32_t width;
    uint32_t slots;                    /* of a row's table, a power of two of at least `width` */
    ga_spgemm_fit tile_fit, block_fit; /* the tables of a tile, and of a block */
    uint32_t span;                     /* columns of the bitmap in shared memory */
    uint32_t *kinds;                   /* of rows, 16 in a word: how large ones are computed */
    ga_spgemm_store store;
    ga_spgemm_buffers buffers; /* for wide rows */

    ga_spgemm_piece *pieces; /* NULL: no row is large, and each has as many rows as a block takes */
    uint64_t piece_count;
    uint64_t *order; /* words of order_tile.h, for each piece */

    uint64_t *offsets;
    uint32_t *indices; /* NULL: count only */
    void *values;
    ga_append *indices_state, *values_state; /* NULL: the vectors have enough memory */
    bool is_sorted;
    bool is_placed; /* `order` has the ends of all pieces */
    bool has_gaps;  /* each row gets as many positions as its upper bound */
} ga_spgemm_work;

#endif
