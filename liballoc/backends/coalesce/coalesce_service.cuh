/* SPDX-License-Identifier: MIT
 *
 * Kernels by which the host allocates and frees single blocks; part of device_code.cu.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_SERVICE_CUH
#define GPUALLOC_COALESCE_COALESCE_SERVICE_CUH

#include "coalesce_kernel.h"

extern "C" __global__ void ga_coalesce_alloc_kernel(ga_kernel_heap heap, uint64_t size, void **out)
{
    *out = ga_coalesce_kernel_malloc(heap, size);
}

extern "C" __global__ void ga_coalesce_free_kernel(ga_kernel_heap heap, void *block)
{
    ga_coalesce_kernel_free(heap, block);
}

#endif
