/* SPDX-License-Identifier: MIT
 *
 * Search trees that grow inside a kernel: each thread inserts its own numbers with malloc, walks
 * its tree, and a second kernel takes the trees apart with free. The program knows nothing of
 * gpualloc: linked with libgpualloc-kernel.a it says the same, served by the heap that
 * GPUALLOC_KERNEL names. README.md has the ways to build it.
 */
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdio.h>

struct node {
    node *less, *more;
    uint32_t key, count;
};

static const uint32_t TREES = 1u << 12, KEYS = 32;

static __device__ uint32_t next_key(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 24;
}

/* False where there is no memory for one more. */
static __device__ bool insert(node **root, uint32_t key)
{
    node **at = root;
    while (*at && (*at)->key != key) {
        at = key < (*at)->key ? &(*at)->less : &(*at)->more;
    }
    if (!*at) {
        *at = (node *)malloc(sizeof **at);
        if (!*at) {
            return false;
        }
        **at = node{nullptr, nullptr, key, 0};
    }
    (*at)->count++;
    return true;
}

__global__ void grow(node **trees, unsigned long long *inserted, unsigned long long *lost)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = me;
    node *root = nullptr;
    for (uint32_t i = 0; i < KEYS; i++) {
        atomicAdd(insert(&root, next_key(&state)) ? inserted : lost, 1ull);
    }
    trees[me] = root;
}

/* Takes the least node out, again and again: no stack. */
__global__ void fell(node **trees, unsigned long long *counted)
{
    node *root = trees[blockIdx.x * blockDim.x + threadIdx.x];
    while (root) {
        node **at = &root;
        while ((*at)->less) {
            at = &(*at)->less;
        }
        node *least = *at;
        *at = least->more;
        atomicAdd(counted, (unsigned long long)least->count);
        free(least);
    }
}

int main()
{
    node **trees;
    unsigned long long *counts, found[3];
    if (cudaMalloc(&trees, TREES * sizeof *trees) != cudaSuccess ||
        cudaMalloc(&counts, sizeof found) != cudaSuccess ||
        cudaMemset(counts, 0, sizeof found) != cudaSuccess) {
        fprintf(stderr, "no GPU: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 77;
    }
    for (int round = 0; round < 3; round++) {
        grow<<<TREES / 128, 128>>>(trees, &counts[0], &counts[1]);
        fell<<<TREES / 128, 128>>>(trees, &counts[2]);
    }
    if (cudaMemcpy(found, counts, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) {
        fprintf(stderr, "the kernels failed: %s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    printf("%llu keys inserted, %llu lost, %llu counted\n", found[0], found[1], found[2]);
    return found[0] != found[2] || found[1] != 0;
}
