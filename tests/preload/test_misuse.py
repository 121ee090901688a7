#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Misuse of malloc is harmless and reported once: no block gets two owners, and the C library gets
no address of ours.

usage: test_misuse.py
"""

import unittest

import support

# Each backend, and the misuse that it does not detect or report; that is harmless.
HOSTS = {
    "jemalloc": {("usable-size", 64), ("usable-size", 65536), ("usable-size", 5 << 20)},
    "vmm": set(),
    "slab/vmm": {("usable-size", 64)},
    "slab/jemalloc": {("usable-size", 64)},
}
KINDS = ("double-free", "double-free-sized", "realloc", "realloc-in-place", "reallocarray",
         "usable-size", "interior-free")
SIZES = (64, 65536, 5 << 20)


class Misuse(support.Case):

    def check(self, host: str, kind: str, size: int, silent: bool) -> None:
        outcome = support.run("misused", kind, str(size), *(["unnoticed"] if silent else []),
                              environment={"GPUALLOC_HOST": host})
        self.assertEqual(outcome.status, 0, outcome.stderr)
        lines = outcome.stderr.splitlines()
        self.assertEqual(len(lines), 0 if silent else 1, outcome.stderr)
        if not silent:
            self.assertTrue(lines[0].startswith("gpualloc: "), lines[0])
            address = int(outcome.stdout, 16) + (16 if kind == "interior-free" else 0)
            self.assertIn(hex(address), lines[0])
            self.assertIn("ignored", lines[0])

    def test_harmless_and_reported(self) -> None:
        for host, unnoticed in HOSTS.items():
            for kind in KINDS:
                for size in SIZES:
                    with self.subTest(f"{host} {kind} {size}"):
                        self.check(host, kind, size, (kind, size) in unnoticed)


if __name__ == "__main__":
    support.main()
