/* SPDX-License-Identifier: MIT
 *
 * row_tile.h for each type of values.
 */
#ifndef GPUALLOC_SPGEMM_VALUES_TILE_H
#define GPUALLOC_SPGEMM_VALUES_TILE_H

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "row_tile.h"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "row_tile.h"

#endif
