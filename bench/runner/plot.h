/* SPDX-License-Identifier: MIT
 *
 * Results as a picture, drawn by gnuplot: a panel for each metric of each bench, a bar for each
 * spec with its spread.
 */
#ifndef BENCH_RUNNER_PLOT_H
#define BENCH_RUNNER_PLOT_H

#include "result.h"

/* NULL where a picture can be drawn to `file`, else what is in the way, as a sentence. The file
 * is made if it is not there. */
const char *ga_bench_plot_obstacle(const char *file);

/* Whether the name ends as those do that can be drawn, and is a single line of text. */
bool ga_bench_plot_name_good(const char *file);

/* False where gnuplot failed; it has said why on standard error. */
bool ga_bench_plot(const char *file, const ga_bench_result *results, size_t count);

#endif
