/* SPDX-License-Identifier: MIT
 *
 * The heap of a device for malloc in kernels under the preload, and the image of our module that
 * serves from it. One thread at a time: kernel_contexts.c holds its lock.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_PLACE_H

#include "../images/image.h"

#include <stdbool.h>

/* Whether GPUALLOC_KERNEL names a heap. It does not if it is empty, or is `cuda`: CUDA's own
 * malloc. Thread safe. */
bool ga_cuda_kernel_wanted(void);

/* With GPUALLOC_STRICT=1, end the program: in-kernel malloc cannot be served, for the reason in
 * ga_error_text(). */
void ga_cuda_kernel_stop_if_strict(void);

/* `*out` is our module with the view of the heap in it, until ga_cuda_place_close(). The first call
 * for a device, of compute capability `sm`, whose code was prepared, opens the heap; a failure is
 * remembered until then, too, except GA_ERR_MEMORY: the next call tries again. */
ga_status ga_cuda_place_open(ga_image *out, int device, unsigned sm);
bool ga_cuda_place_is_open(int device);

/* Close the heap with all its blocks. No kernel may use it any more. */
void ga_cuda_place_close(int device);

/* In the child of a fork, which the driver does not outlive. */
void ga_cuda_place_child(void);

#endif
