/* SPDX-License-Identifier: MIT
 *
 * The `vmm` backend: memory is mapped block by block into addresses that are reserved once.
 */
#ifndef GPUALLOC_VMM_VMM_H
#define GPUALLOC_VMM_VMM_H

#include <gpualloc/backend.h>

extern const ga_backend ga_vmm_backend;

#endif
