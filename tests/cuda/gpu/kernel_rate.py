#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The rate of malloc and free in kernels of an unchanged program under the preload, beside that of
the same source linked with the archive (cuda-kernels-archive), in turns: each run, medians and
ranges, and the ratio of the medians.

  kernel_rate.py LIBGPUALLOC-CUDA.SO ARCHIVE PROGRAM... [--rounds 9] [--kernel slab/vmm]
                 [--before MIB,...] [--control]

Each round begins with another program. --before: MIB of memory are allocated before the heap, which
then has other memory; the rate depends on that by some percent. --control: the archive runs under
the preload, too. Exit status 77: there is no GPU; 1: a run failed.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

Ways = dict[str, tuple[str, dict[str, str]]]  # programs, and variables of their environments
Runs = dict[str, list[list[float]]]
Ratios = dict[tuple[str, str], list[float]]

FORMS = ("1056 blocks of 128", "1 warp", "1 thread")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preload", type=os.path.abspath)
    parser.add_argument("archive")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kernel", default="slab/vmm")
    parser.add_argument("--before", default="0")
    parser.add_argument("--control", action="store_true")
    return parser.parse_intermixed_args()


def nanoseconds(command: list[str], variables: dict[str, str]) -> list[float]:
    """Of a pair in a thread, in each form."""
    done = subprocess.run(command, env=os.environ | variables, check=False, text=True,
                          capture_output=True)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
        sys.exit(77 if done.returncode == 77 else 1)
    found = [float(time) for time in re.findall(r"([0-9.]+) ns a pair", done.stdout)]
    if len(found) != len(FORMS) or "failed: 0\n" not in done.stdout:
        sys.exit(f"{command[0]}: {done.stdout}")
    return found


def measure(ways: Ways, rounds: int, before: str) -> Runs:
    taken: Runs = {way: [] for way in ways}
    order = list(ways)
    for number in range(rounds):
        for way in order:
            program, variables = ways[way]
            taken[way].append(nanoseconds([program, "rate", before], variables))
            print(f"round {number + 1} {way}:", *taken[way][-1], flush=True)
        order = order[1:] + order[:1]
    return taken


def report(taken: Runs, ratios: Ratios) -> None:
    for form, name in enumerate(FORMS):
        archive = statistics.median(run[form] for run in taken["archive"])
        for way, runs in taken.items():
            times = sorted(run[form] for run in runs)
            median = statistics.median(times)
            ratios.setdefault((name, way), []).append(archive / median)
            print(f"{name}, {way}: {median:.1f} ns a pair in a thread ({times[0]:.1f} to "
                  f"{times[-1]:.1f}), {archive / median:.3f} times the archive's rate")


def run(ways: Ways, arguments: argparse.Namespace) -> None:
    ratios: Ratios = {}
    for before in arguments.before.split(","):
        print(f"# {arguments.kernel}, {before} MiB before; ns a pair in a thread: "
              f"{', '.join(FORMS)}", flush=True)
        report(measure(ways, arguments.rounds, before), ratios)
    if "," in arguments.before:
        for (form, way), found in ratios.items():
            print(f"all memory: {form}, {way}: {statistics.median(found):.3f} ({min(found):.3f} to "
                  f"{max(found):.3f}) times the archive's rate")


def ways_of(arguments: argparse.Namespace) -> Ways:
    heap = {"GPUALLOC_KERNEL": arguments.kernel}
    served = heap | {"LD_PRELOAD": arguments.preload}
    ways = {"archive": (arguments.archive, heap)}
    if arguments.control:
        ways["archive, preloaded"] = (arguments.archive, served)
    for program in arguments.programs:
        ways[os.path.basename(program)] = (program, served)
    return ways


def main() -> int:
    arguments = parse()
    run(ways_of(arguments), arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
