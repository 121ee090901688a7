# SPDX-License-Identifier: MIT
"""Shared by the tests of this folder: the paths of the build, running commands, and counting.

The last line is `N passed, N failed, N skipped`, which scripts/count-tests reads. From meson
come TEST_SOURCE and TEST_BUILD (the two roots), TEST_LIBRARY, TEST_PRELOAD and TEST_ALIGN (the
built libraries), TEST_CC (the C compiler), TEST_NVCC (empty: none), TEST_JEMALLOC and
TEST_SANITIZED (empty: no). A library that was built with a sanitizer loads only into programs
that were, too: tests that load it are skipped then.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TEST_SOURCE"])
BUILD = Path(os.environ["TEST_BUILD"])
LIBRARY = Path(os.environ["TEST_LIBRARY"])
PRELOAD = Path(os.environ["TEST_PRELOAD"])
ALIGN_PRELOAD = Path(os.environ["TEST_ALIGN"])
CC = os.environ["TEST_CC"].split()
NVCC = os.environ["TEST_NVCC"]
SANITIZED = bool(os.environ["TEST_SANITIZED"])
SPECS = ["system", "jemalloc"] if os.environ["TEST_JEMALLOC"] else ["system"]
HEADERS = sorted((SOURCE / "liballoc/include/gpualloc").glob("*.h"))

MALLOC_FAMILY = {"malloc", "free", "calloc", "realloc", "reallocarray", "memalign",
                 "posix_memalign", "aligned_alloc", "valloc", "pvalloc", "malloc_usable_size",
                 "malloc_trim", "mallinfo", "mallinfo2", "malloc_info", "malloc_stats", "cfree",
                 "free_sized", "free_aligned_sized"}


def quiet_environment() -> dict[str, str]:
    """This process's environment, without variables for other programs."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("GPUALLOC_") and name != "LD_PRELOAD"}


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-headers-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_command(self, *command: object, env: dict[str, str] | None = None,
                    silent: bool = True, timeout: int = 120) -> str:
        """The command's output; it must succeed, without output to standard error."""
        done = subprocess.run([str(part) for part in command], cwd=self.folder,
                              env=quiet_environment() | (env or {}), capture_output=True,
                              text=True, timeout=timeout)
        told = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        self.assertEqual(0, done.returncode, told)
        if silent:
            self.assertEqual("", done.stderr, told)
        return done.stdout

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


def bindings(*command: object, env: dict[str, str] | None = None
             ) -> tuple[dict[str, set[str]], set[str]]:
    """The dynamic linker's bindings while the command ran: for each name of the malloc family
    the libraries in which it was found, and all names that were found in the tested library."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=120, env=quiet_environment() | (env or {}) |
                          {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1"})
    found = re.findall(r"binding file \S+ \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(\w+)'",
                       done.stderr)
    family: dict[str, set[str]] = {}
    for library, name in found:
        if name in MALLOC_FAMILY:
            family.setdefault(name, set()).add(os.path.basename(library))
    return family, {name for library, name in found if "libgpualloc.so" in library}


def main() -> None:
    """Run the tests of the file that calls this."""
    result = unittest.main(exit=False, verbosity=1).result
    # A test can fail in several subtests, and counts once.
    broken = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    failed = len(broken) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", file=sys.stderr)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped",
          file=sys.stderr)
    sys.exit(1 if failed else 0)
