/* SPDX-License-Identifier: MIT
 *
 * The spec of the heaps that frameworks open: the one of ga_framework_choose(), else that of
 * GPUALLOC_DEVICE. The caller of each function holds the lock of slots.c.
 */
#ifndef GPUALLOC_FRAMEWORKS_SPEC_CHOICE_H
#define GPUALLOC_FRAMEWORKS_SPEC_CHOICE_H

#include <gpualloc/gpualloc.h>

/* Choose a spec that ga_heap_check() has passed; NULL: GPUALLOC_DEVICE again. GA_ERR_SPEC if a heap
 * is open with another one. */
ga_status ga_choice_set(const char *spec);

/* The argument for ga_heap_open(). */
const char *ga_choice_spec(void);

/* Keep the spec that the heap of a device has been opened with. */
void ga_choice_opened(int device);

#endif
