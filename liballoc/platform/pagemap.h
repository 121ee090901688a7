/* SPDX-License-Identifier: MIT
 *
 * The ownership map: one bit for each 4 KiB of addresses, set if the memory has been ours. For
 * allocators whose memory has no address range of its own. A set bit stays set.
 *
 * Thread safe. Tests and marks are wait-free, except the first use of a leaf, which is lock-free.
 */
#ifndef GPUALLOC_PLATFORM_PAGEMAP_H
#define GPUALLOC_PLATFORM_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>

/* Mark the pages of [start, start + size). False if there is no memory for a leaf of the map. */
bool ga_pagemap_mark(const void *start, size_t size);

/* Reserve the memory that marking one page may need, before the page is known. NULL without memory.
 * Each reservation ends with one ga_pagemap_mark_reserved(), which cannot fail. */
void *ga_pagemap_reserve(void);
void ga_pagemap_mark_reserved(const void *pointer, void *reserved);

/* Whether the page of `pointer` is marked. Accepts any value. */
bool ga_pagemap_test(const void *pointer);

#endif
