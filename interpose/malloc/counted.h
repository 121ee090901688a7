/* SPDX-License-Identifier: MIT
 *
 * A backend's malloc-shaped table, counted.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_COUNTED_H
#define GPUALLOC_INTERPOSE_MALLOC_COUNTED_H

#include <gpualloc/backend.h>

/* The same entry points as `own`, the heap's table, each counted in the heap's statistics as the
 * interface does. For one heap in a process. */
ga_malloc_table ga_counted_table(ga_heap *heap, const ga_malloc_table *own);

#endif
