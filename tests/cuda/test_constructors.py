#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Threads that hold the lock of the dynamic linker wait for none that needs it."""

import os
import unittest

from driver import Case

PLUGIN = os.environ["GA_PLUGIN"]


class Constructors(Case):
    def test_blocks(self) -> None:
        for variables in ({}, {"GPUALLOC_PLUGINS": PLUGIN}):
            for device in ("vmm", "async"):
                self.passes("constructors", "blocks", device=device, **variables)

    def test_library(self) -> None:
        for variables in ({}, {"GPUALLOC_PLUGINS": PLUGIN}):
            for case in ("frameworks", "kernels"):
                self.passes("constructors-library", case, preload=False, device="vmm", quiet=False,
                            GPUALLOC_KERNEL="slab:capacity=16M/vmm", **variables)


if __name__ == "__main__":
    unittest.main()
