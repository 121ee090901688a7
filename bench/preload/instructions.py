#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions per pair of malloc and free, counted by callgrind.

Two runs of `pairs` that differ in nothing but the number of pairs: the difference of their
instructions over the difference of their pairs is the cost of one, exact and the same every time.
The gate: GPUALLOC_HOST=jemalloc under our preload may cost at most 12 more than libjemalloc
preloaded directly. Exit 0 when it holds, 1 when not, 77 (skipped) without valgrind or libjemalloc.

"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import common

FEW, MANY = 20_000, 120_000
SIZES = ["64", "1024", "mixed"]
SKIPPED = 77


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to serve malloc: the preloaded library and its settings."""

    name: str
    environment: dict[str, str]
    baseline: str


def ways(preload: str, jemalloc: str) -> list[Way]:
    return [
        Way("no preload", {}, "no preload"),
        Way("host=system", {"LD_PRELOAD": preload, "GPUALLOC_HOST": "system"}, "no preload"),
        Way("libjemalloc.so.2", {"LD_PRELOAD": jemalloc}, "libjemalloc.so.2"),
        Way("host=jemalloc", {"LD_PRELOAD": preload, "GPUALLOC_HOST": "jemalloc"},
            "libjemalloc.so.2"),
    ]


def instructions(program: str, count: int, size: str, environment: dict[str, str]) -> int:
    """Instructions of one run, all of the process."""
    with tempfile.NamedTemporaryFile(prefix="callgrind.") as out:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", program,
                   str(count), size]
        done = subprocess.run(command, env=common.clean_environment() | environment,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"instructions: {' '.join(command)} failed:\n{done.stderr}")
        if "gpualloc:" in done.stderr:
            sys.exit(f"instructions: the preload complained:\n{done.stderr}")
        found = re.search(r"^(?:summary|totals): (\d+)", Path(out.name).read_text(), re.MULTILINE)
        if not found:
            sys.exit(f"instructions: callgrind wrote no total for {' '.join(command)}")
        return int(found[1])


def per_pair(program: str, size: str, way: Way) -> float:
    few, many = (instructions(program, count, size, way.environment) for count in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def measure(program: str, all_ways: list[Way]) -> dict[tuple[str, str], float]:
    jobs = [(way, size) for size in SIZES for way in all_ways]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        costs = pool.map(lambda job: per_pair(program, job[1], job[0]), jobs)
        return {(way.name, size): cost for (way, size), cost in zip(jobs, costs)}


def print_table(costs: dict[tuple[str, str], float], all_ways: list[Way]) -> None:
    print("instructions per pair of malloc and free, and how many more than the baseline")
    print(f"{'':20}" + "".join(f"{size:>18}" for size in SIZES))
    for way in all_ways:
        cells = ""
        for size in SIZES:
            cost = costs[way.name, size]
            more = cost - costs[way.baseline, size]
            cells += f"{cost:10.1f}" + (f"{more:+8.1f}" if way.name != way.baseline else " " * 8)
        print(f"{way.name:20}{cells}")


def write_json(path: str, costs: dict[tuple[str, str], float], all_ways: list[Way]) -> None:
    with open(path, "w", encoding="utf-8") as out:
        for way in all_ways:
            for size in SIZES:
                cost, base = costs[way.name, size], costs[way.baseline, size]
                bench = "instructions-mixed" if size == "mixed" else "instructions"
                common.write_result(out, bench=bench, spec=way.name,
                                    size=4096 if size == "mixed" else int(size),
                                    metric="instructions_per_pair", unit="instructions",
                                    value=cost, spread=0, baseline=way.baseline,
                                    ratio=cost / base)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_build_arguments(parser, preload="interpose/malloc/libgpualloc-malloc.so",
                               pairs="bench/preload/pairs")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON lines")
    parser.add_argument("--limit", type=float, default=12, metavar="N",
                        help="the most that jemalloc may cost over libjemalloc (default: 12)")
    arguments = parser.parse_args()
    jemalloc = common.find_library("libjemalloc.so.2")
    if not shutil.which("valgrind") or not jemalloc:
        print(f"skipped: no {'libjemalloc.so.2' if shutil.which('valgrind') else 'valgrind'}")
        return SKIPPED
    common.resolve_products(arguments)
    all_ways = ways(arguments.preload, jemalloc)
    costs = measure(arguments.pairs, all_ways)
    print_table(costs, all_ways)
    if arguments.json:
        write_json(arguments.json, costs, all_ways)
    over = {size: costs["host=jemalloc", size] - costs["libjemalloc.so.2", size]
            for size in SIZES}
    worst = max(over, key=lambda size: over[size])
    held = over[worst] <= arguments.limit
    print(f"{'held' if held else 'EXCEEDED'}: host=jemalloc costs at most "
          f"{over[worst]:+.1f} over libjemalloc.so.2 (size {worst}), limit {arguments.limit:+g}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
