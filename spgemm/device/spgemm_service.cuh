/* SPDX-License-Identifier: MIT
 *
 * The kernels of products; part of device_code.cu.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_SPGEMM_SERVICE_CUH
#define GPUALLOC_SPGEMM_DEVICE_SPGEMM_SERVICE_CUH

#include "dot_kernel.cuh"
#include "dynamic_kernel.cuh"
#include "gaps_kernel.cuh"
#include "grid_kernel.cuh"
#include "plan_kernel.cuh"
#include "rows_kernel.cuh"
#include "scan_kernel.cuh"

#endif
