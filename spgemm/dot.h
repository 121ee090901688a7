/* SPDX-License-Identifier: MIT
 *
 * A row of C = A B by dot products: A's row is merged with each column of B (vmm-spgemm-2023,
 * Listing 2.1). By one thread, on the host or a device. An entry is added up in a register and
 * stored if there is room for it, so that none is stored in part.
 */
#ifndef GPUALLOC_SPGEMM_DOT_H
#define GPUALLOC_SPGEMM_DOT_H

#include "round_tile.h"

#include <gpualloc/matrix.h>

#define GA_DOT_NO_LIMIT 0xffffffffu /* room for any row */

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "dot_of.h"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "dot_of.h"

#endif
