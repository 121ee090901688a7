#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every path to a driver function finds the preload's, for every row of the hook table, and the
arguments that it passes on arrive. Lookups of programs without CUDA give the results without
the preload."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import support
from driver import HOOKS, LIBCUDA, LIBCUDA_OLD, Case, alone

ROW = re.compile(r"X\((\w+), (\w+), (\d+), (\w+), (ANY|LEGACY|THREAD),")
NCCL_ROW = re.compile(r"X\((nccl\w+), ")
OURS, THEIRS = "libgpualloc-cuda.so", "libcuda.so.1"
PAGE = HOOKS.parents[2] / "docs" / "reference" / "cuda-calls.md"
HOOK_LINE = re.compile(r'X\((\w+), (\w+), \d+, \w+, \w+,[ \\]*"([^"]*)"\)')
# The functions that are passed on, and their words on the page.
GROUPS = {
    "of CUDA before 3.2": "forms of CUDA before 3.2",
    "pinned host memory": "pinned host memory",
    "the program's own addresses": "mappings",
    "the program's own mappings": "mappings",
    "the program's own memory to map": "`cuMemCreate`",
    "the program's own pools": "pools",
    "memory of graphs": "graph nodes",
    "memory of other interfaces": "external memory",
}


def rows() -> list[tuple[str, str, str, str, str]]:
    return ROW.findall(HOOKS.read_text(encoding="utf-8"))


def nccl_rows() -> set[str]:
    return set(NCCL_ROW.findall((HOOKS.parent / "nccl_hooks.h").read_text(encoding="utf-8")))


class Hooks(Case):
    def test_every_way_to_every_row(self) -> None:
        outcome = self.passes("paths", OURS)
        self.assertEqual(outcome.stdout, f"paths: {len(rows())} rows, 0 not so\n")

    def test_entries_can_be_hooked(self) -> None:
        """By UCX and others, which write a jump over a function's first instructions."""
        outcome = self.passes("entries")
        self.assertEqual(outcome.stdout, f"entries: {len(rows())} rows, 0 not so\n")

    @unittest.skipUnless(os.path.exists(os.environ["GA_UCX"]), "UCX is not installed")
    @alone("its library has functions of its own under these names")
    def test_ucx_hooks_the_driver(self) -> None:
        folder = os.environ["GA_UCX"]
        for preload, device in ((False, ""), (True, ""), (True, "vmm")):
            with self.subTest(f"{preload} {device}"):
                self.passes("ucx", folder, preload=preload, device=device,
                            driver=f"{LIBCUDA}:{folder}")

    def test_without_the_preload_all_is_the_drivers(self) -> None:
        self.passes("paths", THEIRS, preload=False)

    def test_behind_the_other_preload(self) -> None:
        malloc = Path(support.PRELOAD).parent.parent / "malloc" / "libgpualloc-malloc.so"
        self.passes("paths", OURS, behind=str(malloc), GPUALLOC_HOST="system")

    def test_calls_are_counted(self) -> None:
        path = self.folder / "stats.json"
        self.passes("paths", OURS, GPUALLOC_STATS=str(path))
        calls = self.calls(path)
        passed = [symbol for kind, *_, symbol, _ in rows() if kind in ("PASSES", "RETRIES")]
        self.assertGreater(len(passed), 20)
        for symbol in passed:
            self.assertGreaterEqual(calls.get(symbol, 0), 9, symbol)
        text = self.passes("paths", OURS, quiet=False, GPUALLOC_STATS="1").stderr
        self.assertRegex(text, r"\Agpualloc: CUDA calls of paths, process \d+\n")
        self.assertRegex(text, r"(?m)^cuMemHostRegister_v2 +\d+$")

    @alone("python3 leaks")
    def test_old_driver(self) -> None:
        """A driver without cuGetProcAddress() and pools: its missing functions stay missing."""
        code = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); "
                "print(hasattr(d, 'cuMemAlloc_v2'), hasattr(d, 'cuGetProcAddress'), "
                "hasattr(d, 'cuMemAllocAsync'))")
        outcome = self.passes("/usr/bin/python3", "-c", code, driver=LIBCUDA_OLD)
        self.assertEqual(outcome.stdout, "True False False\n")

    @alone("it has functions of the C library's")
    def test_program_without_cuda(self) -> None:
        for preload in (True, False):
            self.passes("bystander", os.environ["GA_NAMESAKE"], preload=preload)
            self.passes("bystander", os.environ["GA_NAMESAKE"], preload=preload, driver="")

    @alone("it wants to be the first of each scope")
    def test_scopes(self) -> None:
        """Libraries loaded as usual find us; with a scope of their own they find the driver."""
        for how in ("plain", "deepbind", "namespace"):
            for preload, server in ((True, OURS), (False, THEIRS)):
                for device in ("vmm", "slab/vmm"):
                    with self.subTest(f"{how} {server} {device}"):
                        self.passes("scopes", how, os.environ["GA_APART"], server, device=device,
                                    preload=preload)

    def test_page(self) -> None:
        """The page names each function that is not just passed on, and each group that is."""
        page = PAGE.read_text(encoding="utf-8")
        groups = set()
        for line in HOOK_LINE.findall(" ".join(HOOKS.read_text(encoding="utf-8").split())):
            kind, name, what = line
            if kind == "PASSES":
                groups.add(what)
            else:
                self.assertTrue(f"`{name}" in page, name)
        self.assertEqual(groups, set(GROUPS))
        for words in GROUPS.values():
            self.assertTrue(words in page, words)

    def test_versions_of_the_table(self) -> None:
        """Each row's name and version are those of CUDA's own header."""
        header = Path(os.environ["GA_CUDA_HEADERS"]) / "cudaTypedefs.h"
        if not header.exists():
            self.skipTest(f"no {header}")
        known = set(re.findall(r"PFN_(\w+)\)", header.read_text(encoding="utf-8")))
        for _, name, since, symbol, streams in rows():
            suffix = "_ptsz" if streams == "THREAD" else ""
            self.assertIn(f"{name}_v{since}{suffix}", known)
            self.assertRegex(symbol, rf"^{name}(_v\d)?{suffix}$")

    def test_exports(self) -> None:
        text = subprocess.run(["nm", "-D", "--defined-only", support.PRELOAD], check=True,
                              capture_output=True, text=True).stdout
        exported = {line.split()[-1] for line in text.splitlines()}
        self.assertEqual(exported, {"dlsym", "dlvsym"} | {row[3] for row in rows()} | nccl_rows())

    @alone("it is needed, too")
    def test_needs_the_c_library_alone(self) -> None:
        text = subprocess.run(["readelf", "--wide", "--dynamic", support.PRELOAD], check=True,
                              capture_output=True, text=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        self.assertLessEqual(needed, {"libc.so.6", "libpthread.so.0", "libdl.so.2",
                                      "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})


if __name__ == "__main__":
    support.main()
