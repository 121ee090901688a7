#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figure 5 of warp-coalescing-gpumpi-2022 from an MPI program in C that `gpualloc rewrite --port`
has made one for a GPU.

    bench/coalesce/listing4.py FOLDER [ROUNDS]

FOLDER has bench-coalesce-listing4, -dynamic and -cuda, which listing4.c became with and without
the analysis and with CUDA's malloc. In each of ROUNDS (default: 10) all of them run once, one after
the other, in a process each. Prints a table in Markdown for each call and number of ranks: times in
ms, each the median over the ranks and then over the rounds, with the least and the most of all
rounds; and how many times as fast as with CUDA's malloc it is, by the same measure. The paper's
measure is `operation`."""

import os
import pathlib
import re
import statistics
import subprocess
import sys

HEAP = "coalesce:static={}/slab:unit=classes/vmm"
WAYS = [("CUDA's malloc", "-cuda", None), ("dynamic", "-dynamic", None),
        *((f"static, {kind}", "", HEAP.format(kind)) for kind in ("hb", "nb", "hw", "nw"))]
RUNS = [("alltoall", 4, "8x32"), ("alltoall", 4, "32x32"), ("reduce", 100, "30x512"),
        ("broadcast", 100, "30x512")]
MEASURES = ("operation", "malloc", "free", "total")


def run(folder: pathlib.Path, way: tuple, call: str, count: int, ranks: str) -> dict[str, float]:
    environment = dict(os.environ, GPUALLOC_MPI_RANKS=ranks)
    environment.pop("GPUALLOC_KERNEL", None)
    if way[2]:
        environment["GPUALLOC_KERNEL"] = way[2]
    done = subprocess.run([folder / f"bench-coalesce-listing4{way[1]}", call, str(count)],
                          env=environment, capture_output=True, text=True, timeout=60)
    times = {m[1]: float(m[2]) for m in re.finditer(r"(\w+) ([\d.]+) ms", done.stdout)}
    if done.returncode or set(times) != set(MEASURES):
        sys.exit(f"{way[0]}, {call}, {ranks}: status {done.returncode}: {done.stdout}{done.stderr}")
    return times


def cell(times: list[float], base: list[float]) -> str:
    middle = statistics.median(times)
    return (f"{middle:.4g} ({min(times):.4g} to {max(times):.4g}) | "
            f"{statistics.median(base) / middle:.1f}")


def main() -> None:
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    folder, rounds = pathlib.Path(sys.argv[1]).resolve(), int((sys.argv + ["10"])[2])
    for call, count, ranks in RUNS:
        results = [[] for _ in WAYS]
        for _ in range(rounds):
            for way, times in zip(WAYS, results):
                times.append(run(folder, way, call, count, ranks))
        print(f"## {call}, {ranks} ranks, {count} doubles\n")
        print("|  |" + "".join(f" {m}, ms | by {m} |" for m in MEASURES))
        print("|---|" + "--:|--:|" * len(MEASURES))
        for way, times in zip(WAYS, results):
            columns = [cell([t[m] for t in times], [t[m] for t in results[0]]) for m in MEASURES]
            print(f"| {way[0]} | " + " | ".join(columns) + " |")
        print(flush=True)


if __name__ == "__main__":
    main()
