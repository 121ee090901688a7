#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of warp-coalescing-gpumpi-2022, §4, redrawn from the output of
bench-coalesce-unit and bench-coalesce-mpi, or from a log of gpu-run.

    bench/coalesce/figures.py LOG FOLDER

Into the folder go linear.svg and quadratic.svg (Figures 1 and 2: the rate of the work), and
tables.md: the rates; Figures 3 to 5 (how much faster the work is, how long malloc and free take,
and MPI's calls) beside the paper's numbers; the paper's map beside the look-up by address; the
anatomy of CUDA's malloc (§2). Needs gnuplot."""

import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plain_results

CALLS = ("coalesce-reduce", "coalesce-broadcast", "coalesce-alltoall")
MEASURES = ("operation", "malloc", "free", "total")  # of MPI's calls; the paper's is the first
WORKS = {"linear": lambda n: n, "quadratic": lambda n: 2 * n * n}  # floating-point operations
SIZES = [100, 200, 300, 400]  # floats, of the tables
# Figure 3: mean and standard deviation.
PAPER_SPEEDUPS = {
    "linear": {
        "HB": "0.13 ± 0.02, 0.26 ± 0.02, 0.32 ± 0.03, 0.35 ± 0.02",
        "NB": "0.18 ± 0.02, 0.42 ± 0.02, 0.70 ± 0.03, 0.86 ± 0.04",
        "HW": "2.44 ± 0.34, 3.81 ± 1.28, 3.77 ± 0.13, 3.46 ± 0.23",
        "NW": "1.40 ± 0.21, 2.66 ± 0.19, 3.07 ± 0.19, 3.18 ± 0.22"},
    "quadratic": {
        "HB": "0.38 ± 0.01, 0.64 ± 0.03, 0.78 ± 0.03, 0.88 ± 0.03",
        "NB": "0.91 ± 0.03, 1.70 ± 0.07, 2.06 ± 0.07, 2.18 ± 0.08",
        "HW": "0.79 ± 0.21, 0.77 ± 0.03, 0.82 ± 0.03, 0.99 ± 0.03",
        "NW": "1.20 ± 0.10, 2.27 ± 0.22, 2.09 ± 0.08, 2.21 ± 0.08"}}
# Figure 5, by call, blocks and threads: speed-up of the operation without and with headers.
PAPER_CALLS = {("coalesce-reduce", 30, 512): (0.95, 0.93),
               ("coalesce-broadcast", 30, 512): (1.05, 1.02),
               ("coalesce-alltoall", 8, 32): (4.41, 4.39)}
# One for each allocator; a second round of them is dashed.
COLOURS = ("#000000", "#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2",
           "#17becf", "#bcbd22", "#7f7f7f", "#00429d", "#7a0403")
HEAD = """set terminal svg size 860,480 dynamic background '#ffffff' font 'sans,12'
set output '{picture}'
set title '{title}'
set xlabel 'floats allocated by each thread'
set ylabel 'performance, Gflop/s'
set xrange [0:*]
set yrange [0:*]
set grid
set errorbars small
set key outside right top
"""

RATE_TEXT = """## Figures 1 and 2: the work, Gflop/s

Medians. An addition and a multiplication are one operation each, as in the paper: n operations for
the linear work on n floats, 2 n² for the quadratic one. The rate is that of all threads: their
operations over the mean time of a thread. The log has cycles, but no clock rate. {clock:.3f} GHz is
its largest quotient of the work's cycles and its kernel's time: a lower bound.
"""
SPEEDUP_TEXT = """## Figure 3: the work, times as fast as with CUDA's malloc

The median of the runs' ratios. In parentheses are bounds: CUDA's 5th percentile over the
allocator's 95th, and CUDA's 95th over the allocator's 5th. The log has medians and percentiles of
20 runs, but no single run, so it gives no mean and no standard deviation. The paper's rows, from a
GTX 1050 Ti, have these.
"""
MPI_TEXT = """## Figure 5: MPI's calls

ms: median (5th to 95th percentile). *by* a measure: times as fast as with CUDA's malloc, by this
measure. The paper's measure is `operation`: MPI's call alone, which in All-to-All allocates and
frees a buffer. `malloc` and `free` are the rank's own calls and those for this buffer. `total` is
all that a rank does, with its initialisation and the check of the result. The paper's rows are from
an RTX 2060.
"""
ANATOMY_TEXT = """## The anatomy of CUDA's malloc (§2)

Sizes of 1 to 100 floats, by the smallest distance between two blocks. Cycles: the median of the
sizes' medians (smallest 5th to largest 95th percentile). A step ends where 16 bytes and the floats
fill a multiple of 80 bytes.
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


def clock_rate(lines: list[dict]) -> float:
    """GHz. The log has no clock rate, but a thread works while its kernel runs: cycles of the work
    over the kernel's time are a lower bound, which the longest works almost reach."""
    best = 0.0
    for work in WORKS:
        kernels = floats(lines, work, "kernel")
        for way, points in floats(lines, work, "work").items():
            best = max([best] + [line["value"] / (1000 * kernels[way][n]["value"])
                                 for n, line in points.items() if n in kernels.get(way, {})])
    return best


def rates(lines: list[dict], work: str) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Gflop/s by way and number of floats: median, 5th and 95th percentile. Operations of all
    threads over the mean time of a thread."""
    clock = clock_rate(lines)
    return {way: {n: tuple(WORKS[work](n) * line["blocks"] * line["threads"] * clock / line[cycles]
                           for cycles in ("value", "p95", "p5"))
                  for n, line in sorted(points.items())}
            for way, points in floats(lines, work, "work").items()}


def draw(picture: pathlib.Path, lines: list[dict], work: str, number: int) -> None:
    card = next(line["device"] for line in lines)
    title = f"Figure {number}: {work} workload, {card}, median and 5th to 95th percentile"
    parts = [HEAD.format(picture=picture, title=title)]
    plots = []
    for i, (way, points) in enumerate(rates(lines, work).items()):
        rows = "\n".join(f"{n} {middle:.6g} {low:.6g} {high:.6g}"
                         for n, (middle, low, high) in points.items())
        parts.append(f"$curve{i} << END\n{rows}\nEND\n")
        dashes, colour = divmod(i, len(COLOURS))
        plots.append(f"$curve{i} using 1:2:3:4 with yerrorlines linecolor rgb '{COLOURS[colour]}' "
                     f"dashtype {dashes + 1} linewidth 1.5 pointtype {i + 1} pointsize 0.5 "
                     f"title '{way}'")
    text = "".join(parts) + "plot " + ", ".join(plots) + "\n"
    subprocess.run(["gnuplot"], input=text, text=True, check=True)


def table(head: list[str], rows: list[list[str]]) -> str:
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def spread(line: dict) -> str:
    """The median, and the 5th to 95th percentile."""
    return f"{line['value']:.4g} ({line['p5']:.4g} to {line['p95']:.4g})"


def rate_table(lines: list[dict], work: str) -> str:
    ways = rates(lines, work)
    sizes = sorted({n for points in ways.values() for n in points})
    rows = [[str(n)] + [f"{points[n][0]:.3g}" if n in points else "" for points in ways.values()]
            for n in sizes]
    return table(["floats"] + list(ways), rows)


def speedup(line: dict, base: dict) -> str:
    """The median of the runs' ratios, with bounds of them: the base's 5th percentile over the
    way's 95th, and the reverse."""
    return (f"{1 / line['ratio']:.2f} ({base['p5'] / line['p95']:.2f} to "
            f"{base['p95'] / line['p5']:.2f})")


def speedups(lines: list[dict]) -> str:
    """Speed-up over CUDA's malloc, and the paper's."""
    rows = []
    for work, paper in PAPER_SPEEDUPS.items():
        ways = floats(lines, work, "work")
        for way, points in ways.items():
            if way == "cuda":
                continue
            rows.append([way, work] + [
                speedup(points[n], ways["cuda"][n])
                if n in points and n in ways.get("cuda", {}) and points[n]["ratio"] else ""
                for n in SIZES])
            if way in paper:
                rows.append([f"{way} in the paper", work] + paper[way].split(", "))
    return table(["", "work"] + [str(n) for n in SIZES], rows)


def times(lines: list[dict], metric: str) -> str:
    rows = []
    for way, points in floats(lines, "linear", metric).items():
        rows.append([way] + [spread(points[n]) if n in points else "" for n in SIZES])
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
                    rows.append([name, metric, str(n), spread(address), spread(by_map),
                                 f"{by_map['value'] / address['value']:.2f}"])
    return table(["", "cycles of", "floats", "by address", "by map", "ratio"], rows) if rows else ""


def mpi(lines: list[dict]) -> str:
    """A table for each call and number of ranks: the paper's measure first."""
    calls: dict[tuple, dict[str, dict[str, dict]]] = {}
    for line in lines:
        call = (line["bench"], line["blocks"], line["threads"])
        calls.setdefault(call, {}).setdefault(line["way"], {})[line["metric"]] = line
    head = [""] + [text for measure in MEASURES for text in (f"{measure}, ms", f"by {measure}")]
    text = []
    for call, ways in calls.items():
        rows = []
        for way, measures in ways.items():
            row = [way]
            for line in (measures.get(measure) for measure in MEASURES):
                row += [spread(line) if line else "",
                        f"{1 / line['ratio']:.2f}" if line and line["ratio"] else ""]
            rows.append(row)
        for name, value in zip(("without", "with"), PAPER_CALLS.get(call, ())):
            rows.append([f"the paper, {name} headers", "", f"{value:.2f}"] + [""] * (len(head) - 3))
        name, blocks, threads = call
        text += [f"### {name.removeprefix('coalesce-')}, {blocks} x {threads} ranks\n",
                 table(head, rows)]
    return "\n".join(text)


def anatomy(lines: list[dict]) -> str:
    """Sizes whose blocks are equally far apart, and the cycles of malloc in each of these steps."""
    apart = {line["size"]: line["value"] for line in lines if line["metric"] == "apart"}
    steps: dict[float, list[dict]] = {}
    for line in lines:
        if line["metric"] == "malloc" and line["size"] in apart:
            steps.setdefault(apart[line["size"]], []).append(line)
    medians = {step: statistics.median(line["value"] for line in steps[step])
               for step in sorted(steps)}
    rows = []
    for step, median in medians.items():
        counts = [line["size"] // 4 for line in steps[step]]
        low = min(line["p5"] for line in steps[step])
        high = max(line["p95"] for line in steps[step])
        rows.append([f"{min(counts)} to {max(counts)}", f"{step:g}",
                     f"{median:.4g} ({low:.4g} to {high:.4g})",
                     f"{median / medians[min(medians)]:.1f}"])
    return table(["floats", "bytes apart", "cycles of malloc", "times the first"], rows)


def unit_text(lines: list[dict]) -> list[str]:
    """Figures 1 to 4."""
    text = [RATE_TEXT.format(clock=clock_rate(lines))]
    for work in WORKS:
        text += [f"### {work}\n", rate_table(lines, work)]
    return text + [SPEEDUP_TEXT, speedups(lines),
                   "## Figure 4: malloc, cycles: median (5th to 95th percentile)\n",
                   times(lines, "malloc"), "## and free\n", times(lines, "free")]


def main() -> int:
    if len(sys.argv) != 3 or not plain_results.is_plain_path(sys.argv[2]):
        print(__doc__, file=sys.stderr)
        return 2
    lines = read(sys.argv[1])
    ranks = [line for line in lines if line["bench"] in CALLS]
    unit = [line for line in lines if line["bench"].startswith("coalesce-floats-")]
    blocks = [line for line in lines if line["bench"] == "coalesce-anatomy"]
    if not unit and not ranks and not blocks:
        print(f"figures.py: {sys.argv[1]} has no lines of bench-coalesce-unit or "
              "bench-coalesce-mpi", file=sys.stderr)
        return 1
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    text = ["# Figures 1 to 5\n"]
    if unit:
        for number, work in enumerate(WORKS, 1):
            draw(folder / f"{work}.svg", unit, work, number)
        text += unit_text(unit)
        if compared := lookups(unit):
            text += ["## The map beside the look-up by address\n", compared]
    if ranks:
        text += [MPI_TEXT, mpi(ranks)]
    if blocks:
        text += [ANATOMY_TEXT, anatomy(blocks)]
    (folder / "tables.md").write_text("\n".join(text), encoding="utf-8")
    return 0


sys.exit(main())
