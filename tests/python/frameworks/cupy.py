# SPDX-License-Identifier: MIT
"""A stand-in for CuPy. Its pool keeps freed blocks."""

import ctypes
import types


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total):
        super().__init__(f"{size} bytes beside {total}")


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"CUDA error {status}")
        self.status = status


class Stream:
    """Destroyed when nothing refers to it any more."""

    def __init__(self):
        handle = ctypes.c_void_p()
        assert not ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), 1)
        self.ptr = handle.value

    def __del__(self):
        assert not ctypes.CDLL("libcuda.so.1").cuStreamDestroy_v2(ctypes.c_void_p(self.ptr))

    def __enter__(self):
        _streams.append(self)

    def __exit__(self, *unused):
        _streams.pop()


_streams = [types.SimpleNamespace(ptr=0)]


class PythonFunctionAllocator:
    def __init__(self, malloc, free):
        self.functions = malloc, free

    def free(self, block):
        self.functions[1](block, 0)

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
        block = self._try_malloc(size)
        if block is None:
            self.free_all_blocks()
            block = self._try_malloc(size)
        if block is None:
            raise OutOfMemoryError(size, self.total)
        self.total += size
        return block

    def _try_malloc(self, size):
        """None if there is no memory; other errors leave the pool."""
        try:
            return self.malloc_below(size)
        except CUDARuntimeError as error:
            if error.status != 2:
                raise
            return None

    def free_all_blocks(self):
        while self.free_blocks:
            block, size = self.free_blocks.pop()
            self.total -= size
            self.malloc_below.__self__.free(block)

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
    set_allocator=set_allocator,
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
    get_current_stream=lambda: _streams[-1], Stream=Stream)
