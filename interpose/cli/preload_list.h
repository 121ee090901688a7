/* SPDX-License-Identifier: MIT
 *
 * The libraries that `gpualloc run` puts into LD_PRELOAD. The loader splits LD_PRELOAD at colons
 * and spaces, and LD_LIBRARY_PATH at colons and semicolons; in both it replaces $LIB and the
 * like. A library whose folder has a space is named without it, and the folder is searched first.
 */
#ifndef INTERPOSE_CLI_PRELOAD_LIST_H
#define INTERPOSE_CLI_PRELOAD_LIST_H

#include "paths.h"

typedef struct ga_preload_list {
    char names[3 * PATH_MAX]; /* the beginning of LD_PRELOAD */
    char paths[3 * PATH_MAX]; /* the same libraries, as GPUALLOC_PRELOADED tells a nested run */
    char folder[PATH_MAX];    /* the beginning of LD_LIBRARY_PATH; "": none */
} ga_preload_list;

/* Append a library. The path comes from ga_preload_find(), or LD_PRELOAD can hold it. */
void ga_preload_list_add(ga_preload_list *list, const char *path);

/* Put the libraries before those that are in the environment already, in place of those that an
 * enclosing run has put there: it names them in GPUALLOC_PRELOADED. False: out of memory. */
bool ga_preload_list_set(const ga_preload_list *list);

/* Remove them, if any, and those of an enclosing run. The other libraries stay. False: out of
 * memory. */
bool ga_preload_list_unset(const ga_preload_list *list);

#endif
