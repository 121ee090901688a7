# SPDX-License-Identifier: MIT
"""What the tests of headers, libraries and the installation share. Meson gives the paths, by
variables that begin with GA_; lists in them are separated by spaces."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["GA_SOURCE"])
LIBRARY = Path(os.environ["GA_LIBRARY"])
PRELOAD = Path(os.environ["GA_PRELOAD"])
INCLUDE = SOURCE / "liballoc/include"
HEADERS = sorted((INCLUDE / "gpualloc").glob("*.h"))
CC = os.environ["GA_CC"].split()
HAVE_JEMALLOC = bool(os.environ.get("GA_HAVE_JEMALLOC"))
# What the environment of these tests holds must not decide what they find.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("GPUALLOC_", "PKG_CONFIG")) and
         name not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "DESTDIR")}

MALLOC_FAMILY = frozenset("""malloc free calloc realloc reallocarray memalign posix_memalign
    aligned_alloc valloc pvalloc malloc_usable_size malloc_trim mallinfo2 malloc_stats free_sized
    free_aligned_sized""".split())


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="gpualloc-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def run_well(self, *command: object, **environment: str) -> str:
        """Run a command, which must succeed; its output."""
        done = subprocess.run([str(word) for word in command], env=CLEAN | environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                              cwd=self.folder)
        self.assertEqual(0, done.returncode, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout


def exported(library: Path) -> set[str]:
    """The names a library defines for others, without their versions."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True,
                             capture_output=True).stdout
    names = (line.split() for line in listing.splitlines())
    # A version is an absolute symbol of its own.
    return {name.split("@")[0] for _, kind, name in names if kind != "A"}


def in_map(path: Path) -> set[str]:
    """The names a symbol map lets out."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    listed = re.search(r"global:(.*?)local:", text, re.DOTALL)
    assert listed, f"{path} has no global part"
    return set(re.findall(r"[\w.*]+", listed[1]))


def marked(header: Path) -> set[str]:
    """The functions a header marks GA_API."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    text = re.sub(r"^\s*#.*(\\\n.*)*$", "", text, flags=re.MULTILINE)
    return set(re.findall(r"\bGA_API\b[^;(]*?(\w+)\s*\(", text))


def main() -> None:
    """Run the tests of the calling module, and count them as scripts/count-tests reads it."""
    result = unittest.main(exit=False, verbosity=2).result
    # A test can fail in several subtests, and counts once.
    broken = [getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors]
    failed = len(set(broken)) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped",
          file=sys.stderr)
    sys.exit(1 if failed else 0)
