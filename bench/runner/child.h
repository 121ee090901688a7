/* SPDX-License-Identifier: MIT
 *
 * A measurement in a process of its own: a crash, a hang or a leak in what is measured stays
 * there. For a process with one thread.
 */
#ifndef BENCH_RUNNER_CHILD_H
#define BENCH_RUNNER_CHILD_H

#include <gpualloc/gpualloc.h>

enum {
    GA_BENCH_METRICS_MAX = 10
};

/* What a child tells its parent. */
typedef struct ga_bench_report {
    bool done;        /* values are set */
    ga_status status; /* where not done and the child ended by itself: why */
    char failure[160];
    char device[160]; /* on a card: its name and driver, which only the child may ask for */
    char driver[64];
    double values[GA_BENCH_METRICS_MAX];
} ga_bench_report;

/* Runs in the child. What it writes to the report reaches the parent even if it crashes then. */
typedef ga_status ga_bench_body(void *context, ga_bench_report *report);

/* Run `body` in a child for at most `seconds`. Not done: `failure` says what became of it. */
void ga_bench_child_run(ga_bench_body *body, void *context, unsigned seconds,
                        ga_bench_report *report);

#endif
