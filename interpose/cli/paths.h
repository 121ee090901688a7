/* SPDX-License-Identifier: MIT
 *
 * The files that `gpualloc run` deals with, the library for LD_PRELOAD and the program, and the
 * programs of `gpualloc bench coalesce`.
 */
#ifndef INTERPOSE_CLI_PATHS_H
#define INTERPOSE_CLI_PATHS_H

#include <gpualloc/gpualloc.h>

#include <limits.h>
#include <stdbool.h>

/* The libraries to preload. */
typedef enum ga_preload {
    GA_PRELOAD_MALLOC = 0,
    GA_PRELOAD_CUDA
} ga_preload;

typedef struct ga_path {
    char text[PATH_MAX];
} ga_path;

/* The path from "/" on: a program may change its directory. GA_ERR_IO where it is too long. */
ga_status ga_path_absolute(ga_path *out, const char *path);

/* A library to preload. GA_ERR_LIBRARY, with a sentence that says where it was looked for. */
ga_status ga_preload_find(ga_path *out, ga_preload which);

/* A benchmark that is a program of its own. GA_ERR_LIBRARY, with a sentence that says where it was
 * looked for. */
ga_status ga_bench_program_find(ga_path *out, const char *name);

/* The file that execvp(3) would run: 0, or the errno that it would leave. */
int ga_program_find(ga_path *out, const char *name);

/* Why LD_PRELOAD would not work for a program; NULL where nothing speaks against it, or where the
 * program's file cannot be read. `stops` tells whether the program would not even start with it. */
const char *ga_program_trouble(const char *program, const char *preload, bool *stops);

#endif
