/* SPDX-License-Identifier: MIT
 *
 * Entry points for pointers at which no live block of the process's heap begins. Most are blocks of
 * the C library that are older than the heap or were allocated without it. A pointer into memory of
 * gpualloc is misuse: it is reported and not passed to the C library, which would take our memory
 * for its own.
 *
 * The functions behave as malloc's entry points of these names. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_FOREIGN_H
#define GPUALLOC_PLATFORM_FOREIGN_H

#include <stddef.h>

void ga_foreign_free(void *block);

/* NULL and ENOMEM for a pointer into memory of gpualloc, whose contents stay as they are. */
void *ga_foreign_realloc(void *block, size_t size);

/* 0 for a pointer into memory of gpualloc. */
size_t ga_foreign_usable_size(void *block);

#endif
