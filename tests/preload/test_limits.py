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

    def test_memory_that_runs_out(self) -> None:
        for size in (500, 40_000, MIB):
            with self.subTest(size):
                without = support.run("exhausted", str(size), preload=False,
                                      preexec_fn=limit(512 * MIB))
                self.assertEqual(without.status, 0, without.stderr)
                # A trace that cannot grow any more says so; whoever serves may say something.
                outcome = self.under("exhausted", str(size), preexec_fn=limit(512 * MIB))
                self.assertEqual(outcome.stdout, without.stdout)


if __name__ == "__main__":
    support.main()
