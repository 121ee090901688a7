#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Users of memory, while the n-th call for it fails, or all from the n-th on: nth_users.c has
the requirements."""

import tempfile
import unittest

import support
from test_nth import KINDS, TRIES, library

HEAPS = ["system", "vmm", "hardened", "slab/system", "slab/vmm", "slab:unit=128/vmm", "hazard/vmm",
         "hazard/slab/system", "fail:nth=0/vmm", "trace/vmm", "jemalloc", "slab/jemalloc",
         "dl:libmimalloc.so.2"]  # tcmalloc's dlopen() ends the process where malloc fails


class Users(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="gpualloc-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def each_kind(self, *user: str, host: str = "") -> None:
        for kind, number in KINDS.items():
            for mode in ("one", "all"):
                with self.subTest(user=user, host=host, kind=kind, mode=mode):
                    outcome = support.run(
                        "nth_users", str(number), mode, TRIES, *user, preload=False, timeout=150,
                        environment={"LD_PRELOAD": str(library("libnth_calls_public.so")),
                                     "GPUALLOC_LOG": "error", "GPUALLOC_HOST": host})
                    self.assertEqual(outcome.status, 0, outcome.stderr)
                    self.assertRegex(outcome.stdout, r"\A\d+ tried\n\Z", outcome.stderr)

    def test_heaps(self) -> None:
        """They are opened, used and closed."""
        for spec in HEAPS:
            self.each_kind("heap", spec.replace("trace/", f'trace:file="{self.folder}/t"/'))

    def test_arenas(self) -> None:
        self.each_kind("arena")
        self.each_kind("vector")

    def test_domains(self) -> None:
        self.each_kind("domain")

    def test_tables(self) -> None:
        self.each_kind("slabhash")
        for host in ("system", "slab/vmm", "hardened"):
            self.each_kind("lfht", host=host)


if __name__ == "__main__":
    support.main()
