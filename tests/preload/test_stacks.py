#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Call stacks in traces: programs with functions of known names run under the preload, and
`gpualloc trace` names these functions and their lines.

usage: test_stacks.py
"""

import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path
from typing import NamedTuple

import support

COMMAND = os.environ["GA_COMMAND"]
SOURCE = Path(os.environ["GA_SOURCE"]) / "tests" / "preload"
ADDR2LINE = shutil.which("addr2line")
SYMBOLIZERS = ["none", *filter(None, (ADDR2LINE, shutil.which("llvm-symbolizer")))]


def line_of(name: str, source: str = "stacks.c") -> int:
    """The line with the comment "line: NAME"."""
    for number, line in enumerate((SOURCE / source).read_text().splitlines(), 1):
        if f"/* line: {name} */" in line:
            return number
    raise KeyError(name)


class Leak(NamedTuple):
    size: int
    blocks: int
    frames: list[str]

    def functions(self) -> list[str]:
        return [re.sub(r" (at|in) .*", "", frame) for frame in self.frames]


class StacksTest(support.Case):
    def record(self, program: str, *arguments: str, depth: int = 16, preload: bool = True,
               host: str = "system", status: int = 0) -> Path:
        path = self.folder / "t"
        outcome = support.run(program, *arguments, preload=preload, environment={
            "GPUALLOC_HOST": host, "GPUALLOC_TRACE": str(path),
            "GPUALLOC_TRACE_STACKS": str(depth)})
        self.assertEqual((outcome.status, outcome.stderr), (status, ""))
        self.stdout = outcome.stdout
        return path

    def show(self, path: Path, *options: str) -> str:
        done = subprocess.run([COMMAND, "trace", *options, str(path)], env=support.CLEAN,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def leaks(self, path: Path, *options: str) -> list[Leak]:
        """The groups, after a check of the line above them."""
        head, *groups = self.show(path, "--leaks", *options).split("\n\n")
        found = []
        for group in groups:
            first, *frames = group.rstrip("\n").split("\n")
            size, blocks = re.fullmatch(r"(\d+) bytes? in (\d+) blocks?", first).groups()
            found.append(Leak(int(size), int(blocks), [frame.strip() for frame in frames]))
        size, blocks, count = re.fullmatch(
            r"never freed: (\d+) bytes? in (\d+) blocks?, from (\d+) call stacks?",
            head.rstrip("\n")).groups()
        self.assertEqual((int(size), int(blocks), int(count)),
                         (sum(leak.size for leak in found), sum(leak.blocks for leak in found),
                          len(found)))
        self.assertEqual(found, sorted(found, key=lambda leak: -leak.size))
        return found

    def leak_of(self, leaks: list[Leak], *functions: str) -> Leak:
        """The one whose innermost functions are these."""
        found = [leak for leak in leaks if leak.functions()[:len(functions)] == list(functions)]
        self.assertEqual(len(found), 1, f"{functions} among {leaks}")
        return found[0]

    def folded(self, path: Path, figure: str) -> dict[str, int]:
        lines = self.show(path, f"--folded={figure}").splitlines()
        found = {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}
        self.assertEqual(len(lines), len(found), "two lines for a stack")
        return found


class Leaks(StacksTest):
    def expect(self, program: str, lines: bool, **options: object) -> None:
        path = self.record(program, **options)
        for symbolizer in SYMBOLIZERS:
            with self.subTest(symbolizer):
                leaks = self.leaks(path, f"--symbolizer={symbolizer}")
                first = self.leak_of(leaks, "leak_first", "leaks")
                self.assertEqual((first.size, first.blocks), (10_000, 10))
                second = self.leak_of(leaks, "leak_second", "leaks")
                self.assertEqual((second.size, second.blocks), (72, 3))
                resized = self.leak_of(leaks, "leak_resized", "leaks")
                self.assertEqual((resized.size, resized.blocks), (5000, 1))
                self.assertFalse([leak for leak in leaks if "balanced" in leak.functions()])
                for name in ("leak_first", "leak_second", "leak_resized"):
                    frame = self.leak_of(leaks, name).frames[0]
                    line = f"/stacks.c:{line_of(name)}"
                    self.assertEqual(lines and symbolizer != "none", frame.endswith(line), frame)

    def test_functions_and_lines(self) -> None:
        self.expect("stacks", True)

    def test_every_host(self) -> None:
        for host in ("jemalloc", "slab/vmm", "hazard/system"):
            with self.subTest(host):
                self.expect("stacks", True, host=host)
                (self.folder / "t").unlink()

    def test_without_debug_information(self) -> None:
        self.expect("stacks_plain", False)

    @unittest.skipUnless((support.PROGRAMS / "stacks_linked").exists(), "built without jemalloc")
    def test_linked_archive(self) -> None:
        """gpualloc's own functions are in the program, and left out by their names."""
        path = self.record("stacks_linked", preload=False)
        for symbolizer in SYMBOLIZERS:
            leaks = self.leaks(path, f"--symbolizer={symbolizer}")
            self.assertEqual(self.leak_of(leaks, "leak_first", "leaks").size, 10_000)

    def test_stripped(self) -> None:
        strip = shutil.which("strip")
        if not strip:
            self.skipTest("there is no strip")
        program = self.folder / "stripped"
        subprocess.run([strip, "-o", str(program), str(support.PROGRAMS / "stacks")], check=True)
        leaks = self.leaks(self.record(str(program)))
        first = next(leak for leak in leaks if leak.size == 10_000)
        self.assertRegex(first.frames[0], r"^stripped\+0x[0-9a-f]+$")

    def test_program_that_has_changed(self) -> None:
        """No names from another file than the one that ran."""
        program = self.folder / "program"
        shutil.copy(support.PROGRAMS / "stacks", program)
        path = self.record(str(program))
        shutil.copy(support.PROGRAMS / "stacks_plain", self.folder / "other")
        os.replace(self.folder / "other", program)
        done = subprocess.run([COMMAND, "trace", "--leaks", str(path)], env=support.CLEAN,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr.count("has changed since the trace")),
                         (0, 1), done.stderr)
        self.assertIn("program+0x", done.stdout)
        self.assertNotIn("leak_first", done.stdout)

    def test_names_of_cpp(self) -> None:
        path = self.record("stacks_names")
        for symbolizer in SYMBOLIZERS:
            leaks = self.leaks(path, f"--symbolizer={symbolizer}")
            made = next(leak for leak in leaks if leak.size == 400)
            self.assertTrue(any(name.startswith("area::Maker<int>::make(")
                                for name in made.functions()), made)

    def test_callers_in_turns(self) -> None:
        """Stacks that differ in an outer function alone, one after the other."""
        blocks = self.folded(self.record("stacks", "turns"), "blocks")
        for name in ("by_left", "by_right"):
            found = [count for stack, count in blocks.items()
                     if stack.endswith(f";{name};leak_first")]
            self.assertEqual(found, [500])


