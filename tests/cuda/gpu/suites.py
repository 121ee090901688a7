#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run other projects' test suites under the preload and without it, and compare them test by test.

  suites.py --suite torch --path FOLDER --preload libgpualloc-cuda.so [--spec none,vmm,async,cuda]
            [--shard i/n] [--minutes 9] [--each 120] [--out FOLDER] [-k WORDS] [--tests FILE]
  suites.py --compare FOLDER...

SUITE     FOLDER holds
  torch     PyTorch's test_cuda.py and its imports, of the version installed
  torch-multiprocessing   test_multiprocessing.py: its CUDA tests
  cupy      CuPy's tests/cupy_tests/cuda_tests, of the version installed
  samples   built cuda-samples: each executable below it is a test, which passes with status 0

`none` is the run without the preload. Specs run one after the other. Each test has a line in
OUT/SUITE.SPEC.jsonl, written before it starts and when it ends, so that a test that kills its
process is known; after a failure the rest continues in a new process, because the context may be
lost. A test with an outcome is not run again: the same command continues an interrupted run.

--compare reads such folders and prints a table of the differences from `none`, in Markdown. The
exit status is 1 if there are differences, and 77 if nothing was run.
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SUITES = {
    "torch": ["test_cuda.py"],
    "torch-multiprocessing": ["test_multiprocessing.py"],
    "cupy": ["."],
    "samples": [],
}
KEYWORDS = {"torch-multiprocessing": "cuda"}
FINISHED = {"passed", "failed", "skipped", "xfailed", "xpassed", "error", "crashed", "timeout"}
GOOD = {"passed", "skipped", "xfailed", "xpassed"}
FAILED_STATUS = 70  # of a process that ends after a failure


# ---- within pytest: python3 -m pytest -p suites ------------------------------------------------

