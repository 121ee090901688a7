#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the examples as their comments say, and check their output."""

import json
import mmap
import os
import re
import shutil
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


class Cache(unittest.TestCase):

    def test_threads(self) -> None:
        for variables in ({}, {"GPUALLOC_HOST": "hardened"}):
            outcome = run("cache", "4", "20000", **variables)
            self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
            found, counted = re.fullmatch(r"(\d+) records found, (\d+) counted\n",
                                          outcome.stdout).groups()
            self.assertEqual(found, counted)
            self.assertGreater(int(found), 20000)

    def test_bad_arguments(self) -> None:
        for threads in ("0", "257"):
            outcome = run("cache", threads)
            self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
            self.assertIn("1 to 256 threads", outcome.stderr)


class Weights(unittest.TestCase):

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([str(EXAMPLES / "weights"), *arguments], env=CLEAN, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, process: subprocess.Popen[str], line: str = "") -> str:
        assert process.stdin and process.stdout
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()

    def test_two_processes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            name, file = f"{folder}/name", Path(folder, "file")
            file.write_bytes(bytes([1]) * 10000)
            pages = -(-10000 // mmap.PAGESIZE) * mmap.PAGESIZE
            with self.start("publish", name, str(file)) as publisher:
                self.assertEqual(self.ask(publisher), "0 readers\n")
                with self.start("read", name) as reader:
                    self.assertEqual(self.ask(reader), f"{pages} bytes, sum 10000\n")
                    self.assertEqual(self.ask(publisher, "\n"), "1 readers\n")
                    reader.kill()
                    reader.wait()
                    self.assertEqual(self.ask(publisher, "\n"), "0 readers\n")
            outcome = run("weights", "read", name)
            self.assertEqual(outcome.returncode, 1)
            self.assertIn("no process listens at", outcome.stderr)


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


def matrix(lines: list[str], rows: int, columns: int = 0, kind: str = "real general") -> str:
    return "\n".join([f"%%MatrixMarket matrix coordinate {kind}",
                      f"{rows} {columns or rows} {len(lines)}", *lines, ""])


@unittest.skipUnless(os.environ.get("GA_DEVICE_EXAMPLES"), "no device code in this build")
class Frontier(unittest.TestCase):
    """Graphs whose results are known; without a GPU, only the errors that are noticed before."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "graph.mtx"

    def search(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        outcome = run(program, str(self.file), *arguments)
        if outcome.returncode == 77:
            self.assertIn("no GPU", outcome.stderr)
            self.skipTest("no GPU")
        if "it grows between launches only" in outcome.stderr:
            self.skipTest("no growth under kernels of this GPU")
        return outcome

    def refuse(self, text: str, program: str, *arguments: str, status: int = 1) -> None:
        outcome = run(program, *arguments)
        self.assertEqual((outcome.returncode, outcome.stdout), (status, ""), outcome.stderr)
        self.assertIn(text, outcome.stderr)

    def test_errors(self) -> None:
        file = str(self.file)
        for program in "bfs", "sssp":
            self.file.write_text(matrix(["1 2 1"], 2))
            self.refuse("usage: ", program, file, status=2)
            self.refuse("/nonesuch.mtx", program, "/nonesuch.mtx", "1")
            for start in "0", "3", "-1", "1x", "":
                self.refuse(f"start vertex: {start}; expected 1 to 2", program, file, start)
            self.refuse("limit: 0; expected 1", program, file, "1", "0")
            self.file.write_text(matrix(["1 3 1"], 2, 3))
            self.refuse("2 x 3; expected a square matrix", program, file, "1")
        for weight in "-0.5", "nan":
            self.file.write_text(matrix(["1 2 1", f"2 1 {weight}"], 2))
            self.refuse(f"from 2 to 1 has weight {weight};", "sssp", file, "1")

    def test_small_graphs(self) -> None:
        self.file.write_text(matrix(["1 2 1", "2 3 1", "1 3 5", "4 1 1"], 4))
        breadth, paths = self.search("bfs", "1"), self.search("sssp", "1")
        self.assertIn("reached   3 of 4 vertices\ndeepest   1 edges\n", breadth.stdout)
        self.assertIn("reached   3 of 4 vertices\nfarthest  2\n", paths.stdout)
        self.file.write_text(matrix([], 1))
        for program in "bfs", "sssp":
            self.assertIn("reached   1 of 1", self.search(program, "1").stdout)

    def test_growth(self) -> None:
        """A binary tree of 4 bytes a vertex outgrows the first 2 MiB."""
        self.file.write_text(matrix([], 1))
        self.search("bfs", "1")  # skips the test where there is no GPU
        n = 2**20 - 1
        self.file.write_text(matrix([f"{i} {i // 2}" for i in range(2, n + 1)], n,
                                    kind="pattern symmetric"))
        for program, last in ("bfs", "deepest   19 edges"), ("sssp", "farthest  19"):
            outcome = self.search(program, "1")
            self.assertEqual(outcome.returncode, 0, outcome.stderr)
            self.assertIn(f"reached   {n} of {n} vertices\n{last}\n", outcome.stdout)
            self.assertIn("rounds    20\nlargest   524288 vertices", outcome.stdout)
            self.assertRegex(outcome.stdout, r"growths   [1-9]")
            outcome = self.search(program, "1", "2")
            self.assertEqual((outcome.returncode, outcome.stdout), (1, ""))
            self.assertIn("cannot grow beyond 524288 entries: limit or addresses", outcome.stderr)


@unittest.skipUnless(os.environ.get("GA_DEVICE_EXAMPLES"), "no device code in this build")
class Sharded(unittest.TestCase):
    """The rank that a launcher gives a process."""

    def rank(self, **variables: str) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in CLEAN.items()
                 if not key.startswith(("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_"))}
        return subprocess.run([EXAMPLES / "table", "--rank"], env=clean | variables, text=True,
                              capture_output=True, timeout=30)

    def test_launchers(self) -> None:
        torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
        open_mpi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3",
                    "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        mpich = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"}
        slurm = {"SLURM_PROCID": "6", "SLURM_NTASKS": "7", "SLURM_LOCALID": "3"}
        for variables, expected in (
                (torchrun, "rank 5 of 8, local 1\n"), (open_mpi, "rank 2 of 3, local 0\n"),
                (mpich, "rank 3 of 4, local 2\n"), (slurm, "rank 6 of 7, local 3\n"),
                (slurm | mpich, "rank 3 of 4, local 2\n"),
                (slurm | torchrun, "rank 5 of 8, local 1\n"),
                ({"PMI_RANK": "3", "PMI_SIZE": "4"}, "rank 3 of 4, local 3\n"),
                ({"RANK": "3"}, "rank 0 of 1, local 0\n"), ({}, "rank 0 of 1, local 0\n")):
            outcome = self.rank(**variables)
            self.assertEqual((outcome.stdout, outcome.returncode), (expected, 0), outcome.stderr)

    def test_errors(self) -> None:
        for rank in "4", "-1", "1x", "":
            outcome = self.rank(PMI_RANK=rank, PMI_SIZE="4")
            self.assertEqual((outcome.stdout, outcome.returncode), ("", 1))
            self.assertIn(f"PMI_RANK: {rank}: expected a number from 0 to 3", outcome.stderr)
        self.assertEqual(run("table").returncode, 2)
        self.assertIn("expected a number from 1 to 28", run("table", "/x", "29").stderr)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_mpirun(self) -> None:
        outcome = run(shutil.which("mpirun"), "-n", "3", str(EXAMPLES / "table"), "--rank",
                      OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")
        self.assertEqual(sorted(outcome.stdout.splitlines()),
                         [f"rank {i} of 3, local {i}" for i in range(3)], outcome.stderr)


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
