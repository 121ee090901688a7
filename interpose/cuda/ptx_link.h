/* SPDX-License-Identifier: MIT
 *
 * PTX to machine code, by the driver.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PTX_LINK_H
#define GPUALLOC_INTERPOSE_CUDA_PTX_LINK_H

#include "../images/fatbin.h"
#include "ptx_options.h"

typedef struct ga_ptx_source {
    ga_image ptx;
    const ga_fatbin_entry *entry; /* that has the PTX, and options for it; NULL: there is none */
    unsigned sm;                  /* of the device */
    const ga_ptx_options *options;
} ga_ptx_source;

/* Compile PTX, or take the result of an earlier time from the disk. The driver compiles in the
 * current context, which the caller keeps; if there is none, in one that is made for it on `device`
 * and destroyed after. It loads its compiler, and so takes the lock of the dynamic linker: the
 * caller must hold no lock that a thread takes which unloads a library of the program. `*owned`
 * holds the cubin: give it to ga_libc.free(). The driver keeps malloc and free as undefined
 * functions in it.
 *
 * GA_ERR_UNSUPPORTED  the driver has no linker, or refuses the PTX: the error has its first line
 * GA_ERR_MEMORY       no memory, of the host or the device
 * GA_ERR_DEVICE       the context is broken, or none can be made
 */
ga_status ga_ptx_link(ga_image *out, void **owned, int device, const ga_ptx_source *source);

#endif
