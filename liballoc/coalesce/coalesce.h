/* SPDX-License-Identifier: MIT
 *
 * The `coalesce` backend: what lanes want together becomes one block of the parent's
 * (warp-coalescing-gpumpi-2022). coalesce_tile.h and coalesce_static.h have what kernels do;
 * docs/coalesce.md tells of it.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_H
#define GPUALLOC_COALESCE_COALESCE_H

#include <gpualloc/backend.h>

extern const ga_backend ga_coalesce_backend;

#endif
