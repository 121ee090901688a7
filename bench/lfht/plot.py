#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures 5.3 to 5.10 of lfht-reclamation-2022 from the results of `gpualloc bench lfht --json`.

    bench/lfht/plot.py RESULTS.jsonl... FOLDER

Draws a picture for each figure and node heap with results: FOLDER/figure-5.6-slab.svg and so on.
Figure 5.5 compares heaps and has a picture for each variant. "peers" is not a figure of the thesis:
it shows the library's own shape (--tuned) beside maps of other projects. INLINE is not in the
thesis either; it is in figures 5.6 to 5.10 with the shape that most of its results have. A panel
shows the number of threads on the x axis and a line, with the spread, for each chain length, chunk
size, heap or variant; for a single number of threads it shows a bar for each. bench/README.md has
the commands for the measurements.

If several runs have measured a point, the one from the figure's own run is drawn: the run with the
most values of the quantity that the figure compares (chain lengths in 5.3, chunk sizes in 5.4,
variants in the others). If two such runs have the point, the figure is not drawn, and a message
says so. Needs gnuplot."""

import pathlib
import re
import subprocess
import sys
from collections import defaultdict
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plain_results

ALL = ["insert", "remove", "hit", "miss", "mix"]


class Figure(NamedTuple):
    """A figure: `by` is the key of its lines, `page` that of its pictures."""
    title: str
    panels: list[tuple[str, str]]  # workload and metric
    by: str
    page: str = "heap"
    variants: tuple[str, ...] = ()

    @property
    def varied(self) -> str:
        """The key that the figure's own run varies. Each heap has a run with all variants."""
        return "variant" if self.by == "heap" else self.by


FIGURES = {
    "5.3": Figure("chain length", [("insert", "throughput"), ("insert", "expansions"),
                                   ("hit", "path")], "chain", variants=("SNF",)),
    "5.4": Figure("chunk size", [("insert", "throughput"), ("insert", "resident")], "chunk",
                  variants=("SNF",)),
    "5.5": Figure("node heaps", [("insert", "throughput"), ("insert", "misses")], "heap",
                  "variant"),
    "5.6": Figure("after filling and emptying", [("reinsert", "throughput"),
                                                 ("emptied", "throughput")],
                  "variant", variants=("SNF", "FNF", "CNF", "INLINE")),
    "5.7": Figure("in a filled map", [("remove", "throughput"), ("hit", "throughput")], "variant",
                  variants=("SNF", "FNF", "CNF", "INLINE")),
    "5.8": Figure("cache misses", [("mix", "misses")], "variant"),
    "5.9": Figure("memory at the end", [("mix", "resident")], "variant"),
    "5.10": Figure("reclamation", [(load, "throughput") for load in ALL], "variant",
                   variants=("SNF", "HHL", "FHP", "FHPA", "INLINE")),
    "peers": Figure("beside other maps", [(load, "throughput") for load in ALL], "map"),
}
SHAPE = ("chain", "chunk")


def parts_of(spec: str) -> dict[str, str]:
    """"FHPA:chain=4,chunk=5/slab" as its parts; others' maps have no heap to choose."""
    match = re.fullmatch(r"(\w+)(?::([^/]*))?/(.*)", spec)
    if not match:
        return {"map": spec}
    if not match[2]:
        return {"map": match[1], "variant": match[1], "heap": match[3]}
    options = dict(o.split("=") for o in match[2].split(","))
    return {"variant": match[1], "heap": match[3], **options}


def read(paths: list[str]) -> list[dict]:
    """The results, with the parts of the maps' names."""
    results = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in map(plain_results.read_line, lines):
                parts = parts_of(line["spec"])
                if line["bench"].startswith("lfht-") and line["value"] is not None:
                    results.append(line | parts)
    return results


def usual(results: list[dict], key: str) -> str | None:
    """The most frequent value: a setting that the figure does not vary is held there."""
    counts: dict[str, int] = defaultdict(int)
    for result in results:
        counts[result.get(key)] += 1
    return max(counts, key=counts.get, default=None)


def held(results: list[dict], fixed: str) -> list[dict]:
    """Those with the usual setting; INLINE's own, whose buckets are no chains."""
    kept = []
    for inline in (False, True):
        part = [r for r in results if (r.get("variant") == "INLINE") == inline]
        value = usual(part, fixed)
        kept += [r for r in part if r.get(fixed) == value]
    return kept


def run_of(result: dict) -> tuple[str, str]:
    """A run writes the results of a workload together."""
    return result["date"], result["bench"]


def own(found: list[dict], results: list[dict], figure: Figure) -> list[dict]:
    """For each point the results of the figure's own run."""
    values = defaultdict(set)
    for r in results:
        values[run_of(r)].add(r.get(figure.varied))
    points = defaultdict(list)
    for r in found:
        points[(r[figure.by], r["threads"])].append(r)
    kept = []
    for candidates in points.values():
        most = max(len(values[run_of(r)]) for r in candidates)
        kept += [r for r in candidates if len(values[run_of(r)]) == most]
    return kept


