# SPDX-License-Identifier: MIT
"""MPI programs in C that `gpualloc rewrite --port` makes programs for a GPU, run on the CPU with an
emulated CUDA (tests/emulated). Their output is that of MPICH with as many processes, which *.out
has: mpicc NAME.c -lm && mpirun -n 64 ./a.out 6 | sort.

GPUALLOC_REWRITE is the program, CXX the compiler, EMULATED the library of the emulated CUDA."""

import os
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEEDS = range(4)  # an order of the ranks each
RANKS = "2x32"
FLAGS = ["-O1", "-std=c++17", "-w", "-fno-strict-aliasing",
         f"-I{ROOT / 'tests/emulated/gpu_mpi'}", f"-I{ROOT / 'liballoc'}", f"-I{ROOT}"]
FOLDER = tempfile.TemporaryDirectory(prefix="gpualloc-gpu-mpi-")


def compiled(name: str, *sources: Path, flags: tuple[str, ...] = ()) -> Path:
    program = Path(FOLDER.name) / name
    subprocess.run([*shlex.split(os.environ["CXX"]), *FLAGS, *flags, "-x", "c++", *sources, "-x",
                    "none", os.environ["EMULATED"], "-lpthread", "-o", program], check=True,
                   timeout=120)
    return program


def ported(*names: str, folder: Path = HERE) -> tuple[Path, str]:
    """The program, and the report of the rewriting."""
    out = Path(FOLDER.name)
    done = subprocess.run([os.environ["GPUALLOC_REWRITE"], "--port", f"--out={out}",
                           *[f"{name}.c" for name in names], "--",
                           f"-I{ROOT / 'tests/rewrite/include'}"],
                          cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    sources = [out / f"{name}.c" for name in names]
    return compiled(names[0], *sources, flags=(f"-I{folder}",)), done.stdout


def run(program: Path, *args: str, seed: int = 1) -> subprocess.CompletedProcess:
    env = os.environ | {"GPUALLOC_MPI_RANKS": RANKS, "GPUALLOC_MPI_SEED": str(seed)}
    return subprocess.run([program, *args], env=env, capture_output=True, text=True, timeout=100)


class Programs(unittest.TestCase):
    """Programs with the output of MPICH."""

    def check(self, *names: str) -> str:
        program, report = ported(*names)
        self.assertNotIn("not ported", report)
        expected = sorted((HERE / f"{names[0]}.out").read_text().splitlines())
        for seed in SEEDS:
            done = run(program, "6", seed=seed)
            self.assertEqual((0, ""), (done.returncode, done.stderr), seed)
            self.assertEqual(expected, sorted(done.stdout.splitlines()), seed)
        return report

    def test_messages(self) -> None:
        self.check("messages")

    def test_collectives(self) -> None:
        report = self.check("collectives")
        self.assertEqual(8, report.count("uniform and equal: coalesce"), report)

    def test_variables(self) -> None:
        self.check("variables", "variables_other")

    def test_library(self) -> None:
        self.check("library")

    def test_traps(self) -> None:
        self.check("traps")


class Example(unittest.TestCase):
    """examples/mpi does as its page says."""

    def test_heat(self) -> None:
        folder = ROOT / "examples/mpi"
        page = " ".join((folder / "README.md").read_text().split())
        program, report = ported("heat", folder=folder)
        for line in report.splitlines():
            self.assertIn(line, page)
        self.assertEqual(3, len(report.splitlines()))
        done = run(program)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual(2, page.count(done.stdout.strip()), done.stdout)


class Ends(unittest.TestCase):
    """Programs that end early, and their exit statuses."""

    def test_early(self) -> None:
        program, _ = ported("ends")
        for how, status, part in (
                ("exit", 4, "rank 3: exit with status 4"),
                ("abort", 5, "rank 3: MPI_Abort with status 5"),
                ("truncate", 1, "rank 3: MPI_Recv: the buffer is too small for a message of "
                                "bytes: 16"),
                ("rank", 1, "rank 3: MPI_Send: expected a rank of the program, not 1000")):
            with self.subTest(how):
                done = run(program, how)
                self.assertEqual((status, ""), (done.returncode, done.stderr))
                self.assertIn(f"now: {how}\n", done.stdout)
                self.assertIn(part, done.stdout)
                self.assertNotIn("never", done.stdout)

    def test_after_finalize(self) -> None:
        program, _ = ported("finished")
        self.assertEqual(7, run(program).returncode)


class NotPorted(unittest.TestCase):
    """Parts that the port reports and leaves as they are."""

    def test_report(self) -> None:
        source = Path(FOLDER.name) / "left.c"
        source.write_text("""#include <mpi.h>
#include <stdlib.h>
static int number, *pointer = &number;
static struct { int x; } unnamed;
static const struct { const char *name; int *where; } options[] = {{"n", &number}};
static int twice;
static int twice = 5;
static _Alignas(64) int aligned;
#define SEVEN = 7
static int seven SEVEN;
#define DECLARE(name) static int name
DECLARE(hidden);
int main(int argc, char **argv)
{
    int n = argc;
    double varies[n];
    varies[0] = number + unnamed.x + hidden + *pointer;
    return getenv("HOME") && varies[0] > sizeof 'a' ? twice + aligned : seven + *options[0].where;
}
""")
        done = subprocess.run([os.environ["GPUALLOC_REWRITE"], "--port", "--dry-run", source.name,
                               "--", f"-I{ROOT / 'tests/rewrite/include'}"], cwd=FOLDER.name,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(3, done.returncode, done.stderr)
        self.assertEqual(
            ["left.c:3:21: not ported: each rank needs its own pointer, but its declaration has "
             "another variable, or a name of its function",
             "left.c:4:26: not ported: each rank needs its own unnamed, but its type has no name",
             "left.c:5:55: not ported: options is for all ranks, but has number, which is each "
             "rank's",
             "left.c:6:12: not ported: each rank needs its own twice, but it is declared before "
             "its definition",
             "left.c:8:25: not ported: each rank needs its own aligned, but it has an alignment of "
             "its own",
             "left.c:10:12: not ported: each rank needs its own seven, but a macro has its initial "
             "value",
             "left.c:12:1: not ported: a macro declares hidden",
             "left.c:16:12: not ported: varies has a variable length, which CUDA does not have",
             "left.c:18:12: not ported: getenv(), which main() calls, has no version for kernels",
             "left.c:18:42: not ported: C++ has another type, and so another size, for this"],
            done.stdout.splitlines())

    def test_usage(self) -> None:
        done = subprocess.run([os.environ["GPUALLOC_REWRITE"], "--port", "--for=cuda", "a.cu"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(2, done.returncode)
        self.assertIn("--port: expected --for=mpi", done.stderr)


class Checked(unittest.TestCase):
    """GA_COALESCE_CHECKED reports wrong collective requests, and the program goes on."""

    def test_wrong(self) -> None:
        source = HERE / "wrong.c"
        lines = source.read_text().splitlines()
        program = compiled("wrong", source, flags=("-DGA_COALESCE_CHECKED=0.5",))
        for how, sites in (("", []), ("missing", ["rank != 3"]), ("sizes", ["? 40 : 32"]),
                           ("places", ["(rank == 3)", "} else {"]),
                           ("reduce", ["rank != 40"])):
            with self.subTest(how):
                done = run(program, how)
                self.assertEqual((0, ""), (done.returncode, done.stderr))
                found = {int(line.split(":")[2]) for line in done.stdout.splitlines()}
                expected = set()
                for site in sites:
                    at = next(i for i, line in enumerate(lines, 1) if site in line)
                    expected.add(at if "malloc" in lines[at - 1] or "Allreduce" in lines[at - 1]
                                 else at + 1)
                self.assertEqual(expected, found, done.stdout)
                for line in done.stdout.splitlines():
                    self.assertIn("no longer collective", line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
