/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator: the `system` backend, and where gpualloc keeps its own few records.
 *
 * Two providers exist, and what is linked says which: libc_program.c is the malloc that the
 * program sees; the preload, which is that malloc, brings one that goes past itself.
 */
#ifndef GPUALLOC_PLATFORM_LIBC_H
#define GPUALLOC_PLATFORM_LIBC_H

#include <stddef.h>

typedef struct ga_libc_table {
    void *(*malloc)(size_t size);
    void (*free)(void *block);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *block, size_t size);
    void *(*memalign)(size_t align, size_t size);
    /* Found by dlsym in the preload: NULL until ga_libc_find() or where libc has none. */
    size_t (*usable_size)(void *block);
    int (*trim)(size_t keep);
    void (*totals)(size_t *live, size_t *held);
} ga_libc_table;

/* Constant in the program; in the preload its last three members are set once, by
 * ga_libc_find(), before the first heap is opened. */
extern ga_libc_table ga_libc;

#endif
