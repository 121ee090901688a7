#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cost of the preload for CUDA programs: a call that is passed on, and the start of a process.

Each figure is with the preload and without it in turn, over the driver for tests; the difference of
the medians is the preload's, and the range shows how far runs differ. Prints a line of
JSON for each, and fails where a call costs 100 ns or more, or a start 5 ms or more. With --real the
driver is the machine's; exit status 77 without one or without a GPU.
"""

import json
import os
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import common  # noqa: E402

CALL_NS, START_MS = 100, 5
TESTS = (("cuMemPoolGetAccess", 1), ("cuMemAllocManaged", 1), ("cuMemPoolGetAccess", 2))
# Passed on, and two that are answered, of a block of ours.
REAL = (("cuMemPoolGetAttribute", 1), ("cuMemPoolGetAttribute", 2), ("cuPointerGetAttribute", 1),
        ("cuMemGetAddressRange_v2", 1))


def call_ns(setup: dict[str, str], program: str, function: str, threads: int) -> float:
    done = subprocess.run([program, "1000000", function, str(threads)], env=setup,
                          capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        sys.exit(done.returncode)
    return float(done.stdout)


def first_block_ms(setup: dict[str, str], program: str) -> float:
    return call_ns(setup, program, "first-block", 1) / 1e6


def start_ms(setup: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run(["/bin/true"], env=setup, check=True)
    return (time.perf_counter() - begin) * 1e3


def compare(name: str, unit: str, bar: float, rounds: int, measure, plain: dict[str, str],
            preloaded: dict[str, str]) -> bool:
    without, with_it = [], []
    for _ in range(rounds):
        without.append(measure(plain))
        with_it.append(measure(preloaded))
    cost = statistics.median(with_it) - statistics.median(without)
    print(json.dumps({"what": name, "unit": unit, "rounds": rounds, "cost": round(cost, 3),
                      "without": round(statistics.median(without), 3),
                      "without_range": [round(min(without), 3), round(max(without), 3)],
                      "with": round(statistics.median(with_it), 3),
                      "with_range": [round(min(with_it), 3), round(max(with_it), 3)],
                      "bar": bar, "processor": common.processor(), "commit": common.commit()}))
    return cost < bar


def main() -> None:
    parser = common.argparse.ArgumentParser(description=__doc__)
    common.add_build_arguments(parser, preload="interpose/cuda/libgpualloc-cuda.so",
                               driver="tests/support/libcuda/libcuda.so.1",
                               program="bench/preload/cuda-calls")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--real", action="store_true", help="the machine's own driver")
    arguments = parser.parse_args()
    if arguments.real:
        del arguments.products["driver"]
    common.resolve_products(arguments)
    plain = common.clean_environment()
    if not arguments.real:
        plain["LD_LIBRARY_PATH"] = os.path.dirname(arguments.driver)
    preloaded = plain | {"LD_PRELOAD": arguments.preload, "GPUALLOC_DEVICE": "vmm"}
    good = True
    for function, threads in REAL if arguments.real else TESTS:
        good &= compare(f"{function}, {threads} thread{'s' * (threads > 1)}", "ns", CALL_NS,
                        arguments.rounds,
                        lambda setup: call_ns(setup, arguments.program, function, threads),
                        plain, preloaded)
    good &= compare("the first block of a process", "ms", START_MS, arguments.rounds,
                    lambda setup: first_block_ms(setup, arguments.program), plain, preloaded)
    good &= compare("start and end of a process without CUDA", "ms", START_MS,
                    5 * arguments.rounds, start_ms, plain, preloaded)
    sys.exit(0 if good else 1)


main()
