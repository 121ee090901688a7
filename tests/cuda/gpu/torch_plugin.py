#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch with the library as its allocator, by both methods: requests that do not fit,
captures, streams.

GPUALLOC_DEVICE=vmm python3 torch_plugin.py plugin|pool libgpualloc.so.0
"""

import sys

import torch

WAY, LIBRARY = sys.argv[1], sys.argv[2]
MIB = 1 << 20


def out_of_memory() -> None:
    for _ in range(3):
        try:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
            raise SystemExit("a tensor of 4 TiB")
        except torch.OutOfMemoryError as error:
            assert "out of memory" in str(error), error
    assert int(torch.arange(1000, device="cuda").sum()) == 499500
    print("out of memory: torch.OutOfMemoryError")


def step(a: torch.Tensor) -> torch.Tensor:
    """Tensors that are freed while the stream captures, and memory that comes again."""
    for _ in range(20):
        b = a * 2
        c = b + 1
        a = c - b
    return a + b


def capture() -> None:
    given = torch.ones(MIB, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(given)
    others = [torch.full((MIB,), -1.0, device="cuda") for _ in range(40)]
    for value in (1.0, 2.0, 3.0):
        given.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, torch.full_like(result, 3.0)), (value, result[0])
    assert all(bool((t == -1).all()) for t in others), "a graph wrote into memory of others"
    del graph, result
    torch.cuda.empty_cache()
    print("capture: the same, and nobody else's memory")


def streams() -> None:
    side = torch.cuda.Stream()
    for _ in range(50):
        a = torch.randn(1000, 1000, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = (a @ a).sum()
        a.record_stream(side)
        del a
    torch.cuda.synchronize()
    assert torch.isfinite(b)
    print("streams: the same")


def main() -> None:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "ga_torch_alloc",
                                                         "ga_torch_free")
    if WAY == "plugin":
        torch.cuda.memory.change_current_allocator(allocator)
        out_of_memory()
        capture()
        streams()
        return
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        out_of_memory()
        streams()
        kept = torch.ones(64 * MIB, device="cuda")
        assert torch.cuda.memory_allocated() >= 256 * MIB
        torch.cuda.memory_snapshot()
    capture()
    del kept
    print("statistics: PyTorch's own")


main()
