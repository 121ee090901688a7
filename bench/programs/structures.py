#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A real program for comparing allocators: build large structures, change them, drop them.

It prints one line that depends on every structure, so that runs under two allocators can be
compared. With PYTHONMALLOC=malloc every object is a malloc of its own, without only larger ones.

usage: structures.py [SCALE]        SCALE multiplies the work; 1.0 takes about two seconds
"""

import random
import sys


def words(rng: random.Random, count: int) -> list[str]:
    """Strings of 3 to 40 characters, each its own object."""
    return [f"{rng.getrandbits(rng.randrange(12, 160)):x}" for _ in range(count)]


def index(texts: list[str]) -> dict[str, list[int]]:
    """Where each prefix occurs: a growing dict of growing lists."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(text[:3], []).append(place)
    return places


def tree(rng: random.Random, count: int) -> list:
    """A binary search tree of [left, key, right] nodes in random order."""
    root: list = [None, 0.5, None]
    for _ in range(count):
        key, node = rng.random(), root
        while node[side := 0 if key < node[1] else 2] is not None:
            node = node[side]
        node[side] = [None, key, None]
    return root


def depth(root: list) -> int:
    deepest, todo = 0, [(root, 1)]
    while todo:
        node, level = todo.pop()
        deepest = max(deepest, level)
        todo += [(child, level + 1) for child in (node[0], node[2]) if child]
    return deepest


def churn(rng: random.Random, slots: int, rounds: int) -> int:
    """Replace buffers of mixed sizes at random, which fragments a heap."""
    held = [bytearray() for _ in range(slots)]
    for _ in range(rounds):
        held[rng.randrange(slots)] = bytearray(1 << rng.randrange(4, 15))
    return sum(map(len, held))


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    rng = random.Random(42)
    texts = words(rng, int(600_000 * scale))
    places = index(texts)
    longest = max(places.values(), key=len)
    ordered = "".join(sorted(texts)[::1000])
    del texts[::2]
    root = tree(rng, int(150_000 * scale))
    held = churn(rng, 4_000, int(600_000 * scale))
    print(len(places), len(longest), len(ordered), len(texts), depth(root), held)


if __name__ == "__main__":
    main()
