/* SPDX-License-Identifier: MIT
 *
 * A library that uses the driver, from any scope that it was loaded into.
 */
#ifndef GPUALLOC_TESTS_CUDA_APART_H
#define GPUALLOC_TESTS_CUDA_APART_H

#include "platform/cuda_types.h"

typedef struct apart_functions {
    CUresult (*alloc)(CUdeviceptr *out, size_t size); /* as the linker found them */
    CUresult (*free)(CUdeviceptr block);
    void *looked_up; /* alloc, by dlsym() */
} apart_functions;

typedef void apart_find(apart_functions *out);

#endif
