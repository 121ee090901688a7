/* SPDX-License-Identifier: MIT
 *
 * The record of an opened layer, for the files of this room and the preloads.
 */
#ifndef GPUALLOC_RUNTIME_HEAP_H
#define GPUALLOC_RUNTIME_HEAP_H

#include "counters.h"
#include "spec.h"

#include <gpualloc/backend.h>

/* One opened layer. All members are set before ga_heap_open() returns and are constant afterwards,
 * except `following` (guarded by the lock of the list of layers), `bypassed` and `published`. */
struct ga_heap {
    const ga_backend *backend;
    void *state;
    ga_heap *parent;       /* NULL for the last layer */
    ga_counters *counters; /* NULL: the parent counts, see ga_backend.passes_through */
    ga_place place;
    int device;
    size_t natural_align; /* alignment in bytes that backend->alloc() guarantees */
    bool root;            /* opened by a caller, not as a parent */
    bool bypassed;        /* the preload calls the backend past the counters; set once, by the
                           * preload */
    unsigned published;   /* times that linked.c has published it to a module whose kernels' malloc
                           * it replaces */
    ga_spec *spec;        /* the parsed text that option values point into; set in the root only */
    char *text;           /* ga_heap_spec() */
    ga_heap *following;   /* the list of all open layers, youngest first */
};

/* The spec that ga_heap_open() uses if neither the caller nor the environment names one. Static. */
const char *ga_heap_default_spec(ga_place place);

/* Make the look-ups that ga_heap_open() of a device makes by the dynamic linker: the driver, which
 * is started, and GPUALLOC_PLUGINS. Call it before a lock is taken over ga_heap_open(), because a
 * constructor of a library, which the linker runs under its own lock, may wait for that lock.
 * Errors are left to ga_heap_open(). Thread safe. */
void ga_heap_prepare(void);

/* Copy GPUALLOC_STATS and GPUALLOC_TRACE now, if they are set. For a library that opens its first
 * heap late, when the program may have cleared its environment. Thread safe. */
void ga_heap_keep_settings(void);

/* For captures.c: allocate and free without the captured blocks. ga_memory_serve() is ga_alloc()
 * without checks and counters. ga_memory_free() is ga_free(), or ga_free_on() if `stream` is not
 * NULL; it counts. */
ga_status ga_memory_serve(ga_heap *heap, size_t size, size_t align, void **out);
ga_status ga_memory_free(ga_heap *heap, void *block, const ga_stream *stream);

/* Call `visit` for every heap that a caller has opened, not for its parents. The list is locked
 * during the call, so that the visitor must not open or close heaps. */
void ga_heap_each_root(void (*visit)(const ga_heap *heap));

#endif
