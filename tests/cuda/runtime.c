/* SPDX-License-Identifier: MIT
 *
 * A program with the CUDA runtime linked into it. With the driver for tests it runs until the
 * runtime has found its functions, and prints the runtime's error then.
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
