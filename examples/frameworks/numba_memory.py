#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Numba on a heap of gpualloc, by its interface for external memory managers, version 1.

  GPUALLOC_DEVICE=vmm NUMBA_CUDA_MEMORY_MANAGER=numba_memory python3 numba_memory.py

GPUALLOC_LIBRARY is libgpualloc.so.0 where the loader does not find it.
"""

import ctypes
import os

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

library = ctypes.CDLL(os.environ.get("GPUALLOC_LIBRARY", "libgpualloc.so.0"))
library.ga_cupy_malloc.restype = ctypes.c_void_p
library.ga_cupy_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
library.ga_cupy_free.restype = None
library.ga_cupy_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
library.ga_error_text.restype = ctypes.c_char_p


class GpuallocManager(HostOnlyCUDAMemoryManager):
    """Device memory from gpualloc; host memory as Numba does it."""

    interface_version = 1

    def initialize(self) -> None:
        """Numba calls it before each use of a context: there is nothing to set up."""

    def memalloc(self, size: int) -> MemoryPointer:
        device = self.context.device.id
        block = library.ga_cupy_malloc(None, size, device)
        if not block:
            raise MemoryError(library.ga_error_text().decode())

        def finalizer() -> None:
            library.ga_cupy_free(None, block, device)

        return MemoryPointer(self.context, ctypes.c_void_p(block), size, finalizer=finalizer)

    def get_memory_info(self) -> MemoryInfo:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        error = ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free),
                                                           ctypes.byref(total))
        if error:
            raise RuntimeError(f"cuMemGetInfo: {error}")
        return MemoryInfo(free=free.value, total=total.value)

    def get_ipc_handle(self, memory: MemoryPointer) -> None:
        raise NotImplementedError("gpualloc's blocks have no handles of CUDA IPC")


_numba_memory_manager = GpuallocManager


def main() -> None:
    @cuda.jit
    def double(values: object) -> None:
        i = cuda.grid(1)
        if i < values.size:
            values[i] *= 2

    import numpy

    there = cuda.to_device(numpy.arange(10000))
    double[100, 128](there)
    assert (there.copy_to_host() == 2 * numpy.arange(10000)).all()
    print("numba: same")


if __name__ == "__main__":
    main()
