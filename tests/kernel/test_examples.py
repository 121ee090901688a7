#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples/kernel-malloc builds as its README.md says, by nvcc, CMake and meson, with the
pkg-config and CMake files of an installed tree; examples/kernel-include, as its comment says; and
programs that include malloc.cuh. Nothing here needs a GPU."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NVCC = os.environ["TEST_NVCC"]
SOURCE = Path(os.environ["TEST_SOURCE"])
BUILD = Path(os.environ["TEST_BUILD"])
ARCHIVE = Path(os.environ["TEST_ARCHIVE"])
LIBRARY = Path(os.environ["TEST_LIBRARY"])
MESON = os.environ["TEST_MESON"]
EXAMPLE = SOURCE / "examples/kernel-malloc"
# Optimisation is most of nvcc's time for a program that includes the allocator.
FAST = ("--Ofast-compile=max", "-Xptxas=--suppress-stack-size-warning")

INCLUDED = r"""
#define GPUALLOC_REPLACE_MALLOC
#include <gpualloc/malloc.cuh>
#include <stdio.h>
__global__ void work(void **p)
{
    p[0] = malloc(8);
    free(p[1]);
}
int main()
{
    char *text = (char *)malloc(8);
    snprintf(text, 8, "host");
    ga_status status = ga_device_malloc_init();
    work<<<1, 1>>>(nullptr);
    printf("%s %d\n", text, (int)status);
    free(text);
    return 0;
}
"""


class Case(unittest.TestCase):
    """A folder with a prefix in it, as an installation makes it, but for headers, which stay."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-kernel-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        configured = (BUILD / "meson-private/gpualloc.pc").read_text(encoding="utf-8")
        libdir = re.search(r"(?m)^libdir=\$\{prefix\}/(.*)$", configured)
        assert libdir, configured
        libraries = self.folder / "prefix" / libdir[1]
        for place, pattern in {"pkgconfig": "meson-private/gpualloc*.pc",
                                "cmake/gpualloc": "packaging/*.cmake"}.items():
            (libraries / place).mkdir(parents=True)
            for file in BUILD.glob(pattern):
                shutil.copy(file, libraries / place)
        shutil.copy(ARCHIVE, libraries)
        shutil.copy(LIBRARY, libraries)
        for link in ("libgpualloc.so.0", "libgpualloc.so"):
            (libraries / link).symlink_to(LIBRARY.name)
        (self.folder / "prefix/include").symlink_to(SOURCE / "liballoc/include")
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith("GPUALLOC_")} | {
            "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "CUDACXX": NVCC,
            "CMAKE_PREFIX_PATH": str(self.folder / "prefix"),
            "LD_LIBRARY_PATH": str(libraries),
            "PATH": f"{Path(NVCC).parent}:{os.environ['PATH']}"}

    def must(self, *command: object, status: int = 0) -> str:
        done = subprocess.run([str(part) for part in command], cwd=self.folder, env=self.env,
                              capture_output=True, text=True, timeout=120)
        told = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        self.assertEqual(status, done.returncode, told)
        return done.stdout

    def expect_replaced(self, program: str) -> None:
        """The archive was in the device link, launches go through us, and it runs without a GPU."""
        names = self.must("nm", program)
        self.assertRegex(names, r" t __cudaRegisterLinkedBinary_\w+malloc_cu")
        self.assertIn(" __wrap___cudaLaunchKernel\n", names)
        self.assertIn("libgpualloc.so.0", self.must("readelf", "-d", program))
        self.must(f"./{program}", status=0 if os.path.exists("/dev/nvidiactl") else 77)

    def flags(self) -> list[str]:
        return self.must("pkg-config", "--cflags", "--libs", "gpualloc-kernel").split()


@unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
class Examples(Case):
    def test_nvcc(self) -> None:
        self.must(NVCC, "-forward-unknown-to-host-compiler", "-rdc=true", "-arch=sm_90",
                  EXAMPLE / "trees.cu", "-o", "trees", *self.flags())
        self.expect_replaced("trees")

    @unittest.skipUnless(shutil.which("cmake"), "no cmake")
    def test_cmake(self) -> None:
        self.must("cmake", "-S", EXAMPLE, "-B", "build", "-DCMAKE_CUDA_ARCHITECTURES=90")
        self.must("cmake", "--build", "build")
        self.expect_replaced("build/trees")

    @unittest.skipUnless(MESON, "no meson by that name")
    def test_meson(self) -> None:
        shutil.copytree(EXAMPLE, self.folder / "source")
        self.must(*MESON.split(), "setup", "build", "source", "-Darch=sm_90")
        self.must("ninja", "-C", "build")
        self.expect_replaced("build/trees")


class Including(Case):
    def test_without_the_archive(self) -> None:
        (self.folder / "program.cu").write_text(INCLUDED, encoding="utf-8")
        self.must(NVCC, *FAST, "--keep", "-std=c++17", "-Werror=all-warnings",
                  "-Xcompiler=-Wall,-Wextra,-Werror", "-arch=sm_90",
                  f"-I{SOURCE}/liballoc/include", f"-I{SOURCE}/liballoc",
                  "program.cu", "-o", "program", "-Xlinker", LIBRARY)
        told = self.must("./program")
        self.assertTrue(told.startswith("host "), told)
        [cubin] = self.folder.glob("program.*cubin")
        self.assertIn("ga_device_heap", self.must("readelf", "-sW", cubin))

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_example(self) -> None:
        flags = self.must("pkg-config", "--cflags", "--libs", "gpualloc").split()
        self.must(NVCC, *FAST, "-std=c++17", "-arch=sm_90", f"-I{SOURCE}/liballoc",
                  SOURCE / "examples/kernel-include/paths.cu", "-o", "paths", *flags)
        self.assertNotIn(" __wrap_", self.must("nm", "paths"))
        self.must("./paths", status=0 if os.path.exists("/dev/nvidiactl") else 77)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    broken = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    skipped = len(result.skipped)
    print(f"{result.testsRun - len(broken) - skipped} passed, {len(broken)} failed, "
          f"{skipped} skipped")
    sys.exit(1 if broken else 0)
