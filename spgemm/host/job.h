/* SPDX-License-Identifier: MIT
 *
 * A product that host threads compute: its rows in pieces, which the threads take in order.
 *
 *     ga_spgemm_on_host           methods.c
 *      |- precise, upper, growing, dynamic (dynamic.c)
 *      |   '- ga_spgemm_run_pieces threads.c: all threads go through the pieces
 *      |       '- a pass          rows.c, dot.c: one piece
 *      '- plan                    plan.c: upper bounds of rows, and the pieces
 */
#ifndef GPUALLOC_SPGEMM_HOST_JOB_H
#define GPUALLOC_SPGEMM_HOST_JOB_H

#include "../multiply.h"
#include "../order_tile.h"
#include "../round_tile.h"
#include "../transpose.h"
#include "columns.h"
#include "table.h"

#include <pthread.h>

enum {
    GA_SPGEMM_PIECE = 1 << 15 /* multiplications of a piece, unless one row takes more */
};

typedef struct ga_spgemm_job ga_spgemm_job;

/* Memory of one thread. */
typedef struct ga_spgemm_scratch {
    uint64_t room;      /* of `indices` and `values`, in entries */
    uint32_t count;     /* entries of the present row */
    uint32_t last;      /* of the last row: a guess for the next one */
    uint32_t low, high; /* of the present row: the first and last column that it may have */
    bool is_dense;      /* the row is in the window; else in the table */
    ga_spgemm_columns set;
    /* The window: a sum for each column from `low` on. It is of the present row if the column's
     * stamp is `stamp`. */
    void *window;
    uint32_t *stamps, stamp;
    uint64_t width;
    /* The table. */
    uint64_t slots;
    uint64_t now; /* slots that the present row uses */
    uint32_t *keys, *used;
    void *sums;
    uint32_t *sorted; /* `slots` columns */
    /* The entries of a piece, row by row; GA_SPGEMM_GROWING only. */
    uint32_t *indices;
    void *values;
} ga_spgemm_scratch;

/* Computes piece number `piece`. Returns false if the job has failed. */
typedef bool ga_spgemm_pass(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece);

struct ga_spgemm_job {
    const ga_csr *a, *b;
    const ga_spgemm_options *options;
    ga_spgemm_product *product;
    ga_spgemm_report *report;

    ga_spgemm_transpose columns; /* of B; GA_SPGEMM_KERNEL_DOT */

    /* By plan.c; uppers[i] is the sum of the upper bounds of all rows before row i. */
    uint64_t *uppers; /* rows + 1 */
    uint64_t *pieces; /* the first row of each piece, and the number of rows */
    uint64_t piece_count;

    /* Of the result: offsets of rows. GA_SPGEMM_UPPER: the number of entries of row i is in
     * offsets[i + 1] until the gaps are closed. */
    uint64_t *offsets;
    uint32_t *indices;
    void *values;

    /* GA_SPGEMM_GROWING: words of order_tile.h, and the entries for which the vectors have room
     * (XR1, XR2). A thread that needs more takes the lock. */
    uint64_t *order;
    ga_order_scan scan;
    uint64_t backed;
    pthread_mutex_t growth;
    char reason[160]; /* why a vector could not grow, or "" */

    /* GA_SPGEMM_DYNAMIC. */
    struct ga_spgemm_rounds *rounds;
    uint32_t width;   /* of the tiles */
    uint64_t listed;  /* relaxed: rows in the list, for this round and all before */
    const char *from; /* of the array that is gathered, and to another one */
    char *to;
    size_t element; /* bytes */

    ga_spgemm_pass *pass;
    uint64_t next_piece;    /* relaxed: hands out pieces */
    uint64_t scratch_bytes; /* relaxed: of all threads */
    /* relaxed: 0, or twice the number of a piece that failed, + 1, and + 1 more if a vector could
     * not grow. All threads stop then. */
    uint64_t failed;
};

typedef enum ga_spgemm_failure {
    GA_SPGEMM_NO_SCRATCH = 1, /* no memory for a row */
    GA_SPGEMM_NO_ROOM         /* a vector of the result cannot grow */
} ga_spgemm_failure;

/* Stops all threads. Returns false. */
bool ga_spgemm_fail(ga_spgemm_job *job, uint64_t piece, ga_spgemm_failure failure);

/* Finds the upper bounds of all rows, and the pieces. */
ga_status ga_spgemm_plan(ga_spgemm_job *job);
void ga_spgemm_plan_free(ga_spgemm_job *job);

/* Runs the pass for all pieces, on this thread and others. GA_ERR_MEMORY if a piece fails. */
ga_status ga_spgemm_run_pieces(ga_spgemm_job *job, ga_spgemm_pass *pass);

/* Makes the set, if there is none; it is empty then. Returns false without memory, or for too many
 * columns. */
bool ga_spgemm_scratch_set(ga_spgemm_job *job, ga_spgemm_scratch *scratch);

/* Makes the window larger, to `columns`. Returns false if there is no memory. */
bool ga_spgemm_scratch_window(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t columns);

/* Makes the table larger, to `slots`; it is empty then. Returns false if there is no memory. */
bool ga_spgemm_scratch_table(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t slots);

/* Makes room for `entries` of a piece; the first `kept` ones stay. Returns false if there is no
 * memory. */
bool ga_spgemm_scratch_room(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t kept,
                            uint64_t entries);

/* Turns the numbers of entries in offsets[1] and on into offsets. */
void ga_spgemm_sum_counts(ga_spgemm_job *job);

/* GA_SPGEMM_DYNAMIC, after the plan. */
ga_status ga_spgemm_dynamic_on_host(ga_spgemm_job *job);

/* The passes. The first counts the entries of each row in offsets[row + 1]. The second stores each
 * row at its offset, or for GA_SPGEMM_UPPER at its sum of upper bounds. The third appends the
 * piece. */
ga_spgemm_pass ga_spgemm_count_piece, ga_spgemm_store_piece, ga_spgemm_append_piece;

/* The first two for GA_SPGEMM_KERNEL_DOT. */
ga_spgemm_pass ga_spgemm_dot_count, ga_spgemm_dot_store;

/* Stores the next entries of a row, from the column `cursor` on and at most `room`, from entry `to`
 * of the vectors on. */
ga_spgemm_progress ga_spgemm_dot_some(const ga_spgemm_job *job, uint64_t row, uint32_t cursor,
                                      uint32_t room, uint64_t to);

#endif
