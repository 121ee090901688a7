#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on a heap of gpualloc, chosen from within the program, in either of two ways.

  GPUALLOC_DEVICE=vmm python3 torch_allocator.py [libgpualloc.so.0]            a MemPool
  GPUALLOC_DEVICE=vmm python3 torch_allocator.py [libgpualloc.so.0] --whole    all tensors

Prefer the MemPool: PyTorch's cache stays in front of the heap, and its statistics, snapshots and
out-of-memory handling work as ever. --whole replaces PyTorch's allocator: every tensor is a block
of the heap, and calls that plug-ins do not implement raise an error (docs/guide/frameworks.md).

A program that is to run unchanged needs neither: gpualloc run --device=vmm python3 train.py
"""

import ctypes
import sys

import torch

WORDS = [word for word in sys.argv[1:] if not word.startswith("--")]
LIBRARY = WORDS[0] if WORDS else "libgpualloc.so.0"


def address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of the library is: torch takes optional functions as numbers."""
    value = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert value, name
    return value


def plugin() -> torch.cuda.memory.CUDAPluggableAllocator:
    return torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "ga_torch_alloc", "ga_torch_free")


def use_for_all() -> None:
    """Before the first tensor on a GPU: an allocator cannot be changed after that."""
    library = ctypes.CDLL(LIBRARY)
    allocator = plugin()
    inner = allocator.allocator()
    inner.set_init_fn(address(library, "ga_torch_init"))
    inner.set_reset_fn(address(library, "ga_torch_reset"))
    inner.set_memory_fraction_fn(address(library, "ga_torch_memory_fraction"))
    inner.set_base_alloc_fn(address(library, "ga_torch_base_alloc"))
    inner.set_record_stream_fn(address(library, "ga_torch_record_stream"))
    torch.cuda.memory.change_current_allocator(allocator)


def on_a_side_stream(a: torch.Tensor, b: torch.Tensor) -> None:
    """Free tensors that another stream still reads; record_stream() delays the reuse of their
    memory."""
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


def work() -> None:
    a = torch.randn(2000, 2000, device="cuda")
    b = torch.eye(2000, device="cuda")
    for _ in range(100):
        assert torch.equal(a @ b, a)
    on_a_side_stream(a, b)
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("torch: same")


def main() -> None:
    if "--whole" in sys.argv:
        use_for_all()
        work()
        return
    allocator = plugin()  # lives as long as the pool
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        work()


main()
