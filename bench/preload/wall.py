#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wall time of real programs with our preload, beside the ratio of the baseline to itself.

Every program runs under every way of serving its memory, in turn, again and again; a ratio is the
median over pairs of runs from the same round. The baseline runs twice in each round: its ratio to
itself says how much of a ratio is the machine's noise. A second column has processor time, user and
system, of the program and its children.

Verdicts: "held" if the median wall ratio is within the bar, "noise" if it is not but the baseline's
ratio to itself deviates as much, "OVER" otherwise; then the exit status is 1.
"""

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

ROWS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two ways of serving memory, and how much the first may take of the second's time."""

    way: str
    baseline: str
    bar: float


@dataclasses.dataclass(frozen=True)
class Run:
    wall: float
    cpu: float


COMPARISONS = [
    Comparison("host=system", "no preload", 1.02),
    Comparison("host=jemalloc", "libjemalloc.so.2", 1.03),
    Comparison("host=jemalloc,stats", "host=jemalloc", 1.10),
    Comparison("host=jemalloc,trace", "host=jemalloc", 2.0),
    Comparison("run --host=dl:libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so.4", 1.05),
    Comparison("run --host=dl:libmimalloc.so.2", "libmimalloc.so.2", 1.05),
    Comparison("run --host=dl:libjemalloc.so.2", "libjemalloc.so.2", 1.05),
]

LIBRARIES = ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"]

# The runs of a round: each baseline a second time, as its own comparison.
Slot = tuple[str, int]


def slots_of(comparisons: list[Comparison]) -> list[Slot]:
    slots: list[Slot] = []
    for c in comparisons:
        slots += [(c.baseline, 0), (c.way, 0), (c.baseline, 1)]
    return list(dict.fromkeys(slots))


def environment_of_run(command: str, spec: str) -> dict[str, str]:
    """The variables that `gpualloc run` sets for its program."""
    done = subprocess.run([command, "run", f"--host={spec}", "--", "env", "-0"], check=True,
                          env=common.clean_environment(), capture_output=True, text=True)
    both = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    return {name: value for name, value in both.items()
            if name == "LD_PRELOAD" or name.startswith("GPUALLOC_")}


def environments(command: str, preload: str, libraries: dict[str, str],
                 scratch: Path) -> dict[str, dict[str, str]]:
    ours = {"LD_PRELOAD": preload, "GPUALLOC_HOST": "jemalloc"}
    direct = {name: {"LD_PRELOAD": path} for name, path in libraries.items()}
    run = {f"run --host=dl:{name}": environment_of_run(command, f"dl:{path}")
           for name, path in libraries.items()}
    return direct | run | {
        "no preload": {},
        "host=system": ours | {"GPUALLOC_HOST": "system"},
        "host=jemalloc": ours,
        "host=jemalloc,stats": ours | {"GPUALLOC_STATS": str(scratch / "stats.json")},
        "host=jemalloc,trace": ours | {"GPUALLOC_TRACE": str(scratch / "trace")},
    }


# ---- the programs ----------------------------------------------------------------------------


def python_programs() -> list[Program]:
    script = str(common.ROOT / "bench/programs/structures.py")
    python = shutil.which("python3") or sys.executable
    return [Program("python", [python, script, "0.5"]),
            Program("python-malloc", [python, script, "0.5"], {"PYTHONMALLOC": "malloc"})]


def sqlite_program(inputs: Path) -> list[Program]:
    """Loads a million rows from CSV into a table with an index, in memory."""
    if not shutil.which("sqlite3"):
        return []
    rows, script = inputs / "rows.csv", inputs / "load.sql"
    with open(rows, "w", encoding="utf-8") as out:
        for row in range(ROWS):
            word = (row * 2654435761) % (1 << 32)
            out.write(f"{row},name-{word:x},{'x' * (word % 40)},{word / 7:.3f}\n")
    script.write_text("create table load(id integer primary key, name text, pad text, v real);\n"
                      f".mode csv\n.import {rows} load\n"
                      "create index by_name on load(name);\n"
                      "select count(*), sum(length(pad)), max(name) from load;\n")
    return [Program("sqlite3", ["sqlite3", ":memory:", f".read {script}"])]


