#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of warp-coalescing-gpumpi-2022, §4, redrawn from the output of
bench-coalesce-unit and bench-coalesce-mpi, or from a log of gpu-run.

    bench/coalesce/figures.py LOG FOLDER

Into the folder go linear.svg and quadratic.svg (Figures 1 and 2: the rate of the work), and
tables.md (Figures 3 to 5: how much faster the work is, how long malloc and free take, and MPI's
calls; then the paper's map beside the look-up by address). Needs gnuplot."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plain_results

CALLS = ("coalesce-reduce", "coalesce-broadcast", "coalesce-alltoall")
WORKS = {"linear": lambda n: n, "quadratic": lambda n: 2 * n * n}  # floating-point operations
SIZES = [100, 200, 300, 400]  # floats, of the tables
HEAD = """set terminal svg size 760,480 dynamic background '#ffffff' font 'sans,12'
set output '{picture}'
set title '{title}'
set xlabel 'floats allocated by each thread'
set ylabel 'floating-point operations in 1000 cycles of a thread'
set grid
set rmargin 5
set key outside right
"""


def read(path: str) -> list[dict]:
    """The log's lines that are results of the two programs."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith('{"bench": "coalesce-'):
                found.append(plain_results.read_line(line))
    return found


def floats(lines: list[dict], work: str, metric: str) -> dict[str, dict[int, dict]]:
    """By way and number of floats."""
    curves: dict[str, dict[int, dict]] = {}
    for line in lines:
        if line["bench"] == f"coalesce-floats-{work}" and line["metric"] == metric:
            curves.setdefault(line["way"], {})[line["size"] // 4] = line
    return curves


def draw(picture: pathlib.Path, lines: list[dict], work: str, number: int) -> None:
    curves = floats(lines, work, "work")
    card = next(iter(next(iter(curves.values())).values()))["device"]
    parts = [HEAD.format(picture=picture, title=f"Figure {number}: {work} workload, {card}")]
    for i, points in enumerate(curves.values()):
        rows = "\n".join(f"{n} {1000 * WORKS[work](n) / line['value']:.6g}"
                         for n, line in sorted(points.items()))
        parts.append(f"$curve{i} << END\n{rows}\nEND\n")
    plots = [f"$curve{i} using 1:2 with linespoints pointtype 7 pointsize 0.4 title '{way}'"
             for i, way in enumerate(curves)]
    text = "".join(parts) + "plot " + ", ".join(plots) + "\n"
    subprocess.run(["gnuplot"], input=text, text=True, check=True)


def table(head: list[str], rows: list[list[str]]) -> str:
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def speedups(lines: list[dict]) -> str:
    """Speed-up over CUDA's malloc, by the medians of the ratios."""
    rows = []
    for work in WORKS:
        for way, points in floats(lines, work, "work").items():
            rows.append([way, work] + [f"{1 / points[n]['ratio']:.2f}" if n in points and
                                       points[n]["ratio"] else "" for n in SIZES])
    return table(["", "work"] + [str(n) for n in SIZES], rows)


def times(lines: list[dict], metric: str) -> str:
    rows = []
    for way, points in floats(lines, "linear", metric).items():
        rows.append([way] + [f"{points[n]['value']:.4g} ({points[n]['p5']:.3g} to "
                             f"{points[n]['p95']:.3g})" if n in points else "" for n in SIZES])
    return table([""] + [str(n) for n in SIZES], rows)


def lookups(lines: list[dict]) -> str:
    """Superblocks found by the paper's map and by the address, both over slabs: cycles in the same
    runs, and how many times as long the map takes, by the medians."""
    rows = []
    for metric in ("malloc", "free"):
        ways = floats(lines, "linear", metric)
        for name in ("NB", "NW"):
            both = [ways.get(f"slabs, {name} by {how}", {}) for how in ("address", "map")]
            for n in SIZES:
                if all(n in points for points in both):
                    address, by_map = (points[n] for points in both)
                    rows.append([name, metric, str(n)] + [
                        f"{line['value']:.4g} ({line['p5']:.3g} to {line['p95']:.3g})"
                        for line in (address, by_map)] +
                        [f"{by_map['value'] / address['value']:.2f}"])
    return table(["", "cycles of", "floats", "by address", "by map", "ratio"], rows) if rows else ""


def mpi(lines: list[dict]) -> str:
    """The paper's Figure 5 is `operation`, MPI's call alone; `total` has the rank's malloc and free
    as well."""
    rows = []
    for line in lines:
        if line["metric"] in ("malloc", "operation", "total"):
            rows.append([line["bench"].removeprefix("coalesce-"),
                         f"{line['blocks']} x {line['threads']}", line["way"], line["metric"],
                         f"{line['p5']:.4g}", f"{line['value']:.4g}", f"{line['p95']:.4g}",
                         f"{1 / line['ratio']:.2f}" if line["ratio"] else ""])
    return table(["", "ranks", "way", "ms of", "5th", "median", "95th", "times as fast"], rows)


def main() -> int:
    if len(sys.argv) != 3 or not plain_results.is_plain_path(sys.argv[2]):
        print(__doc__, file=sys.stderr)
        return 2
    lines = read(sys.argv[1])
    ranks = [line for line in lines if line["bench"] in CALLS]
    unit = [line for line in lines if line["bench"].startswith("coalesce-floats-")]
    if not unit and not ranks:
        print(f"figures.py: {sys.argv[1]} has no lines of bench-coalesce-unit or "
              "bench-coalesce-mpi", file=sys.stderr)
        return 1
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    text = ["# Figures 3 to 5\n"]
    if unit:
        for number, work in enumerate(WORKS, 1):
            draw(folder / f"{work}.svg", unit, work, number)
        text += ["## Figure 3: the work, times as fast as with CUDA's malloc\n", speedups(unit),
                 "## Figure 4: malloc, cycles: median (5th to 95th percentile)\n",
                 times(unit, "malloc"), "## and free\n", times(unit, "free")]
        if compared := lookups(unit):
            text += ["## The map beside the look-up by address\n", compared]
    if ranks:
        text += ["## Figure 5: MPI's calls (the paper's measure is `operation`)\n", mpi(ranks)]
    (folder / "tables.md").write_text("\n".join(text), encoding="utf-8")
    return 0


sys.exit(main())
