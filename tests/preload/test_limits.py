#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Limits on address space: a program works within one, and survives to reach it.

usage: test_limits.py CONFIGURATION
"""

import resource
import unittest
from collections.abc import Callable

import support

MIB = 1 << 20


def limit(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


class Limits(support.Case):

    def test_two_gigabytes_are_enough(self) -> None:
        with self.subTest("thread_end"):
            self.same_as_without("thread_end", preexec_fn=limit(2048 * MIB))
        with self.subTest("family"):
            self.family(preexec_fn=limit(2048 * MIB))
        with self.subTest("foreign"):
            self.foreign(preexec_fn=limit(2048 * MIB))

    def test_hardly_any_addresses(self) -> None:
        """A program may fail there, but by its own exit. Less than this and the loader fails."""
        if self.setup.name == "tcmalloc":
            self.skipTest("tcmalloc aborts there")
        for kilobytes in range(10_000, 30_000, 500):
            size = kilobytes * 1024
            with self.subTest(kilobytes):
                without = support.run("exhausted", "5000", preload=False, preexec_fn=limit(size))
                outcome = support.run("exhausted", "5000", preexec_fn=limit(size),
                                      environment=self.setup.environment(self.folder))
                self.assertGreaterEqual(outcome.status, min(without.status, 0), outcome.stderr)

    def test_threads_that_begin_without_memory(self) -> None:
        without = support.run("no_memory_thread", preload=False)
        outcome = self.under("no_memory_thread")  # a trace that gets no chunk says so
        self.assertEqual(outcome.stdout, without.stdout)

    def test_memory_that_runs_out(self) -> None:
        for size in (500, 40_000, MIB):
            with self.subTest(size):
                without = support.run("exhausted", str(size), preload=False,
                                      preexec_fn=limit(512 * MIB))
                self.assertEqual(without.status, 0, without.stderr)
                # A trace that cannot grow any more reports it; the allocator may print a message,
                # too.
                outcome = self.under("exhausted", str(size), preexec_fn=limit(512 * MIB))
                self.assertEqual(outcome.stdout, without.stdout)

    def test_a_limit_that_the_program_sets(self) -> None:
        if self.setup.name != "vmm":
            self.skipTest("for heaps that reserve addresses as they grow")
        for host in ("vmm", "slab/vmm"):
            with self.subTest(host):
                outcome = support.run("self_limited", environment={"GPUALLOC_HOST": host})
                self.assertEqual((outcome.status, outcome.stdout, outcome.stderr),
                                 (0, "self_limited: limited\n", ""))


if __name__ == "__main__":
    support.main()
