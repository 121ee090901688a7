#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real CUDA runtimes, linked statically and shared, find the driver's functions here. With the
driver for tests they get no further: it has none of the driver's private tables for the
runtime. On a GPU machine, scripts/gpu-run tests the rest."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import support
from driver import Case, alone

FOLDERS = [Path(folder) for folder in os.environ["GA_CUDA_RUNTIMES"].split(":")]
HEADERS = Path(os.environ["GA_CUDA_HEADERS"])
SOURCE = Path(__file__).with_name("runtime.c")
# The functions that the first call of the runtime looks up, from 11.8 on.
FOUND = {"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemAllocAsync",
         "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemGetInfo_v2", "cuPointerGetAttributes",
         "cuDevicePrimaryCtxReset", "cuStreamEndCapture", "cuIpcGetMemHandle",
         "cuCtxEnablePeerAccess", "cuMemAllocManaged", "cuArray3DCreate_v2", "cuMemHostAlloc"}


class Runtimes(Case):
    def found(self, *command: str) -> set[str]:
        outcome = self.run_cuda(*command, GPUALLOC_LOG="debug")
        self.assertEqual(outcome.status, 0, outcome.stderr[-2000:])
        return set(re.findall(r"cuGetProcAddress: (\w+) is ours", outcome.stderr))

    def files(self, name: str) -> list[Path]:
        """Those of that name that are here, of whichever version."""
        files = sorted({path.resolve() for folder in FOLDERS for path in folder.rglob(name)})
        if not files:
            self.skipTest(f"no {name} is here; scripts/install-cuda-runtimes brings some")
        return files

    def finds_by(self, name: str, call: str) -> None:
        """`call` of each library of that name, with a place for its result."""
        for library in self.files(name):
            with self.subTest(str(library)):
                code = f"import ctypes as c; c.CDLL({str(library)!r}).{call}"
                self.assertLessEqual(FOUND, self.found("/usr/bin/python3", "-c", code))

    def test_linked(self) -> None:
        """The functions that it calls are equal in all versions, so one version's headers are
        enough."""
        if not (HEADERS / "cuda_runtime_api.h").exists():
            self.skipTest(f"no headers in {HEADERS}")
        for archive in self.files("libcudart_static.a"):
            with self.subTest(str(archive)):
                program = self.folder / "static"
                subprocess.run([*os.environ["GA_CC"].split(), SOURCE, "-I", HEADERS, archive,
                                "-o", program, "-ldl", "-lrt", "-pthread"], check=True)
                both = {"cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz"}  # forms it takes
                self.assertLessEqual(FOUND | both, self.found(str(program)))

    @alone("python3 leaks")
    def test_linked_into_a_library(self) -> None:
        """The runtime of CUDA 11.8: no wheel has it for linking."""
        self.finds_by("libnvjpeg.so.*", "nvjpegCreateSimple(c.byref(c.c_void_p()))")

    @alone("python3 leaks")
    def test_shared(self) -> None:
        self.finds_by("libcudart.so.*", "cudaMalloc(c.byref(c.c_void_p()), 1000)")


if __name__ == "__main__":
    support.main()
