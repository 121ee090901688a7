/* SPDX-License-Identifier: MIT
 *
 * Drawing the line, at most ten times a second.
 */
#include "progress.h"

#include "clock.h"

#include <stdio.h>
#include <unistd.h>

static const uint64_t SECOND = 1000000000;

void ga_bench_progress_begin(ga_bench_progress *progress, size_t total)
{
    uint64_t now = ga_bench_now();
    *progress = (ga_bench_progress){
        .terminal = isatty(STDERR_FILENO) == 1, .total = total, .begun = now, .drawn = now};
}

void ga_bench_progress_step(ga_bench_progress *progress, const char *text)
{
    uint64_t now = ga_bench_now();
    progress->done++;
    if (!progress->terminal || now - progress->begun < SECOND ||
        now - progress->drawn < SECOND / 10) {
        return;
    }
    double spent = (double)(now - progress->begun) / (double)SECOND;
    double left = spent * (double)(progress->total - progress->done) / (double)progress->done;
    fprintf(stderr, "\r%zu of %zu, about %.0f s left: %s\033[K", progress->done, progress->total,
            left, text);
    progress->drawn = now;
    progress->shown = true;
}

void ga_bench_progress_clear(ga_bench_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        progress->shown = false;
    }
}
