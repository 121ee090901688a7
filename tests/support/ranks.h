/* SPDX-License-Identifier: MIT
 *
 * Ranks that are threads of one process, and an exchange between them, for tests of sharded tables.
 * A rank may fail at a call, or be gone; the others then fail after a time limit.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_RANKS_H
#define GPUALLOC_TESTS_SUPPORT_RANKS_H

#include <gpualloc/slabhash_sharded.h>

#include <pthread.h>

enum {
    RANKS_MOST = 16,
    RANKS_NEVER = -1
};

typedef struct ranks_message {
    struct ranks_message *next;
    uint64_t bytes;
    char content[];
} ranks_message;

/* All ranks of a test. */
typedef struct ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t count;
    double seconds;                                /* time limit of an exchange */
    ranks_message *queues[RANKS_MOST][RANKS_MOST]; /* from, to */
    uint64_t *largest, *result; /* of the agreement in progress, and of the last one */
    uint32_t arrived;
    uint64_t round;
    bool shares;              /* memory, from the next open on */
    char *blocks[RANKS_MOST]; /* that is shared, */
    bool gone[RANKS_MOST];    /* the rank waits for no other one any more */
    int fail_at[RANKS_MOST];  /* number of the call that fails; RANKS_NEVER */
    int calls[RANKS_MOST];
} ranks;

void ranks_begin(ranks *all, uint32_t count);
void ranks_end(ranks *all);

/* Ends the waits of a rank, whose calls then fail. */
void ranks_leave(ranks *all, uint32_t rank);

/* The exchange of a rank. */
ga_exchange ranks_exchange(ranks *all, uint32_t rank);

/* Calls `work` on a thread for each rank, and waits for all. */
typedef void ranks_work(ranks *all, uint32_t rank, void *context);
void ranks_run(ranks *all, ranks_work *work, void *context);

#endif
