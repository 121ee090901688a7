#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figure 5.1 and Tables 4.1, 5.1 and 5.2 of vmm-spgemm-2023 from the results of
`gpualloc bench spgemm --json`, and tables of times and memory beside cuSPARSE.

    bench/spgemm/figures.py LOG.json... FOLDER

Into the folder go figure-5.1a-Fault_639.svg and so on, a picture for each matrix with its time and
memory efficiency by each method; figure-5.1.svg, all of these; and tables.md. Other matrices than
the thesis's have no letter. Each method of a matrix has one result: a second one is an error. Needs
gnuplot."""

import math
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plain_results

# In the order of Figure 5.1, a to t.
LETTERS = dict(zip(
    "Fault_639 pwtk af_shell10 cage14 nv2 Hook_1498 af_3_k101 atmosmodm Transport boneS10 cage15 "
    "dgreen Emilia_923 atmosmodl Geo_1438 Hardesty1 nlpkkt80 Serena ss BenElechi1".split(),
    "abcdefghijklmnopqrst"))
# Table 5.1: estimation in % of the run time of the precise method. cage15 is not in it.
ESTIMATION = {
    "pwtk": 50.26, "atmosmodl": 46.86, "cage14": 92.79, "af_shell10": 51.75, "nv2": 66.08,
    "Hook_1498": 80.98, "af_3_k101": 50.58, "atmosmodm": 47.49, "BenElechi1": 53.29,
    "boneS10": 62.71, "dgreen": 81.14, "Emilia_923": 55.86, "Fault_639": 58.48, "Geo_1438": 55.45,
    "Hardesty1": 50.30, "Serena": 69.80, "Transport": 69.75, "ss": 76.05, "nlpkkt80": 72.47}
ESTIMATION_MEAN = 61.46
OVERESTIMATION_MEAN = 7.018  # Table 5.2
ALGORITHMS = "cusparse-"
BASE = "cusparse-ALG1"
STYLES = {  # gnuplot's types of points, and colours
    "upper": "pointtype 5 linecolor rgb '#cc0000'",
    "precise": "pointtype 9 linecolor rgb '#008800'",
    "growing": "pointtype 7 linecolor rgb '#0044cc'",
    "dynamic": "pointtype 15 linecolor rgb '#6699ff'",
    "cooperative": "pointtype 14 linecolor rgb '#0044cc'",
    "dot-upper": "pointtype 4 linecolor rgb '#cc0000'",
    "dot-precise": "pointtype 8 linecolor rgb '#008800'",
    "dot-dynamic": "pointtype 14 linecolor rgb '#6699ff'"}
OTHER_STYLE = "pointtype 13 linecolor rgb '#666666'"
NAMES = {"upper": "upper bound"}
LEGEND = ("square: upper bound, triangle: precise, disc: growing, pentagon: dynamic with its "
          "size per row; hollow: dot products")
PAGE = "background '#ffffff' noenhanced font 'sans,11'"
AXES = """set xlabel 'time, ms'
set ylabel 'memory efficiency'
set xrange [0:*]
set yrange [0:1.05]
set offsets 0, graph 0.08, 0, 0
set grid
"""


class Facts(NamedTuple):
    """Tables 4.1 and 5.2; 0 for a number that the thesis does not have."""
    rows: int
    nonzeros: int
    multiplications: int
    product: int


def read_facts() -> dict[str, Facts]:
    """The thesis's numbers, from the generators' table."""
    text = pathlib.Path(__file__).with_name("matrices.c").read_text(encoding="utf-8")
    rows = re.findall(r'FACTS\("([^"]+)", \w+, (\d+), (\d+), (\d+), (\d+)\)', text)
    return {original(name): Facts(*map(int, numbers)) for name, *numbers in rows}


def original(name: str) -> str:
    """The matrix of the thesis that a generated one stands in for."""
    return name.removeprefix("like-")


def label(line: dict) -> str:
    """The method, and its parameter, unless it was chosen by a goal."""
    size = line.get("size_per_row")
    is_chosen = line["method"].startswith("dynamic-")
    return line["method"] + (f" {size}" if size and not is_chosen else "")


class Log:
    """The results: for each matrix and method a time, or a failure."""

    def __init__(self, lines: Iterable[dict]) -> None:
        self.times: dict[str, dict[str, dict]] = {}
        self.failures: dict[str, dict[str, str]] = {}
        for line in lines:
            matrix, method = line["matrix"], label(line)
            if line["metric"] == "failed":
                self.failures.setdefault(matrix, {})[method] = line["reason"]
            elif line["metric"] == "time":
                known = self.times.setdefault(matrix, {})
                if method in known:
                    sys.exit(f"figures.py: {matrix}, {method}: {known[method]['value']} ms "
                             f"({known[method]['date']}) and {line['value']} ms ({line['date']}): "
                             "expected one result; give the files of one run")
                known[method] = line
        self.matrices = sorted(self.times, key=lambda name: (
            LETTERS.get(original(name), "z"), name))
        every = [line for lines in self.times.values() for line in lines.values()]
        self.machine = ", ".join(sorted({line["device"] for line in every}))
        methods = dict.fromkeys(label(line) for line in every)
        self.methods = [m for m in methods if not m.startswith(ALGORITHMS)]
        self.has_cusparse = len(self.methods) < len(methods)

    def any(self, matrix: str) -> dict:
        """A result that has the numbers of the matrix."""
        return next(iter(self.times[matrix].values()))

    def get(self, matrix: str, method: str) -> dict | None:
        return self.times[matrix].get(method)

    def best_cusparse(self, matrix: str) -> dict | None:
        """The fastest algorithm."""
        found = [line for method, line in self.times[matrix].items()
                 if method.startswith(ALGORITHMS)]
        return min(found, key=lambda line: line["value"], default=None)


def read(paths: list[str]) -> list[dict]:
    """The lines of the files that are results."""
    found = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as lines:
            found += [plain_results.read_line(line) for line in lines
                      if line.startswith('{"bench":"spgemm"')]
    return found


# ---- Figure 5.1 ---------------------------------------------------------------------------------


def tics(largest: float) -> float:
    """A distance of tics, 1, 2 or 5 times a power of ten, of which at most five fit."""
    power = 10 ** math.floor(math.log10(largest / 5))
    return next(step * power for step in (1, 2, 5, 10) if step * power * 5 >= largest)


def panel(log: Log, matrix: str, number: int, title: str) -> str:
    """gnuplot's lines for the points of a matrix."""
    groups: dict[str, list[dict]] = {}
    for line in log.times[matrix].values():
        if line["efficiency"] is not None:
            groups.setdefault(line["method"], []).append(line)
    parts, plots = [], []
    for place, (method, lines) in enumerate(groups.items()):
        block = f"$points{number}of{place}"
        rows = "\n".join(f"{line['value']} {line['efficiency']} {line['spread'] / 2} "
                         f"\"{line.get('size_per_row') or ''}\"" for line in lines)
        parts.append(f"{block} << END\n{rows}\nEND\n")
        style = STYLES.get(method, OTHER_STYLE)
        plots.append(f"{block} using 1:2:3 with xerrorbars {style} pointsize 1.2 "
                     f"title '{NAMES.get(method, method)}'")
        if any(line.get("size_per_row") for line in lines):
            plots.append(f"{block} using 1:2:4 with labels offset 0,-1 notitle")
    failed = [NAMES.get(m, m) for m in log.failures.get(matrix, {}) if not m.startswith(ALGORITHMS)]
    note = f" (failed: {', '.join(failed)})" if failed else ""
    largest = max(line["value"] for lines in groups.values() for line in lines)
    parts.append(f"set xtics {tics(largest):g}\nset title '{title}{note}'\n")
    return "".join(parts) + "plot " + ", ".join(plots) + "\n"


