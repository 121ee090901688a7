/* SPDX-License-Identifier: MIT
 *
 * The command line of `gpualloc bench spgemm`.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_COMMAND_H
#define GPUALLOC_BENCH_SPGEMM_COMMAND_H

/* Parses, measures and prints. Returns the exit status: 0, or 1 if a measurement failed, a file
 * cannot be read or written, or there is no device; exits with 2 for usage. */
int ga_bench_spgemm_command(int argc, char **argv);

#endif
