#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that programs free is returned to the device."""

import os
import shutil
import tempfile
import unittest

from driver import Case


class GivenBack(Case):
    def test_at_once(self) -> None:
        self.passes("given_back", "at_once", preload=False)
        for spec in ("cuda", "vmm:cache=0", "vmm:cache=0,free=event", "async:release=0"):
            with self.subTest(spec):
                self.passes("given_back", "at_once", device=spec)

    def test_after_a_time(self) -> None:
        for spec in ("vmm", "vmm:free=event", "vmm:cache=1G", "async"):
            option = f"{spec}{',' if ':' in spec else ':'}decay=500"
            for name in ("decays", "keeps_what_is_used"):
                with self.subTest(f"{name} {option}"):
                    self.passes("given_back", name, device=option)
        self.passes("given_back", "decays_when_asked", device="vmm:decay=500")

    def test_at_once_by_time(self) -> None:
        for spec in ("vmm:decay=0", "vmm:decay=0,free=event"):
            with self.subTest(spec):
                self.passes("given_back", "at_once", device=spec)

    def test_small_blocks(self) -> None:
        for spec in ("slab:keep=all/cuda", "slab:keep=all/vmm", "slab:keep=all/async",
                     "fail:nth=0/slab:keep=all/vmm"):
            for name in ("small_when_asked", "small_for_large"):
                with self.subTest(f"{name} {spec}"):
                    self.passes("given_back", name, device=spec)
        for spec in ("slab/cuda", "slab/vmm:cache=0", "slab/vmm:decay=0",
                     "slab:keep=1M/async:release=0"):
            with self.subTest(f"unasked {spec}"):
                self.passes("given_back", "small_unasked", device=spec)

    def test_by_default_not_so_soon(self) -> None:
        for spec in ("vmm", "async", "vmm:decay=-1", "async:decay=-1"):
            with self.subTest(spec):
                self.passes("given_back", "stays", device=spec)

    def test_under_the_cache_of_pytorch(self) -> None:
        """PyTorch does not keep freed memory, except in its own cache."""
        with tempfile.TemporaryDirectory() as folder:
            library = shutil.copy(os.environ["GA_NAMESAKE"], f"{folder}/libc10_cuda.so")
            for spec in ("vmm", "vmm:free=event", "vmm:rdma=off"):
                with self.subTest(spec):
                    self.passes("given_back", "at_once", library, device=spec)
            self.passes("given_back", "stays", library, device="vmm:cache=wide")
            self.passes("given_back", "stays", library, device="vmm",
                        PYTORCH_NO_CUDA_MEMORY_CACHING="1")


if __name__ == "__main__":
    unittest.main()
