#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that plot.py takes each point from the figure's own run, and refuses two such runs.

    bench/lfht/check_plot.py RESULTS.jsonl.gz

The results are those of the thesis's figures in bench/results: there SNF's insertions at one shape
were measured by the run of variants and by the run of chunk sizes."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import plot  # beside this file

failures = []


def expect(what: str, got: object, wanted: object) -> None:
    """Note a difference."""
    if got != wanted:
        failures.append(f"{what}: {got}: expected {wanted}")


def bars(results: list[dict], name: str, load: str, metric: str, page: str) -> dict:
    """The values of a panel with one number of threads."""
    curves = plot.curves_of(results, plot.FIGURES[name], (load, metric), page)
    expect(f"{name} {page} {load}: results of a bar", {len(c) for c in curves.values()}, {1})
    return {line: round(points[0][1], 1) for line, points in curves.items()}


def check_own_runs(results: list[dict]) -> None:
    """By the tables of the log of these results."""
    expect("5.10, jemalloc", bars(results, "5.10", "insert", "throughput", "jemalloc"),
           {"SNF": 17.0, "FHPA": 17.3, "FHP": 17.3, "HHL": 16.5, "INLINE": 39.2})
    expect("5.5, SNF", bars(results, "5.5", "insert", "throughput", "SNF"),
           {"system": 16.4, "jemalloc": 17.0, "dl:libmimalloc.so.2": 18.4, "slab": 15.9})
    expect("5.4, jemalloc", bars(results, "5.4", "insert", "throughput", "jemalloc"),
           {"1": 5.5, "2": 10.2, "3": 15.4, "4": 21.2, "5": 21.4, "6": 20.3, "7": 15.5, "8": 27.4})
    expect("5.3, jemalloc", bars(results, "5.3", "insert", "throughput", "jemalloc"),
           {"1": 16.3, "2": 16.9, "3": 18.3, "4": 15.8, "5": 16.0, "6": 13.9, "8": 11.8})


def check_order(results: list[dict]) -> None:
    """The order of the lines says nothing."""
    check_own_runs(results[::-1])


def check_doubles(lines: list[str], folder: pathlib.Path) -> None:
    """A second run of the same figure, another day."""
    again = [json.dumps(json.loads(line) | {"date": "2026-01-01T00:00:00Z"}) for line in lines]
    both = folder / "both.jsonl"
    both.write_text("\n".join(lines + again) + "\n", encoding="utf-8")
    (folder / "gnuplot").write_text("#!/bin/sh\ncat > /dev/null\n", encoding="utf-8")
    (folder / "gnuplot").chmod(0o755)
    done = subprocess.run([sys.executable, plot.__file__, both, folder / "pictures"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"})
    expect("two runs: status", done.returncode, 1)
    expect("two runs: the sentence",
           "expected one result; give the files of one run" in done.stderr,
           True)


def main() -> int:
    """0: nothing differs."""
    with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        results = plot.read([str(folder / "results.jsonl")])
        check_own_runs(results)
        check_order(results)
        check_doubles(lines, folder)
    print("\n".join(failures) or f"{len(results)} results")
    return 1 if failures else 0


sys.exit(main())
