#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count the allocations that `gpualloc rewrite` makes collective in a corpus of programs.

    bench/rewrite/reach.py PROGRAM MANIFEST [--reasons N] [--part NAME] [--jobs N]

PROGRAM is gpualloc-rewrite. MANIFEST has one program a line, in Make's manner:

    PART: [--for=cuda] FILE... -- FLAG...

PART names a row of the table. Files and flags are as on the command line, quoted as for a shell,
with paths relative to MANIFEST's folder. A manifest that cannot be read, or names no program, is an
error (exit status 2). Prints a table in Markdown:

    programs     those that Clang parses, and in parentheses the others
    seen         calls of allocation functions: each place in a source once, also if several
                 programs have the file
    pattern, callgraph, flow
                 places that the grade makes collective: in some program the call gets true, or
                 `coalesce` in a function that main or a kernel calls with true
    refuted      those of pattern of which flow shows that threads may call alone, or for unequal
                 sizes: their rewriting can hang
    unproved     those of pattern of which flow cannot tell
    beyond       those of flow that pattern does not have

--reasons N prints the N most frequent reasons why calls are not collective in the grade flow, with
the number of places, by the text of the first cause and of its origin."""

import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

GRADES = ("pattern", "callgraph", "flow")
COLUMNS = ("seen", *GRADES, "refuted", "unproved", "beyond")


def read_manifest(path: pathlib.Path) -> list[tuple[str, list[str]]]:
    programs = []
    for line in path.read_text().splitlines():
        part, separator, arguments = line.partition(": ")
        if separator and not line.startswith("#"):
            programs.append((part, shlex.split(arguments)))
    return programs


def analyse(program: str, folder: pathlib.Path, arguments: list[str],
            known: dict[str, list]) -> dict[str, list] | None:
    """The allocations by the grades, or None if a file is not parsed. `known`: those of grades that
    need no run."""
    found = dict(known)
    for grade in GRADES:
        if grade in found:
            continue
        done = subprocess.run([program, f"--grade={grade}", "--format=json", "--project=.",
                               *arguments], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            errors = re.findall(r"error: .*", done.stderr) or [done.stderr.strip()[-200:]]
            print(f"{shlex.join(arguments)[:60]}: {errors[0]}", file=sys.stderr, flush=True)
            return None
        found[grade] = json.loads(done.stdout)["allocations"]
    return found


def place(allocation: dict) -> tuple:
    return allocation["file"], allocation["line"], allocation["column"]


def reason(allocation: dict) -> str:
    """The first cause and its origin, without names of the program."""
    causes = allocation["causes"]
    texts = [causes[0]["text"], causes[-1]["text"]] if len(causes) > 1 else \
        [cause["text"] for cause in causes]
    return " < ".join(texts) or allocation["verdict"]


class Part:
    """One row: sets of places."""

    def __init__(self) -> None:
        self.programs = self.failed = 0
        self.places = {column: set() for column in COLUMNS}
        self.reasons = collections.defaultdict(set)

    def add(self, found: dict[str, list] | None) -> None:
        if found is None:
            self.failed += 1
            return
        self.programs += 1
        for grade in GRADES:
            self.places[grade] |= {place(one) for one in found[grade] if one["reached"]}
        pattern = {place(one) for one in found["pattern"] if one["reached"]}
        for one in found["flow"]:
            at = place(one)
            self.places["seen"].add(at)
            if one["reached"]:
                continue
            self.reasons[reason(one)].add(at)
            if at in pattern and not one["argument"]:
                wrong = one["verdict"] in ("divergent", "uniform, sizes differ")
                self.places["refuted" if wrong else "unproved"].add(at)

    def finish(self) -> None:
        self.places["refuted"] -= self.places["flow"]
        self.places["unproved"] -= self.places["flow"] | self.places["refuted"]
        self.places["beyond"] = self.places["flow"] - self.places["pattern"]

    def counts(self) -> list[str]:
        programs = f"{self.programs} ({self.failed})" if self.failed else str(self.programs)
        return [programs, *(str(len(self.places[column])) for column in COLUMNS)]


def total(parts: dict[str, Part]) -> Part:
    whole = Part()
    for part in parts.values():
        whole.programs += part.programs
        whole.failed += part.failed
        for column in COLUMNS:
            whole.places[column] |= part.places[column]
        for text, places in part.reasons.items():
            whole.reasons[text] |= places
    return whole


def print_table(parts: dict[str, Part]) -> None:
    print("| part | programs | " + " | ".join(COLUMNS) + " |")
    print("|---|--:" + "|--:" * len(COLUMNS) + "|")
    for name, part in [*parts.items(), ("all", total(parts))]:
        print(f"| {name} | " + " | ".join(part.counts()) + " |")


def print_reasons(whole: Part, count: int) -> None:
    ranked = sorted(((len(places - whole.places["flow"]), text, sorted(places)[0])
                     for text, places in whole.reasons.items()), reverse=True)
    for number, text, first in ranked[:count]:
        print(f"{number:5} {text}  [{pathlib.Path(first[0]).name}:{first[1]}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("manifest", type=pathlib.Path)
    parser.add_argument("--reasons", type=int, default=0, metavar="N")
    parser.add_argument("--part", default="", help="only parts whose names contain this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--paper", type=pathlib.Path, metavar="FILE",
                        help="keep the answers of the paper's grades here, and take them from here")
    of = parser.parse_args()
    program = str(pathlib.Path(of.program).resolve())
    folder = of.manifest.resolve().parent
    if not os.access(program, os.X_OK) or not os.path.isfile(program):
        parser.error(f"{of.program}: expected gpualloc-rewrite, which can be executed")
    try:
        programs = [one for one in read_manifest(of.manifest) if of.part in one[0]]
    except (OSError, ValueError) as error:  # ValueError: no text, or a quote without an end
        parser.error(f"{of.manifest}: {getattr(error, 'strerror', None) or error}")
    if not programs:
        parser.error(f"{of.manifest}: no line \"PART: FILE... -- FLAG...\" of a part with "
                     f"\"{of.part}\" in its name")
    parts = {name: Part() for name, _ in programs}
    kept = json.loads(of.paper.read_text()) if of.paper and of.paper.exists() else {}
    with ThreadPoolExecutor(of.jobs) as pool:
        answers = pool.map(lambda one: analyse(program, folder, one[1],
                                               kept.get(shlex.join(one[1]), {})), programs)
        for (name, arguments), found in zip(programs, answers):
            parts[name].add(found)
            if found:
                kept[shlex.join(arguments)] = {grade: found[grade] for grade in GRADES[:2]}
    if of.paper:
        of.paper.write_text(json.dumps(kept))
    for part in parts.values():
        part.finish()
    print_table(parts)
    print_reasons(total(parts), of.reasons)


if __name__ == "__main__":
    main()
