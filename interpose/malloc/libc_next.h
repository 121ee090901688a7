/* SPDX-License-Identifier: MIT
 *
 * The C library behind the preload.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_LIBC_NEXT_H
#define GPUALLOC_INTERPOSE_MALLOC_LIBC_NEXT_H

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/mallinfo.h"

#include <stdbool.h>
#include <stdio.h>

/* Look up the glibc functions that have no __libc_ name. Call once, before the first heap is
 * opened. Calls neither malloc() nor dlopen() nor dlsym(). */
void ga_libc_find(void);

/* The object, before this one in the loader's order, whose malloc the process calls; NULL: none. It
 * may pass calls on to this one, as tools do that record them. Takes no lock. */
const char *ga_malloc_before(void);

/* glibc's own report and figures; false if it has none. */
void ga_libc_print_stats(void);
bool ga_libc_info(struct mallinfo2 *out);
bool ga_libc_write_info(FILE *out, int *result); /* as malloc_info(0, out) */

#endif
