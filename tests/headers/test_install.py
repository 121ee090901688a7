# SPDX-License-Identifier: MIT
"""`meson install` into an empty folder: all that a user needs is there, and builds and runs
programs, from below another root as well as from a prefix that was not configured."""

import os
import re
import shutil
import unittest
from pathlib import Path

from surroundings import BUILD, CC, HEADERS, SANITIZED, SOURCE, SPECS, Case, main

# C and C++ alike.
PROGRAM = r"""
#include <gpualloc/backend.h>
#include <gpualloc/gpualloc.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    ga_heap *heap;
    void *block;
    if (argc != 2 || ga_heap_open(&heap, GA_PLACE_HOST, 0, argv[1]) != GA_OK ||
        ga_alloc(heap, 100, 64, &block) != GA_OK) {
        puts(ga_error_text());
        return 1;
    }
    strcpy((char *)block, ga_version_text());
    puts((char *)block);
    return ga_free(heap, block) == GA_OK && ga_heap_close(heap) == GA_OK ? 0 : 1;
}
"""

# Includes of headers: their neighbours, and the library's by the names that programs use.
QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
OURS = re.compile(r"^\s*#\s*include\s+<(gpualloc/[^>]+)>", re.MULTILINE)


def meson_command() -> list[str]:
    """The meson that made the build, as its build file calls it."""
    text = (BUILD / "build.ninja").read_text(encoding="utf-8")
    found = re.search(r"COMMAND = (.*) install --no-rebuild", text)
    assert found, "the build file has an install target"
    return found[1].replace("'", "").split()


@unittest.skipIf(SANITIZED, "nobody installs a sanitized build")
class Installed(Case):
    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "root"
        self.run_command(*meson_command(), "install", "-C", BUILD, "--no-rebuild", "--quiet",
                         "--destdir", self.root)
        self.env = {"PKG_CONFIG_PATH": str(self.one("gpualloc.pc").parent),
                    "PKG_CONFIG_SYSROOT_DIR": str(self.root)}

    def one(self, name: str) -> Path:
        found = list(self.root.rglob(name))
        self.assertEqual(1, len(found), f"{name}: {found}")
        return found[0]

    def move(self) -> None:
        """All of it to another prefix."""
        prefix = self.one("gpualloc.h").parents[2]
        place = self.folder / "some/where"
        shutil.copytree(prefix, place, symlinks=True)
        shutil.rmtree(self.root)
        self.root = place
        self.env = {"PKG_CONFIG_PATH": str(self.one("gpualloc.pc").parent)}

    def flags(self, *options: str) -> list[str]:
        return self.run_command("pkg-config", *options, "gpualloc", env=self.env).split()

    def version(self) -> str:
        return self.flags("--modversion")[0]

    def build_and_run(self, flags: list[str], *compiler: str, silent: bool = True) -> str:
        """Build the program and run it; returns its list of needed libraries."""
        source = self.write("program.c", PROGRAM)
        self.run_command(*(compiler or CC), source, *flags, "-o", "program", silent=silent)
        libraries = {"LD_LIBRARY_PATH": str(self.one("libgpualloc.so").parent)}
        for spec in SPECS:
            told = self.run_command(self.folder / "program", spec, env=libraries)
            self.assertEqual(self.version(), told.strip())
        return self.run_command("readelf", "--wide", "--dynamic", "program")

    def build_every_way(self) -> None:
        shared = self.flags("--cflags", "--libs")
        static = self.flags("--cflags", "--libs", "--static")
        archive = ["-l:libgpualloc.a" if flag == "-lgpualloc" else flag for flag in static]
        self.assertNotEqual(static, archive)
        self.assertIn("[libgpualloc.so.0]", self.build_and_run(shared))
        self.assertIn("[libgpualloc.so.0]", self.build_and_run(shared, "c++", "-x", "c++"))
        self.assertNotIn("libgpualloc", self.build_and_run(archive))
        if not Path(self.run_command(*CC, "-print-file-name=libc.a").strip()).is_absolute():
            return
        # The linker warns that dlopen() in such a program needs the C library's own files.
        self.assertNotIn("NEEDED", self.build_and_run(static, *CC, "-static", silent=False))


