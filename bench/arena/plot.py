#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A picture of the results of bench-arena-vectors --json: the time of every resize but the first,
which sets the initial size, over the size.

    bench/arena/plot.py RESULTS.jsonl PICTURE.svg

Needs gnuplot."""

import pathlib
import subprocess
import sys
from collections import defaultdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plain_results

HEAD = """set terminal svg size 720,480 dynamic background '#ffffff' font 'sans,12'
set output '{picture}'
set title '{title}'
set xlabel 'grown to, MiB'
set ylabel 'time of the resize, us'
set logscale xy
set grid
set rmargin 5
set key top left
"""


def read(path: str) -> tuple[str, dict[str, list[tuple[float, float, float]]]]:
    """The card, and for each contender MiB, us and the spread of each resize."""
    card = ""
    curves = defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for line in map(plain_results.read_line, lines):
            if line["bench"] == "vector-growth" and line["metric"] == "resize":
                card = line["device"]
                curves[line["spec"]].append((line["size"] / 2**20, line["value"], line["spread"]))
    return card, curves


def script(picture: str, card: str, curves: dict) -> str:
    parts = [HEAD.format(picture=picture, title=f"growing a vector by doubling, {card}")]
    for number, points in enumerate(curves.values()):
        rows = "\n".join(f"{size} {us} {spread}" for size, us, spread in sorted(points)[1:])
        parts.append(f"$curve{number} << END\n{rows}\nEND\n")
    plots = [f"$curve{number} using 1:2 with linespoints pointtype 7 pointsize 0.5 title '{name}'"
             for number, name in enumerate(curves)]
    return "".join(parts) + "plot " + ", ".join(plots) + "\n"


def main() -> int:
    if len(sys.argv) != 3 or not plain_results.is_plain_path(sys.argv[2]):
        print(__doc__, file=sys.stderr)
        return 2
    card, curves = read(sys.argv[1])
    if not curves:
        print(f"plot.py: {sys.argv[1]} has no resizes of vector-growth", file=sys.stderr)
        return 1
    text = script(sys.argv[2], card, curves)
    return subprocess.run(["gnuplot"], input=text, text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