class Folded(StacksTest):
    def test_sums(self) -> None:
        """Each figure adds up to that of the summary."""
        path = self.record("stacks")
        summary = self.show(path)
        for figure, pattern in (("bytes", r"requested +(\d+) bytes"),
                                ("peak", r"peak live +(\d+) bytes"),
                                ("leaks", r"never freed +(\d+) bytes")):
            total = int(re.search(pattern, summary).group(1))
            self.assertEqual(sum(self.folded(path, figure).values()), total, figure)
        requests = sum(int(count) for count in re.findall(r"(?:alloc|zeroed|realloc) +(\d+)\n",
                                                          summary))
        self.assertEqual(sum(self.folded(path, "blocks").values()), requests)

    def test_stacks(self) -> None:
        path = self.record("stacks")
        found = [stack for stack in self.folded(path, "bytes")
                 if stack.endswith(";main;leaks;leak_first")]
        self.assertEqual(len(found), 1)
        self.assertEqual(self.folded(path, "bytes")[found[0]], 10_010)
        self.assertEqual(self.folded(path, "leaks")[found[0]], 10_000)
        self.assertEqual(self.folded(path, "blocks")[found[0]], 11)

    def test_depth(self) -> None:
        """The inner functions of a deep stack, and a mark that there are more."""
        for depth in (1, 8, 128):
            with self.subTest(depth):
                path = self.record("stacks", "deep", "200", depth=depth)
                found = [stack for stack in self.folded(path, "leaks") if stack.endswith(";deep")]
                self.assertEqual(found, [";".join(["[further functions]", *["deep"] * depth])])
                path.unlink()

    def test_whole_stack(self) -> None:
        path = self.record("stacks", "deep", "20", depth=64)
        found, = [stack for stack in self.folded(path, "leaks") if stack.endswith(";deep")]
        names = found.split(";")
        self.assertEqual(names.count("deep"), 21)
        self.assertNotIn("[further functions]", names)
        self.assertEqual(names[names.index("deep") - 1], "main")

    def test_top(self) -> None:
        text = self.show(self.record("stacks"), "--top=2")
        lists = text.split("\n\n")
        self.assertEqual([part.split(":")[0] for part in lists],
                         ["live at the peak", "requested, by bytes", "requested, by blocks"])
        self.assertEqual([len(part.splitlines()) for part in lists], [3, 3, 3])
        self.assertIn(" balanced at ", lists[1].splitlines()[1])
        self.assertRegex(lists[2].splitlines()[1], r" 100000 bytes +1000 blocks +balanced at ")