def write(**line: object) -> None:
    with open(os.environ["SUITES_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def outcome_of(report: object) -> str:
    if not hasattr(report, "wasxfail"):
        return report.outcome
    return {"skipped": "xfailed", "passed": "xpassed"}.get(report.outcome, report.outcome)


class Phases:
    """The outcome of the test that runs now, from those of its setup, call and teardown."""

    outcome = "passed"
    why = ""

    @classmethod
    def begin(cls) -> None:
        cls.outcome, cls.why = "passed", ""

    @classmethod
    def note(cls, report: object) -> None:
        if cls.outcome in GOOD and (report.when == "call" or report.outcome != "passed"):
            cls.outcome = outcome_of(report)
        if report.outcome == "failed" and not cls.why:
            cls.why = (str(report.longrepr or "").strip().splitlines() or [""])[-1][:200]


def pytest_runtest_logstart(nodeid: str, location: object) -> None:
    del location
    Phases.begin()
    write(test=nodeid, outcome="started", at=time.time())


def pytest_runtest_logreport(report: object) -> None:
    Phases.note(report)


def pytest_runtest_logfinish(nodeid: str, location: object) -> None:
    del location
    write(test=nodeid, outcome=Phases.outcome, why=Phases.why, at=time.time())
    if Phases.outcome not in GOOD:
        sys.stdout.flush()
        os._exit(FAILED_STATUS)


# ---- results ------------------------------------------------------------------------------------

def outcomes(log: Path) -> dict[str, dict]:
    """The last line of each test; a test that started and did not end is left at that."""
    last: dict[str, dict] = {}
    if log.exists():
        for text in log.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            last[line["test"]] = line
    return last


def append(log: Path, **line: object) -> None:
    with log.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


class Run:
    """A suite under one spec."""

    def __init__(self, arguments: argparse.Namespace, spec: str, deadline: float) -> None:
        self.arguments, self.spec, self.deadline = arguments, spec, deadline
        arguments.out.mkdir(parents=True, exist_ok=True)
        self.log = arguments.out / f"{arguments.suite}.{spec.replace('/', '+')}.jsonl"
        self.said = self.log.with_suffix(".txt")

    def environment(self) -> dict[str, str]:
        variables = dict(os.environ)
        here = str(Path(__file__).resolve().parent)
        before = variables.get("PYTHONPATH", "")
        variables["PYTHONPATH"] = here + (os.pathsep + before if before else "")
        variables["SUITES_LOG"] = str(self.log.resolve())
        if self.spec != "none":
            before = variables.get("LD_PRELOAD", "")
            variables["LD_PRELOAD"] = self.arguments.preload + (":" + before if before else "")
            variables["GPUALLOC_DEVICE"] = self.spec
        return variables

    def wait(self, process: subprocess.Popen) -> str:
        """Until it ends: how. A test that runs for too long is killed, with its children."""
        while process.poll() is None:
            running = [line for line in outcomes(self.log).values() if line["outcome"] == "started"]
            began = max((line["at"] for line in running), default=time.time())
            if running and time.time() - began > self.arguments.each:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "timeout"
            if time.time() > self.deadline:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "deadline"
            time.sleep(0.5)
        return "crashed"

    def start(self, command: list[str], folder: Path) -> subprocess.Popen:
        with self.said.open("a", encoding="utf-8") as said:
            return subprocess.Popen(command, cwd=folder, env=self.environment(), stdout=said,
                                    stderr=subprocess.STDOUT, start_new_session=True)

    def settle(self, how: str, process: subprocess.Popen) -> None:
        """Tests that started and did not end have ended as the process did."""
        for name, line in outcomes(self.log).items():
            if line["outcome"] == "started" and how != "deadline":
                append(self.log, test=name, outcome=how, why=f"status {process.returncode}",
                       at=time.time())

    def left(self, tests: list[str]) -> list[str]:
        known = outcomes(self.log)
        return [t for t in tests if known.get(t, {}).get("outcome") not in FINISHED]

    def run_pytest(self, tests: list[str]) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "suites", "-p", "no:cacheprovider",
                   "-p", "no:xdist", "--continue-on-collection-errors"]
        left = self.left(tests)
        while left and time.time() < self.deadline:
            process = self.start(command + left[:400], self.arguments.path)
            how = self.wait(process)
            self.settle(how, process)
            after = self.left(tests)
            if len(after) == len(left) and how != "deadline":  # it does not even begin
                append(self.log, test=left[0], outcome="error",
                       why=f"pytest: status {process.returncode}, see {self.said.name}",
                       at=time.time())
                after = self.left(tests)
            left = after

    def run_programs(self, tests: list[str]) -> None:
        for name in self.left(tests):
            if time.time() >= self.deadline:
                return
            append(self.log, test=name, outcome="started", at=time.time())
            path = self.arguments.path / name
            process = self.start([str(path.resolve())], path.parent)
            how = self.wait(process)
            if how == "crashed":
                status = process.returncode
                how = {0: "passed", 2: "skipped"}.get(status, "failed" if status > 0 else "crashed")
            if how != "deadline":
                append(self.log, test=name, outcome=how, why=f"status {process.returncode}",
                       at=time.time())

    def run(self, tests: list[str]) -> None:
        if self.arguments.suite == "samples":
            self.run_programs(tests)
        else:
            self.run_pytest(tests)
        known = outcomes(self.log)
        found = collections.Counter(known.get(t, {}).get("outcome", "not run") for t in tests)
        print(f"{self.arguments.suite} under {self.spec}: "
              + ", ".join(f"{n} {name}" for name, n in sorted(found.items())), flush=True)


# ---- lists of tests ------------------------------------------------------------------------

def executables(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                  if path.is_file() and os.access(path, os.X_OK)
                  and path.open("rb").read(4) == b"\x7fELF" and ".so" not in path.name
                  and "CMakeFiles" not in path.parts)


def collect(arguments: argparse.Namespace) -> list[str]:
    """The tests of a suite, in its order; stored beside the results, so that all specs run one
    list."""
    kept = arguments.out / f"{arguments.suite}.tests"
    if kept.exists():
        return kept.read_text(encoding="utf-8").splitlines()
    if arguments.suite == "samples":
        tests = executables(arguments.path)
    else:
        words = arguments.k or KEYWORDS.get(arguments.suite, "")
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
                   *(["-k", words] if words else []), *SUITES[arguments.suite]]
        outcome = subprocess.run(command, cwd=arguments.path, capture_output=True, text=True,
                                 check=False)
        tests = [line for line in outcome.stdout.splitlines() if "::" in line
                 and not line.startswith(("ERROR", "="))]
        if not tests:
            print(outcome.stdout[-3000:] + outcome.stderr[-3000:])
    arguments.out.mkdir(parents=True, exist_ok=True)
    if tests:
        kept.write_text("\n".join(tests) + "\n", encoding="utf-8")
    return tests


