/* SPDX-License-Identifier: MIT
 *
 * The machine code of our module for each architecture. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_CODE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_CODE_H

#include "../images/cubin.h"

typedef struct ga_kernel_code {
    ga_cubin cubin;         /* without the view of a heap; and the stubs */
    ga_cubin_needs plain;   /* of kernels that call malloc and free; `recursion` is not set */
    ga_cubin_needs aligned; /* and of those that call the aligned malloc, too */
} ga_kernel_code;

/* The code for compute capability `sm`, which lives as long as the process. The first call for an
 * architecture unpacks it; for one that this build does not know, the driver compiles the embedded
 * PTX, as ga_ptx_link() does on `device`. So the caller must hold no lock.
 *
 * GA_ERR_UNSUPPORTED  there is no such code, or the driver's result cannot be called by kernels of
 *                     other modules
 */
ga_status ga_kernel_code_prepare(const ga_kernel_code **out, int device, unsigned sm);

/* The code that was prepared. */
ga_status ga_kernel_code_find(const ga_kernel_code **out, unsigned sm);

#endif
