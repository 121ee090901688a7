/* SPDX-License-Identifier: MIT
 *
 * Included before a rewritten program, which is C++ then: the functions that
 * gpualloc/mpi_malloc.cuh declares for kernels.
 */
#ifndef GPUALLOC_TESTS_REWRITE_REWRITTEN_H
#define GPUALLOC_TESTS_REWRITE_REWRITTEN_H

#include <stdlib.h>

void init_malloc();
void clean_malloc();
void *malloc(size_t size, bool coalesce);
void *calloc(size_t count, size_t size, bool coalesce);

#endif
