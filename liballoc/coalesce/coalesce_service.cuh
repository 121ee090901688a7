/* SPDX-License-Identifier: MIT
 *
 * Kernels with which the host takes and gives back single blocks; part of device_code.cu.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_SERVICE_CUH
#define GPUALLOC_COALESCE_COALESCE_SERVICE_CUH

#include "coalesce_kernel.h"

extern "C" __global__ void ga_coalesce_take_kernel(ga_kernel_heap heap, uint64_t size, void **out)
{
    *out = ga_coalesce_kernel_malloc(heap, size);
}

extern "C" __global__ void ga_coalesce_give_kernel(ga_kernel_heap heap, void *block)
{
    ga_coalesce_kernel_free(heap, block);
}

#endif
