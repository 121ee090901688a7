#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The `hardened` backend beside other hardened allocators: detected misuse and cost.

Every allocator is preloaded into the same programs. Times are processor time, as ratios to the C
library's malloc in the same round; "again" is the C library beside itself, which shows how much of
a ratio is noise. Allocators that are not named are left out.

  bench/preload/hardened.py --preload build/release/interpose/malloc/libgpualloc-malloc.so \\
      --misuse build/release/bench/preload/misuse \\
      --other hardened_malloc=libhardened_malloc.so --other mimalloc-secure=libmimalloc-secure.so
"""

import argparse
import datetime
import os
import platform
import shutil
import statistics
import subprocess
import sys
from typing import NamedTuple

import common

KINDS = ("double-free", "double-free-later", "interior-free", "overflow-16", "overflow-1M",
         "write-after-free", "read-after-free", "realloc-after-free", "reused-at-once")
SIZES = ("64", "5000", "200000")
OBJECTS = ("import sys\nn = int(sys.argv[1])\nfor r in range(8):\n"
           "    d = {str(i): [i] * (i % 40) for i in range(n)}\n    s = sorted(d)\n")
ROWS = "CREATE TABLE t(a, b); INSERT INTO t SELECT value, hex(randomblob(40)) " \
       "FROM generate_series(1, 200000);" \
       " CREATE INDEX i ON t(b); SELECT count(*) FROM t a JOIN t b USING (b);"


class Allocator(NamedTuple):
    name: str
    environment: dict[str, str]


def programs() -> dict[str, list[str]]:
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    found = {"python3 (no pymalloc)": [python, "-c", OBJECTS, "20000"]}
    if path := shutil.which("sqlite3"):
        found["sqlite3"] = [path, ":memory:", ROWS]
    if path := shutil.which("perl"):
        found["perl"] = [path, "-e", "for(1..6){my %h;$h{$_}=[1..$_%30] for 1..40000}"]
    if path := shutil.which("cc"):
        source = "\n".join(f"int f{i}(int a){{return a*{i}+f{max(i - 1, 0)}(a-1);}}"
                           for i in range(3000))
        found["cc -O1"] = ["sh", "-c", f"echo \"$1\" | {path} -w -x c -O1 -S -o /dev/null -",
                          "sh", source]
    return found


def run(command: list[str], allocator: Allocator) -> float:
    """Processor seconds of the program and its children."""
    environment = os.environ | {"PYTHONMALLOC": "malloc"} | allocator.environment
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{allocator.name}: {command[0]} ended with status {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(allocators: list[Allocator], rounds: int) -> None:
    print(f"\n{'processor time / the C library':32}"
          + "".join(f"{a.name:>24}" for a in allocators[1:]))
    for name, command in programs().items():
        ratios: dict[str, list[float]] = {a.name: [] for a in allocators}
        for _ in range(rounds):
            times = {a.name: run(command, a) for a in allocators}
            for a in allocators:
                ratios[a.name].append(times[a.name] / times[allocators[0].name])
        cells = [f"{statistics.median(r):.2f} ({min(r):.2f}..{max(r):.2f})"
                 for r in (ratios[a.name] for a in allocators[1:])]
        print(f"{name:32}" + "".join(f"{cell:>24}" for cell in cells))


def outcome(program: str, kind: str, size: str, allocator: Allocator) -> str:
    done = subprocess.run([program, kind, size], env=os.environ | allocator.environment,
                          capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return "stopped" if done.returncode == -6 else "fault"
    return done.stdout.strip() or f"status {done.returncode}"


def catch(program: str, allocators: list[Allocator]) -> None:
    shown = [a for a in allocators if a.name != "again"]
    print(f"\n{'misuse, bytes':32}" + "".join(f"{a.name:>24}" for a in shown))
    for kind in KINDS:
        for size in SIZES:
            cells = [outcome(program, kind, size, a) for a in shown]
            print(f"{kind + ' ' + size:32}" + "".join(f"{cell:>24}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True, help="libgpualloc-malloc.so")
    parser.add_argument("--misuse", required=True, help="the program misuse")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=LIBRARY",
                        help="an allocator to preload")
    parser.add_argument("--host", action="append", default=[], metavar="SPEC",
                        help="another backend of ours")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    ours = [Allocator(spec, {"LD_PRELOAD": os.path.abspath(arguments.preload),
                             "GPUALLOC_HOST": spec})
            for spec in ["hardened", *arguments.host]]
    others = [Allocator(name, {"LD_PRELOAD": path})
              for name, _, path in (other.partition("=") for other in arguments.other)]
    allocators = [Allocator("C library", {}), Allocator("again", {}), *ours, *others]
    print(f"{datetime.date.today()}, {common.processor()}, {os.cpu_count()} cores, "
          f"{' '.join(platform.libc_ver())}, gpualloc {common.commit()}")
    catch(arguments.misuse, allocators)
    measure(allocators, arguments.rounds)


if __name__ == "__main__":
    main()
