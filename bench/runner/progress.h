/* SPDX-License-Identifier: MIT
 *
 * A line of progress on standard error: only on a terminal, and only after a second. For one
 * thread.
 */
#ifndef BENCH_RUNNER_PROGRESS_H
#define BENCH_RUNNER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ga_bench_progress {
    bool terminal;
    bool shown;
    size_t done, total;
    uint64_t begun, drawn; /* ns */
} ga_bench_progress;

void ga_bench_progress_begin(ga_bench_progress *progress, size_t total);

/* Count one step as done; `text` describes the next one. */
void ga_bench_progress_step(ga_bench_progress *progress, const char *text);

/* Remove the line before other output. The next step draws it again. */
void ga_bench_progress_clear(ga_bench_progress *progress);

#endif
