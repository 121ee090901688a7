#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The time that `gpualloc run` adds to the start of a program, and that of `import gpualloc`.

  start.py [--rounds N] GPUALLOC [PYTHON]

Each round runs every command once, so that all meet the same load. The columns are milliseconds:
the fastest round, which had the least other load, the median, and the median of processor time.
With PYTHON, which has the module, the import is measured beside an empty program."""

import argparse
import os
import statistics
import time


def run(command: list[str]) -> tuple[float, float]:
    """Milliseconds of wall clock and of processor time."""
    begun = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    assert status == 0, command
    return 1000 * (time.perf_counter() - begun), 1000 * (usage.ru_utime + usage.ru_stime)


def columns(rounds: list[tuple[float, float]]) -> tuple[float, float, float]:
    wall, processor = zip(*rounds)
    return min(wall), statistics.median(wall), statistics.median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description="time that gpualloc run adds to a start")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("gpualloc")
    parser.add_argument("python", nargs="?")
    arguments = parser.parse_args()
    commands = {"true": ["true"]}
    for spec in ("system", "jemalloc", "slab/system"):
        commands[f"run {spec}"] = [arguments.gpualloc, "run", f"--host={spec}", "--", "true"]
    if arguments.python:
        commands |= {"python3": [arguments.python, "-c", "pass"],
                     "import gpualloc": [arguments.python, "-c", "import gpualloc"]}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            taken[name].append(run(command))
    print(f"{arguments.rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'ms':16} fastest  median processor  added: fastest  median processor")
    for name, rounds in taken.items():
        own = columns(rounds)
        base = columns(taken["python3" if name == "import gpualloc" else "true"])
        line = f"{name:16} {own[0]:7.2f} {own[1]:7.2f} {own[2]:9.2f}"
        if name not in ("true", "python3"):
            more = [a - b for a, b in zip(own, base)]
            line += f"{more[0]:16.2f} {more[1]:7.2f} {more[2]:9.2f}"
        print(line)


main()
