/* SPDX-License-Identifier: MIT
 *
 * The machine code of our module for a device.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_CODE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_CODE_H

#include "../images/image.h"

/* The embedded code for `device` of compute capability `sm`; for an architecture that this build
 * does not know, the embedded PTX, compiled by the driver. `*owned` is NULL, or memory that holds
 * it: give it to ga_libc.free().
 *
 * GA_ERR_UNSUPPORTED  there is no such code, or the driver's result cannot be called by kernels of
 *                     other modules
 */
ga_status ga_kernel_code_find(ga_image *out, void **owned, int device, unsigned sm);

#endif
