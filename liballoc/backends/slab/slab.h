/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend: SlabAlloc behind the interface.
 */
#ifndef GPUALLOC_SLAB_SLAB_H
#define GPUALLOC_SLAB_SLAB_H

#include "units/slab_heap.h"

#include <gpualloc/backend.h>

extern const ga_backend ga_slab_backend;

/* The number of faults of that kind that the hardened checks have found; `state` is that of a heap
 * for the host or a device. */
uint64_t ga_slab_faults_of(const void *state, ga_slab_fault fault);

#endif
