/* SPDX-License-Identifier: MIT
 *
 * PTX to machine code, by the driver.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PTX_LINK_H
#define GPUALLOC_INTERPOSE_CUDA_PTX_LINK_H

#include "../images/image.h"

/* Options of the driver's compiler, as a program gives them. */
typedef struct ga_ptx_options {
    unsigned count;
    int *options;
    void **values;
} ga_ptx_options;

/* Compile `ptx` for `device`, in its primary context. `*owned` holds the cubin: give it to
 * ga_libc.free(). The driver keeps malloc and free as undefined functions in it.
 *
 * GA_ERR_UNSUPPORTED  the driver has no linker, or refuses the PTX: the error has its first line
 */
ga_status ga_ptx_link(ga_image *out, void **owned, int device, ga_image ptx,
                      const ga_ptx_options *options);

#endif