class Moments(StacksTest):
    def test_threads(self) -> None:
        blocks = self.folded(self.record("stacks", "threads", "16"), "blocks")
        found = [count for stack, count in blocks.items() if stack.endswith(";thread_leak")]
        self.assertEqual(sum(found), 16 * 200)
        self.assertEqual(len(found), 1)

    def test_signal(self) -> None:
        leaks = self.leaks(self.record("stacks", "signal"))
        leak = self.leak_of(leaks, "leak_first", "on_signal")
        self.assertEqual(leak.size, 77)
        self.assertIn("signalled", leak.functions())

    def test_exit_in_a_thread(self) -> None:
        leak = self.leak_of(self.leaks(self.record("stacks", "exit")), "leak_first")
        self.assertEqual(leak.functions()[:2], ["leak_first", "ends_process"])

    def test_fork(self) -> None:
        """The child's file defines the child's stacks, and modules."""
        path = self.record("stacks", "fork")
        child, = self.folder.glob("t.*")
        parents = self.leaks(path)
        of_parent = [leak for leak in parents if leak.functions()[1] == "parent_leak"]
        self.assertEqual(sorted(leak.frames[2].rsplit(":")[-1] for leak in of_parent if ADDR2LINE),
                         [str(line_of(name)) for name in ("before", "behind") if ADDR2LINE])
        self.assertEqual(sum(leak.size for leak in of_parent), 444)
        self.assertFalse([leak for leak in parents if "child_leak" in leak.functions()])
        leak = self.leak_of(self.leaks(child), "leak_first", "child_leak")
        self.assertEqual((leak.size, leak.functions()[2:4]), (111, ["forks", "main"]))

    def test_killed(self) -> None:
        """All but the last records, and no stack is missing."""
        path = self.record("stacks", "kill", status=-9)
        blocks = self.folded(path, "blocks")
        self.assertGreaterEqual(sum(blocks.values()), 5000 - 127)
        self.assertFalse([stack for stack in blocks if "not in the trace" in stack])

    def test_library_in_the_place_of_another(self) -> None:
        """The frames of each are named by the one that was loaded then."""
        one, two = (str(support.PROGRAMS / f"stacks_{name}.so") for name in ("one", "two"))
        leaks = self.leaks(self.record("stacks", "libraries", one, two, one))
        if len(set(self.stdout.split())) != 1:
            self.skipTest("the loader did not use the addresses again")
        self.assertEqual(self.leak_of(leaks, "of_one", "leak", "libraries").blocks, 10)
        self.assertEqual(self.leak_of(leaks, "of_two", "leak", "libraries").blocks, 5)


class Heaps(StacksTest):
    def expect(self, program: str) -> None:
        path = self.folder / "t"
        outcome = support.run(program, str(path), preload=False)
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))
        leak, = self.leaks(path)
        self.assertEqual((leak.size, leak.functions()[:2]), (640, ["use_heap", "main"]))
        self.assertTrue(leak.frames[0].endswith(f":{line_of('use_heap', 'stacks_heap.c')}"))

    @unittest.skipUnless(ADDR2LINE, "there is no addr2line")
    def test_shared_library(self) -> None:
        self.expect("stacks_heap")

    @unittest.skipUnless(ADDR2LINE, "there is no addr2line")
    def test_static_library(self) -> None:
        self.expect("stacks_heap_static")


class Settings(StacksTest):
    def test_bad_depths(self) -> None:
        """The program runs without a trace, and one line names the value."""
        for depth in ("129", "x", "-1", "1.5"):
            outcome = support.run("stacks", environment={
                "GPUALLOC_HOST": "system", "GPUALLOC_TRACE": str(self.folder / "t"),
                "GPUALLOC_TRACE_STACKS": depth})
            self.assertEqual((outcome.status, outcome.stderr.count("\n")), (0, 1), outcome.stderr)
            self.assertIn("GPUALLOC_TRACE_STACKS: trace: stacks: expected", outcome.stderr)
            self.assertIn(f'"{depth}"', outcome.stderr)

    def test_none(self) -> None:
        path = self.record("stacks", depth=0)
        done = subprocess.run([COMMAND, "trace", "--leaks", str(path)], env=support.CLEAN,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the trace has no call stacks", done.stderr)


if __name__ == "__main__":
    support.main()
