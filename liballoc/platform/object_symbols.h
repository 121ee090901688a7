/* SPDX-License-Identifier: MIT
 *
 * Symbols of a loaded object, read from its tables. For code that must not call dlopen() or dlsym():
 * tools that wrap these may hold a lock, or may call malloc, or may be us.
 */
#ifndef GPUALLOC_PLATFORM_OBJECT_SYMBOLS_H
#define GPUALLOC_PLATFORM_OBJECT_SYMBOLS_H

#include <link.h>

/* The address of a function that the object defines, or NULL: of no version in particular, and not
 * for indirect functions. Calls nothing. */
void *ga_object_symbol(const struct link_map *object, const char *name);

#endif
