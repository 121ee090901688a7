#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The malloc family at all moments of a process: before main and after it, in other threads that
begin and end, around fork, under signals, inside the dynamic linker.

usage: test_moments.py CONFIGURATION
"""

import os
import shutil
import unittest

import support


class Moments(support.Case):

    def test_before_main_and_after(self) -> None:
        self.same_as_without("early")

    def test_ends_of_threads(self) -> None:
        self.same_as_without("thread_end")

    def test_dynamic_linker(self) -> None:
        copies = [self.folder / f"module-{i}.so" for i in range(40)]
        for copy in copies:
            shutil.copy(os.environ["GA_TLS_MODULE"], copy)
        self.same_as_without("loader", *map(str, copies))

    def test_forks(self) -> None:
        self.same_as_without("forks")

    def test_fork_handlers_older_than_the_first_allocation(self) -> None:
        self.same_as_without("fork_handlers")

    def test_forks_in_signal_handlers_that_interrupt_forks(self) -> None:
        if self.setup.library:
            self.skipTest("a wrapped library may take a lock twice there, as it does without us")
        self.same_as_without("forks_inside")

    def test_signals(self) -> None:
        self.same_as_without("signals")

    def test_exit(self) -> None:
        for _ in range(5):  # the other thread's activity at that moment is random
            self.same_as_without("at_exit")

    def test_spawn(self) -> None:
        self.same_as_without("spawn")


if __name__ == "__main__":
    support.main()
