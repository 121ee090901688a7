#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch's cache does with device memory, without PyTorch or a GPU: the rules of its large pool
(c10/cuda/CUDACachingAllocator.cpp), under the drift of torch_memory.py. It says when memory runs out,
and what the cache holds then. Below the cache nothing is lost: a piece of the card is had as long as
there are as many bytes.

  torch_cache.py [--card MIB] [--context MIB] [--fill PERCENT]
"""

import argparse
import bisect
from types import SimpleNamespace

import torch_memory

MIB = 1 << 20


class OutOfMemory(Exception):
    pass


class Block:
    """A piece of a segment, between its neighbours there."""

    def __init__(self, address: int, size: int, before: "Block | None" = None,
                 after: "Block | None" = None) -> None:
        self.address, self.size, self.before, self.after = address, size, before, after
        self.free = True

    def key(self) -> tuple[int, int]:
        return self.size, self.address


class Cache:
    def __init__(self, card: int) -> None:
        self.card, self.reserved, self.allocated = card, 0, 0
        self.segments = self.largest = 0
        self.free: list[Block] = []  # by size, then address

    @staticmethod
    def segment_size(size: int) -> int:
        if size <= MIB:
            return 2 * MIB
        return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB

    def give_back(self) -> None:
        """Segments of which nothing is in use."""
        whole = [block for block in self.free if not block.before and not block.after]
        self.reserved -= sum(block.size for block in whole)
        self.free = [block for block in self.free if block.before or block.after]

    def segment(self, size: int) -> Block:
        size = self.segment_size(size)
        if self.reserved + size > self.card:
            self.give_back()
        if self.reserved + size > self.card:
            raise OutOfMemory
        self.reserved += size
        self.segments += 1
        return Block(self.segments << 40, size)

    def put(self, block: Block) -> None:
        block.free = True
        bisect.insort(self.free, block, key=Block.key)

    def drop(self, block: Block) -> None:
        del self.free[bisect.bisect_left(self.free, block.key(), key=Block.key)]

    def cut(self, block: Block, size: int) -> None:
        if block.size - size > (MIB if size > MIB else 511):
            rest = Block(block.address + size, block.size - size, block, block.after)
            if block.after:
                block.after.before = rest
            block.after, block.size = rest, size
            self.put(rest)

    def take(self, size: int) -> Block:
        at = bisect.bisect_left(self.free, (size, 0), key=Block.key)
        block = self.free.pop(at) if at < len(self.free) else self.segment(size)
        self.cut(block, size)
        block.free = False
        self.allocated += block.size
        return block

    def join(self, block: Block, after: Block) -> None:
        block.size += after.size
        block.after = after.after
        if after.after:
            after.after.before = block

    def give(self, block: Block) -> None:
        self.allocated -= block.size
        if block.before and block.before.free:
            self.drop(block.before)
            self.join(block.before, block)
            block = block.before
        if block.after and block.after.free:
            self.drop(block.after)
            self.join(block, block.after)
        self.put(block)


class Tensor:
    def __init__(self, cache: Cache, size: int) -> None:
        self.cache, self.size = cache, size
        self.block = cache.take(-(-size // 512) * 512)

    def __del__(self) -> None:
        if hasattr(self, "block"):
            self.cache.give(self.block)

    def numel(self) -> int:
        return self.size

    def fill_(self, _: int) -> None:
        pass


def torch_of(cache: Cache, card: int) -> SimpleNamespace:
    """As much of PyTorch as the drift asks for."""
    def stats() -> dict[str, int]:
        cut = sum(block.size for block in cache.free if block.before or block.after)
        cache.largest = cache.free[-1].size if cache.free else 0
        return {"inactive_split_bytes.all.current": cut}
    cuda = SimpleNamespace(mem_get_info=lambda: (cache.card - cache.reserved, card),
                           synchronize=lambda: None, memory_stats=stats,
                           memory_allocated=lambda: cache.allocated,
                           memory_reserved=lambda: cache.reserved)
    return SimpleNamespace(cuda=cuda, uint8=None, OutOfMemoryError=OutOfMemory,
                           empty=lambda size, dtype, device: Tensor(cache, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--card", type=int, default=143771, help="MiB; an H200's by default")
    parser.add_argument("--context", type=int, default=700, help="MiB that are gone before")
    parser.add_argument("--fill", type=float, default=95, help="percent of the card")
    options = parser.parse_args()
    cache = Cache((options.card - options.context) * MIB)
    _, fault = torch_memory.drift(torch_of(cache, options.card * MIB), options.fill)
    print(f"{fault}; the largest of these: {cache.largest // MIB}" if fault else "all came")


if __name__ == "__main__":
    main()
