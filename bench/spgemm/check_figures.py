#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check figures.py with a small log of invented results: tables, the commands for gnuplot, and
pictures where gnuplot is installed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FIGURES = pathlib.Path(__file__).with_name("figures.py")
PWTK = {"matrix": "like-pwtk", "exact": False, "rows": 217918, "size": 11524432,
        "multiplications": 626054402, "entries": 32772236}
SKEWED = {"matrix": "rmat", "exact": False, "rows": 100, "size": 800, "multiplications": 4000,
          "entries": 2000}


def line(matrix: dict, method: str, ms: float, **more: object) -> str:
    result = {"bench": "spgemm", "place": "device", "spec": method, "device": "a card",
              "driver": "a driver", "metric": "time", "unit": "ms", "value": ms, "spread": ms / 10,
              "date": "2026-11-27T00:00:00Z", "commit": "c0ffee", "method": method, "scale": 1,
              "type": "float64", "gflops": 2 * matrix["multiplications"] / ms / 1e6,
              "peak_bytes": 1000, "scratch_bytes": 100, "efficiency": 0.98,
              "mapped_efficiency": 0.9}
    return json.dumps(result | matrix | more, separators=(",", ":"))


def other(method: str, ms: float, peak: int, matrix: dict = PWTK) -> str:
    return line(matrix, method, ms, efficiency=None, peak_bytes=peak, scratch_bytes=0)


LOG = [
    line(PWTK, "precise", 20, growth_ms=5), line(PWTK, "growing", 12, growth_ms=0),
    line(PWTK, "upper", 1, metric="failed", value=5, reason="no memory"),
    line(PWTK, "dynamic", 16, size_per_row=8, entries_estimated=33000000),
    line(PWTK, "dynamic", 14, size_per_row=64, entries_estimated=33000000),
    other("cusparse-ALG1", 30, 4400), other("cusparse-ALG2", 24, 2200),
    "a line of another program",
    line(SKEWED, "precise", 4), line(SKEWED, "growing", 5), line(SKEWED, "upper", 3),
    other("cusparse-ALG1", 10, 2200, SKEWED)]


class Figures(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="spgemm-figures-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def draw(self, lines: list[str], status: int = 0, stand_in: bool = True) -> str:
        """Run it; returns its messages."""
        (self.folder / "log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if stand_in:
            (self.folder / "gnuplot").write_text(f"#!/bin/sh\ncat >{self.folder}/script\n")
            (self.folder / "gnuplot").chmod(0o755)
        done = subprocess.run([sys.executable, FIGURES, "log", "out"], cwd=self.folder, text=True,
                              capture_output=True, check=False,
                              env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(status, done.returncode, done.stderr)
        return done.stderr

    def test_tables(self) -> None:
        self.draw(LOG)
        text = (self.folder / "out" / "tables.md").read_text(encoding="utf-8")
        for row in (
                "| like-pwtk | 217,918 | 217,918 | 1.000 | 11,524,432 | 11,524,432 | 1.000 "
                "| stand-in |",
                "| rmat |  | 100 |  |  | 800 |  |  |",
                "| like-pwtk | 50.26 | 40.00 | 20 | 12 |",
                "| geometric mean | 61.46 | 40.00 |  |  |",
                "| like-pwtk | 32,772,236 | 32,772,236 | 1.000 | 626,054,402 | 626,054,402 | 1.000 "
                "| 19.103 | 19.103 | stand-in |",
                "| like-pwtk | 32,772,236 | 33,000,000 | 1.007 |",
                "| geometric mean |  |  | 1.007 |",
                "| like-pwtk | 20.00 | 12.00 | 16.00 | 14.00 | failed | 24.00 (ALG2) |",
                "| like-pwtk | 25.0 | 0.0 |  |  | failed |",
                "| like-pwtk | 1.20 | 2.00 | 1.50 | 1.71 | failed |",
                "| rmat | 2.50 | 2.00 |  |  | 3.33 |",
                "| geometric mean | 1.73 | 2.00 | 1.50 | 1.71 | 3.33 |",
                "| like-pwtk | 0.250 | 0.250 | 0.250 | 0.250 | failed |"):
            self.assertIn(f"\n{row}\n", text)

    def test_points(self) -> None:
        self.draw(LOG)
        script = (self.folder / "script").read_text(encoding="utf-8")
        for part in ("figure-5.1b-pwtk.svg'", "figure-5.1-rmat.svg'", "figure-5.1.svg'",
                     "like-pwtk, a card (failed: upper bound)", "\n14 0.98 0.7 \"64\"\n",
                     "pointtype 5 linecolor rgb '#cc0000'", "using 1:2:4 with labels"):
            self.assertIn(part, script)
        self.assertNotIn("cusparse", script)

    @unittest.skipUnless(shutil.which("gnuplot"), "no gnuplot here")
    def test_pictures(self) -> None:
        self.assertEqual("", self.draw(LOG, stand_in=False))
        names = {path.name for path in (self.folder / "out").glob("*.svg")}
        self.assertEqual({"figure-5.1b-pwtk.svg", "figure-5.1-rmat.svg", "figure-5.1.svg"}, names)
        self.assertIn("growing", (self.folder / "out" / "figure-5.1-rmat.svg").read_text())

    def test_second_result(self) -> None:
        message = self.draw([*LOG, line(PWTK, "growing", 13)], 1)
        self.assertIn("like-pwtk, growing: 12 ms", message)
        self.assertIn("13 ms", message)

    def test_no_result(self) -> None:
        self.assertIn("no times", self.draw(["a line"], 1))


unittest.main()
