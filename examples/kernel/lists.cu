/* SPDX-License-Identifier: MIT
 *
 * Lists that grow inside a kernel: each thread turns its text into a list of words, whose nodes
 * come from a slab heap, and a second kernel takes the lists apart again.
 *
 *     nvcc -std=c++17 lists.cu -o lists $(pkg-config --cflags --libs gpualloc)
 *     ./lists [SPEC]                 default: slab:unit=32,capacity=64M/cuda
 */
#include <gpualloc/device.cuh>

#include <cstdio>

struct node {
    node *next;
    uint32_t begin, length; /* of the word in the text */
};

static const uint32_t TEXTS = 1u << 16, LENGTH = 64;

static __device__ char letter(uint32_t text, uint32_t at)
{
    return (text * 2654435761u + at * 40503u) >> 13 & 7u ? 'x' : ' ';
}

/* One list for each thread; *lost counts the words for which there was no node. */
__global__ void __maxnreg__(32)
    split(ga_kernel_heap heap, node **lists, unsigned long long *words, unsigned long long *lost)
{
    uint32_t text = blockIdx.x * blockDim.x + threadIdx.x;
    node *list = nullptr;
    for (uint32_t at = 0; at < LENGTH; at++) {
        if (letter(text, at) == ' ') {
            continue;
        }
        uint32_t begin = at;
        while (at < LENGTH && letter(text, at) != ' ') {
            at++;
        }
        node *n = (node *)ga_kernel_malloc(heap, sizeof *n);
        atomicAdd(n ? words : lost, 1ull);
        if (n) {
            *n = node{list, begin, at - begin};
            list = n;
        }
    }
    lists[text] = list;
}

__global__ void __maxnreg__(32) take_apart(ga_kernel_heap heap, node **lists)
{
    node *n = lists[blockIdx.x * blockDim.x + threadIdx.x];
    while (n) {
        node *next = n->next;
        ga_kernel_free(heap, n);
        n = next;
    }
}

static int complain(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ga_error_text());
    return 1;
}

int main(int argc, char **argv)
{
    const char *spec = argc > 1 ? argv[1] : "slab:unit=32,capacity=64M/cuda";
    ga_heap *heap;
    ga_kernel_heap view;
    ga_stats stats;
    node **lists;
    unsigned long long *counts, found[2];
    if (ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec) != GA_OK) {
        return complain("cannot open the heap");
    }
    if (ga_heap_kernel_view(heap, &view) != GA_OK) {
        return complain("no view for kernels");
    }
    if (cudaMalloc(&lists, TEXTS * sizeof *lists) != cudaSuccess ||
        cudaMalloc(&counts, sizeof found) != cudaSuccess ||
        cudaMemset(counts, 0, sizeof found) != cudaSuccess) {
        fprintf(stderr, "no device memory\n");
        return 1;
    }
    split<<<TEXTS / 256, 256>>>(view, lists, &counts[0], &counts[1]);
    if (cudaMemcpy(found, counts, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess ||
        ga_heap_stats(heap, &stats) != GA_OK) {
        return complain("the kernel failed");
    }
    printf("%llu words, %llu without a node; %llu nodes live\n", found[0], found[1],
           (unsigned long long)stats.live_blocks);
    take_apart<<<TEXTS / 256, 256>>>(view, lists);
    if (cudaDeviceSynchronize() != cudaSuccess || ga_heap_stats(heap, &stats) != GA_OK) {
        return complain("the kernel failed");
    }
    printf("%llu nodes live at the end\n", (unsigned long long)stats.live_blocks);
    cudaFree(lists);
    cudaFree(counts);
    ga_heap_close(heap);
    return stats.live_blocks != 0 || found[1] != 0;
}
