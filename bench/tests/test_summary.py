#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/programs/summary.py names the best backend of each workload, and calls a ratio unsure where
the spread of the figures is too wide."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SUMMARY = Path(__file__).resolve().parents[1] / "programs" / "summary.py"


def line(spec: str, value: float, ratio: float, **more: object) -> str:
    return json.dumps({"bench": "same-size", "spec": spec, "threads": 1, "size": 64,
                       "unit": "Mop/s", "metric": "throughput", "value": value, "spread": 0.01,
                       "baseline": "system", "ratio": ratio} | more)


class Summary(unittest.TestCase):
    def said(self, *lines: str, status: int = 0) -> str:
        with tempfile.TemporaryDirectory() as folder:
            name = Path(folder) / "bench.jsonl"
            name.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            done = subprocess.run([sys.executable, SUMMARY, name], capture_output=True, text=True,
                                  check=False)
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_fastest(self) -> None:
        said = self.said(line("system", 10, 1), line("slab", 20, 2), line("vmm", 1, 0.1))
        self.assertRegex(said, r"same-size +slab +2\.00 times as fast")

    def test_the_shortest_time(self) -> None:
        time = {"unit": "ns", "metric": "malloc_p99.9", "bench": "latency"}
        said = self.said(line("system", 10, 1, **time), line("slab", 2, 0.2, **time))
        self.assertRegex(said, r"latency, slowest 0\.1 % of mallocs +slab +0\.20 times the time")

    def test_most_threads(self) -> None:
        said = self.said(line("system", 10, 1), line("slab", 20, 2),
                         line("system", 10, 1, threads=8), line("slab", 5, 0.5, threads=8))
        self.assertRegex(said, r"same-size +system +1\.00")

    def test_a_wide_spread_is_unsure(self) -> None:
        said = self.said(line("system", 10, 1, spread=3), line("slab", 20, 2))
        self.assertRegex(said, r"same-size +slab +unsure")

    def test_a_spread_is_in_the_unit_of_the_figure(self) -> None:
        said = self.said(line("system", 10, 1, spread=2), line("slab", 20, 2, spread=4))
        self.assertRegex(said, r"same-size +slab +2\.00 times as fast")

    def test_backends_for_tests_are_left_out(self) -> None:
        said = self.said(line("system", 10, 1), line("null", 99, 9.9))
        self.assertRegex(said, r"same-size +system")

    def test_nothing_to_sum_up(self) -> None:
        self.assertIn("expected results, found none", self.said(status=1))
        self.assertIn("expected JSON lines", self.said("{", status=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
