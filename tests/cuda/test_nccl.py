#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NCCL under the preload, with a stand-in for NCCL: its memory is the heap's, and memory that it
has registered stays."""

import os
import unittest

import support
from driver import LIBCUDA, Case, alone

HELD = "was freed while NCCL has it registered: it stays until its registration ends"
# Cases in which a block is freed while it is registered, and the others.
HOLDING = {"nccl": ("freed", "several", "two_blocks", "communicators", "windows", "grouped",
                    "destroyed_in_a_group", "simulated", "nonblocking", "not_destroyed",
                    "ended_later", "polled_before", "ended_meanwhile", "registered_again",
                    "free_memory"),
           "nccl_faults": ("refused_ends", "in_progress", "captures", "reset", "reset_while_kept",
                           "threads")}
OTHERS = {"nccl": ("served", "beside_work", "wrong", "beside", "ended_in_its_group"),
          "nccl_faults": ("refused_registrations", "failing_driver")}


class Nccl(Case):
    def run_case(self, name: str, program: str = "nccl", device: str = "vmm",
                 nccl: str = "GA_LIBNCCL", **variables: str) -> support.Outcome:
        return self.passes(program, name, device=device, quiet=False,
                           driver=f"{LIBCUDA}:{os.environ[nccl]}", **variables)

    def under_each(self, cases: dict[str, tuple[str, ...]]) -> list[str]:
        """Run each case with NCCL's functions found by dlsym() and by the linker, under each spec;
        returns the lines that each printed."""
        told = []
        for program in ("nccl", "nccl_faults", "nccl-linked"):
            for device in ("vmm", "slab/vmm", "vmm:free=event"):
                for name in cases[program.replace("-linked", "")]:
                    with self.subTest(f"{program} {device} {name}"):
                        told.append(self.run_case(name, program, device).stderr)
        return told

    def test_blocks_that_stay(self) -> None:
        """One line says so, for the first."""
        for told in self.under_each(HOLDING):
            self.assertEqual(told.count("\n"), 1, told)
            self.assertIn(HELD, told)

    def test_a_block_of_the_drivers_stays(self) -> None:
        told = self.run_case("driver_owned", device="cuda").stderr
        self.assertIn(HELD, told)

    def test_other_cases(self) -> None:
        self.assertEqual(set(self.under_each(OTHERS)), {""})

    def test_a_library_with_an_nccl_of_its_own(self) -> None:
        self.run_case("groups", "nccl-within")

    @alone("malloc is the sanitizer's")
    def test_memory_for_records_that_ends(self) -> None:
        self.run_case("no_records", "nccl_faults")

    def test_nccl_serves_itself(self) -> None:
        """Without a spec, under heaps that do not map memory, and on a device that cannot share."""
        for device in ("", "cuda", "async"):
            with self.subTest(device):
                self.assertEqual(self.run_case("passed", device=device).stderr, "")
        told = self.run_case("refused", device="vmm", STAND_IN_NO_FD="1",
                             GPUALLOC_LOG="info").stderr
        self.assertIn("ncclMemAlloc: NCCL serves device 0: vmm: device 0 cannot share memory by "
                      "file descriptors", told)

    def test_limit(self) -> None:
        self.run_case("limited", device="vmm:limit=64M")

    def test_memory_that_ends(self) -> None:
        self.run_case("exhausted", STAND_IN_MEMORY=str(64 << 20))

    def test_devices_that_are_let_in_later(self) -> None:
        self.run_case("let_in", STAND_IN_MEMORY=str(64 << 20), STAND_IN_DEVICES="2")

    def test_old_nccl(self) -> None:
        self.run_case("old", nccl="GA_LIBNCCL_OLD")

    @alone("its library has functions of its own under these names")
    def test_without_nccl(self) -> None:
        """A program finds none of NCCL's functions, if NCCL is not loaded, and none of a driver's.
        Python needs an error text."""
        code = ("import ctypes; d = ctypes.CDLL(None); "
                "print(hasattr(d, 'ncclMemAlloc'), hasattr(d, 'cuMemAlloc_v2'))")
        outcome = self.passes("/usr/bin/python3", "-c", code, driver="")
        self.assertEqual(outcome.stdout, "False False\n")


if __name__ == "__main__":
    unittest.main()
