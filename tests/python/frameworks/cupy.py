# SPDX-License-Identifier: MIT
"""A stand-in for CuPy. Its pool keeps freed blocks."""

import types


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total):
        super().__init__(f"{size} bytes beside {total}")


class PythonFunctionAllocator:
    def __init__(self, malloc, free):
        self.functions = malloc, free

    def malloc(self, size):
        return self.functions[0](size, 0)


class MemoryPool:
    def __init__(self, malloc=None):
        self.malloc_below = malloc
        self.free_blocks, self.total = [], 0

    def malloc(self, size):
        for block in self.free_blocks:
            if block[1] == size:
                self.free_blocks.remove(block)
                return block[0]
        self.total += size
        return self.malloc_below(size)

    def total_bytes(self):
        return self.total

    def used_bytes(self):
        return self.total - sum(size for _, size in self.free_blocks)


_default_memory_pool = MemoryPool()
_allocator = _default_memory_pool.malloc


def get_default_memory_pool():
    return _default_memory_pool


def set_allocator(malloc):
    global _allocator
    _allocator = malloc


class ndarray:
    def __init__(self, size):
        self.size, self.block = size, 0
        self.block = _allocator(size)

    def __del__(self):
        if self.block:
            _default_memory_pool.free_blocks.append((self.block, self.size))


def empty(size):
    return ndarray(size)


cuda = types.SimpleNamespace(
    PythonFunctionAllocator=PythonFunctionAllocator, MemoryPool=MemoryPool,
    set_allocator=set_allocator, memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    get_current_stream=lambda: types.SimpleNamespace(ptr=0))
