# SPDX-License-Identifier: MIT
"""`meson install` into an empty folder: everything a stranger needs is there, and builds and runs a
program against the shared and the static library."""

import re
import shutil
import unittest
from pathlib import Path

from surroundings import BUILD, CC, HEADERS, SANITIZED, Case, main

PROGRAM = r"""
#include <gpualloc/backend.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    ga_heap *heap;
    char *block;
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, "fail:nth=0/system") != GA_OK ||
        ga_alloc(heap, 100, 64, (void **)&block) != GA_OK) {
        puts(ga_error_text());
        return 1;
    }
    strcpy(block, ga_version_text());
    puts(block);
    return ga_free(heap, block) == GA_OK && ga_heap_close(heap) == GA_OK ? 0 : 1;
}
"""


def meson_command() -> list[str]:
    """The meson that made the build, as its build file calls it."""
    text = (BUILD / "build.ninja").read_text(encoding="utf-8")
    found = re.search(r"COMMAND = (.*) install --no-rebuild", text)
    assert found, "the build file has an install target"
    return found[1].replace("'", "").split()


@unittest.skipIf(SANITIZED, "nobody installs a sanitized build")
class Install(Case):
    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "root"
        self.run_command(*meson_command(), "install", "-C", BUILD, "--no-rebuild", "--quiet",
                         "--destdir", self.root)
        config = self.one("gpualloc.pc")
        self.env = {"PKG_CONFIG_PATH": str(config.parent), "PKG_CONFIG_SYSROOT_DIR": str(self.root)}

    def one(self, name: str) -> Path:
        found = list(self.root.rglob(name))
        self.assertEqual(1, len(found), f"{name}: {found}")
        return found[0]

    def flags(self, *options: str) -> list[str]:
        return self.run_command("pkg-config", *options, "gpualloc", env=self.env).split()

    def version(self) -> str:
        return self.flags("--modversion")[0]

    def build_and_run(self, flags: list[str], libraries: Path) -> None:
        source = self.write("program.c", PROGRAM)
        self.run_command(*CC, source, *flags, "-o", "program")
        told = self.run_command(self.folder / "program", env={"LD_LIBRARY_PATH": str(libraries)})
        self.assertEqual(self.version(), told.strip())

    def test_what_is_there(self) -> None:
        for header in HEADERS:
            self.assertEqual("gpualloc", self.one(header.name).parent.name)
        for name in ("libgpualloc.a", "libgpualloc-malloc.so", f"libgpualloc.so.{self.version()}"):
            self.assertTrue(self.one(name).is_file(), name)
        self.assertEqual(f"libgpualloc.so.{self.version()}",
                         self.one("libgpualloc.so.0").readlink().name)
        self.assertTrue(self.one("libgpualloc.so").is_symlink())

    def test_a_program_with_the_shared_library(self) -> None:
        libraries = self.one("libgpualloc.so").parent
        self.build_and_run(self.flags("--cflags", "--libs"), libraries)
        needed = self.run_command("readelf", "--wide", "--dynamic", "program")
        self.assertIn("[libgpualloc.so.0]", needed)

    def test_a_program_with_the_static_library(self) -> None:
        archive = self.one("libgpualloc.a")
        for shared in archive.parent.glob("libgpualloc.so*"):
            shared.unlink()
        self.build_and_run(self.flags("--cflags", "--libs", "--static"), archive.parent)
        needed = self.run_command("readelf", "--wide", "--dynamic", "program")
        self.assertNotIn("libgpualloc", needed)


if __name__ == "__main__":
    if shutil.which("pkg-config"):
        main()
    print("0 passed, 0 failed, 1 skipped")
