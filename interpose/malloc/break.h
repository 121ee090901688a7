/* SPDX-License-Identifier: MIT
 *
 * The program break, kept for the C library's blocks while a malloc library serves (`dl`). A pointer
 * is then the C library's exactly where it lies below the break, so that blocks need no marks.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_BREAK_H
#define GPUALLOC_INTERPOSE_MALLOC_BREAK_H

#include <stdbool.h>
#include <stdint.h>

/* The members of ga_libc_table that have these names. */
bool ga_break_hold(uintptr_t *first);
void ga_break_share(uintptr_t first, uintptr_t end);

#endif
