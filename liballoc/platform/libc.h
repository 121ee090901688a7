/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator: it serves the `system` backend and gpualloc's own few records.
 *
 * There are two definitions of the table, and linking chooses one. libc_program.c uses the malloc
 * that the program sees. The preload is that malloc, so it brings a table that bypasses itself.
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
    /* Looked up by dlsym() in the preload: NULL until ga_libc_find(), and if the C library has
     * none. */
    size_t (*usable_size)(void *block);
    int (*trim)(size_t keep);
    void (*totals)(size_t *live, size_t *held);
    /* In the preload only, else NULL. From now on the C library takes all its blocks from the
     * program break, and no other library gets memory there. `*first` is the address at which its
     * blocks begin. False if that cannot be done. Call before threads run. */
    bool (*hold_break)(uintptr_t *first);
    /* Let all code use the program break again, except code in [first, end). */
    void (*share_break)(uintptr_t first, uintptr_t end);
} ga_libc_table;

/* Constant in the program. In the preload, ga_libc_find() sets usable_size, trim and totals once,
 * before the first heap is opened. */
extern ga_libc_table ga_libc;

#endif
