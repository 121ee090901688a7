#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on a heap of gpualloc: torch's own cache is out of the way, every tensor is a block.

  GPUALLOC_DEVICE=vmm python3 torch_allocator.py [libgpualloc.so.0]
"""

import ctypes
import sys

import torch

LIBRARY = sys.argv[1] if len(sys.argv) > 1 else "libgpualloc.so.0"


def address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of the library is: torch takes optional functions as numbers."""
    value = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert value, name
    return value


def use_gpualloc() -> None:
    """Before the first tensor on a GPU: an allocator cannot be changed after that."""
    library = ctypes.CDLL(LIBRARY)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "ga_torch_alloc",
                                                         "ga_torch_free")
    inner = allocator.allocator()
    inner.set_init_fn(address(library, "ga_torch_init"))
    inner.set_reset_fn(address(library, "ga_torch_reset"))
    inner.set_memory_fraction_fn(address(library, "ga_torch_memory_fraction"))
    inner.set_base_alloc_fn(address(library, "ga_torch_base_alloc"))
    inner.set_record_stream_fn(address(library, "ga_torch_record_stream"))
    torch.cuda.memory.change_current_allocator(allocator)


def on_a_side_stream(a: torch.Tensor, b: torch.Tensor) -> None:
    """Tensors that another stream reads when they are freed: their memory is for others after that."""
    side = torch.cuda.Stream()
    sums = []
    for _ in range(100):
        c = a @ b
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums.append(c.sum())
        c.record_stream(side)
        del c
    torch.cuda.synchronize()
    assert all(torch.equal(each, sums[0]) for each in sums)


def main() -> None:
    use_gpualloc()
    a = torch.randn(2000, 2000, device="cuda")
    b = torch.eye(2000, device="cuda")
    for _ in range(100):
        assert torch.equal(a @ b, a)
    on_a_side_stream(a, b)
    print("torch: same")


main()
