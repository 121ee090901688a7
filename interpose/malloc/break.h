/* SPDX-License-Identifier: MIT
 *
 * The program break, reserved for the C library's blocks while a malloc library serves (`dl`). Then
 * a pointer is the C library's if and only if it lies below the break, so blocks need no marks.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_BREAK_H
#define GPUALLOC_INTERPOSE_MALLOC_BREAK_H

#include <stdbool.h>
#include <stdint.h>

/* The members of ga_libc_table that have these names. */
bool ga_break_hold(uintptr_t *first);
void ga_break_share(uintptr_t first, uintptr_t end);

#endif
