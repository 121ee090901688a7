/* SPDX-License-Identifier: MIT
 *
 * The command line of `gpualloc bench lfht`, and of bench-lfht, which measures others' maps too.
 */
#ifndef BENCH_LFHT_COMMAND_H
#define BENCH_LFHT_COMMAND_H

#include "subject.h"

/* Parse, measure, print. `name` is what messages call it; `peers` are measured beside
 * ours, NULL at the end. Answers the exit status: 0; 1 where a measurement failed or a file cannot
 * be written; 2 for usage, then without coming back. */
int ga_bench_lfht_command(int argc, char **argv, const char *name,
                          const ga_bench_peers *const *peers);

#endif
