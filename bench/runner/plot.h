/* SPDX-License-Identifier: MIT
 *
 * Results as a picture, drawn by gnuplot: a panel for each metric of each bench, a bar for each
 * spec with its spread.
 */
#ifndef BENCH_RUNNER_PLOT_H
#define BENCH_RUNNER_PLOT_H

#include "result.h"

/* NULL if a picture can be drawn to `file`, else the reason as a sentence. Creates the file if it
 * does not exist. */
const char *ga_bench_plot_obstacle(const char *file);

/* Whether the name has the suffix of a supported format and is a single line of text. */
bool ga_bench_plot_name_good(const char *file);

/* False if gnuplot failed; it has written the reason to standard error. */
bool ga_bench_plot(const char *file, const ga_bench_result *results, size_t count);

#endif
