/* SPDX-License-Identifier: MIT
 *
 * A window of blocks that a thread holds and replaces one by one.
 */
#ifndef BENCH_HOST_CHURN_H
#define BENCH_HOST_CHURN_H

#include "team.h"

enum {
    GA_BENCH_CHURN_SIZES = 4096 /* drawn before the clock runs */
};

typedef struct ga_bench_window {
    size_t slots; /* a power of two */
    size_t next;  /* in sizes */
    size_t sizes[GA_BENCH_CHURN_SIZES];
    void *blocks[];
} ga_bench_window;

/* Sizes all run->size, or random ones up to it; every slot filled. */
ga_status ga_bench_window_begin(ga_bench_worker *worker, bool random);

static inline void **ga_bench_window_pick(ga_bench_worker *worker)
{
    ga_bench_window *window = worker->own;
    return &window->blocks[(ga_bench_random(&worker->random) >> 20) & (window->slots - 1)];
}

static inline size_t ga_bench_window_size(ga_bench_window *window)
{
    return window->sizes[window->next++ % GA_BENCH_CHURN_SIZES];
}

/* Free all blocks of the window. */
void ga_bench_window_end(ga_bench_worker *worker);

#endif
