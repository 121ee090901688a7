/* SPDX-License-Identifier: MIT
 *
 * The output of programs of the CUDA runtime that are run without the preload and with it.
 */
#ifndef GPUALLOC_TESTS_CUDA_GPU_SAY_H
#define GPUALLOC_TESTS_CUDA_GPU_SAY_H

#include <cuda_runtime_api.h>

#include <pthread.h>
#include <stdint.h>
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

/* True if the block's first, middle and last byte are `value`. */
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

enum {
    THREADS = 16
};

/* True if each thread succeeded: `work` gets its number, and returns its success. */
static inline int all_threads(void *(*work)(void *number))
{
    pthread_t all[THREADS];
    int good = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&all[i], NULL, work, (void *)(intptr_t)i);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(all[i], &result);
        good &= (int)(intptr_t)result;
    }
    return good;
}

#endif
