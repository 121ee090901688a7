#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real CUDA runtimes, linked statically and shared, find the driver's functions here. With the driver
for tests they get no further: it has none of the tables that the driver keeps for the runtime alone.
Run on a GPU machine, scripts/gpu-run does what comes behind that."""

import os
import re
import subprocess
import unittest
from pathlib import Path

import support
from driver import Case

FOLDERS = [Path(folder) for folder in os.environ["GA_CUDA_RUNTIMES"].split(":")]
HEADERS = Path(os.environ["GA_CUDA_HEADERS"])
SOURCE = Path(__file__).with_name("runtime.c")
# What the first call of the runtime's makes it find, from 11.8 on.
FOUND = {"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemAllocAsync",
         "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemGetInfo_v2", "cuPointerGetAttributes",
         "cuDevicePrimaryCtxReset", "cuStreamEndCapture", "cuIpcGetMemHandle",
         "cuCtxEnablePeerAccess", "cuMemAllocManaged", "cuArray3DCreate_v2", "cuMemHostAlloc"}


class Runtimes(Case):
    def found(self, *command: str) -> set[str]:
        outcome = self.run_cuda(*command, GPUALLOC_LOG="debug")
        self.assertEqual(outcome.status, 0, outcome.stderr[-2000:])
        return set(re.findall(r"cuGetProcAddress: (\w+) is ours", outcome.stderr))

    def test_linked(self) -> None:
        archive = FOLDERS[0] / "libcudart_static.a"
        if not archive.exists() or not (HEADERS / "cuda_runtime_api.h").exists():
            self.skipTest(f"no {archive}")
        program = self.folder / "static"
        subprocess.run([*os.environ["GA_CC"].split(), SOURCE, "-I", HEADERS, archive, "-o", program,
                        "-ldl", "-lrt", "-pthread"], check=True)
        self.assertLessEqual(FOUND, self.found(str(program)))
        streams = {"cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz"}
        self.assertLessEqual(streams, self.found(str(program)))  # it takes both forms

    def test_shared(self) -> None:
        """Each that is here, of whichever version."""
        libraries = sorted({path.resolve() for folder in FOLDERS
                            for path in folder.rglob("libcudart.so.*")})
        if not libraries:
            self.skipTest("none is here; scripts/install-cuda-runtimes brings some")
        for library in libraries:
            with self.subTest(str(library)):
                code = (f"import ctypes; ctypes.CDLL({str(library)!r})"
                        ".cudaMalloc(ctypes.byref(ctypes.c_void_p()), 1000)")
                self.assertLessEqual(FOUND, self.found("/usr/bin/python3", "-c", code))


if __name__ == "__main__":
    support.main()
