# SPDX-License-Identifier: MIT
"""Run programs with and without the preload, under each configuration.

The paths come from the environment: GA_PRELOAD is the library, GA_PRELOAD_FIRST a library to
preload before it, GA_PROGRAMS the folder with the programs of this one. A hang is a failure:
every program has a deadline and is killed with all its children.
"""

import glob
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple, NoReturn

PRELOAD = os.environ["GA_PRELOAD"]
FIRST = os.environ.get("GA_PRELOAD_FIRST", "")  # a sanitizer's own library
PROGRAMS = Path(os.environ["GA_PROGRAMS"])
SKIP = 77
# The environment of the test run must not affect the tests.
CLEAN = {key: value for key, value in os.environ.items()
         if not key.startswith("GPUALLOC_") and key not in ("LD_PRELOAD", "MALLOC_PERTURB_")}


class Outcome(NamedTuple):
    status: int
    stdout: str
    stderr: str


class Configuration(NamedTuple):
    """A configuration of the preload: GPUALLOC_HOST, and the records to make."""
    name: str
    host: str
    stats: bool = False
    trace: bool = False
    stacks: bool = False
    library: str = ""  # of a `dl` backend: its path
    # The backend's own records are the C library's blocks, of many sizes: foreign.c explains the
    # consequence for blocks of a second C library.
    records: bool = False

    def environment(self, folder: Path) -> dict[str, str]:
        variables = {"GPUALLOC_HOST": self.host}
        if self.stats:
            variables["GPUALLOC_STATS"] = str(folder / "stats.json")
        if self.trace:
            variables["GPUALLOC_TRACE"] = str(folder / "trace.%p")
        if self.stacks:
            variables["GPUALLOC_TRACE_STACKS"] = "16"
        return variables


def find_library(pattern: str) -> str:
    folders = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    return next((path for folder in folders for path in glob.glob(f"{folder}/{pattern}")), "")


def configuration(name: str) -> Configuration:
    """The configuration of that name; the program ends as skipped where its library is missing."""
    libraries = {"mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
    if name in libraries:
        path = find_library(libraries[name])
        if not path:
            skip(f"{libraries[name]} is not installed")
        return Configuration(name, "dl:" + path, library=path)
    known = [Configuration("system", "system"), Configuration("jemalloc", "jemalloc"),
             Configuration("slab", "slab/system"), Configuration("vmm", "vmm", records=True),
             Configuration("hazard", "hazard/system"), Configuration("hardened", "hardened"),
             Configuration("stats", "jemalloc", stats=True),
             Configuration("trace", "jemalloc", trace=True),
             Configuration("stacks", "jemalloc", trace=True, stacks=True)]
    return next(one for one in known if one.name == name)


def run(program: str, *arguments: str, environment: dict[str, str | None] | None = None,
        preload: bool = True, behind: str = "", timeout: float = 60,
        **options: object) -> Outcome:
    """Run a program; `environment` is added to a clean one (None: unset), `behind` is a library to
    preload after the preload. `options` go to Popen."""
    variables = CLEAN | {"LC_ALL": "C"} | (environment or {})
    variables = {name: value for name, value in variables.items() if value is not None}
    libraries = [FIRST, PRELOAD, behind] if preload else [FIRST]
    if any(libraries):
        variables["LD_PRELOAD"] = ":".join(filter(None, libraries))
    path = program if os.path.isabs(program) else str(PROGRAMS / program)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen([path, *arguments], env=variables, text=True,
                               start_new_session=True, **(pipes | options))
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"{program} hung, was killed after {timeout} s\n{stdout}{stderr}"
                             ) from None
    return Outcome(process.returncode, stdout or "", stderr or "")


def run_without(program: str, *arguments: str) -> Outcome:
    """Run a program without the preload, or read the outcome of an earlier run: the tests of ten
    configurations need the outcome of one program, which takes seconds. Outcomes are beside the
    programs; a new program, C library or kernel needs a new run."""
    path = PROGRAMS / program
    told = repr((program, arguments, path.stat().st_mtime_ns, FIRST, platform.release(),
                 os.confstr("CS_GNU_LIBC_VERSION")))
    kept = PROGRAMS / f"{program}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.without"
    try:
        return Outcome(*json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass
    outcome = run(program, *arguments, preload=False)
    if outcome.status == 0:
        with tempfile.NamedTemporaryFile("w", dir=PROGRAMS, encoding="utf-8", delete=False) as new:
            json.dump(outcome, new)
        os.replace(new.name, kept)
    return outcome


class Case(unittest.TestCase):
    """A test with a folder of its own; `setup` is set by main()."""
    setup: Configuration

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="gpualloc-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def under(self, program: str, *arguments: str, **options: object) -> Outcome:
        """Run a program under the configuration; its records must be there afterwards."""
        outcome = run(program, *arguments, environment=self.setup.environment(self.folder),
                      **options)
        if outcome.status == SKIP:
            self.skipTest(f"{program} cannot run here")
        self.assertEqual(outcome.status, 0, outcome.stderr or outcome.stdout)
        if self.setup.stats:
            self.assertIn('"spec":"jemalloc', (self.folder / "stats.json").read_text())
        if self.setup.trace:
            self.assertTrue([path for path in self.folder.glob("trace.*")
                             if path.stat().st_size > 4096])
        return outcome

    def quiet(self, outcome: Outcome) -> None:
        self.assertEqual([line for line in outcome.stderr.splitlines() if "gpualloc:" in line], [])

    def same_as_without(self, program: str, *arguments: str, **options: object) -> Outcome:
        """Run a program with and without the preload: the outputs must be equal."""
        own = bool(options) or any(str(self.folder) in argument for argument in arguments)
        without = (run(program, *arguments, preload=False, **options) if own
                   else run_without(program, *arguments))
        if without.status == SKIP:
            self.skipTest(f"{program} cannot run here")
        self.assertEqual(without.status, 0, "without the preload: " + without.stderr)
        outcome = self.under(program, *arguments, **options)
        self.assertEqual(outcome.stdout, without.stdout)
        self.quiet(outcome)
        return outcome

    def family(self, **options: object) -> Outcome:
        if not self.setup.library:
            return self.same_as_without("family", **options)
        # A library serves directly: it aligns small blocks as it likes, and errno is its own.
        without = run("family", preload=False, **options)
        outcome = self.under("family", "8", **options)
        self.assertEqual(outcome.stdout.replace("errno 0", "errno ENOMEM"),
                         without.stdout.replace("errno 0", "errno ENOMEM"))
        self.quiet(outcome)
        return outcome

    def foreign(self, **options: object) -> Outcome:
        second = "unasked" if self.setup.library else "apart" if self.setup.records else ""
        return self.same_as_without("foreign", *filter(None, [second]), **options)


def skip(reason: str) -> NoReturn:
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def main() -> None:
    """Run the tests of the calling module; an argument names the configuration."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        Case.setup = configuration(sys.argv.pop(1))
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
