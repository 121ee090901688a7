#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The settings of the preload in the environment: wrong settings cost one clear line and change
nothing else, statistics and failures are as requested, and a program that uses libgpualloc
itself is not affected."""

import json
import os
import re
import resource
import signal
import struct
import unittest

import support

KEYS = ["abi", "pid", "program", "place", "device", "spec", "allocs", "frees", "reallocs",
        "failures", "live_blocks", "live_bytes", "peak_bytes", "requested_bytes", "granted_bytes",
        "held_bytes", "growths"]
GOING_ON = "; going on with the system allocator"


def close_stderr() -> None:
    os.close(2)


def limit_file_sizes() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class Settings(support.Case):

    def counted(self, *arguments: str, **variables: str) -> support.Outcome:
        """Run `counted`, whose own output is one word under all settings."""
        outcome = support.run("counted", *arguments, environment=variables)
        self.assertEqual((outcome.status, outcome.stdout), (0, "counted\n"), outcome.stderr)
        return outcome

    def one_line(self, text: str, *wanted: str) -> None:
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("gpualloc: "), text)
        for part in wanted:
            self.assertIn(part, text)


class BadSettings(Settings):

    HOSTS = [
        ("bogus", "bogus", "known: system"),
        ("jemalloc:nosuch=1", "jemalloc", "nosuch", "decay"),
        ("jemalloc:decay=soon", "decay", "soon"),
        ("jemalloc:decay", "decay"),
        ("jemalloc:", "column 10", "option"),
        ("system/jemalloc", "system", "parent"),
        ("/", "column 1"),
        ("jemalloc/", "column 10", "backend"),
        ('dl:path="/lib', "column", "closing"),
        ("dl:", "column 4"),
        ("dl:/nonexistent/lib.so", "/nonexistent/lib.so"),
        ("dl:/etc/passwd", "/etc/passwd"),
        ("dl:libm.so.6", "libm.so.6", "malloc"),
        ("dl:" + support.PRELOAD, support.PRELOAD, "own malloc"),
        ("fail:nth=-1", "nth", "-1"),
        ("a" * 9000, "8191"),
        ("/" * 10000, "8191"),
        ("fail/" * 20 + "system", "16 layers"),
    ]

    def test_bad_host(self) -> None:
        for spec, *wanted in self.HOSTS:
            with self.subTest(spec[:40]):
                stderr = self.counted(GPUALLOC_HOST=spec).stderr
                self.one_line(stderr, "GPUALLOC_HOST: ", *wanted, GOING_ON)

    def test_sanitizer(self) -> None:
        """It would end the program that loads it. Its name alone is searched for."""
        path = support.find_library("libasan.so.?")
        if not path:
            self.skipTest("there is no libasan")
        for library in (path, os.path.basename(path)):
            stderr = self.counted(GPUALLOC_HOST="dl:" + library).stderr
            self.one_line(stderr, "GPUALLOC_HOST: ", library, "address sanitizer", GOING_ON)

    def test_strict(self) -> None:
        for spec, *wanted in self.HOSTS:
            with self.subTest(spec[:40]):
                outcome = support.run("counted", environment={"GPUALLOC_HOST": spec,
                                                              "GPUALLOC_STRICT": "1"})
                self.assertEqual((outcome.status, outcome.stdout), (2, ""))
                self.one_line(outcome.stderr, "GPUALLOC_HOST: ", *wanted)
        self.assertEqual(self.counted(GPUALLOC_HOST="jemalloc", GPUALLOC_STRICT="1").stderr, "")

    def test_bad_host_of_a_program_that_never_allocates(self) -> None:
        outcome = support.run("idle", environment={"GPUALLOC_HOST": "bogus"})
        self.assertEqual(outcome.status, 0)
        self.one_line(outcome.stderr, "bogus")

    def test_empty_host_is_the_default(self) -> None:
        self.assertEqual(self.counted(GPUALLOC_HOST="").stderr, "")

    def test_bad_stats_file(self) -> None:
        for path in ("/nonexistent/stats.json", str(self.folder)):
            with self.subTest(path):
                stderr = self.counted(GPUALLOC_HOST="jemalloc", GPUALLOC_STATS=path).stderr
                self.one_line(stderr, "GPUALLOC_STATS: ", path)

    def test_bad_trace_file(self) -> None:
        for path in ("/nonexistent/trace", str(self.folder / ("a" * 300)), "x" * 5000, "/dev/null",
                     "/tmp", "-", "/dev/stderr"):
            with self.subTest(path[:40]):
                stderr = self.counted(GPUALLOC_HOST="jemalloc", GPUALLOC_TRACE=path).stderr
                self.one_line(stderr, "GPUALLOC_TRACE: ", "going on without a trace")

    def test_bad_plugin(self) -> None:
        for path in ("/nonexistent/plugin.so", "/etc/passwd", "libm.so.6"):
            with self.subTest(path):
                stderr = self.counted(GPUALLOC_HOST="jemalloc", GPUALLOC_PLUGINS=path).stderr
                self.one_line(stderr, "GPUALLOC_PLUGINS: ", path, "going on without it")

    def test_closed_stderr(self) -> None:
        for variables in ({"GPUALLOC_HOST": "bogus"}, {"GPUALLOC_STATS": "1"},
                          {"GPUALLOC_TRACE": "/nonexistent/trace"}):
            with self.subTest(variables):
                outcome = support.run("counted", environment=variables, preexec_fn=close_stderr)
                self.assertEqual((outcome.status, outcome.stdout), (0, "counted\n"))

    def test_a_file_that_becomes_stderr_is_not_written_to(self) -> None:
        path = self.folder / "daemon.log"
        for before in (None, close_stderr):
            outcome = support.run("counted", "reuse-stderr", str(path),
                                  environment={"GPUALLOC_STATS": "1"}, preexec_fn=before)
            self.assertEqual((outcome.status, outcome.stdout), (0, "counted\n"))
            self.assertEqual(path.read_bytes(), b"")


class Statistics(Settings):

    def reports(self, *arguments: str, host: str = "jemalloc",
                **variables: str) -> list[dict[str, object]]:
        path = self.folder / "stats.json"
        path.unlink(missing_ok=True)
        stderr = self.counted(*arguments, GPUALLOC_HOST=host, GPUALLOC_STATS=str(path),
                              **variables).stderr
        self.assertEqual(stderr, "")
        reports = [json.loads(line) for line in path.read_text().splitlines()]
        for report in reports:
            self.assertEqual(list(report), KEYS)
        return reports

    def check(self, report: dict[str, object], times: int) -> None:
        """The requests of `counted`, `times` over, and the few that the C library adds."""
        few = 100
        self.assertEqual(report["failures"], times)
        for key, least in (("allocs", 1000), ("frees", 400), ("reallocs", 1),
                           ("live_blocks", 600)):
            self.assertGreaterEqual(report[key], least * times, key)
            self.assertLess(report[key], least * times + few, key)
        asked = (1000 * 100 + 5000) * times
        self.assertGreaterEqual(report["requested_bytes"], asked)
        self.assertGreaterEqual(report["granted_bytes"], report["requested_bytes"])
        self.assertGreaterEqual(report["live_bytes"], 600 * 100 * times)
        self.assertGreaterEqual(report["peak_bytes"], report["live_bytes"])
        self.assertGreaterEqual(report["held_bytes"], report["live_bytes"])
        self.assertEqual((report["abi"], report["program"], report["place"], report["device"]),
                         (1, "counted", "host", 0))

    def test_json(self) -> None:
        for host in ("system", "jemalloc", "jemalloc:decay=-1"):
            with self.subTest(host):
                [report] = self.reports(host=host)
                self.check(report, 1)
                self.assertTrue(str(report["spec"]).startswith(host), report["spec"])

    def test_json_of_a_thread(self) -> None:
        [report] = self.reports("thread")
        self.check(report, 2)

    def test_json_of_a_forked_child(self) -> None:
        child, parent = self.reports("fork")
        self.assertNotEqual(child["pid"], parent["pid"])
        self.check(parent, 1)
        self.check(child, 2)  # its parent's blocks, and its own

    def test_the_program_changes_its_environment(self) -> None:
        for how in ("clear", "no", "overwrite", "change"):
            with self.subTest(how):
                [report] = self.reports(how + "-environment")
                self.check(report, 1)

    def deep_folder(self) -> str:
        """A path of about 3800 bytes."""
        folder = str(self.folder)
        while len(folder) < 3700:
            folder += "/" + "d" * 200
            os.mkdir(folder)
        return folder

    def test_a_report_of_any_length(self) -> None:
        trace = self.deep_folder() + "/" + '"' * 100
        [report] = self.reports(host=f"{'fail:nth=0/' * 15}jemalloc",
                                GPUALLOC_TRACE=trace)
        self.assertGreaterEqual(report["allocs"], 1000)
        self.assertIn(trace.replace('"', '\\"'), report["spec"])
        os.remove(trace)
        table = self.table(GPUALLOC_STATS="1", GPUALLOC_TRACE=trace)
        self.assertIn(trace.replace('"', '\\"'), table)
        self.assertRegex(table, r"growths +\d+\n\Z")

    def run_as(self, name: str, stats: str) -> support.Outcome:
        """Run `counted` under another name."""
        path = self.folder / name
        path.symlink_to(support.PROGRAMS / "counted")
        return support.run(str(path), environment={"GPUALLOC_HOST": "jemalloc",
                                                   "GPUALLOC_STATS": stats})

    def test_a_name_that_controls_terminals(self) -> None:
        for name in ("\x1b]0;title\a\n* * * * * root id", "\x9b31m\x7f", "\udc9b31m\udcff"):
            with self.subTest(name.encode("unicode-escape")):
                stats = self.folder / "stats.json"
                stats.unlink(missing_ok=True)
                self.assertEqual(self.run_as(name, str(stats)).stdout, "counted\n")
                shown = json.loads(stats.read_bytes())["program"]
                self.assertEqual(shown, re.sub("[\udc80-\udcff]", "\ufffd", name))
                self.assertNotRegex(stats.read_text(), r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
                (self.folder / name).unlink()
                table = self.run_as(name, "1").stderr
                self.assertNotRegex(table, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
                self.assertRegex(table, r"\A.*, process \d+\nheap ")

    def test_standard_output(self) -> None:
        outcome = support.run("counted", environment={"GPUALLOC_HOST": "jemalloc",
                                                      "GPUALLOC_STATS": "-"})
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))
        self.assertTrue(outcome.stdout.startswith("counted\n"))
        self.check_table(outcome.stdout.removeprefix("counted\n"))

    def test_nobody_reads(self) -> None:
        """A pipe without a reader, a limit on file sizes: the program's status stays."""
        reader, writer = os.pipe()
        os.close(reader)
        outcome = support.run("counted", stderr=writer,
                              environment={"GPUALLOC_HOST": "jemalloc", "GPUALLOC_STATS": "1"})
        os.close(writer)
        self.assertEqual((outcome.status, outcome.stdout), (0, "counted\n"))
        path = str(self.folder / "stats")
        with open(path, "wb") as file:
            file.write(bytes(4096))
        outcome = support.run("counted", environment={"GPUALLOC_STATS": path},
                              preexec_fn=limit_file_sizes)
        self.assertEqual((outcome.status, outcome.stdout), (0, "counted\n"))
        self.one_line(outcome.stderr, "GPUALLOC_STATS", path, "File too large")

    def table(self, *arguments: str, **variables: str) -> str:
        return self.counted(*arguments, GPUALLOC_HOST="jemalloc", **variables).stderr

    def check_table(self, text: str) -> None:
        self.assertRegex(text, r"\Agpualloc: statistics of counted, process \d+\n")
        self.assertRegex(text, r"heap +jemalloc:decay=10000,background=no \(host\)")
        found = dict(re.findall(r"(allocs|frees|reallocs|failures|in blocks) +(\d+)", text))
        self.assertEqual((found["failures"], int(found["allocs"]) // 100), ("1", 10))
        self.assertEqual(int(found["frees"]) // 100, 4)
        self.assertRegex(text, r"live +\d+\.\d\d KiB")
        self.assertRegex(text, r"requested +\d+\.\d\d KiB +granted +\d+\.\d\d KiB \(\+\d")

    def test_table(self) -> None:
        self.check_table(self.table(GPUALLOC_STATS="1"))

    def test_table_in_a_file(self) -> None:
        path = self.folder / "stats.txt"
        self.assertEqual(self.table(GPUALLOC_STATS=str(path)), "")
        self.assertEqual(self.table(GPUALLOC_STATS=str(path)), "")
        first, second = re.findall(r"(?s)gpualloc: statistics.*?(?=gpualloc:|\Z)",
                                   path.read_text())
        self.check_table(first)
        self.check_table(second)

    def test_table_of_a_program_that_closes_stderr_when_it_ends(self) -> None:
        self.check_table(self.table("close-stderr", GPUALLOC_STATS="1"))

    def test_none_unless_asked_for(self) -> None:
        for value in ("", "0"):
            self.assertEqual(self.table(GPUALLOC_STATS=value), "")


class Traces(Settings):

    RECORD = struct.Struct("<QQQQQIBBBb")  # trace/format.h
    ALLOC, REALLOC, FREE, FAILED = 1, 3, 5, 7

    def operations(self, path: os.PathLike[str]) -> list[tuple[int, int]]:
        with open(path, "rb") as file:
            data = file.read()
        magic, abi, size, start = struct.unpack_from("<8sIII", data)
        self.assertEqual((magic, abi, size), (b"GATRACE\0", 1, self.RECORD.size))
        records = self.RECORD.iter_unpack(data[start:start + (len(data) - start) // size * size])
        return [(record[6], record[3]) for record in records if record[6]]

    def check(self, operations: list[tuple[int, int]]) -> None:
        self.assertEqual(operations.count((self.ALLOC, 100)), 1000)
        self.assertIn((self.REALLOC, 5000), operations)
        kinds = [operation for operation, _ in operations]
        self.assertEqual(kinds.count(self.FAILED), 1)
        self.assertIn(kinds.count(self.FREE), range(400, 500))

    def test_trace(self) -> None:
        path = self.folder / "trace"
        self.assertEqual(self.counted(GPUALLOC_HOST="jemalloc", GPUALLOC_TRACE=str(path)).stderr,
                         "")
        self.check(self.operations(path))

    def test_traces_of_a_process_and_its_child(self) -> None:
        path = self.folder / "trace"
        self.counted("fork", GPUALLOC_HOST="jemalloc", GPUALLOC_TRACE=str(path))
        [child] = self.folder.glob("trace.*")
        self.check(self.operations(path))
        self.check(self.operations(child))


class Neighbours(Settings):

    def test_failing_allocator(self) -> None:
        for below in ("system", "jemalloc"):
            for nth in ("7", "2"):
                with self.subTest(f"{below}, {nth}"):
                    spec = f"fail:nth={nth},every/{below}"
                    outcome = support.run("failing", nth, environment={"GPUALLOC_HOST": spec})
                    self.assertEqual((outcome.status, outcome.stdout, outcome.stderr),
                                     (0, "failing: survived\n", ""))

    def test_allocator_with_nothing(self) -> None:
        outcome = support.run("counted", environment={"GPUALLOC_HOST": "null"})
        self.assertEqual(outcome.status, 1)  # the program's own exit, no signal
        self.assertIn("not so: blocks[i] (errno 12)", outcome.stderr)

    def test_program_that_uses_the_library(self) -> None:
        for host in ("system", "jemalloc"):
            for record in ({}, {"GPUALLOC_STATS": str(self.folder / "stats.json")}):
                with self.subTest(f"{host} {record}"):
                    outcome = support.run("beside", environment={"GPUALLOC_HOST": host} | record)
                    self.assertEqual((outcome.status, outcome.stdout, outcome.stderr),
                                     (0, "beside: told apart\n", ""))
        # Two heaps closed by the program, and the process's, reported by a copy of its own.
        specs = [json.loads(line)["spec"].split(":")[0]
                 for line in (self.folder / "stats.json").read_text().splitlines()]
        self.assertEqual(specs, ["system", "jemalloc", "system", "system", "jemalloc", "jemalloc"])


if __name__ == "__main__":
    support.main()
