/* SPDX-License-Identifier: MIT
 *
 * Results as tables: one for each metric, a row for each number of threads and size, a column for
 * each spec. On a terminal a table that is too wide is printed in several, one below the other.
 */
#ifndef BENCH_RUNNER_TABLE_H
#define BENCH_RUNNER_TABLE_H

#include "result.h"

/* The results are those of one bench, all specs for one case before the next case. */
void ga_bench_table_print(FILE *stream, const char *help, const ga_bench_result *results,
                          size_t count);

#endif
