#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Primary contexts that programs release: memory that is freed with the last reference is freed
under the preload, too, and not before."""

import unittest

from driver import Case

SPECS = ("cuda", "async", "vmm", "slab/vmm", "vmm:pinned=64M", "vmm:free=event")
HELD = ("not_the_last", "unknown_holder")
GONE = ("last_one", "refused", "threads")  # the driver for tests keeps blocks of its own


class Released(Case):
    def test_without_a_heap(self) -> None:
        for name in HELD:
            with self.subTest(name):
                self.passes("released", name, preload=False)
                self.passes("released", name)

    def test_with_a_heap(self) -> None:
        for spec in SPECS:
            for name in HELD + GONE:
                with self.subTest(f"{name} {spec}"):
                    self.passes("released", name, device=spec)


if __name__ == "__main__":
    unittest.main()
