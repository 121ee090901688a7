/* SPDX-License-Identifier: MIT
 *
 * row_tile.cuh for each type of values.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_VALUES_TILE_CUH
#define GPUALLOC_SPGEMM_DEVICE_VALUES_TILE_CUH

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "row_tile.cuh"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "row_tile.cuh"

#endif
