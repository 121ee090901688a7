#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CuPy on a heap of gpualloc, without CuPy's pool: every array is a block of the heap, allocated
and freed in the order of the stream that was current at its allocation.

  GPUALLOC_DEVICE=vmm python3 cupy_allocator.py [libgpualloc.so.0]
"""

import ctypes
import sys

import cupy


class Allocator:
    """Blocks in stream order, and CuPy's own exception where there is no memory."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self.library.ga_framework_alloc.restype = ctypes.c_void_p
        self.library.ga_framework_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.library.ga_framework_free.restype = None
        self.library.ga_framework_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                                   ctypes.c_void_p]
        # The stream itself, because CuPy destroys one that nothing refers to.
        self.blocks: dict[int, tuple[int, cupy.cuda.Stream]] = {}

    def malloc(self, size: int, device: int) -> int:
        stream = cupy.cuda.get_current_stream()
        block = self.library.ga_framework_alloc(size, device, stream.ptr)
        if not block:
            raise cupy.cuda.memory.OutOfMemoryError(size, sum(s for s, _ in self.blocks.values()))
        self.blocks[block] = (size, stream)
        return block

    def free(self, block: int, device: int) -> None:
        size, stream = self.blocks.pop(block)
        self.library.ga_framework_free(block, size, device, stream.ptr)


def main() -> None:
    ours = Allocator(sys.argv[1] if len(sys.argv) > 1 else "libgpualloc.so.0")
    allocator = cupy.cuda.PythonFunctionAllocator(ours.malloc, ours.free)
    cupy.cuda.set_allocator(allocator.malloc)
    total = sum(int(cupy.arange(n).sum()) for n in range(0, 100000, 1000))
    assert total == sum(n * (n - 1) // 2 for n in range(0, 100000, 1000))
    try:
        cupy.empty(1 << 42, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        print("cupy: same")


main()