class Install(Installed):
    # ---- what is there

    def test_files(self) -> None:
        for header in HEADERS:
            self.assertEqual("gpualloc", self.one(header.name).parent.name)
        for name in ("libgpualloc.a", "libgpualloc-malloc.so", "libgpualloc-align.so"):
            self.assertTrue(self.one(name).is_file(), name)

    def test_manual_pages(self) -> None:
        """Each page is found by each name in its NAME section."""
        pages = sorted((SOURCE / "docs/man").glob("*.[1-9]"))
        self.assertEqual({".1", ".3", ".7"}, {page.suffix for page in pages})
        for page in pages:
            text = page.read_text(encoding="utf-8").split(".Sh NAME\n")[1].split(".Sh")[0]
            for name in re.findall(r"^\.Nm (\S+)", text, re.MULTILINE):
                found = self.one(name + page.suffix)
                self.assertEqual("man" + page.suffix[1:], found.parent.name)
                self.assertEqual(page.name, found.resolve().name)

    def test_documents(self) -> None:
        """Those that headers and manual pages refer to are installed."""
        include = self.one("gpualloc.h").parents[1]
        named = set()
        for folder in (include, include.parent / "share/man"):
            for file in folder.rglob("*.*"):
                named |= set(re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8")))
        self.assertGreater(len(named), 5)
        documents = self.one("security.md").parents[1]
        for name in named:
            self.assertTrue((documents / name).is_file(), name)

    def test_completions(self) -> None:
        """In the directories that each shell searches by itself."""
        share = self.one("gpualloc.h").parents[2] / "share"
        for path in ("bash-completion/completions/gpualloc", "zsh/site-functions/_gpualloc",
                     "fish/vendor_completions.d/gpualloc.fish"):
            self.assertTrue((share / path).is_file(), path)

    def test_headers_find_each_other(self) -> None:
        include = self.one("gpualloc.h").parents[1]
        device = (include / "gpualloc/device.cuh").read_text(encoding="utf-8")
        self.assertTrue(QUOTED.search(device), "what kernels include has folders of its own")
        for header in include.rglob("*"):
            if header.is_file():
                text = header.read_text(encoding="utf-8")
                for name in QUOTED.findall(text):
                    self.assertTrue((header.parent / name).is_file(), f"{header}: {name}")
                for name in OURS.findall(text):
                    self.assertTrue((include / name).is_file(), f"{header}: {name}")

    def test_the_shared_library_and_its_links(self) -> None:
        real = self.one(f"libgpualloc.so.{self.version()}")
        self.assertTrue(real.is_file() and not real.is_symlink())
        for name in ("libgpualloc.so.0", "libgpualloc.so"):
            self.assertTrue(self.one(name).is_symlink(), name)
            self.assertEqual(real.resolve(), self.one(name).resolve())

    def test_the_archive(self) -> None:
        archive = self.one("libgpualloc.a")
        self.assertEqual(b"!<arch>\n", archive.read_bytes()[:8], "a thin one holds but paths")
        names = self.run_command("nm", "--defined-only", "--extern-only", "--format=just-symbols",
                                 archive).split()
        functions = {name for name in names if not name.endswith(":")}
        self.assertLess({"ga_heap_open", "ga_alloc"}, functions)
        self.assertEqual([], sorted(name for name in functions if not name.startswith("ga_")))

    # ---- use of the installed files -----------------------------------------------------------

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_programs_below_another_root(self) -> None:
        self.build_every_way()

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_programs_from_any_prefix(self) -> None:
        self.move()
        self.build_every_way()

    def test_the_command_from_any_prefix(self) -> None:
        self.move()
        command = self.root / "bin/gpualloc"
        self.assertTrue(os.access(command, os.X_OK))
        self.assertIn("system", self.run_command(command, "list"))
        preload = str(self.one("libgpualloc-malloc.so"))
        for spec in SPECS:
            maps = self.run_command(command, "run", f"--host={spec}", "--", "/bin/cat",
                                    "/proc/self/maps")
            self.assertIn(preload, maps)

    def test_a_wrapped_library_from_any_prefix(self) -> None:
        wrapped = "libjemalloc.so.2"
        if shutil.which("ldconfig", path="/sbin:/usr/sbin") is None or wrapped not in (
                self.run_command("/sbin/ldconfig", "-p")):
            self.skipTest(f"{wrapped} is not installed")
        self.move()
        maps = self.run_command(self.root / "bin/gpualloc", "run", f"--host=dl:{wrapped}", "--",
                                "/bin/cat", "/proc/self/maps")
        self.assertIn(str(self.one("libgpualloc-align.so")), maps)
        self.assertNotIn(str(self.one("libgpualloc-malloc.so")), maps)


if __name__ == "__main__":
    main()
