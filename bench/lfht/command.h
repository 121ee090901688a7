/* SPDX-License-Identifier: MIT
 *
 * The command line of `gpualloc bench lfht`, and of bench-lfht, which also measures other projects'
 * maps.
 */
#ifndef BENCH_LFHT_COMMAND_H
#define BENCH_LFHT_COMMAND_H

#include "subject.h"

/* Parse, measure, print. `name`: the program's name in messages. `peers`: maps of other projects to
 * measure beside ours, with NULL at the end. Returns the exit status: 0, or 1 if a measurement
 * failed or a file cannot be written; exits with 2 for usage. */
int ga_bench_lfht_command(int argc, char **argv, const char *name,
                          const ga_bench_peers *const *peers);

#endif
