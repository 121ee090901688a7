#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CuPy with kernels that allocate: one builds a linked list for each thread, another, of a second
module, sums the lists and frees them.

  gpualloc run --kernel=slab/vmm -- python3 cupy_lists.py

NVRTC compiles the modules. The program prints the same line with CUDA's malloc. Exit status 77: no
CuPy, or no GPU.
"""

import sys

try:
    import cupy
except ImportError:
    sys.exit(77)

THREADS = 4096

NODE = """
struct node {
    unsigned long long value;
    node *next;
};
"""

BUILD = NODE + """
extern "C" __global__ void build(node **lists)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    node *list = nullptr;
    for (unsigned i = 0; i < thread % 20; i++) {
        node *added = (node *)malloc(sizeof(node));
        if (added) {
            *added = {thread * i, list};
            list = added;
        }
    }
    lists[thread] = list;
}
"""

SUM = NODE + """
extern "C" __global__ void sum(node **lists, unsigned long long *sums)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    sums[thread] = 0;
    for (node *at = lists[thread]; at;) {
        node *next = at->next;
        sums[thread] += at->value;
        free(at);
        at = next;
    }
}
"""


def main() -> None:
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        sys.exit(77)
    build = cupy.RawModule(code=BUILD, options=("-std=c++17",)).get_function("build")
    total = cupy.RawModule(code=SUM, options=("-std=c++17",)).get_function("sum")
    lists = cupy.zeros(THREADS, dtype=cupy.uint64)
    sums = cupy.zeros(THREADS, dtype=cupy.uint64)
    build((THREADS // 128,), (128,), (lists,))
    total((THREADS // 128,), (128,), (lists, sums))
    expected = [n * sum(range(n % 20)) for n in range(THREADS)]
    assert sums.tolist() == expected
    print("cupy:", int(sums.sum()))


if __name__ == "__main__":
    main()
