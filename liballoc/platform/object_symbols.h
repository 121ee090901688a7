/* SPDX-License-Identifier: MIT
 *
 * Symbols of a loaded object, read from its tables. For code that must not call dlopen() or
 * dlsym(): tools that wrap these may hold a lock, may call malloc, or may be this library.
 */
#ifndef GPUALLOC_PLATFORM_OBJECT_SYMBOLS_H
#define GPUALLOC_PLATFORM_OBJECT_SYMBOLS_H

#include <link.h>

/* The address of a function that the object defines, or NULL. Ignores symbol versions, and does not
 * resolve indirect functions. Calls no other library. Thread safe. */
void *ga_object_symbol(const struct link_map *object, const char *name);

#endif
