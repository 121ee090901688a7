#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A process with more privileges than its caller ignores the caller's environment.

Every variable is tried on a copy of the program that is setuid root and started by another
user, and, to show that the case can fail, on one that is not setuid.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NOBODY = 65534
SPY = os.environ["GA_SPY"]
ROOT = Path(os.environ["GA_SOURCE"])
PROGRAMS = {name: os.environ[f"GA_PRIVILEGED_{name.upper()}"] for name in ("archive", "library")}


class Privileged(unittest.TestCase):

    def setUp(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can make a program setuid root")
        holder = tempfile.TemporaryDirectory(prefix="gpualloc-", dir="/var/tmp")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.folder.chmod(0o755)
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest(f"{self.folder} is mounted nosuid")
        if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text():
            self.skipTest("this process has given up new rights")
        self.spy = shutil.copy(SPY, self.folder / "spy.so")

    def run_as_nobody(self, program: str, setuid: bool, *arguments: str,
                      **variables: str) -> tuple[int, str, list[Path]]:
        """The status, all that was printed, and the files that were made."""
        copy = self.folder / "program"
        written = self.folder / "written"
        shutil.copy(PROGRAMS[program], copy)
        copy.chmod(0o4755 if setuid else 0o755)
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir()
        written.chmod(0o777)
        environment = {"PATH": "/usr/bin:/bin", **{f"GPUALLOC_{key}": value
                                                   for key, value in variables.items()}}
        done = subprocess.run([copy, *arguments], env=environment, capture_output=True, text=True,
                              user=NOBODY, group=NOBODY, extra_groups=[], timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr, list(written.iterdir())

    def expect(self, program: str, seen: str, *arguments: str, **variables: str) -> None:
        """`seen`, an expression, is printed, or a file's name, without the privileges alone."""
        for setuid in (False, True):
            with self.subTest(program=program, setuid=setuid, **variables):
                _, text, files = self.run_as_nobody(program, setuid, *arguments, **variables)
                shown = text + "".join(path.name for path in files)
                if setuid:
                    self.assertNotRegex(shown, seen)
                    self.assertEqual(files, [])
                else:
                    self.assertRegex(shown, seen)

    def test_libraries(self) -> None:
        for program in PROGRAMS:
            self.expect(program, "spy: loaded", HOST=f"dl:{self.spy}")
            self.expect(program, "spy: loaded", PLUGINS=self.spy)
        self.expect("library", "spy: loaded", "device", CUDA_DRIVER=self.spy)

    def test_files(self) -> None:
        written = self.folder / "written"
        for program in PROGRAMS:
            self.expect(program, "statistics", STATS=str(written / "statistics"))
            self.expect(program, "trace", TRACE=str(written / "trace"))

    def test_specs(self) -> None:
        for program in PROGRAMS:
            self.expect(program, "bogus", HOST="bogus")
        self.expect("library", "bogus", "device", DEVICE="bogus")
        self.expect("library", "bogus", "kernel", KERNEL="bogus")

    def test_strict(self) -> None:
        for setuid, expected in ((False, 2), (True, 0)):
            status, text, _ = self.run_as_nobody("archive", setuid, HOST="bogus", STRICT="1")
            self.assertEqual(status, expected, text)

    def test_log_and_reserve(self) -> None:
        for program in PROGRAMS:
            self.expect(program, "GPUALLOC_RESERVE", HOST="jemalloc", RESERVE="bogus", LOG="debug")


class Sources(unittest.TestCase):

    def test_variables_are_read_in_one_place(self) -> None:
        places = [path for room in ("liballoc", "interpose", "hashtables", "bench")
                  for path in (ROOT / room).rglob("*")
                  if path.suffix in (".c", ".h", ".cu", ".cuh", ".hpp")
                  and re.search(r"\b(secure_)?getenv\(", re.sub(r"/\*.*?\*/", "", path.read_text(),
                                                                flags=re.DOTALL))]
        self.assertEqual(sorted(str(path.relative_to(ROOT)) for path in places),
                         ["interpose/gpu_mpi/launch.cuh",  # compiled as a part of the program
                          "liballoc/platform/environment.c"])


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, "
          f"{len(result.skipped)} skipped")
    sys.exit(failed > 0)
