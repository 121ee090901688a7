/* SPDX-License-Identifier: MIT
 *
 * The addresses that this copy of the library has reserved from the kernel, with or without a live
 * block. A pointer into them is never another allocator's block, so malloc's entry points check it
 * here before they pass a pointer to the C library.
 *
 * Thread safe. Look-ups are wait-free and read at most five words.
 */
#ifndef GPUALLOC_PLATFORM_RESERVATIONS_H
#define GPUALLOC_PLATFORM_RESERVATIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Record [start, start + size), whole pages that were just mapped. False without memory for the
 * record; nothing is recorded then, and the caller unmaps the addresses. */
bool ga_reservations_add(const void *start, size_t size);

/* Remove a range before it is unmapped, because another mapping may get the addresses. */
void ga_reservations_remove(const void *start, size_t size);

/* Whether the pointer lies in a recorded range, or in memory of platform/pages.h. */
bool ga_reservations_contain(const void *pointer);

#endif
