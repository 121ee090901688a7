#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The malloc family linked into a program from libgpualloc-malloc.a, with nothing preloaded."""

import json
import os
import shutil
import subprocess
import unittest

import support

ARCHIVE = os.environ["GA_ARCHIVE"]


def names(*command: str) -> set[str]:
    """The names of functions that nm lists."""
    lines = subprocess.run(["nm", "--defined-only", *command], check=True, text=True,
                           capture_output=True).stdout.splitlines()
    return {line.split()[2] for line in lines if len(line.split()) == 3}


class Linked(support.Case):

    def served(self, program: str, stdout: str, host: str) -> None:
        path = self.folder / "stats.json"
        path.unlink(missing_ok=True)
        outcome = support.run(program, preload=False, environment={
            "GPUALLOC_HOST": host, "GPUALLOC_STATS": str(path)})
        self.assertEqual((outcome.status, outcome.stdout), (0, stdout), outcome.stderr)
        reports = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertTrue(reports[-1]["spec"].startswith(host))
        self.assertGreater(reports[-1]["allocs"], 100)

    def test_family(self) -> None:
        expected = support.run("family", preload=False).stdout
        for host in ("system", "jemalloc"):
            self.served("family_linked", expected, host)

    def test_cplusplus(self) -> None:
        self.served("thread_end_linked", "thread ends: 400\n", "jemalloc")

    def test_early(self) -> None:
        expected = support.run("early", preload=False).stdout
        self.served("early_linked", expected, "jemalloc")

    def test_beside_the_library(self) -> None:
        self.served("beside_shared", "beside: told apart\n", "jemalloc")
        self.served("beside_static", "beside: told apart\n", "jemalloc")

    def test_bad_setting(self) -> None:
        outcome = support.run("family_linked", preload=False,
                              environment={"GPUALLOC_HOST": "bogus"})
        self.assertEqual(outcome.status, 0)
        self.assertIn('GPUALLOC_HOST: unknown backend "bogus"', outcome.stderr.splitlines()[0])

    def test_names(self) -> None:
        """The archive and the preload define the family, sbrk and a mark, and nothing else."""
        family = names("-g", ARCHIVE)
        self.assertEqual(len(family), 21)
        self.assertEqual(names("-D", "-g", support.PRELOAD), family)

    def test_static_program(self) -> None:
        """The documented behaviour with -static."""
        compiler = shutil.which("cc")
        if not compiler:
            self.skipTest("there is no cc")
        archive = subprocess.run([compiler, "-print-file-name=libc.a"], text=True, check=True,
                                 capture_output=True).stdout.strip()
        if not os.path.isabs(archive):
            self.skipTest("no libc.a here")
        source = self.folder / "empty.c"
        source.write_text("int main(void) { return 0; }\n")
        outcome = subprocess.run(
            [compiler, "-static", str(source), "-o", str(self.folder / "empty"),
             "-Wl,-u,malloc", ARCHIVE], text=True, capture_output=True, timeout=60)
        self.assertNotEqual(outcome.returncode, 0)
        self.assertIn("multiple definition of `malloc'", outcome.stderr)


if __name__ == "__main__":
    support.main()
