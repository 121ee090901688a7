#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rules of the driver that programs and libraries rely on: the memory behind a block, limits
that count all memory, pools."""

import os
import unittest

import support
from driver import Case

MIB = 1 << 20


class Mapped(Case):
    def test_without_the_preload(self) -> None:
        for name in ("behind_blocks", "of_the_program", "half_a_question"):
            self.passes("mapped", name, "ipc", preload=False)

    def test_behind_blocks(self) -> None:
        """By default other processes can map blocks of vmm, and blocks of all heaps have no
        handle."""
        for spec in ("", "cuda", "vmm", "slab/vmm", "vmm:ipc=handle", "vmm:chunk=2M"):
            with self.subTest(spec):
                self.passes("mapped", "behind_blocks", "ipc", device=spec)
        for spec in ("vmm:ipc=none", "vmm:share=none"):
            with self.subTest(spec):
                outcome = self.passes("mapped", "behind_blocks", device=spec, quiet=False)
                self.assertRegex(outcome.stderr, r"\Agpualloc: cuIpcGetMemHandle: .*\n\Z")

    def test_parts_of_the_drivers_blocks(self) -> None:
        """The handle of the whole would be of other memory than the range says."""
        outcome = self.passes("mapped", "behind_blocks", "some", device="slab/cuda", quiet=False)
        self.assertRegex(outcome.stderr, r"\Agpualloc: cuIpcGetMemHandle: .*\n\Z")

    def test_device_that_cannot_share(self) -> None:
        """By default it is served all the same; if handles are requested, the spec is wrong."""
        outcome = self.passes("mapped", "behind_blocks", device="vmm", quiet=False,
                              STAND_IN_NO_FD="1")
        self.assertRegex(outcome.stderr, r"\Agpualloc: cuIpcGetMemHandle: .*\n\Z")
        outcome = self.passes("serving", "blocks", "driver", device="vmm:ipc=handle", quiet=False,
                              STAND_IN_NO_FD="1")
        self.assertIn("GA_ARENA_SHARE_FD", outcome.stderr)

    def test_descriptors(self) -> None:
        self.passes("mapped", "descriptors", device="vmm", quiet=False)
        self.passes("mapped", "descriptors", device="slab/vmm", quiet=False)

    def test_of_the_program(self) -> None:
        for spec in ("", "vmm", "slab/vmm", "async"):
            self.passes("mapped", "of_the_program", device=spec)

    def test_half_a_question(self) -> None:
        for spec in ("", "cuda", "vmm", "vmm:limit=100M", "cuda:limit=100M", "async"):
            with self.subTest(spec):
                self.passes("mapped", "half_a_question", device=spec)


class Limited(Case):
    def test_each_kind_of_memory(self) -> None:
        for spec in ("cuda:limit=100M", "vmm:limit=100M", "async:limit=100M",
                     "slab:limit=100M/vmm"):
            for name in ("blocks", "pools", "created", "segments", "arrays", "beside_caches",
                         "after_reset"):
                with self.subTest(f"{name} {spec}"):
                    self.passes("limited", name, device=spec)


class Pools(Case):
    SPECS = {"": ["driver"], "cuda": ["driver"], "async": ["heap"], "vmm": ["heap", "mapped"]}

    def each(self, name: str, **options: str) -> None:
        for spec, told in self.SPECS.items():
            with self.subTest(f"{name} {spec or 'without'}"):
                self.passes("pools", name, *told, device=spec, **options)

    def test_without_the_preload(self) -> None:
        for name in ("statistics", "trimmed", "current", "access", "access_first"):
            self.passes("pools", name, "driver", preload=False, STAND_IN_DEVICES="2")

    def test_statistics(self) -> None:
        self.each("statistics")

    def test_trimmed(self) -> None:
        self.each("trimmed")

    def test_current_pool(self) -> None:
        self.each("current")

    def test_access(self) -> None:
        self.each("access", STAND_IN_DEVICES="2")
        self.each("access_first", STAND_IN_DEVICES="2")

    def test_heaps_on_two_devices(self) -> None:
        for spec in ("async", "vmm"):
            with self.subTest(spec):
                self.passes("pools", "two_heaps", *self.SPECS[spec], device=spec,
                            STAND_IN_DEVICES="2")


class Outsiders(Case):
    """Backends of a plugin are served by their capabilities."""

    def outcome(self, name: str, backend: str) -> support.Outcome:
        return self.passes("outsiders", name, backend, device=backend, quiet=False,
                           GPUALLOC_PLUGINS=os.environ["GA_OUTSIDER"], STAND_IN_DEVICES="2")

    def test_frees_wait_once(self) -> None:
        for backend in ("plain", "able"):
            with self.subTest(backend):
                self.assertEqual("", self.outcome("waits", backend).stderr)

    def test_peers(self) -> None:
        self.assertIn("to be accessed by another device", self.outcome("peers", "plain").stderr)
        self.assertEqual("", self.outcome("peers", "able").stderr)


if __name__ == "__main__":
    support.main()
