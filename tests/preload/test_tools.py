#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The preload beside tools that watch malloc: valgrind, and those that wrap the loader's functions.

usage: test_tools.py
"""

import shutil
import unittest

import support

HOSTS = ("system", "jemalloc", "slab/system", "slab/jemalloc", "hazard/jemalloc", "vmm", "slab/vmm")


class Valgrind(support.Case):

    def setUp(self) -> None:
        super().setUp()
        self.valgrind = shutil.which("valgrind") or ""
        if not self.valgrind:
            self.skipTest("there is no valgrind")

    def watch(self, host: str, *options: str) -> None:
        with self.subTest(f"{host} {options[0]}"):
            outcome = support.run(self.valgrind, "-q", *options,
                                  str(support.PROGRAMS / "debugged"), timeout=120,
                                  environment={"GPUALLOC_HOST": host})
            self.assertEqual((outcome.status, outcome.stdout), (0, "debugged: used\n"),
                             outcome.stderr)
            self.assertEqual(outcome.stderr, "")

    def test_memcheck(self) -> None:
        for host in HOSTS:
            self.watch(host, "--tool=memcheck", "--error-exitcode=9", "--leak-check=full",
                       "--show-leak-kinds=definite")

    def test_massif(self) -> None:
        for host in HOSTS:
            self.watch(host, "--tool=massif", f"--massif-out-file={self.folder / 'massif'}")


class Loader(support.Case):

    def test_wrapped_loader(self) -> None:
        for host in (*HOSTS, "vmm", "hardened"):
            with self.subTest(host):
                outcome = support.run("wrapped_loader", environment={"GPUALLOC_HOST": host})
                self.assertEqual((outcome.status, outcome.stderr), (0, ""))
                self.assertEqual(outcome.stdout, "calls of the allocator to the loader: 0\n")

    def test_heaptrack(self) -> None:
        heaptrack = shutil.which("heaptrack")
        if not heaptrack:
            self.skipTest("there is no heaptrack")
        outcome = support.run(heaptrack, "-o", str(self.folder / "out"), "/bin/ls", "/", timeout=60,
                              environment={"GPUALLOC_HOST": "jemalloc"})
        self.assertEqual(outcome.status, 0, outcome.stderr)


if __name__ == "__main__":
    support.main()
