/* SPDX-License-Identifier: MIT
 *
 * The heap of a device for malloc in kernels under the preload, and the image of our module that
 * serves from it. One thread at a time: kernel_contexts.c holds its lock.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H

#include "../images/cubin.h"

#include <stdbool.h>

typedef struct ga_cuda_place {
    ga_cubin cubin;         /* our module, to be loaded in contexts of the device; and the stubs */
    ga_cubin_needs plain;   /* of kernels that call malloc and free; `recursion` is not set */
    ga_cubin_needs aligned; /* and of those that call the aligned malloc, too */
} ga_cuda_place;

/* Whether GPUALLOC_KERNEL names a heap. It does not if it is empty, or is `cuda`: CUDA's own
 * malloc. Thread safe. */
bool ga_cuda_kernel_wanted(void);

/* The first call for a device, of compute capability `sm`, opens its heap; a failure is remembered
 * until ga_cuda_place_close(). */
ga_status ga_cuda_place_open(const ga_cuda_place **out, int device, unsigned sm);
bool ga_cuda_place_is_open(int device);

/* Close the heap with all its blocks. No kernel may use it any more. */
void ga_cuda_place_close(int device);

/* In the child of a fork, which the driver does not outlive. */
void ga_cuda_place_child(void);

#endif
