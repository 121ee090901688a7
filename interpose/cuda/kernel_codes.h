/* SPDX-License-Identifier: MIT
 *
 * The program's code that is served, in the order in which it was loaded. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_CODES_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_CODES_H

#include "../../liballoc/platform/cuda_types.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_cuda_code {
    void *handle;
    CUcontext context; /* a module's; NULL: a library, which has an instance in each context */
    uint64_t number;   /* in the order of loading, from 1 */
} ga_cuda_code;

/* Append a module or library that the driver has loaded. `copy` is the code, to be freed after it
 * was unloaded; NULL: there is nothing to free. A record with that handle is of code that is gone,
 * and removed. Returns its number; 0: no memory. */
uint64_t ga_cuda_codes_add(void *handle, CUcontext context, void *copy);

/* The first code behind `before` that runs in a context; it stays loaded until the call with it as
 * `before`. NULL as `before`: the first with a number above `number`. NULL: there is none. */
const ga_cuda_code *ga_cuda_codes_next(const ga_cuda_code *before, uint64_t number,
                                       CUcontext context);

/* The number of the last code that runs in a context; 0: there is none. */
uint64_t ga_cuda_codes_last(CUcontext context);

/* Before the driver unloads the code. Waits while another thread uses it; from now on none does.
 * NULL: there is no record. */
const ga_cuda_code *ga_cuda_codes_leave(const void *handle);

/* After that: free the record and `copy` if the code is gone. Else the code is used again, as the
 * last one, and its new number is returned. 0: it is not. */
uint64_t ga_cuda_codes_left(const ga_cuda_code *code, bool is_gone);

/* A context is gone, with its modules. */
void ga_cuda_codes_context_gone(CUcontext context);

/* In the child of a fork. */
void ga_cuda_codes_child(void);

#endif
