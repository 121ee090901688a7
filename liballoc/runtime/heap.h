/* SPDX-License-Identifier: MIT
 *
 * What a heap is made of, for the files of this room and the preload.
 */
#ifndef GPUALLOC_RUNTIME_HEAP_H
#define GPUALLOC_RUNTIME_HEAP_H

#include "counters.h"
#include "spec.h"

#include <gpualloc/backend.h>

/* One opened layer. All members are set before the heap is handed out and then constant, but for
 * `following`, which the list's lock guards. */
struct ga_heap {
    const ga_backend *backend;
    void *state;
    ga_heap *parent;       /* NULL for the last layer */
    ga_counters *counters; /* NULL: the parent counts, see ga_backend.passes_through */
    ga_place place;
    int device;
    size_t natural_align; /* what backend->alloc() gives */
    bool root;            /* opened by a caller, not as a parent */
    bool bypassed;        /* the preload calls the backend past the counters; set once, by it */
    unsigned published;   /* it replaces malloc in kernels: how often a module was told; linked.c */
    ga_spec *spec;        /* the parsed text that values point into; the root's only */
    char *text;           /* ga_heap_spec() */
    ga_heap *following;   /* the list of all open layers, youngest first */
};

/* What ga_heap_open() takes where neither a caller nor the environment names a spec. */
const char *ga_heap_default_spec(ga_place place);

/* Copy GPUALLOC_STATS and GPUALLOC_TRACE now, where they are set, rather than when the first heap is
 * opened: for a library that opens it late, when the program may have cleared its environment. */
void ga_heap_keep_settings(void);

/* ga_alloc() and ga_free() or, with a stream, ga_free_on(), past the list of captured blocks. Of these
 * ga_memory_serve() does not count. For captures.c. */
ga_status ga_memory_serve(ga_heap *heap, size_t size, size_t align, void **out);
ga_status ga_memory_free(ga_heap *heap, void *block, const ga_stream *stream);

/* Call `visit` for every heap that a caller has open. The list is locked meanwhile: the visitor
 * opens and closes none. */
void ga_heap_each_root(void (*visit)(const ga_heap *heap));

#endif
