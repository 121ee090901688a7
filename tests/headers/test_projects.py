#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The example projects for CMake, make with pkg-config, and meson build against an installed tree
that was moved, and run; find_package() refuses what it should. Meson's builds the library as a
subproject where none is installed."""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from surroundings import SOURCE, SPECS, main, quiet_environment
from test_install import Installed, meson_command

EXAMPLES = SOURCE / "examples"
TEXT = "the tree and the sea and the sky " * 100
FIND = """cmake_minimum_required(VERSION 3.13)
project(find LANGUAGES C)
%s
find_package(gpualloc %s)
message(STATUS "found=${gpualloc_FOUND} kernel=${gpualloc_kernel_FOUND}")
"""


class Projects(Installed):
    def setUp(self) -> None:
        super().setUp()
        self.move()
        self.examples = self.folder / "with spaces"
        shutil.copytree(EXAMPLES, self.examples)
        self.libraries = self.one("libgpualloc.so").parent
        self.env |= {"CMAKE_PREFIX_PATH": str(self.root), "MAKEFLAGS": ""}

    def in_examples(self, *command: object, timeout: int = 120) -> None:
        self.run_command("env", "-C", self.examples, *command, env=self.env, silent=False,
                         timeout=timeout)

    def expect_heap(self, program: Path, **variables: str) -> None:
        for spec in SPECS:
            told = self.run_command(program, spec, env=variables)
            self.assertIn("wrote ", told)

    def expect_words(self, program: Path) -> None:
        """The archive serves the program's malloc, without a preload."""
        done = subprocess.run([program], input=TEXT, text=True, capture_output=True, timeout=60,
                              env=quiet_environment() | {"GPUALLOC_HOST": SPECS[-1],
                                                         "GPUALLOC_STATS": "1"})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(SPECS[-1], done.stderr)


@unittest.skipUnless(shutil.which("cmake"), "no cmake")
class CMake(Projects):
    def test_example(self) -> None:
        self.in_examples("cmake", "-S", "cmake", "-B", "build")
        self.in_examples("cmake", "--build", "build")
        build = self.examples / "build"
        self.expect_heap(build / "heap")
        self.expect_heap(build / "heap-static")
        self.assertIn("[libgpualloc.so.0]", self.run_command("readelf", "-d", build / "heap"))
        self.assertNotIn("libgpualloc", self.run_command("readelf", "-d", build / "heap-static"))
        self.expect_words(build / "words")

    def find(self, request: str, before: str = "") -> str:
        """The output of a project that asks for `request`, without line breaks."""
        folder = self.folder / "find"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(FIND % (before, request), encoding="utf-8")
        done = subprocess.run(["cmake", "-S", folder, "-B", folder / "build"], text=True,
                              capture_output=True, timeout=60, env=quiet_environment() | self.env)
        return " ".join((done.stdout + done.stderr).split())

    def test_versions(self) -> None:
        major, minor, patch = self.version().split(".")
        for request in ("", f"{major}.{minor}", self.version(), f"{self.version()} EXACT",
                        f"{major}.{minor}...{int(major) + 1}"):
            self.assertIn("found=1", self.find(request), request)
        for request in (f"{major}.{int(minor) + 1}", f"{major}.{minor}.{int(patch) + 1}",
                        f"{int(major) + 1}.0"):
            told = self.find(request)
            self.assertIn("found=0", told, request)
            self.assertIn(f"version: {self.version()}", told)

    def test_components(self) -> None:
        self.assertIn("found=1", self.find("COMPONENTS malloc"))
        for archive in self.libraries.glob("libgpualloc-kernel.a"):
            archive.unlink()
        self.assertIn("found=1 kernel=FALSE", self.find("OPTIONAL_COMPONENTS kernel"))
        for name in ("kernel", "nonesuch"):
            told = self.find(f"COMPONENTS {name}")
            self.assertIn("found=0", told)
            self.assertIn(f'no gpualloc component "{name}"', told)

    def test_another_pointer_size(self) -> None:
        told = self.find("", "set(CMAKE_SIZEOF_VOID_P 4)")
        self.assertIn("found=0", told)
        self.assertIn("8-byte pointers", told)

    def test_in_a_prefix_of_links(self) -> None:
        """A link to the folder of the libraries does not lead astray, as /lib on Debian."""
        (self.folder / "linked").mkdir()
        (self.folder / "linked/lib").symlink_to(self.libraries)
        self.env["CMAKE_PREFIX_PATH"] = str(self.folder / "linked")
        self.in_examples("cmake", "-S", "cmake", "-B", "build")
        self.in_examples("cmake", "--build", "build", "--target", "heap-static")
        self.expect_heap(self.examples / "build/heap-static")


@unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
class PkgConfig(Projects):
    @unittest.skipUnless(shutil.which("make"), "no make")
    def test_example(self) -> None:
        self.in_examples("make", "-C", "pkg-config")
        self.expect_heap(self.examples / "pkg-config/heap")
        self.expect_words(self.examples / "pkg-config/words")


class Meson(Projects):
    def setUp(self) -> None:
        super().setUp()
        self.meson = [part for part in meson_command() if part]
        self.build = self.examples / "build"

    def test_example(self) -> None:
        self.in_examples(*self.meson, "setup", "--wrap-mode=nofallback", "build", "meson")
        self.in_examples("ninja", "-C", "build")
        self.expect_heap(self.build / "heap", LD_LIBRARY_PATH=str(self.libraries))
        self.expect_words(self.build / "words")

    def test_subproject(self) -> None:
        """The archive of the release is the tree as git has it, or as it lies here."""
        wrap = (EXAMPLES / "meson/subprojects/gpualloc.wrap").read_text(encoding="utf-8")
        place = re.search(r"(?m)^directory = (.*)$", wrap)
        assert place, wrap
        self.assertEqual(f"gpualloc-{self.version()}", place[1])
        self.assertIn(f"source_filename = {place[1]}.tar.gz\n", wrap)
        shutil.copytree(SOURCE, self.examples / "meson/subprojects" / place[1], symlinks=True,
                        ignore=shutil.ignore_patterns("build", "build-*", ".git", ".deps"))
        self.in_examples(*self.meson, "setup", "--wrap-mode=forcefallback", "-Dbuildtype=plain",
                         "-Dgpualloc:cuda=disabled", "build", "meson")
        self.in_examples("ninja", "-C", "build", "heap", timeout=400)
        self.run_command(self.build / "heap", "system")


if __name__ == "__main__":
    main()
