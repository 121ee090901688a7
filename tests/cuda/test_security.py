#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of device backends in docs/security.md: every cell is tried."""

import security_table
import support
from driver import Case

# Rows of the table, and the misuse that the program `abused` commits for each.
KINDS = {
    "double free, at once": "double-free",
    "double free, after another free": "double-free-later",
    "double free of 40 MiB": "double-free-large",
    "double free, the second by `cuMemFreeAsync`": "double-free-on-stream",
    "double free, the first by `cuMemFreeAsync`": "double-free-of-stream",
    "free inside a block of 1000 bytes": "interior-free",
    "free inside a block of 40 MiB": "interior-free-large",
    "free of memory that is no device's": "foreign-free",
    "`cuMemFree` of pinned host memory": "host-free",
}


class Security(Case):

    def try_cell(self, column: str, row: str) -> str:
        outcome = self.run_cuda("abused", KINDS[row], preload=column != "driver",
                                device="" if column == "driver" else column)
        self.assertEqual(outcome.status, 0, outcome.stdout + outcome.stderr)
        return outcome.stdout.splitlines()[0]

    def test_every_cell(self) -> None:
        for column, cells in security_table.read("driver").items():
            self.assertEqual(set(cells), set(KINDS))
            for row, expected in cells.items():
                with self.subTest(f"{column}: {row}"):
                    self.assertEqual(self.try_cell(column, row), expected)


if __name__ == "__main__":
    support.main()
