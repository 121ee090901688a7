#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that the stored tables match the stored log, and have the paper's dimensions: figures,
numbers of ranks, measures, steps of CUDA's malloc. The pictures have the paper's unit, a line style
for each allocator, and a key beside the curves.

    bench/coalesce/check_figures.py LOG.jsonl.gz TABLES.md

Uses a gnuplot that keeps its commands in place of the real one."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ALLOCATORS = 11
FLOATS = 16  # sizes of Figures 1 and 2
CALLS = ["reduce, 30 x 512", "broadcast, 30 x 512", "alltoall, 8 x 32", "alltoall, 32 x 32",
         "alltoall, 8 x 256"]
IN_PAPER = CALLS[:3]
MEASURES = ["operation", "malloc", "free", "total"]
BYTES_APART = [80, 160, 240, 320, 400, 480]


def make(log: str, folder: pathlib.Path) -> tuple[str, str]:
    """The tables, and the commands for gnuplot."""
    figures = pathlib.Path(__file__).with_name("figures.py")
    with gzip.open(log) as packed, open(folder / "log", "wb") as plain:
        shutil.copyfileobj(packed, plain)
    (folder / "gnuplot").write_text(f"#!/bin/sh\ncat >>{folder}/script\n", encoding="utf-8")
    (folder / "gnuplot").chmod(0o755)
    subprocess.run([sys.executable, figures, folder / "log", folder], check=True,
                   env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"})
    return tuple((folder / name).read_text(encoding="utf-8") for name in ("tables.md", "script"))


def sections(text: str) -> dict[str, list[list[str]]]:
    """The rows of the table below each heading, the first one its head."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            rows = found.setdefault(line.lstrip("# "), [])
        elif line.startswith("| "):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def table_faults(tables: dict[str, list[list[str]]]) -> list[str]:
    def named(start: str) -> list[list[str]]:
        return next((rows for title, rows in tables.items() if title.startswith(start)), [])

    faults = [f"{work}: {len(rows) - 1} sizes by {len(rows[0]) - 1 if rows else 0} allocators"
              for work in ("linear", "quadratic")
              if len(rows := named(work)) != FLOATS + 1 or len(rows[0]) != ALLOCATORS + 1]
    for source, count, mark in (("log", 2 * (ALLOCATORS - 1), " to "), ("paper", 8, " ± ")):
        rows = [row for row in named("Figure 3")[1:] if all(mark in cell for cell in row[2:])]
        if len(rows) != count:
            faults.append(f"Figure 3: {len(rows)} rows of the {source}, expected {count}")
    head = [""] + [text for name in MEASURES for text in (f"{name}, ms", f"by {name}")]
    for call in CALLS:
        rows = named(call)
        paper = [row for row in rows if row[0].startswith("the paper")]
        if not rows or rows[0] != head or len(rows) - 1 - len(paper) != ALLOCATORS or (
                len(paper) != (2 if call in IN_PAPER else 0)):
            faults.append(f"Figure 5: {call}: {len(rows)} rows, {len(paper)} of the paper")
    steps = [int(row[1]) for row in named("The anatomy")[1:]]
    if steps != BYTES_APART:
        faults.append(f"anatomy: {steps} bytes apart, expected {BYTES_APART}")
    return faults


def picture_faults(script: str) -> list[str]:
    faults = []
    for picture in script.split("set terminal")[1:]:
        name = pathlib.Path(re.search(r"set output '(.*)'", picture)[1]).name
        styles = set(re.findall(r"linecolor rgb '(#\w+)' dashtype (\d+)", picture))
        if len(styles) != ALLOCATORS:
            faults.append(f"{name}: {len(styles)} line styles, expected {ALLOCATORS}")
        if "set ylabel 'performance, Gflop/s'" not in picture:
            faults.append(f"{name}: not in Gflop/s")
        if "set key outside right" not in picture or "rmargin" in picture:
            faults.append(f"{name}: the key has no room of its own")
    return faults


def main() -> int:
    """0: figures.py makes these tables."""
    kept = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        made, script = make(sys.argv[1], pathlib.Path(name))
    faults = table_faults(sections(made)) + picture_faults(script)
    if made != kept:
        faults.append(f"{sys.argv[2]}: not the tables of {sys.argv[1]}")
    if script.count("set terminal") != 2:
        faults.append("expected two pictures")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
