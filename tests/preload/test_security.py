#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of docs/security.md: every cell is tried.

usage: test_security.py
"""

import concurrent.futures
import ctypes
import os
import platform
import signal
import unittest

import security_table
import support

# Rows of the table, and the misuse that the program `abuse` commits for each.
KINDS = {
    "double free, at once": "double-free",
    "double free, after another free": "double-free-later",
    "double free, after 500 others": "double-free-much-later",
    "double free, the block in another thread's cache": "double-free-thread",
    "double free of 1 MiB": "double-free-large",
    "realloc of a free block, to a smaller size": "realloc-after-free",
    "free of memory that is no heap's": "foreign-free",
    "the same, forged to look like a block of glibc": "forged-free",
    "free inside a block of 64 bytes": "interior-free",
    "free inside a block of 48 bytes, at 16": "aligned-interior-free",
    "free inside a block, forged to look like a block of glibc": "forged-interior-free",
    "free inside a block of 1 MiB": "interior-free-large",
    "read after free": "read-after-free",
    "read after free of 1 MiB": "read-after-free-large",
    "write after free, and the next owner": "write-after-free",
    "write after free, over a free-list link": "link-after-free",
    "old contents in a new block": "contents-handed-on",
    "old contents in a new block of 1 MiB": "contents-handed-on-large",
    "overflow by a byte": "overflow-one",
    "overflow by two pages": "overflow-pages",
    "overflow by two pages, from 1 MiB": "overflow-pages-large",
    "underflow by a word": "underflow",
    "free of a block of glibc's own malloc": "free-of-libc",
}
HEAPS = "`ga_free` of a block of another heap"
GLIBC = "2.36"
MIMALLOC = 209


def effect(outcome: support.Outcome) -> str:
    """The table's word for the outcome."""
    harm = outcome.stdout.strip()
    if outcome.status == -signal.SIGABRT and outcome.stderr:
        return "ends"
    if outcome.status == -signal.SIGSEGV:
        return "faults"
    if outcome.status != 0 or not harm:
        return f"status {outcome.status}, {outcome.stderr}"
    shared = harm in ("two owners", "steered", "others changed")
    if outcome.stderr:
        return f"reported, yet {harm}" if shared else "reported"
    return "harmless" if harm == "none" else "not seen"


def obstacle_to(column: str) -> str:
    """Why the column cannot be tried here; empty where it can."""
    if column == "glibc" and platform.libc_ver() != ("glibc", GLIBC):
        return f"the table is of glibc {GLIBC}, this is {' '.join(platform.libc_ver())}"
    if column.startswith("dl:"):
        library = support.find_library(column.removeprefix("dl:"))
        if not library or ctypes.CDLL(library).mi_version() != MIMALLOC:
            return f"the table is of mimalloc {MIMALLOC}"
    return ""


class Security(support.Case):

    def try_cell(self, column: str, row: str) -> str:
        environment = {} if column == "glibc" else {"GPUALLOC_HOST": column}
        if row == HEAPS:
            spec = "system" if column == "glibc" else column
            return effect(support.run("abuse_heaps", spec, preload=False))
        return effect(support.run("abuse", KINDS[row], environment=environment,
                                  preload=column != "glibc"))

    def check(self, column: str, run_as: str, cells: dict[str, str]) -> None:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            seen = pool.map(lambda row: self.try_cell(run_as, row), cells)
        for (row, expected), word in zip(cells.items(), seen):
            with self.subTest(f"{run_as}: {row}"):
                self.assertIn(word, expected.split(" or "))

    def test_every_cell(self) -> None:
        table = security_table.read("glibc")
        for column, cells in table.items():
            self.assertEqual(set(cells), {*KINDS, HEAPS})
            if why := obstacle_to(column):
                print(f"{column}: not tried: {why}")
            else:
                self.check(column, column, cells)

    def test_system_is_as_glibc(self) -> None:
        if why := obstacle_to("glibc"):
            self.skipTest(why)
        self.check("glibc", "system", security_table.read("glibc")["glibc"])


if __name__ == "__main__":
    support.main()
