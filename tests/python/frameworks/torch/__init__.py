# SPDX-License-Identifier: MIT
"""A stand-in for PyTorch."""

import types

from . import cuda

version = types.SimpleNamespace(cuda="13.0")


class device:
    def __init__(self, text):
        self.type, _, index = text.partition(":")
        self.index = int(index) if index else None


class Tensor:
    def __init__(self, size):
        cuda.initialized = True
        self.size, self.allocator = size, cuda.memory.current
        self.block = self.allocator.malloc(size, cuda.current_device(), None)
        if not self.block:
            raise MemoryError(size)

    def __del__(self):
        if self.block:
            self.allocator.release(self.block, self.size, cuda.current_device(), None)


def empty(size):
    return Tensor(size)
