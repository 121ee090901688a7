/* SPDX-License-Identifier: MIT
 *
 * The process's malloc: one heap, and the table through which the entry points jump.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_SERVED_H
#define GPUALLOC_INTERPOSE_MALLOC_SERVED_H

#include <gpualloc/backend.h>

/* The table in use. Until the heap is open its functions open it; after that it does not change. A
 * pointer outside its range is foreign or NULL, or only the heap can tell. */
extern ga_malloc_table ga_served;

/* Open the heap that GPUALLOC_HOST names, unless it is open. False while it is being opened, by the
 * caller or another thread, and before the C library has set up the environment: the caller uses
 * the C library's malloc. */
bool ga_served_start(void);

/* The process's heap; NULL before it is open. */
ga_heap *ga_served_heap(void);

/* True if a pointer outside the table's range belongs to the heap. */
bool ga_served_owns(const void *block);

#endif
