/* SPDX-License-Identifier: MIT
 *
 * A program with the CUDA runtime linked into it. With the driver for tests it gets as far as the
 * runtime finds its functions, and says what the runtime says then.
 */
#include <cuda_runtime_api.h>

#include <stdio.h>

int main(void)
{
    void *block = NULL;
    int version = 0;
    cudaError_t asked = cudaDriverGetVersion(&version);
    cudaError_t result = cudaMalloc(&block, 1000);
    printf("runtime: %d %d %s\n", (int)asked, version, cudaGetErrorName(result));
    return asked != cudaSuccess;
}
