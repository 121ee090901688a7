/* SPDX-License-Identifier: MIT
 *
 * Arrays that grow inside a kernel, by a header alone: each thread writes down the path of its
 * number (half of it, or three times and one more, until it is 1), whose length is not known in
 * advance, and a second kernel reads the paths and frees them. Compiled without -rdc=true and
 * without the archive.
 *
 *     nvcc -std=c++17 -arch=sm_90 paths.cu -o paths $(pkg-config --cflags --libs gpualloc)
 *     GPUALLOC_KERNEL=slab/vmm GPUALLOC_LOG=info ./paths
 *
 * With GPUALLOC_REPLACE_MALLOC the kernels go on saying malloc and free; without it they say
 * ga_device_malloc() and ga_device_free().
 */
#include <gpualloc/gpualloc.h>

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

#define GPUALLOC_REPLACE_MALLOC
#include <gpualloc/malloc.cuh> /* last */

static const uint32_t PATHS = 1u << 16;

struct path {
    uint32_t *steps;
    uint32_t length, room;
};

/* False where there is no memory for one more. */
static __device__ bool append(path *p, uint32_t step)
{
    if (p->length == p->room) {
        uint32_t room = p->room ? 2 * p->room : 8;
        uint32_t *steps = (uint32_t *)malloc(room * sizeof *steps);
        if (!steps) {
            return false;
        }
        for (uint32_t i = 0; i < p->length; i++) {
            steps[i] = p->steps[i];
        }
        free(p->steps);
        p->steps = steps;
        p->room = room;
    }
    p->steps[p->length++] = step;
    return true;
}

/* The path of each number, *steps altogether; *lost counts the paths that found no room. */
__global__ void __maxnreg__(32)
    follow(path *paths, unsigned long long *steps, unsigned long long *lost)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    path p = {nullptr, 0, 0};
    uint32_t number = me + 1;
    while (number != 1) {
        number = number % 2 ? 3 * number + 1 : number / 2;
        if (!append(&p, number)) {
            atomicAdd(lost, 1ull);
            break;
        }
    }
    atomicAdd(steps, (unsigned long long)p.length);
    paths[me] = p;
}

/* Each step has to follow from the one before; *good counts those that do. */
__global__ void check(path *paths, unsigned long long *good)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    path p = paths[me];
    uint32_t number = me + 1;
    for (uint32_t i = 0; i < p.length; i++) {
        number = number % 2 ? 3 * number + 1 : number / 2;
        if (p.steps[i] == number) {
            atomicAdd(good, 1ull);
        }
    }
    free(p.steps);
}

int main()
{
    path *paths;
    unsigned long long *counts, found[3];
    if (cudaMalloc(&paths, PATHS * sizeof *paths) != cudaSuccess ||
        cudaMalloc(&counts, sizeof found) != cudaSuccess ||
        cudaMemset(counts, 0, sizeof found) != cudaSuccess) {
        fprintf(stderr, "no GPU: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 77;
    }
    if (ga_device_malloc_init() != GA_OK) {
        fprintf(stderr, "no heap for kernels: %s\n", ga_error_text());
        return 1;
    }
    follow<<<PATHS / 128, 128>>>(paths, &counts[0], &counts[1]);
    check<<<PATHS / 128, 128>>>(paths, &counts[2]);
    if (cudaMemcpy(found, counts, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) {
        fprintf(stderr, "the kernels failed: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    printf("%llu steps, %llu lost, %llu right\n", found[0], found[1], found[2]);
    return found[0] != found[2] || found[1] != 0;
}