def picture_name(matrix: str) -> str:
    letter = LETTERS.get(original(matrix), "")
    return f"figure-5.1{letter}-{re.sub(r'[^A-Za-z0-9_.]+', '-', original(matrix))}.svg"


def draw(log: Log, folder: pathlib.Path) -> None:
    """The pictures, and the sheet with all of them."""
    drawn = [m for m in log.matrices
             if any(line["efficiency"] is not None for line in log.times[m].values())]
    columns = min(4, len(drawn))
    rows = -(-len(drawn) // max(columns, 1))
    script = [AXES, "set key outside bottom center horizontal\n"]
    for number, matrix in enumerate(drawn):
        script.append(f"set terminal svg size 520,420 dynamic {PAGE}\n"
                      f"set output '{folder / picture_name(matrix)}'\n")
        script.append(panel(log, matrix, number, f"{matrix}, {log.machine}"))
    script.append(f"set terminal svg size {340 * columns},{280 * rows + 40} dynamic {PAGE}\n"
                  f"set output '{folder / 'figure-5.1.svg'}'\nunset key\n"
                  f"set multiplot layout {rows},{columns} title "
                  f"'Figure 5.1: time and memory efficiency, {log.machine} ({LEGEND})'\n")
    for number, matrix in enumerate(drawn):
        script.append(panel(log, matrix, len(drawn) + number,
                            f"{LETTERS.get(original(matrix), '')} {matrix}".strip()))
    if drawn:
        script.append("unset multiplot\n")
        subprocess.run(["gnuplot"], input="".join(script), text=True, check=True)


# ---- tables -------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def mean(values: list[float]) -> float:
    """The geometric mean; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def number(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def beside(ours: int, thesis: int, scale: float) -> list[str]:
    """The thesis's number, ours, and the ratio at this scale."""
    return [f"{thesis:,}" if thesis else "", f"{ours:,}",
            f"{ours / (thesis * scale):.3f}" if thesis else ""]


def pattern(line: dict) -> str:
    return "exact" if line["exact"] else "stand-in" if original(line["matrix"]) in LETTERS else ""


def sizes(log: Log, facts: dict[str, Facts]) -> str:
    rows = []
    for matrix in log.matrices:
        line = log.any(matrix)
        known = facts.get(original(matrix), Facts(0, 0, 0, 0))
        rows.append([matrix, *beside(line["rows"], known.rows, line["scale"]),
                     *beside(line["size"], known.nonzeros, line["scale"]), pattern(line)])
    return table(["", "rows, thesis", "ours", "ratio", "non-zeros, thesis", "entries, ours",
                  "ratio", "pattern"], rows)


def estimation(log: Log) -> str:
    rows, kept = [], []
    for matrix in log.matrices:
        precise, growing = log.get(matrix, "precise"), log.get(matrix, "growing")
        if precise and growing:
            part = growing["value"] / precise["value"]
            thesis = ESTIMATION.get(original(matrix), math.nan)
            if not math.isnan(thesis):
                kept.append(part)
            rows.append([matrix, number(thesis, 2), f"{100 - 100 * part:.2f}",
                         f"{precise['value']:.4g}", f"{growing['value']:.4g}"])
    rows.append(["geometric mean", number(ESTIMATION_MEAN, 2), number(100 - 100 * mean(kept), 2),
                 "", ""])
    return table(["", "thesis, %", "ours, %", "precise, ms", "growing, ms"], rows)


def overestimation(log: Log, facts: dict[str, Facts]) -> str:
    rows, kept = [], []
    for matrix in log.matrices:
        line = log.any(matrix)
        known = facts.get(original(matrix), Facts(0, 0, 0, 0))
        factor = line["multiplications"] / line["entries"]
        thesis = known.multiplications / known.product if known.product else math.nan
        if known.product:
            kept.append(factor)
        rows.append([matrix, *beside(line["entries"], known.product, line["scale"]),
                     *beside(line["multiplications"], known.multiplications, line["scale"]),
                     number(thesis), number(factor), pattern(line)])
    rows.append(["geometric mean", *[""] * 6, number(OVERESTIMATION_MEAN), number(mean(kept)), ""])
    return table(["", "actual, thesis", "ours", "ratio", "estimation, thesis", "ours", "ratio",
                  "factor, thesis", "factor, ours", "pattern"], rows)


def estimates(log: Log) -> str:
    """The estimate from a sample of rows beside the actual number of entries."""
    rows, ratios = [], []
    for matrix in log.matrices:
        line = next((one for one in log.times[matrix].values() if one.get("entries_estimated")),
                    None)
        if line:
            ratios.append(line["entries_estimated"] / line["entries"])
            rows.append([matrix, f"{line['entries']:,}", f"{line['entries_estimated']:,}",
                         number(ratios[-1])])
    rows.append(["geometric mean", "", "", number(mean(ratios))])
    return table(["", "actual", "estimated", "ratio"], rows)


def by_method(log: Log, value: Callable[[str, dict], float], digits: int, last: str = "",
              last_value: Callable[[str], str] = lambda matrix: "", with_mean: bool = True) -> str:
    """A row for each matrix, a column for each method, and a last one."""
    rows: list[list[str]] = []
    columns: dict[str, list[float]] = {method: [] for method in log.methods}
    for matrix in log.matrices:
        row = [matrix]
        for method in log.methods:
            line = log.get(matrix, method)
            found = value(matrix, line) if line else math.nan
            if not math.isnan(found):
                columns[method].append(found)
            failed = method in log.failures.get(matrix, {})
            row.append("failed" if failed and not line else number(found, digits))
        rows.append(row + ([last_value(matrix)] if last else []))
    if with_mean:
        rows.append(["geometric mean"] + [number(mean(columns[m]), digits) for m in log.methods] +
                    ([""] if last else []))
    return table(["", *log.methods, *([last] if last else [])], rows)


def fastest(log: Log, key: str, digits: int) -> Callable[[str], str]:
    """A value of the fastest algorithm of cuSPARSE, and its name."""
    def text(matrix: str) -> str:
        best = log.best_cusparse(matrix)
        return f"{best[key]:.{digits}f} ({best['method'].removeprefix(ALGORITHMS)})" if best \
            else "failed"
    return text


def speedup(log: Log) -> Callable[[str, dict], float]:
    def value(matrix: str, line: dict) -> float:
        best = log.best_cusparse(matrix)
        return best["value"] / line["value"] if best else math.nan
    return value


def memory_ratio(log: Log) -> Callable[[str, dict], float]:
    def value(matrix: str, line: dict) -> float:
        base = log.get(matrix, BASE)
        return (line["peak_bytes"] + line["scratch_bytes"]) / base["peak_bytes"] if base \
            else math.nan
    return value


def growth(log: Log) -> list[str]:
    """Figure 5.3: the share of time in which vectors grow; nothing for a log without it."""
    if not any("growth_ms" in line for lines in log.times.values() for line in lines.values()):
        return []
    return ["## Figure 5.3: growth of the product's vectors, % of the time\n\nOf `growing` a part "
            "is while the kernel runs.\n",
            by_method(log, lambda _, line: 100 * line.get("growth_ms", math.nan) / line["value"], 1,
                      with_mean=False)]


def cusparse_tables(log: Log) -> list[str]:
    last = "cuSPARSE, best" if log.has_cusparse else ""
    parts = ["## Times, ms\n",
             by_method(log, lambda _, line: line["value"], 2, last, fastest(log, "value", 2),
                       with_mean=False),
             "## Gflop/s\n\nTwo operations for each multiplication.\n",
             by_method(log, lambda _, line: line["gflops"], 2, last, fastest(log, "gflops", 2))]
    if log.has_cusparse:
        parts += ["## Times as fast as the best of cuSPARSE's ALG1 to ALG3\n",
                  by_method(log, speedup(log), 2),
                  "## Peak memory, product and scratch, over that of cuSPARSE's ALG1\n",
                  by_method(log, memory_ratio(log), 3)]
    return parts + ["## Memory efficiency: bytes of the product over bytes mapped at most\n",
                    by_method(log, lambda _, line: line["mapped_efficiency"], 3)]


def tables(log: Log) -> str:
    facts = read_facts()
    lines = [log.any(matrix) for matrix in log.matrices]
    about = sorted({f"{line['device']}, {line['driver'] or line['place']}, {line['type']}, "
                    f"scale {line['scale']:g}, commit {line['commit']}, {line['date'][:10]}"
                    for line in lines})
    return "\n".join([
        "# Products of sparse matrices\n", "; ".join(about) + ". Medians.\n",
        "## Table 4.1: the matrices\n\nThe thesis counts non-zeros, without stored zeros.\n",
        sizes(log, facts),
        "## Table 5.1: estimation, share of the precise method's time\n\nOurs: the time of "
        "`precise` beyond that of `growing`, which needs no estimation. The mean is that of\nthe "
        "ratio of the two, over the thesis's matrices.\n",
        estimation(log),
        "## Table 5.2: entries of the product, and the upper bound\n\nThe mean is over the "
        "thesis's matrices.\n",
        overestimation(log, facts),
        "## Entries of the product, estimated from a sample of its rows\n",
        estimates(log), *growth(log), *cusparse_tables(log)])


def main() -> int:
    if len(sys.argv) < 3 or not plain_results.is_plain_path(sys.argv[-1]):
        print(__doc__, file=sys.stderr)
        return 2
    log = Log(read(sys.argv[1:-1]))
    if not log.matrices:
        print("figures.py: no times of `gpualloc bench spgemm --json` in these files",
              file=sys.stderr)
        return 1
    folder = pathlib.Path(sys.argv[-1])
    folder.mkdir(parents=True, exist_ok=True)
    draw(log, folder)
    (folder / "tables.md").write_text(tables(log), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
