/* SPDX-License-Identifier: MIT
 *
 * A measurement in a process of its own, so that a crash, a hang or a leak in the measured code
 * does not affect the program. For a process with one thread.
 */
#ifndef BENCH_RUNNER_CHILD_H
#define BENCH_RUNNER_CHILD_H

#include <gpualloc/gpualloc.h>

enum {
    GA_BENCH_METRICS_MAX = 10
};

/* The report of a child to its parent. */
typedef struct ga_bench_report {
    bool done;        /* values are set */
    ga_status status; /* the reason, if not done and the child ended by itself */
    char failure[160];
    char device[160]; /* on a card: its name and driver, which only the child may query */
    char driver[64];
    double values[GA_BENCH_METRICS_MAX];
} ga_bench_report;

/* Runs in the child. Its writes to the report reach the parent even if the child crashes
 * afterwards. */
typedef ga_status ga_bench_body(void *context, ga_bench_report *report);

/* Run `body` in a child for at most `seconds`. If the report is not done, `failure` has the
 * reason. */
void ga_bench_child_run(ga_bench_body *body, void *context, unsigned seconds,
                        ga_bench_report *report);

#endif
