# SPDX-License-Identifier: MIT
"""The work of python3 under test: structures, text, threads, processes, and a checksum of each."""

import gc
import hashlib
import json
import multiprocessing
import pickle
import random
import re
import threading
import zlib


def checksum(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def structures() -> object:
    numbers = random.Random(1)
    table = {f"key {i}": [numbers.randrange(1000) for _ in range(i % 20)] for i in range(60_000)}
    back = json.loads(json.dumps(table))
    assert back == table and pickle.loads(pickle.dumps(table)) == table
    return sorted((len(value), key) for key, value in back.items())[-1000:]


def text() -> object:
    words = " ".join(f"word{i % 977}" for i in range(100_000))
    found = re.findall(r"word(\d*7)\b", words)
    return len(found), zlib.crc32(zlib.compress(words.encode())), words.count("word1 ")


def cycles() -> object:
    class Node:
        def __init__(self) -> None:
            self.links: list[Node] = []

    nodes = [Node() for _ in range(50_000)]
    for i, node in enumerate(nodes):
        node.links = [nodes[i * 7 % 50_000], nodes[i * 13 % 50_000]]
    del nodes, node
    return gc.collect() >= 50_000


def in_threads() -> object:
    sums: dict[int, int] = {}

    def work(n: int) -> None:
        strings = [str(i) * (i % 50) for i in range(n * 3000)]
        sums[n] = sum(map(len, strings))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(sums.items())


def square(n: int) -> int:
    return sum([i * i for i in range(n * 1000)])


def in_processes() -> object:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        return pool.map(square, range(20))


def big_numbers() -> object:
    number = 3 ** 40_000
    return number % (10 ** 50), len(hex(number ** 3)), bytearray(b"x" * 30_000_000).count(b"x")


if __name__ == "__main__":
    for step in (structures, text, cycles, in_threads, in_processes, big_numbers):
        print(step.__name__, checksum(step()))
