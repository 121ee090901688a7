/* SPDX-License-Identifier: MIT
 *
 * Kernels that allocate in each way that device code has: directly, below functions, in recursion,
 * through pointers to functions, by new and delete; beside calls of vprintf and __assertfail, which
 * a patch must keep. Compiled to the images of the unit test.
 */
#include <cassert>
#include <cstdio>

struct node {
    node *next;
    int value;
};

struct alignas(64) wide {
    int values[16];
};

typedef node *maker(int value);

extern "C" __device__ __noinline__ node *make(int value)
{
    node *made = (node *)malloc(sizeof(node));
    if (made) {
        made->value = value;
        made->next = NULL;
    }
    return made;
}

extern "C" __device__ __noinline__ void drop(node *gone)
{
    free(gone);
}

extern "C" __device__ __noinline__ node *make_list(int length, node *tail)
{
    if (!length) {
        return tail;
    }
    node *head = make(length);
    head->next = tail;
    node *list = make_list(length - 1, head);
    list->value += length;
    return list;
}

__device__ maker *makers[2] = {make, make};

/* All of the program's constants are zeros, which a file need not store. */
__constant__ unsigned zeros[64];

extern "C" __global__ void below(node **out)
{
    out[threadIdx.x] = make((int)threadIdx.x);
}

extern "C" __global__ void dropping(node **out)
{
    drop(out[threadIdx.x]);
}

extern "C" __global__ void recursive(node **out)
{
    out[threadIdx.x] = make_list(5, NULL);
    printf("%d\n", threadIdx.x);
}

extern "C" __global__ void pure(node **out)
{
    out[threadIdx.x] = out[zeros[threadIdx.x % 64]];
}

extern "C" __global__ void with_new(node **out)
{
    node *made = new node[threadIdx.x + 1];
    assert(made);
    out[threadIdx.x] = made;
    delete[] made;
}

extern "C" __global__ void with_aligned_new(wide **out)
{
    out[threadIdx.x] = new wide[threadIdx.x + 1];
}

extern "C" __global__ void indirect(node **out)
{
    out[threadIdx.x] = makers[threadIdx.x & 1](3);
}
