/* SPDX-License-Identifier: MIT
 *
 * NCCL's own functions behind the hooks of nccl_hooks.h: those of the library that calls, if NCCL
 * is linked into it; else those of the libnccl.so.2 that the process has loaded, in whichever
 * scope.
 * Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_NCCL_NEXT_H
#define GPUALLOC_INTERPOSE_CUDA_NCCL_NEXT_H

#include "nccl_hooks.h"

/* NCCL's function; NULL: it is not loaded, or too old. */
void *ga_nccl_next(ga_nccl_hook_index row);

/* The function for a call of the hook from `caller`, an address in the library that calls. */
void *ga_nccl_next_of(ga_nccl_hook_index row, const void *caller);

/* The row of a symbol; -1: it is not in the table. */
int ga_nccl_row_of(const char *symbol);

/* The answer to a look-up of the row that found `found`: the hook, if that is NCCL's function. NULL
 * if only the hook was found, and NCCL has no such function. */
void *ga_nccl_replace(int row, void *found);

#endif