def listed(tests: list[str], file: Path) -> list[str]:
    """The tests of the suite that FILE names, one a line."""
    names = set(file.read_text(encoding="utf-8").splitlines())
    return [test for test in tests if test in names]


def shard_of(tests: list[str], shard: str) -> list[str]:
    number, _, count = shard.partition("/")
    return tests[int(number) - 1::int(count)]


# ---- comparing ----------------------------------------------------------------------------------

def read_results(folders: list[Path]) -> dict[str, dict[str, dict[str, dict]]]:
    """By suite, spec and test."""
    found: dict[str, dict[str, dict[str, dict]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict))
    for folder in folders:
        for log in sorted(folder.rglob("*.jsonl")):
            suite, _, spec = log.stem.partition(".")
            for name, line in outcomes(log).items():
                if line["outcome"] in FINISHED:
                    found[suite][spec][name] = line
    return found


def differs(outcome: str, plain: str) -> bool:
    """True if a test is worse or better than without the preload; skipped or not is a
    difference."""
    return outcome != plain and not (outcome not in GOOD and plain not in GOOD)


def compare_suite(suite: str, specs: dict[str, dict[str, dict]]) -> int:
    plain = specs.get("none", {})
    others = sorted(spec for spec in specs if spec != "none")
    different, compared = [], collections.Counter()
    for name in plain:
        row = [specs[spec].get(name, {}).get("outcome", "-") for spec in others]
        for spec, outcome in zip(others, row):
            compared[spec] += outcome != "-"
        if any(o != "-" and differs(o, plain[name]["outcome"]) for o in row):
            different.append((name, plain[name]["outcome"], row))
    print(f"\n## {suite}\n")
    for spec in ["none"] * ("none" in specs) + others:
        counts = collections.Counter(line["outcome"] for line in specs[spec].values())
        print(f"- {spec}: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
              + (f"; {compared[spec]} compared" if spec != "none" else ""))
    if different:
        print("\n| test | none | " + " | ".join(others) + " | why |")
        print("|---" * (len(others) + 3) + "|")
        for name, before, row in different:
            why = next((specs[s][name].get("why", "") for s, o in zip(others, row)
                        if o != "-" and differs(o, before)), "")
            print(f"| `{name}` | {before} | " + " | ".join(row) + f" | {why.replace('|', '/')} |")
    else:
        print("\nno difference")
    return len(different)


def compare(folders: list[Path]) -> int:
    found = read_results(folders)
    if not any("none" in specs and len(specs) > 1 for specs in found.values()):
        print("nothing to compare: run none and another spec first")
        return 77
    return 1 if sum(compare_suite(suite, specs) for suite, specs in sorted(found.items())) else 0


# ---- the command --------------------------------------------------------------------------------

def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES)
    parser.add_argument("--path", type=Path)
    parser.add_argument("--preload", default="libgpualloc-cuda.so")
    parser.add_argument("--spec", default="none,vmm,async,cuda")
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--each", type=float, default=120, help="seconds for one test")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "suites-out")))
    parser.add_argument("-k", default="", help="pytest's expression for names")
    parser.add_argument("--tests", type=Path, help="a file that names the tests to run, one a line")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="FOLDER")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.compare:
        return compare(arguments.compare)
    if not arguments.suite or not arguments.path or not arguments.path.is_dir():
        print("suites.py: --suite and --path, a folder, are needed; see --help", file=sys.stderr)
        return 2
    arguments.path = arguments.path.resolve()
    if Path(arguments.preload).exists():
        arguments.preload = str(Path(arguments.preload).resolve())
    tests = collect(arguments)
    if arguments.tests:
        tests = listed(tests, arguments.tests)
    tests = shard_of(tests, arguments.shard)
    if not tests:
        return 77
    deadline = time.time() + arguments.minutes * 60
    specs = arguments.spec.split(",")
    for i, spec in enumerate(specs):  # each has its share of the remaining time
        share = (deadline - time.time()) / (len(specs) - i)
        Run(arguments, spec, time.time() + share).run(tests)
    return compare([arguments.out]) if len(specs) > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
