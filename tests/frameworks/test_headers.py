#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headers for CCCL, RMM and Thrust, with each version of these that
scripts/install-cuda-runtimes has brought: that they compile, without a warning."""

import os
import subprocess
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
WHEELS = Path(os.environ["GA_CUDA_WHEELS"])
CUDA = Path(os.environ["GA_CUDA_HEADERS"])
CXX = os.environ["GA_CXX"].split()


def found(pattern: str) -> list[Path]:
    return sorted(WHEELS.glob(pattern)) if (CUDA / "cuda_runtime_api.h").exists() else []


CCCL = found("nvidia-cuda-cccl==*/nvidia/cu13/include/cccl")
RMM = found("librmm-cu13==*/librmm/include")


class Headers(unittest.TestCase):
    def compiles(self, source: Path, standard: str, includes: list[Path], *options: str) -> None:
        system = [word for path in includes + [CUDA] for word in ("-isystem", str(path))]
        outcome = subprocess.run(
            [*CXX, "-fsyntax-only", f"-std={standard}", "-Wall", "-Wextra", "-Werror", *options,
             f"-I{REPO / 'liballoc/include'}", *system, str(source)],
            capture_output=True, text=True, check=False)
        self.assertEqual(outcome.returncode, 0, outcome.stderr[:4000])

    @unittest.skipUnless(CCCL, "no CCCL: scripts/install-cuda-runtimes brings it")
    def test_cccl(self) -> None:
        for include in CCCL:
            with self.subTest(include.parts[-5]):
                self.compiles(REPO / "examples/frameworks/cccl_resource.cpp", "c++17", [include])

    @unittest.skipUnless(CCCL, "no CCCL: scripts/install-cuda-runtimes brings it")
    def test_thrust(self) -> None:
        for include in CCCL:
            with self.subTest(include.parts[-5]):
                self.compiles(REPO / "tests/frameworks/thrust_resource.cpp", "c++17", [include],
                              "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP")

    @unittest.skipUnless(RMM, "no RMM: scripts/install-cuda-runtimes brings it")
    def test_rmm(self) -> None:
        loggers = found("rapids-logger==*/rapids_logger/include")
        for include in RMM:
            with self.subTest(include.parts[-3]):
                self.compiles(REPO / "examples/frameworks/rmm_resource.cpp", "c++20",
                              [include, include / "rapids", *loggers],
                              "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE")


if __name__ == "__main__":
    unittest.main()
