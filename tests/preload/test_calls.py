#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The malloc family call by call.

usage: test_calls.py CONFIGURATION
"""

import os
import unittest
from xml.etree import ElementTree

import support

OTHERS = ("libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4")


class Calls(support.Case):

    def test_the_preload_serves(self) -> None:
        lines = dict(line.split(" ", 1) for line in self.under("whose").stdout.splitlines())
        name = os.path.basename(support.PRELOAD)
        self.assertEqual(os.path.basename(lines["malloc"]), name)
        self.assertEqual(os.path.basename(lines["free"]), name)
        # 100 bytes are 104 to glibc. Size classes round to 112; of that, `hardened` keeps 8 for the
        #     canary.
        exact = ("system", "hazard/system", "hardened")
        self.assertEqual(lines["usable"], "104" if self.setup.host in exact else "112")

    def test_family(self) -> None:
        outcome = self.family()
        self.assertGreater(len(outcome.stdout.splitlines()), 60)
        self.assertRegex(outcome.stderr, r"in use bytes|allocs +\d")  # of malloc_stats()

    def test_documented(self) -> None:
        self.quiet(self.under("documented"))

    def test_questions(self) -> None:
        unknown = self.setup.name == "mimalloc"  # which has neither mallinfo() nor mallinfo2()
        outcome = self.under("questions", *(["unknown"] if unknown else []))
        document = ElementTree.fromstring(outcome.stdout)
        self.assertEqual(document.tag, "malloc")
        if unknown:
            return
        sizes = {entry.get("type"): int(entry.get("size", "0"))
                 for entry in document if entry.tag in ("system", "total")}
        self.assertGreaterEqual(sizes["current"] + sizes["mmap"], 64 << 20)

    def test_errno_kept(self) -> None:
        if self.setup.name == "mimalloc":
            self.skipTest("mimalloc changes errno where the kernel refuses to take pages back")
        self.same_as_without("errno_kept")

    def test_foreign_blocks(self) -> None:
        self.foreign()

    def test_small_stacks(self) -> None:
        self.same_as_without("small_stack")

    def test_another_allocator_behind(self) -> None:
        """For example one that the program is linked with. Some replace the C library's own
        names, too."""
        programs = ("small_stack", "at_exit")
        expected = [support.run(program, preload=False).stdout for program in programs]
        for library in filter(None, map(support.find_library, OTHERS)):
            for program, stdout in zip(programs, expected):
                with self.subTest(library=library, program=program):
                    outcome = self.under(program, behind=library)
                    self.assertEqual(outcome.stdout, stdout)
                    self.quiet(outcome)
            self.assertIn("usable 1", self.under("whose", behind=library).stdout)


if __name__ == "__main__":
    support.main()
