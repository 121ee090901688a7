/* SPDX-License-Identifier: MIT
 *
 * Misuse of malloc that was refused: said once, so that a program which does it all the time is not
 * drowned in lines.
 */
#ifndef GPUALLOC_PLATFORM_MISUSE_H
#define GPUALLOC_PLATFORM_MISUSE_H

/* The first call in a process logs a warning that names the entry point, the address and the kind
 * of misuse; later calls do nothing. Keeps errno, never allocates. scripts/build-jemalloc compiles
 * jemalloc to call it. */
void ga_misuse_report(const char *call, const void *block, const char *kind);

#endif
