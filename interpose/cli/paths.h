/* SPDX-License-Identifier: MIT
 *
 * Finds the files that `gpualloc run` needs, the library for LD_PRELOAD and the program, and the
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
    GA_PRELOAD_ALIGN,
    GA_PRELOAD_CUDA
} ga_preload;

typedef struct ga_path {
    char text[PATH_MAX];
} ga_path;

/* The absolute path, because the program may change its directory. GA_ERR_IO: too long. */
ga_status ga_path_absolute(ga_path *out, const char *path);

/* Find a library to preload. GA_ERR_LIBRARY: not found; the error names the places searched. */
ga_status ga_preload_find(ga_path *out, ga_preload which);

/* Find a benchmark program. GA_ERR_LIBRARY: not found; the error names the places searched. */
ga_status ga_bench_program_find(ga_path *out, const char *name);

/* Find the program behind `gpualloc rewrite`. GA_ERR_LIBRARY: not found, as above. */
ga_status ga_rewrite_program_find(ga_path *out);

/* Find the file that execvp(3) would execute. Returns 0, or the errno that it would leave. */
int ga_program_find(ga_path *out, const char *name);

/* The reason why LD_PRELOAD would not work for a program; NULL if there is none, or the file cannot
 * be read. `*stops` is true if the program would not even start with the preload. */
const char *ga_program_trouble(const char *program, const char *preload, bool *stops);

#endif
