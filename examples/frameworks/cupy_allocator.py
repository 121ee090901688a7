#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CuPy on a heap of gpualloc: its pool is out of the way, every array is a block.

  GPUALLOC_DEVICE=vmm python3 cupy_allocator.py [libgpualloc.so.0]
"""

import ctypes
import sys

import cupy


def address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value
    assert value
    return value


def main() -> None:
    library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libgpualloc.so.0")
    # The first argument of both functions: 0 for the device's own heap.
    allocator = cupy.cuda.CFunctionAllocator(0, address(library.ga_cupy_malloc),
                                             address(library.ga_cupy_free), library)
    cupy.cuda.set_allocator(allocator.malloc)
    total = sum(int(cupy.arange(n).sum()) for n in range(0, 100000, 1000))
    assert total == sum(n * (n - 1) // 2 for n in range(0, 100000, 1000))
    print("cupy: same")


main()
