# SPDX-License-Identifier: MIT
"""Programs with the stand-in for the driver, with and without the preload."""

import json
import os
import subprocess
import unittest
from pathlib import Path

import support

REPO = Path(__file__).resolve().parents[2]
HOOKS = REPO / "interpose" / "cuda" / "hooks.h"
LIBCUDA = os.environ["GA_LIBCUDA"]
LIBCUDA_OLD = os.environ["GA_LIBCUDA_OLD"]
LIBCUDA_BETWEEN = os.environ["GA_LIBCUDA_BETWEEN"]
ENVIRONMENT = ("LD_LIBRARY_PATH",)


def alone(why: str) -> object:
    """For a test that is impossible if a sanitizer's library is preloaded as well."""
    return unittest.skipIf(bool(support.FIRST), "beside a sanitizer: " + why)


class Case(support.Case):
    """A test with a folder of its own."""

    def run_cuda(self, program: str, *arguments: str, driver: str = LIBCUDA, device: str = "",
                 preload: bool = True, behind: str = "", process: dict[str, object] | None = None,
                 **variables: str | None) -> support.Outcome:
        """Run a program to its end; `device` is GPUALLOC_DEVICE, `variables` more of the kind
        (None: unset), `process` options of Popen. No compiled PTX is kept, unless asked for."""
        environment = {"LD_LIBRARY_PATH": driver, "GPUALLOC_DEVICE": device,
                       "GPUALLOC_CACHE": ""} | variables
        return support.run(program, *arguments, environment=environment, preload=preload,
                           behind=behind, **(process or {}))

    def passes(self, program: str, *arguments: str, quiet: bool = True,
               **options: object) -> support.Outcome:
        """Run a program that finds everything as it expects, and says nothing else."""
        outcome = self.run_cuda(program, *arguments, **options)
        self.assertEqual(outcome.status, 0, outcome.stdout + outcome.stderr)
        if quiet:
            self.assertEqual(outcome.stderr, "")
        return outcome

    def calls(self, path: Path) -> dict[str, int]:
        """The counts of the table's functions in a report."""
        for line in path.read_text(encoding="utf-8").splitlines():
            report = json.loads(line)
            if "calls" in report:
                return report["calls"]
        self.fail(f"no calls in {path.read_text(encoding='utf-8')}")
