#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library for aligned blocks, before a malloc library that misaligns some or lacks some of the
functions. GA_ALIGN is the library, GA_NEW_MODULE a library of C++.

usage: test_aligned.py LIBRARY
"""

import os
import shutil
import sys

import support

ALIGN = os.environ["GA_ALIGN"]


class Aligned(support.Case):
    library: str

    def aligned(self, program: str, *arguments: str, behind: str | None = None
                ) -> support.Outcome:
        preload = ":".join(filter(None, [ALIGN, self.library if behind is None else behind]))
        outcome = support.run(program, *arguments, preload=False,
                              environment={"LD_PRELOAD": preload})
        self.assertEqual((0, ""), (outcome.status, outcome.stderr), outcome.stdout)
        return outcome

    def test_functions(self) -> None:
        lines = dict(line.split(" ", 1) for line in self.aligned("aligned").stdout.splitlines())
        self.assertEqual((self.library, ALIGN), (lines["malloc"], lines["memalign"]))

    def test_exhausted_memory(self) -> None:
        self.assertEqual("exhausted\n", self.aligned("aligned", "exhausted").stdout)

    def test_operators(self) -> None:
        self.assertEqual("forms of new\n", self.aligned("aligned_new").stdout)

    def test_operators_of_a_library_that_is_loaded_late(self) -> None:
        """With C++'s own, which the program does not have."""
        self.assertEqual("forms of new\n",
                         self.aligned("aligned", "load", os.environ["GA_NEW_MODULE"]).stdout)

    def test_no_library_behind(self) -> None:
        """The C library serves, which has no operators."""
        for arguments in (["aligned"], ["aligned_new"], ["early"],
                          ["aligned", "load", os.environ["GA_NEW_MODULE"]]):
            with self.subTest(arguments):
                self.aligned(*arguments, behind="")

    def test_moments(self) -> None:
        modules = [self.folder / f"module-{i}.so" for i in range(40)]
        for module in modules:
            shutil.copy(os.environ["GA_TLS_MODULE"], module)
        for program, *arguments in (["thread_end"], ["loader", *map(str, modules)], ["forks"],
                                    ["spawn"], ["at_exit"], ["small_stack"]):
            with self.subTest(program):
                without = support.run(program, *arguments, preload=False)
                self.assertEqual(without.stdout, self.aligned(program, *arguments).stdout)


if __name__ == "__main__":
    Aligned.library = support.find_library(sys.argv.pop(1))
    if not Aligned.library:
        support.skip("the library is not installed")
    support.main()
