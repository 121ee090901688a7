/* SPDX-License-Identifier: MIT
 *
 * Machine code that the driver made of PTX, on disk. An entry has all that the result depends on,
 * and serves only what is equal to that in each byte. Thread safe; nothing here fails a caller.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_PTX_CACHE_H
#define GPUALLOC_INTERPOSE_CUDA_PTX_CACHE_H

#include "ptx_link.h"

#include <stdbool.h>

/* The machine code for `source`. `*owned` holds it: give it to ga_libc.free(). */
bool ga_ptx_cache_find(ga_image *out, void **owned, const ga_ptx_source *source);

/* Store it, as the driver compiled it just now. */
void ga_ptx_cache_keep(const ga_ptx_source *source, ga_image cubin);

#endif
