#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each public header compiles alone: as C11 and as C++17, by every compiler that is here, and under
nvcc."""

import os
import shutil
import unittest
from pathlib import Path

import support

STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Werror"]


class Headers(support.Case):

    def compile(self, *command: object, suffix: str) -> None:
        for header in support.HEADERS:
            with self.subTest(f"{command[0]} {header.name}"):
                source = self.folder / (header.stem + suffix)
                include = f"#include <gpualloc/{header.name}>\n"
                source.write_text(include * 2 + "int one(void);\nint one(void) { return 1; }\n")
                self.run_well(*command, "-I", support.INCLUDE, "-c", source, "-o",
                              source.with_suffix(".o"))

    def test_there_are_headers(self) -> None:
        self.assertLessEqual({"gpualloc.h", "backend.h"},
                             {header.name for header in support.HEADERS})

    def test_c11(self) -> None:
        for compiler in self.compilers("gcc", "clang") + [support.CC]:
            self.compile(*compiler, "-std=c11", "-Wstrict-prototypes", *STRICT, suffix=".c")

    def test_cpp17(self) -> None:
        for compiler in self.compilers("g++", "clang++"):
            self.compile(*compiler, "-std=c++17", *STRICT, suffix=".cc")

    def test_nvcc(self) -> None:
        nvcc = os.environ.get("GA_NVCC") or shutil.which("nvcc")
        if not nvcc or not Path(nvcc).exists():
            self.skipTest("no nvcc here")
        self.compile(nvcc, "-std=c++17", "-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror",
                     suffix=".cu")

    def compilers(self, *names: str) -> list[list[str]]:
        found = [[path] for path in map(shutil.which, names) if path]
        if not found:
            self.skipTest(f"none of {', '.join(names)} here")
        return found


if __name__ == "__main__":
    support.main()
