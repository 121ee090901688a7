/* SPDX-License-Identifier: MIT
 *
 * The `hazard` backend: freeing a block retires it (docs/reclaim.md).
 */
#ifndef GPUALLOC_RECLAIM_HAZARD_H
#define GPUALLOC_RECLAIM_HAZARD_H

#include <gpualloc/backend.h>
#include <gpualloc/reclaim.h>

extern const ga_backend ga_hazard_backend;

/* The domain of a heap of this backend, from the heap's state. */
ga_domain *ga_hazard_domain(void *state);

#endif
