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

/* The file's name, without a folder. */
const char *ga_preload_name(ga_preload which);

/* Find a library to preload, of this command's version. GA_ERR_LIBRARY: not found, and the error
 * names the places searched, or one that the loader would not load. */
ga_status ga_preload_find(ga_path *out, ga_preload which);

/* Find a benchmark program. GA_ERR_LIBRARY: not found; the error names the places searched. */
ga_status ga_bench_program_find(ga_path *out, const char *name);

/* Find the program behind `gpualloc rewrite`. GA_ERR_LIBRARY: not found, as above. */
ga_status ga_rewrite_program_find(ga_path *out);

/* Find the file that execvp(3) would execute. Returns 0, or the errno that it would leave. */
int ga_program_find(ga_path *out, const char *name);

/* Whether LD_PRELOAD takes effect in a program. */
typedef struct ga_reach {
    char trouble[512]; /* why it does not; "": no reason known */
    bool harmful;      /* the program would not start with it, or its loader would complain */
    int error; /* the errno of executing it, where the interpreter is missing; 0 if unknown */
} ga_reach;

/* Read the program, or the interpreter of a script, without executing it. The environment must have
 * the preload, by the path `preload`. */
void ga_program_reach(ga_reach *out, const char *program, const char *preload);

/* Ask the loader of a program, which is not this process's loader, to list its libraries in this
 * environment. Sets *out if the preload is not among them. */
void ga_loader_ask(ga_reach *out, const char *loader, const char *program, const char *preload);

#endif
