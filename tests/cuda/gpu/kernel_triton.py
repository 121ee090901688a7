#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A Triton kernel that allocates. Triton has no malloc in its language, but calls any device
function by name: the PTX keeps malloc and free as undefined functions, as nvcc's does.

  kernel_triton.py

Each thread builds a list and frees it. A program has no more threads than elements, or several
threads would run one element's calls. The line must be equal with CUDA's malloc and with
gpualloc's. Exit status 77: no GPU, no Triton or no PyTorch.
"""

import sys

try:
    import torch
    import triton
    import triton.language as tl
    from triton.language import core
except ImportError:
    sys.exit(77)

WARPS = 4
ELEMENTS = 32 * WARPS  # of a program
PROGRAMS = 64


@core.extern
def device_malloc(size, _semantic=None):
    return core.extern_elementwise(
        "", "", [size], {(core.dtype("int64"), ): ("malloc", core.dtype("int64"))}, is_pure=False,
        _semantic=_semantic)


# Triton wants a result of every function; nobody reads this one.
@core.extern
def device_free(block, _semantic=None):
    return core.extern_elementwise(
        "", "", [block], {(core.dtype("int64"), ): ("free", core.dtype("int32"))}, is_pure=False,
        _semantic=_semantic)


@triton.jit
def lists(sums, elements: tl.constexpr, length: tl.constexpr):
    at = tl.program_id(0) * elements + tl.arange(0, elements)
    head = at.to(tl.int64) * 0
    for i in range(length):
        node = device_malloc((at % 8 + 2).to(tl.int64) * 8)
        words = node.to(tl.pointer_type(tl.int64))
        tl.store(words, head)
        tl.store(words + 1, at.to(tl.int64) * i + 1)
        head = node
    total = at.to(tl.int64) * 0
    for _ in range(length):
        words = head.to(tl.pointer_type(tl.int64))
        following = tl.load(words)
        total = total * 3 + tl.load(words + 1)
        device_free(head)
        head = following
    tl.store(sums + at, total)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit(77)
    sums = torch.zeros(PROGRAMS * ELEMENTS, dtype=torch.int64, device="cuda")
    lists[(PROGRAMS, )](sums, ELEMENTS, 7, num_warps=WARPS)
    print("triton", sums.sum().item(), sums[1::997].tolist())


if __name__ == "__main__":
    main()
