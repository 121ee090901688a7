/* SPDX-License-Identifier: MIT
 *
 * A backend's malloc table with counting.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_COUNTED_H
#define GPUALLOC_INTERPOSE_MALLOC_COUNTED_H

#include <gpualloc/backend.h>

/* The entry points of `own`, the heap's table, each counted in the heap's statistics as the
 * interface counts. For one heap per process. */
ga_malloc_table ga_counted_table(ga_heap *heap, const ga_malloc_table *own);

#endif
