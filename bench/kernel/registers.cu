/* SPDX-License-Identifier: MIT
 *
 * Kernels that only allocate and free, so that registers.py can read their registers. With LINKED
 * defined, malloc and free are those that the program is linked with.
 */
#include <gpualloc/device.cuh>

__global__ void take(ga_kernel_heap heap, size_t size, void **out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef LINKED
    out[i] = malloc(size + i);
#else
    out[i] = ga_kernel_malloc(heap, size + i);
#endif
}

__global__ void give_back(ga_kernel_heap heap, void **in)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef LINKED
    free(in[i]);
#else
    ga_kernel_free(heap, in[i]);
#endif
}
