/* SPDX-License-Identifier: MIT
 *
 * What programs of the CUDA runtime print that are run without the preload and with it.
 */
#ifndef GPUALLOC_TESTS_CUDA_GPU_SAY_H
#define GPUALLOC_TESTS_CUDA_GPU_SAY_H

#include <cuda_runtime_api.h>

#include <stdio.h>

static inline void say(const char *what, cudaError_t result)
{
    printf("%-40s %s\n", what, cudaGetErrorName(result));
    cudaGetLastError();
}

static inline void need(const char *what, int holds)
{
    printf("%-40s %s\n", what, holds ? "yes" : "NO");
}

/* Whether the block's first, middle and last byte are `value`. */
static inline int holds(const void *block, size_t size, int value)
{
    size_t places[] = {0, size / 2, size - 1};
    int good = 1;
    for (int i = 0; i < 3; i++) {
        unsigned char byte = 0;
        const char *at = (const char *)block + places[i];
        good &= cudaMemcpy(&byte, at, 1, cudaMemcpyDeviceToHost) == cudaSuccess;
        good &= byte == value;
    }
    return good;
}

#endif
