/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend: SlabAlloc behind the interface.
 */
#ifndef GPUALLOC_SLAB_SLAB_H
#define GPUALLOC_SLAB_SLAB_H

#include "units/slab_heap.h"

#include <gpualloc/backend.h>

extern const ga_backend ga_slab_backend;

#endif
