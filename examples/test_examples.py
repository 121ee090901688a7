#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the examples as their comments say, and check their output."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLES = Path(os.environ["GA_EXAMPLES"])
PRELOAD = os.environ["GA_PRELOAD"]
HOST = "jemalloc" if os.environ["GA_JEMALLOC"] else "system"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("GPUALLOC_")}
PLUGIN = {"GPUALLOC_PLUGINS": str(EXAMPLES / "bump.so")}
TEXT = "the tree and the sea and the sky " * 100


def run(program: str, *arguments: str, stdin: str = "", **variables: str
        ) -> subprocess.CompletedProcess[str]:
    path = program if os.path.isabs(program) else str(EXAMPLES / program)
    return subprocess.run([path, *arguments], env=CLEAN | variables, text=True, input=stdin,
                          capture_output=True, timeout=30)


class Heap(unittest.TestCase):

    def check(self, outcome: subprocess.CompletedProcess[str], spec: str) -> None:
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
        lines = outcome.stdout.splitlines()
        written = sum(len(f"line {i}\n") for i in range(1, 1001))
        self.assertEqual(lines[0], f"wrote {written} bytes")
        self.assertIn("a size that cannot be served", lines[1])
        self.assertIn("power of two, got 24", lines[2])
        self.assertIn(spec, lines[3])
        self.assertRegex(outcome.stdout, r"allocs +4 +frees +4\n")
        self.assertRegex(outcome.stdout, r"failures +2\n")

    def test_spec(self) -> None:
        self.check(run("heap", HOST), HOST)
        self.check(run("heap", "fail:nth=0/system"), "fail:nth=0,every=no/system")

    def test_environment(self) -> None:
        self.check(run("heap", GPUALLOC_HOST=HOST), HOST)
        self.check(run("heap"), "system")

    def test_errors(self) -> None:
        outcome = run("heap", "nonesuch")
        self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
        self.assertIn('unknown backend "nonesuch"; known: system', outcome.stderr)
        outcome = run("heap", "null")
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("heap: filling: out of memory: null", outcome.stderr)


class Square(unittest.TestCase):

    def test_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            a, c = Path(folder) / "a.mtx", Path(folder) / "c.mtx"
            a.write_text("%%MatrixMarket matrix coordinate real general\n"
                         "2 2 3\n1 1 2\n1 2 3\n2 2 -1\n")
            outcome = run("square", str(a), str(c))
            lines = c.read_text().splitlines()
        self.assertEqual((outcome.returncode, outcome.stdout), (0, "3 entries\n"), outcome.stderr)
        self.assertEqual(lines[-3:], ["1 1 4", "1 2 3", "2 2 1"])

    def test_errors(self) -> None:
        self.assertEqual(run("square").returncode, 2)
        outcome = run("square", "/nonesuch.mtx", "/dev/null")
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("/nonesuch.mtx", outcome.stderr)


class Plugin(unittest.TestCase):

    def test_as_a_heap(self) -> None:
        outcome = run("heap", f"bump:chunk=64K/{HOST}", **PLUGIN)
        Heap.check(self, outcome, f"bump:chunk=64K/{HOST}")
        self.assertRegex(outcome.stdout, r"growths +2\n")  # the block of 1 MiB has its own chunk

    def test_bad_option(self) -> None:
        outcome = run("heap", "bump:chunk=1", **PLUGIN)
        self.assertEqual(outcome.returncode, 1)
        self.assertRegex(outcome.stderr, r"bump.*chunk.*4096|bump.*chunk.*4K")

    @unittest.skipUnless(PRELOAD, "no preload in a sanitizer build")
    def test_as_the_malloc_of_a_process(self) -> None:
        plain = run("words-plain", stdin=TEXT)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "stats.json"
            outcome = run("words-plain", stdin=TEXT, LD_PRELOAD=PRELOAD, GPUALLOC_HOST="bump",
                          GPUALLOC_STATS=str(report), **PLUGIN)
            stats = json.loads(report.read_text())
        self.assertEqual((outcome.returncode, outcome.stdout, outcome.stderr),
                         (0, plain.stdout, ""))
        self.assertEqual(stats["spec"], "bump:chunk=1M/system")
        self.assertGreater(stats["allocs"], 5)

    @unittest.skipUnless(PRELOAD, "no preload in a sanitizer build")
    def test_reason_under_the_preload(self) -> None:
        outcome = run("words-plain", stdin=TEXT, LD_PRELOAD=PRELOAD,
                      GPUALLOC_HOST="bump/fail:nth=1", **PLUGIN)
        self.assertEqual(outcome.returncode, 0)
        self.assertIn("GPUALLOC_HOST: bump: no memory for the heap's record;", outcome.stderr)


@unittest.skipUnless(PRELOAD, "no archive in a sanitizer build")
class LinkMalloc(unittest.TestCase):

    def test_words(self) -> None:
        plain = run("words-plain", stdin=TEXT)
        self.assertEqual(plain.stdout.splitlines()[:2], ["   300 the", "   200 and"])
        linked = run("words", stdin=TEXT, GPUALLOC_HOST=HOST, GPUALLOC_STATS="1")
        self.assertEqual((linked.returncode, linked.stdout), (0, plain.stdout))
        self.assertRegex(linked.stderr, rf"\Agpualloc: statistics of words.*\nheap +{HOST}")
        [allocs] = re.findall(r"\nallocs +(\d+)", linked.stderr)
        self.assertGreaterEqual(int(allocs), 5)  # a strdup for each word


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
