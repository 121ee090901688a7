/* SPDX-License-Identifier: MIT
 *
 * The C library behind the preload.
 */
#ifndef GPUALLOC_INTERPOSE_MALLOC_LIBC_NEXT_H
#define GPUALLOC_INTERPOSE_MALLOC_LIBC_NEXT_H

#include "../../liballoc/platform/libc.h"

#include <malloc.h>
#include <stdbool.h>

/* Look up what glibc has under no name of its own. Once, before the first heap is opened; dlsym
 * may call malloc meanwhile. */
void ga_libc_find(void);

/* glibc's own report and figures; false where it has none. */
void ga_libc_print_stats(void);
bool ga_libc_info(struct mallinfo2 *out);

#endif
