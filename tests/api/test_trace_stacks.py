#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gpualloc trace` of traces with call stacks: hand-made ones, cut and damaged ones among them. Set
GPUALLOC_BIN to the command. tests/preload/test_stacks.py has traces of programs."""

import random
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import command
from command import Answer, CommandTest

HEADER = struct.Struct("<8sIIIIIIQ")
RECORD = struct.Struct("<QQQQQIBBBbII")
PART = struct.Struct("<Q32sIB3sII")
ALLOC, REALLOC, FREE = 1, 3, 5
STACK, MODULE, UNLOAD = 8, 9, 10
DEEPER, OWN = 1, 2
DATA_OFFSET = 64
CHUNK_BYTES = 4 * RECORD.size
PATH = "/nowhere/lib.so"
FORMS = ("--leaks", "--folded", "--folded=peak", "--top", "--summary", "--dump", "--json")


def header(**changed: int | bytes) -> bytes:
    fields = {"magic": b"GATRACE\0", "abi": 2, "record_size": RECORD.size,
              "data_offset": DATA_OFFSET, "chunk_bytes": CHUNK_BYTES, "pid": 4711, "depth": 16,
              "start_ns": 1_700_000_000_000_000_000}
    return HEADER.pack(*(fields | changed).values())


def trace(records: Iterable[bytes], **changed: int | bytes) -> bytes:
    data = b"".join(records)
    return header(**changed) + bytes(DATA_OFFSET - HEADER.size) + data + bytes(
        -len(data) % CHUNK_BYTES)


def alloc(time: int, pointer: int, size: int, stack: int, part: int = 0) -> bytes:
    return RECORD.pack(time, pointer, 0, size, 0, 1, ALLOC, 0, 0, 0, stack, part)


def realloc(time: int, previous: int, pointer: int, size: int, stack: int) -> bytes:
    return RECORD.pack(time, pointer, previous, size, 0, 1, REALLOC, 0, 0, 0, stack, 0)


def free(time: int, pointer: int) -> bytes:
    return RECORD.pack(time, pointer, 0, 0, 0, 1, FREE, 0, 0, 0, 0, 0)


def parts(kind: int, number: int, definition: bytes) -> list[bytes]:
    return [PART.pack(0, definition[at:at + 32], 1, kind, b"", number, at // 32)
            for at in range(0, len(definition), 32)]


def stack(number: int, *frames: int, epoch: int = 0, flags: int = 0, **changed: int) -> list[bytes]:
    """The parts of a stack; `size` and `count` are what it says of itself."""
    size = changed.get("size", 16 + 8 * len(frames))
    count = changed.get("count", len(frames))
    return parts(STACK, number, struct.pack(f"<IIII{len(frames)}Q", size, epoch, count, flags,
                                            *frames))


def module(number: int, start: int, end: int, path: str = PATH, epoch: int = 0,
           build_id: bytes = b"\x12\x34", **changed: int) -> list[bytes]:
    text = build_id + path.encode() + b"\0"
    head = struct.pack("<IIQQQI", changed.get("size", 36 + len(text)), epoch, start, start, end,
                       changed.get("id_bytes", len(build_id)))
    return parts(MODULE, number, head + text)


def unload(number: int, epoch: int) -> list[bytes]:
    return parts(UNLOAD, number, struct.pack("<II", 8, epoch))


GOOD = [*module(1, 0x1000, 0x9000), *stack(1, 0x1010, 0x1020), *stack(2, 0x1030, 0x1020, 0xF000),
        alloc(1, 0x100, 10, 1), alloc(2, 0x200, 20, 2), alloc(3, 0x300, 30, 1), free(4, 0x100)]


class StacksTest(CommandTest):
    def show(self, content: bytes, *options: str) -> Answer:
        path = self.folder / "t"
        path.write_bytes(content)
        return self.gpualloc("trace", *options, path)

    def quiet(self, content: bytes, *options: str) -> str:
        answer = self.show(content, *options)
        self.assertEqual((0, ""), (answer.status, answer.err))
        return answer.out

    def folded(self, records: Iterable[bytes], figure: str = "bytes") -> dict[str, int]:
        lines = self.quiet(trace(records), f"--folded={figure}").splitlines()
        return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


class Forms(StacksTest):
    def test_leaks(self) -> None:
        self.assertEqual("never freed: 50 bytes in 2 blocks, from 2 call stacks\n\n"
                         "30 bytes in 1 block\n    lib.so+0x10\n    lib.so+0x20\n\n"
                         "20 bytes in 1 block\n    lib.so+0x30\n    lib.so+0x20\n    0xf000\n",
                         self.quiet(trace(GOOD), "--leaks"))

    def test_no_leaks(self) -> None:
        records = [*stack(1, 0x10), alloc(1, 0x100, 10, 1), free(2, 0x100)]
        self.assertEqual("never freed: 0 bytes in 0 blocks, from 0 call stacks\n",
                         self.quiet(trace(records), "--leaks"))

    def test_folded(self) -> None:
        one, two = "lib.so+0x20;lib.so+0x10", "0xf000;lib.so+0x20;lib.so+0x30"
        self.assertEqual({one: 40, two: 20}, self.folded(GOOD))
        self.assertEqual({one: 2, two: 1}, self.folded(GOOD, "blocks"))
        self.assertEqual({one: 40, two: 20}, self.folded(GOOD, "peak"))
        self.assertEqual({one: 30, two: 20}, self.folded(GOOD, "leaks"))

    def test_top(self) -> None:
        lines = self.quiet(trace(GOOD), "--top=1").splitlines()
        self.assertEqual(["live at the peak: 60 bytes in 3 blocks", "40 bytes 2 blocks lib.so+0x10",
                          "", "requested, by bytes: 60 bytes in 3 blocks",
                          "40 bytes 2 blocks lib.so+0x10", "",
                          "requested, by blocks: 60 bytes in 3 blocks",
                          "40 bytes 2 blocks lib.so+0x10"],
                         [" ".join(line.split()) for line in lines])

    def test_ids_in_lines(self) -> None:
        lines = self.quiet(trace(GOOD), "--dump").splitlines()
        self.assertEqual([" stack 1", " stack 2", " stack 1", ""],
                         [line[line.find(" stack"):] if " stack" in line else "" for line in lines])
        self.assertIn('"stack":2', self.quiet(trace(GOOD), "--json").splitlines()[1])

    def test_summary_counts_no_definitions(self) -> None:
        self.assertRegex(self.quiet(trace(GOOD)), r"(?m)^operations +4$")

    def test_peak(self) -> None:
        """The figures of the peak are of that moment, not of the end, also with resizes."""
        records = [*stack(1, 0x10), *stack(2, 0x20), *stack(3, 0x30), alloc(1, 0x100, 50, 1),
                   alloc(2, 0x200, 7, 2), realloc(3, 0x200, 0x300, 70, 3), free(4, 0x100),
                   alloc(5, 0x100, 5, 2)]
        self.assertEqual({"0x10": 50, "0x30": 70}, self.folded(records, "peak"))
        self.assertEqual({"0x20": 5, "0x30": 70}, self.folded(records, "leaks"))

    def test_order_in_the_file(self) -> None:
        """Definitions may come after their use, and their parts in any order."""
        records = list(GOOD)
        for seed in range(20):
            random.Random(seed).shuffle(records)
            self.assertEqual({"lib.so+0x20;lib.so+0x10": 30, "0xf000;lib.so+0x20;lib.so+0x30": 20},
                             self.folded(records, "leaks"))

    def test_epochs(self) -> None:
        """Each frame is in the module that was loaded then."""
        records = [*module(1, 0x1000, 0x2000, "/x/one.so"), *unload(1, 1),
                   *module(2, 0x1000, 0x2000, "/x/two.so", epoch=1), *unload(2, 2),
                   *stack(1, 0x1010), *stack(2, 0x1010, epoch=1), *stack(3, 0x1010, epoch=2),
                   *(alloc(i, 0x100 * i, i, i) for i in (1, 2, 3))]
        self.assertEqual({"one.so+0x10": 1, "two.so+0x10": 2, "0x1010": 3}, self.folded(records))

    def test_marks(self) -> None:
        records = [*stack(1, 0x10, flags=DEEPER), alloc(1, 0x100, 10, 1), alloc(2, 0x200, 20, 0)]
        self.assertEqual({"[further functions];0x10": 10, "[no call stack]": 20},
                         self.folded(records))
        self.assertIn("    0x10\n    [further functions]\n", self.quiet(trace(records), "--leaks"))


class Refused(StacksTest):
    def test_no_stacks(self) -> None:
        content = header(abi=1, record_size=48, chunk_bytes=192, depth=0) + bytes(24)
        for form in FORMS[:4]:
            self.refused(self.show(content, form), 1, "has no call stacks", "--stacks")

    def test_depths(self) -> None:
        for depth in (0, 129, 2**32 - 1):
            self.refused(self.show(trace(GOOD, depth=depth), "--leaks"), 1, "damaged header",
                         f"depth: expected 1 to 128, got {depth}")

    def test_options(self) -> None:
        path = self.folder / "t"
        path.write_bytes(trace(GOOD))
        for option, told in (("--folded=x", '"x"'), ("--folded=", '""'), ("--top=0", '"0"'),
                             ("--top=-1", '"-1"'), ("--top=1x", '"1x"'),
                             ("--top=99999999999999999999", '"99999999999999999999"')):
            self.refused(self.gpualloc("trace", option, path), 2, "expected", told)
        self.refused(self.gpualloc("trace", "--leaks", "--top", path), 2, "expected one of")
        for program in ("/nonesuch", "nonesuch-program", str(self.folder)):
            self.refused(self.gpualloc("trace", "--leaks", f"--symbolizer={program}", path), 1,
                         "--symbolizer", f'"{program}"')

    def test_options_of_run(self) -> None:
        for depth in ("0", "129", "9999", "x", "", "-1", "1.5", "99999999999999999999"):
            self.refused(self.gpualloc("run", "--trace=u", f"--stacks={depth}", "true"), 2,
                         "--stacks", "from 1 to 128", f'"{depth}"')
        self.refused(self.gpualloc("run", "--stacks", "true"), 2, "--stacks", "--trace")
        self.assertFalse((self.folder / "u").exists())

    def test_what_run_sets(self) -> None:
        for options, depth in ((["--stacks"], "32"), (["--stacks=7"], "7"), ([], "unset")):
            answer = self.gpualloc("run", f"--trace={self.folder}/u", *options, "--", "/bin/sh",
                                   "-c", 'printf %s "${GPUALLOC_TRACE_STACKS-unset}"')
            self.assertEqual((0, depth), (answer.status, answer.out), answer.err)


class Damaged(StacksTest):
    def expect(self, records: Iterable[bytes], folded: dict[str, int], damaged: int) -> None:
        answer = self.show(trace(records), "--folded=leaks")
        self.assertEqual(0, answer.status)
        lines = {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1])
                 for line in answer.out.splitlines()}
        self.assertEqual(folded, lines)
        told = re.findall(r"(\d+) call stacks or modules are damaged", answer.err)
        self.assertEqual([str(damaged)] if damaged else [], told, answer.err)

    def test_ids_without_a_stack(self) -> None:
        self.expect([*stack(1, 0x10), alloc(1, 0x100, 10, 1), alloc(2, 0x200, 20, 2),
                     alloc(3, 0x300, 30, 2**32 - 1)],
                    {"0x10": 10, "[call stack not in the trace]": 50}, 2)

    def test_missing_parts(self) -> None:
        whole = stack(1, *range(0x10, 0x30))
        for missing in range(len(whole)):
            self.expect([*whole[:missing], *whole[missing + 1:], alloc(1, 0x100, 10, 1)],
                        {"[call stack not in the trace]": 10}, 1)

    def test_stacks(self) -> None:
        for bad in (stack(1, 0x10, size=0), stack(1, 0x10, size=15), stack(1, 0x10, size=32),
                    stack(1, 0x10, size=2**32 - 1), stack(1, 0x10, count=0),
                    stack(1, 0x10, count=2), stack(1, 0x10, count=2**29 + 1),
                    stack(1, 0x10, flags=4), stack(1, *range(1, 200)), stack(1, 0x10)[:0]):
            self.expect([*bad, alloc(1, 0x100, 10, 1)], {"[call stack not in the trace]": 10}, 1)

    def test_modules(self) -> None:
        for bad in (module(1, 0x1000, 0x1000), module(1, 0x2000, 0x1000),
                    module(1, 0, 0x2000, id_bytes=33), module(1, 0, 0x2000, id_bytes=18),
                    module(1, 0, 0x2000, size=36), module(1, 0, 0x2000, size=5000),
                    module(1, 0, 0x2000, size=40), unload(1, 0)):
            self.expect([*bad, *stack(1, 0x1010), alloc(1, 0x100, 10, 1)], {"0x1010": 10}, 1)

    def test_definitions_that_nothing_uses(self) -> None:
        """As a process leaves them that is killed: not worth a message."""
        self.expect([*GOOD, *stack(9, *range(1, 9))[:1], *module(9, 0x20000, 0x30000)[:1]],
                    {"lib.so+0x20;lib.so+0x10": 30, "0xf000;lib.so+0x20;lib.so+0x30": 20}, 0)

    def test_parts(self) -> None:
        """Those that no definition can have are damaged records."""
        for bad in (PART.pack(0, b"", 1, STACK, b"", 0, 0), PART.pack(0, b"", 1, STACK, b"x", 1, 0),
                    PART.pack(0, b"", 1, 11, b"", 1, 0), PART.pack(0, b"", 1, STACK, b"", 1, 200),
                    PART.pack(2**63, b"", 1, STACK, b"", 1, 0), alloc(1, 0x100, 1, 1, part=1)):
            for form in FORMS:
                answer = self.show(trace([*GOOD, bad]), form)
                self.assertEqual(0, answer.status)
                self.assertIn("passed over 1 damaged record", answer.err)

    def test_every_cut(self) -> None:
        content = trace(GOOD)
        for size in range(HEADER.size, len(content), 7):
            for form in ("--leaks", "--folded", "--top"):
                answer = self.show(content[:size], form)
                self.assertEqual(0, answer.status, answer.err)

    def test_noise(self) -> None:
        for seed in range(20):
            noise = random.Random(seed).randbytes(30 * CHUNK_BYTES)
            for form in FORMS:
                self.assertEqual(0, self.show(trace(GOOD) + noise, form).status)

    def test_noise_in_definitions(self) -> None:
        for seed in range(30):
            dice = random.Random(seed)
            records = list(GOOD)
            for _ in range(200):
                data = struct.pack("<IIII", dice.choice((8, 16, 24, 60, dice.getrandbits(32))),
                                   dice.randrange(3), dice.randrange(4),
                                   dice.randrange(3)) + dice.randbytes(16)
                records.append(PART.pack(0, data, 1, dice.randrange(8, 11), b"",
                                         dice.randrange(1, 20), dice.randrange(3)))
            for form in FORMS:
                self.assertEqual(0, self.show(trace(records), form).status)

    def test_paths_of_modules(self) -> None:
        """A trace of another machine may name any file: none but one with the build ID is read."""
        other = Path(command.BINARY).resolve()
        self.expect([*module(1, 0x1000, 0x9000, "-x"), *stack(1, 0x1010), alloc(1, 0x100, 1, 1)],
                    {"-x+0x10": 1}, 0)
        answer = self.show(trace([*module(1, 0x1000, 0x9000, str(other)), *stack(1, 0x1010),
                                  alloc(1, 0x100, 10, 1)]), "--leaks")
        self.assertEqual(0, answer.status)
        self.assertIn("has changed since the trace", answer.err)
        self.assertIn(f"{other.name}+0x10", answer.out)


if __name__ == "__main__":
    command.main()
