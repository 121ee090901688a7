#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sum up results of `gpualloc bench --json` in one screen.

  summary.py BENCH.jsonl

One line a workload, at its largest number of threads and size: the best backend and its ratio to
the baseline. A ratio is "unsure" where the interquartile range of either figure is more than a
quarter of its median.
"""

import argparse
import json
import sys
from pathlib import Path

UNSURE = 0.25  # of the median
NOT_RANKED = ("null", "fail")  # backends for tests
PERCENTILES = ("malloc_p50", "malloc_p99", "free_p50", "free_p99", "free_p99.9", "clock")
NAMES = {"throughput": "", "malloc_p99.9": ", slowest 0.1 % of mallocs",
         "held": ", memory held", "held_after_half_freed": ", memory held after half is freed"}


def read(path: Path) -> list[dict]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        sys.exit(f"summary: {path}: expected JSON lines of gpualloc bench: {error}")
    return [line for line in lines if line["metric"] not in PERCENTILES
            and line["spec"].split(":")[0] not in NOT_RANKED]


def is_rate(unit: str) -> bool:
    return unit.endswith("op/s")


def meaning(unit: str) -> str:
    return "as fast" if is_rate(unit) else "the time" if unit in ("ns", "us", "s") else "the memory"


def rows(lines: list[dict]) -> dict[str, list[dict]]:
    """By workload and metric, the lines of its largest number of threads and size."""
    groups: dict[str, list[dict]] = {}
    for line in lines:
        name = line["bench"] + NAMES.get(line["metric"], ", " + line["metric"])
        groups.setdefault(name, []).append(line)
    for name, group in groups.items():
        most = max((line["threads"], line["size"] or 0) for line in group)
        groups[name] = [line for line in group if (line["threads"], line["size"] or 0) == most]
    return groups


def best_of(group: list[dict]) -> dict:
    values = [line for line in group if line["value"] is not None]
    pick = max if is_rate(group[0]["unit"]) else min
    return pick(values, key=lambda line: line["value"])


def is_unsure(line: dict) -> bool:
    return not line["value"] or (line["spread"] or 0) > UNSURE * line["value"]


def words(line: dict, base: dict) -> str:
    if is_unsure(line) or is_unsure(base):
        return "unsure"
    return f"{line['ratio']:.2f} times {meaning(line['unit'])}"


def print_table(lines: list[dict]) -> None:
    found = []
    for name, group in rows(lines).items():
        base = next((line for line in group if line["spec"] == line["baseline"]), None)
        if base:
            best = best_of(group)
            found.append((name, best["spec"], words(best, base)))
    found.insert(0, ("workload", "best backend", f"beside {lines[0]['baseline']}"))
    first, second = (max(len(row[column]) for row in found) for column in (0, 1))
    for name, spec, said in found:
        print(f"{name:{first}}  {spec:{second}}  {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    asked = parser.parse_args()
    lines = read(asked.bench)
    if not lines:
        sys.exit(f"summary: {asked.bench}: expected results, found none")
    print_table(lines)


if __name__ == "__main__":
    main()
