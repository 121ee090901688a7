# SPDX-License-Identifier: MIT
"""Shared by the tests of the command: running it, and counting as scripts/count-tests reads it.

GPUALLOC_BIN is the command to test. GPUALLOC_SANITIZED is set if it is built with a
sanitizer: the preload then needs the sanitizer's runtime, which the programs of these tests
do not have, and an empty library takes its place. The preload itself is not tested then.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BINARY = os.environ["GPUALLOC_BIN"]
SANITIZED = bool(os.environ.get("GPUALLOC_SANITIZED"))
COMMANDS = ("run", "env", "compare", "bench", "trace", "replay", "rewrite", "list",
            "check", "help")
# Those that run here: `rewrite` needs Clang's development files.
PRESENT = [name for name in COMMANDS if name != "rewrite" or os.environ.get("GPUALLOC_REWRITE")]
REPO = Path(__file__).resolve().parents[2]
PRELOAD = "libgpualloc-malloc.so"
ALIGN_PRELOAD = "libgpualloc-align.so"
CUDA_PRELOAD = "libgpualloc-cuda.so"


def empty_preload() -> str:
    """A folder with libraries of the preloads' names, which have nothing but a version."""
    folder = tempfile.mkdtemp(prefix="gpualloc-preload-")
    atexit.register(shutil.rmtree, folder)
    for name in (PRELOAD, ALIGN_PRELOAD, CUDA_PRELOAD):
        subprocess.run(["cc", "-shared", "-I", REPO / "liballoc/include", "-include",
                        REPO / "interpose/version_note.h", "-o", f"{folder}/{name}", "-x", "c",
                        "/dev/null"], check=True)
    return folder


CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith("GPUALLOC_") and name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
SETTINGS = {"GPUALLOC_PRELOAD_DIR": empty_preload()} if SANITIZED else {}


class Answer:
    """The result of the command: its status, negative for a signal, and its output."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.status = done.returncode
        self.out = done.stdout.decode(errors="replace") if done.stdout is not None else ""
        self.err = done.stderr.decode(errors="replace")


class CommandTest(unittest.TestCase):
    """A test with a folder of its own, in which the command runs."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="gpualloc-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def gpualloc(self, *args: object, env: dict[str, str] | None = None,
                 **more: object) -> Answer:
        settings: dict = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                          "cwd": self.folder, "timeout": 120, "stdin": subprocess.DEVNULL}
        return Answer(subprocess.run([BINARY, *map(str, args)], env=CLEAN | SETTINGS | (env or {}),
                                     **(settings | more)))

    def refused(self, answer: Answer, status: int, *parts: str) -> None:
        """One clear message: a line, with an offer of help at most, and nothing written."""
        lines = answer.err.split("\nTry `")[0].splitlines() # the offer may take two lines
        self.assertEqual((status, ""), (answer.status, answer.out), answer.err)
        self.assertEqual(1, len(lines), answer.err)
        self.assertRegex(lines[0], rf"^gpualloc( [a-z-]+)*: (?!({'|'.join(COMMANDS)})\\b.*:)")
        for part in parts:
            self.assertIn(part, lines[0])


class RunTest(CommandTest):
    def run_shell(self, script: str, *options: object, **more: object) -> Answer:
        return self.gpualloc("run", *options, "--", "/bin/sh", "-c", script, **more)

    def variable(self, name: str, *options: object, env: dict[str, str] | None = None) -> str:
        answer = self.run_shell(f'printf %s "${{{name}-unset}}"', *options, env=env)
        self.assertEqual((0, ""), (answer.status, answer.err))
        return answer.out

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def make(self, name: str, content: str | bytes, mode: int) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path


def options_in_help(text: str) -> set[str]:
    return set(re.findall(r"^ +(?:-., )?(--[a-z-]+)", text, re.MULTILINE))


def main() -> None:
    """Run the tests of the file that calls this."""
    program = unittest.main(exit=False, verbosity=1)
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", file=sys.stderr)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped", file=sys.stderr)
    sys.exit(1 if failed else 0)
