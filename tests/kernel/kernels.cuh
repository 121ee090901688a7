/* SPDX-License-Identifier: MIT
 *
 * The kernels of kernel_tests: plain device code that calls malloc, free, new and delete.
 */
#ifndef GPUALLOC_TESTS_KERNEL_KERNELS_CUH
#define GPUALLOC_TESTS_KERNEL_KERNELS_CUH

#include <new>
#include <stdint.h>
#include <stdlib.h>

enum {
    SIZE = 200
};

__global__ void take(void **out, size_t size)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    out[me] = malloc(size);
    if (out[me]) {
        *(uint32_t *)out[me] = me;
    }
}

__global__ void give(void **in, uint32_t *wrong)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    if (in[me] && *(uint32_t *)in[me] != me) {
        atomicAdd(wrong, 1);
    }
    free(in[me]);
}

__global__ void take_aligned(void **out, size_t size)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    out[me] = __nv_aligned_device_malloc(size, (size_t)16 << me % 6);
}

/* Different sizes in a warp, which are coalesced into one block. */
__global__ void take_mixed(void **out)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    out[me] = malloc(4 + me * 37 % 900);
    if (out[me]) {
        *(uint32_t *)out[me] = me;
    }
}

/* A tree whose nodes have different sizes; deleting its root deletes all. */
struct tree {
    tree *child[2];
    uint32_t value;
    __device__ explicit tree(uint32_t v) : child{NULL, NULL}, value(v)
    {
    }
    __device__ ~tree()
    {
        delete child[0];
        delete child[1];
    }
};

/* A node's number decides which children exist; one path reaches the last level. */
static __device__ __noinline__ tree *grow(uint32_t value, uint32_t levels, bool path,
                                          uint32_t *nodes)
{
    void *room = malloc(sizeof(tree) + value * 2654435761u % 64);
    if (!room) {
        return NULL;
    }
    tree *root = new (room) tree(value);
    atomicAdd(nodes, 1);
    for (uint32_t i = 0; levels && i < 2; i++) {
        uint32_t number = 2 * value + i;
        bool on = path && i == value % 2;
        bool bush = levels % 32 - 1 < 4 && number * 2654435761u % 4 != 0; /* 1 to 4 levels */
        if (on || bush) {
            root->child[i] = grow(number, on ? levels - 1 : levels % 32 - 1, on, nodes);
        }
    }
    return root;
}

__global__ void grow_trees(void **roots, uint32_t levels, uint32_t *nodes)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    roots[me] = grow(me + 1, levels, true, nodes);
}

__global__ void cut_trees(void **roots)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    delete (tree *)roots[me ^ 33];
}

/* Each thread frees invalid pointers: on its stack, in a program's own memory, behind the beginning
 * of a block. Then the block. */
__global__ void free_wrongly(void **out, char *foreign)
{
    uint32_t me = blockIdx.x * blockDim.x + threadIdx.x;
    volatile uint32_t local = me;
    char *block = (char *)malloc(SIZE);
    out[me] = block;
    __syncwarp();
    free((void *)&local);
    free(foreign + 16 * me);
    free(block + 16);
    free(NULL);
    free(block);
}

/* Each block twice: by one thread, then by another; and by two lanes at once. */
__global__ void free_twice(void **out)
{
    static __shared__ void *blocks[32];
    blocks[threadIdx.x] = malloc(SIZE);
    out[threadIdx.x] = blocks[threadIdx.x];
    __syncthreads();
    free(blocks[threadIdx.x / 2]);
    __syncthreads();
    free(blocks[31 - threadIdx.x]);
}

/* One block, whose last words are written, too. */
__global__ void take_large(void **out, size_t size)
{
    char *block = (char *)malloc(size);
    *out = block;
    if (block) {
        *(uint32_t *)block = 0;
        *(uint32_t *)(block + size - 4) = 1;
    }
}

__global__ void take_and_trap()
{
    if (malloc(SIZE) || threadIdx.x == 0) {
        __trap();
    }
}

#endif
