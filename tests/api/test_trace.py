#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc trace`: hand-made traces of every kind, cut and damaged ones among them. Set
GPUALLOC_BIN to the command."""

import json
import os
import random
import re
import struct
import subprocess
import unittest
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import command
from command import Answer, CommandTest

HEADER = struct.Struct("<8sIIIIIIQ")
RECORD = struct.Struct("<QQQQQIBBBb")
NONE, ALLOC, ZEROED, REALLOC, GROW, FREE, RETIRE, FAILED = range(8)
NAMES = ("none", "alloc", "zeroed", "realloc", "grow", "free", "retire", "failed")
DATA_OFFSET = 64
CHUNK_RECORDS = 4
CHUNK_BYTES = CHUNK_RECORDS * RECORD.size


class Record(NamedTuple):
    time_ns: int = 0
    pointer: int = 0
    previous: int = 0
    size: int = 0
    stream: int = 0
    thread: int = 1
    operation: int = NONE
    align_log2: int = 0
    place: int = 0
    device: int = 0


def header(**changed: int | bytes) -> bytes:
    fields = {"magic": b"GATRACE\0", "abi": 1, "record_size": RECORD.size,
              "data_offset": DATA_OFFSET, "chunk_bytes": CHUNK_BYTES, "pid": 4711, "reserved": 0,
              "start_ns": 1_700_000_000_000_000_000}
    return HEADER.pack(*(fields | changed).values())


def trace(records: Iterable[Record], **changed: int | bytes) -> bytes:
    data = b"".join(RECORD.pack(*record) for record in records)
    gap = bytes(DATA_OFFSET - HEADER.size)
    return header(**changed) + gap + data + bytes(-len(data) % CHUNK_BYTES)


def alloc(time: int, pointer: int, size: int, **more: int) -> Record:
    return Record(time, pointer, size=size, operation=ALLOC, **more)


def free(time: int, pointer: int, **more: int) -> Record:
    return Record(time, pointer, operation=FREE, **more)


def realloc(time: int, previous: int, pointer: int, size: int, **more: int) -> Record:
    return Record(time, pointer, previous, size, operation=REALLOC, **more)


class TraceTest(CommandTest):
    def write(self, content: bytes) -> Path:
        path = self.folder / "t"
        path.write_bytes(content)
        return path

    def show(self, content: bytes, *options: str) -> Answer:
        return self.gpualloc("trace", *options, self.write(content))

    def lines(self, content: bytes) -> list[dict]:
        answer = self.show(content, "--json")
        self.assertEqual((0, ""), (answer.status, answer.err))
        return [json.loads(line) for line in answer.out.splitlines()]

    def figures(self, records: Iterable[Record]) -> dict[str, str]:
        """The summary's rows by their names, the histogram's by their ranges."""
        answer = self.show(trace(records))
        self.assertEqual((0, ""), (answer.status, answer.err))
        rows = re.findall(r"^ *(\S.*?)  +(.*\S)", answer.out, re.MULTILINE)
        return dict(rows)

    def memory(self, *records: Record) -> tuple[str, str, str, str | None]:
        rows = self.figures(records)
        return (rows["peak live"].split(",")[0], rows["never freed"],
                rows["of unknown blocks"].split()[0], rows.get("missing frees"))


class Forms(TraceTest):
    ALL = (alloc(10, 0x1000, 100, thread=7, align_log2=6),
           Record(20, 0x2000, size=8, operation=ZEROED, thread=7),
           realloc(30, 0x2000, 0x3000, 5000, thread=8),
           Record(40, 0x3000, size=6000, operation=GROW, thread=7),
           free(1_000_000_050, 0x1000, thread=7),
           Record(60, 0x3000, operation=RETIRE, thread=7, stream=0xABC, place=1, device=2),
           Record(70, size=2**64 - 1, operation=FAILED, thread=7))

    def test_json(self) -> None:
        lines = self.lines(trace(self.ALL))
        self.assertEqual([NAMES[r.operation] for r in self.ALL], [l["operation"] for l in lines])
        self.assertEqual({"time_ns": 10, "thread": 7, "operation": "alloc", "pointer": "0x1000",
                          "previous": "0x0", "size": 100, "align": 64, "place": "host",
                          "device": 0, "stream": "0x0"}, lines[0])
        self.assertEqual(("0x3000", "0x2000", 5000, 8),
                         tuple(lines[2][k] for k in ("pointer", "previous", "size", "thread")))
        self.assertEqual(("device", 2, "0xabc"),
                         tuple(lines[5][k] for k in ("place", "device", "stream")))
        self.assertEqual(2.0**64, lines[6]["size"])

    def test_dump(self) -> None:
        answer = self.show(trace(self.ALL), "--dump")
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertEqual(["0.000000010 7 alloc 0x1000 100 align 64",
                          "0.000000020 7 zeroed 0x2000 8",
                          "0.000000030 8 realloc 0x2000 -> 0x3000 5000",
                          "0.000000040 7 grow 0x3000 6000", "1.000000050 7 free 0x1000",
                          "0.000000060 7 retire 0x3000 device 2 stream 0xabc",
                          "0.000000070 7 failed 18446744073709551615"],
                         [" ".join(line.split()) for line in answer.out.splitlines()])

    def test_summary(self) -> None:
        rows = self.figures(self.ALL)
        self.assertEqual("1.000000 s", rows["duration"])
        self.assertEqual("2", rows["threads"])
        self.assertEqual("7", rows["operations"])
        for name in NAMES[1:]:
            self.assertEqual("1", rows[name])
        self.assertEqual("5108 bytes (5.0 KiB)", rows["requested"])
        self.assertIn("process 4711, begun 2023-11-1", self.show(trace(self.ALL)).out)

    def test_sizes(self) -> None:
        sizes = [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 2**62]
        rows = self.figures(alloc(i, 16 * (i + 1), size) for i, size in enumerate(sizes))
        for name, count in (("0", 1), ("1", 1), ("2 to 3", 2), ("4 to 7", 2), ("8 to 15", 1),
                            ("512 to 1023", 1), ("1024 to 2047", 1), ("16 to 31", 0),
                            (f"{2**62} to {2**63 - 1}", 1)):
            self.assertEqual(count, int(rows[name].split()[0]), name)

    def test_forms_exclude_each_other(self) -> None:
        content = trace(self.ALL)
        self.assertEqual(self.show(content).out, self.show(content, "--summary").out)
        self.assertEqual(self.show(content, "-d").out, self.show(content, "--dump", "-d").out)
        for two in (("--dump", "--json"), ("-s", "-j")):
            self.refused(self.show(content, *two), 2, "got two")

    def test_usage(self) -> None:
        self.refused(self.gpualloc("trace"), 2, "expected a FILE")
        self.refused(self.gpualloc("trace", "a", "b"), 2, '"a"', '"b"')

    def test_nobody_reads(self) -> None:
        path = self.write(trace(alloc(i, 16 * (i + 1), 1) for i in range(100_000)))
        for form in ("--dump", "--json"):
            with subprocess.Popen([command.BINARY, "trace", form, path], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                process.stdout.readline()
                process.stdout.close()
                self.assertEqual(b"", process.stderr.read())
            with open("/dev/full", "wb") as full:
                answer = self.gpualloc("trace", form, path, stdout=full)
            self.refused(answer, 1, "standard output")


class Replay(TraceTest):
    def test_peak(self) -> None:
        self.assertEqual(("300 bytes in 2 blocks", "0 bytes in 0 blocks", "0", None), self.memory(
            alloc(1, 0xA0, 100), alloc(2, 0xB0, 200), free(3, 0xA0), alloc(4, 0xC0, 50),
            free(5, 0xB0), free(6, 0xC0)))

    def test_nothing(self) -> None:
        self.assertEqual(("0 bytes in 0 blocks", "0 bytes in 0 blocks", "0", None), self.memory())

    def test_order_of_time_and_not_of_the_file(self) -> None:
        self.assertEqual(("100 bytes in 1 blocks", "0 bytes in 0 blocks", "0", None), self.memory(
            free(4, 0xB0, thread=2), alloc(1, 0xA0, 100), free(2, 0xA0),
            alloc(3, 0xB0, 100, thread=2)))

    def test_same_moment(self) -> None:
        """A clock may not advance while a thread works: then the order of the file counts."""
        records = [make for _ in range(50) for make in (alloc(1, 0xA0, 10), free(1, 0xA0))]
        self.assertEqual(("10 bytes in 1 blocks", "0 bytes in 0 blocks", "0", None),
                         self.memory(*records))

    def test_never_freed(self) -> None:
        self.assertEqual("1100 bytes (1.1 KiB) in 2 blocks", self.memory(
            alloc(1, 0xA0, 100), alloc(2, 0xB0, 1000), alloc(3, 0xC0, 1), free(4, 0xC0))[1])

    def test_reallocs(self) -> None:
        self.assertEqual(("500 bytes in 1 blocks", "30 bytes in 1 blocks", "0", None), self.memory(
            alloc(1, 0xA0, 100), realloc(2, 0xA0, 0xB0, 500), realloc(3, 0xB0, 0xB0, 30)))
        self.assertEqual(("900 bytes in 1 blocks", "0 bytes in 0 blocks", "0", None), self.memory(
            alloc(1, 0xA0, 100), Record(2, 0xA0, size=900, operation=GROW),
            Record(3, 0xA0, operation=RETIRE)))

    def test_address_reused_before_the_move_is_noted(self) -> None:
        late = realloc(4, 0xA0, 0xB0, 20)
        for end in ([free(5, 0xA0, thread=2), late], [late, free(5, 0xA0, thread=2)]):
            moment = [record._replace(time_ns=4 + i) for i, record in enumerate(end)]
            self.assertEqual(("0 bytes in 0 blocks", "0", None), self.memory(
                alloc(1, 0xA0, 10), alloc(2, 0xA0, 7, thread=2), *moment, free(9, 0xB0))[1:])

    def test_unknown_blocks(self) -> None:
        self.assertEqual(("25 bytes in 1 blocks", "0 bytes in 0 blocks", "4", None), self.memory(
            free(1, 0xA0), free(2, 0xA0), realloc(3, 0xB0, 0xC0, 20), free(4, 0xC0),
            realloc(5, 0xD0, 0xD0, 25), free(6, 0xD0)))

    def test_missing_frees(self) -> None:
        peak, left, unknown, missing = self.memory(
            alloc(1, 0xA0, 10), alloc(2, 0xA0, 7), alloc(3, 0xB0, 5), alloc(4, 0xB0, 6))
        self.assertEqual(("13 bytes in 2 blocks", "13 bytes in 2 blocks", "0"),
                         (peak, left, unknown))
        self.assertTrue(missing.startswith("2 "), missing)

    def test_many_threads(self) -> None:
        rows = self.figures(alloc(i, 16 * (i + 1), 1, thread=i % 999) for i in range(5000))
        self.assertEqual(("999", "5000"), (rows["threads"], rows["alloc"]))

    def test_against_a_plain_count(self) -> None:
        """Random scripts, replayed by a dictionary."""
        for seed in range(20):
            rng = random.Random(seed)
            live: dict[int, int] = {}
            records, peak = [], 0
            for time in range(500):
                pointer = 16 * rng.randrange(1, 40)
                size = rng.randrange(1000)
                if pointer not in live:
                    records.append(alloc(time, pointer, size))
                    live[pointer] = size
                elif rng.random() < 0.3:
                    target = 16 * rng.randrange(1, 40)
                    target = pointer if target in live else target
                    records.append(realloc(time, pointer, target, size))
                    del live[pointer]
                    live[target] = size
                else:
                    records.append(free(time, pointer))
                    del live[pointer]
                peak = max(peak, sum(live.values()))
            rng.shuffle(records)
            got = self.memory(*records)
            self.assertEqual((peak, sum(live.values())), tuple(int(t.split()[0]) for t in got[:2]))
            self.assertEqual(("0", None), got[2:])


class Cut(TraceTest):
    RECORDS = tuple(alloc(i, 16 * (i + 1), i) for i in range(CHUNK_RECORDS + 2))

    def expected_cut(self, length: int) -> bool:
        in_gap = HEADER.size < length < DATA_OFFSET
        return in_gap or (length > DATA_OFFSET and (length - DATA_OFFSET) % CHUNK_BYTES != 0)

    def check_cut(self, content: bytes, form: str) -> None:
        answer = self.show(content, form)
        if len(content) < HEADER.size:
            self.refused(answer, 1, "empty" if not content else "cut short")
            return
        whole = max(0, len(content) - DATA_OFFSET) // RECORD.size
        shown = min(whole, len(self.RECORDS))
        self.assertEqual(0, answer.status, answer.err)
        self.assertEqual(self.expected_cut(len(content)), "is cut short" in answer.err, answer.err)
        if form == "--summary":
            self.assertRegex(answer.out, rf"(?m)^operations +{shown}$")
        else:
            self.assertEqual(shown, len(answer.out.splitlines()))

    def test_at_every_byte(self) -> None:
        """Both forms read by the same code: the second one around the ends of records."""
        content = trace(self.RECORDS)
        for length in range(len(content) + 1):
            self.check_cut(content[:length], "--summary")
            if (length - DATA_OFFSET + 1) % RECORD.size <= 2 or length <= HEADER.size:
                self.check_cut(content[:length], "--dump")

    def test_writer_was_killed(self) -> None:
        """Slots never written, also amid a chunk and with an unfinished record, are no damage."""
        unfinished = Record(5, 0x77, size=9)
        records = [self.RECORDS[0], unfinished, Record(), Record(), self.RECORDS[1]]
        self.assertEqual([0, 1], [line["time_ns"] for line in self.lines(trace(records))])
        self.assertEqual([], self.lines(header()))


class Damaged(TraceTest):
    GOOD = (alloc(1, 0x10, 1), alloc(2, 0x20, 2), free(3, 0x10), free(4, 0x20))

    def test_headers(self) -> None:
        for field, value, part in (("record_size", 0, "expected 48, got 0"),
                                   ("record_size", 47, "expected 48, got 47"),
                                   ("record_size", 2**32 - 1, "got 4294967295"),
                                   ("data_offset", 0, "got 0"), ("data_offset", 39, "got 39"),
                                   ("data_offset", 2**32 - 1, "got 4294967295"),
                                   ("chunk_bytes", 0, "multiple of 48, got 0"),
                                   ("chunk_bytes", 100, "multiple of 48, got 100")):
            for form in ("--summary", "--dump", "--json"):
                answer = self.show(trace(self.GOOD, **{field: value}), form)
                self.refused(answer, 1, "damaged header", field, part)

    def test_another_version(self) -> None:
        self.refused(self.show(trace(self.GOOD, abi=3)), 1, "ABI version 3",
                     "expected version 1 or 2")

    def test_no_trace(self) -> None:
        for content in (b"{}", b"GATRACF\0" + bytes(100), b"GATRACE1" + bytes(100), bytes(4096),
                        b"\x7fELF" * 100):
            self.refused(self.show(content), 1, "expected a trace file", "GATRACE")

    def test_every_byte_of_the_header(self) -> None:
        content = trace(self.GOOD)
        for at in range(HEADER.size):
            for value in (0, 1, 0x7F, 0xFF, content[at] ^ 1):
                answer = self.show(content[:at] + bytes([value]) + content[at + 1:], "--dump")
                self.assertIn(answer.status, (0, 1))
                told = answer.out or "is cut short" in answer.err
                self.assertEqual(answer.status == 0, bool(told), answer.err)

    def test_records(self) -> None:
        wrong = [Record(1, 0x10, operation=8), Record(1, 0x10, operation=255),
                 Record(1, 0, operation=FREE), Record(1, 0x10, operation=FAILED),
                 alloc(1, 0x10, 2**63), alloc(2**63, 0x10, 1), alloc(1, 0x10, 1, align_log2=64),
                 alloc(1, 0x10, 1, place=3), Record(1, 0x10, 0x20, operation=FREE)]
        for record in wrong:
            for form in ("--summary", "--dump", "--json"):
                answer = self.show(trace([*self.GOOD, record]), form)
                self.assertEqual(0, answer.status)
                self.assertIn("passed over 1 damaged record", answer.err)
                self.assertNotIn(str(2**63), answer.out)
        answer = self.show(trace([*self.GOOD, *wrong]), "--dump")
        self.assertEqual(len(self.GOOD), len(answer.out.splitlines()))
        self.assertIn(f"passed over {len(wrong)} damaged records", answer.err)

    def test_noise(self) -> None:
        """Random records behind a good header: with any contents, the command ends normally."""
        for seed in range(30):
            noise = random.Random(seed).randbytes(20 * CHUNK_BYTES)
            for form in ("--summary", "--dump", "--json"):
                answer = self.show(trace([]) + noise, form)
                self.assertEqual(0, answer.status, answer.err)

    def test_sizes_that_add_up_to_too_much(self) -> None:
        records = [alloc(i, 16 * (i + 1), 2**63 - 1) for i in range(8)]
        self.assertEqual(0, self.show(trace(records)).status)


class Documented(TraceTest):
    def test_worked_example(self) -> None:
        """From the hexadecimal lines of docs/reference/trace.md, `gpualloc trace --dump` prints the
        record that the page shows."""
        text = (command.REPO / "docs" / "reference" / "trace.md").read_text()
        content = bytearray(8192)
        end = 0
        for offset, line in re.findall(r"(?m)^([0-9a-f]{8}): ((?:[0-9a-f]{4} ?)+)  ", text):
            part = bytes.fromhex(line)
            end = int(offset, 16) + len(part)
            content[end - len(part):end] = part
        told = re.findall(r"(?m)^[0-9.]+ +[0-9]+ (?:alloc|zeroed) .*$", text)
        self.assertEqual(1, len(told))
        self.assertEqual(told, self.show(bytes(content[:end]), "--dump").out.splitlines())
        self.assertIn("process 8333, begun", self.show(bytes(content[:end])).out)


class Files(TraceTest):
    def test_missing(self) -> None:
        for path in ("/nonesuch", "", "x" * 5000):
            self.refused(self.gpualloc("trace", path), 1, "cannot be read")

    def test_directory(self) -> None:
        self.refused(self.gpualloc("trace", self.folder), 1, "Is a directory")

    def test_empty(self) -> None:
        self.refused(self.show(b""), 1, "an empty one")
        self.refused(self.gpualloc("trace", "/dev/null"), 1, "an empty one")

    @unittest.skipIf(os.getuid() == 0, "root may read everything")
    def test_unreadable(self) -> None:
        path = self.write(trace([]))
        path.chmod(0)
        self.refused(self.gpualloc("trace", path), 1, "Permission denied")

    def test_pipe(self) -> None:
        content = trace(Cut.RECORDS)
        answer = self.gpualloc("trace", "--dump", "/dev/stdin", stdin=None, input=content)
        self.assertEqual(self.show(content, "--dump").out, answer.out)

    def test_huge_and_mostly_unwritten(self) -> None:
        path = self.write(trace(Cut.RECORDS))
        size = DATA_OFFSET + 2**29 // CHUNK_BYTES * CHUNK_BYTES
        os.truncate(path, size)
        answer = self.gpualloc("trace", path)
        self.assertEqual((0, ""), (answer.status, answer.err))
        self.assertRegex(answer.out, rf"(?m)^operations +{len(Cut.RECORDS)}$")


if __name__ == "__main__":
    command.main()
