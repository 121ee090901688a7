#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The n-th call for memory fails, or all from the n-th on, for each n: nth.c has the
requirements.

usage: test_nth.py SPEC [SPEC...]
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path

import support

# The values of nth_calls.h.
KINDS = {"mmap": 1, "munmap": 2, "mprotect": 4, "madvise": 8, "mremap": 16, "malloc": 32}
TRIES = "110"
# Where ga_*() is called: the same heaps as below malloc.
TRIES_HEAPS = "60"
# mimalloc retries forever if no mprotect succeeds, also if preloaded directly.
NOT_TRIED = {("mimalloc", "mprotect", "all")}


def library(name: str) -> Path:
    return support.PROGRAMS / name


def tried(spec: str, kind: str, mode: str) -> bool:
    return not any(part in spec and (kind, mode) == (of, which) for part, of, which in NOT_TRIED)


class Nth(unittest.TestCase):
    specs: list[str] = []

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="gpualloc-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def spec(self, text: str) -> str:
        """A trace has a file, and a library its path; "" where that is missing."""
        for name in ("libmimalloc.so.2", "libtcmalloc_minimal.so.4"):
            if name in text and not support.find_library(name):
                return ""
        return text.replace("trace/", f'trace:file="{self.folder}/t.%p"/')

    def each(self) -> list[tuple[str, str, str]]:
        return [(spec, kind, mode) for spec in map(self.spec, self.specs) if spec
                for kind in KINDS for mode in ("one", "all") if tried(spec, kind, mode)]

    def all_well(self, outcome: support.Outcome) -> None:
        self.assertEqual(outcome.status, 0, outcome.stderr)
        self.assertNotIn("FAILED", outcome.stdout, outcome.stderr)
        self.assertRegex(outcome.stdout, r"^\d+ tried\n$")

    def run_nth(self, calls: str, preload: bool, arguments: list[str], **more: str
                ) -> support.Outcome:
        libraries = [str(library(calls))] + [support.PRELOAD] * preload
        return support.run("nth", *arguments, preload=False, timeout=150,
                           environment={"LD_PRELOAD": ":".join(libraries),
                                        "GPUALLOC_LOG": "error"} | more)

    def test_malloc(self) -> None:
        for spec, kind, mode in self.each():
            with self.subTest(spec=spec, kind=kind, mode=mode):
                self.all_well(self.run_nth("libnth_calls.so", True, [str(KINDS[kind]), mode, TRIES],
                                           GPUALLOC_HOST=spec))

    def test_heaps(self) -> None:
        for spec, kind, mode in self.each():
            with self.subTest(spec=spec, kind=kind, mode=mode):
                self.all_well(self.run_nth("libnth_calls_public.so", False,
                                           [str(KINDS[kind]), mode, TRIES_HEAPS, spec]))

    def test_start(self) -> None:
        """Calls that fail from the first on, while the heap is being opened; the last n is one that
        the program does not reach, or 12."""
        for spec, kind, mode in self.each():
            for n in range(1, 13):
                with self.subTest(spec=spec, kind=kind, mode=mode, n=n):
                    if self.start(spec, kind, mode, n) < n:
                        break

    def start(self, spec: str, kind: str, mode: str, n: int) -> int:
        """The number of calls that the program made, or n if it ended because there is no heap."""
        outcome = support.run(
            "nth_start", preload=False,
            environment={"LD_PRELOAD": f"{library('libnth_calls.so')}:{support.PRELOAD}",
                         "GPUALLOC_HOST": spec,
                         "NTH_FROM_START": f"{KINDS[kind]}:{n}:{int(mode == 'all')}"})
        # 2: no memory for any heap, with a sentence.
        self.assertIn(outcome.status, (0, 2), outcome.stderr)
        self.assertEqual(outcome.status == 2, not outcome.stdout, outcome.stderr)
        if not outcome.stdout:
            return n
        self.assertRegex(outcome.stdout, r"^\d+ served, \d+ calls\n$")
        return int(outcome.stdout.split()[2])


if __name__ == "__main__":
    Nth.specs = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    os.environ.pop("NTH_FROM_START", None)
    support.main()
