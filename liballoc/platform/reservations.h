/* SPDX-License-Identifier: MIT
 *
 * The addresses that this copy of the library has reserved from the kernel, whether a block lives
 * there or not. A pointer into them is never another allocator's block, so the entry points of
 * malloc ask here before they pass a pointer on to the C library.
 *
 * Thread safe. Look-ups are wait-free and read at most five words.
 */
#ifndef GPUALLOC_PLATFORM_RESERVATIONS_H
#define GPUALLOC_PLATFORM_RESERVATIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Record [start, start + size), whole pages that were just mapped. False where there is no memory
 * for the record; nothing is recorded then, and the caller gives the addresses back. */
bool ga_reservations_add(const void *start, size_t size);

/* Forget a range that was added, before it is unmapped: another mapping may get the addresses. */
void ga_reservations_remove(const void *start, size_t size);

/* Whether the pointer lies in a range of the record, or in memory of platform/pages.h. */
bool ga_reservations_contain(const void *pointer);

#endif
