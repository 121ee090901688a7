/* SPDX-License-Identifier: MIT
 *
 * The `hazard` backend: freeing a block retires it (docs/internals/reclaim.md).
 */
#ifndef GPUALLOC_HAZARD_HAZARD_H
#define GPUALLOC_HAZARD_HAZARD_H

#include <gpualloc/backend.h>

extern const ga_backend ga_hazard_backend;

#endif
