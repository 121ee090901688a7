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
        self.config = ["pkg-config"]
        self.env = {"PKG_CONFIG_PATH": str(self.one("gpualloc.pc").parent),
                    "PKG_CONFIG_SYSROOT_DIR": str(self.root)}

    def one(self, name: str) -> Path:
        found = list(self.root.rglob(name))
        self.assertEqual(1, len(found), f"{name}: {found}")
        return found[0]

    def move(self) -> None:
        """All of it to another prefix, which is passed to pkg-config."""
        prefix = self.one("gpualloc.h").parents[2]
        place = self.folder / "some/where"
        shutil.copytree(prefix, place, symlinks=True)
        shutil.rmtree(self.root)
        self.root = place
        self.config = ["pkg-config", f"--define-variable=prefix={place}"]
        self.env = {"PKG_CONFIG_PATH": str(self.one("gpualloc.pc").parent)}

    def flags(self, *options: str) -> list[str]:
        return self.run_command(*self.config, *options, "gpualloc", env=self.env).split()

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
        # The linker warns that dlopen() in such a program needs the C library's own files.
        self.assertNotIn("NEEDED", self.build_and_run(static, *CC, "-static", silent=False))


class Install(Installed):
    # ---- what is there

    def test_files(self) -> None:
        for header in HEADERS:
            self.assertEqual("gpualloc", self.one(header.name).parent.name)
        for name in ("libgpualloc.a", "libgpualloc-malloc.so"):
            self.assertTrue(self.one(name).is_file(), name)
        pages = [page.name for page in (SOURCE / "docs/man").glob("*.1")]
        self.assertIn("gpualloc.1", pages)
        for page in pages:
            self.assertEqual("man1", self.one(page).parent.name)

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


class Readme(Installed):
    """Each command that README prints, as it stands, with what it has installed; but for those that
    build the project, which is what these tests come from, and those that need root."""

    NOT_HERE = ("scripts/quickstart", "sudo ")

    def blocks(self, language: str) -> list[str]:
        text = (SOURCE / "README.md").read_text(encoding="utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def commands(self) -> list[str]:
        lines = "".join(self.blocks("console")).splitlines()
        self.assertTrue(all(line.startswith("$ ") for line in lines), lines)
        return [line[2:] for line in lines if not line[2:].startswith(self.NOT_HERE)]

    def surroundings(self) -> dict[str, str]:
        library = self.one("libgpualloc-malloc.so").parent
        return {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(library), "PKG_CONFIG_PATH": str(library / "pkgconfig")}

    def test_commands(self) -> None:
        programs = self.blocks("c")
        self.assertEqual(1, len(programs))
        self.move()
        self.write("app.c", programs[0])
        env = self.surroundings()
        prefix = self.root
        commands = self.commands()
        self.assertGreater(len(commands), 3)
        for command in commands:
            command = command.replace("pkg-config ", f"pkg-config --define-variable=prefix={prefix} ")
            with self.subTest(command):
                self.run_command("bash", "-ec", command, env=env, silent=False)


if __name__ == "__main__":
    main()
