#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc replay`: hand-made traces, performed on backends that end the process on misuse, and
recorded again. Set GPUALLOC_BIN to the command."""

import json
import os
import re
import unittest
from collections import Counter

import command
from command import Answer
from test_trace import (FAILED, GROW, RETIRE, ZEROED, Record, TraceTest, alloc, free, realloc,
                        trace)


class ReplayTest(TraceTest):
    def replay(self, records: list[Record], *options: object, **more: object) -> Answer:
        return self.gpualloc("replay", self.write(trace(records)), *options, **more)

    def replayed(self, records: list[Record], *options: object, **more: object) -> str:
        answer = self.replay(records, *options, **more)
        self.assertEqual((0, ""), (answer.status, answer.err), answer.out)
        return answer.out

    def again(self, records: list[Record], *options: object) -> list[list[dict]]:
        """The traces of the two performances, of which only one is in the order of time: the
        records of each in the order of its file."""
        for old in self.folder.glob("again.*"):
            old.unlink()
        self.replayed(records, "--rounds=1", "--spec=trace:file=again.%p/system",
                      *options)
        files = sorted(self.folder.glob("again.*"))
        self.assertEqual(2, len(files))
        return [[json.loads(line)
                 for line in self.gpualloc("trace", "--json", file).out.splitlines()]
                for file in files]

    def head(self, *records: Record) -> str:
        return self.replayed(list(records), "--rounds=1", "--spec=hardened").splitlines()[0]


class Scripts(ReplayTest):
    """The calls that are performed."""

    def test_operations(self) -> None:
        records = [alloc(1, 0x1000, 100, align_log2=8),
                   Record(2, 0x2000, size=5000, operation=ZEROED),
                   realloc(3, 0x2000, 0x3000, 70000), realloc(4, 0x3000, 0x3000, 10),
                   realloc(5, 0, 0x4000, 77), free(6, 0x1000),
                   Record(7, 0x3000, operation=RETIRE), alloc(8, 0x1000, 9)]
        for performed in self.again(records):
            self.assertEqual([("alloc", 100, 256), ("zeroed", 5000, 0), ("realloc", 70000, 0),
                              ("realloc", 10, 0), ("alloc", 77, 0), ("free", 0, 0),
                              ("free", 0, 0), ("alloc", 9, 0), *[("free", 0, 0)] * 2],
                             [(one["operation"], one["size"], one["align"]) for one in performed])
            self.assertEqual(performed[0]["pointer"], performed[5]["pointer"])
            self.assertEqual(performed[3]["pointer"], performed[6]["pointer"])
        self.assertEqual("8 calls on 4 blocks of the host, by 1 thread; at most 68.46K live",
                         self.head(*records))

    def test_no_bytes(self) -> None:
        self.assertEqual("2 calls on 1 block of the host, by 1 thread; at most 0 live",
                         self.head(alloc(1, 0x1000, 0), free(2, 0x1000)))

    def test_order_of_time(self) -> None:
        """A file has the records of one thread after those of another."""
        records = [alloc(1, 0x1000, 1), free(4, 0x1000), alloc(2, 0x2000, 2, thread=2),
                   free(3, 0x2000, thread=2), alloc(5, 0x1000, 3, thread=2)]
        for performed in self.again(records, "--threads=1"):
            self.assertEqual([("alloc", 1), ("alloc", 2), ("free", 0), ("free", 0), ("alloc", 3),
                              ("free", 0)],
                             [(one["operation"], one["size"]) for one in performed])

    def test_growth_in_place(self) -> None:
        records = [alloc(1, 0x1000, 5000), Record(2, 0x1000, size=1 << 20, operation=GROW),
                   free(3, 0x1000)]
        for on_system in self.again(records):
            self.assertEqual(["alloc", "failed", "alloc", "free", "free"],
                             [one["operation"] for one in on_system])
        self.replayed(records, "--spec=vmm", "--spec=hardened")

    def test_a_move_is_recorded_after_its_address_is_used_again(self) -> None:
        records = [alloc(1, 0x1000, 10), alloc(2, 0x1000, 20, thread=2),
                   realloc(3, 0x1000, 0x2000, 30), free(4, 0x1000, thread=2), free(5, 0x2000)]
        for performed in self.again(records, "--threads=1"):
            first, second = performed[0]["pointer"], performed[1]["pointer"]
            self.assertEqual((first, second), (performed[2]["previous"], performed[3]["pointer"]))
        self.assertIn("5 calls on 2 blocks", self.head(*records))

    def test_an_address_that_is_used_again_without_a_free(self) -> None:
        self.assertEqual("3 calls on 2 blocks of the host, by 1 thread; at most 30 live",
                         self.head(alloc(1, 0x1000, 10), alloc(2, 0x1000, 20), free(3, 0x1000)))

    def test_what_is_left_out(self) -> None:
        records = [free(1, 0x1000), alloc(2, 0x2000, 10), free(3, 0x2000), free(4, 0x2000),
                   Record(5, size=1 << 60, operation=FAILED), realloc(6, 0x3000, 0x4000, 20),
                   free(7, 0x4000), alloc(8, 0x5000, 1, place=1)]
        out = self.replayed(records, "--rounds=1", "--spec=hardened")
        self.assertIn("4 calls on 2 blocks", out)
        self.assertIn("Left out: 4 frees and resizes of unknown blocks, and failed requests", out)
        self.assertIn("Left out: 1 record of other places and devices", out)

    def test_many_threads(self) -> None:
        """Each block is freed by the thread after the one that allocated it."""
        records = []
        for i in range(3000):
            records += [alloc(4 * i, 0x1000 * (i + 1), 1 + i % 400, thread=1 + i % 5),
                        realloc(4 * i + 1, 0x1000 * (i + 1), 0x1000 * (i + 1), 2 + i % 999,
                                thread=1 + (i + 1) % 5),
                        free(4 * i + 2, 0x1000 * (i + 1), thread=1 + (i + 2) % 5)]
        expected = Counter((("alloc", "realloc", "free")[i % 3], record.size)
                           for i, record in enumerate(records))
        for options, threads in (([], 5), (["--threads=2"], 2)):
            timed, in_order = sorted(self.again(records, *options),
                                     key=lambda one: -len({line["thread"] for line in one}))
            self.assertEqual(1, len({line["thread"] for line in in_order}))
            self.assertEqual(threads, len({line["thread"] for line in timed}))
            for performed in (timed, in_order):
                self.assertEqual(expected, Counter((one["operation"], one["size"])
                                                   for one in performed))
                self.check_blocks(performed)
        self.replayed(records, "--rounds=2", "--spec=hardened", "--spec=slab:check=full/system")

    def check_blocks(self, performed: list[dict]) -> None:
        """No operation on a block comes before its allocation or after its free."""
        live: set[str] = set()
        for one in sorted(performed, key=lambda one: one["time_ns"]):
            if one["operation"] != "alloc":
                before = one["previous" if one["operation"] == "realloc" else "pointer"]
                self.assertIn(before, live)
                live.remove(before)
            if one["operation"] != "free":
                live.add(one["pointer"])
        self.assertEqual(set(), live)

    @unittest.skipIf(command.SANITIZED, "a sanitizer's runtime must come before any preload")
    def test_a_program(self) -> None:
        file = self.folder / "sort.trace"
        answer = self.gpualloc("run", "--trace", file, "--", "sort", __file__)
        self.assertEqual((0, ""), (answer.status, answer.err))
        answer = self.gpualloc("replay", file, "--rounds=1")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertRegex(answer.out, r"(?m)^slab/system +[0-9.]+ +±")


class Figures(ReplayTest):
    def lines(self, records: list[Record], *options: object,
              **more: object) -> dict[tuple[str, str], dict]:
        file = self.folder / "figures.json"
        self.replayed(records, f"--json={file}", *options, **more)
        return {(line["spec"], line["metric"]): line
                for line in map(json.loads, file.read_text().splitlines())}

    @unittest.skipIf(command.SANITIZED, "a sanitizer's malloc keeps freed blocks")
    def test_memory(self) -> None:
        """Two of three large blocks are live at once, and the blocks are written to."""
        records = [alloc(1, 0x1000, 32 << 20), alloc(2, 0x2000, 32 << 20), free(3, 0x1000),
                   alloc(4, 0x3000, 16 << 20)]
        lines = self.lines(records, "--spec=system", "--spec=vmm")
        for spec in ("system", "vmm"):
            self.assertAlmostEqual(64, lines[spec, "peak"]["value"], delta=20)
            self.assertAlmostEqual(lines[spec, "peak"]["value"] / 64, lines[spec, "held"]["value"],
                                   delta=0.01)

    def test_json(self) -> None:
        lines = self.lines([alloc(1, 0x1000, 10, thread=3), alloc(2, 0x2000, 10, thread=4)],
                           "--rounds=1", "--spec=system", "--spec=slab/system")
        self.assertEqual([("system", "time"), ("system", "peak"), ("system", "held"),
                          ("slab/system", "time"), ("slab/system", "peak"),
                          ("slab/system", "held")], list(lines))
        self.assertEqual({("replay", "host", 2, "system")},
                         {(line["bench"], line["place"], line["threads"], line["baseline"])
                          for line in lines.values()})
        self.assertEqual(1, lines["system", "time"]["ratio"])
        self.assertGreater(lines["slab/system", "time"]["value"], 0)

    def test_table(self) -> None:
        out = self.replayed([alloc(i, 0x1000 * i, 100) for i in range(1, 1000)], "--rounds=3")
        self.assertTrue(all(len(line) <= 80 and line == line.rstrip()
                            for line in out.splitlines()), out)
        rows = re.findall(r"(?m)^(\S+) +[0-9.]+ +±[0-9.]+% +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$",
                          out)
        self.assertEqual(["system", "slab/system"], [name for name in rows if name != "jemalloc"])


class Devices(ReplayTest):
    """With the driver for tests."""

    RECORDS = [alloc(1, 0x1000, 4 << 20, place=1), alloc(2, 0x2000, 4 << 20, place=1, stream=7),
               free(3, 0x2000, place=1, stream=7, thread=2), free(4, 0x1000, place=1),
               alloc(5, 0x3000, 1 << 20, place=1, device=1)]
    DRIVER = {"GPUALLOC_CUDA_DRIVER": os.environ.get("GPUALLOC_TEST_DRIVER", "")}

    @unittest.skipUnless(DRIVER["GPUALLOC_CUDA_DRIVER"], "no driver for tests here")
    def test_a_device(self) -> None:
        out = self.replayed(self.RECORDS, "--rounds=1", env=self.DRIVER)
        self.assertIn("4 calls on 2 blocks of the device, by 2 threads; at most 8M live", out)
        self.assertIn("Left out: 1 record of other places and devices", out)
        self.assertRegex(out, r"(?m)^vmm .* 8\.00 +1\.00$")
        self.assertRegex(out, r"(?m)^cuda .* - +-$")

    @unittest.skipUnless(DRIVER["GPUALLOC_CUDA_DRIVER"], "no driver for tests here")
    def test_the_chosen_place(self) -> None:
        both = [alloc(6, 0x9000, 10), *self.RECORDS]
        self.assertIn("1 block of the host", self.replayed(both, "--rounds=1"))
        self.assertIn("blocks of the device",
                      self.replayed(both, "--rounds=1", "--place=device", env=self.DRIVER))

    def test_no_driver(self) -> None:
        answer = self.replay(self.RECORDS, "--spec=vmm",
                             env={"GPUALLOC_CUDA_DRIVER": "/nonesuch"})
        self.assertEqual((1, ""), (answer.status, answer.err))
        self.assertRegex(answer.out, r"(?m)^vmm +failed: vmm: no CUDA driver")


class Refusals(ReplayTest):
    ONE = [alloc(1, 0x1000, 10)]

    def test_bad_usage(self) -> None:
        for options, parts in ((["--spec=sistem"], ('"sistem"', "known: system")),
                               (["--spec=async"], ("async", "host")),
                               (["--place=kernel"], ("--place", '"kernel"')),
                               (["--threads=0"], ("--threads", "1 to 1024", '"0"')),
                               (["--rounds=0"], ("--rounds", '"0"')),
                               (["--rounds=1001"], ("--rounds", "1 to 1000")),
                               (["other"], ("expected one FILE",)),
                               (["--spec=system"] * 33, ("at most 32",))):
            self.refused(self.replay(self.ONE, *options), 2, *parts)
        self.refused(self.gpualloc("replay"), 2, "expected a FILE")

    def test_bad_files(self) -> None:
        self.refused(self.gpualloc("replay", "nonesuch"), 1, "nonesuch")
        self.refused(self.gpualloc("replay", __file__), 1, "expected a trace file")
        self.refused(self.replay([]), 1, "expected allocations", "found none")
        self.refused(self.replay(self.ONE, "--place=device"), 1, "on the device, found none")
        self.refused(self.replay(self.ONE, "--json=/nonesuch/x"), 1, "/nonesuch/x")

    def test_a_spec_that_fails(self) -> None:
        """The others are measured."""
        answer = self.replay(self.ONE, "--rounds=2", "--spec=fail/system", "--spec=system")
        self.assertEqual((1, ""), (answer.status, answer.err))
        self.assertRegex(answer.out, r"(?m)^fail/system +failed: fail: refused as nth=1 says")
        self.assertRegex(answer.out, r"(?m)^system +[0-9.]+ +±[0-9.]+% +- ")

    def test_a_failure_ends_the_waits_of_other_threads(self) -> None:
        records = [alloc(1, 0x1000, 10), free(2, 0x1000, thread=2), alloc(3, 0x2000, 10)]
        answer = self.replay(records, "--rounds=1", "--spec=fail/system")
        self.assertEqual(1, answer.status)


if __name__ == "__main__":
    command.main()
