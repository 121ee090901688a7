#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write docs/options.md from the option tables that are compiled into the gpualloc command.

    docs/make-options.py GPUALLOC [--check]

With --check nothing is written: exit 1 where the file differs, 77 (skip) where this build has fewer
backends than the file, since what it lacks cannot be compared.
"""
import json
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).with_name("options.md")
HEAD = """# Backends and their options

Made by `docs/make-options.py` from the tables that parse the options; `gpualloc list` prints the same.
"""


def table(options: list[dict]) -> str:
    """The options of one backend as a Markdown table."""
    rows = ["| option | type | default | |", "|---|---|---|---|"]
    for option in options:
        kind = option["type"]
        if "choices" in option:
            before = " or " if kind == "size" else ": "
            kind += before + ", ".join(option["choices"])
        default = option["default"]
        shown = "must be given" if default is None else f"`{default}`"
        rows.append(f"| `{option['name']}` | {kind} | {shown} | {option['help']} |")
    return "\n".join(rows) + "\n"


def page(backends: list[dict]) -> str:
    """The whole page."""
    parts = [HEAD]
    for backend in backends:
        parts.append(f"## {backend['name']}\n\n{backend['help']}\n\n"
                     f"Places: {', '.join(backend['places'])}. Parent: {backend['parent']}.\n")
        if backend["options"]:
            parts.append(table(backend["options"]))
    return "\n".join(parts)


def main() -> int:
    """Write or compare."""
    command = [sys.argv[1], "list", "--json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    text = page(listed["backends"])
    if "--check" not in sys.argv[2:]:
        PAGE.write_text(text)
        return 0
    written = PAGE.read_text()
    if written.count("\n## ") > text.count("\n## "):
        print("this build lacks backends that docs/options.md has: nothing compared")
        return 77
    if written != text:
        print(f"docs/options.md is not what the tables say: run {sys.argv[0]} {sys.argv[1]}")
    return 0 if written == text else 1


if __name__ == "__main__":
    sys.exit(main())
