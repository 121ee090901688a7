/* SPDX-License-Identifier: MIT
 *
 * The threads of a workload, its random numbers, and touching memory.
 */
#ifndef BENCH_HOST_TEAM_H
#define BENCH_HOST_TEAM_H

#include "../runner/workload.h"

#include <pthread.h>
#include <stdint.h>

typedef struct ga_bench_worker {
    _Alignas(128) const ga_bench_case *run;
    void *shared;            /* data of the workload, shared by the team */
    pthread_barrier_t *meet; /* for all workers and the thread that started them */
    void *own;               /* the workload's, for this worker */
    unsigned index;          /* 0 to threads - 1 */
    uint64_t random;         /* owner only */
    uint64_t done;           /* operations; owner only until it has ended */
    ga_status status;        /* set by ga_bench_worker_failed() */
    char failure[160];
    pthread_t thread;
} ga_bench_worker;

typedef struct ga_bench_team {
    unsigned count;
    ga_bench_worker *workers;
    pthread_barrier_t meet;
} ga_bench_team;

typedef void ga_bench_duty(ga_bench_worker *worker);

/* Start `run->threads` threads on `duty`. Fails if a thread cannot be started. */
ga_status ga_bench_team_start(ga_bench_team *team, const ga_bench_case *run, ga_bench_duty *duty,
                              void *shared);

/* Meet the workers at the barrier, where each of them waits the same number of times. */
void ga_bench_team_meet(ga_bench_team *team);

/* Wait for all threads to end: the first worker's failure, if any. */
ga_status ga_bench_team_join(ga_bench_team *team);

/* Keep the calling thread's error for ga_bench_team_join(). */
void ga_bench_worker_failed(ga_bench_worker *worker, ga_status status);

/* A loop that is run for run->milliseconds. All but `step` may be NULL. */
typedef struct ga_bench_loop {
    ga_status (*begin)(ga_bench_worker *worker); /* before the warm-up */
    void (*count)(ga_bench_worker *worker);      /* the warm-up is over */
    ga_status (*step)(ga_bench_worker *worker);  /* some operations, added to worker->done */
    void (*end)(ga_bench_worker *worker);        /* all have stopped; also after a failure */
} ga_bench_loop;

/* Operations a second of all threads together. `shared` is handed to the workers. */
ga_status ga_bench_loop_run(const ga_bench_loop *loop, const ga_bench_case *run, void *shared,
                            double *per_second);

/* Zeroed memory from the kernel, so that a workload's own data does not count as memory of the
 * heap. Never freed, because the process ends soon. NULL with ga_error_text(). */
void *ga_bench_space(size_t size);

static inline uint64_t ga_bench_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A size from 16 to `most`, each doubling as likely as the next. */
size_t ga_bench_random_size(uint64_t *state, size_t most);

/* Write to each page of the block's bytes from `from` on, and to its last byte. */
static inline void ga_bench_touch(void *block, size_t from, size_t size)
{
    volatile char *bytes = block;
    for (size_t at = from; at < size; at += 4096) {
        bytes[at] = 1;
    }
    bytes[size - 1] = 1;
}

#endif