def refuse_doubles(found: list[dict], figure: Figure) -> None:
    """A point has one result."""
    points = defaultdict(list)
    for r in found:
        points[(r[figure.by], r["threads"])].append(r)
    for (line, threads), same in points.items():
        if len(same) > 1:
            runs = ", ".join(f"{r['value']:.4g} ({r['spec']}, {r['date']})" for r in same)
            sys.exit(f"plot.py: {same[0]['bench']}, {line}, {threads} threads: {same[0]['metric']} "
                     f"{runs}: expected one result; give the files of one run")


def curves_of(results: list[dict], figure: Figure, panel: tuple[str, str], page: str) -> dict:
    """For each line of a panel its points: threads, value, spread."""
    found = [r for r in results if r["bench"] == f"lfht-{panel[0]}" and r["metric"] == panel[1]
             and figure.by in r and r.get(figure.page, page) == page
             and (not figure.variants or r["variant"] in figure.variants)]
    if not any(r.get(figure.page) == page for r in found):
        return {}  # only maps of other projects
    keys = max(r["size"] for r in found)
    found = own([r for r in found if r["size"] == keys], results, figure)
    for fixed in SHAPE:
        if fixed != figure.by and figure.by != "map":
            found = held(found, fixed)
    refuse_doubles(found, figure)
    curves = defaultdict(list)
    for r in found:
        curves[r[figure.by]].append((r["threads"], r["value"], r["spread"]))
    return curves


def panel_script(number: int, title: str, unit: str, curves: dict) -> str:
    """gnuplot's lines for one panel."""
    order = sorted(curves, key=lambda name: (len(name), name))
    threads = {t for points in curves.values() for t, _, _ in points}
    if len(threads) == 1:
        return bars_script(number, title, unit, [(name, curves[name][0]) for name in order])
    parts, plots = [], []
    for place, name in enumerate(order):
        block = f"$panel{number}curve{place}"
        rows = "\n".join(f"{t} {value} {spread / 2}" for t, value, spread in sorted(curves[name]))
        parts.append(f"{block} << END\n{rows}\nEND\n")
        plots.append(f"{block} using 1:2:3 with yerrorlines pointtype 7 pointsize 0.5 "
                     f"title '{name}'")
    parts.append(f"set title '{title}'\nset ylabel '{unit}'\nplot " + ", ".join(plots) + "\n")
    return "".join(parts)


def bars_script(number: int, title: str, unit: str, bars: list) -> str:
    """gnuplot's lines for a panel of a single number of threads: a bar for each line."""
    rows = "\n".join(f"{place} {value} {spread / 2} \"{name}\""
                     for place, (name, (_, value, spread)) in enumerate(bars))
    return (f"$panel{number} << END\n{rows}\nEND\n"
            f"set title '{title}'\nset ylabel '{unit}'\nset xlabel '{bars[0][1][0]} threads'\n"
            f"set style fill solid 0.4\nset boxwidth 0.7\nset xrange [-0.6:{len(bars) - 0.4}]\n"
            f"plot $panel{number} using 1:2:3:xtic(4) with boxerrorbars linecolor 3 notitle\n")


def draw(name: str, figure: Figure, results: list[dict], page: str, folder: pathlib.Path) -> bool:
    """Draw one picture; False if it has no points."""
    units = {r["metric"]: r["unit"] for r in results}
    panels = [(p, curves) for p in figure.panels if (curves := curves_of(results, figure, p, page))]
    if not panels or not any(len(curves) > 1 for _, curves in panels):
        return False
    picture = folder / f"figure-{name}-{re.sub(r'[^A-Za-z0-9.]+', '-', page)}.svg"
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    script = [f"set terminal svg size {420 * columns},{340 * rows + 30} dynamic "
              f"background '#ffffff' font 'sans,11'\nset output '{picture}'\n"
              f"set multiplot layout {rows},{columns} title "
              f"'{name} {figure.title}, {page}, {results[0]['device']}'\n"
              "set xlabel 'threads'\nset yrange [0:*]\nset grid\nset key top left\n"]
    for number, ((load, metric), curves) in enumerate(panels):
        script.append(panel_script(number, f"{load}: {metric}", units[metric], curves))
    script.append("unset multiplot\n")
    subprocess.run(["gnuplot"], input="".join(script), text=True, check=True)
    print(picture)
    return True


def main() -> int:
    """Draw every figure that has results."""
    if len(sys.argv) < 3 or not plain_results.is_plain_path(sys.argv[-1]):
        print(__doc__, file=sys.stderr)
        return 2
    results = read(sys.argv[1:-1])
    folder = pathlib.Path(sys.argv[-1])
    folder.mkdir(parents=True, exist_ok=True)
    drawn = 0
    for name, figure in FIGURES.items():
        for page in sorted({r[figure.page] for r in results if figure.page in r}):
            drawn += draw(name, figure, results, page, folder)
    if not drawn:
        print("plot.py: nothing to draw: no figure has two lines in these results", file=sys.stderr)
    return 0 if drawn else 1


if __name__ == "__main__":
    sys.exit(main())
