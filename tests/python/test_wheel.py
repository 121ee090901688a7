#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The wheel, packed from the build's installed tree, where pip and others put it. The released
wheel is that of scripts/build-wheel, which scripts/clean-machine tries on other systems."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import package

REPO = package.SOURCE.parent
sys.path.insert(0, str(REPO / "tests/headers"))
import samples  # noqa: E402
BUILD = Path(os.environ["GA_BUILD"])
NOBODY = 65534
# A program that shows where its malloc comes from.
MAPS = "print(*{line.split(' ', 5)[5].strip() for line in open('/proc/self/maps') if '/' in line})"


def meson() -> list[str]:
    """The meson that made the build, as its build file calls it."""
    text = (BUILD / "build.ninja").read_text(encoding="utf-8")
    found = re.search(r"COMMAND = (.*) install --no-rebuild", text)
    assert found, "the build file has an install target"
    return found[1].replace("'", "").split()


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if not path.is_dir() and "__pycache__" not in path.parts}


def pack(out: Path) -> Path:
    """The wheel. Skips all tests if PyPI is not to be had."""
    installed = out / "installed"
    subprocess.run([*meson(), "install", "-C", BUILD, "--no-rebuild", "--quiet", "--strip",
                    "--destdir", installed], check=True)
    libraries = next(installed.rglob("libgpualloc.so.0")).parent
    prefix = next(installed.rglob("bin/gpualloc")).parents[1]
    if libraries != prefix / "lib":  # Debian's folder of an architecture
        libraries.rename(out / "lib")
        shutil.rmtree(prefix / "lib", ignore_errors=True)
        (out / "lib").rename(prefix / "lib")
        for file in prefix.glob("lib/pkgconfig/*.pc"):
            file.write_text(re.sub("(?m)^libdir=.*", "libdir=${prefix}/lib",
                                   file.read_text(encoding="utf-8")), encoding="utf-8")
        for file in prefix.glob("lib/cmake/gpualloc/*.cmake"):
            file.write_text(re.sub(r"libdir}(/\.\.)+/", "libdir}/../",
                                   file.read_text(encoding="utf-8")), encoding="utf-8")
    done = subprocess.run([REPO / "scripts/pack-wheel", prefix, out], capture_output=True,
                          text=True)
    if "PyPI gave no" in done.stderr:
        raise unittest.SkipTest("no meson-python here, nor from PyPI")
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, = out.glob("*.whl")
    return wheel


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-wheel-")
        cls.addClassCleanup(folder.cleanup)
        cls.shared = Path(folder.name).resolve()
        cls.shared.chmod(0o755)
        cls.wheel = pack(cls.shared)
        # A path with a space, which LD_PRELOAD cannot hold.
        cls.venv = cls.shared / "an environment"
        subprocess.run([sys.executable, "-m", "venv", cls.venv], check=True)
        cls.before = files_below(cls.venv)
        cls.pip(cls.venv, "install", "--no-index", cls.wheel)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-wheel-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.folder.chmod(0o755)

    @staticmethod
    def environment(**variables: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("GPUALLOC_", "PYTHON")) and name != "LD_PRELOAD"}
        return clean | variables

    @classmethod
    def pip(cls, venv: Path, *arguments: object) -> None:
        done = subprocess.run([venv / "bin/python3", "-m", "pip", "--disable-pip-version-check",
                               "--quiet", *map(str, arguments)], capture_output=True, text=True,
                              env=cls.environment())
        assert done.returncode == 0, done.stdout + done.stderr

    def runs(self, *command: object, status: int = 0, clean: bool = True, user: int | None = None,
             **variables: str) -> str:
        """The output of a command, or if it fails its errors."""
        done = subprocess.run([str(word) for word in command], cwd=self.folder, text=True,
                              env=self.environment(**variables), capture_output=True, timeout=120,
                              user=user)
        told = f"{command}\n{done.stdout}{done.stderr}"
        self.assertEqual(status, done.returncode, told)
        if status == 0 and clean:
            self.assertEqual("", done.stderr, told)
        return done.stderr if status else done.stdout

    def served_from(self, told: str, package_folder: Path) -> None:
        found = [path for path in told.split("/") if path.startswith("libgpualloc")]
        self.assertTrue(found, told)
        self.assertIn(f"{package_folder}/lib/libgpualloc-malloc.so", told)

    def package_in(self, venv: Path) -> Path:
        found, = venv.glob("lib/python*/site-packages/gpualloc")
        return found

    # ---- its contents

    def test_contents(self) -> None:
        self.assertRegex(self.wheel.name, r"^gpualloc-[0-9.]+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
        self.assertEqual(len(names), len(set(names)))
        data = f"{self.wheel.name.split('-py3')[0]}.data"
        for name in ("gpualloc/__init__.py", "gpualloc/py.typed", "gpualloc/bin/gpualloc",
                     "gpualloc/lib/libgpualloc.so.0", "gpualloc/lib/libgpualloc.so",
                     "gpualloc/lib/libgpualloc-malloc.so", "gpualloc/lib/libgpualloc-cuda.so",
                     "gpualloc/lib/libgpualloc-align.so", "gpualloc/lib/pkgconfig/gpualloc.pc",
                     "gpualloc/include/gpualloc/gpualloc.h", f"{data}/scripts/gpualloc",
                     "gpualloc/share/doc/gpualloc/docs/security.md",
                     f"{data}/data/share/man/man1/gpualloc.1",
                     f"{data}/data/share/man/man3/ga_free.3"):
            self.assertIn(name, names)

    def test_licences(self) -> None:
        """Of gpualloc, and of all that is compiled into its files."""
        with zipfile.ZipFile(self.wheel) as wheel:
            texts = {os.path.basename(name): wheel.read(name).decode() for name in wheel.namelist()
                     if ".dist-info/licenses/" in name}
            bill = json.loads(wheel.read(next(name for name in wheel.namelist()
                                              if name.endswith("/gpualloc.cdx.json"))))
        self.assertEqual((REPO / "LICENSE").read_text(encoding="utf-8"), texts["LICENSE"])
        for part in bill["components"]:
            use = part["properties"][0]["value"]
            if use.startswith(("compiled in", "linked statically")):
                self.assertIn(f"\n---- {part['name']} ---", texts["notices.txt"])

    def test_bill_of_materials(self) -> None:
        """It says how jansson is linked, for which the command is asked."""
        with zipfile.ZipFile(self.wheel) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/gpualloc.cdx.json"))
            bill = json.loads(wheel.read(name))
        use, = [part["properties"][0]["value"] for part in bill["components"]
                if part["name"] == "jansson"]
        told = self.runs("readelf", "-d", self.package_in(self.venv) / "bin/gpualloc")
        self.assertEqual("linked dynamically" if "[libjansson.so" in told else "linked statically",
                         use)
        self.runs(sys.executable, REPO / "packaging/sbom.py", "bill", "0", "jansson", "2.14",
                  "/bin/true", "zstd", "1.5", "/bin/true")
        told = (self.folder / "bill").read_text(encoding="utf-8")
        self.assertEqual((2, 0), (told.count('"linked statically"'), told.count("dynamically")))

    def test_uninstall_leaves_nothing(self) -> None:
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        before = files_below(venv)
        self.pip(venv, "install", "--no-index", self.wheel)
        self.runs(venv / "bin/python3", "-c", "import gpualloc")
        self.assertGreater(len(files_below(venv)), len(before) + 100)
        self.pip(venv, "uninstall", "--yes", "gpualloc")
        self.assertEqual(before, files_below(venv))
        self.assertEqual([], list(venv.rglob("*gpualloc*")))

    def test_record_lists_every_file(self) -> None:
        record, = self.venv.glob("lib/python*/site-packages/gpualloc-*.dist-info/RECORD")
        with record.open(encoding="utf-8") as text:
            listed = {os.path.normpath(record.parents[1] / row[0]) for row in csv.reader(text)}
        for name in files_below(self.venv) - self.before:
            self.assertIn(str(self.venv / name), listed)

    def test_guide(self) -> None:
        """The commands of README and the guide that need the wheel, in a fresh environment. A
        wheel of the name that the page has is in the folder, and instead of scripts/build-wheel,
        which scripts/check-packages runs, a script that does nothing."""
        if os.uname().machine != "x86_64":
            self.skipTest("the page names the wheel for x86-64")
        for page in (REPO / "README.md", REPO / "docs/guide/python.md"):
            blocks = [block for block in samples.blocks(page) if "wheel" in block.words]
            self.assertEqual(1, len(blocks), page)
            folder = self.folder / page.stem
            (folder / "scripts").mkdir(parents=True)
            (folder / "scripts/build-wheel").write_text("", encoding="utf-8")
            (folder / "scripts/build-wheel").chmod(0o755)
            (folder / "train.py").write_text("print('trained')\n", encoding="utf-8")
            name = self.wheel.name.replace("linux_", "manylinux_2_28_")
            (folder / "build/wheels").mkdir(parents=True)
            for copy in (folder / name, folder / "build/wheels" / name):
                shutil.copy(self.wheel, copy)
            subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
            commands = "\n".join(command.text for command in blocks[0].commands())
            self.folder = folder
            told = self.runs("bash", "-ec", commands, clean=False, PIP_NO_INDEX="1",
                             PATH=f"{folder}/venv/bin:{os.environ['PATH']}",
                             LD_LIBRARY_PATH=package.LIBCUDA)
            self.assertEqual("gpualloc run" in commands, "trained" in told, told)
            self.assertTrue((folder / "venv/bin/gpualloc").exists(), commands)

    # ---- where it is installed

    def test_environment_in_a_path_with_a_space(self) -> None:
        told = self.runs(self.venv / "bin/gpualloc", "run", "--strict", "--host=slab/system", "--",
                         self.venv / "bin/python3", "-c", MAPS)
        self.served_from(told, self.package_in(self.venv))

    def test_module(self) -> None:
        told = self.runs(self.venv / "bin/python3", "-c",
                         "import gpualloc; print(gpualloc.__version__); print(gpualloc.command)")
        version, command = told.splitlines()
        self.assertEqual(f"gpualloc {version}", self.runs(command, "--version").strip())
        told = self.runs(self.venv / "bin/python3", "-m", "gpualloc", "--version")
        self.assertEqual(f"gpualloc {version}\n", told)

    def test_link_to_the_command(self) -> None:
        """As pipx makes it, and with a relative path."""
        (self.folder / "gpualloc").symlink_to(self.venv / "bin/gpualloc")
        self.assertRegex(self.runs("./gpualloc", "--version"), "^gpualloc ")
        told = self.runs("gpualloc", "--version", PATH=f"{self.folder}:/usr/bin:/bin")
        self.assertRegex(told, "^gpualloc ")

    @unittest.skipIf(os.getuid(), "needs root, to become another user")
    def test_another_user_without_home(self) -> None:
        """The installation cannot be written, and HOME is missing, or cannot be written."""
        for variables in ({"HOME": "/nonexistent"}, {"HOME": "/proc"}, {"HOME": ""}):
            told = self.runs(self.venv / "bin/gpualloc", "run", "--strict", "--host=slab", "--",
                             "/usr/bin/python3", "-c", MAPS, user=NOBODY, **variables)
            self.served_from(told, self.package_in(self.venv))

    def test_target_folder(self) -> None:
        self.pip(self.venv, "install", "--no-index", "--target", self.folder / "target", self.wheel)
        told = self.runs(self.folder / "target/bin/gpualloc", "run", "--strict", "--host=slab",
                         "--", sys.executable, "-c", MAPS)
        self.served_from(told, self.folder / "target/gpualloc")

    def test_python_without_pip(self) -> None:
        """python3 -m zipfile unpacks files without their permissions."""
        self.runs(sys.executable, "-m", "zipfile", "-e", self.wheel, self.folder / "unpacked")
        told = self.runs(sys.executable, "-m", "gpualloc", "run", "--strict", "--host=slab", "--",
                         sys.executable, "-c", MAPS, PYTHONPATH=str(self.folder / "unpacked"))
        self.served_from(told, self.folder / "unpacked/gpualloc")

    def released_name(self) -> Path:
        """A copy of the wheel that has the name of the released one for this processor."""
        name = self.wheel.name.replace("linux_", "manylinux_2_28_")
        return Path(shutil.copy(self.wheel, self.folder / name))

    def test_other_platforms(self) -> None:
        """pip refuses it for musl, for 32 bits, and for an older glibc."""
        self.released_name()
        machine = os.uname().machine
        for platform, status in ((f"manylinux_2_28_{machine}", 0), (f"musllinux_1_2_{machine}", 1),
                                 ("manylinux_2_28_i686", 1), (f"manylinux_2_17_{machine}", 1)):
            told = self.runs(self.venv / "bin/python3", "-m", "pip", "download", "--no-index",
                             "--find-links", ".", "--only-binary=:all:", "--platform", platform,
                             "--disable-pip-version-check", "-d", "out", "gpualloc", status=status)
            self.assertIn("No matching distribution" if status else "Saved", told, platform)

    def test_old_pip(self) -> None:
        """It refuses the name of the released wheel, in the words of the guide."""
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        fetched = subprocess.run([venv / "bin/python3", "-m", "pip", "install", "--quiet",
                                  "pip==20.2.4"], capture_output=True)
        started = subprocess.run([venv / "bin/python3", "-m", "pip", "--version"],
                                 capture_output=True, text=True)
        if fetched.returncode or "pip 20.2.4" not in started.stdout:
            self.skipTest("no pip 20.2.4 from PyPI, or this Python cannot run it")
        told = self.runs(venv / "bin/python3", "-m", "pip", "install", "--no-index",
                         self.released_name(), status=1)
        words = "is not a supported wheel on this platform"
        self.assertIn(words, told)
        guide = " ".join((REPO / "docs/guide/python.md").read_text(encoding="utf-8").split())
        self.assertIn(f'"{words}"', guide)

    # ---- several versions

    def other_version(self, folder: Path) -> None:
        """A package that says so if its command is executed."""
        (folder / "gpualloc-9.9.9.dist-info").mkdir(parents=True)
        (folder / "gpualloc/bin").mkdir(parents=True)
        command = folder / "gpualloc/bin/gpualloc"
        command.write_text("#!/bin/sh\necho another version\n", encoding="utf-8")
        command.chmod(0o755)

    def test_versions_do_not_mix(self) -> None:
        """One prefix has two Pythons, each with a version of its own: the command that was
        installed last executes its own."""
        prefix = self.folder / "prefix [1]"
        packages = prefix / "lib/python3.99/site-packages"
        packages.mkdir(parents=True)
        shutil.copytree(self.package_in(self.venv), packages / "gpualloc")
        record, = self.venv.glob("lib/python*/site-packages/gpualloc-*.dist-info")
        shutil.copytree(record, packages / record.name)
        (prefix / "bin").mkdir()
        shutil.copy(self.venv / "bin/gpualloc", prefix / "bin")
        for other in ("lib/python3.1", "lib/python3.100"):
            self.other_version(prefix / other / "site-packages")
        self.assertNotIn("another", self.runs(prefix / "bin/gpualloc", "--version"))
        shutil.rmtree(packages / record.name)
        told = self.runs(prefix / "bin/gpualloc", "--version", status=1)
        self.assertRegex(told, r"^gpualloc: expected the Python package gpualloc [0-9.]+ in .*"
                               r": install its wheel again\n$")
        self.assertEqual(1, told.count("\n"))

    # ---- for programs that are compiled

    def test_compiling_against_it(self) -> None:
        prefix = self.runs(self.venv / "bin/python3", "-c",
                           "import gpualloc; print(gpualloc.prefix)")
        source = self.folder / "program.c"
        source.write_text("#include <gpualloc/gpualloc.h>\n#include <stdio.h>\n"
                          "int main(void) { return puts(ga_version_text()) < 0; }\n",
                          encoding="utf-8")
        (self.folder / "prefix").symlink_to(prefix.strip())
        flags = self.runs("pkg-config", "--define-prefix", "--cflags", "--libs", "gpualloc",
                          PKG_CONFIG_PATH=str(self.folder / "prefix/lib/pkgconfig")).split()
        # As pkg-config and as CMake's find_library() have it.
        for how in (flags, [flags[0], self.folder / "prefix/lib/libgpualloc.so"]):
            self.runs("cc", source, *how, "-o", self.folder / "program")
            told = self.runs(self.folder / "program",
                             LD_LIBRARY_PATH=str(self.folder / "prefix/lib"))
            self.assertRegex(told, r"^[0-9.]+\n$")

    @unittest.skipUnless(shutil.which("cmake"), "no cmake")
    def test_compiling_with_cmake(self) -> None:
        prefix = self.runs(self.venv / "bin/python3", "-c",
                           "import gpualloc; print(gpualloc.prefix)").strip()
        (self.folder / "program.c").write_text(
            "#include <gpualloc/gpualloc.h>\n#include <stdio.h>\n"
            "int main(void) { return puts(ga_version_text()) < 0; }\n", encoding="utf-8")
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(program LANGUAGES C)\n"
            "find_package(gpualloc 0.1 REQUIRED)\nadd_executable(program program.c)\n"
            "target_link_libraries(program gpualloc::gpualloc)\n", encoding="utf-8")
        self.runs("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", clean=False)
        self.runs("cmake", "--build", "build", clean=False)
        self.assertRegex(self.runs(self.folder / "build/program"), r"^[0-9.]+\n$")

    def test_manual(self) -> None:
        if not shutil.which("man"):
            self.skipTest("no man")
        path = f"{self.venv / 'bin'}:/usr/bin:/bin"
        told = self.runs("man", "-w", "ga_free", PATH=path, clean=False, MANPATH="")
        self.assertTrue(told.startswith(str(self.venv)), told)
        self.assertIn("ga_alloc", self.runs("man", "ga_free", PATH=path, clean=False, MANPATH=""))


if __name__ == "__main__":
    package.main()
