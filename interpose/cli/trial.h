/* SPDX-License-Identifier: MIT
 *
 * Tries the settings of `gpualloc run` before the program starts, so that a mistake is reported
 * with this command's exit status, and not in the program's output.
 */
#ifndef INTERPOSE_CLI_TRIAL_H
#define INTERPOSE_CLI_TRIAL_H

#include <gpualloc/gpualloc.h>

#include <stdbool.h>

/* A library that LD_PRELOAD can name in place of ours. */
typedef struct ga_library {
    char path[1024]; /* absolute; empty: none */
    bool aligns;     /* else libgpualloc-align.so must come before it */
} ga_library;

/* Open a host heap of this spec. For one that would write a file, check only backends and options.
 * `*preloadable` becomes the library if the spec is `dl` alone, and its library defines the malloc
 * family, but for functions that libgpualloc-align.so adds. */
ga_status ga_trial_host(const char *spec, ga_library *preloadable);

/* The spec with absolute paths in place of relative ones, because programs may run in other
 * directories: of the file of `trace`, and of `dl` if it has a slash. Returns `spec` itself, or new
 * memory; NULL, with an error, if there is none, or the directory has no name. */
const char *ga_trial_absolute(const char *spec);

/* Check the syntax, backends and options of a spec for device memory or for kernels; the first also
 * has the options of the CUDA preload. No heap is opened, because the program starts CUDA. */
ga_status ga_trial_spec(ga_place place, const char *spec);

/* Whether the spec parses, and names a backend that only the program can register. */
bool ga_trial_is_foreign(const char *spec);

/* Check that statistics can be appended to the file; creates it if necessary. */
ga_status ga_trial_stats_file(const char *path);

/* Check that a trace can be written to the file. Removes an older trace; any other content is an
 * error. */
ga_status ga_trial_trace_file(const char *path);

#endif
