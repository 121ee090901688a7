/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator: the `system` backend, and where gpualloc keeps its own few records.
 *
 * Two providers exist, and what is linked says which: libc_program.c is the malloc that the
 * program sees; the preload, which is that malloc, brings one that goes past itself.
 */
#ifndef GPUALLOC_PLATFORM_LIBC_H
#define GPUALLOC_PLATFORM_LIBC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    /* The preload only, else NULL: from now on the C library takes all its blocks from the program
     * break, and nobody else gets memory there. `*first` is where its blocks begin. False where that
     * cannot be had. Before threads run. */
    bool (*hold_break)(uintptr_t *first);
    /* The code in [first, end) still gets nothing from the program break; all others do again. */
    void (*share_break)(uintptr_t first, uintptr_t end);
} ga_libc_table;

/* Constant in the program. In the preload, ga_libc_find() sets usable_size, trim and totals once,
 * before the first heap is opened. */
extern ga_libc_table ga_libc;

#endif
