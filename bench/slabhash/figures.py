#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures 4 to 7 of slab-hash-2018, §VI, redrawn from the output of bench-slabhash-kernels
--json, or from a log that contains these lines.

    bench/slabhash/figures.py FILE FOLDER

Into the folder go a picture for each figure with results, and tables.md, with
the two ways of addressing and all rates. Needs gnuplot."""

import json
import pathlib
import subprocess
import sys

HEAD = """set terminal svg size 760,480 dynamic background '#ffffff' font 'sans,12'
set output '{picture}'
set title '{title}'
set xlabel '{x}'
set ylabel '{y}'
set grid
set rmargin 5
set yrange [0:*]
set key outside right
{more}
"""
SEARCHES = {"build": "a: build", "hit": "b: search, all there", "miss": "b: search, none there"}


def read(path: str) -> list[dict]:
    """The file's lines that are results of the program."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith('{"bench": "slabhash-'):
                found.append(json.loads(line))
    return found


def name(line: dict) -> str:
    return line["way"] if line["path"] == 0 else f"slab hash, {line['way']}"


def curves(lines: list[dict], x) -> dict[str, list[tuple[float, dict]]]:
    """By way, in the order of x(line)."""
    found: dict[str, list[tuple[float, dict]]] = {}
    for line in lines:
        found.setdefault(name(line), []).append((x(line), line))
    return {way: sorted(points, key=lambda point: point[0]) for way, points in found.items()}


def draw(picture: pathlib.Path, lines: list[dict], x, title: str, label: str,
         more: str = "") -> None:
    if not lines:
        return
    parts = [HEAD.format(picture=picture, title=f"{title}, {lines[0]['device']}", x=label,
                         y="operations a second, thousand millions", more=more)]
    ways = curves(lines, x)
    for i, points in enumerate(ways.values()):
        rows = "\n".join(f"{at:.6g} {line['value']} {line['p5']} {line['p95']}"
                         for at, line in points)
        parts.append(f"$curve{i} << END\n{rows}\nEND\n")
    plots = [f"$curve{i} using 1:2:3:4 with yerrorlines linecolor {i + 1} pointtype 7 "
             f"pointsize 0.4 title '{way}'" for i, way in enumerate(ways)]
    subprocess.run(["gnuplot"], input="".join(parts) + "plot " + ", ".join(plots) + "\n", text=True,
                   check=True)


def of(lines: list[dict], section: str, **which) -> list[dict]:
    return [line for line in lines if line["bench"] == f"slabhash-{section}" and
            all(line[key] == value for key, value in which.items())]


def keys(lines: list[dict]) -> list[int]:
    return sorted({line["keys"] for line in lines})


def power(n: int) -> str:
    return f"2^{n.bit_length() - 1}"


def figure_4(folder: pathlib.Path, lines: list[dict]) -> None:
    """The baselines stand where as large a share of their slots is filled as of the slabs'."""
    full = {"set32": 0.9375, "map32": 0.9375, "map64": 0.875}
    for mode, most in full.items():
        for n in keys(of(lines, "utilisation", mode=mode)):
            for metric, what in SEARCHES.items():
                draw(folder / f"4-{mode}-{n.bit_length() - 1}-{metric}.svg",
                     of(lines, "utilisation", mode=mode, keys=n, metric=metric),
                     lambda line: line["used"] * (1 if line["path"] else most),
                     f"Figure 4{what}, {mode}, 2^{{{n.bit_length() - 1}}} keys",
                     f"memory utilisation (baselines: {most} of the slots filled)")


def figure_5(folder: pathlib.Path, lines: list[dict]) -> None:
    for metric, what in SEARCHES.items():
        draw(folder / f"5-{metric}.svg", of(lines, "sizes", metric=metric),
             lambda line: line["keys"], f"Figure 5{what}, utilisation 0.6", "keys",
             "set logscale x 2; set format x '2^{%L}'")


def figure_6(folder: pathlib.Path, lines: list[dict]) -> None:
    draw(folder / "6.svg", of(lines, "batches"), lambda line: line["target"],
         "Figure 6: batches up to 2^{21} keys", "keys of a batch",
         "set logscale x 2; set format x '2^{%L}'")


def figure_7(folder: pathlib.Path, lines: list[dict]) -> None:
    for percent in (100, 40, 20):
        which = f"updates {percent} %"
        draw(folder / f"7a-{percent}.svg", of(lines, "mixes", metric=which),
             lambda line: line["target"], f"Figure 7a: {which}, 2^{{22}} keys",
             "memory utilisation at the beginning")
        draw(folder / f"7b-{percent}.svg", of(lines, "lists", metric=which),
             lambda line: line["buckets"], f"Figure 7b: {which}, 2^{{20}} keys and operations",
             "buckets", "set logscale x 2; set format x '2^{%L}'")


def table(head: list[str], rows: list[list[str]]) -> str:
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def rate(line: dict) -> str:
    return f"{line['value']:.4g} ({line['p5']:.3g} to {line['p95']:.3g})"


def addressing(lines: list[dict]) -> str:
    rows = []
    for light in of(lines, "addressing", way="light"):
        for other in of(lines, "addressing", way="table", keys=light["keys"],
                        target=light["target"], metric=light["metric"]):
            rows.append([power(light["keys"]), f"{light['used']:.2f}", light["metric"],
                         rate(light), rate(other), f"{other['ratio']:.3f}"])
    return table(["keys", "utilisation", "", "light, G/s", "two-level, G/s", "times"], rows)


def everything(lines: list[dict]) -> str:
    def part(line: dict, key: str) -> str:
        return "" if line[key] is None else f"{line[key]:.3f}"

    rows = [[line["bench"].removeprefix("slabhash-"), power(line["keys"]), line["mode"], name(line),
             f"{line['target']:g}", part(line, "used"), part(line, "held"), part(line, "share"),
             line["metric"], rate(line), part(line, "ratio")] for line in lines]
    return table(["", "keys", "mode", "way", "at", "used", "of bytes held", "of slots", "", "G/s",
                  "times"], rows)


def main() -> int:
    if len(sys.argv) != 3 or "'" in sys.argv[2]:
        print(__doc__, file=sys.stderr)
        return 2
    lines = read(sys.argv[1])
    if not lines:
        print(f"figures.py: {sys.argv[1]} has no lines of bench-slabhash-kernels", file=sys.stderr)
        return 1
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for figure in (figure_4, figure_5, figure_6, figure_7):
        figure(folder, lines)
    (folder / "tables.md").write_text(
        "# The two ways of addressing\n\n" + addressing(lines) + "\n# All rates: median (5th to "
        "95th percentile)\n\n" + everything(lines), encoding="utf-8")
    return 0


sys.exit(main())
