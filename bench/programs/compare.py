#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run one program under several host backends, in turn; print wall time and memory side by side.

The program also runs twice a round as it is, without gpualloc: the ratio of these two says how much
of any other ratio is noise. Every run must print the output of the first one.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

BASELINE = "no preload"
AGAIN = "no preload, again"


class Run(NamedTuple):
    wall: float  # seconds
    peak: float  # MiB


def run(command: list[str], expected: bytes | None) -> tuple[Run, bytes]:
    """Run once; exit if the program fails or its output differs from the expected one."""
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if child.returncode:
        sys.exit(f"compare: exit status {child.returncode} from: {' '.join(command)}")
    if expected is not None and printed != expected:
        sys.exit(f"compare: other output than without a preload from: {' '.join(command)}")
    return Run(wall, usage.ru_maxrss / 1024), printed


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[Run]]:
    """Interleave the commands, so that a slow spell of the machine falls on all of them."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    expected = None
    for number in range(rounds):
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {rounds} ", end="", file=sys.stderr, flush=True)
        for name, command in commands.items():
            result, expected = run(command, expected)
            runs[name].append(result)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return runs


def median(runs: list[Run], field: str) -> float:
    return statistics.median(getattr(result, field) for result in runs)


def spread(runs: list[Run], field: str) -> float:
    """The interquartile range."""
    values = [getattr(result, field) for result in runs]
    if len(values) == 1:
        return 0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def ratio(runs: list[Run], base: list[Run], field: str) -> float:
    """The median over rounds of this run against the baseline's run beside it."""
    return statistics.median(
        getattr(mine, field) / getattr(theirs, field) for mine, theirs in zip(runs, base))


def table(results: dict[str, list[Run]]) -> None:
    width = max(map(len, results))
    print("A cell is the median over the rounds, half of the interquartile range, and the ratio to "
          f'"{BASELINE}" in the same round')
    print(f"{'':{width}}  {'wall s':>8} {'':>7} {'ratio':>6}  {'peak MiB':>9} {'ratio':>6}")
    base = results[BASELINE]
    for name, runs in results.items():
        half = spread(runs, "wall") / median(runs, "wall") / 2
        print(f"{name:{width}}  {median(runs, 'wall'):8.3f} {f'±{half:.1%}':>7}"
              f" {ratio(runs, base, 'wall'):6.3f}  {median(runs, 'peak'):9.1f}"
              f" {ratio(runs, base, 'peak'):6.3f}")


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def commit() -> str:
    here = pathlib.Path(__file__).parent
    told = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def write_json(path: str, bench: str, results: dict[str, list[Run]]) -> None:
    """JSON lines with the keys of `gpualloc bench --json`, added to the file."""
    same = {"bench": bench, "place": "host", "device": processor(), "driver": None, "threads": 1,
            "size": None, "baseline": BASELINE, "commit": commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    with open(path, "a", encoding="utf-8") as lines:
        for spec, runs in results.items():
            for metric, unit, field in (("wall", "s", "wall"), ("peak_rss", "MiB", "peak")):
                line = same | {
                    "spec": spec, "metric": metric, "unit": unit,
                    "value": round(median(runs, field), 4), "spread": round(spread(runs, field), 4),
                    "ratio": round(ratio(runs, results[BASELINE], field), 4)}
                lines.write(json.dumps(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gpualloc", default="gpualloc", help="the command; default: from PATH")
    parser.add_argument("--host", action="append", metavar="SPEC",
                        help="a backend; may be repeated (default: system, jemalloc)")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each (default: 11)")
    parser.add_argument("--json", metavar="FILE", help="add the figures to FILE as JSON lines")
    parser.add_argument("--name", help="what to call the program in FILE")
    parser.add_argument("program", nargs="+", help="the program and its arguments, after --")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error(f"--rounds: {asked.rounds} is less than 1")

    commands = {BASELINE: asked.program, AGAIN: asked.program}
    for spec in asked.host or ["system", "jemalloc"]:
        commands[spec] = [asked.gpualloc, "run", f"--host={spec}", "--", *asked.program]
    results = measure(commands, asked.rounds)
    table(results)
    if asked.json:
        write_json(asked.json, asked.name or pathlib.Path(asked.program[0]).name, results)


if __name__ == "__main__":
    main()
