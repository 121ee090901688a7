/* SPDX-License-Identifier: MIT
 *
 * Reports misuse of malloc that was refused: once in a process, so that a program which repeats it
 * does not fill the log.
 */
#ifndef GPUALLOC_PLATFORM_MISUSE_H
#define GPUALLOC_PLATFORM_MISUSE_H

/* The first call in a process logs a warning that names the entry point, the address and the kind
 * of misuse; later calls do nothing. Thread safe; keeps errno, never allocates.
 * scripts/build-jemalloc compiles jemalloc to call it. */
void ga_misuse_report(const char *call, const void *block, const char *kind);

#endif
