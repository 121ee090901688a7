#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that the stored tables match the stored log, and have the paper's dimensions.

    bench/coalesce/check_figures.py LOG.jsonl.gz TABLES.md

Uses a gnuplot that draws nothing in place of the real one."""

import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


def main() -> int:
    """0: figures.py makes these tables."""
    figures = pathlib.Path(__file__).with_name("figures.py")
    kept = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with gzip.open(sys.argv[1]) as log, open(folder / "log", "wb") as plain:
            shutil.copyfileobj(log, plain)
        (folder / "gnuplot").write_text("#!/bin/sh\ncat > /dev/null\n", encoding="utf-8")
        (folder / "gnuplot").chmod(0o755)
        subprocess.run([sys.executable, figures, folder / "log", folder], check=True,
                       env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"})
        made = (folder / "tables.md").read_text(encoding="utf-8")
    calls = {tuple(row.split(" | ")[:2]) for row in made.splitlines() if " | operation | " in row}
    wanted = 5  # calls and numbers of ranks
    if made != kept or len(calls) != wanted:
        print(f"tables differ: {made != kept}; calls with `operation`: {len(calls)}, "
              f"expected {wanted}")
        return 1
    return 0


sys.exit(main())
