/* SPDX-License-Identifier: MIT
 *
 * Who serves the process's malloc: one heap, and the table that the entry points jump through.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_SERVED_H
#define GPUALLOC_INTERPOSE_MALLOC_SERVED_H

#include <gpualloc/backend.h>

/* The table in force. Until the heap is open its entries open it; after that it never changes.
 * A pointer outside its range is foreign or NULL or needs the heap's own answer. */
extern ga_malloc_table ga_served;

/* Open the heap that GPUALLOC_HOST names, if that has not been done. False while that is under
 * way (the caller is inside it, or another thread is) and while the C library has not set up the
 * environment: the caller takes the C library's malloc. */
bool ga_served_start(void);

/* The process's heap; NULL before it is open. */
ga_heap *ga_served_heap(void);

/* Whether a pointer outside the table's range is the heap's all the same. */
bool ga_served_owns(const void *block);

#endif
