# SPDX-License-Identifier: MIT
"""The Python package around the libraries and the command of the build, without a wheel.

From meson come GA_PYTHON (the folder python/), GA_LIBRARY, GPUALLOC_BIN and GA_LIBCUDA (the folder
of the stand-in for the driver). GA_INTERPRETER is the Python under test, by default that of the
test; GA_LIBCUDA empty: the machine's driver.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = Path(os.environ["GA_PYTHON"])
LIBRARY = Path(os.environ["GA_LIBRARY"])
COMMAND = Path(os.environ["GPUALLOC_BIN"])
LIBCUDA = os.environ["GA_LIBCUDA"]
INTERPRETER = os.environ.get("GA_INTERPRETER", sys.executable)


class Case(unittest.TestCase):
    """A test with a package of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.package = self.folder / "gpualloc"
        shutil.copytree(SOURCE / "gpualloc", self.package,
                        ignore=shutil.ignore_patterns("__pycache__"))
        for name, file in (("lib/libgpualloc.so.0", LIBRARY), ("bin/gpualloc", COMMAND)):
            (self.package / name).parent.mkdir()
            (self.package / name).symlink_to(file)

    def python(self, program: str, *, variables: dict[str, str] | None = None,
               fails: bool = False) -> str:
        """The output of a program; `fails`: its last line of errors."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("GPUALLOC_") and name != "LD_PRELOAD"}
        environment |= {"PYTHONPATH": f"{self.folder}:{HERE / 'frameworks'}",
                        "PYTHONDONTWRITEBYTECODE": "1"}
        if LIBCUDA:
            environment["LD_LIBRARY_PATH"] = LIBCUDA
        done = subprocess.run([INTERPRETER, "-c", program], env=environment | (variables or {}),
                              capture_output=True, text=True, timeout=60)
        told = f"{program}\n{done.stdout}{done.stderr}"
        if fails:
            self.assertEqual(1, done.returncode, told)
            return done.stderr.strip().splitlines()[-1]
        self.assertEqual((0, ""), (done.returncode, done.stderr), told)
        return done.stdout.strip()


def main() -> None:
    """Run the tests of the file that calls this; scripts/count-tests reads the last line."""
    result = unittest.main(exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", file=sys.stderr)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped",
          file=sys.stderr)
    sys.exit(1 if failed else 0)
