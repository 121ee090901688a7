# SPDX-License-Identifier: MIT
"""Each public header compiles alone, first and twice, as C11, as C++17 and under nvcc, with nothing
but the C library's names in scope, and without a warning."""

import shutil
import subprocess
import unittest
from pathlib import Path

from surroundings import CC, HEADERS, NVCC, SOURCE, Case, main

INCLUDE = SOURCE / "liballoc/include"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wundef", "-Werror"]
C_WARNINGS = WARNINGS + ["-Wstrict-prototypes", "-Wmissing-prototypes"]
# A mistake that every compiler must find through the header: the tests below would detect it, too.
MISTAKE = "int mistake(void);\nint mistake(void) { return ga_place_text(1, 2, 3); }\n"


def version(command: list[str]) -> str:
    """The answer to --version, without the name by which the compiler was called."""
    told = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.partition(" ")[2]


def compilers(names: list[list[str]]) -> list[list[str]]:
    """Those that are installed, each once: cc is often gcc."""
    found: dict[str, list[str]] = {}
    for name in names:
        if shutil.which(name[0]):
            found.setdefault(version(name), name)
    return list(found.values())


def mpi_flags() -> list[str] | None:
    """How a compiler finds mpi.h; None: there is no MPI."""
    if not shutil.which("mpicc"):
        return None
    told = subprocess.run(["mpicc", "-show"], capture_output=True, text=True, check=True).stdout
    return [flag for word in told.split() if word.startswith("-I")
            for flag in ("-isystem", word.removeprefix("-I"))]


MPI = mpi_flags()
OF_MPI = "slabhash_mpi.h"  # the one header that needs another library's
COMPILED = [header for header in HEADERS if header.name != OF_MPI or MPI is not None]


# Every member of the classes for C++; Thrust's pointers are there under nvcc alone.
PLAIN = """
#include <gpualloc/status.hpp>
#include <gpualloc/vector.hpp>
template class gpualloc::vector<double, GA_PLACE_HOST, double *>;
"""
UNDER_NVCC = """
#include <gpualloc/cccl.hpp>
#include <gpualloc/thrust.hpp>
#include <gpualloc/vector.hpp>
#include <thrust/device_vector.h>
template class gpualloc::vector<double, GA_PLACE_HOST, double *>;
template class gpualloc::vector<int, GA_PLACE_DEVICE, thrust::device_ptr<int>>;
template class thrust::device_vector<int, gpualloc::device_allocator<int>>;
static_assert(cuda::mr::async_resource_with<gpualloc::memory_resource,
              cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<gpualloc::memory_resource, cuda::mr::host_accessible>);
"""


class Headers(Case):
    def compile_all(self, command: list[str], suffix: str) -> None:
        self.assertGreaterEqual(len(HEADERS), 2)
        for header in COMPILED:
            with self.subTest(header=header.name, compiler=command[0]):
                include = f"#include <gpualloc/{header.name}>\n"
                source = self.write(f"{header.stem}{suffix}", include * 2)
                more = MPI or [] if header.name == OF_MPI else []
                self.run_command(*command, f"-I{INCLUDE}", *more, source)

    def must_fail(self, command: list[str], suffix: str) -> None:
        source = self.write(f"mistake{suffix}", "#include <gpualloc/gpualloc.h>\n" + MISTAKE)
        with self.assertRaises(AssertionError):
            self.run_command(*command, f"-I{INCLUDE}", source)

    def test_c11(self) -> None:
        for compiler in compilers([CC, ["gcc"], ["clang"]]):
            command = [*compiler, "-std=c11", "-pedantic-errors", "-fsyntax-only", *C_WARNINGS]
            self.compile_all(command, ".c")
            self.must_fail(command, ".c")

    def test_c_plus_plus_17(self) -> None:
        found = compilers([["g++"], ["clang++"]])
        if not found:
            self.skipTest("no C++ compiler")
        for compiler in found:
            command = [*compiler, "-std=c++17", "-pedantic-errors", "-fsyntax-only", *WARNINGS]
            self.compile_all(command, ".cc")
            self.must_fail(command, ".cc")

    def test_classes(self) -> None:
        source = self.write("plain.cc", PLAIN)
        for compiler in compilers([["g++"], ["clang++"]]):
            self.run_command(*compiler, "-std=c++17", "-pedantic-errors", "-fsyntax-only",
                             *WARNINGS, f"-I{INCLUDE}", source)

    @unittest.skipUnless(NVCC, "no nvcc")
    def test_classes_under_nvcc(self) -> None:
        source = self.write("thrust.cu", UNDER_NVCC)
        self.run_command(NVCC, "-std=c++17", "-Werror=all-warnings",
                         "-Xcompiler=-Wall,-Wextra,-Werror", "-arch=sm_75", "-c", "-o",
                         self.folder / "thrust.o", f"-I{INCLUDE}", source)

    @unittest.skipUnless(NVCC, "no nvcc")
    def test_nvcc(self) -> None:
        """All of them, twice; tests/device compiles each by itself."""
        command = [NVCC, "-std=c++17", "-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror",
                   "-arch=sm_75", "-c", "-o", str(self.folder / "object.o")]
        include = "".join(f"#include <gpualloc/{header.name}>\n" for header in COMPILED)
        self.run_command(*command, f"-I{INCLUDE}", *(MPI or []),
                         self.write("headers.cu", include * 2))
        self.must_fail(command, ".cu")

    def test_every_header_begins_with_its_licence(self) -> None:
        for header in HEADERS:
            self.assertIn("SPDX-License-Identifier: MIT", Path(header).read_text().splitlines()[0])


if __name__ == "__main__":
    main()
