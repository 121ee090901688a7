# SPDX-License-Identifier: MIT
"""`gpualloc rewrite`: pairs of files, verdicts that comments state, and input that it refuses.

GPUALLOC_REWRITE is the program, and CLANG the compiler that says if its output is C++."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
REACH = HERE.parent.parent / "bench/rewrite/reach.py"
PROGRAM = os.environ["GPUALLOC_REWRITE"]
CLANG = os.environ["CLANG"]
FLAGS = [f"-I{HERE / 'include'}"]
AS_REWRITTEN = ["-x", "c++", "-fpermissive", "-include", str(HERE / "include/rewritten.h"), *FLAGS]
PAIRS = sorted(path.stem for path in (HERE / "pairs").glob("*.c"))


class RewriteTest(unittest.TestCase):
    """A test with a folder of its own, which is the project."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-rewrite-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def rewrite(self, *args: object, flags: list[str] = FLAGS) -> subprocess.CompletedProcess:
        return subprocess.run([PROGRAM, *map(str, args), "--", *flags], cwd=self.folder,
                              capture_output=True, text=True, timeout=60)

    def accepted(self, *args: object, flags: list[str] = FLAGS) -> str:
        done = self.rewrite(*args, flags=flags)
        self.assertEqual((0, ""), (done.returncode, errors(done.stderr)), args)
        return done.stdout

    def refused(self, status: int, part: str, *args: object) -> None:
        before = self.contents()
        done = self.rewrite(*args)
        self.assertEqual(status, done.returncode, done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(before, self.contents())

    def contents(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in sorted(self.folder.rglob("*"))
                if path.is_file()}

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


def errors(text: str) -> str:
    """Diagnostics of Clang that are no warnings."""
    return "\n".join(line for line in text.splitlines() if "error" in line)


class Pairs(RewriteTest):
    """pairs/NAME.c gives pairs/NAME.c.rewritten, and a header NAME.h likewise."""

    def copy(self, name: str) -> list[Path]:
        return [Path(shutil.copy(path, self.folder))
                for path in (HERE / "pairs").glob(name + ".[ch]")]

    def test_text(self) -> None:
        for name in PAIRS:
            with self.subTest(name):
                self.copy(name)
                self.accepted("--in-place", f"{name}.c")
                for path in (HERE / "pairs").glob(name + ".[ch].rewritten"):
                    now = (self.folder / path.stem).read_text()
                    if os.environ.get("UPDATE_PAIRS"):
                        path.write_text(now)
                    self.assertEqual(path.read_text(), now)

    def test_out_leaves_the_sources_alone(self) -> None:
        self.copy("listing1")
        self.accepted("--out=made", "listing1.c")
        self.assertEqual((HERE / "pairs/listing1.c").read_text(),
                         (self.folder / "listing1.c").read_text())
        self.assertEqual((HERE / "pairs/listing1.c.rewritten").read_text(),
                         (self.folder / "made/listing1.c").read_text())

    def test_result_compiles_and_stays(self) -> None:
        for name in PAIRS:
            with self.subTest(name):
                self.copy(name)
                self.accepted("--in-place", f"{name}.c")
                # A definition in the style before ANSI C is no C++.
                self.file(f"{name}.c", (self.folder / f"{name}.c").read_text()
                          .replace("old(n)\nint n;\n", "old(int n)\n"))
                subprocess.run([CLANG, "-fsyntax-only", "-w", *AS_REWRITTEN, f"{name}.c"],
                               cwd=self.folder, check=True)
                before = self.contents()
                self.accepted("--in-place", f"{name}.c", flags=AS_REWRITTEN)
                self.assertEqual(before, self.contents())

    def test_grades_of_the_paper(self) -> None:
        for grade in ("pattern", "callgraph"):
            self.copy("listing1")
            self.accepted(f"--grade={grade}", "--in-place", "listing1.c")
            self.assertEqual((HERE / "pairs/listing1.c.rewritten").read_text(),
                             (self.folder / "listing1.c").read_text())


class Verdicts(RewriteTest):
    """In sound/NAME.c a comment after each allocation has its verdict. The first comment may name
    the other files of the program (Files:) and the compiler's flags (Flags:)."""

    def listed(self, what: str, path: Path) -> list[str]:
        found = re.search(rf"\b{what}:([^*]*)\n", path.read_text())
        return found[1].split() if found else []

    def test_all(self) -> None:
        words = {"together": "uniform and equal", "sizes differ": "uniform, sizes differ"}
        shutil.copytree(HERE / "sound", self.folder, dirs_exist_ok=True)
        for path in sorted(self.folder.glob("*.c")):
            with self.subTest(path.name):
                expected = {}
                names = [path.name, *self.listed("Files", path)]
                for name in names:
                    lines = (self.folder / name).read_text().splitlines()
                    for number, line in enumerate(lines, 1):
                        found = re.search(r"/\* (together|sizes differ|divergent|unknown)\b", line)
                        if found:
                            expected[name, number] = words.get(found[1], found[1])
                flags = ["-Wno-implicit-function-declaration", *self.listed("Flags", path)]
                answer = json.loads(self.accepted("--format=json", *names, flags=flags))
                verdicts = {(str(Path(one["file"]).relative_to(self.folder)), one["line"]):
                            one["verdict"] for one in answer["allocations"]}
                self.assertEqual(expected, verdicts)


class Output(RewriteTest):
    def test_text_has_the_reason(self) -> None:
        self.file("a.c", '#include <mpi.h>\n#include <stdlib.h>\nint main(void)\n{\n  int r;\n'
                         '  MPI_Comm_rank(MPI_COMM_WORLD, &r);\n  if (r)\n    malloc(4);\n}\n')
        self.assertRegex(self.accepted("a.c"),
                         r"^a\.c:8:5: malloc in main\(\): divergent because of a\.c:7:7 \(.*\), "
                         r"from a\.c:6:33 \(MPI_Comm_rank\(\) .*\)\n$")

    def test_long_reasons_lack_their_middle(self) -> None:
        chain = "".join(f"static void f{i}(int n) {{ malloc(n); {f'f{i - 1}(n);' if i else ''} }}\n"
                        for i in range(50))
        self.file("a.c", f'#include <mpi.h>\n#include <stdlib.h>\n{chain}int main(void)\n{{\n'
                         "  int r;\n  MPI_Comm_rank(MPI_COMM_WORLD, &r);\n  f49(r);\n}\n")
        answer = json.loads(self.accepted("--format=json", "a.c"))
        lengths = [len(one["causes"]) for one in answer["allocations"]]
        self.assertEqual([32] * 19, lengths[:19])
        self.assertEqual(list(range(32, 1, -1)), lengths[19:])
        for causes in (one["causes"] for one in answer["allocations"]):
            self.assertIn("MPI_Comm_rank()", causes[-1]["text"])
        lines = self.accepted("a.c").splitlines()
        self.assertRegex(lines[0], r"f1\(\) is by all .*, from \.\.\., from a\.c:\d+:\d+ \(MPI_C")
        self.assertNotIn("...", lines[20])

    def test_places_that_cannot_be_edited(self) -> None:
        shutil.copy(HERE / "pairs/spelling.c", self.folder)
        lines = (self.folder / "spelling.c").read_text().splitlines()
        places = [number for number, line in enumerate(lines, 1)
                  if re.search(r"n > 1 \? exit|LEAVE 7|return BOTH", line)]
        text = self.accepted("spelling.c")
        for line, why in zip(places, ("it is within an expression", "it is in a macro",
                                      "it is in a macro"), strict=True):
            self.assertRegex(text, rf"(?m)^spelling\.c:{line}:\d+: cannot be edited: "
                             rf"clean_malloc\(\) cannot come before it: {why}$")
        answer = json.loads(self.accepted("--format=json", "spelling.c"))
        self.assertEqual(places, [one["line"] for one in answer["not_edited"]])

    def test_port_leaves_macros(self) -> None:
        path = self.file("a.c", """#include <mpi.h>
#define MAIN   main
#define ADD(x) (x + g)
int g = 1, h;
static int
#ifdef NOTHING
    k = 1;
#else
    k = 2;
#endif
int other(int g) { return ADD(1); }
int MAIN(int argc, char **argv)
{
    h = ADD(2);
    return k;
}
""")
        done = self.rewrite("--port", "--in-place", "a.c")
        self.assertEqual(3, done.returncode, done.stderr)
        for part in ("a.c:9:5: not ported: each rank needs its own k, but a directive is in it",
                     "a.c:12:5: not ported: main() needs another name, but it is in a macro",
                     "a.c:14:9: not ported: a macro names g, which is each rank's, and elsewhere "
                     "another variable"):
            self.assertIn(part + "\n", done.stdout)
        text = path.read_text()
        self.assertIn("int MAIN(int argc", text)
        self.assertIn("#define ADD(x) (x + g)\n", text)
        self.assertIn("h.own() = ADD(2);\n", text)

    def test_fixits(self) -> None:
        path = self.file("a.c", "#include <stdlib.h>\nint main(void) { malloc(4); return 0; }\n")
        self.assertIn(f'fix-it:"{path}":{{2:26-2:26}}:", true"\n',
                      self.accepted("--format=fixits", "a.c"))

    def test_several_files(self) -> None:
        self.file("f.h", "#include <stdlib.h>\nvoid f(int n);\n")
        self.file("f.c", '#include "f.h"\nvoid f(int n) { malloc(n); }\n')
        self.file("main.c", '#include "f.h"\nint main(void) { f(4); }\n')
        self.accepted("--in-place", "main.c", "f.c")
        self.assertIn("void f(int n, bool coalesce = false);", (self.folder / "f.h").read_text())
        self.assertIn("void f(int n, bool coalesce) { malloc(n, coalesce); }",
                      (self.folder / "f.c").read_text())
        self.assertIn("f(4, true);", (self.folder / "main.c").read_text())

    def test_registered_functions(self) -> None:
        self.file("list", "# of our library\ngather\n")
        self.file("a.c", "void gather(int n);\nint main(void) { gather(3); }\n")
        self.assertIn("gather in main(): uniform and equal: true",
                      self.accepted("--library=list", "a.c"))

    CUDA = ("#define __global__ __attribute__((global))\n"
            "#define __device__ __attribute__((device))\n"
            "struct index { unsigned x, y, z; };\n"
            "extern const __device__ index threadIdx, blockIdx, blockDim;\n"
            'extern "C" __device__ void *malloc(unsigned long);\n'
            "__device__ int __syncthreads_count(int);\n"
            "__device__ void __syncthreads();\n__device__ void __syncwarp();\n"
            "__device__ int atomicCAS(int *, int, int), atomicExch(int *, int);\n")
    AS_CUDA = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-include", "cuda.h"]

    def kernel(self, body: str, before: str = "") -> list[str]:
        """The verdicts on the allocations of a kernel, in their order."""
        self.file("cuda.h", self.CUDA)
        self.file("k.cu", f"{before}\n__global__ void k(int n, int *lock) {{ {body} }}\n")
        answer = json.loads(self.accepted("--for=cuda", "--format=json", "k.cu",
                                          flags=self.AS_CUDA))
        return [one["verdict"] for one in answer["allocations"]]

    def test_kernels_that_wait(self) -> None:
        for body in ("while (atomicCAS(lock, 0, 1)) {} malloc(8); atomicExch(lock, 0);",
                     "if (threadIdx.x) { __syncwarp(); } malloc(8);"
                     " if (!threadIdx.x) __syncwarp();",
                     "volatile int *f = lock; if (!threadIdx.x) { while (*f) {} } malloc(8);"
                     " if (threadIdx.x) *f = 0;",
                     # The end of a thread, or another call, ends the wait of the others.
                     "if (threadIdx.x) { __syncthreads(); } malloc(8);",
                     "if (threadIdx.x) { __syncthreads(); } malloc(8); __syncthreads();",
                     "int m = threadIdx.x ? __syncthreads_count(n) : 0; __syncthreads();"
                     " m = __syncthreads_count(n); malloc(m);"):
            self.assertEqual(["unknown"], self.kernel(body), body)
        for body in ("__syncthreads(); malloc(8); if (threadIdx.x) __syncwarp();",
                     "malloc(__syncthreads_count(n) & 63); __syncthreads();"):
            self.assertEqual(["uniform and equal"], self.kernel(body), body)

    def test_null_in_kernels(self) -> None:
        together = "uniform and equal"
        for body in ("void *p = malloc(8); if (!p) return; malloc(4);",
                     "if (void *p = malloc(8)) malloc(4);",
                     "int *p = (int *)malloc(8); int m = p == nullptr ? 4 : 8; malloc(m);"):
            self.assertEqual([together] * 2, self.kernel(body), body)
        for body in ("void *p = 0; if (threadIdx.x) p = malloc(8); if (!p) return; malloc(4);",
                     "void *p = malloc(threadIdx.x); if (!p) return; malloc(4);",
                     "void *p = malloc(8); if (threadIdx.x) p = 0; if (!p) return; malloc(4);",
                     "void *p = malloc(8); void *&q = p; if (!q) return; malloc(4);"):
            self.assertNotEqual(together, self.kernel(body)[-1], body)

    def test_objects_of_kernels(self) -> None:
        together = "uniform and equal"
        pair = "struct pair { int x, y; }; struct made { int n = threadIdx.x; };"
        for body in ("pair a; a.x = threadIdx.x; pair b = a; malloc(b.x);",
                     "index t = threadIdx; malloc(t.x);", "made y; malloc(y.n);",
                     "made y{}; malloc(y.n);", "float f = threadIdx.x; "
                     "malloc(__builtin_bit_cast(int, f) & 63);"):
            self.assertNotIn(together, self.kernel(body, pair), body)
        self.assertEqual([together], self.kernel("malloc(n + blockIdx.x);"))
        self.assertNotIn(together, self.kernel(
            "make();", "__device__ void make(int m = threadIdx.x) { malloc(m); }"))

    def test_templates_of_kernels_stay(self) -> None:
        self.file("cuda.h", self.CUDA)
        text = ("template <bool All> __global__ void k() { if (All || !threadIdx.x) malloc(8); }\n"
                "template __global__ void k<true>(); template __global__ void k<false>();\n")
        self.file("k.cu", text)
        self.accepted("--for=cuda", "--in-place", "k.cu", flags=self.AS_CUDA)
        self.assertEqual(text, (self.folder / "k.cu").read_text())

    def test_default_arguments_stay(self) -> None:
        before = "__device__ void make(int a = 3) { malloc(a); }"
        self.kernel("make(); make(4);", before)
        self.accepted("--for=cuda", "--in-place", "k.cu", flags=self.AS_CUDA)
        self.assertIn("make(); make(4, true);", (self.folder / "k.cu").read_text())

    def test_kernels(self) -> None:
        self.file("cuda.h", self.CUDA)
        self.file("a.cu", "__device__ int *make(int n) { return (int *)malloc(n); }\n"
                          "__global__ void kernel(int n, int **out) {\n"
                          "  out[threadIdx.x] = make(n + blockIdx.x);\n"
                          "  if (threadIdx.x < 4)\n"
                          "    malloc(4);\n"
                          "}\n")
        text = self.accepted("--for=cuda", "--in-place", "a.cu", flags=self.AS_CUDA)
        self.assertIn("malloc in make(): uniform and equal: coalesce", text)
        self.assertIn("malloc in kernel(): divergent", text)
        self.assertIn("make(n + blockIdx.x, true)", (self.folder / "a.cu").read_text())


class Refusals(RewriteTest):
    def test_options(self) -> None:
        for part, *args in (["--for=fortran: expected one of mpi, cuda", "--for=fortran", "a.c"],
                            ["expected one of flow, callgraph, pattern", "--grade=best", "a.c"],
                            ["expected one of text, json, fixits", "--format=xml", "a.c"],
                            ["give one of them", "--in-place", "--out=x", "a.c"], ["no files"]):
            self.refused(2, part, *args)

    def test_library(self) -> None:
        self.file("a.c", "int main(void) { return 0; }\n")
        self.refused(2, "No such file", "--library=nonesuch", "a.c")
        self.file("list", "two words\n")
        self.refused(2, '"two words": expected a function\'s name', "--library=list", "a.c")

    def test_file_that_does_not_parse(self) -> None:
        self.file("a.c", "#include <stdlib.h>\nint main(void) { malloc(4); }\n")
        self.file("b.c", "int f( {\n")
        self.refused(1, "nothing is written", "--in-place", "a.c", "b.c")
        self.refused(1, "nothing is written", "--in-place", "a.c", "nonesuch.c")

    @unittest.skipIf(os.geteuid() == 0, "root writes to all files")
    def test_file_that_cannot_be_written(self) -> None:
        self.file("f.h", "#include <stdlib.h>\nstatic void f(void) { malloc(4); }\n").chmod(0o444)
        self.file("a.c", '#include "f.h"\nint main(void) { f(); }\n')
        self.refused(1, "cannot be written", "--in-place", "a.c")

    def test_file_outside_of_the_project(self) -> None:
        (self.folder / "project").mkdir()
        header = "#include <stdlib.h>\nstatic void f(int n) { malloc(4); if (n) exit(1); }\n"
        self.file("f.h", header)
        self.file("project/a.c",
                  '#include "../f.h"\nint main(int n, char **v) { f(n); malloc(8); }\n')
        text = self.accepted("--in-place", "--project=project", "project/a.c")
        self.assertIn("its file is not in the project", text)
        self.assertEqual(header, (self.folder / "f.h").read_text())
        self.assertIn("malloc(8, true)", (self.folder / "project/a.c").read_text())

    def test_headers_that_disagree(self) -> None:
        self.file("one.h", "void f(void);\n")
        self.file("two.h", "void f(void);\n")
        self.file("a.c", '#include "one.h"\n#include "two.h"\n#include <stdlib.h>\n'
                         "void f(void) { malloc(4); }\n")
        self.file("b.c", '#include "two.h"\nint main(void) { f(); }\n')
        self.assertIn("first declaration in some files only", self.accepted("a.c", "b.c"))

    def test_two_runs_at_once(self) -> None:
        """Each run writes the whole result, or sees that the file has changed."""
        shutil.copy(HERE / "pairs/listing1.c", self.folder)
        command = [PROGRAM, "--in-place", "listing1.c", "--", *FLAGS]
        runs = [subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for _ in range(4)]
        self.assertIn(0, [run.wait() for run in runs])
        self.assertEqual((HERE / "pairs/listing1.c.rewritten").read_text(),
                         (self.folder / "listing1.c").read_text())
        self.assertEqual(["listing1.c"], [path.name for path in self.folder.iterdir()])


class Reach(RewriteTest):
    """bench/rewrite/reach.py with the programs of the folder reach/."""

    def reach(self, manifest: object, *args: str,
              program: str = PROGRAM) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, str(REACH), program, str(manifest), *args],
                              capture_output=True, text=True, timeout=60)

    def test_table(self) -> None:
        done = self.reach(HERE / "reach/programs", "--reasons=2")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["| part | programs | seen | pattern | callgraph | flow | refuted | "
                          "unproved | beyond |",
                          "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
                          "| plain | 1 | 5 | 3 | 3 | 2 | 1 | 1 | 1 |",
                          "| calls | 2 | 1 | 0 | 1 | 1 | 0 | 0 | 1 |",
                          "| broken | 0 (1) | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
                          "| all | 3 (1) | 6 | 3 | 4 | 3 | 1 | 1 | 2 |"],
                         done.stdout.splitlines()[:6])
        self.assertRegex(done.stdout.splitlines()[6], r"^ +1 .*  \[plain\.c:\d+\]$")
        self.assertEqual(8, len(done.stdout.splitlines()))
        self.assertIn("nonesuch.c", done.stderr)

    def test_part_and_kept_answers(self) -> None:
        kept = self.folder / "kept.json"
        args = ["--part=calls", f"--paper={kept}"]
        first = self.reach(HERE / "reach/programs", *args)
        self.assertEqual(["through.c --", "through_again.c --"],
                         sorted(json.loads(kept.read_text())))
        self.assertEqual(first.stdout, self.reach(HERE / "reach/programs", *args).stdout)
        self.assertNotIn("plain", first.stdout)

    def test_wrong_input(self) -> None:
        empty = self.file("empty", "# nothing\n")
        quote = self.file("quote", "part: 'a.c --\n")
        for part, manifest, args in (("No such file", self.folder / "nonesuch/programs", []),
                                     ("Is a directory", self.folder, []),
                                     ("no line", empty, []), ("No closing quotation", quote, []),
                                     ('part with "x"', HERE / "reach/programs", ["--part=x"])):
            done = self.reach(manifest, *args)
            self.assertEqual((2, ""), (done.returncode, done.stdout), done.stderr)
            self.assertRegex(done.stderr.splitlines()[-1], f"error: .*{part}")
        done = self.reach(HERE / "reach/programs", program=str(self.folder / "nonesuch"))
        self.assertEqual(2, done.returncode)
        self.assertIn("expected gpualloc-rewrite", done.stderr)


def main() -> None:
    result = unittest.main(exit=False).result
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped",
          file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
