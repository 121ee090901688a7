/* SPDX-License-Identifier: MIT
 *
 * Pointers that no live block of the process's heap begins at. Most are the C library's: blocks
 * that are older than the heap, or that were allocated past it. Those that lie in memory of ours
 * are misuse: they are reported, and the C library never sees them, because it would take our
 * memory for its own.
 *
 * As malloc's entry points of these names. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_FOREIGN_H
#define GPUALLOC_PLATFORM_FOREIGN_H

#include <stddef.h>

void ga_foreign_free(void *block);

/* NULL and ENOMEM for a pointer into memory of ours, which is not touched. */
void *ga_foreign_realloc(void *block, size_t size);

/* 0 for a pointer into memory of ours. */
size_t ga_foreign_usable_size(void *block);

#endif