def without_outputs(command: str) -> str:
    """A compile command that writes nowhere, and no dependencies beside it."""
    words = shlex.split(command)
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word in ("-o", "-MF", "-MQ"):
            words.pop(0)
        elif word != "-MD":
            kept.append(word)
    return shlex.join(kept + ["-o", "/dev/null"])


def gcc_program(build: Path, inputs: Path) -> list[Program]:
    """Compiles the library's sources as the build does, one after another."""
    database = build / "compile_commands.json"
    if not database.is_file():
        return []
    commands: dict[str, str] = {}
    for entry in json.loads(database.read_text()):
        source = (Path(entry["directory"]) / entry["file"]).resolve()
        if source.suffix == ".c" and source.is_relative_to(common.ROOT / "liballoc"):
            line = f"cd {shlex.quote(entry['directory'])} && {without_outputs(entry['command'])}"
            commands.setdefault(str(source), line)
    script = inputs / "compile.sh"
    script.write_text("set -e\n" + "\n".join(commands.values()) + "\n")
    return [Program("gcc", ["sh", str(script)])]


# ---- running them ----------------------------------------------------------------------------


def run_once(program: Program, environment: dict[str, str], scratch: Path) -> Run:
    """Time one run, from its start to its end, and remove the files that it leaves in `scratch`."""
    full = common.clean_environment() | program.environment | environment
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        child = subprocess.Popen(program.command, env=full, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if child.returncode != 0 or "gpualloc:" in text:
        sys.exit(f"wall: {program.name} under {environment} ended with {child.returncode}:\n{text}")
    for leftover in scratch.iterdir():
        leftover.unlink()
    return Run(wall, usage.ru_utime + usage.ru_stime)


def run_program(program: Program, slots: list[Slot], ways: dict[str, dict[str, str]], pairs: int,
                scratch: Path) -> dict[Slot, list[Run]]:
    runs: dict[Slot, list[Run]] = {slot: [] for slot in slots}
    run_once(program, {}, scratch)  # so that files are in memory
    for turn in range(pairs):
        for place in range(len(slots)):
            slot = slots[(turn + place) % len(slots)]
            runs[slot].append(run_once(program, ways[slot[0]], scratch))
        if sys.stderr.isatty():
            print(f"\r{program.name}: {turn + 1} of {pairs} rounds\033[K", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return runs


# ---- results ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Figures:
    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> "Figures":
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Figures(median, low, high)


def ratios(runs: dict[Slot, list[Run]], upper: Slot, lower: Slot, what: str) -> Figures:
    return Figures.of([getattr(a, what) / getattr(b, what)
                       for a, b in zip(runs[upper], runs[lower])])


def verdict_of(ratio: Figures, itself: Figures, bar: float) -> str:
    if ratio.median <= bar:
        return "held"
    return "noise" if max(itself.high, 1 / itself.low) >= ratio.median else "OVER"


def print_comparisons(program: Program, comparisons: list[Comparison],
                      runs: dict[Slot, list[Run]]) -> list[str]:
    verdicts = []
    for c in comparisons:
        base, again, way = (c.baseline, 0), (c.baseline, 1), (c.way, 0)
        wall, itself = ratios(runs, way, base, "wall"), ratios(runs, again, base, "wall")
        cpu = ratios(runs, way, base, "cpu")
        verdict = verdict_of(wall, itself, c.bar)
        seconds = Figures.of([run.wall for run in runs[base]]).median
        print(f"{program.name:14} {c.way:39} {c.baseline:25}{seconds:7.2f}{wall.median:8.3f}"
              f"  {wall.low:.3f} to {wall.high:.3f}{itself.median:8.3f}"
              f"  {itself.low:.3f} to {itself.high:.3f}{cpu.median:8.3f}{c.bar:7.2f}  {verdict}",
              flush=True)
        verdicts.append(verdict)
    return verdicts


def write_json(path: str, program: Program, comparisons: list[Comparison],
               runs: dict[Slot, list[Run]]) -> None:
    """A line for each way and its baseline's ratio to itself, by wall and by processor time."""
    with open(path, "a", encoding="utf-8") as out:
        for c in comparisons:
            for slot in ((c.way, 0), (c.baseline, 1)):
                for what in ("wall", "cpu"):
                    figures = Figures.of([getattr(run, what) for run in runs[slot]])
                    common.write_result(
                        out, bench=f"program-{program.name}", spec=slot[0], metric=what, unit="s",
                        value=figures.median, spread=figures.high - figures.low,
                        baseline=c.baseline,
                        ratio=ratios(runs, slot, (c.baseline, 0), what).median)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_build_arguments(parser, preload="interpose/malloc/libgpualloc-malloc.so",
                               command="interpose/cli/gpualloc")
    parser.add_argument("--pairs", type=int, default=11, metavar="N",
                        help="rounds, at least 2 (default: 11)")
    parser.add_argument("--only", metavar="NAME", help="one program only")
    parser.add_argument("--program", metavar="COMMAND", action="append", default=[],
                        help="time this command, too; its name is that of its file")
    parser.add_argument("--ways", metavar="TEXT", default="",
                        help="only comparisons of ways whose name contains TEXT")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON lines")
    arguments = parser.parse_args()
    if arguments.pairs < 2:
        parser.error("--pairs: at least 2")
    common.resolve_products(arguments)
    return arguments


def choose(programs: list[Program], only: str | None) -> list[Program]:
    chosen = [program for program in programs if only in (None, program.name)]
    if not chosen:
        names = ", ".join(program.name for program in programs)
        print(f"wall: --only: no program {only}; known here: {names}", file=sys.stderr)
        sys.exit(2)
    return chosen


def main() -> int:
    arguments = parse_arguments()
    found = {name: common.find_library(name) for name in LIBRARIES}
    libraries = {name: path for name, path in found.items() if path}
    if "libjemalloc.so.2" not in libraries:
        sys.exit("wall: no libjemalloc.so.2 to compare with; install Debian's libjemalloc2")
    if arguments.json:
        open(arguments.json, "w", encoding="utf-8").close()
    with tempfile.TemporaryDirectory(prefix="gpualloc-wall.") as directory:
        inputs, scratch = Path(directory) / "inputs", Path(directory) / "scratch"
        inputs.mkdir()
        scratch.mkdir()
        own = [Program(Path(shlex.split(command)[0]).name, shlex.split(command))
               for command in arguments.program]
        programs = choose(own + python_programs() + sqlite_program(inputs)
                          + gcc_program(arguments.build.resolve(), inputs), arguments.only)
        ways = environments(arguments.command, arguments.preload, libraries, scratch)
        comparisons = [c for c in COMPARISONS if c.baseline in ways and arguments.ways in c.way]
        if not comparisons:
            sys.exit(f"wall: --ways: no way has \"{arguments.ways}\" in its name; known here: "
                     + ", ".join(c.way for c in COMPARISONS if c.baseline in ways))
        slots = slots_of(comparisons)
        print(f"{arguments.pairs} rounds; ratios of wall time, median and quartiles; `self` is the "
              "baseline against itself\n"
              f"{'program':14} {'with':39} {'over':25}{'s':>7}{'ratio':>8}  {'quartiles':14}"
              f"{'self':>8}  {'quartiles':14}{'cpu':>8}{'bar':>7}")
        verdicts: list[str] = []
        for program in programs:
            runs = run_program(program, slots, ways, arguments.pairs, scratch)
            verdicts += print_comparisons(program, comparisons, runs)
            if arguments.json:
                write_json(arguments.json, program, comparisons, runs)
    return 1 if "OVER" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
