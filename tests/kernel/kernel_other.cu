/* SPDX-License-Identifier: MIT */
#include "kernel_other.h"

#include <cuda_runtime.h>

static __global__ void other_take(void **out, uint32_t threads, size_t size)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    if (me < threads) {
        out[me] = malloc(size);
        if (out[me]) {
            *(uint32_t *)out[me] = me;
        }
    }
}

static __global__ void other_give(void **in, uint32_t threads)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    if (me < threads) {
        if (in[me] && *(uint32_t *)in[me] != me) {
            __trap();
        }
        free(in[me]);
    }
}

int kernel_other_take(void **out, uint32_t threads, size_t size)
{
    other_take<<<(threads + 255) / 256, 256>>>(out, threads, size);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

int kernel_other_give(void **in, uint32_t threads)
{
    other_give<<<(threads + 255) / 256, 256>>>(in, threads);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}
