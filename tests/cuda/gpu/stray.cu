/* SPDX-License-Identifier: MIT
 *
 * A program with a fault for compute-sanitizer to find: a kernel writes one byte past a block, or
 * into a block that was freed.
 *
 *   stray past|after BYTES
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void write_at(unsigned char *at)
{
    *at = 1;
}

int main(int count, char **words)
{
    unsigned char *block = nullptr;
    if (count != 3 || cudaMalloc(&block, std::strtoull(words[2], nullptr, 10)) != cudaSuccess) {
        std::fprintf(stderr, "stray past|after BYTES, on a machine with a GPU\n");
        return 2;
    }
    size_t size = std::strtoull(words[2], nullptr, 10);
    if (std::strcmp(words[1], "after") == 0) {
        cudaFree(block);
        size = 0;
    }
    write_at<<<1, 1>>>(block + size);
    cudaDeviceSynchronize(); /* an error is the tool's to report */
    return 0;
}
