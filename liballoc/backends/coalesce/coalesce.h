/* SPDX-License-Identifier: MIT
 *
 * The `coalesce` backend: the requests that the lanes of a warp make together become one block of
 * the parent (warp-coalescing-gpumpi-2022). coalesce_tile.h and coalesce_static.h have the code
 * of kernels; docs/internals/coalesce.md describes the backend.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_H
#define GPUALLOC_COALESCE_COALESCE_H

#include <gpualloc/backend.h>

extern const ga_backend ga_coalesce_backend;

#endif
