/* SPDX-License-Identifier: MIT
 *
 * The allocator behind memalign() and its kin. Each library that has aligned.c defines it.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_ALIGNED_H
#define GPUALLOC_INTERPOSE_MALLOC_ALIGNED_H

#include <stddef.h>

/* A block whose address is a multiple of `align`, a power of two from 16 on, or NULL. `size` is at
 * least 1, and align + size at most PTRDIFF_MAX. errno is left to the caller. Thread safe. */
void *ga_aligned_alloc(size_t align, size_t size);

#endif
