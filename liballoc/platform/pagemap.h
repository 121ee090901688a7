/* SPDX-License-Identifier: MIT
 *
 * The ownership map: one bit for each 4 KiB of addresses, set where memory has been ours. For
 * allocators whose memory has no address range of its own. A set bit stays set.
 *
 * Thread safe; tests and marks are wait-free but for a leaf's first use, which is lock-free.
 */
#ifndef GPUALLOC_PLATFORM_PAGEMAP_H
#define GPUALLOC_PLATFORM_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>

/* Mark the pages of [start, start + size). False where a leaf of the map could not be had. */
bool ga_pagemap_mark(const void *start, size_t size);

/* Reserve what marking one page may need, before it is known which. NULL where there is no memory for
 * it. Each reservation ends with one ga_pagemap_mark_reserved(), which cannot fail. */
void *ga_pagemap_reserve(void);
void ga_pagemap_mark_reserved(const void *pointer, void *reserved);

/* Whether the page of `pointer` is marked. Any value may be asked about. */
bool ga_pagemap_test(const void *pointer);

#endif
